"""Protection of single rows against the curator, by each party itself (Algorithm 5, with its noise corrected).

The message of a party is a function of its rows. Before sending it, the party clips its model to K, adds b with density
proportional to exp(-ε ||b|| / (2K)), and clips again. Two models within norm K are at most 2K apart, so the density of
w + b changes by a factor of at most e^ε when rows are exchanged: ε-DP for any change of the party's rows, including
single rows. The second clip is post-processing and restores the bound that the release of the sum needs. Over several
rounds the party's ε add up.

The message is rounded to a public grid, like released sums, because the last bits of a floating-point sum reveal what
was added. Under this density ||b|| has a Gamma distribution of shape d and scale 2K/ε, and its direction is uniform.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy import NoiseSource, SeededNoise
from apportion.privacy.mechanisms.grid import on_grid

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class InstanceGuarantee:
    """The guarantee of every party for its rows, against the curator and everybody else.

    Attributes:
        epsilon: the ε of all rounds together; pure, so δ is 0.
        rounds: the number of rounds over which it is divided evenly.
        unit: whose data is protected, and which part of it.
        relation: how two neighbouring data sets differ.
    """

    epsilon: float
    rounds: int
    unit: str = "row: one row of one party, against the curator"
    relation: str = "replace any rows of one party"

    @classmethod
    def over(cls, epsilon: float, rounds: int) -> InstanceGuarantee:
        """Return the guarantee for a number of rounds."""
        if not 0 < epsilon < np.inf:
            raise InputError(f"Expected a finite instance_epsilon > 0, got {epsilon}.", argument="instance_epsilon")
        return cls(float(epsilon), rounds)

    @property
    def per_round(self) -> float:
        """The ε of one round."""
        return self.epsilon / self.rounds


def party_noise(
    guarantee: InstanceGuarantee, ids: Iterable[int | str], noise: NoiseSource
) -> Callable[[Floats, float], Floats]:
    """Return a function that adds each party's own noise to models of a bounded norm.

    Every party draws for itself. With a seeded source, a party's stream follows from the seed and its id, so it does
    not depend on the other parties.
    """
    if isinstance(noise, SeededNoise):
        sources: list[NoiseSource] = [SeededNoise(_seed(noise.seed, one)) for one in ids]
    else:
        sources = [noise for _ in ids]

    def disturb(models: Floats, norm: float) -> Floats:
        scale = 2 * norm / guarantee.per_round
        drawn = np.stack([_draw(source, models.shape[1], scale) for source in sources])
        return on_grid(np.asarray(models + drawn, np.float64), scale)

    return disturb


def _draw(source: NoiseSource, dimension: int, scale: float) -> Floats:
    """Draw one b: a uniform direction times a sum of d exponential lengths."""
    direction = np.asarray(source.normal((dimension,), np.float64), np.float64)
    length = float(-np.log(source.uniform(dimension)).sum()) * scale
    return direction * (length / max(float(np.linalg.norm(direction)), 1e-300))


def _seed(seed: int, party: int | str) -> int:
    digest = hashlib.blake2b(f"{seed}/{party}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
