"""What is seen of raw rows during training: the units that are clipped, in the metric and by the norm of the step."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import nn

from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.training import (
    DPSGD,
    AddedNoise,
    ExampleRows,
    FixedClip,
    PrivateGradients,
    PrivateTrainer,
    QuantileClip,
    SecondMomentScales,
    UserRows,
    Watch,
)
from apportion.training.clipping import ComingStep
from apportion.training.diagnostics import NOT_COVERED, gradient_alignment, law_of_head
from papers.heavy_tail import alignment, gradients
from training.small_models import Chain, Tokens, cross_entropy, images, sentences

OWNERS = np.array([3, 3, 1, 2, 2, 2, 0, 4, 5, 5, 6, 7])
GROUPS = np.arange(12) % 3


def gradient(module, loss):
    found = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
    return torch.cat([g.flatten() for g in found])


def by_hand(module, inputs, targets, owners, clip, scales=None, mean_of_rows=False):
    """Fraction of clipped units and each row's part of the mean clipped gradient, one row and unit after another."""
    rows = torch.stack(
        [gradient(module, cross_entropy(module(inputs[k : k + 1]), targets[k : k + 1])) for k in range(len(inputs))]
    ).numpy()
    names = np.unique(owners)
    parts, clipped = np.zeros_like(rows), 0
    for name in names:
        own = owners == name
        share = rows[own] / own.sum() if mean_of_rows else rows[own]
        whole = share.sum(axis=0)
        length = np.linalg.norm(whole if scales is None else whole / scales)
        clipped += length > clip
        parts[own] = share * min(1, clip / length) / len(names)
    return clipped / len(names), parts


def noise_length(variances):
    return math.sqrt(sum(variances))


