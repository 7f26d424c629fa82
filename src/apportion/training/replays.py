"""Work on a GPU that is the same at every step, launched as one graph.

The clipped sum of a full batch is some tens of small operations on tensors of the same shapes at every step. To launch
one costs the host more time than the GPU needs for it. So the third time they are recorded, and from then on replayed
by one launch. What is replayed are the same operations, in the same order, on copies of that step's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
Work = Callable[[Sequence[Tensor]], Result]

_FIRST = 3  # time of the same work at which it is recorded
_MOST = 8  # a graph may hold one part in so many of a GPU's memory, which nothing else can use then


class Replays:
    """Does the same work again and again, recorded once it is known to come back.

    Args:
        record: takes tensors and work on them, and returns what does that work on other tensors of the same shapes. It
            raises a RuntimeError if the work cannot be recorded.

    Attributes:
        refused: why the work could not be recorded; None if it was, or was not tried.
    """

    def __init__(self, record: Callable[[Sequence[Tensor], Work[Any]], Work[Any]] | None = None) -> None:
        self._record = record or recorded
        self._key: Hashable = None
        self._seen = 0
        self._recorded: Work[Any] | None = None
        self.refused: str | None = None

    def __call__(self, key: Hashable, values: Sequence[Tensor], work: Work[Result]) -> Result:
        """Return the result of the work; from the recording on always the same object, with new numbers.

        Args:
            key: all that the work depends on beside these tensors.
            values: what it works on, on one GPU.
            work: asks the GPU nothing and draws nothing.
        """
        key = key, tuple((value.shape, value.dtype, value.device) for value in values)
        if key != self._key:
            self._key, self._seen, self._recorded = key, 0, None
        self._seen += 1
        if self._seen == _FIRST and self.refused is None:
            self._recorded = self._attempt(values, work)
        result: Result = (self._recorded or work)(values)
        return result

    def _attempt(self, values: Sequence[Tensor], work: Work[Any]) -> Work[Any] | None:
        try:
            return self._record(values, work)
        except RuntimeError as problem:  # of CUDA, whose work goes on launch by launch
            self.refused = str(problem)
            return None


def recorded(values: Sequence[Tensor], work: Work[Result]) -> Work[Result]:
    """Record work on a GPU as a CUDA graph, and return what replays it on other tensors of the same shapes."""
    held = [torch.empty(value.shape, dtype=value.dtype, device=value.device) for value in values]
    device = values[0].device
    with torch.cuda.device(device):
        copy_all(held, values)
        beside = torch.cuda.Stream(device)
        beside.wait_stream(torch.cuda.current_stream(device))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(beside):
            work(held)  # what happens only once, such as copies of public numbers to the GPU
            torch.cuda.synchronize(device)
            _forget_workspaces()
            before = torch.cuda.memory_reserved(device)
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                result = work(held)
            finally:
                graph.capture_end()
                _forget_workspaces()
        torch.cuda.current_stream(device).wait_stream(beside)
        taken = torch.cuda.memory_reserved(device) - before
        if _MOST * taken > torch.cuda.get_device_properties(device).total_memory:
            raise RuntimeError(f"The recorded work would hold {taken} bytes of the GPU's memory.")

    def replay(values: Sequence[Tensor]) -> Result:
        copy_all(held, values)
        graph.replay()
        return result

    return replay


def copy_all(held: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy tensors into others of the same shapes: those of one dtype together."""
    for dtype in {value.dtype for value in values}:
        pairs = [(one, other) for one, other in zip(held, values, strict=True) if other.dtype == dtype]
        torch._foreach_copy_([one for one, _ in pairs], [other for _, other in pairs])


def _forget_workspaces() -> None:
    """Let products of matrices in a graph have memory of their own, and those outside it too; as torch.compile does."""
    forget = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if forget is not None:
        forget()
