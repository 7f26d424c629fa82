"""Work in a copy of this process, with a limit on its processor time."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

_LONGEST = 1800  # seconds by the clock: for a copy that waits for ever


def in_copy(work: Callable[[], Any], seconds: float) -> Any:
    """What `work` returns, as plain JSON; None where it ended in another way or took too long."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, writing, seconds)
    os.close(writing)
    text = _read(reading, child)
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def _work(work: Callable[[], Any], writing: int, seconds: float) -> None:
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(nothing, handle)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        text = json.dumps(work()).encode()
        while text:
            text = text[os.write(writing, text) :]
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _read(reading: int, child: int) -> bytes:
    """All that a copy writes; one that waits for ever is ended, with what it started."""
    until, text = time.monotonic() + _LONGEST, b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while time.monotonic() < until:
            if not select.select([pipe], [], [], 1.0)[0]:
                continue
            some = pipe.read(1 << 20)
            if not some:
                return text
            text += some
    os.killpg(child, signal.SIGKILL)
    return b""
