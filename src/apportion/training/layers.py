"""Gradients of every unit from one backward pass, if all trained layers are of known kinds.

Hooks keep the input of a layer and the gradient of its output; the rest is arithmetic (`blocks`). See Goodfellow,
"Efficient per-example gradient computations" (2015), and Bu et al., "Automatic clipping / Book-keeping" (2022) for
using the factors twice instead of going backward twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from apportion.errors import InputError
from apportion.linalg import device_copies
from apportion.training.backward import gradients_at
from apportion.training.blocks import Found, Lookup, Product, Stored, rounding_of, sizes_of_rows
from apportion.training.by_row import ByRow, cheaper_by_row
from apportion.training.fused import LayerRows, RowProducts, by_rows, few_positions
from apportion.training.groups import Groups
from apportion.training.in_a_row import layers_in_a_row
from apportion.training.module_state import version_of
from apportion.training.on_gpu import Joined, JoinedRows, joins

Passed = tuple[nn.Module, Tensor, Tensor]
LayerBlock = Stored | Product | Lookup | ByRow | RowProducts | Joined


def supported(module: nn.Module) -> bool:
    """Whether every trained parameter belongs to exactly one layer, of a known kind."""
    owners: dict[int, int] = {}
    for part in module.modules():
        own = [p for p in part.parameters(recurse=False) if p.requires_grad]
        if own and not _known(part):
            return False
        for parameter in own:
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    return all(count == 1 for count in owners.values())


def _known(part: nn.Module) -> bool:
    if isinstance(part, nn.Conv2d):
        return part.groups == 1 and part.padding_mode == "zeros" and not isinstance(part.padding, str)
    if isinstance(part, nn.Embedding):
        return part.max_norm is None and not part.scale_grad_by_freq and not part.sparse and part.padding_idx is None
    if isinstance(part, nn.LayerNorm):
        return len(part.normalized_shape) == 1
    return isinstance(part, nn.Linear)


class LayerFactors:
    """Gradients of every unit as factors, from one forward and one backward pass.

    It is correct only if every layer sees one row of numbers for each row of data, and rows do not mix. It cannot check
    that itself, so get it from `gradient_way`, which does.
    """

    def __init__(self, module: nn.Module, loss: Callable[[Any, Any], Tensor]) -> None:
        self._module = module
        self._loss = loss
        self._layers = [m for m in module.modules() if _trained(m)]
        self._groups = Groups(torch.zeros(1, dtype=torch.int64))
        self._untouched = False  # whether the last pass wrote nothing to its inputs

    @property
    def only_reads(self) -> bool:
        """Whether nothing in a pass writes to its inputs."""
        return layers_in_a_row(self._module) is not None

    def blocks(self, inputs: Tensor, targets: Tensor, offsets: Tensor) -> list[LayerBlock]:
        """Return one block for each trained parameter, in the order of the module's parameters."""
        return self.blocks_of(self.passed(inputs, targets), offsets)

    def passed(self, inputs: Tensor, targets: Tensor) -> list[Passed]:
        """Return what went into each layer that was used, and the gradient of what came out."""
        seen: dict[nn.Module, tuple[Tensor, GradientEdge]] = {}
        written = version_of(inputs)
        with torch.enable_grad():
            losses = self._loss(self._seen(inputs, seen), targets)
            used = [layer for layer in self._layers if layer in seen]
            result = gradients_at(losses, [seen[layer][1] for layer in used])
        self._untouched = version_of(inputs) == written
        return [(layer, _wide(seen[layer][0]), _wide(gradient)) for layer, gradient in zip(used, result, strict=True)]

    def blocks_of(
        self, passed: Sequence[Passed], offsets: Tensor, found: Mapping[nn.Module, Found] | None = None
    ) -> list[LayerBlock]:
        """Return the blocks of a pass.

        Args:
            passed: of each layer that was used.
            offsets: of the units among the rows.
            found: for a GPU, the different rows that layers are known to have looked up.
        """
        made: dict[int, LayerBlock] = {}
        groups = self._groups = self._groups if self._groups.offsets is offsets else Groups(offsets)
        for layer, a, b in passed:
            made |= _blocks_of(layer, a, b, groups, None if found is None else found.get(layer))
        return [
            made[id(p)] if id(p) in made else Stored(p.detach().new_zeros((groups.units, *p.shape)))
            for layer in self._layers  # of known kinds: each parameter belongs to one of them
            for p in layer._parameters.values()
            if p is not None and p.requires_grad
        ]

    def few_looked_up(
        self, passed: Sequence[Passed], inputs: Tensor, offsets: Tensor
    ) -> dict[nn.Module, Tensor] | None:
        """Return what the units looked up in large tables of which they looked up few rows; -1 for no row.

        None if a table looked up something else than the inputs of the pass, which nothing wrote to, as they are.
        """
        result: dict[nn.Module, Tensor] = {}
        groups = self._groups = self._groups if self._groups.offsets is offsets else Groups(offsets)
        for layer, a, b in passed:
            if isinstance(layer, nn.Embedding):
                rows = rows_of_units(a, groups)
                if Lookup(b, rows, tuple(layer.weight.shape)).few_rows:
                    same = (
                        a.data_ptr() == inputs.data_ptr() and a.shape == inputs.shape and a.stride() == inputs.stride()
                    )
                    if not same or not self._untouched:
                        return None
                    result[layer] = rows
        return result

    def _seen(self, inputs: Tensor, seen: dict[nn.Module, tuple[Tensor, GradientEdge]]) -> Any:
        """Return the module's outputs, and keep what goes in and out of each trained layer."""
        one_by_one = layers_in_a_row(self._module)
        if one_by_one is not None:
            values = inputs
            for layer in one_by_one:  # each is there once
                given, values = values, layer.forward(values)  # what a call does where there are no hooks
                if layer in self._layers:
                    seen[layer] = given, get_gradient_edge(values)
            return values
        keep = _keeper(seen)
        hooks = [layer.register_forward_hook(keep) for layer in self._layers]
        try:
            return self._module(inputs)
        finally:
            for hook in hooks:
                hook.remove()


