"""Dropout keyed by unit: masks depend on nobody else, are fair coins, and change from step to step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from apportion.auditing import audit_neighbour
from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.training import DPSGD, ExampleRows, ExampleSession, FixedClip, PrivateGradients, PrivateTrainer, UserRows
from apportion.training.dropout import KeyedDropout, numbers_by_content, row_numbers, with_numbers
from training.small_models import cross_entropy, images

GROUPS = np.array([3, 3, 1, 2, 2, 2, 0, 4, 5, 5, 6, 7])


class Dropping(nn.Module):
    """Dropout of units and of channels, as layers and as a function, and of attention's weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.channels = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.Dropout2d(0.3)
        self.mixed = nn.Linear(16, 16)
        self.drop, self.out = nn.Dropout(0.5), nn.Linear(16, 5)

    def forward(self, x):
        h = self.mixed(self.channels(torch.tanh(self.conv(x))).flatten(2))
        h = nn.functional.scaled_dot_product_attention(h, h, h, dropout_p=0.2 if self.training else 0.0)
        return self.out(nn.functional.dropout(self.drop(h.mean(1)), 0.1, self.training))


def test_a_mask_is_the_same_whoever_else_is_there():
    """Bit for bit: a row alone, in front of others and behind them."""
    keys = np.random.default_rng(0).integers(0, 2**63, (6, 2), dtype=np.uint64)
    numbers = row_numbers(keys, np.arange(7))
    module = KeyedDropout(nn.Dropout(0.5), torch.zeros((0, 50)))
    module.step = 3
    rows = with_numbers(torch.ones((6, 50)), numbers)
    together = module(rows)
    for order in ([4], [4, 0, 1], [5, 3, 4]):
        assert torch.equal(module(rows[order])[order.index(4)], together[4])
    later = KeyedDropout(nn.Dropout(0.5), torch.zeros((0, 50)))
    later.step = 4
    assert not torch.equal(later(rows), together)
    assert len({tuple(row.tolist()) for row in together}) == 6


@pytest.mark.parametrize(("layer", "shape"), [(nn.Dropout(0.3), (40,)), (nn.Dropout2d(0.3), (40, 3, 2))])
def test_masks_are_coins_of_their_rate_and_keep_the_mean(layer, shape):
    keys = np.random.default_rng(1).integers(0, 2**63, (500, 2), dtype=np.uint64)
    module = KeyedDropout(layer, torch.zeros((0, *shape)))
    values = module(with_numbers(torch.ones((500, *shape)), row_numbers(keys, np.arange(501))))
    channels = values.reshape(500, 40, -1)
    assert bool((channels == channels[:, :, :1]).all())
    assert sorted(channels.unique().tolist()) == pytest.approx([0.0, 1 / 0.7])
    low, high = binom.ppf([5e-10, 1 - 5e-10], 500 * 40, 0.3)  # a false alarm once in 10^9; a rate of 0.34 is seen
    assert low <= int((channels[:, :, 0] == 0).sum()) <= high < binom.ppf(1e-3, 500 * 40, 0.34)


def test_a_pass_without_dropout_of_weights_is_plain_attention():
    q = torch.randn((3, 2, 5, 4))
    mask = torch.ones((5, 5), dtype=torch.bool).tril()

    class Attention(nn.Module):
        def forward(self, rows):
            given = rows.reshape(3, 2, 5, 4)
            causal = nn.functional.scaled_dot_product_attention(given, given, given, dropout_p=1e-12, is_causal=True)
            masked = nn.functional.scaled_dot_product_attention(given, given, given, mask, dropout_p=1e-12)
            return torch.stack([causal, masked])

    numbers = row_numbers(np.arange(6, dtype=np.uint64).reshape(3, 2), np.arange(4))
    found = KeyedDropout(Attention(), q[:0])(with_numbers(q, numbers))
    expected = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    for each in found:
        assert torch.allclose(each, expected, atol=1e-6)


def without(data, user):
    inputs, targets, groups = data
    kept = groups != user
    return inputs[kept], targets[kept], groups[kept]


def fit(rows, session):
    module = Dropping().double()
    optimizer = DPSGD(module.parameters(), 0.05)
    gradients = PrivateGradients(
        module, cross_entropy, UserRows(*rows), session, steps=3, n_units=8, clip=FixedClip(0.1)
    )
    for _ in range(3):
        gradients.fill(optimizer)
        optimizer.step()
    return {name: p.detach().numpy().copy() for name, p in module.named_parameters()}


def worst_ratio(users):
    data = (*images(12), GROUPS)
    ratios = [
        audit_neighbour(fit, data, without(data, user), {"budget": Budget(20.0, 1e-5), "noise": SeededNoise(user)})
        for user in users
    ]
    return max(max(each.values()) for each in ratios)


def test_no_release_moves_by_more_than_it_states_when_any_user_leaves():
    assert 0.9 < worst_ratio([1, 2, 4]) <= 1 + 1e-9


