"""Numbers on their way between a GPU and the host, by page-locked memory and without waiting.

A GPU works through what it is given while the host goes on. The host waits where it asks for a number; so it asks once,
for what it needs last, by a function that waits for one copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Tensor = Any  # torch.Tensor; torch is optional when types are checked


def asynchronous(device: Any) -> bool:
    """Whether a device of torch works beside the host, so that every question to it is a wait."""
    return bool(device.type == "cuda")


def begun(values: Tensor) -> Callable[[], NDArray[Any]]:
    """Begin to copy a tensor's numbers as they are now to the host. The result waits for them and returns them."""
    if values.device.type != "cuda":
        held: NDArray[Any] = values.detach().clone().numpy()
        return lambda: held
    import torch

    there = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    there.copy_(values.detach(), non_blocking=True)
    done = torch.cuda.current_stream(values.device).record_event()

    def arrived() -> NDArray[Any]:
        done.synchronize()
        result: NDArray[Any] = there.numpy()
        return result

    return arrived


def page_locked(size: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return a new vector on the host from which a GPU copies without a stop on the way; plain where there is none."""
    import torch

    if not torch.cuda.is_initialized():
        return np.empty(size, dtype)
    like = torch.from_numpy(np.empty(0, dtype)).dtype
    result: NDArray[Any] = torch.empty(size, dtype=like, pin_memory=True).numpy()
    return result
