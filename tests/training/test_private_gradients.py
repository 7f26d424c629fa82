"""Releases of gradients: batches in pieces, empty batches, what is charged and stated, replays on neighbouring data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from apportion.auditing import RecordingSession, audit_neighbour
from apportion.errors import BudgetError, InputError
from apportion.privacy import ADD_REMOVE, ADD_REMOVE_EXAMPLE, Budget, SeededNoise, Session
from apportion.privacy.accounting import Gaussian, SampledGaussian, epsilon_of
from apportion.privacy.ledger import Ledger
from apportion.training import (
    DPSGD,
    DPAdamBC,
    ExampleRows,
    ExampleSession,
    FixedClip,
    PrivateGradients,
    QuantileClip,
    SecondMomentScales,
    UserRows,
)
from training.small_models import Chain, Tokens, cross_entropy, images, sentences

from statistics_helpers import assert_scale

GROUPS = np.array([3, 3, 1, 2, 2, 2, 0, 4, 5, 5, 6, 7])


def published(module):
    return {name: p.detach().numpy().copy() for name, p in module.named_parameters()}


def train(units, session, *, steps=6, optimizer=DPAdamBC, model=Chain, **settings):
    module = model().double()
    chosen = optimizer(module.parameters(), lr=0.05)
    gradients = PrivateGradients(module, cross_entropy, units, session, steps=steps, n_units=8, **settings)
    for _ in range(steps):
        gradients.fill(chosen)
        chosen.step()
    return module, gradients


@pytest.mark.parametrize("sampling", [1.0, 0.4])
def test_a_batch_in_small_pieces_gives_the_same_steps_as_in_one(sampling):
    units = UserRows(*images(12), GROUPS)
    runs = [
        published(
            train(units, Session(Budget(5.0, 1e-5), noise=SeededNoise(2)), sampling=sampling, rows_at_once=rows)[0]
        )
        for rows in (1, 5, 100)
    ]
    for other in runs[1:]:
        for name, value in runs[0].items():
            assert np.allclose(value, other[name], atol=1e-7), name


def test_the_noise_that_the_optimizer_is_told_is_the_noise_that_was_added():
    """Without slopes gradients are noise alone, of the variance that the bias correction subtracts."""
    module = Chain().double()
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(5))
    gradients = PrivateGradients(
        module, lambda out, _: 0 * out, UserRows(*images(12), GROUPS), session, steps=40, n_units=50, sampling=0.3,
        clip=FixedClip(0.7),
    )  # fmt: skip
    found = []
    for _ in range(40):
        coming = gradients.coming_step.noise
        noise = gradients.fill()
        assert noise.variance == pytest.approx(coming.variance, rel=1e-9)
        assert noise.divisor == 50 * 0.3
        found.append(torch.cat([p.grad.flatten() for p in module.parameters()]).numpy() / math.sqrt(noise.variance))
    assert math.isclose(noise.stddev, 0.7 * gradients.noise_multiplier)
    assert_scale(np.concatenate(found), stddev=1.0, detect=1.07)


def test_epsilon_is_that_of_the_events_on_full_and_on_sampled_batches():
    budget = Budget(3.0, 1e-5)
    units = UserRows(*images(12), GROUPS)
    for sampling, kind in ((1.0, None), (0.25, 0.25)):
        session = Session(budget, noise=SeededNoise(1))
        _, gradients = train(units, session, steps=10, sampling=sampling)
        z = gradients.noise_multiplier
        event = Gaussian(z, 10) if kind is None else SampledGaussian(z, kind, 10)
        spent = session.statement().spent_epsilon
        assert spent == pytest.approx(epsilon_of([event], 1e-5), rel=2e-3)
        assert 0.99 * 3 < spent <= 3.0
        with pytest.raises(BudgetError, match="All 10 planned steps"):
            gradients.fill()


def test_empty_samples_are_steps_of_noise():
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(3))
    module, gradients = train(UserRows(*images(3), [0, 1, 2]), session, steps=20, sampling=0.02)
    assert len(session.statement().releases) == 20
    assert gradients.steps_left == 0
    assert all(np.isfinite(value).all() for value in published(module).values())


def test_the_statement_says_whose_rows_are_protected_and_what_is_public():
    units = UserRows(*images(12), GROUPS)
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(3))
    train(units, session, clip=QuantileClip(0.5))
    stated = session.statement()
    assert stated.neighbours is ADD_REMOVE
    assert "the number of users, declared as 8" in stated.public
    assert any("clip norm that follows released counts" in sentence for sentence in stated.public)
    rows = ExampleSession(Budget(1.0, 1e-5), noise=SeededNoise(3))
    train(ExampleRows(*images(12)), rows, sampling=0.5)
    assert rows.statement().unit.startswith("example: one row")
    with pytest.raises(InputError, match="add or remove one row"):
        train(ExampleRows(*images(12)), Session(Budget(1.0, 1e-5)))
    with pytest.raises(InputError, match="add or remove one user"):
        train(units, ExampleSession(Budget(1.0, 1e-5)))


@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_training_on_single_rows_is_charged_to_an_account_for_single_rows(tmp_path, sampling):
    ledger = Ledger.open(tmp_path / "ledger.jsonl")
    kind_of_account = "renyi" if sampling < 1 else "gaussian"
    account = ledger.create_account("rows", Budget(2.0, 1e-5), neighbours=ADD_REMOVE_EXAMPLE, kind=kind_of_account)
    for kind, settings in ((ExampleSession, {}), (Session, {"neighbours": ADD_REMOVE_EXAMPLE})):
        before = account.status().spent_epsilon
        session = kind(Budget(0.4, 1e-6), noise=SeededNoise(1), ledger=account, **settings)
        train(ExampleRows(*images(12)), session, steps=2, sampling=sampling)
        assert account.status().spent_epsilon > before
    ledger.create_account("users", Budget(1.0, 1e-5))
    with pytest.raises(BudgetError, match="add or remove one user"):
        ExampleSession(Budget(0.4, 1e-6), noise=SeededNoise(1), ledger=ledger.account("users"))


def test_a_number_of_units_that_is_not_declared_is_released():
    units = UserRows(*images(12), GROUPS)
    for sampling in (1.0, 0.5):
        session = Session(Budget(200.0, 1e-5), noise=SeededNoise(3))
        module = Chain().double()
        gradients = PrivateGradients(module, cross_entropy, units, session, steps=3, sampling=sampling)
        assert session.statement().releases[0].name == "number of users"
        expected = gradients.coming_step.noise.divisor
        assert expected == pytest.approx(8 * sampling, abs=3)
        assert expected != 8 * sampling


def without(data, user):
    inputs, targets, groups = data
    kept = groups != user
    return inputs[kept], targets[kept], groups[kept]


FITS = {
    "full batches": {},
    "samples": {"sampling": 0.5},
    "clip by a quantile": {"clip": QuantileClip(0.2), "sampling": 0.5},
    "scaled": {"scaling": True},
    "means of rows": {"mean_of_rows": True},
    "tokens": {"model": Tokens},
    "counted": {"n_units": None, "sampling": 0.5},
}


@pytest.mark.parametrize("settings", FITS.values(), ids=FITS)
def test_no_release_moves_by_more_than_it_states_when_any_user_leaves(settings):
    kind = sentences if settings.get("model") is Tokens else images
    data = (*kind(12), GROUPS)

    def fit(rows, session):
        module = settings.get("model", Chain)().double()
        optimizer = DPAdamBC(module.parameters(), lr=0.05)
        given = {name: value for name, value in settings.items() if name not in ("model", "scaling")}
        scaling = SecondMomentScales(after=2) if "scaling" in settings else None
        gradients = PrivateGradients(
            module, cross_entropy, UserRows(*rows), session, steps=5, **{"n_units": 8, "scaling": scaling, **given}
        )
        for _ in range(5):
            gradients.fill(optimizer)
            optimizer.step()
        return {**published(module), "norm": gradients.clip_norm}

    worst = 0.0
    for user in range(8):
        ratios = audit_neighbour(
            fit, data, without(data, user), {"budget": Budget(20.0, 1e-5), "noise": SeededNoise(user)}
        )
        assert max(ratios.values()) <= 1 + 1e-9, ratios
        worst = max(worst, *ratios.values())
    assert worst > 0.9


def test_a_loss_that_mixes_units_is_caught_by_the_replay():
    """The general way cannot mix rows; the factors of layers can, if a loss does where made-up rows do not show it."""

    def mixing(outputs, targets):
        return cross_entropy(outputs * (-1) ** (len(outputs) // 17), targets)

    data = (*images(17), np.arange(17))  # 32 rows with what fills the pass up, and 16 without user 3

    def fit(rows, session):
        module = Chain().double()
        gradients = PrivateGradients(module, mixing, UserRows(*rows), session, steps=1, n_units=8)
        gradients.fill()
        return {}

    ratios = audit_neighbour(fit, data, without(data, 3), {"budget": Budget(20.0, 1e-5), "noise": SeededNoise(1)})
    assert max(ratios.values()) > 1.05


def test_all_steps_are_planned_before_the_first_and_spend_the_whole_budget():
    session = RecordingSession(Budget(2.0, 1e-5), noise=SeededNoise(1))
    train(UserRows(*images(12), GROUPS), session, optimizer=DPSGD)
    assert 1 - 1e-9 <= session.spent <= 1.0
    assert len({release.mu for release in session.statement().releases}) == 1


def test_a_clip_norm_follows_the_quantile_of_lengths():
    """Gradient lengths are 1 for all units here; the norm ends near them, from above and from below."""
    for start in (20.0, 0.05):
        module = torch.nn.Linear(1, 1, bias=False).double()
        inputs = torch.ones((200, 1), dtype=torch.float64)
        session = Session(Budget(1000.0, 1e-5), noise=SeededNoise(1))
        gradients = PrivateGradients(
            module, lambda out, _: out[:, 0], UserRows(inputs, inputs, np.arange(200)), session, steps=60, n_units=200,
            clip=QuantileClip(start, rate=0.3),
        )  # fmt: skip
        for _ in range(60):
            gradients.fill()
        assert 0.8 < gradients.clip_norm < 1.25


def test_the_next_norm_goes_by_the_released_fraction_within_its_limits():
    rule = QuantileClip(2.0, quantile=0.4, rate=0.5, smallest=1.5, largest=2.2)
    assert rule.following(2.0, 0.5) == pytest.approx(2.0 * math.exp(-0.5 * 0.1))
    assert rule.following(2.0, 0.3) == pytest.approx(2.0 * math.exp(0.5 * 0.1))
    assert rule.following(2.0, 0.0) == 2.2
    assert rule.following(2.0, 1.0) == 1.5
    free = QuantileClip(2.0, quantile=0.4, rate=0.5)
    assert free.following(2.0, 7.0) == pytest.approx(2.0 * math.exp(-0.5 * 0.6))  # beyond 1 it is noise
    assert free.following(2.0, -7.0) == pytest.approx(2.0 * math.exp(0.5 * 0.4))
    with pytest.raises(InputError, match="counted in"):
        QuantileClip(counted=0.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps as a whole number of at least 1"),
        ({"sampling": 1.5}, "sampling in"),
        ({"n_units": 0}, "declared number of users of at least 1, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        PrivateGradients(
            Chain(),
            cross_entropy,
            UserRows(*images(12), GROUPS),
            Session(Budget(1.0, 1e-5)),
            **{"steps": 3, **settings},
        )
