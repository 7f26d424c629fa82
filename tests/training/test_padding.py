"""Passes that are filled up: units keep their rows, fillings are copies that count for nothing, places are alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from apportion.auditing import audit_neighbour
from apportion.privacy import Budget, SeededNoise
from apportion.training import ExampleRows, ExampleSession, PrivateGradients, UserRows
from apportion.training.padding import padded, row_alignment
from apportion.training.per_unit import gradient_way


@given(sizes=st.lists(st.integers(0, 7), min_size=1, max_size=30), apart=st.sampled_from([1, 2, 4, 8, 16]))
def test_units_keep_their_rows_and_start_at_multiples(sizes, apart):
    offsets = torch.tensor([0, *np.cumsum(sizes)])
    found = padded(offsets, apart)
    if found.rows is None:  # nothing to pad
        assert apart == 1
        assert sum(sizes) % 16 == 0
        return
    bounds = list(zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True))
    real = [bound for bound, kept in zip(bounds, found.real.tolist(), strict=True) if kept]
    assert len(real) == len(sizes)
    assert found.offsets[-1] == len(found.rows)
    assert len(found.rows) % 16 == 0
    assert max(last - first for first, last in bounds) == max(sizes)
    for (first, last), start, size in zip(real, offsets.tolist(), sizes, strict=False):
        assert found.rows[first:last].tolist() == list(range(start, start + size))
        assert not size or first % apart == 0
    owners = np.repeat(np.arange(len(sizes)), sizes)
    for (first, last), kept in zip(bounds, found.real.tolist(), strict=True):
        if not kept and last > first:  # a copy of the last row of the unit before it
            assert set(owners[found.rows[first:last].numpy()]) == {owners[int(found.rows[first - 1])]}


def test_a_unit_that_is_alone_is_not_padded():
    found = padded(torch.tensor([0, 3]), 0)
    assert found.rows is None
    assert found.real is None


def hinge(outputs, targets):
    return torch.relu(1 - targets * outputs[:, 0])


def at_the_kink(module, width):
    """A row whose score is below 1 at one place of four and not at the place before, and that place."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(4000):
        row = torch.randn((1, width), generator=generator)
        with torch.no_grad():
            row *= (1 - module.bias[0].item()) / (module(row.expand(64, width))[0, 0] - module.bias[0].item())
            below = (module(row.expand(64, width).contiguous())[:4, 0] < 1).tolist()
        places = [place for place in range(4) if below[place] and not below[place - 1]]
        if places:
            return row, places[0]
    pytest.skip("this machine's products of matrices treat all places of a batch alike")


@pytest.mark.parametrize("width", [101, 785])
def test_a_user_does_not_move_others_over_a_kink_by_moving_their_places(width):
    """Every fourth user is at the kink of a loss; the first has no gradient, and without it all move by one place."""
    torch.manual_seed(0)
    module = nn.Linear(width, 2)
    row, place = at_the_kink(module, width)
    inputs = torch.cat([row if k % 4 == place and k else 10 * row for k in range(600)])
    names = np.array([f"{k:06d}" for k in range(600)])

    def step(kept, session):
        start = nn.Linear(width, 2)
        start.load_state_dict(module.state_dict())
        units = UserRows(inputs[torch.as_tensor(kept)], torch.ones(int(kept.sum())), names[kept])
        PrivateGradients(start, hinge, units, session, steps=1, n_units=600).fill()
        return {}

    arguments = {"budget": Budget(1.0, 1e-5), "noise": SeededNoise(1)}
    found = audit_neighbour(step, np.ones(600, bool), names != "000000", arguments)
    assert found["step 1: gradient"] <= 1 + 1e-6


def test_ordinary_widths_need_no_filling_between_units():
    module = nn.Linear(784, 1)
    inputs, targets = torch.zeros((0, 784)), torch.zeros(0)
    assert row_alignment(gradient_way(module, hinge, inputs, targets), module, hinge, inputs, targets) in (1, 2, 4)


@pytest.mark.parametrize("count", [32, 33])
def test_losses_that_cannot_take_zeros_are_not_given_any(count):
    """Whether a pass needs filling depends on a private number of rows, and must not decide whether it fails."""

    def log_normal(outputs, targets):
        return -torch.distributions.LogNormal(outputs[:, 0], 1.0).log_prob(targets)

    module = nn.Linear(3, 1)
    inputs = torch.randn((count, 3), generator=torch.Generator().manual_seed(0))
    session = ExampleSession(Budget(1.0, 1e-5), noise=SeededNoise(1))
    units = ExampleRows(inputs, inputs[:, 0].exp())
    PrivateGradients(module, log_normal, units, session, steps=1, n_units=30).fill()
    assert all(torch.isfinite(parameter.grad).all() for parameter in module.parameters())


def test_modules_that_cannot_take_huge_rows_are_not_refused():
    def normal(outputs, targets):
        spread = nn.functional.softplus(outputs[:, 1])
        return -torch.distributions.Normal(outputs[:, 0], spread).log_prob(targets)

    module = nn.Linear(3, 2)
    assert gradient_way(module, normal, torch.zeros((0, 3)), torch.zeros(0)) is not None
