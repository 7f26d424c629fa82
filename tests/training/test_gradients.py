"""Units' gradients in blocks: the same as autograd's one by one; what a unit adds is bounded, whatever its numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from apportion.auditing.hidden_values import raw_value
from apportion.errors import InputError
from apportion.linalg import use_backend
from apportion.linalg.unit_products import available
from apportion.privacy.clipped_gradients import GradientTotal
from apportion.training.blocks import Product, Stored
from apportion.training.by_row import ByRow
from apportion.training.clipping import FixedClip, QuantileClip
from apportion.training.fused import RowProducts
from apportion.training.groups import Groups
from apportion.training.layers import LayerFactors, _blocks_of, _windows, supported
from apportion.training.per_unit import FunctionalGradients, gradient_way, means_of_units
from training.small_models import Chain, Tokens, cross_entropy, images, sentences

MODELS = {"images": (Chain, images), "tokens": (Tokens, sentences)}
EACH = pytest.mark.parametrize(("model", "data"), MODELS.values(), ids=MODELS)
OFFSETS = torch.tensor([0, 1, 1, 4, 6, 9])  # five units, one of them without rows


def by_hand(module, inputs, targets, offsets):
    """Gradients of each unit by autograd, one unit after another: [units, parameters] flat."""
    found = []
    for first, last in itertools.pairwise(offsets):
        rows = slice(int(first), int(last))
        if first == last:
            found.append(torch.zeros(sum(p.numel() for p in module.parameters()), dtype=torch.float64))
            continue
        loss = cross_entropy(module(inputs[rows]), targets[rows]).sum()
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]))
    return torch.stack(found)


def flat_sum(module, blocks, factors):
    shapes = [p.shape for p in module.parameters() if p.requires_grad]
    totals = [block.zeros(shape.numel()).reshape(shape) for block, shape in zip(blocks, shapes, strict=True)]
    for block, total in zip(blocks, totals, strict=True):
        block.add_to(total, factors)
    return torch.cat([total.flatten() for total in totals])


def compare_with_gradients_one_by_one(model, data, way, offsets):
    """Lengths, sums and single gradients of blocks, with and without scales."""
    module = model().double()
    inputs, targets = data(9)
    expected = by_hand(module, inputs, targets, offsets)
    blocks = way(module, cross_entropy).blocks(inputs, targets, offsets)
    norms = sum(block.squared_norms(None) for block in blocks).sqrt()
    assert torch.allclose(norms, expected.norm(dim=1), rtol=1e-9)
    factors = torch.rand(len(expected), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.allclose(flat_sum(module, blocks, factors), factors @ expected, atol=1e-10)
    one_by_one = torch.cat([block.each().flatten(1) for block in blocks], dim=1)
    assert torch.allclose(one_by_one, expected, atol=1e-12)
    scales = [1 + torch.rand_like(p) for p in module.parameters()]
    scaled = expected / torch.cat([s.flatten() for s in scales]).detach()
    lengths = sum(b.squared_norms(s.detach()) for b, s in zip(blocks, scales, strict=True)).sqrt()
    assert torch.allclose(lengths, scaled.norm(dim=1), rtol=1e-9)


@EACH
@pytest.mark.parametrize("way", [LayerFactors, FunctionalGradients])
@pytest.mark.parametrize("offsets", [OFFSETS, torch.arange(10)], ids=["users", "examples"])
def test_blocks_have_the_lengths_and_sums_of_gradients_formed_one_by_one(model, data, way, offsets):
    compare_with_gradients_one_by_one(model, data, way, offsets)


def test_the_mean_over_a_units_rows_is_the_sum_divided_by_their_number():
    module, (inputs, targets) = Chain().double(), images(9)
    blocks = LayerFactors(module, cross_entropy).blocks(inputs, targets, OFFSETS)
    means = means_of_units(blocks, OFFSETS)
    sizes = OFFSETS.diff().clamp_min(1)
    expected = by_hand(module, inputs, targets, OFFSETS) / sizes[:, None]
    assert torch.allclose(sum(b.squared_norms(None) for b in means).sqrt(), expected.norm(dim=1))
    assert torch.allclose(flat_sum(module, means, torch.ones(5, dtype=torch.float64)), expected.sum(0))


def test_layers_that_are_not_known_or_share_a_parameter_go_the_general_way():
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    assert not supported(tied)
    assert not supported(nn.GRU(3, 3))
    rows = torch.zeros((0, 4)), torch.zeros(0, dtype=torch.int64)
    assert isinstance(gradient_way(tied, cross_entropy, *rows), FunctionalGradients)
    assert isinstance(gradient_way(Chain(), cross_entropy, *images(1, dtype=torch.float32)), LayerFactors)
    assert isinstance(gradient_way(Tokens(), cross_entropy, *sentences(1)), LayerFactors)
    with pytest.raises(InputError, match="BatchNorm1d"):
        gradient_way(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), cross_entropy, *rows)


def test_sums_over_units_leave_units_without_rows_at_zero():
    found = Groups(torch.tensor([0, 2, 2])).added(torch.tensor([[1.0], [2.0]]))
    assert found.tolist() == [[3.0], [0.0]]


def test_frozen_parameters_have_no_block():
    module, (inputs, targets) = Chain().double(), images(4)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.startswith("out"))
    for way in (LayerFactors, FunctionalGradients):
        blocks = way(module, cross_entropy).blocks(inputs, targets, torch.arange(5))
        assert len(blocks) == 1
        assert flat_sum(module, blocks, torch.ones(4)).shape == (35,)


def total_of(module, inputs, targets, offsets, clip, way=LayerFactors, scales=None, counted=0.0):
    total = GradientTotal(clip, [tuple(p.shape) for p in module.parameters()], scales=scales, counted=counted)
    total.add(way(module, cross_entropy).blocks(inputs, targets, offsets))
    return total.sealed()


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    clip=st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
    scaled=st.booleans(),
    counted=st.sampled_from([0.0, 0.05]),
    way=st.sampled_from([LayerFactors, FunctionalGradients]),
    single=st.booleans(),
    huge=st.booleans(),
)
def test_removing_any_unit_moves_the_sum_by_at_most_its_sensitivity(seed, clip, scaled, counted, way, single, huge):
    rng = np.random.default_rng(seed)
    module = Chain(seed=seed).to(torch.float32 if single else torch.float64)
    sizes = rng.integers(1, 4, 4)
    inputs, targets = images(int(sizes.sum()), seed, dtype=next(module.parameters()).dtype)
    offsets = torch.as_tensor(np.concatenate([[0], np.cumsum(sizes)]))
    unit = int(rng.integers(4))
    rows = np.ones(len(inputs), bool)
    rows[offsets[unit] : offsets[unit + 1]] = False
    inputs = torch.where(torch.as_tensor(rows)[:, None, None, None], inputs, inputs * (1e4 if huge else 1.0))
    kept = torch.as_tensor(np.concatenate([[0], np.cumsum(np.delete(sizes, unit))]))
    scales = [0.2 + 3 * torch.rand(p.shape, dtype=torch.float64) for p in module.parameters()] if scaled else None
    full = total_of(module, inputs, targets, offsets, clip, way, scales, counted)
    rest = total_of(module, inputs[rows], targets[rows], kept, clip, way, scales, counted)
    assert full.l2_sensitivity == rest.l2_sensitivity
    difference = raw_value(full) - raw_value(rest)
    if full.scales is not None:
        difference = difference / full.scales
    assert np.linalg.norm(difference) <= full.l2_sensitivity * (1 + 1e-9)


def test_the_bound_is_reached_by_a_long_gradient_and_counted_units_use_their_share():
    module, (inputs, targets) = Chain().double(), images(1)
    for counted in (0.0, 0.2):
        value = total_of(module, 100 * inputs, targets, torch.tensor([0, 1]), 1e-3, counted=counted)
        moved = raw_value(value) / (1 if value.scales is None else value.scales)
        assert 1 - 2e-5 <= np.linalg.norm(moved) / value.l2_sensitivity <= 1


@pytest.mark.parametrize("way", [LayerFactors, FunctionalGradients])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_counts_as_zero(way, bad):
    module, (inputs, targets) = Chain().double(), images(4)
    spoiled = inputs.clone()
    spoiled[2, 0, 3, 3] = bad
    offsets, kept = torch.arange(5), [0, 1, 3]
    found = raw_value(total_of(module, spoiled, targets, offsets, 1.0, way))
    rest = raw_value(total_of(module, inputs[kept], targets[kept], torch.arange(4), 1.0, way))
    assert np.allclose(found, rest, atol=1e-12)


@pytest.mark.parametrize("clip", [1e-100, 1e-30, 1.0, 1e100])
@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e-120, 1e-60, 1e60, 1e120, 1e170])
def test_no_length_is_lost_to_squares_that_vanish_or_overflow(clip, size):
    total = GradientTotal(clip, [(3,)])
    total.add([Stored(torch.full((1, 3), size, dtype=torch.float64))])
    assert np.linalg.norm(raw_value(total.sealed()) / clip) <= 1


def test_norms_whose_squares_vanish_or_overflow_are_refused():
    """With a clip norm of 1e-300 a gradient of 1e-170 had the square 0, and was added as it was."""
    for clip in (1e-300, 1e-101, 1e101, 0.0, np.inf, np.nan):
        with pytest.raises(InputError, match="Expected a clip_norm from 1e-100"):
            GradientTotal(clip, [(3,)])
        with pytest.raises(InputError, match="Expected norm from 1e-100"):
            FixedClip(clip)
    for limits in ({"smallest": 0.0}, {"largest": np.inf}, {"smallest": 2.0, "largest": 1.0}):
        with pytest.raises(InputError, match=r"Expected (smallest|largest) from"):
            QuantileClip(**limits)


def test_a_total_does_not_show_what_it_holds():
    total = GradientTotal(1.0, [(2,)])
    with pytest.raises(TypeError, match="private values"):
        np.asarray(total)
    with pytest.raises(InputError, match=r"clip_norm from .*got 0"):
        GradientTotal(0.0, [(2,)])


@pytest.mark.parametrize("kernel", [1, 3, (2, 4)])
@pytest.mark.parametrize("stride", [1, (1, 3)])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [0, (1, 2)])
def test_windows_of_a_convolution_are_those_that_torch_unfolds(kernel, stride, dilation, padding):
    layer = nn.Conv2d(3, 2, kernel, stride=stride, dilation=dilation, padding=padding)
    seen = torch.randn((4, 3, 13, 15), generator=torch.Generator().manual_seed(0))
    unfolded = functional.unfold(seen, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    by_pixel = unfolded.mT.unflatten(2, (3, -1)).mT.flatten(2)
    assert torch.equal(_windows(seen, layer), by_pixel)


def test_a_convolution_row_by_row_is_the_same_as_by_factors_in_float32():
    """In pieces of rows, for users of different sizes; lengths are never below the true ones."""
    layer = nn.Conv2d(2, 3, 3, stride=2, padding=1, bias=False)
    generator = torch.Generator().manual_seed(0)
    images, slopes = torch.randn((75, 2, 9, 9), generator=generator), torch.randn((75, 3, 5, 5), generator=generator)
    groups = Groups(torch.tensor([0, 1, 1, 40, 43, 75]))
    block = _blocks_of(layer, images, slopes, groups)[id(layer.weight)]
    assert isinstance(block, ByRow)
    windows = nn.functional.unfold(images, 3, stride=2, padding=1).mT
    product = Product(
        groups.side_by_side(slopes.flatten(2).mT), groups.side_by_side(windows), tuple(layer.weight.shape)
    )
    assert torch.allclose(block.each(), product.each(), atol=1e-4)
    true = product.each().double().flatten(1).norm(dim=1)
    found = block.squared_norms(None).sqrt()
    assert (found >= true * (1 - 1e-6)).all()
    assert torch.allclose(found, true, rtol=1e-3)
    scales = torch.rand(54, generator=generator) + 0.5
    assert torch.allclose(block.squared_norms(scales), product.squared_norms(scales), rtol=1e-5)
    added = (block.keeping(torch.ones(5, dtype=torch.bool)).values.double().flatten(1) / scales).norm(dim=1)
    assert (block.squared_norms(scales).sqrt() >= added).all()
    single = _blocks_of(layer, images, slopes, Groups(torch.arange(76)))[id(layer.weight)]
    assert torch.allclose(single.each()[1:40].sum(0), block.each()[2], atol=1e-4)


@pytest.mark.parametrize("positions", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_the_kernel_gives_a_linear_layer_the_same_gradients_as_torch(positions, bias):
    """Users of different sizes, one of them without rows; lengths, sums, scales and gradients that are dropped."""
    if not available():
        pytest.skip("the kernel was not built")
    layer = nn.Linear(40, 30, bias=bias)
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn((12, positions, width), generator=generator) for width in (40, 30))
    groups = Groups(torch.tensor([0, 1, 1, 4, 8, 12]))
    found = _blocks_of(layer, a, b, groups)
    assert all(isinstance(block, RowProducts) for block in found.values())
    with use_backend("numpy"):
        expected = _blocks_of(layer, a, b, groups)
    assert not any(isinstance(block, RowProducts) for block in expected.values())
    factors = torch.linspace(0, 1, 5, dtype=torch.float64)
    for parameter in layer.parameters():
        one, other = found[id(parameter)], expected[id(parameter)]
        assert torch.allclose(one.squared_norms(None), other.squared_norms(None), rtol=1e-6)
        totals = [torch.ones(parameter.shape, dtype=torch.float64) for _ in range(2)]
        one.add_to(totals[0], factors)
        other.add_to(totals[1], factors)
        assert torch.allclose(totals[0], totals[1], rtol=1e-12)
        assert torch.equal(one.each(), other.each())
        scales = torch.linspace(1, 2, parameter.numel(), dtype=torch.float64).reshape(parameter.shape)
        assert torch.equal(one.squared_norms(scales), other.squared_norms(scales))
        kept = torch.tensor([True, True, False, True, True])
        assert torch.equal(one.keeping(kept).each(), other.keeping(kept).each())
