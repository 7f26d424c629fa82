"""The log of the service: an error's type and place, never its message, which may quote a request."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Final

_LOGGERS: Final = ("uvicorn", "uvicorn.error", "asyncio", "apportion")


def place_of(error: BaseException) -> str:
    """Return the type of an error and where it was raised.

    >>> try:
    ...     {}["what a user likes"]
    ... except KeyError as error:
    ...     print(place_of(error).split(" in ")[0])
    KeyError
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    return f"{type(error).__name__} in {frames[-1].name} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


class _WithoutMessages(logging.Formatter):
    """Formats a record as one line: the first line of its text, and an error by its type and place."""

    def format(self, record: logging.LogRecord) -> str:
        first = record.getMessage().split("\n", 1)[0]
        error = record.exc_info[1] if record.exc_info else None
        return f"{record.levelname}: {first}" + (f": {place_of(error)}" if error is not None else "")


def log_errors_only() -> None:
    """Write only errors of the service and its server to stderr, in the form above."""
    handler = logging.StreamHandler()
    handler.setFormatter(_WithoutMessages())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.ERROR)
