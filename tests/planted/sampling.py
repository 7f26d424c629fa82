"""Bugs of amplification by sampling: who is sampled, how, and what the sum is divided by. For the tester."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from apportion.privacy import accounting
from planted.cases import Case, judged

DELTA = 1e-3


@cache
def poisson_cost(noise_multiplier, probability, steps):
    """The ε that is claimed: that of Gaussian noise on Poisson samples of users."""
    return accounting.epsilon_of([accounting.SampledGaussian(noise_multiplier, probability, steps)], DELTA, 1e-3)


# -- E9: examples are sampled, not users --

EXAMPLE_STEPS, EXAMPLE_RATE, EXAMPLE_NOISE = 10, 0.1, 1.5


def steps_on_examples(sizes, rng, draws, *, sample_users):
    """Ten noisy sums of users' clipped parts; a user's examples all point the same way, so one is enough."""
    shape = (draws, EXAMPLE_STEPS, len(sizes))
    rate = EXAMPLE_RATE if sample_users else 1 - (1 - EXAMPLE_RATE) ** np.asarray(sizes)
    present = rng.random(shape) < rate
    return present.sum(axis=2) + EXAMPLE_NOISE * rng.standard_normal(shape[:2])


# -- shuffled batches accounted as Poisson samples --

BATCHES, BATCH, SHUFFLE_NOISE = 10, 3, 1.0


def one_epoch(values, rng, draws, *, shuffled):
    """One noisy sum for each batch of an epoch, values within [-1, 1]."""
    values = np.asarray(values)
    if shuffled:
        order = rng.random((draws, len(values))).argsort(axis=1)
        where = order // BATCH
        batches = np.stack([np.where(where == k, values, 0).sum(axis=1) for k in range(BATCHES)], axis=1)
    else:
        batches = ((rng.random((draws, BATCHES, len(values))) < 1 / BATCHES) * values).sum(axis=2)
    return batches + SHUFFLE_NOISE * rng.standard_normal(batches.shape)


# -- division by the realised size of a batch --

SIZE_STEPS, SIZE_RATE, SIZE_NOISE, EXPECTED = 10, 0.5, 3.0, 100.0


def mean_gradients(values, rng, draws, *, realised):
    """Noisy means over Poisson samples of users; the expected size is public, the realised one is not."""
    kinds, users = np.unique(values, return_counts=True)
    present = rng.binomial(users, SIZE_RATE, (draws, SIZE_STEPS, len(kinds)))
    sizes = np.maximum(present.sum(axis=2), 1) if realised else EXPECTED
    noise = SIZE_NOISE / EXPECTED * rng.standard_normal((draws, SIZE_STEPS))
    return present @ kinds / sizes + noise


def cases():
    """Every bug of this file."""

    def pair(name, source, mechanism, setting, data, neighbour, epsilon):
        wrong, honest = (
            partial(judged, partial(mechanism, **{setting[0]: value}), data, neighbour, epsilon, DELTA, draws=60_000)
            for value in (setting[1], not setting[1])
        )
        return Case(name, source, "tester", wrong, honest)

    yield pair(
        "amplification claimed for sampled examples", "E9", steps_on_examples, ("sample_users", False),
        [1, 1, 60], [1, 1], poisson_cost(EXAMPLE_NOISE, EXAMPLE_RATE, EXAMPLE_STEPS),
    )  # fmt: skip
    others = [-1.0] * (BATCHES * BATCH - 1)
    yield pair(
        "Poisson accounting for shuffled batches", "E6", one_epoch, ("shuffled", True), [1.0, *others], others,
        poisson_cost(SHUFFLE_NOISE, 1 / BATCHES, BATCHES),
    )  # fmt: skip
    yield pair(
        "realised instead of expected batch size", "habit", mean_gradients, ("realised", True),
        [1.0, *[-1.0] * 199], [-1.0] * 199, poisson_cost(SIZE_NOISE, SIZE_RATE, SIZE_STEPS),
    )  # fmt: skip
