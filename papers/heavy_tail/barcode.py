"""Barcode MNIST: ten plain digits, and 320 rarer classes of a digit with a number of ten bits in its corner.

After Kunstner et al., "Heavy-tailed class imbalance and why Adam outperforms gradient descent on language models"
(2024), App. A2, with the paper's n = 23,770 and c = 330. The paper prints neither its groups nor their sizes, but for
one: 200 classes of 10. Ours: 10 plain digits of 1,177 images, 20 classes of 250, 100 of 50 and 200 of 10. From MNIST
where it is at hand (`train.parquet`, or `train.npz` with arrays `image` and `label`), from drawn digits otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZES = ((10, 1177), (20, 250), (100, 50), (200, 10))  # classes in a group, images of a class
_SEGMENTS = (
    "1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011",
)  # fmt: skip
_PLACES = (
    (slice(4, 6), slice(8, 20)), (slice(4, 14), slice(8, 10)), (slice(4, 14), slice(18, 20)),
    (slice(13, 15), slice(8, 20)), (slice(14, 24), slice(8, 10)), (slice(14, 24), slice(18, 20)),
    (slice(22, 24), slice(8, 20)),
)  # fmt: skip


@dataclass(frozen=True)
class Images:
    """Images with their classes and groups.

    Attributes:
        pixels: of shape [n, 1, 28, 28], from 0 to 1.
        labels: the class of each.
        groups: the frequency group of each; 0 is the head.
        n_classes: how many classes there are.
        source: where the digits come from.
    """

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]
    groups: NDArray[np.int64]
    n_classes: int
    source: str


def barcode_digits(folder: Path, sizes: tuple[tuple[int, int], ...] = SIZES, seed: int = 0) -> Images:
    """Draw the set from MNIST in a folder, or from drawn digits if it is not there."""
    rng = np.random.default_rng([seed, 0x626172])
    digits, kinds, source = _mnist(folder) if any(folder.glob("train.*")) else _drawn(rng, 4 * sizes[0][1])
    by_kind = [rng.permutation(np.flatnonzero(kinds == digit)) for digit in range(10)]
    codes = rng.permutation(1024)
    pixels, labels, groups = [], [], []
    first = 0
    for group, (n_classes, size) in enumerate(sizes):
        for k in range(first, first + n_classes):
            chosen = by_kind[k % 10]
            taken = digits[chosen[:size] if group == 0 else rng.choice(chosen, size, replace=False)].copy()
            if group:
                taken[:, 0, :2, :10] = _bits(int(codes[k]))
            pixels.append(taken)
            labels.append(np.full(size, k))
            groups.append(np.full(size, group))
        first += n_classes
    return Images(np.concatenate(pixels), np.concatenate(labels), np.concatenate(groups), first, source)


def _bits(code: int) -> NDArray[np.float32]:
    """Ten columns of two pixels, lit where the number has a bit."""
    lit = [(code >> place) & 1 for place in range(10)]
    return np.tile(np.array(lit, np.float32), (2, 1))


def _mnist(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.int64], str]:
    if (folder / "train.npz").exists():
        with np.load(folder / "train.npz") as held:
            flat, kinds = held["image"], held["label"]
    else:
        from pyarrow import parquet

        table = parquet.read_table(folder / "train.parquet")
        flat = np.frombuffer(b"".join(table["image"].to_pylist()), np.uint8)
        kinds = table["label"].to_numpy()
    pixels = np.asarray(flat.reshape(-1, 1, 28, 28), np.float32) / np.float32(255)
    return pixels, kinds.astype(np.int64), "MNIST"


def _drawn(rng: np.random.Generator, per_digit: int) -> tuple[NDArray[np.float32], NDArray[np.int64], str]:
    """Seven-segment digits, shifted and with noise."""
    kinds = np.repeat(np.arange(10), per_digit)
    plain = np.zeros((10, 28, 28), np.float32)
    for digit, segments in enumerate(_SEGMENTS):
        for place, lit in zip(_PLACES, segments, strict=True):
            if lit == "1":
                plain[digit][place] = 1.0
    shifts = rng.integers(-3, 4, (len(kinds), 2))
    rows = (np.arange(28)[None, :] - shifts[:, :1]) % 28
    columns = (np.arange(28)[None, :] - shifts[:, 1:]) % 28
    moved = plain[kinds[:, None, None], rows[:, :, None], columns[:, None, :]]
    noisy = np.clip(moved + 0.2 * rng.standard_normal(moved.shape, np.float32), 0, 1)
    return np.asarray(noisy[:, None], np.float32), np.asarray(kinds, np.int64), "drawn digits"
