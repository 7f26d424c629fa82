"""What a unit adds stays within its bound where numbers cancel, are huge or tiny, or are many: float64 throughout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.auditing import audit_neighbour
from apportion.auditing.hidden_values import raw_value
from apportion.privacy import Budget, SeededNoise
from apportion.privacy.clipped_gradients import GradientTotal
from apportion.training import PrivateGradients
from apportion.training.blocks import Lookup, Product, Stored
from apportion.training.layers import LayerFactors
from apportion.training.per_unit import FunctionalGradients, means_of_units
from apportion.training.units import UserRows

WAYS = pytest.mark.parametrize("way", [LayerFactors, FunctionalGradients])
SINGLE, DOUBLE = torch.float32, torch.float64


def sums(outputs, targets):
    """Its slopes in the outputs are the targets."""
    return (outputs * targets).flatten(1).sum(1)


def total(module, rows, way, *, scales=None, clip=1.0, mean=False):
    held = GradientTotal(clip, [tuple(p.shape) for p in module.parameters()], scales=scales)
    units = UserRows(*rows)
    for inputs, targets, offsets in units.batches(np.arange(len(units)), 256):
        blocks = way(module, sums).blocks(inputs, targets, offsets)
        held.add(means_of_units(blocks, offsets) if mean else blocks)
    return raw_value(held.sealed())


def others(width, out, n=20, dtype=SINGLE, seed=1):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn((n, width), generator=generator, dtype=dtype)
    targets = torch.randn((n, out), generator=generator, dtype=dtype)
    return inputs, targets, [f"u{k:02d}" for k in range(n)]


def some_scales(*shape):
    return 0.01 + torch.rand(shape, generator=torch.Generator().manual_seed(3), dtype=DOUBLE)


def with_user(rows, inputs, targets):
    return torch.cat([rows[0], inputs]), torch.cat([rows[1], targets]), rows[2] + ["u095"] * len(inputs)


@WAYS
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("size", [1e4, 1e16, 1e30])
@pytest.mark.parametrize(("width", "out"), [(64, 64), (8, 1), (3, 40)])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_user_whose_rows_cancel_moves_the_sum_by_at_most_the_clip_norm(way, dtype, size, width, out, scaled):
    """x₀, x₁ and −(x₀ + x₁) with the same slopes: zero in real numbers, rounding of any size in floating point."""
    module = nn.Linear(width, out, bias=False).to(dtype)
    rows = others(width, out, dtype=dtype)
    x = size * rows[0][:2] * torch.pi
    inputs, targets = torch.stack([x[0], x[1], -(x[0] + x[1])]), rows[1][:1].repeat(3, 1)
    scales = [some_scales(out, width)] if scaled else None
    moved = total(module, with_user(rows, inputs, targets), way, scales=scales) - total(
        module, rows, way, scales=scales
    )
    if scales is not None:
        moved = moved / scales[0].flatten().numpy()
    assert np.linalg.norm(moved) <= 1 + 1e-9


@WAYS
@pytest.mark.parametrize("size", [1e4, 1e9, 1e30])
@pytest.mark.parametrize("scaled", [False, True])
def test_positions_that_look_up_the_same_row_may_cancel_too(way, size, scaled):
    module = nn.Embedding(5, 8)
    generator = torch.Generator().manual_seed(0)
    rows = torch.zeros((20, 3), dtype=torch.int64), torch.randn((20, 3, 8), generator=generator), list(range(20))
    x = size * torch.randn((2, 8), generator=generator)
    slopes = torch.stack([x[0], x[1], -(x[0] + x[1])])[None]
    more = torch.cat([rows[0], rows[0][:1]]), torch.cat([rows[1], slopes]), [*rows[2], 99]
    scales = [some_scales(5, 8)] if scaled else None
    moved = total(module, more, way, scales=scales) - total(module, rows, way, scales=scales)
    if scales is not None:
        moved = moved / scales[0].flatten().numpy()
    assert np.linalg.norm(moved) <= 1 + 1e-9


def test_a_user_who_cancels_beside_one_who_is_not_finite_stays_within_the_bound():
    rows = others(3, 40)
    x = 1e9 * rows[0][:2] * torch.pi
    inputs, targets = torch.stack([x[0], x[1], -(x[0] + x[1])]), rows[1][:1].repeat(3, 1)
    spoiled = rows[0].clone()
    spoiled[4] = torch.inf
    rows = (spoiled, *rows[1:])
    module = nn.Linear(3, 40, bias=False)
    moved = total(module, with_user(rows, inputs, targets), LayerFactors) - total(module, rows, LayerFactors)
    assert np.linalg.norm(moved) <= 1 + 1e-9


def norms_at_the_ends_of_the_range(way, count, dtype, mean):
    """A tiny input times a huge slope, whose product is anything: squares of either leave the range."""
    found = {}
    module = nn.Linear(8, 8, bias=False).to(dtype)
    top = 37 if dtype == SINGLE else 155
    for power in (-300, -160, -100, -44, -25, -4, -3, -2, 0, 25, 36, 44, 100, 150, 160, 300):
        slope = 10.0 ** min(top, power + top)
        inputs, targets = (torch.full((count, 8), v, dtype=DOUBLE).to(dtype) for v in (10.0**power / slope, slope))
        found[power] = np.linalg.norm(total(module, (inputs, targets, ["u"] * count), way, clip=1e-3, mean=mean))
    return found


@WAYS
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("mean", [False, True])
def test_sizes_at_the_ends_of_the_range_stay_within_the_bound(way, count, dtype, mean):
    found = norms_at_the_ends_of_the_range(way, count, dtype, mean)
    assert {power: norm for power, norm in found.items() if not norm <= 1e-3} == {}


@WAYS
@pytest.mark.parametrize("norm", [1e43, 4.5e44, 1.3e45])
def test_factors_that_float32_could_not_hold_are_not_rounded_up(way, norm):
    module, slope = nn.Linear(8, 8, bias=False), 1e37
    rows = torch.full((2, 8), norm / 16 / slope), torch.full((2, 8), slope), ["u", "u"]
    assert np.linalg.norm(total(module, rows, way)) <= 1


@WAYS
def test_squares_that_float32_could_not_hold_are_not_lost(way):
    module = nn.Linear(4096, 1, bias=False)
    rows = torch.full((1, 4096), 2.6e-23), torch.full((1, 1), 1.8e19), ["u"]
    assert np.linalg.norm(total(module, rows, way, clip=1e-3)) <= 1e-3


@WAYS
def test_many_units_that_point_the_same_way_add_up_to_float64(way):
    """In float32 the rounding of a sum of 200 is seen in the sixth place, and grows with their number."""
    module = nn.Linear(32, 1, bias=False)
    n = 200
    rows = others(32, 1, n=1)
    inputs, targets = rows[0].repeat(n, 1), torch.full((n, 1), 50.0)
    found = total(module, (inputs, targets, np.arange(n)), way) - total(
        module, (inputs[1:], targets[1:], np.arange(n - 1)), way
    )
    assert abs(np.linalg.norm(found) - (1 - 1e-5) / np.sqrt(1 + 1e-8)) < 1e-9


def test_lengths_are_never_below_what_is_added_and_little_above_where_terms_do_not_cancel():
    """Against the same sums in exact rational arithmetic would be slow; integers that float64 holds do as well."""
    rng = np.random.default_rng(0)
    a = torch.as_tensor(rng.integers(-(2**20), 2**20, (6, 4, 30)), dtype=SINGLE)
    b = torch.as_tensor(rng.integers(-(2**20), 2**20, (6, 4, 50)), dtype=SINGLE)
    a[:, 3], b[:, 3] = -a[:, 0], b[:, 0]
    a[3:, 2], b[3:, 2] = -a[3:, 1], b[3:, 1]  # the last three cancel wholly
    exact = torch.bmm(b.mT.double(), a.double()).flatten(1).norm(dim=1)
    sizes = (a.double().norm(dim=2) * b.double().norm(dim=2)).sum(1)
    for block in (Product(b, a, (50, 30)), Lookup(b, torch.zeros((6, 4), dtype=torch.int64), (3, 50))):
        size = sizes if isinstance(block, Product) else b.double().norm(dim=2).sum(1)
        truth = exact if isinstance(block, Product) else b.double().sum(1).norm(dim=1)
        found = block.squared_norms(None).sqrt()
        assert (found >= truth * (1 - 1e-12)).all()
        assert (found <= truth + 1.001e-4 * size).all()
        assert (found >= 0.999e-4 * size).all()
    assert (exact[3:] == 0).all()


def test_sums_are_float64_whatever_the_gradients_are():
    values = torch.ones((3, 2, 2), dtype=SINGLE)
    factors = torch.full((3,), 1 / 3, dtype=DOUBLE)
    for block in (
        Stored(values),
        Product(values, values, (2, 2)),
        Lookup(values, torch.zeros((3, 2), dtype=torch.int64), (1, 2)),
    ):
        held = block.zeros(block.each()[0].numel()).reshape(block.each().shape[1:])
        block.add_to(held, factors)
        assert held.dtype == DOUBLE
        torch.testing.assert_close(held, torch.tensordot(factors, block.each().double(), 1), rtol=1e-15, atol=0)
        assert block.squared_norms(None).dtype == DOUBLE


def test_units_that_only_fill_a_batch_up_are_neither_added_nor_counted():
    values = torch.randn((20, 3), generator=torch.Generator().manual_seed(4), dtype=DOUBLE)
    values[18] = torch.nan
    filled, alone = (GradientTotal(1.0, [(3,)], counted=0.1) for _ in range(2))
    filled.add([Stored(values)], torch.arange(20) < 17)
    alone.add([Stored(values[:17])])
    np.testing.assert_allclose(raw_value(filled.sealed()), raw_value(alone.sealed()), rtol=1e-14)


def hinge(outputs, targets):
    return torch.relu(1 - targets * outputs[:, 0])


def at_the_kink(module, n_rows, width):
    """A row whose score is 1 or more in the middle of a batch and less at its end."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(2000):
        row = torch.randn((1, width), generator=generator)
        with torch.no_grad():
            row *= (1 - module.bias.item()) / (module(row.expand(n_rows, width))[0, 0] - module.bias.item())
            scores = module(row.expand(n_rows, width).contiguous())[:, 0]
        if scores[0] >= 1 > scores[-1]:
            return row
    pytest.skip("this machine's products of matrices treat the last rows of a batch like the others")


