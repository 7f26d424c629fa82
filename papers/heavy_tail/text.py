"""Sequences of tokens for next-token prediction: Penn Treebank where it is at hand, generated text otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

EDGES = (5000, 1000, 200, 50, 10)  # of token counts; a group for each, and one below


@dataclass(frozen=True)
class Sequences:
    """Sequences of tokens with what follows each of them.

    Attributes:
        inputs: of shape [n, length].
        targets: the next token at every position.
        groups: the frequency group of every target, the most frequent first.
        n_groups: how many groups there are.
        vocabulary: how many tokens there are.
        source: where they come from.
    """

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    groups: NDArray[np.int64]
    n_groups: int
    vocabulary: int
    source: str


def penn_treebank(
    folder: Path, n: int, *, length: int = 16, vocabulary: int = 2000, seed: int = 0
) -> tuple[Sequences, Sequences]:
    """Private training sequences, and public ones from the other two files; words that are rarer than the list are one.

    The list of words is that of the public files.
    """
    if not (folder / "ptb.train.txt").exists():
        return generated(n, length, min(vocabulary, 300), seed), generated(
            n // 4 + 1, length, min(vocabulary, 300), seed + 1
        )
    public = [word for part in ("valid", "test") for word in _words(folder / f"ptb.{part}.txt")]
    ranked = [word for word, _ in Counter(public).most_common(vocabulary - 1)]
    codes = {word: code for code, word in enumerate(ranked)}
    private = _words(folder / "ptb.train.txt")
    return _cut(private, codes, n, length, vocabulary, seed), _cut(public, codes, 10**9, length, vocabulary, seed)


def generated(n: int, length: int, vocabulary: int, seed: int) -> Sequences:
    """Tokens by a chain whose steps lead to tokens of Zipf's frequencies, one half of the time to a fixed successor."""
    rng = np.random.default_rng([seed, 0x74657874])
    chances = 1 / np.arange(1, vocabulary + 1)
    successor = np.random.default_rng(0x7A).permutation(vocabulary)
    tokens = rng.choice(vocabulary, (n, length + 1), p=chances / chances.sum())
    kept = rng.random((n, length)) < 0.5
    for place in range(length):  # positions, not observations
        tokens[:, place + 1] = np.where(kept[:, place], successor[tokens[:, place]], tokens[:, place + 1])
    return grouped(tokens, vocabulary, "generated text")


def grouped(tokens: NDArray[np.int64], vocabulary: int, source: str, edges: tuple[int, ...] = EDGES) -> Sequences:
    """Inputs and targets of rows of tokens, and the group of each target by its count."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    counts = np.bincount(targets.ravel(), minlength=vocabulary)
    groups = np.searchsorted(-np.asarray(edges), -counts[targets], side="left")
    used, places = np.unique(groups, return_inverse=True)
    return Sequences(inputs, targets, places.reshape(groups.shape).astype(np.int64), len(used), vocabulary, source)


def _words(path: Path) -> list[str]:
    return [word for line in path.read_text(encoding="utf-8").splitlines() for word in [*line.split(), "<eos>"]]


def _cut(words: list[str], codes: dict[str, int], n: int, length: int, vocabulary: int, seed: int) -> Sequences:
    rest = vocabulary - 1
    tokens = np.array([codes.get(word, rest) for word in words], np.int64)
    rows = len(tokens) // (length + 1)
    cut = tokens[: rows * (length + 1)].reshape(rows, length + 1)
    order = np.random.default_rng([seed, 0x707462]).permutation(rows)[:n]
    return grouped(cut[order], vocabulary, "Penn Treebank")