def ratios_without_one_example(kept, ids=None):
    """Rows without ids, or with; all of them and then some, some of which hold the same."""
    inputs, targets, _ = (*images(12), None)
    inputs, targets = inputs[[0, 1, 1, 2, 1, 3, 4, 4]], targets[[0, 1, 1, 2, 1, 3, 4, 4]]

    def rows(some):
        return ExampleRows(inputs[some], targets[some], None if ids is None else ids[some])

    def run(some, session):
        module = Dropping().double()
        gradients = PrivateGradients(
            module, cross_entropy, rows(some), session, steps=2, n_units=8, clip=FixedClip(0.1)
        )  # fmt: skip
        optimizer = DPSGD(module.parameters(), 0.05)
        for _ in range(2):
            gradients.fill(optimizer)
            optimizer.step()
        return {name: p.detach().numpy().copy() for name, p in module.named_parameters()}

    arguments = {"budget": Budget(20.0, 1e-5), "noise": SeededNoise(0), "neighbours": ExampleRows.neighbours}
    return max(audit_neighbour(run, np.arange(8), np.array(kept), arguments).values())


@pytest.mark.parametrize("left_out", [0, 1, 2, 4, 7])
@pytest.mark.parametrize("ids", [None, np.arange(10, 18)], ids=["without ids", "with ids"])
def test_no_release_moves_by_more_than_it_states_when_an_example_leaves(left_out, ids):
    """Positions of the rows behind it move, but not their masks."""
    kept = [row for row in range(8) if row != left_out]
    assert 0.9 < ratios_without_one_example(kept, ids) <= 1 + 1e-9


def test_rows_without_ids_have_numbers_by_what_they_hold():
    columns = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [0.0, -0.0]]), torch.tensor([1, 1, 1, 2])
    numbers = numbers_by_content(*columns)
    assert len(set(numbers.tolist())) == 4
    later = numbers_by_content(*(each[1:] for each in columns))
    assert later.tolist() == [numbers[1], numbers[0], numbers[3]]
    assert numbers_by_content(torch.zeros((3, 0)), torch.zeros(3, dtype=torch.bool)).unique().numel() == 3


def test_rows_of_one_hash_that_hold_different_numbers_are_told_apart(monkeypatch):
    """Whoever chooses rows with the hash of another row must not change its mask by leaving."""
    monkeypatch.setattr("apportion.training.dropout._contents", lambda rows: np.zeros(len(rows), np.uint64))
    columns = torch.tensor([[1.0], [3.0], [1.0], [0.0]]), torch.zeros(4)
    numbers = numbers_by_content(*columns)
    assert numbers[0] == numbers[1] == numbers[3] != numbers[2]
    assert numbers_by_content(*(each[1:] for each in columns)).tolist() == [numbers[0]] * 3


def test_masks_by_the_place_in_a_pass_are_caught_by_the_replay(monkeypatch):
    """The bug: a row's number is its place among all rows, which moves when a user leaves."""
    monkeypatch.setattr(
        "apportion.training.units.with_numbers", lambda inputs, _: with_numbers(inputs, torch.arange(len(inputs)))
    )
    assert worst_ratio([1, 3]) > 1.05


def test_dropout_on_another_axis_than_rows_is_refused():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 1)

        def forward(self, x):
            return self.out(nn.functional.dropout(x.mT.contiguous(), 0.5).mT)

    with pytest.raises(InputError, match="dropout on one entry for each of"):
        PrivateGradients(
            Turned(), lambda out, _: out[:, 0], ExampleRows(torch.zeros((9, 4)), torch.zeros(9)),
            ExampleSession(Budget(1.0, 1e-5)), steps=1,
        )  # fmt: skip


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's attention, row by row
def test_a_transformer_of_torch_trains_with_its_dropout():
    """Twice with the same masks, and not as without dropout; weights of torch's own attention have no dropout."""

    def trained(rate):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=rate, batch_first=True)
        layer.self_attn.dropout = 0.0
        module = nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 2))
        x, y = torch.randn((20, 3, 8), generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2
        trainer = PrivateTrainer(
            module, DPSGD(module.parameters(), 0.1), cross_entropy, epsilon=5.0, delta=1e-4, steps=2, n_units=10,
            noise=SeededNoise(1),
        )  # fmt: skip
        trainer.fit(UserRows(x, y, np.arange(20) // 2), session=Session(Budget(5.0, 1e-4), noise=SeededNoise(1)))
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    first = trained(0.3)
    assert torch.equal(first, trained(0.3))
    assert not torch.equal(first, trained(0.0))


def test_dropout_that_is_switched_on_later_is_refused():
    """It would not be keyed by unit: torch draws one mask for all rows of a pass."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 2))
    rows = UserRows(torch.randn((12, 3)), torch.zeros(12, dtype=torch.int64), GROUPS)
    gradients = PrivateGradients(
        module,
        cross_entropy,
        rows,
        Session(Budget(1.0, 1e-5), noise=SeededNoise(0)),
        steps=2,
        n_units=8,
        clip=FixedClip(1.0),
    )
    gradients.fill()
    module[1].p = 0.5
    with pytest.raises(InputError, match="same dropout rates"):
        gradients.fill()
