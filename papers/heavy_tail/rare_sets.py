"""Real long-tailed sets for the linear model of `rare`, small enough for a processor.

Barcode MNIST in small: 10 plain digits of 60 images, 20 classes of 20 and 20 of 8, as rows of 784 pixels. Conditions
of drug reviews (`drugLibTrain_raw.tsv`): what a review treats, from its words. Conditions with at least 8 reviews are
classes, and which these are counts as public, as it does for all sets of the study. Words are hashed to 512 columns, so
no list of words is made from the data; a row has a 1 for each column that it hits, scaled to the length √(512 / 3) that
uniform rows have on average.
"""

from __future__ import annotations

import csv
import hashlib
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from papers.heavy_tail.barcode import barcode_digits
from papers.heavy_tail.long_tail import LongTail

BARCODE_SIZES = ((10, 60), (20, 20), (20, 8))
COLUMNS = 512
LEAST_REVIEWS = (100, 30, 15, 8)  # of a class in each group
_TEXTS = ("benefitsReview", "sideEffectsReview", "commentsReview")


def small_barcode(folder: Path, sizes: tuple[tuple[int, int], ...] = BARCODE_SIZES, seed: int = 0) -> LongTail:
    """Barcode MNIST in small, as rows of pixels."""
    images = barcode_digits(folder, sizes, seed)
    rows = images.pixels.reshape(len(images.labels), -1)
    return LongTail(rows, images.labels, images.groups, images.n_classes, tuple(size for _, size in sizes))


def drug_conditions(file: Path) -> LongTail:
    """Reviews of drugs by what they were taken for."""
    with file.open(encoding="utf-8", newline="") as lines:
        read = [(_condition(row["condition"]), _words(row)) for row in csv.DictReader(lines, delimiter="\t")]
    ranked = Counter(condition for condition, _ in read).most_common()
    classes = {condition: k for k, (condition, count) in enumerate(ranked) if count >= LEAST_REVIEWS[-1]}
    kept = [(classes[condition], words) for condition, words in read if condition in classes]
    labels = np.array([label for label, _ in kept])
    groups = np.searchsorted(-np.array(LEAST_REVIEWS), -np.bincount(labels), side="left")[labels]
    return LongTail(_hashed([words for _, words in kept]), labels, groups, len(classes), LEAST_REVIEWS)


def _condition(text: str | None) -> str:
    return " ".join((text or "").lower().split())


def _words(row: dict[str, str]) -> set[str]:
    return set(re.findall("[a-z]+", " ".join(row[name] or "" for name in _TEXTS).lower()))


def _hashed(texts: list[set[str]]) -> NDArray[np.float32]:
    """Rows of ones in the columns of their words, all of one length."""
    known = {word: _column(word) for word in set().union(*texts)}
    rows = np.zeros((len(texts), COLUMNS), np.float32)
    for row, words in zip(rows, texts, strict=True):
        row[[known[word] for word in words]] = 1.0
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1.0) * math.sqrt(COLUMNS / 3), np.float32)


def _column(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") % COLUMNS
