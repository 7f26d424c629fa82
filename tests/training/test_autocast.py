"""Passes in 16 bits: clipping and sums stay in float64, and no unit's rounding depends on who else is there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.auditing import audit_neighbour
from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.training import DPSGD, FixedClip, PrivateGradients, ReleasedLoss, UserRows
from apportion.training.per_unit import FunctionalGradients
from training.small_models import Chain, Tokens, cross_entropy, images, sentences

GROUPS = np.array([3, 3, 1, 2, 2, 2, 0, 4, 5, 5, 6, 7])


def first_gradient(model, rows, autocast, way=None, **settings):
    module = model()
    session = Session(Budget(1e4, 1e-5), noise=SeededNoise(0))
    gradients = PrivateGradients(
        module, cross_entropy, UserRows(*rows, GROUPS), session, steps=1, n_units=8, autocast=autocast, way=way,
        **settings,
    )  # fmt: skip
    gradients.fill()
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in module.parameters())
    return torch.cat([p.grad.flatten() for p in module.parameters()])


@pytest.mark.parametrize(("model", "rows"), [(Chain, images(12, dtype=torch.float32)), (Tokens, sentences(12))])
def test_gradients_in_16_bits_are_close_to_those_in_32_and_differ(model, rows):
    plain = first_gradient(model, rows, None)
    short = first_gradient(model, rows, torch.bfloat16)
    assert not torch.equal(plain, short)
    assert float((plain - short).norm() / plain.norm()) < 0.03


def fit_with(rows_at_once):
    def fit(rows, session):
        module = Chain()
        optimizer = DPSGD(module.parameters(), 0.05)
        gradients = PrivateGradients(
            module, cross_entropy, UserRows(*rows), session, steps=3, n_units=8, clip=FixedClip(0.1),
            autocast=torch.bfloat16, rows_at_once=rows_at_once, losses=ReleasedLoss(2.0),
        )  # fmt: skip
        for _ in range(3):
            gradients.fill(optimizer)
            optimizer.step()
        return {name: p.detach().numpy().copy() for name, p in module.named_parameters()}

    return fit


@pytest.mark.parametrize("rows_at_once", [4, 64])
def test_no_release_moves_by_more_than_it_states_when_any_user_leaves(rows_at_once):
    """Also with the mean loss as one more coordinate."""
    data = (*images(12, dtype=torch.float32), GROUPS)
    worst = 0.0
    for user in (1, 2, 3):
        kept = user != GROUPS
        ratios = audit_neighbour(
            fit_with(rows_at_once), data, tuple(each[kept] for each in data),
            {"budget": Budget(20.0, 1e-5), "noise": SeededNoise(user)},
        )  # fmt: skip
        worst = max(worst, *ratios.values())
    assert 0.85 < worst <= 1 + 1e-9


def test_a_row_has_the_same_bits_whoever_else_is_in_the_pass():
    """Rows at a kink: 16 bits round its score to 0 or not, and that decides whether it has a slope at all."""

    class Kinked(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.inner, self.out = nn.Linear(64, 48), nn.Linear(48, 1)

        def forward(self, x):
            return self.out(self.inner(x))

    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.standard_normal((40, 64)), dtype=torch.float32)
    sums = []
    for kept in (np.arange(40), np.arange(1, 40), np.arange(39), np.arange(0, 40, 3)):
        module, session = Kinked(), Session(Budget(1e9, 1e-5), noise=SeededNoise(0))
        seen = {}

        def loss(out, targets, seen=seen):
            seen.update(zip(targets.tolist(), out[:, 0].tolist(), strict=True))
            return out[:, 0]

        units = UserRows(x[kept], torch.as_tensor(kept), kept)
        PrivateGradients(module, loss, units, session, steps=1, n_units=8, autocast=torch.bfloat16).fill()
        sums.append(seen)
    for other in sums[1:]:
        assert all(other[row] == sums[0][row] for row in other if row > 1)  # rows 0 and 1 are made up as well


def test_only_bfloat16_is_taken_and_the_general_way_takes_it_too():
    with pytest.raises(InputError, match=r"None or torch.bfloat16, got torch.float16"):
        first_gradient(Chain, images(12, dtype=torch.float32), torch.float16)
    rows = images(12, dtype=torch.float32)
    general = first_gradient(Chain, rows, torch.bfloat16, FunctionalGradients(Chain(), cross_entropy))
    assert bool(general.isfinite().all())
