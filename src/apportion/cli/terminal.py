"""Text of others on the terminal: ids and titles may hold line ends, or codes that move the cursor or turn the line."""

from __future__ import annotations

import re
from typing import Final

_MOVING: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def on_one_line(text: object) -> str:
    r"""Return a text with control characters written as Python writes them, so that it stays where it is printed.

    >>> on_one_line("a\nb")
    'a\\nb'
    """
    return _MOVING.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))
