"""The synthetic long-tailed set: groups of 1, 2, 4, ... classes, with half as many rows a class from group to group.

With 8 groups and 8 rows in the rarest classes there are 1024, 512, ..., 8 rows a class, n = 8192 rows, c = 255 classes
and d = 1024 + 8192 = 9216 columns, uniform on [0, 1] and independent of the labels (the paper's printed formulas for n
and c fit no single m; its figures fit this reading).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LongTail:
    """A long-tailed set.

    Attributes:
        inputs: rows, uniform on [0, 1]^d.
        labels: the class of each row.
        groups: the frequency group of each row; 0 is the head.
        n_classes: how many classes there are.
        sizes: rows of a class, by group.
    """

    inputs: NDArray[np.float32]
    labels: NDArray[np.int64]
    groups: NDArray[np.int64]
    n_classes: int
    sizes: tuple[int, ...]


def long_tail(n_groups: int = 8, smallest: int = 8, seed: int = 0) -> LongTail:
    """Draw the set: group g has 2^g classes of `smallest` · 2^(n_groups - 1 - g) rows.

    >>> data = long_tail(3, 2)
    >>> data.sizes, data.n_classes, data.inputs.shape
    ((8, 4, 2), 7, (24, 32))
    """
    sizes = tuple(smallest * 2 ** (n_groups - 1 - group) for group in range(n_groups))
    class_groups = np.repeat(np.arange(n_groups), 2 ** np.arange(n_groups))
    labels = np.repeat(np.arange(len(class_groups)), np.asarray(sizes)[class_groups])
    rng = np.random.default_rng([seed, 0x7461696C])
    inputs = rng.random((len(labels), sizes[0] + len(labels)), dtype=np.float32)
    return LongTail(inputs, labels, class_groups[labels], len(class_groups), sizes)
