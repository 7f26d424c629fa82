"""Which lines of the library something runs, so that a mutant is given only to what can notice it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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

    before = sys.gettrace()
    threading.settrace(call)
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)
