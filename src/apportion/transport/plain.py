"""Plain data as bytes: texts, numbers, lists, tables and raw bytes; nothing that is read can be run.

A message is a header in JSON and, after it, all raw bytes in order. In the header, raw bytes are {"bytes": length}.
There is no way to name a class, a function or a file, and no way to say NaN or infinity.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from apportion.errors import InputError

MOST_BYTES: Final = 1 << 27  # in a message
MOST_HEADER: Final = 1 << 20
_DEEPEST: Final = 12
_LENGTH: Final = 4  # bytes that say how long the header is
_MARK: Final = "bytes"


def packed(value: Any) -> bytes:
    """Return a value as bytes.

    >>> unpacked(packed({"name": "x", "numbers": [1, 2.5, None, True], "raw": b"abc"}))
    {'name': 'x', 'numbers': [1, 2.5, None, True], 'raw': b'abc'}
    """
    raw: list[bytes] = []
    header = json.dumps(_written(value, raw), separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    return len(header).to_bytes(_LENGTH, "big") + header + b"".join(raw)


def unpacked(message: bytes) -> Any:
    """Read back what `packed` wrote. Refuse other bytes."""
    if not isinstance(message, bytes) or not _LENGTH < len(message) <= MOST_BYTES:
        _refuse("a message of another size or kind")
    end = _LENGTH + int.from_bytes(message[:_LENGTH], "big")
    if end > min(len(message), MOST_HEADER):
        _refuse("a header that is longer than the message, or too long")
    try:
        tree = json.loads(message[_LENGTH:end].decode(), parse_constant=_refuse, object_pairs_hook=_table)
    except (ValueError, RecursionError):
        _refuse("a header that is no JSON")
    value, used = _read(tree, message, end, 0)
    if used != len(message):
        _refuse("bytes that nothing in the header stands for")
    return value


def _written(value: Any, raw: list[bytes]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is bytes:
        raw.append(value)
        return {_MARK: len(value)}
    if type(value) in (list, tuple):
        return [_written(each, raw) for each in value]
    if type(value) is dict and all(type(key) is str and key != _MARK for key in value):
        return {key: _written(value[key], raw) for key in sorted(value)}
    raise InputError(f"Expected plain data to send, got {type(value).__name__}.", argument=None)


def _read(tree: Any, message: bytes, used: int, depth: int) -> tuple[Any, int]:
    """Return a value, and where the raw bytes after its own begin."""
    if depth > _DEEPEST:
        _refuse("data in too many levels")
    if isinstance(tree, list):
        items = []
        for each in tree:
            item, used = _read(each, message, used, depth + 1)
            items.append(item)
        return items, used
    if not isinstance(tree, dict):
        return tree, used
    if _MARK in tree:
        length = tree[_MARK]
        if len(tree) != 1 or type(length) is not int or not 0 <= length <= len(message) - used:
            _refuse("raw bytes that are not there")
        return message[used : used + length], used + length
    table = {}
    for key in sorted(tree):
        table[key], used = _read(tree[key], message, used, depth + 1)
    return table, used


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        _refuse("a name twice in one table")
    return table


def _refuse(what: object) -> NoReturn:
    raise InputError(f"Expected a message of plain data, got {what}.", argument="message")
