"""The trainer, and what it sees of raw rows on the way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.training import DPSGD, DPAdamBC, ExampleRows, FixedClip, PrivateTrainer, UserRows, Watch
from training.small_models import cross_entropy


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
    watch = Watch(inputs, targets, targets, 3, every=20)
    found = trainer(module, sampling=sampling).fit(UserRows(inputs, targets, np.arange(200)), watch=watch)
    assert [seen.step for seen in found.history_] == [0, 20, 40]
    assert found.history_[-1].scores.accuracy > 0.95
    stated = found.statement_
    assert not stated.releasable
    assert stated.spent_epsilon <= 8.0
    assert "the module, its initial parameters and the loss" in stated.public
    assert "given by hand" in stated.tuning
    assert found.epsilon_after(40) == pytest.approx(stated.spent_epsilon, rel=1e-3)
    assert found.epsilon_after(10) < 0.8 * found.epsilon_after(40)


def test_rows_of_a_user_and_single_rows_are_different_promises():
    inputs, targets = separable()
    by_row = trainer(nn.Linear(3, 3).double(), steps=2).fit(ExampleRows(inputs, targets))
    assert by_row.statement_.neighbours.key == "add-remove-example"
    by_user = trainer(nn.Linear(3, 3).double(), steps=2).fit(UserRows(inputs, targets, np.arange(200) // 10))
    assert by_user.statement_.neighbours.key == "add-remove"


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


def test_settings_of_the_trainer_are_those_of_the_releases_and_of_the_statement():
    inputs, targets = separable()
    settings = {
        "steps": 3, "sampling": 0.3, "n_units": 150, "clip": FixedClip(0.7), "public": ("the list of classes",),
        "window": "spring 2025", "tuning": "settings of an earlier year",
    }  # fmt: skip
    found = trainer(nn.Linear(3, 3).double(), **settings).fit(UserRows(inputs, targets, np.arange(200)))
    stated = found.statement_
    assert {release.sensitivity for release in stated.releases} == {0.7}
    assert [release.stddev for release in stated.releases] == pytest.approx([0.7 * found.noise_multiplier_] * 3)
    assert "the norm 0.7 to which gradients are clipped" in stated.public
    assert "the number of users, declared as 150" in stated.public
    assert "the list of classes" in stated.public
    assert stated.window == "spring 2025"
    assert stated.tuning == "settings of an earlier year"


def test_a_user_of_several_rows_has_the_mean_of_their_gradients_where_that_is_asked_for():
    """Two rows of slope 1 each: a sum of 2, a mean of 1; both within the norm, next to no noise."""
    inputs = torch.ones((8, 1), dtype=torch.float64)
    for mean_of_rows, expected in ((False, -2.0), (True, -1.0)):
        module = nn.Linear(1, 1, bias=False).double()
        nn.init.zeros_(module.weight)
        PrivateTrainer(
            module, DPSGD(module.parameters(), 1.0), lambda out, _: out[:, 0], epsilon=1e12, delta=1e-5, steps=1,
            n_units=4, clip=FixedClip(10.0), mean_of_rows=mean_of_rows, rows_at_once=3, noise=SeededNoise(1),
        ).fit(UserRows(inputs, inputs, np.arange(8) // 2))  # fmt: skip
        assert module.weight.item() == pytest.approx(expected, abs=1e-3)


def test_a_scheduler_that_goes_by_losses_is_refused():
    module = nn.Linear(3, 3).double()
    optimizer = DPSGD(module.parameters(), 1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(InputError, match="got ReduceLROnPlateau"):
        PrivateTrainer(module, optimizer, cross_entropy, epsilon=1.0, delta=1e-5, steps=2, scheduler=scheduler)


def test_a_second_fit_is_refused_since_its_statement_would_say_too_little():
    inputs, targets = separable()
    rows = UserRows(inputs, targets, np.arange(200))
    found = trainer(nn.Linear(3, 3).double(), steps=2).fit(rows)
    with pytest.raises(InputError, match="this trainer has already trained"):
        found.fit(rows)
    with pytest.raises(InputError, match="this trainer has already trained"):
        found.fit(rows, session=Session(Budget(1.0, 1e-5), noise=SeededNoise(3)))
