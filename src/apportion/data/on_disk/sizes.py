"""Sizes of memory as people write them: `2GiB`, `500MB`, or a number of bytes."""

from __future__ import annotations

import re
from typing import Final

from apportion.errors import InputError

_UNITS: Final = {
    "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12
}  # fmt: skip


def bytes_in(size: str | int, *, least: int = 0) -> int:
    """Return the bytes of a size: a number, or a number with a unit.

    Args:
        size: the size.
        least: refuse a size of fewer bytes.

    >>> bytes_in("1.5GiB")
    1610612736
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B)?\s*", str(size).upper())
    if found is None or (found[2] or "B") not in _UNITS:
        raise InputError(f"Expected a size such as '2GiB' or '500MB', got {size!r}.", argument="memory")
    total = int(float(found[1]) * _UNITS[found[2] or "B"])
    if total < least:
        raise InputError(f"Expected memory of at least {least / (1 << 20):.3g} MiB, got {size!r}.", argument="memory")
    return total
