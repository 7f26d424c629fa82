"""A training of parameters that another training released: said once, and stated, unless one session pays for both."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from apportion.training import DPSGD, PrivateTrainer, TrainingCheckpoint, UserRows
from apportion.training.earlier import TrainedBeforeWarning
from training.small_models import cross_entropy


def rows():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 6, generator=generator), torch.randint(3, (40,), generator=generator)
    return UserRows(x, y, np.arange(40) // 2)


def module():
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def trainer(held, epsilon=2.0, **settings):
    optimizer = DPSGD([p for p in held.parameters() if p.requires_grad], settings.pop("lr", 0.1))
    settings = {"epsilon": epsilon, "delta": 1e-5, "steps": 2, "n_units": 20, **settings}
    return PrivateTrainer(held, optimizer, cross_entropy, **settings)


def reloaded(held):
    result = module()
    result.load_state_dict(held.state_dict())
    return result


def as_a_part(held):
    return nn.Sequential(*held, nn.Linear(3, 3))


def with_frozen_layers(held):
    held[0].requires_grad_(False)
    return held


@pytest.mark.parametrize("again", [lambda held: held, copy.deepcopy, reloaded, as_a_part, with_frozen_layers])
def test_a_second_training_says_that_it_does_not_count_the_first(again):
    held = module()
    first = trainer(held).fit(rows()).statement_
    assert first.unprotected == ()
    with pytest.warns(TrainedBeforeWarning, match="at most epsilon 5 and delta 2e-05"):
        second = trainer(again(held), epsilon=3.0).fit(rows()).statement_
    (sentence,) = second.unprotected
    assert "epsilon 2 and delta 1e-05" in sentence
    assert "at most epsilon 5" in sentence
    assert sentence in second.to_text()


def test_a_third_training_counts_both_before_it():
    held = module()
    trainer(held).fit(rows())
    with pytest.warns(TrainedBeforeWarning):
        trainer(held).fit(rows())
    with pytest.warns(TrainedBeforeWarning, match="epsilon 4 and delta 2e-05.*at most epsilon 6"):
        trainer(held).fit(rows())


def test_new_modules_need_no_caution():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer(module()).fit(rows())
        assert trainer(module()).fit(rows()).statement_.unprotected == ()


def test_numbers_that_are_all_the_same_are_no_sign_of_an_earlier_training():
    def to_zero(done):
        held[2].bias.data.zero_()

    held = module()
    trainer(held).fit(rows(), callbacks=[to_zero])
    new = module()
    nn.init.zeros_(new[2].bias)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trainer(new).fit(rows()).statement_.unprotected == ()


def test_a_training_that_changes_nothing_is_no_earlier_training():
    held = module()
    trainer(held, lr=0.0).fit(rows())
    assert trainer(held).fit(rows()).statement_.unprotected == ()


def test_a_training_that_fails_midway_is_an_earlier_training():
    held = module()

    def stop(done):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        trainer(held).fit(rows(), callbacks=[stop])
    with pytest.warns(TrainedBeforeWarning):
        trainer(held).fit(rows())


def test_going_on_from_a_checkpoint_is_the_same_training_and_keeps_what_it_states(tmp_path):
    held, path = module(), TrainingCheckpoint(tmp_path / "held.pt", every=1)
    trainer(held).fit(rows())

    def stop(done):
        raise RuntimeError("enough")

    start = copy.deepcopy(held.state_dict())
    with pytest.warns(TrainedBeforeWarning), pytest.raises(RuntimeError, match="enough"):
        trainer(held).fit(rows(), checkpoint=path, callbacks=[stop])
    again = reloaded(held)
    again.load_state_dict(start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        statement = trainer(again).fit(rows(), checkpoint=path).statement_
    (sentence,) = statement.unprotected
    assert "at most epsilon 4" in sentence
