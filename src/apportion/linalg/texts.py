"""Codes of texts, in the order in which they first occur, by the compiled kernel.

Texts come as Arrow keeps them: bytes, and offsets between which each text lies. No Python object is made for a text
that was seen before.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import kernel


class Texts:
    """The texts seen so far. Two texts are one if and only if their bytes are equal.

    >>> letters = np.frombuffer(b"abba", np.uint8)
    >>> codes, new = Texts().codes_of(np.array([0, 1, 2, 3, 4], np.int32), letters)
    >>> codes, new  # a, b, b, a
    (array([0, 1, 1, 0], dtype=int32), array([0, 1]))
    """

    def __init__(self) -> None:
        self._texts, forget = kernel.new_texts()
        weakref.finalize(self, forget, self._texts)

    def codes_of(
        self, offsets: NDArray[Any], letters: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the code of each text, and the positions of those that are new, which get the next codes.

        Args:
            offsets: int32 or int64: text k lies between offsets[k] and offsets[k + 1]; ascending, within the letters.
            letters: the bytes.
        """
        if offsets[0] < 0 or offsets[-1] > len(letters) or not (offsets[1:] >= offsets[:-1]).all():
            raise InputError("Expected ascending offsets within the bytes of the texts.", argument="offsets")
        codes = np.empty(len(offsets) - 1, np.int32)
        firsts = np.empty(len(codes), np.int64)
        n_new = kernel.codes_of_texts(self._texts, np.ascontiguousarray(offsets), letters, codes, firsts)
        return codes, firsts[:n_new].copy()
