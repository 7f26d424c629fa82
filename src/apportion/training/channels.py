"""Images with the channels of a pixel behind one another in memory.

Pooling and convolutions on a processor are faster on that form, several times in the case of pooling. The numbers are
the same; only their places in memory differ. So most modules compute the same with either. Some do not accept it
(`view` after a convolution); such a module gets images as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from apportion.training.module_state import unchanged

_ROWS, _CLOSE = 4, 1e-4


class ChannelsLast(nn.Module):  # type: ignore[misc]
    """Applies a module to images with channels last in memory. A row alone, as torch.func passes it, stays as it is."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, rows: Tensor) -> Tensor:
        """Return what the module returns."""
        result: Tensor = self.module(rows.to(memory_format=torch.channels_last) if len(rows) > 1 else rows)
        return result


def pixels_together(module: nn.Module, like: Tensor) -> nn.Module:
    """Return the module for images with channels last, if it has convolutions, runs on a processor and accepts them."""
    images = like.dim() == 4 and like.is_floating_point() and like.device.type == "cpu"
    if not images or not any(isinstance(part, nn.Conv2d) for part in module.modules()):
        return module
    fast = ChannelsLast(module)
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand((_ROWS, *like.shape[1:]), generator=generator, dtype=torch.float64).to(like.dtype)
    try:
        with torch.no_grad(), unchanged(fast):
            plain, other = (part.eval()(rows.clone()) for part in (module, fast))
            same = bool(((plain - other).abs() <= _CLOSE * plain.abs().max()).all())
    except Exception:  # for this form of memory, or for made-up rows, which are looked at later
        return module
    return fast if same else module