def test_a_user_without_a_gradient_does_not_move_others_over_a_kink():
    """85 users of 3 rows go through together; the last of each pass is at the kink of the loss."""
    width, rows_each, together, passes = 784, 3, 85, 8
    torch.manual_seed(0)
    module = nn.Linear(width, 1)
    row = at_the_kink(module, rows_each * together, width)
    users = torch.cat([10 * row] * (together - 1) + [row]).repeat(passes, 1)
    inputs = users.repeat_interleave(rows_each, 0)
    names = np.repeat([f"{k:06d}" for k in range(len(users))], rows_each)

    def step(kept, session):
        start = nn.Linear(width, 1)
        start.load_state_dict(module.state_dict())
        units = UserRows(inputs[torch.as_tensor(kept)], torch.ones(int(kept.sum())), names[kept])
        PrivateGradients(start, hinge, units, session, steps=1, n_units=len(users)).fill()
        return {}

    arguments = {"budget": Budget(1.0, 1e-5), "noise": SeededNoise(1)}
    found = audit_neighbour(step, np.ones(len(names), bool), names != "000000", arguments)
    assert found["step 1: gradient"] <= 1e-6


def moved_by_a_long_user(way, kind, scaled):
    """How many rows the longest user of a pass has decides how others are added up; their rounding must not show."""
    generator = torch.Generator().manual_seed(3)
    k, width, out = 6, 32, 65
    module = nn.LayerNorm(width) if kind == "normed" else nn.Linear(width, out, bias=kind == "bias")
    if kind == "bias":
        module.weight.requires_grad_(False)
    a = 1e3 * torch.randn((k, width), generator=generator)
    b = 1e6 * torch.randn((k, width if kind == "normed" else out), generator=generator)
    mixed = torch.randperm(k, generator=generator)
    inputs, targets = torch.cat([a, a[mixed]]).repeat(30, 1), torch.cat([b, -b[mixed]]).repeat(30, 1)
    users = np.repeat(np.arange(30), 2 * k)
    shapes = [tuple(p.shape) for p in module.parameters() if p.requires_grad]
    scales = [torch.rand(shape, generator=generator) + 0.1 for shape in shapes] if scaled else None
    added = torch.zeros((40, width)), torch.zeros((40, targets.shape[1])), np.full(40, 99)
    both = [
        np.concatenate(pair) if isinstance(pair[0], np.ndarray) else torch.cat(pair)
        for pair in zip((inputs, targets, users), added, strict=True)
    ]
    found = []
    for rows in ((inputs, targets, users), both):
        held = GradientTotal(1.0, shapes, scales=scales)
        units = UserRows(*rows)
        for x, t, offsets in units.batches(np.arange(len(units)), 2048):
            held.add(way(module, sums).blocks(x, t, offsets))
        found.append(raw_value(held.sealed()))
    return np.linalg.norm(found[0] - found[1])


@WAYS
@pytest.mark.parametrize("kind", ["weight", "bias", "normed"])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_long_user_without_a_gradient_moves_nothing_where_all_others_cancel(way, kind, scaled):
    assert moved_by_a_long_user(way, kind, scaled) < 1e-5  # of a clip norm of 1; 5 to 40 in float32 without a floor
