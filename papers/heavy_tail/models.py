"""The modules of the studies: a CNN of two convolutions, and a small transformer for next tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class SmallCnn(nn.Module):  # type: ignore[misc]
    """Two convolutions and two linear layers, for images of 28 x 28."""

    def __init__(self, n_classes: int, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Conv2d(1, 16, 8, stride=2, padding=3)
            self.second = nn.Conv2d(16, 32, 4, stride=2)
            self.hidden = nn.Linear(32 * 4 * 4, 32)
            self.out = nn.Linear(32, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes."""
        h = functional.max_pool2d(torch.relu(self.first(images)), 2, 1)
        h = functional.max_pool2d(torch.relu(self.second(h)), 2, 1)
        return self.out(torch.relu(self.hidden(h.flatten(1))))


class Attention(nn.Module):  # type: ignore[misc]
    """Causal self-attention with linear layers of its own, so that gradients come in factors."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.keys, self.values, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Mix positions with those before them."""
        n, length, width = x.shape
        queries, keys, values = (
            layer(x).reshape(n, length, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.queries, self.keys, self.values)
        )
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(n, length, width))


class TransformerBlock(nn.Module):  # type: ignore[misc]
    """Attention and a two-layer perceptron, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        x = x + self.attention(self.before(x))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class SmallTransformer(nn.Module):  # type: ignore[misc]
    """A causal transformer; scores of the next token with the vocabulary on axis 1, as losses want them."""

    def __init__(
        self, vocabulary: int, width: int = 48, heads: int = 4, blocks: int = 2, length: int = 24, seed: int = 0
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tokens = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(TransformerBlock(width, heads) for _ in range(blocks))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)
            nn.init.normal_(self.tokens.weight, std=0.1)
        places = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
        self.register_buffer("places", torch.cat([places.sin(), places.cos()], dim=1) * 0.1)

    def features(self, tokens: Tensor) -> Tensor:
        """What the head sees, at every position."""
        places: Tensor = self.get_buffer("places")
        x = self.tokens(tokens) + places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        found: Tensor = self.norm(x)
        return found

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at every position."""
        return self.head(self.features(tokens)).mT


def loss_per_row(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each row; of each position, where rows have several."""
    return functional.cross_entropy(scores, targets, reduction="none")


def mean_over_positions(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each row, its positions averaged."""
    return functional.cross_entropy(scores, targets, reduction="none").mean(1)
