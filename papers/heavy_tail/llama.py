"""A small pretrained language model with low-rank updates: weights in the legacy layout of llama2.c, its tokenizer.

The file has seven int32 (width, hidden width, layers, heads, key heads, vocabulary, context), then float32 tensors,
then the
tokenizer: its longest token, and for each token a score, a length and bytes. Only the updates are trained: rank r
matrices beside the query and value maps (Hu et al., "LoRA", 2021).
"""

from __future__ import annotations

import csv
import io
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

_FIRST_BYTE = 3  # token of byte 0


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Attributes:
        sizes: the seven numbers.
        tensors: by name, with a leading axis for layers where there is one.
        tokens: bytes of each token.
        scores: of merges, the higher the earlier.
    """

    sizes: tuple[int, ...]
    tensors: dict[str, NDArray[np.float32]]
    tokens: list[bytes]
    scores: list[float]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read weights and tokenizer of one file."""
    raw = path.read_bytes()
    sizes = struct.unpack("<7i", raw[:28])
    width, hidden, layers, heads, key_heads, vocabulary, context = sizes
    keys, half = width // heads * key_heads, width // heads // 2
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (vocabulary, width), "before": (layers, width), "queries": (layers, width, width),
        "keys": (layers, keys, width), "values": (layers, keys, width), "out": (layers, width, width),
        "between": (layers, width), "gate": (layers, hidden, width), "down": (layers, width, hidden),
        "up": (layers, hidden, width), "last": (width,), "cosines": (context, half), "sines": (context, half),
    }  # fmt: skip
    tensors, place = {}, 28
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        tensors[name] = np.frombuffer(raw, "<f4", count, place).reshape(shape)
        place += 4 * count
    tokens, scores = [], []
    place += 4  # the longest token
    for _ in range(vocabulary):
        score, length = struct.unpack("<fi", raw[place : place + 8])
        tokens.append(raw[place + 8 : place + 8 + length])
        scores.append(score)
        place += 8 + length
    return Checkpoint(sizes, tensors, tokens, scores)


class Tokenizer:
    """Pieces of words, merged by score; words are taken one by one with the space before them."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._codes = {token: code for code, token in reversed(list(enumerate(checkpoint.tokens)))}
        self._tokens, self._scores = checkpoint.tokens, checkpoint.scores
        self._known: dict[str, list[int]] = {}

    def __call__(self, text: str) -> list[int]:
        """Token codes of a text."""
        return [code for word in text.split() for code in self._word(word)]

    def _word(self, word: str) -> list[int]:
        if word not in self._known:
            pieces: list[int] = []
            for letter in " " + word:
                raw = letter.encode()
                found = self._codes.get(raw)
                pieces += [found] if found is not None else [byte + _FIRST_BYTE for byte in raw]
            self._known[word] = self._merged(pieces)
        return self._known[word]

    def _merged(self, pieces: list[int]) -> list[int]:
        while True:
            pairs = [
                (self._scores[code], -k, code)
                for k in range(len(pieces) - 1)
                if (code := self._codes.get(self._tokens[pieces[k]] + self._tokens[pieces[k + 1]])) is not None
            ]
            if not pairs:
                return pieces
            _, place, code = max(pairs)
            pieces = [*pieces[:-place], code, *pieces[-place + 2 :]]


class _Updated(nn.Module):  # type: ignore[misc]
    """A fixed linear map with a low-rank update that starts at zero."""

    def __init__(self, weight: NDArray[np.float32], rank: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor(weight))
        self.down, self.up = nn.Linear(weight.shape[1], rank, bias=False), nn.Linear(rank, weight.shape[0], bias=False)
        nn.init.normal_(self.down.weight, std=weight.shape[1] ** -0.5)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        fixed = functional.linear(x, self.get_buffer("weight"))
        return fixed + self.up(self.down(x))


class _Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, tensors: dict[str, NDArray[np.float32]], layer: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.values = (_Updated(tensors[name][layer], rank) for name in ("queries", "values"))
        for name in ("before", "keys", "out", "between", "gate", "down", "up"):
            self.register_buffer(name, torch.tensor(tensors[name][layer]))

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        h = _normed(x, self.get_buffer("before"))
        n, length, width = x.shape
        queries, keys, values = (
            part.reshape(n, length, self.heads, width // self.heads).transpose(1, 2)
            for part in (self.queries(h), functional.linear(h, self.get_buffer("keys")), self.values(h))
        )
        mixed = functional.scaled_dot_product_attention(
            _turned(queries, turns), _turned(keys, turns), values, is_causal=True
        )
        x = x + functional.linear(mixed.transpose(1, 2).reshape(n, length, width), self.get_buffer("out"))
        h = _normed(x, self.get_buffer("between"))
        inner = functional.silu(functional.linear(h, self.get_buffer("gate")))
        inner = inner * functional.linear(h, self.get_buffer("up"))
        return x + functional.linear(inner, self.get_buffer("down"))


class LowRankLlama(nn.Module):  # type: ignore[misc]
    """The pretrained model with low-rank updates; scores some tokens, the vocabulary on axis 1.

    Args:
        checkpoint: the pretrained weights.
        scored: codes of the tokens that are scored, a public list.
        rank: of the updates.
        seed: of the updates' start.
    """

    def __init__(self, checkpoint: Checkpoint, scored: NDArray[np.int64], rank: int = 4, seed: int = 0) -> None:
        super().__init__()
        t = checkpoint.tensors
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.ModuleList(
                _Layer(t, layer, checkpoint.sizes[3], rank) for layer in range(checkpoint.sizes[2])
            )
        self.register_buffer("embedding", torch.tensor(t["embedding"]))
        self.register_buffer("scored", torch.tensor(t["embedding"][scored]))
        self.register_buffer("last", torch.tensor(t["last"]))
        turns = torch.complex(torch.tensor(t["cosines"]), torch.tensor(t["sines"]))
        self.register_buffer("turns", torch.view_as_real(turns))

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at every position."""
        x = functional.embedding(tokens, self.get_buffer("embedding"))
        turns = torch.view_as_complex(self.get_buffer("turns"))[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, turns)
        return functional.linear(_normed(x, self.get_buffer("last")), self.get_buffer("scored")).mT


def restaurant_texts(archive: Path, tokenizer: Tokenizer, n: int, length: int, seed: int = 0) -> NDArray[np.int64]:
    """Token codes [n, length + 1]: the ends of E2E's training texts, each a meaning and its sentence."""
    with zipfile.ZipFile(archive) as held:
        lines = list(csv.DictReader(io.StringIO(held.read("e2e-dataset/trainset.csv").decode())))
    order = np.random.default_rng([seed, 0x653265]).permutation(len(lines))
    rows: list[list[int]] = []
    for k in order:  # one text at a time until there are enough
        codes = [1, *tokenizer(lines[k]["mr"] + " || " + lines[k]["ref"])]
        if len(codes) > length:
            rows.append(codes[-(length + 1) :])
        if len(rows) == n:
            break
    return np.array(rows, np.int64)


def _normed(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions: neighbouring pairs of coordinates as complex numbers, turned."""
    pairs: Any = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3)
