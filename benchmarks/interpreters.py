"""Interpreters of other environments, in which peers from PyPI run: APPORTION_PIPELINEDP_PYTHON and its like."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any


def interpreter_of(package: str) -> str | None:
    """The interpreter that has a package; None if nobody named one.

    >>> interpreter_of("nothing")
    """
    return os.environ.get(f"APPORTION_{package.upper()}_PYTHON") or None


def printed_by(interpreter: str, script: str, *arguments: object, folder: str | None = None) -> Any:
    """What a script of this folder prints as JSON in its last line, in an environment that knows nothing of ours.

    Args:
        interpreter: runs it.
        script: the name of its file.
        arguments: what it is given.
        folder: where it runs; a new one if None.
    """
    path = Path(__file__).with_name(script).resolve()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as empty:
        command = [interpreter, str(path), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=folder or empty)
    return json.loads(done.stdout.strip().splitlines()[-1])
