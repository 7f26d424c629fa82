"""Which lines and functions of the library something runs, so that a mutant is given only to what can notice it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import apportion
from mutation.live import body_of

ROOT = str(Path(apportion.__file__).parent)

Lines = set[tuple[str, int]]


@contextmanager
def noted(lines: Lines) -> Iterator[None]:
    """Note every line of a function of the library that is run, in all threads that start within."""

    def line(frame, event, arg):
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    def call(frame, event, arg):
        code = frame.f_code
        return line if code.co_filename.startswith(ROOT) and body_of(code) else None

    with _tracing(call):
        yield


@contextmanager
def functions_noted(functions: set[str]) -> Iterator[None]:
    """Note every function of the library that is called, by file and first line."""

    def call(frame, event, arg):
        code = frame.f_code
        if code.co_filename.startswith(ROOT):
            functions.add(place_of(code.co_filename, code.co_firstlineno))

    with _tracing(call):
        yield


@contextmanager
def states_noted(states: dict[str, list[int]]) -> Iterator[None]:
    """Note what each function of the library holds when it returns, for its first calls: as a hash."""

    def returns(frame, event, arg):
        code = frame.f_code
        if event == "return" and code.co_filename.startswith(ROOT):
            held = states.setdefault(place_of(code.co_filename, code.co_firstlineno), [])
            if len(held) < CALLS:
                held.append(digest([*frame.f_locals.values(), arg]))

    sys.setprofile(returns)
    try:
        yield
    finally:
        sys.setprofile(None)


CALLS, DEPTH, LONGEST = 3, 3, 16


def digest(held: Any, depth: int = 0) -> int:
    """A hash of numbers, texts and arrays within something; the rest counts by its kind."""
    if isinstance(held, int | float | str | bytes | None):
        return hash(held)
    if isinstance(held, np.ndarray):
        return hash((held.shape, held.tobytes())) if held.dtype != object else digest(held.tolist(), depth)
    if depth == DEPTH or callable(held) or hasattr(held, "detach"):  # tensors may be within a transform of torch
        return 0
    if isinstance(held, dict):
        held = [*held.keys(), *held.values()]
    elif not isinstance(held, list | tuple | set | frozenset):
        slots = {name: getattr(held, name, None) for name in getattr(type(held), "__slots__", ())}
        held = [type(held).__name__, *(getattr(held, "__dict__", None) or slots).values()]
    return hash(tuple(digest(each, depth + 1) for each in list(held)[:LONGEST]))


def place_of(path: str, line: int) -> str:
    """A function by its file and first line."""
    return f"{path[len(ROOT) + 1 :]}:{line}"


@contextmanager
def _tracing(call: Callable[..., Any]) -> Iterator[None]:
    before = sys.gettrace()
    threading.settrace(call)
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)
