"""One backward pass, from losses to what comes out of layers.

`torch.autograd.grad` looks at shapes, contexts and kinds of arguments in Python before it calls the engine of PyTorch.
For a small module that takes longer than the pass. So on a processor the engine is called itself, as `grad` would call
it, once it was seen to do so here; where it does not, `grad` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge


def gradients_at(losses: Tensor, edges: Sequence[GradientEdge]) -> Sequence[Tensor]:
    """Return the gradients of the sum of all losses at these edges."""
    ones = torch.ones_like(losses)
    run = _engine() if type(losses) is Tensor and losses.device.type == "cpu" else None
    if run is None:
        result: Sequence[Tensor] = torch.autograd.grad(losses, edges, ones)
        return result
    found: Sequence[Tensor] = run((losses,), (ones,), False, False, tuple(edges), False, accumulate_grad=False)
    return found


@cache
def _engine() -> Callable[..., Any] | None:
    """Return what runs a backward pass, if this version of PyTorch has it as it is called here."""
    try:
        run: Callable[..., Any] = torch.autograd.Variable._execution_engine.run_backward
        with torch.enable_grad():
            start = torch.ones(2, requires_grad=True)
            middle = 3 * start
            end = middle.square()
            edges = (get_gradient_edge(middle), get_gradient_edge(start))
            found = run((end,), (torch.ones(2),), False, False, edges, False, accumulate_grad=False)
        right = start.grad is None and [part.tolist() for part in found] == [[6.0, 6.0], [18.0, 18.0]]
    except Exception:  # whatever another version raises
        return None
    return run if right else None