def _trained(layer: nn.Module) -> bool:
    """Whether a layer has a trained parameter of its own."""
    return any(p is not None and p.requires_grad for p in layer._parameters.values())


def _wide(values: Tensor) -> Tensor:
    """Return numbers without their history; those of 16 bits, which autocast makes, in float32."""
    held = values.detach() if values.requires_grad else values
    return held.float() if held.dtype in (torch.bfloat16, torch.float16) else held


def _keeper(seen: dict[nn.Module, tuple[Tensor, GradientEdge]]) -> Callable[[nn.Module, Any, Tensor], None]:
    def keep(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        if layer in seen:
            raise InputError(
                f"Expected each layer to be used once in a pass, got {layer} twice; use FunctionalGradients.",
                argument="module",
            )
        seen[layer] = inputs[0], get_gradient_edge(output)  # of the output as it is now, before in-place operations

    return keep


def _blocks_of(
    layer: nn.Module, a: Tensor, b: Tensor, groups: Groups, found: Found | None = None
) -> dict[int, LayerBlock]:
    """Return the blocks of a layer's parameters, by the parameter's identity."""
    made: dict[int, LayerBlock] = {}
    if isinstance(layer, nn.Embedding):
        if layer.weight.requires_grad:
            outgoing = groups.side_by_side(b.reshape(len(b), -1, b.shape[-1]))
            rows, shape = rows_of_units(a, groups), tuple(layer.weight.shape)
            made[id(layer.weight)] = Lookup(outgoing, rows, shape, groups.even, found)
        return made
    if isinstance(layer, nn.Conv2d):
        return _convolution(layer, a, b, groups)
    if isinstance(layer, nn.Linear):
        return _linear(layer, a, b, groups)
    a, b = a.reshape(len(a), -1, a.shape[-1]), b.reshape(len(b), -1, b.shape[-1])
    assert isinstance(layer, nn.LayerNorm)
    if layer.weight is not None and layer.weight.requires_grad:
        slopes = b * functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
        made[id(layer.weight)] = _summed(slopes, groups)
    if layer.bias is not None and layer.bias.requires_grad:
        made[id(layer.bias)] = _summed(b, groups)
    return made


def rows_of_units(a: Tensor, groups: Groups) -> Tensor:
    """Return what each unit looked up: [units, positions], -1 where it has no row."""
    if groups.even:
        return a.reshape(groups.units, -1)
    return groups.side_by_side(a.reshape(len(a), -1, 1) + 1)[..., 0] - 1


def _linear(layer: nn.Linear, a: Tensor, b: Tensor, groups: Groups) -> dict[int, LayerBlock]:
    """Return the blocks of a weight matrix and a bias: by the kernel where it can, both from the same rows."""
    made: dict[int, LayerBlock] = {}
    weight, bias = layer.weight, layer.bias
    both = bias is not None and weight.requires_grad and bias.requires_grad
    if both and joins(b, a):
        joined = JoinedRows(b, a, groups)
        of_weight = Joined(joined, partial(_product, b, a, groups, tuple(weight.shape)), bias=False)
        return {id(weight): of_weight, id(bias): Joined(joined, partial(_summed_rows, b, groups), bias=True)}
    shared = weight.requires_grad and by_rows(b, a, groups)
    rows = LayerRows(b, a, groups) if shared else None
    if weight.requires_grad:
        general = partial(_product, b, a, groups, tuple(weight.shape))
        made[id(weight)] = general() if rows is None else RowProducts(rows, general, bias=False)
    if bias is not None and bias.requires_grad:
        of_bias = partial(_summed_rows, b, groups)
        own = few_positions(b, groups) if shared else by_rows(b, None, groups)
        made[id(bias)] = RowProducts(rows or LayerRows(b, None, groups), of_bias, bias=True) if own else of_bias()
    return made


def _product(b: Tensor, a: Tensor, groups: Groups, shape: tuple[int, ...]) -> Product:
    a, b = (each.reshape(len(each), -1, each.shape[-1]) for each in (a, b))
    return Product(groups.side_by_side(b), groups.side_by_side(a), shape)


def _summed_rows(b: Tensor, groups: Groups) -> Stored:
    return _summed(b.reshape(len(b), -1, b.shape[-1]), groups)


def _convolution(layer: nn.Conv2d, a: Tensor, b: Tensor, groups: Groups) -> dict[int, LayerBlock]:
    """Return the blocks of a convolution's parameters: row by row if a row has many positions."""
    made: dict[int, LayerBlock] = {}
    outgoing, shape, kernel = b.flatten(2), tuple(layer.weight.shape), math.prod(layer.kernel_size)
    if layer.weight.requires_grad and cheaper_by_row(outgoing.shape[2], kernel * shape[1], shape[0]):
        sizes = math.sqrt(kernel) * sizes_of_rows(a) * sizes_of_rows(b)  # a number is in at most `kernel` windows
        made[id(layer.weight)] = ByRow(outgoing, a, partial(_windows, layer=layer), sizes, groups, shape)
    elif layer.weight.requires_grad:
        seen = _windows(a, layer).unflatten(2, (kernel, -1)).mT.flatten(2)
        made[id(layer.weight)] = Product(groups.side_by_side(outgoing.mT), groups.side_by_side(seen), shape)
    if layer.bias is not None and layer.bias.requires_grad:
        made[id(layer.bias)] = _summed(outgoing, groups, 2)
    return made


def _summed(values: Tensor, groups: Groups, positions: int = 1) -> Stored:
    """Return the sums over each unit's rows and positions, which lie along one axis."""
    if values.shape[positions] == 1 and groups.single:  # one term each
        return Stored(values.squeeze(positions), None, rounding_of(values))
    wide, narrow = torch.float64, values.dtype != torch.float64
    if positions == 1 and groups.even:
        held = groups.side_by_side(values)
        return Stored(held.sum(1, dtype=wide), held.abs().sum(1, dtype=wide), rounding_of(values), narrow)
    by_row = positions != 1 and values.device.type == "cpu" and not device_copies.asynchronous(values.device)
    within = values.dtype if by_row else wide
    sums, sizes = values.sum(positions, dtype=within), values.abs().sum(positions, dtype=within)
    return Stored(groups.added(sums.double()), groups.added(sizes.double()), rounding_of(values), narrow)


def _windows(a: Tensor, layer: nn.Conv2d) -> Tensor:
    """Return what a convolution sees at each place: [rows, places, kernel x channels].

    The channels of a pixel are behind one another, so that a window is copied in a few long pieces.
    """
    (high, wide), (down, across), (gap, side_gap) = layer.kernel_size, layer.stride, layer.dilation
    assert not isinstance(layer.padding, str)  # `supported` ensures this
    by_pixel = a.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
    padded = functional.pad(by_pixel, (0, 0, layer.padding[1], layer.padding[1], layer.padding[0], layer.padding[0]))
    reached = padded.unfold(1, gap * (high - 1) + 1, down).unfold(2, side_gap * (wide - 1) + 1, across)
    seen = reached[..., ::gap, ::side_gap].permute(0, 1, 2, 4, 5, 3)
    return seen.reshape(len(a), -1, high * wide * a.shape[1])
