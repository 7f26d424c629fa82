"""Noise that clients draw in shares, so that nobody ever holds a sum without noise.

A release with noise of standard deviation σ is formed from clients' parts. Each of them adds a normal number with
variance σ²/k, rounded to the lattice of the sum, where k is the least number of clients whose shares count: clients
that are honest, stay to the end, and are not the one that is protected. The sum of k or more such shares is, up to a
factor within 1e-250 of 1, a function of the Gaussian mechanism on the sum (docs/proofs/federated_noise.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from apportion import linalg
from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions.base import Contribution
from apportion.privacy.contributions.partial_sums import PartialSums
from apportion.privacy.mechanisms.grid import UPWARDS
from apportion.privacy.noise import NoiseSource

LEAST_STEPS: Final = 8.0  # of a share's standard deviation, for the proof


@dataclass(frozen=True)
class NoiseShare:
    """Which sum a client adds noise to, and how much.

    Attributes:
        contribution: position of the contribution that the sum belongs to.
        output: position of the sum among those of the contribution.
        multiplier: standard deviation of the whole noise, divided by the sensitivity that each client derives itself.
        counted: number of clients whose shares make up the whole.
    """

    contribution: int
    output: int
    multiplier: float
    counted: int

    def __post_init__(self) -> None:
        if not (0 < self.multiplier < math.inf and self.counted >= 1):
            raise InputError(
                f"Expected noise above 0 from at least 1 client, got {self.multiplier} from {self.counted}.",
                argument="multiplier",
            )


def with_share(
    sums: PartialSums, contributions: Sequence[Contribution], share: NoiseShare, noise: NoiseSource
) -> PartialSums:
    """Return one of a client's sums with its share of the noise.

    Args:
        sums: the sums over the client's own users.
        contributions: the contributions that the sums were formed from.
        share: which sum gets noise, and how much.
        noise: the client's own source of randomness.
    """
    own = sums._sums[share.contribution]
    total = contributions[share.contribution].sealed(own)[share.output]
    spread = np.array([1.0]) if total.scales is None else np.asarray(total.scales, np.float64)
    stddev = share.multiplier * total.l2_sensitivity / math.sqrt(share.counted)
    steps = stddev * spread / _step(total) * UPWARDS
    if steps.min() < LEAST_STEPS:
        raise InputError(
            f"Expected shares of noise of at least {LEAST_STEPS:g} steps, got {steps.min():g}; there are too many "
            "clients for so little noise.",
            argument="counted",
        )
    drawn = linalg.add_rounded_normals(own[share.output], 0, steps, noise.key())
    return PartialSums([(drawn,)], sums._n_users)


def promised(
    like: PartialSums,
    contributions: Sequence[Contribution],
    draw: Callable[[PartialSums, int, int, float], PartialSums],
    caveats: tuple[str, ...],
) -> list[BoundedSum]:
    """Return sums that nobody holds: clients form each one in its release, with shares of the noise.

    Args:
        like: sums over no users, for their shapes.
        contributions: the contributions that clients will be asked for.
        draw: asks the clients for one sum with noise, given its shape, its positions and the multiplier of the noise.
        caveats: what a statement must say is not protected.
    """
    return [
        total._formed_elsewhere(caveats, _drawing(draw, total, array, k, m))
        for k, each in enumerate(contributions)
        for m, (array, total) in enumerate(zip(like._sums[k], each.sealed(like._sums[k]), strict=True))
    ]


def _drawing(draw: Any, total: BoundedSum, array: Any, k: int, m: int) -> Callable[[float], Any]:
    shape, step = PartialSums([(array,)], 0), _step(total)

    def drawn(stddev: float) -> Any:
        found = draw(shape, k, m, stddev / total.l2_sensitivity)
        return found._sums[0][0] * step

    return drawn


def _step(total: BoundedSum) -> float:
    if total.step is None:
        raise InputError("Expected a sum on a lattice for noise in shares; make the engine exact=True.", argument=None)
    return total.step
