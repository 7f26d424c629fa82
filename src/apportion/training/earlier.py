"""Modules that this process has trained before: a statement of a second training says that it does not count the first.

The parameters that a training ends with are remembered by a hash, whatever object holds them later: the same module, a
copy, a part of it, or another module that loaded them. Other processes are out of reach.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass

import torch
from torch import nn

from apportion.privacy import Budget

_ENDED: dict[str, Earlier] = {}  # by the hash of a parameter's numbers


class TrainedBeforeWarning(UserWarning):
    """Said once before a training of parameters that another training has released."""


@dataclass(frozen=True)
class Earlier:
    """A training, with those before it.

    Attributes:
        epsilon: of all of them together, by simple addition.
        delta: the same.
    """

    epsilon: float
    delta: float


def hashes_of(module: nn.Module) -> dict[str, str]:
    """Return a hash of each parameter's numbers, but for those that are all the same, as many are before training."""
    return {name: _hash(p) for name, p in module.named_parameters() if not _uniform(p)}


def trained_before(start: dict[str, str]) -> Earlier | None:
    """Return the costliest training that released some of these parameters."""
    found = [_ENDED[each] for each in start.values() if each in _ENDED]
    return max(found, key=lambda earlier: earlier.epsilon, default=None)


def remember(budget: Budget, module: nn.Module, start: dict[str, str], before: Earlier | None) -> None:
    """Keep in mind which parameters a training changed."""
    epsilon, delta = budget.epsilon, budget.delta
    if before is not None:
        epsilon, delta = epsilon + before.epsilon, delta + before.delta
    earlier = Earlier(epsilon, delta)
    _ENDED.update({held: earlier for name, held in hashes_of(module).items() if start.get(name) != held})


def caution(before: Earlier, budget: Budget) -> str:
    """Say what the statement does not count, and a bound on both together."""
    return (
        f"an earlier training of the same parameters, with epsilon {before.epsilon:g} and delta {before.delta:g}: "
        f"users who are in both have at most epsilon {before.epsilon + budget.epsilon:g} and delta "
        f"{before.delta + budget.delta:g} by simple addition, not the epsilon of this training alone"
    )


def say(sentence: str) -> None:
    """Warn at the call of `fit`."""
    warnings.warn(
        f"This module was trained before. The statement will not count {sentence}. Charge both trainings to one "
        "account of a ledger, which adds them up and composes them better.",
        TrainedBeforeWarning,
        stacklevel=4,
    )


def _uniform(parameter: torch.Tensor) -> bool:
    held = parameter.detach().reshape(-1)
    return bool((held == held[:1]).all())


def _hash(parameter: torch.Tensor) -> str:
    held = parameter.detach().cpu().contiguous()
    total = hashlib.blake2b(f"{held.dtype}{tuple(held.shape)}".encode(), digest_size=16)
    if held.numel():
        total.update(held.reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()
