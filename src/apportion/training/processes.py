"""Training in several processes: each forms the clipped sum of its own units, one releases it, all take the same step.

Every process holds all rows. A unit belongs to the process that a hash of its id names, so no unit is added twice,
whatever rows the processes were given. The first process has the session: it charges, draws the sample and the noise,
and tells the others what was released. The processes trust one another with partial sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed, nn

from apportion.errors import ApportionError, InputError
from apportion.training.units import Units

_Result = TypeVar("_Result")


class Processes(Protocol):
    """Several processes that train together."""

    @property
    def number(self) -> int:
        """Of this process, from 0; the first has the session."""

    @property
    def size(self) -> int:
        """How many there are."""

    def add_up(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sums over all processes in the first; the others may return anything."""

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all processes, in order."""

    def tell(self, value: Any) -> Any:
        """Return the first process's value in all of them."""


class OneProcess:
    """A training in this process alone."""

    number = 0
    size = 1

    def add_up(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the numbers."""
        return numbers

    def exchange(self, value: Any) -> list[Any]:
        """Return the value."""
        return [value]

    def tell(self, value: Any) -> Any:
        """Return the value."""
        return value


class TorchProcesses:
    """The processes of a group of `torch.distributed`; all of them call the same functions in the same order.

    Args:
        group: the group; None for all processes.
    """

    def __init__(self, group: Any | None = None) -> None:
        if not (distributed.is_available() and distributed.is_initialized()):
            raise InputError(
                "Expected processes of torch.distributed, got none; call init_process_group first.",
                argument="processes",
            )
        self._group = group
        self.number = distributed.get_rank(group)
        self.size = distributed.get_world_size(group)

    def add_up(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sums over all processes."""
        on_gpu = distributed.get_backend(self._group) == "nccl"
        held = torch.as_tensor(numbers).to("cuda" if on_gpu else "cpu")
        distributed.all_reduce(held, group=self._group)
        return np.asarray(held.cpu().numpy(), np.float64)

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all processes, in order."""
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, value, group=self._group)
        return found

    def tell(self, value: Any) -> Any:
        """Return the first process's value in all of them."""
        held = [value]
        first = 0 if self._group is None else distributed.get_global_rank(self._group, 0)
        distributed.broadcast_object_list(held, src=first, group=self._group)
        return held[0]


def together(processes: Processes, work: Callable[[], _Result]) -> _Result:
    """Do the work; if it fails in any process, fail in all of them, so that none waits for ever."""
    if processes.size == 1:
        return work()
    result, problem = None, None
    try:
        result = work()
    except Exception as error:
        problem = error
    failed = [text for text in processes.exchange(None if problem is None else str(problem)) if text is not None]
    if problem is not None:
        raise problem
    if failed:
        raise ApportionError(f"Another process stopped: {failed[0]}")
    return result  # type: ignore[return-value]


def start_alike(module: nn.Module, units: Units, bounds: str, processes: Processes) -> None:
    """Give all processes the parameters and buffers of the first. Refuse different rows, and different bounds.

    Args:
        module: the module to train.
        units: the training rows.
        bounds: how units are clipped, in words that can be compared. The first process states the sensitivity of all.
        processes: the processes that train together.
    """
    if processes.size == 1:
        return
    if len(set(processes.exchange(bounds))) > 1:
        raise InputError(
            "Expected the same rules of clipping in every process, got different ones; noise fits those of the first.",
            argument="clip",
        )
    if len(set(processes.exchange(units.identity({})))) > 1:
        raise InputError(
            "Expected the same rows in every process, got different ones; each process takes its own units out of all "
            "rows.",
            argument="units",
        )
    module.load_state_dict(processes.tell(module.state_dict()))