@pytest.mark.parametrize("users", [True, False])
@pytest.mark.parametrize("mean_of_rows", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_clipped_units_and_noise_to_signal_are_those_of_gradients_formed_one_by_one(users, mean_of_rows, scaled):
    module, (inputs, targets) = Chain().double(), images(12)
    owners = OWNERS if users else np.arange(12)
    generator = torch.Generator().manual_seed(4)
    scales = {
        p: 0.2 + 2 * torch.rand(p.shape, generator=generator, dtype=torch.float64)
        for p in (module.parameters() if scaled else ())
    }
    flat = torch.cat([s.flatten() for s in scales.values()]).numpy() if scaled else None
    noise = AddedNoise(0.3, 7.0, scales)
    lengths = [by_hand(module, inputs, targets, owners, c, flat, mean_of_rows)[0] for c in np.geomspace(0.1, 100, 60)]
    clip = float(np.geomspace(0.1, 100, 60)[np.searchsorted(-np.array(lengths), -0.5)])  # about half are longer
    expected, parts = by_hand(module, inputs, targets, owners, clip, flat, mean_of_rows)
    assert 0.2 < expected < 0.8
    watch = Watch(inputs, targets, GROUPS, 4, gradients=True, users=OWNERS if users else None)
    seen = watch.look(module, cross_entropy, 3, ComingStep(clip, noise, mean_of_rows))
    assert seen.clipped == pytest.approx(expected)
    width = parts.shape[1]
    added = noise_length((0.3 / 7) ** 2 * (np.ones(width) if flat is None else flat**2))
    for group in range(3):
        signal = np.linalg.norm(parts[group == GROUPS].sum(axis=0))
        assert seen.noise_to_signal[group] == pytest.approx(added / signal, rel=1e-9)
    assert np.isnan(seen.noise_to_signal[3])


@pytest.mark.parametrize("mean_of_rows", [False, True])
def test_users_of_many_short_rows_are_clipped_and_the_watch_says_so(mean_of_rows):
    """Rows of length below 1, 20 for each user: no row is longer than 2, and every user's sum is."""
    rng = np.random.default_rng(0)
    inputs = torch.as_tensor(0.3 * rng.standard_normal((400, 6)))
    targets, owners = torch.zeros(400, dtype=torch.int64), np.arange(400) // 20
    module = nn.Linear(6, 3).double()
    watch = Watch(inputs, targets, targets, 1, every=100, gradients=True, users=owners)
    trainer = PrivateTrainer(
        module, DPSGD(module.parameters(), 0.0), cross_entropy, epsilon=4.0, delta=1e-5, steps=1, n_units=20,
        clip=FixedClip(2.0), mean_of_rows=mean_of_rows, noise=SeededNoise(0),
    )  # fmt: skip
    trainer.fit(UserRows(inputs, targets, owners), watch=watch)
    assert [seen.clipped for seen in trainer.history_] == [0.0 if mean_of_rows else 1.0] * 2


def test_the_watch_sees_the_clip_norm_the_scales_and_the_noise_of_the_release_that_comes():
    inputs, targets = images(12)
    module = Chain().double()
    session = Session(Budget(30.0, 1e-5), noise=SeededNoise(2))
    gradients = PrivateGradients(
        module, cross_entropy, UserRows(inputs, targets, OWNERS), session, steps=8, n_units=8,
        clip=QuantileClip(3.0, rate=0.5, counted=0.3), scaling=SecondMomentScales(after=3), mean_of_rows=True,
    )  # fmt: skip
    optimizer = DPSGD(module.parameters(), 0.05)
    watch = Watch(inputs, targets, GROUPS, 3, gradients=True, users=OWNERS)
    fractions = set()
    for made in range(8):
        coming = gradients.coming_step
        assert coming.mean_of_rows
        assert coming.clip_norm == gradients.clip_norm
        seen = watch.look(module, cross_entropy, made, coming)
        scales = None
        if made >= 3:
            scales = torch.cat([coming.noise.scales[p].flatten() for p in module.parameters()]).numpy()
            assert scales.max() > 2 * scales.min()
        expected, _ = by_hand(module, inputs, targets, OWNERS, gradients.clip_norm, scales, mean_of_rows=True)
        assert seen.clipped == pytest.approx(expected)
        fractions.add(seen.clipped)
        told = gradients.fill(optimizer)
        assert told.stddev == pytest.approx(coming.noise.stddev, rel=1e-12)
        assert told.stddev == pytest.approx(seen.clip_norm / math.sqrt(0.7) * gradients.noise_multiplier, rel=1e-12)
        assert told.divisor == coming.noise.divisor
        for p in module.parameters():
            assert np.allclose(told.variance_of(p), coming.noise.variance_of(p), rtol=1e-12, atol=0)
        optimizer.step()
    assert len(fractions) > 1


@pytest.mark.parametrize("by_position", [True, False])
def test_rows_with_several_targets_are_split_by_the_groups_of_their_targets(by_position):
    module, (inputs, targets) = Tokens().double(), sentences(6)
    groups = np.random.default_rng(1).integers(0, 2, targets.shape)
    weight = 1.0 if by_position else 1 / targets.shape[1]

    def loss(outputs, wanted):
        found = cross_entropy(outputs, wanted)
        return found if by_position else found.mean(1)

    clip, noise = 4.5 * weight, AddedNoise(0.3, 7.0)
    watch = Watch(inputs, targets, groups, 2, gradients=True, scored_by=cross_entropy)
    seen = watch.look(module, loss, 0, ComingStep(clip, noise))
    sums, clipped = np.zeros((2, sum(p.numel() for p in module.parameters()))), []
    for row in range(6):
        losses = weight * cross_entropy(module(inputs[row : row + 1]), targets[row : row + 1])[0]
        parts = torch.stack([gradient(module, one) for one in losses.split(1)]).numpy()
        length = np.linalg.norm(parts.sum(axis=0))
        clipped.append(length > clip)
        for group in range(2):
            sums[group] += parts[groups[row] == group].sum(axis=0) * min(1, clip / length) / 6
    assert 0 < np.mean(clipped) < 1
    assert seen.clipped == np.mean(clipped)
    added = math.sqrt(sums.shape[1]) * 0.3 / 7
    assert np.allclose(seen.noise_to_signal, added / np.linalg.norm(sums, axis=1))
    assert seen.alignment is None
    assert seen.law is None
    with torch.no_grad():
        losses = cross_entropy(module(inputs), targets).numpy()
    assert seen.scores.group_loss[1] == pytest.approx(losses[groups == 1].mean())


def test_a_gradient_that_is_not_finite_adds_nothing_and_counts_as_clipped():
    module, (inputs, targets) = Chain().double(), images(12)
    step = ComingStep(0.5, AddedNoise(0.3, 7.0))
    spoiled = inputs.clone()
    spoiled[2, 0, 3, 3] = float("nan")
    seen = Watch(spoiled, targets, GROUPS, 3, gradients=True).look(module, cross_entropy, 0, step)
    _, parts = by_hand(module, inputs, targets, np.arange(12), 0.5)
    parts[2] = 0
    signal = np.linalg.norm(parts[GROUPS == 2].sum(axis=0))
    assert seen.noise_to_signal[2] == pytest.approx(math.sqrt(parts.shape[1]) * 0.3 / 7 / signal)
    far = ComingStep(1e9, AddedNoise(0.3, 7.0))
    assert Watch(spoiled, targets, GROUPS, 3, gradients=True).look(module, cross_entropy, 0, far).clipped == 1 / 12


def test_alignment_and_the_law_are_seen_with_gradients_and_nothing_of_them_without():
    module, (inputs, targets) = Chain().double(), images(12)
    step = ComingStep(0.5, AddedNoise(0.3, 7.0))
    seen = Watch(inputs, targets, GROUPS, 3, gradients=True).look(module, cross_entropy, 0, step)
    aligned = gradient_alignment(module, cross_entropy, inputs, targets)
    assert seen.alignment == (aligned.within, aligned.across)
    assert np.array_equal(seen.law.curvature, law_of_head(module, inputs, targets).curvature)
    plain = Watch(inputs, targets, GROUPS, 3).look(module, cross_entropy, 0, step)
    assert (plain.clipped, plain.noise_to_signal, plain.alignment, plain.law) == (None,) * 4
    assert plain.scores.loss == seen.scores.loss


def test_what_is_seen_says_that_it_is_not_covered_and_so_does_the_statement():
    inputs, targets = images(12)
    for watch in (Watch(inputs, targets, GROUPS, 3, every=2), None):
        module = Chain().double()
        trainer = PrivateTrainer(
            module, DPSGD(module.parameters(), 0.1), cross_entropy, epsilon=1.0, delta=1e-5, steps=2, n_units=12,
            noise=SeededNoise(0),
        ).fit(ExampleRows(inputs, targets), watch=watch)  # fmt: skip
        assert ("raw rows were looked at during training" in trainer.statement_.to_text()) == (watch is not None)
        assert all(NOT_COVERED in repr(seen) for seen in trainer.history_)
    assert "not covered" in NOT_COVERED


def test_groups_by_frequency_have_the_frequent_classes_first():
    inputs = torch.zeros((70, 2), dtype=torch.float64)
    targets = torch.as_tensor(np.repeat([0, 1, 2, 3], [50, 10, 9, 1]))
    module = nn.Linear(2, 4).double()
    with torch.no_grad():
        module.bias.copy_(torch.tensor([0.0, 5.0, 0.0, 0.0]))
    watch = Watch.by_frequency(inputs, targets, [50, 10, 2], every=7)
    seen = watch.look(module, cross_entropy, 0, ComingStep(1.0, AddedNoise(1.0, 1.0)))
    assert watch.every == 7
    assert seen.scores.group_accuracy.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_a_watch_of_other_units_than_are_clipped_is_refused_before_anything_is_charged():
    inputs, targets = images(12)
    cases = [
        (UserRows(inputs, targets, OWNERS), None, "users of the watched rows, because training clips users"),
        (ExampleRows(inputs, targets), OWNERS, "no users of the watched rows, because training clips examples"),
    ]
    for units, owners, message in cases:
        module = Chain().double()
        session = Session(Budget(1.0, 1e-5), noise=SeededNoise(1))
        trainer = PrivateTrainer(
            module, DPSGD(module.parameters(), 0.1), cross_entropy, epsilon=1.0, delta=1e-5, steps=2
        )
        watch = Watch(inputs, targets, GROUPS, 3, gradients=True, users=owners)
        with pytest.raises(InputError, match=message):
            trainer.fit(units, session=session, watch=watch)
        assert session.spent == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every and n_class_groups of at least 1, got 0 and 3"),
        ({"class_groups": GROUPS + 1}, "class_groups from 0 to 2, got 1 to 3"),
        ({"class_groups": GROUPS[:5]}, "a group for each target"),
        ({"users": OWNERS[:5]}, "users to have 12 rows"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    inputs, targets = images(12)
    with pytest.raises(InputError, match=message):
        Watch(inputs, targets, **{"class_groups": GROUPS, "n_class_groups": 3, **settings})


def test_the_study_of_gradients_reports_clips_and_noise_by_group():
    """At C = 1 every row is clipped, and the noise drowns rare groups more than frequent ones."""
    rows = [line.split("|")[1:-1] for line in gradients.table(gradients.looked(3, 4, steps=(0, 3))).splitlines()[4:]]
    assert [row[0].strip() for row in rows] == ["DP-GD", "DP-GD", "DP-AdamBC", "DP-AdamBC"]
    for row in rows:
        assert float(row[6]) == 1.0
        ratios = [float(ratio) for ratio in row[7].split(",")]
        assert len(ratios) == 3
        assert ratios[0] < ratios[1] < ratios[2]


def test_the_picture_of_cosines_shows_classes_as_blocks_on_the_diagonal():
    """Rows of one class are aligned, others are not; a row's cosine with itself says nothing and is left out."""
    classes = np.repeat([0, 1, 2], [8, 4, 4])
    cosines = np.where(classes[:, None] == classes[None, :], 0.75, 0.01)
    np.fill_diagonal(cosines, 1.0)
    levels = alignment.shades(cosines, 4)
    np.testing.assert_array_equal(levels, 6 * np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))
    looks = gradients.looked(3, 4, steps=(0, 3))
    markup = alignment.picture(looks)
    ElementTree.fromstring(markup)
    assert "after 0 steps" in markup
    assert "after 3 steps" in markup
    assert markup.count('class="s6"') > 2
