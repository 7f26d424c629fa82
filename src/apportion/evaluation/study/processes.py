"""Run units here, or in several processes that share the processors. Ctrl-C ends them all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.errors import ApportionError
from apportion.evaluation.study.bench import Bench, Builder
from apportion.evaluation.study.description import Study
from apportion.evaluation.study.units import Unit

Finished = Callable[[Unit, str | None], None]

_bench: Bench | None = None


def _start(study: Study, data: Interactions, folder: Path, build: Builder, features: ItemFeatures | None) -> None:
    """Start a worker. It holds the data, and ends with its parent, whatever ended that."""
    global _bench
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _bench = Bench(study, data, folder, build, features)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(unit: Unit) -> str | None:
    assert _bench is not None
    return _bench.run(unit)


def run_here(bench: Bench, units: Sequence[Unit], finished: Finished) -> None:
    """Run units one after the other; `finished` is called with each, and with what went wrong."""
    for unit in units:
        finished(unit, bench.run(unit))


def run_in_processes(bench: Bench, units: Sequence[Unit], processes: int, finished: Finished) -> None:
    """Run units in several processes; `finished` is called with each, and with what went wrong."""
    others = set(multiprocessing.active_children())
    with threads_for(processes):
        pool = ProcessPoolExecutor(
            processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(bench.study, bench.data, bench.folder, bench.build, bench.features),
        )
        try:
            with _interrupts_held():
                running = {pool.submit(_work, unit): unit for unit in units}
            for future in as_completed(running):
                finished(running[future], future.result())
        except BrokenProcessPool:
            raise ApportionError(
                "A worker process ended before its work was done, perhaps for lack of memory; finished fits are kept."
            ) from None
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C while workers start. They inherit that, so they leave it to their parent from the beginning."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def threads_for(processes: int) -> Iterator[None]:
    """While workers start, give each its part of the processors and no more."""
    threads = str(max(1, processors() // processes))
    names = ("APPORTION_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: threads for name in names if not _is_lower(before[name], threads)})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_lower(text: str | None, threads: str) -> bool:
    return text is not None and text.isdecimal() and 0 < int(text) < int(threads)
