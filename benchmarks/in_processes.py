"""Measures the cells of a claim in several processes, one for each processor.

Every cell is a call with numbers and names as arguments, so its result does not depend on where or when it is made.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from apportion.evaluation.study.processes import processors, threads_for

Found = TypeVar("Found")

_FEW = 16


def in_processes(measure: Callable[..., Found], cells: Sequence[tuple[Any, ...]]) -> list[Found]:
    """Return what `measure` gives for each cell, in the order of the cells. A few cells are measured in this process.

    Args:
        measure: a function of a module, so that other processes find it.
        cells: its arguments.
    """
    workers = min(processors(), len(cells))
    if workers < 2 or len(cells) < _FEW:
        return [measure(*cell) for cell in cells]
    spawned = multiprocessing.get_context("spawn")
    with threads_for(processors()), ProcessPoolExecutor(workers, mp_context=spawned) as pool:
        return [_counted(found, k, len(cells)) for k, found in enumerate(pool.map(measure, *zip(*cells, strict=True)))]


def _counted(found: Found, k: int, n_cells: int) -> Found:
    if sys.stderr.isatty() or (k + 1) % 50 == 0:
        print(f"{k + 1} of {n_cells} cells", file=sys.stderr, flush=True)
    return found
