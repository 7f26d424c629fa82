"""Modules that mix rows, use weights twice or write into themselves, which private training must notice."""

from __future__ import annotations

import torch
from torch import nn


class Places(nn.Module):
    """Token and position tables; the positions have no row of their own for each row of data."""

    def __init__(self, length):
        super().__init__()
        self.tokens, self.places, self.out = nn.Embedding(30, 4), nn.Embedding(length, 4), nn.Linear(4, 1)
        self.length = length

    def forward(self, x):
        return self.out(torch.tanh(self.tokens(x) + self.places(torch.arange(self.length)))).mean(1)


class Tied(nn.Module):
    """An embedding whose weight is used once more, outside its layer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)

    def forward(self, x):
        return self.embed(x).mean(1) @ self.embed.weight.T


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.out(self.inner(torch.tanh(self.inner(x))))


class Encoded(nn.Module):
    """Frozen attention that takes the first axis for time, and so mixes rows."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0).requires_grad_(False)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Recurrent(nn.Module):
    """Takes the first axis for time, and so lets every row see those before it, but not those behind."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.GRU(8, 8).requires_grad_(False), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.inner(x)[0].mean(1))


class Applied(nn.Module):
    """A function of rows before a linear layer that starts at zero."""

    def __init__(self, function, width=4):
        super().__init__()
        self.function, self.out = function, nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)

    def forward(self, x):
        return self.out(self.function(x))


class Remembering(nn.Module):
    """Keeps means of what it saw: in a buffer, in a new tensor, in an attribute."""

    def __init__(self, *, use=False):
        super().__init__()
        self.out = nn.Linear(4, 1)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("other", torch.zeros(4))
        self.top, self.use = 0.0, use

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
            self.other = 0.5 * self.other + x.mean(0)
            self.top = max(self.top, float(x.max()))
        return self.out(x - self.mean if self.use else x)


class Rescaling(nn.Module):
    """Writes into a frozen parameter."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        with torch.no_grad():
            self.frozen.copy_(torch.maximum(self.frozen, x.detach().amax(0)))
        return self.out(x)
