"""Where the kernel is told that numbers lie."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.linalg import kernel


def read_only():
    held = np.arange(4.0)
    held.flags.writeable = False
    return held


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0), np.zeros((3, 2), np.float32), np.zeros(3, np.int64), np.zeros(5, bool), np.zeros(0),
        read_only(), np.arange(12.0).reshape(3, 4)[1:], np.asfortranarray(np.ones((3, 4))), np.arange(8.0)[::2],
    ],
    ids=["float64", "float32", "int64", "bool", "empty", "read-only", "a part", "by columns", "every second"],
)  # fmt: skip
def test_an_address_is_that_of_the_first_number(array):
    assert kernel.address(array) == array.ctypes.data
