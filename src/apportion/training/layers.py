"""Gradients of every unit from one backward pass, if all trained layers are of known kinds.

Hooks keep the input of a layer and the gradient of its output; the rest is arithmetic (`blocks`). See Goodfellow,
"Efficient per-example gradient computations" (2015), and Bu et al., "Automatic clipping / Book-keeping" (2022) for
using the factors twice instead of going backward twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from apportion.errors import InputError
from apportion.training.blocks import Lookup, Product, Stored, rounding_of

LayerBlock = Stored | Product | Lookup


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

    def blocks(self, inputs: Tensor, targets: Tensor, offsets: Tensor) -> list[LayerBlock]:
        """Return one block for each trained parameter, in the order of the module's parameters."""
        layers = [m for m in self._module.modules() if any(p.requires_grad for p in m.parameters(recurse=False))]
        seen: dict[nn.Module, tuple[Tensor, GradientEdge]] = {}
        hooks = [layer.register_forward_hook(_keeper(seen)) for layer in layers]
        try:
            with torch.enable_grad():
                losses = self._loss(self._module(inputs), targets)
                used = [layer for layer in layers if layer in seen]
                result = torch.autograd.grad(losses.sum(), [seen[layer][1] for layer in used])
        finally:
            for hook in hooks:
                hook.remove()
        made: dict[int, LayerBlock] = {}
        for layer, gradient in zip(used, result, strict=True):
            made |= _blocks_of(layer, _wide(seen[layer][0].detach()), _wide(gradient.detach()), offsets)
        nothing = len(offsets) - 1
        return [
            made[id(p)] if id(p) in made else Stored(p.detach().new_zeros((nothing, *p.shape)))
            for p in self._module.parameters()
            if p.requires_grad
        ]


def _wide(values: Tensor) -> Tensor:
    """Return numbers of 16 bits, which autocast makes, in float32."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def _keeper(seen: dict[nn.Module, tuple[Tensor, GradientEdge]]) -> Callable[[nn.Module, Any, Tensor], None]:
    def keep(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        if layer in seen:
            raise InputError(
                f"Expected each layer to be used once in a pass, got {layer} twice; use FunctionalGradients.",
                argument="module",
            )
        seen[layer] = inputs[0], get_gradient_edge(output)  # of the output as it is now, before in-place operations

    return keep


def _blocks_of(layer: nn.Module, a: Tensor, b: Tensor, offsets: Tensor) -> dict[int, LayerBlock]:
    """Return the blocks of a layer's parameters, by the parameter's identity."""
    made: dict[int, LayerBlock] = {}
    if isinstance(layer, nn.Embedding):
        if layer.weight.requires_grad:
            rows = by_unit(a.reshape(len(a), -1, 1) + 1, offsets)[..., 0] - 1
            outgoing = by_unit(b.reshape(len(b), -1, b.shape[-1]), offsets)
            made[id(layer.weight)] = Lookup(outgoing, rows, tuple(layer.weight.shape))
        return made
    if isinstance(layer, nn.Conv2d):
        a, b = _windows(a, layer), b.flatten(2).mT
    else:
        a, b = a.reshape(len(a), -1, a.shape[-1]), b.reshape(len(b), -1, b.shape[-1])
    if isinstance(layer, nn.LayerNorm):
        slopes = b * functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
        if layer.weight is not None and layer.weight.requires_grad:
            made[id(layer.weight)] = _summed(slopes, offsets)
    elif layer.weight.requires_grad:
        assert isinstance(layer.weight, Tensor)
        made[id(layer.weight)] = Product(by_unit(b, offsets), by_unit(a, offsets), tuple(layer.weight.shape))
    if layer.bias is not None and layer.bias.requires_grad:
        made[id(layer.bias)] = _summed(b, offsets)
    return made


def _summed(values: Tensor, offsets: Tensor) -> Stored:
    """Return the sums over each unit's rows and positions."""
    wide = values.double()
    sums, sizes = (by_unit(each.sum(1, keepdim=True), offsets).sum(1) for each in (wide, wide.abs()))
    return Stored(sums, sizes, rounding_of(values))


def _windows(a: Tensor, layer: nn.Conv2d) -> Tensor:
    """Return what a convolution sees at each place: [rows, places, channels x kernel]."""
    (high, wide), (down, across), (gap, side_gap) = layer.kernel_size, layer.stride, layer.dilation
    assert not isinstance(layer.padding, str)  # `supported` ensures this
    padded = functional.pad(a, (layer.padding[1], layer.padding[1], layer.padding[0], layer.padding[0]))
    reached = padded.unfold(2, gap * (high - 1) + 1, down).unfold(3, side_gap * (wide - 1) + 1, across)
    seen = reached[..., ::gap, ::side_gap].permute(0, 2, 3, 1, 4, 5)
    return seen.reshape(len(a), -1, a.shape[1] * high * wide)


def by_unit(values: Tensor, offsets: Tensor) -> Tensor:
    """Return rows [rows, positions, width] as [units, rows of the largest x positions, width], padded with zeros."""
    sizes = offsets.diff()
    most = int(sizes.max()) if len(sizes) else 0
    if most * len(sizes) == len(values):  # all units have as many rows: nothing to pad, and nothing to copy
        return values.reshape(len(sizes), most * values.shape[1], values.shape[2])
    units = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    places = torch.arange(len(values)) - offsets[:-1][units]
    out = values.new_zeros((len(sizes), most, *values.shape[1:]))
    out[units.to(values.device), places.to(values.device)] = values
    return out.reshape(len(sizes), most * values.shape[1], values.shape[2])
