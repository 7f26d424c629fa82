"""Images with channels last in memory: the same gradients, and only for modules that accept them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from apportion.privacy import Budget, SeededNoise, Session
from apportion.training import PrivateGradients, UserRows
from apportion.training.channels import ChannelsLast, pixels_together


class Pooled(nn.Module):
    """A convolution, pooling and a linear layer; `flat` lays the pixels of a row side by side."""

    def __init__(self, flat, **options):
        super().__init__()
        self.flat = flat
        self.first, self.out = nn.Conv2d(2, 3, 3, **options), nn.Linear(12, 4)

    def forward(self, images):
        return self.out(self.flat(functional.max_pool2d(self.first(images), 3)))


def by_flatten(seen):
    return seen.flatten(1)


def by_view(seen):
    return seen.view(len(seen), -1)


LIKE = torch.zeros((0, 2, 9, 9))


def test_a_module_that_accepts_channels_last_gets_them():
    seen = []
    module = Pooled(by_flatten)
    module.first.register_forward_hook(lambda part, given, output: seen.append(given[0].stride()))
    fast = pixels_together(module, LIKE)
    assert isinstance(fast, ChannelsLast)
    assert module.training
    images = torch.randn((6, 2, 9, 9), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(fast(images), module(images), atol=1e-5)
    assert seen[-2] == (162, 1, 18, 2)  # pixel by pixel
    assert seen[-1] == (162, 81, 9, 1)


@pytest.mark.parametrize(
    ("module", "like"),
    [
        (Pooled(by_view), LIKE),  # raises
        (Pooled(lambda seen: torch.as_strided(seen, (len(seen), 12), (12, 1))), LIKE),  # reads other numbers
        (Pooled(by_flatten), torch.zeros((0, 2, 4, 4))),  # does not accept any rows
        (nn.Linear(9, 2), LIKE),
        (nn.Conv2d(2, 3, 1), torch.zeros((0, 2), dtype=torch.int64)),
    ],
)
def test_other_modules_get_rows_as_they_are(module, like):
    assert pixels_together(module, like) is module


def gradient(module):
    generator = torch.Generator().manual_seed(1)
    images, classes = torch.randn((24, 2, 9, 9), generator=generator), torch.arange(24) % 4
    units = UserRows(images, classes, np.arange(24) // 3)
    session = Session(Budget(8.0, 1e-5), noise=SeededNoise(0))

    def loss(outputs, targets):
        return functional.cross_entropy(outputs, targets, reduction="none")

    PrivateGradients(module, loss, units, session, steps=1, n_units=8).fill()
    return torch.cat([p.grad.flatten() for p in module.parameters()])


def test_the_released_gradient_is_the_same_in_either_form():
    torch.manual_seed(0)
    one, other = Pooled(by_flatten), Pooled(by_view)
    other.load_state_dict(one.state_dict())
    assert torch.allclose(gradient(one), gradient(other), atol=1e-5)
