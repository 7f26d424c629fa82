"""How long a training is, and what it costs: steps or epochs, a rate or a batch size, ε or a noise multiplier."""

from __future__ import annotations

import math
from dataclasses import dataclass

from apportion.errors import InputError
from apportion.privacy import accounting
from apportion.training.arguments import require_one_way_of_length

_WIDEST = 50.0  # the largest ε that a noise multiplier may stand for


@dataclass(frozen=True)
class Length:
    """How many steps are taken, and the probability that a unit takes part in one.

    Attributes:
        steps: the number of steps.
        sampling: the probability.
    """

    steps: int
    sampling: float


def length_of(
    steps: int | None, sampling: float | None, epochs: float | None, batch_size: float | None, n_units: int | None
) -> Length:
    """Return the length that either way of saying it stands for.

    >>> length_of(None, None, 3, 100, 1000)
    Length(steps=30, sampling=0.1)
    """
    require_one_way_of_length(steps, epochs, sampling, batch_size)
    if batch_size is not None:
        if n_units is None or not 0 < batch_size <= n_units:
            raise InputError(
                f"Expected a batch_size above 0 and at most n_units, declared, got {batch_size} and {n_units}.",
                argument="batch_size",
            )
        sampling = batch_size / n_units
    sampling = 1.0 if sampling is None else sampling
    if steps is None:
        assert epochs is not None
        steps = math.ceil(epochs / sampling - 1e-9)
    return Length(steps, sampling)


def epsilon_for(
    epsilon: float | None, noise_multiplier: float | None, delta: float, length: Length, n_units: int | None
) -> float:
    """Return the ε that was given, or that of all steps with a noise multiplier."""
    if (epsilon is None) == (noise_multiplier is None):
        given = "neither" if epsilon is None else f"{epsilon} and {noise_multiplier}"
        raise InputError(f"Expected epsilon or noise_multiplier, and not both, got {given}.", argument="epsilon")
    if epsilon is not None:
        return epsilon
    assert noise_multiplier is not None
    if not 0 < noise_multiplier < math.inf:
        raise InputError(f"Expected a noise_multiplier above 0, got {noise_multiplier}.", argument="noise_multiplier")
    if n_units is None:
        problem = "Expected n_units, declared, beside noise_multiplier: its release would cost."
        raise InputError(problem, argument="n_units")
    z, q = noise_multiplier, length.sampling
    event = accounting.Gaussian(z, length.steps) if q == 1 else accounting.SampledGaussian(z, q, length.steps)
    result = accounting.epsilon_of([event], delta)
    if not result <= _WIDEST:
        raise InputError(
            f"Expected a noise_multiplier for an ε of at most {_WIDEST:g}, got {z}, whose ε is {result:g}.",
            argument="noise_multiplier",
        )
    return result
