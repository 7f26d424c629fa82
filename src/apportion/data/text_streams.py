"""Lines of text files as streams of bytes for Arrow: unpacked, with one byte as separator, and quotations checked.

Arrow's reader takes a quotation mark at the beginning of a cell as the beginning of a quotation, which may hold ends of
lines. A mark that is not closed would make the rows of other users a part of that cell. So a file is refused unless
every quotation is closed at the end of its cell (docs/proofs/row_rules.md).
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from apportion.data.vocabulary import shortened
from apportion.errors import InputError

SEPARATORS: Final = ("::", "\t", ",", ";", "|")
SPACE: Final = " "  # any run of spaces and tabs
STAND_IN: Final = "\x1f"  # ASCII "unit separator", which replaces a separator of several characters

_PACKED: Final = (
    ("gzip", re.compile(rb"\x1f\x8b")),
    ("bz2", re.compile(rb"BZh[1-9]1AY&SY")),
    ("zstd", re.compile(rb"\x28\xb5\x2f\xfd")),
)  # how compressed files begin
_QUOTE: Final = ord('"')
_LINE_ENDS: Final = b"\r\n"
_MARK: Final = b"\xef\xbb\xbf"  # of UTF-8, at the beginning of a file
_SHOWN: Final = 20  # bytes before and after a misplaced quotation mark


def open_bytes(path: Path) -> Any:
    """Return the file's bytes, decompressed if they begin as gzip, bzip2 or Zstandard do, whatever the file's name."""
    import pyarrow as pa

    with path.open("rb") as stream:
        beginning = stream.read(16)
    packed = next((how for how, mark in _PACKED if mark.match(beginning)), None)
    return pa.input_stream(str(path), compression=packed)


def opened_lines(path: Path, separator: str, *, alone: bool) -> Any:
    """Return the file's bytes with a single byte instead of a long separator or a run of spaces.

    Args:
        path: the file.
        separator: the separator of columns.
        alone: whether a run of spaces separates only if no line holds another separator.
    """
    import pyarrow as pa

    stream: Any = open_bytes(path)
    if separator == SPACE:
        stream = _Collapsing(stream, alone=alone)
    elif len(separator) > 1:
        stream = _Replacing(stream, separator.encode())
    single = separator if len(separator) == 1 else STAND_IN
    return pa.PythonFile(_Quoted(stream, single.encode()), mode="r")


class _Quoted(io.RawIOBase):
    """A stream that refuses quotation marks within cells, and a quotation that is not closed.

    Marks open and close a quotation in turn. One that opens follows a separator, an end of a line or, as the second of
    a doubled mark, another mark; one that closes is followed by one of these. What a mark is does not depend on where
    the stream is cut.
    """

    def __init__(self, stream: Any, separator: bytes) -> None:
        self._stream = stream
        self._beside = np.zeros(256, bool)
        self._beside[[_QUOTE, *_LINE_ENDS, *separator]] = True
        self._before = b""  # the last bytes so far, for messages; nothing at the beginning
        self._inside, self._opened = False, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return about `size` bytes, the first time at least three; empty only at the end."""
        fresh = self._checked(size)
        if fresh.endswith(b"\r"):
            fresh += self._checked(1)  # no block ends between the halves of an end of line
        return fresh

    def _checked(self, size: int) -> bytes:
        least = 0 if self._before else len(_MARK)
        fresh: bytes = self._stream.read(max(size, least) if size >= 0 else None)
        if not fresh and self._inside:
            raise _refused("is not closed", b"", self._opened)
        if fresh:
            self._check(fresh if self._before else fresh.removeprefix(_MARK))
            self._before = (self._before + fresh)[-_SHOWN:]
        return fresh

    def _check(self, fresh: bytes) -> None:
        """Look at the marks in some bytes, and at one that closed at the end of those before."""
        closed = self._before.endswith(b'"') and not self._inside
        if closed and fresh and not self._beside[fresh[0]]:
            raise _refused("is within a cell", self._before, fresh)
        if b'"' not in fresh:
            return
        held = np.frombuffer(fresh, np.uint8)
        marks = np.flatnonzero(held == _QUOTE)
        opens = (np.arange(len(marks)) % 2 == 0) != self._inside
        neighbour = np.where(opens, marks - 1, marks + 1)
        known = (neighbour >= 0) & (neighbour < len(held))
        fits = self._beside[held[np.clip(neighbour, 0, len(held) - 1)]] | ~known
        if opens[0] and marks[0] == 0:
            fits[0] = self._before in (b"", _MARK) or bool(self._beside[self._before[-1]])
        if not fits.all():
            place = int(marks[np.argmin(fits)])
            raise _refused("is within a cell", (self._before + fresh[:place])[-_SHOWN:], fresh[place:])
        self._inside ^= len(marks) % 2 == 1
        self._opened = fresh[marks[-1] :][:_SHOWN]


def _refused(what: str, before: bytes, after: bytes) -> InputError:
    """Return the error about a quotation mark between some bytes."""
    near = shortened((before + after[:_SHOWN]).decode("utf-8", errors="replace"))
    problem = (
        f"A quotation mark {what}, near {near}; rows after it may belong to it. Expected marks around a whole "
        "cell, and doubled inside; write the file in this way, or as Parquet."
    )
    return InputError(problem, argument=None)


class _Collapsing(io.RawIOBase):
    """A stream in which every run of spaces and tabs is one space, and lines neither begin nor end with one."""

    def __init__(self, stream: Any, *, alone: bool) -> None:
        self._stream, self._held, self._alone = stream, b"", alone

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return whole lines of about `size` bytes in total; empty only at the end."""
        while True:
            fresh: bytes = self._stream.read(max(1, size - len(self._held)) if size >= 0 else None)
            self._refuse_others(self._held[-1:] + fresh)
            whole, _, self._held = (self._held + fresh).rpartition(b"\n")
            if not fresh:
                whole, self._held = whole or self._held, b""
            if whole or not fresh:
                tidy = [b" ".join(line.split()) for line in whole.split(b"\n")]
                return b"\n".join(tidy) + b"\n" if whole else b""

    def _refuse_others(self, fresh: bytes) -> None:
        """Refuse another separator if a row of data, not a header, said that spaces separate."""
        other = next((each for each in SEPARATORS if each.encode() in fresh), None) if self._alone else None
        if other is not None:
            problem = f"It is not clear what separates the columns: spaces or {other!r}; "
            raise InputError(problem + "write a first line with their names.", argument=None)


class _Replacing(io.RawIOBase):
    """A stream in which every `separator` is replaced, even across the edge of two reads."""

    def __init__(self, stream: Any, separator: bytes) -> None:
        self._stream, self._separator, self._held = stream, separator, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes; empty only at the end."""
        while True:
            fresh: bytes = self._stream.read(max(1, size - len(self._held)) if size >= 0 else None)
            if STAND_IN.encode() in fresh:
                raise InputError(
                    f"The file holds the character {STAND_IN!r}, which stands for the separator.", argument=None
                )
            *finished, rest = (self._held + fresh).split(self._separator)
            keep = _unfinished(rest, self._separator) if fresh else 0
            self._held = rest[len(rest) - keep :]
            done = STAND_IN.encode().join([*finished, rest[: len(rest) - keep]])
            if done or not fresh:
                return done


def _unfinished(raw: bytes, separator: bytes) -> int:
    """Return how many bytes at the end of `raw` may be the beginning of a separator."""
    lengths = range(len(separator) - 1, 0, -1)
    return next((length for length in lengths if raw.endswith(separator[:length])), 0)
