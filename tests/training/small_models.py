"""Small modules and data that the tests of optimizers share."""

from __future__ import annotations

import torch
from torch import nn

torch.set_num_threads(1)  # models this small gain nothing from more


class Chain(nn.Module):
    """A convolution, a norm and two linear layers, on images of 8 x 8."""

    def __init__(self, seed=0, classes=5):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(1, 3, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(48)
        self.hidden = nn.Linear(48, 7)
        self.out = nn.Linear(7, classes, bias=False)

    def forward(self, x):
        h = self.norm(torch.tanh(self.conv(x)).flatten(1))
        return self.out(torch.tanh(self.hidden(h)))


class Tokens(nn.Module):
    """An embedding and linear layers at every position, summed over positions at the end."""

    def __init__(self, seed=0, vocabulary=11, classes=5):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(vocabulary, 6)
        self.inner = nn.Linear(6, 4)
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(self.embed(x)))).mT


def images(n, seed=0, classes=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((n, 1, 8, 8), generator=generator, dtype=dtype)
    return x, torch.randint(classes, (n,), generator=generator)


def sentences(n, seed=0, length=5, vocabulary=11, classes=5):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(vocabulary, (n, length), generator=generator)
    return x, torch.randint(classes, (n, length), generator=generator)


cross_entropy = nn.CrossEntropyLoss(reduction="none")
