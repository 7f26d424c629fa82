"""The answer to a request that is refused: a status and one sentence."""

from __future__ import annotations

from typing import Any


class RefusedError(Exception):
    """A request that is refused.

    Args:
        status: the HTTP status.
        sentence: what is wrong, for the client alone; it may quote the request and is never logged.
        headers: further headers.
    """

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status)
        self.status, self.sentence, self.headers = status, sentence, headers or {}


def shown(value: Any) -> str:
    """Return a value of a request in the shortened form in which a sentence quotes it."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value) if isinstance(value, str) else _number(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _number(value: float) -> str:
    """Return a number's digits, unless there are too many to read."""
    return str(value) if isinstance(value, float) or abs(value) < 10**60 else "a number of many digits"
