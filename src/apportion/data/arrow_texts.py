"""Texts in Arrow's forms: codes for their rows, without a Python object per row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apportion.data.encoding import TextCodes
from apportion.errors import InputError
from apportion.linalg.backend import active_backend
from apportion.linalg.orders import take
from apportion.linalg.texts import Texts

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowTexts:
    """Gives each distinct text of a column a code when it first occurs.

    Two texts are one id if and only if Python calls them equal. Arrow's texts are in UTF-8, so equal texts have equal
    bytes. The compiled kernel compares these bytes. Without it, Arrow finds the distinct texts of a batch, and a
    dictionary finds those of all batches.
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._dictionary = TextCodes()
        self._kernel = Texts() if active_backend() == "compiled" else None
        self._seen: list[str] = []

    @property
    def texts(self) -> list[str]:
        """The distinct texts, in the order of their codes."""
        return self._dictionary.texts if self._kernel is None else self._seen

    def codes_of(self, cells: pa.Array) -> NDArray[np.int32]:
        """Return the codes of a batch without missing cells: a batch of texts, or of positions in a list of texts."""
        import pyarrow.compute as pc

        if is_dictionary_of_texts(cells):
            return self._codes_by_position(cells)
        if self._kernel is None:
            return self._codes_by_position(pc.dictionary_encode(_plain(cells)))
        return self._codes_by_kernel(_plain(cells), self._kernel)

    def _codes_by_position(self, cells: pa.DictionaryArray) -> NDArray[np.int32]:
        import pyarrow as pa

        entries, positions = _plain(cells.dictionary), cells.indices.cast(pa.int32()).to_numpy()
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(entries):  # Arrow does not check this
            problem = f"Column {self._column!r} is damaged: a row stands for no entry of its list of texts."
            raise InputError(problem, argument=None)
        used = np.zeros(len(entries), bool)
        used[positions] = True  # the list may hold texts that no row uses
        names = entries.filter(pa.array(used))
        code_of_entry = np.full(len(entries), -1, np.int32)
        if self._kernel is None:
            code_of_entry[used] = self._dictionary.codes_of(self._as_python(names))
        else:
            code_of_entry[used] = self._codes_by_kernel(names, self._kernel)
        return take(code_of_entry, positions)

    def _codes_by_kernel(self, texts: pa.Array, known: Texts) -> NDArray[np.int32]:
        import pyarrow as pa

        if not len(texts):
            return np.zeros(0, np.int32)
        _, offsets, letters = texts.buffers()
        width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
        bounds = np.frombuffer(offsets, width)[texts.offset : texts.offset + len(texts) + 1]
        codes, new = known.codes_of(bounds, np.frombuffer(letters or b"", np.uint8))
        self._seen.extend(self._as_python(texts.take(pa.array(new))))
        return codes

    def _as_python(self, texts: pa.Array) -> list[str]:
        try:
            found: list[str] = texts.to_pylist()
        except UnicodeDecodeError:  # Arrow does not check what a file calls text
            raise InputError(f"Column {self._column!r} holds text that is not in UTF-8.", argument=None) from None
        return found


def _plain(texts: pa.Array) -> pa.Array:
    """Return the texts with offsets of 32 or 64 bits."""
    import pyarrow as pa

    kinds = (pa.types.is_string, pa.types.is_large_string)
    return texts if any(is_kind(texts.type) for is_kind in kinds) else texts.cast(pa.large_string())


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether a column holds text in any of Arrow's forms."""
    import pyarrow as pa

    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(arrow_type) for is_kind in kinds)


def is_dictionary_of_texts(cells: pa.Array) -> bool:
    """Whether rows are positions in a list of texts, none of which is missing."""
    import pyarrow as pa

    kind = cells.type
    return bool(pa.types.is_dictionary(kind) and is_text(kind.value_type) and not cells.dictionary.null_count)
