"""The trainer, and what it sees of raw rows on the way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from apportion.optim import DPSGD, AddedNoise, DPAdamBC, ExampleRows, PrivateTrainer, UserRows, Watch
from apportion.optim.diagnostics import (
    class_law,
    clipped_fraction,
    frequency_groups,
    gradient_alignment,
    gradient_lengths,
    noise_to_signal,
    scores_by_group,
)
from apportion.privacy import Budget, SeededNoise, Session
from optim.small_models import Chain, cross_entropy, images
from papers.heavy_tail.long_tail import long_tail


def separable(n=200, seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 3, n)
    return torch.as_tensor(np.eye(3)[targets] + 0.1 * rng.standard_normal((n, 3))), torch.as_tensor(targets)


def trainer(module, **settings):
    chosen = {"epsilon": 8.0, "delta": 1e-5, "steps": 40, "n_units": 200, "noise": SeededNoise(1), **settings}
    return PrivateTrainer(module, DPAdamBC(module.parameters(), 0.1), cross_entropy, **chosen)


@pytest.mark.parametrize("sampling", [1.0, 0.3])
def test_a_module_learns_under_a_budget_and_the_statement_says_how(sampling):
    inputs, targets = separable()
    module = nn.Linear(3, 3).double()
    watch = Watch(inputs, targets, targets, 3, every=20, gradients=True)
    found = trainer(module, sampling=sampling).fit(UserRows(inputs, targets, np.arange(200)), watch=watch)
    assert [seen.step for seen in found.history_] == [0, 20, 40]
    assert found.history_[-1].scores.accuracy > 0.95
    assert 0 <= found.history_[-1].clipped <= 1
    assert (found.history_[0].noise_to_signal > 0).all()
    within, across = found.history_[0].alignment
    assert within > across
    stated = found.statement_
    assert not stated.releasable
    assert stated.spent_epsilon <= 8.0
    assert "the module, its start and the loss" in stated.public
    assert "given by hand" in stated.tuning
    assert found.epsilon_after(40) == pytest.approx(stated.spent_epsilon, rel=1e-3)
    assert found.epsilon_after(10) < 0.8 * found.epsilon_after(40)


def test_rows_of_a_user_and_single_rows_are_different_promises():
    inputs, targets = separable()
    by_row = trainer(nn.Linear(3, 3).double(), steps=2).fit(ExampleRows(inputs, targets))
    assert by_row.statement_.neighbours == "add or remove one row"
    by_user = trainer(nn.Linear(3, 3).double(), steps=2).fit(UserRows(inputs, targets, np.arange(200) // 10))
    assert by_user.statement_.neighbours == "add or remove one user"


def test_schedulers_step_and_progress_is_told():
    inputs, targets = separable()
    module = nn.Linear(3, 3).double()
    optimizer = DPSGD(module.parameters(), 1.0)
    told = []
    PrivateTrainer(
        module, optimizer, cross_entropy, epsilon=1.0, delta=1e-5, steps=4, n_units=200, noise=SeededNoise(2),
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
    ).fit(ExampleRows(inputs, targets), progress=lambda made, of: told.append((made, of)))  # fmt: skip
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert optimizer.param_groups[0]["lr"] == 0.5**4


def test_a_session_of_the_caller_pays_and_keeps_what_it_had():
    inputs, targets = separable()
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(1), window="2025")
    found = trainer(nn.Linear(3, 3).double(), steps=3).fit(UserRows(inputs, targets, np.arange(200)), session=session)
    assert found.statement_.epsilon == 2.0
    assert found.statement_.window == "2025"
    assert session.spent == pytest.approx(1.0)


def test_frequency_groups_go_by_how_often_a_class_occurs():
    labels = np.repeat([0, 1, 2, 3], [50, 10, 9, 1])
    assert frequency_groups(labels, [50, 10, 2])[[0, 50, 60, 69]].tolist() == [0, 1, 2, 3]


def test_scores_by_group_are_means_over_the_groups_rows():
    module, (inputs, targets) = Chain().double(), images(30)
    groups = np.arange(30) % 3
    found = scores_by_group(module, cross_entropy, inputs, targets, groups, 4)
    with torch.no_grad():
        losses = cross_entropy(module(inputs), targets).numpy()
        right = (module(inputs).argmax(1) == targets).numpy()
    assert found.loss == pytest.approx(losses.mean())
    assert found.group_loss[1] == pytest.approx(losses[1::3].mean())
    assert found.group_accuracy[2] == pytest.approx(right[2::3].mean())
    assert np.isnan(found.group_loss[3])


def test_gradients_of_one_class_are_aligned_in_the_linear_model():
    data = long_tail(3, 4)
    module = nn.Linear(data.inputs.shape[1], data.n_classes, bias=False)
    nn.init.zeros_(module.weight)
    rows = np.random.default_rng(0).permutation(len(data.labels))[:40]
    found = gradient_alignment(
        module, cross_entropy, torch.as_tensor(data.inputs[rows]), torch.as_tensor(data.labels[rows])
    )
    # at zero weights the cosine is cos(x, x') cos(p - y, p - y'): 3/4 within a class, near 0 or below across
    assert found.within == pytest.approx(0.75, abs=0.04)
    assert found.across < 0.1
    assert np.allclose(np.diag(found.cosines), 1)


def test_lengths_clips_and_noise_to_signal_are_those_of_gradients_formed_one_by_one():
    module, (inputs, targets) = Chain().double(), images(10)
    gradients = []
    for row in range(10):
        loss = cross_entropy(module(inputs[row : row + 1]), targets[row : row + 1]).sum()
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]))
    gradients = torch.stack(gradients).numpy()
    lengths = np.linalg.norm(gradients, axis=1)
    found = gradient_lengths(module, cross_entropy, inputs, targets)
    assert np.allclose(found, lengths)
    clip = float(np.median(lengths))
    assert clipped_fraction(found, clip) == 0.5
    noise = AddedNoise(0.3, 7.0)
    ratios = noise_to_signal(module, cross_entropy, inputs, targets, np.arange(10) // 5, 2, clip, noise)
    clipped = gradients * np.minimum(1, clip / lengths)[:, None]
    signal = np.linalg.norm(clipped[5:].sum(axis=0)) / 7
    assert ratios[1] == pytest.approx(math.sqrt(gradients.shape[1]) * 0.3 / 7 / signal)


def test_the_law_of_gradients_and_hessians_holds_for_frequent_classes_of_a_model_that_learned():
    """At p near 1 for all classes, the gradient of class k is (1 - p) π_k x̄_k and little else (section 2.1)."""
    data = long_tail(5, 4)
    module = nn.Linear(data.inputs.shape[1], data.n_classes, bias=False).double()
    x, y = torch.as_tensor(data.inputs).double(), torch.as_tensor(data.labels)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    found = class_law(module.weight.detach().numpy(), data.inputs, data.labels)
    assert np.allclose(found.frequency, np.bincount(data.labels) / len(data.labels))
    head, tail = slice(0, 3), slice(15, None)
    assert found.gradient_law[head].mean() > 3 * found.gradient_law[tail].mean()
    assert found.curvature[head].mean() > 3 * found.curvature[tail].mean()
    loss = nn.functional.cross_entropy(module(x), y)
    gradient = torch.autograd.grad(loss, module.weight)[0].norm(dim=1).numpy()
    assert np.allclose(found.gradient, gradient)
