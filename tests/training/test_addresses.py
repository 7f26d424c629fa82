"""Products of matrices round by the address of a row, so where rows lie must not depend on who else is there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.privacy import Budget, SeededNoise, Session
from apportion.training import FixedClip, PrivateGradients, UserRows

WIDTH, USERS = 17, 96


def at_a_kink(outputs, targets):
    return torch.relu(outputs[:, 0] - targets)


def gradients(module, units, rows_at_once):
    session = Session(Budget(1.0, 1e-6), noise=SeededNoise(1))
    return PrivateGradients(
        module, at_a_kink, units, session, steps=1, n_units=USERS, clip=FixedClip(1.0), rows_at_once=rows_at_once
    )


@pytest.mark.parametrize("module", [nn.Linear(WIDTH, 1), nn.Sequential(nn.Linear(WIDTH, 1), nn.Hardtanh(-1e9, 1e9))])
@pytest.mark.parametrize("rows_at_once", [1, 16])
def test_passes_begin_at_aligned_addresses_whatever_rows_others_have(module, rows_at_once, monkeypatch):
    seen, forward = [], nn.Linear.forward

    def watched(layer, rows):
        seen.append(rows.data_ptr() % 64)
        return forward(layer, rows)

    units = UserRows(torch.zeros(USERS, WIDTH), torch.zeros(USERS), np.arange(USERS))
    held = gradients(module, units, rows_at_once)
    monkeypatch.setattr(nn.Linear, "forward", watched)
    held.fill()
    assert len(seen) >= USERS // rows_at_once
    assert set(seen) == {0}


def passes(module, rows, before, at_once):
    """Outputs as a pass over a part of all rows computes them, with so many rows of others before it."""
    held = torch.cat([torch.zeros(before, WIDTH), rows])[before:]
    with torch.no_grad():
        return torch.cat([module(held[k : k + at_once])[:, 0] for k in range(0, len(rows), at_once)])


def rows_at_the_kink(module, before, at_once):
    """Rows whose outputs are larger at the one address than at the other, where this processor tells them apart."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(USERS, WIDTH, generator=generator)
    rows[:, 0] = 30.0
    for _ in range(200):
        alike = ~(passes(module, rows, before, at_once) > passes(module, rows, 0, at_once))
        if not alike.any():
            break
        rows[alike] = torch.randn(int(alike.sum()), WIDTH, generator=generator)
        rows[alike, 0] = 30.0
    return rows, passes(module, rows, 0, at_once)


@pytest.mark.parametrize(("rows_at_once", "before"), [(1, 1), (16, 17), (16, 3)])
def test_a_user_without_a_gradient_moves_no_row_across_a_kink(rows_at_once, before):
    torch.manual_seed(0)
    module = nn.Linear(WIDTH, 1)
    rows, targets = rows_at_the_kink(module, before, rows_at_once)
    names = [f"u{k:04d}" for k in range(USERS)]
    alone = UserRows(rows, targets, names)
    beside = UserRows(
        torch.cat([torch.zeros(before, WIDTH), rows]), torch.cat([torch.full((before,), 5.0), targets]),
        ["a"] * before + names,
    )  # fmt: skip
    sums = []
    for units in (alone, beside):
        gradients(module, units, rows_at_once).fill()  # with the same noise
        sums.append(USERS * torch.cat([module.weight.grad[0], module.bias.grad]))
    assert float((sums[0] - sums[1]).norm()) <= 1.0


class Rows(torch.utils.data.Dataset):
    """Numbered rows of a few users."""

    def __len__(self):
        return 40

    def __getitem__(self, k):
        return {"x": torch.tensor([float(k)]), "user": k % 8, "y": 0}


@pytest.mark.parametrize("sampled", [False, True])
def test_a_shuffled_loader_is_read_in_the_order_of_its_rows(sampled):
    """Else one user more would change the order of everybody's rows, and with it masks of dropout."""
    rows = Rows()
    sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(rows), 7, drop_last=False)
    settings = {"batch_sampler": sampler} if sampled else {"batch_size": 7, "shuffle": True}
    units = UserRows.of(torch.utils.data.DataLoader(rows, **settings), user="user", target="y")
    found = torch.cat([x[:, 0] for x, _, _ in units.batches(np.arange(8), 40)])
    assert found.tolist() == [k for user in range(8) for k in range(40) if k % 8 == user]
