"""Modules and rows that PyTorch users have: what torch.func does not support, odd shapes, and refusals that help."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from apportion.auditing.hidden_values import raw_value
from apportion.errors import InputError
from apportion.privacy.clipped_gradients import GradientTotal
from apportion.training import DPSGD, PrivateTrainer, UserRows
from apportion.training.per_unit import FunctionalGradients, RowByRowWarning, RowsOneByOne, gradient_way

OFFSETS = torch.tensor([0, 2, 2, 5])
GENERATOR = torch.Generator().manual_seed(0)
SERIES = torch.randn((5, 6, 4), generator=GENERATOR)
CLASSES = torch.tensor([0, 1, 2, 1, 0])


def cross_entropy(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")


class Recurrent(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.out = kind(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, series):
        return self.out(self.layer(series)[0][:, -1])


class Tempered(nn.Module):
    """A linear layer times a parameter without axes."""

    def __init__(self):
        super().__init__()
        self.out, self.temperature = nn.Linear(4, 3), nn.Parameter(torch.tensor(0.5))

    def forward(self, series):
        return self.out(series.mean(1)) * self.temperature


class Counting(nn.Module):
    """Adds up what it has seen, in place, and uses it: rows would mix if a pass left anything behind."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, rows):
        self.seen.add_(rows.detach().sum((0, 1)))
        return self.out(rows.sum(1) + self.seen)


def fitted(module, inputs, targets, **settings):
    users = np.arange(len(inputs)) // 2
    settings = {"epsilon": 4.0, "delta": 1e-5, "steps": 1, "n_units": 3, **settings}
    trainer = PrivateTrainer(module, DPSGD(module.parameters(), lr=0.1), cross_entropy, **settings)
    return trainer.fit(UserRows(inputs, targets, users))


def by_hand(module, inputs, targets):
    """Each unit's gradient from autograd, row by row."""
    result = []
    for first, last in zip(OFFSETS[:-1].tolist(), OFFSETS[1:].tolist(), strict=True):
        total = [torch.zeros_like(p) for p in module.parameters()]
        for k in range(first, last):
            loss = cross_entropy(module(inputs[k : k + 1]), targets[k : k + 1]).sum()
            for part, gradient in zip(total, torch.autograd.grad(loss, list(module.parameters())), strict=True):
                part += gradient
        result.append(torch.cat([part.flatten() for part in total]))
    return torch.stack(result)


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_a_module_that_vmap_does_not_support_is_trained_row_by_row(kind):
    torch.manual_seed(0)
    module = Recurrent(kind)
    way = gradient_way(module, cross_entropy, SERIES[:0], CLASSES[:0])
    assert isinstance(way, RowsOneByOne)
    found = torch.cat([b.each().reshape(3, -1) for b in way.blocks(SERIES, CLASSES, OFFSETS)], dim=1)
    assert torch.allclose(found.float(), by_hand(module, SERIES, CLASSES), atol=1e-5)
    before = [p.detach().clone() for p in module.parameters()]
    with pytest.warns(RowByRowWarning, match="row by row, which is slow"):
        fitted(module, SERIES, CLASSES)
    assert all(not torch.equal(p, old) for p, old in zip(module.parameters(), before, strict=True))


def test_a_unit_of_a_recurrent_module_moves_the_sum_by_at_most_the_clip_norm():
    torch.manual_seed(0)
    module, sums = Recurrent(nn.GRU), []
    way = RowsOneByOne(module, cross_entropy)
    for first, offsets in ((0, [0, 2, 5]), (2, [0, 3])):
        total = GradientTotal(0.5, [tuple(p.shape) for p in module.parameters()])
        total.add(way.blocks(9 * SERIES[first:], CLASSES[first:], torch.tensor(offsets)))
        sums.append(raw_value(total.sealed()))
    assert 0.49 < np.linalg.norm(sums[0] - sums[1]) <= 0.5


def test_what_a_row_leaves_in_a_module_does_not_reach_the_next():
    torch.manual_seed(0)
    module = Counting()
    way = RowsOneByOne(module, cross_entropy)
    alone = [way.blocks(SERIES[k : k + 1], CLASSES[k : k + 1], torch.arange(2))[0].each()[0] for k in range(5)]
    together = way.blocks(SERIES, CLASSES, torch.arange(6))[0].each()
    assert torch.equal(together, torch.stack(alone))
    assert not module.seen.any()


def test_a_parameter_without_axes_is_clipped_with_the_rest():
    torch.manual_seed(0)
    module = Tempered()
    way = gradient_way(module, cross_entropy, SERIES[:0], CLASSES[:0])
    assert isinstance(way, FunctionalGradients)
    [block] = [b for b in way.blocks(SERIES, CLASSES, OFFSETS) if b.each().dim() == 1]
    assert torch.allclose(block.squared_norms(None), block.each().double().square(), rtol=1e-5)
    assert torch.allclose(block.squared_norms(torch.tensor(2.0)) * 4, block.squared_norms(None))
    fitted(module, SERIES, CLASSES)
    assert module.temperature != 0.5


def test_refusals_say_what_to_do():
    lazy = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(InputError, match=r"'0.weight' of a lazy layer; call the module once"):
        fitted(lazy, SERIES[:, 0], CLASSES)
    module = nn.Linear(4, 3)
    trainer = PrivateTrainer(
        module, DPSGD(module.parameters(), lr=0.1), functional.cross_entropy, epsilon=4.0, delta=1e-5, steps=1
    )
    with pytest.raises(InputError, match='reduction="none"'):
        trainer.fit(UserRows(SERIES[:, 0], CLASSES, np.arange(5)))
    attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
    with pytest.raises(InputError, match=r"not inside nn.MultiheadAttention or nn.LSTM"):
        fitted(nn.Sequential(attention, nn.Flatten(), nn.Linear(24, 3)), SERIES, CLASSES)


class Batches(IterableDataset):
    """Batches as they are."""

    def __init__(self, *batches):
        self._batches = batches

    def __iter__(self):
        return iter(self._batches)


def test_a_column_of_text_is_refused_by_its_name_and_empty_batches_are_read():
    whole = {"x": SERIES[:, 0], "y": CLASSES, "who": np.arange(5) // 2}
    with pytest.raises(InputError, match="numbers in column 'note'"):
        UserRows.of(DataLoader(Batches({**whole, "note": list("abcde")}), batch_size=None), user="who", target="y")
    empty = {"x": SERIES[:0, 0], "y": CLASSES[:0], "who": []}
    rows = [Batches(*each) for each in ((whole,), (empty, whole, empty))]
    units = [UserRows.of(DataLoader(each, batch_size=None), user="who", target="y") for each in rows]
    assert units[0].identity({}) == units[1].identity({})
