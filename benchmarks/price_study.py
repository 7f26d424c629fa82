"""The study behind `apportion plan`: how the price of privacy falls with users, items, rows and ε.

`python -m benchmarks.price_study` fits recommenders on generated data of many sizes and on subsamples of MovieLens 1M
(validation parts), at several ε and at one where noise is nothing, and fits the law of `apportion.evaluation.planning`
to the ratios. It prints the coefficients, which that module holds. `--quick` takes a few small sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_clicks, long_tailed_ratings
from apportion.evaluation import recall_at_k
from apportion.evaluation.planning import Law, Size
from apportion.privacy import Budget, SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from benchmarks import movielens
from benchmarks.in_processes import in_processes

Floats = NDArray[np.float64]
_START = (-5.0, 6.0, 1.0, 0.6, 0.2, 0.6)  # logarithms of level and half, steepness, powers of rows, density and items
_START_OF_CLICKS = (-0.5, 4.6, 1.0)
_POWERS_OF_CLICKS = (0.0, 0.0, 0.5)
_ROWS_IN_SIGNAL = {
    False: 1.0,
    True: 0.5,
}  # ratings: losses of sizes that were left out are nearer by 14 % than with 0.5
EPSILONS = (0.5, 1.0, 2.0, 5.0, 20.0)
NO_NOISE = 1e5
SEEDS = range(2)


@dataclass(frozen=True)
class Fit:
    """One measurement: a size, the budget's μ, and the loss by privacy as a fraction."""

    name: str
    size: Size
    epsilon: float
    loss: float

    @property
    def mu(self) -> float:
        """The privacy parameter of the budget."""
        return Budget(self.epsilon, movielens.DELTA).mu


Sizes = Sequence[tuple[int, int, int]]
"""Users, items and rows of a user."""

GENERATED: Sizes = (
    (1000, 200, 10), (1000, 200, 60), (1000, 1000, 40), (4000, 200, 5), (4000, 1000, 20), (4000, 1000, 60),
    (4000, 4000, 30), (12_000, 1000, 10), (12_000, 4000, 20), (16_000, 500, 5), (30_000, 2000, 8),
)  # fmt: skip
SUBSAMPLES: Sizes = (
    (750, 4000, 200), (1500, 4000, 200), (3000, 4000, 200), (6040, 4000, 200), (6040, 4000, 60), (6040, 500, 200),
    (3000, 1000, 60),
)  # fmt: skip
QUICK: Sizes = ((600, 100, 10), (1500, 150, 10), (3000, 100, 20))


def generated(sizes: tuple[int, int, int], clicks: bool, seed: int = 0) -> Interactions:
    """Long-tailed data of about this size."""
    users, items, rows = sizes
    rng = np.random.default_rng([seed, *sizes])
    if clicks:
        return long_tailed_clicks(users, items, users * rows, rank=4, rng=rng, skew=0.7, taste_strength=2.0)[0]
    return long_tailed_ratings(users, items, users * rows, rank=4, rng=rng, stars="whole")[0]


def subsample(sizes: tuple[int, int, int], clicks: bool, seed: int = 0) -> Interactions:
    """Some users of MovieLens 1M, its most popular items, and at most so many rows of a user."""
    n_users, n_items, rows = sizes
    data = movielens.clicks() if clicks else movielens.ratings()
    rng = np.random.default_rng([seed, *sizes])
    popular = np.argsort(-np.bincount(data.tasks, minlength=data.n_tasks), kind="stable")[:n_items]
    users = rng.permutation(data.n_users)[:n_users]
    kept = data.where(np.isin(data.tasks, popular) & np.isin(data.users, users))
    order = np.lexsort((rng.random(kept.n_observations), kept.users))
    rank = np.empty(len(order), np.int64)
    owner = kept.users[order]
    rank[order] = np.arange(len(order)) - np.searchsorted(owner, owner)
    kept = kept.where(rank < rows)
    user_ids, item_ids = kept.user_ids.ids[kept.users], kept.task_ids.ids[kept.tasks]
    return Interactions.from_arrays(user_ids, item_ids, kept.values)


def measured(
    name: str,
    data: Interactions,
    clicks: bool,
    epsilons: Sequence[float],
    seeds: Sequence[int],
    *,
    test: bool,
    scale: tuple[float, float] = (1.0, 5.0),
) -> Iterator[Fit]:
    """The loss of fits of some data against one without noise; on test parts, or on validation parts.

    Clicks: against the best of all fits. Without noise vectors get very long, which is not always best.
    """
    data = data.with_public_tasks()
    error = partial(_click_error, data, test=test) if clicks else partial(_rating_error, data, scale, test=test)
    size = Size(data.n_users, data.n_tasks, data.n_observations / data.n_users)
    without, *found = (float(np.mean([error(each, seed) for seed in seeds])) for each in (NO_NOISE, *epsilons))
    for epsilon, one in zip(epsilons, found, strict=True):
        loss = 1 - one / max(without, *found) if clicks else one / without - 1
        yield Fit(name, size, epsilon, loss)


def _rating_error(data: Interactions, scale: tuple[float, float], epsilon: float, seed: int, *, test: bool) -> float:
    train, *parts = data.split_by_value(np.random.default_rng(0))
    held_out = parts[int(test)]
    made = PrivateRatingRecommender(
        epsilon, movielens.DELTA, value_range=scale, noise=SeededNoise(seed), random_state=seed
    ).fit(train)
    return float(np.sqrt(np.mean(np.square(made.model_.predict(train, held_out) - held_out.values))))


def _click_error(data: Interactions, epsilon: float, seed: int, *, test: bool) -> float:
    able = int((data.by_user.counts >= 5).sum())
    held = min(1500, able // 5)
    parts = data.split_by_users(np.random.default_rng(0), n_validation=held, n_test=held)
    part = parts.test if test else parts.validation
    made = PrivateClickRecommender(epsilon, movielens.DELTA, noise=SeededNoise(seed), random_state=seed)
    return recall_at_k(made.fit(parts.train).model_, part.history, part.target, k=20).overall


def study(clicks: bool, *, quick: bool = False) -> list[Fit]:
    """All measurements, sizes in several processes."""
    cells = [
        (make.__name__, each, clicks, quick)
        for make, sizes in ((generated, QUICK if quick else GENERATED), (subsample, () if quick else SUBSAMPLES))
        for each in (sizes[::2] if clicks else sizes)  # fits of clicks take longer
    ]
    return [fit for fits in in_processes(fits_of, cells) for fit in fits]


def fits_of(kind: str, sizes: tuple[int, int, int], clicks: bool, quick: bool) -> list[Fit]:
    """The losses of fits of one size."""
    data = {"generated": generated, "subsample": subsample}[kind](sizes, clicks)
    epsilons, seeds = (1.0, 5.0) if quick else EPSILONS, SEEDS[:1] if clicks else SEEDS
    fits = list(measured(kind, data, clicks, epsilons, seeds, test=False))
    print(f"{kind} {sizes}: " + " ".join(f"{fit.loss:+.4f}" for fit in fits), flush=True)
    return fits


def law_of(fits: Sequence[Fit], *, clicks: bool = False) -> Law:
    """The law fitted to measurements; its spread is that of sizes that were left out of the fit, one at a time."""
    sizes = sorted({fit.size for fit in fits}, key=lambda size: (size.users, size.items, size.rows))
    apart = []
    for left_out in sizes:
        law = _least_squares([fit for fit in fits if fit.size != left_out], clicks)
        apart += [abs(law.loss(fit.size, fit.mu) - fit.loss) for fit in fits if fit.size == left_out]
    users, items, rows = (_ends([getattr(size, name) for size in sizes]) for name in ("users", "items", "rows"))
    spread = round(float(np.quantile(apart, 0.9)), 4)
    return replace(_least_squares(fits, clicks), spread=spread, users=users, items=items, rows=rows)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return round(min(values)), round(max(values))


def _least_squares(fits: Sequence[Fit], clicks: bool) -> Law:
    """Coefficients by least squares on losses; large ones count linearly. Clicks have too few fits for all powers."""
    users, items, rows, mu = np.log([[fit.size.users, fit.size.items, fit.size.rows, fit.mu] for fit in fits]).T
    losses = np.array([fit.loss for fit in fits])

    def all_of(free: Floats) -> Floats:
        return np.array([*free, *_POWERS_OF_CLICKS]) if clicks else free

    def residuals(free: Floats) -> Floats:
        level, half, steepness, *powers = all_of(free)
        most = level + powers[0] * rows + powers[1] * (users + rows - items)
        signal = mu + users + _ROWS_IN_SIGNAL[clicks] * rows - powers[2] * items
        return np.asarray(np.exp(most) / (1 + np.exp(steepness * (signal - half))) - losses)

    start, scale = (_START_OF_CLICKS, 0.1) if clicks else (_START, 0.01)
    limits = ([-3.0, 0.0, 0.2], [-0.1, 12.0, 3.0]) if clicks else (-np.inf, np.inf)
    found = least_squares(residuals, start, bounds=limits, loss="soft_l1", f_scale=scale).x
    level, half, steepness, *powers = all_of(found)
    return Law(
        level=round(float(np.exp(level)), 4),
        rows_power=round(float(powers[0]), 4),
        density_power=round(float(powers[1]), 4),
        half=round(float(np.exp(half)), 4),
        steepness=round(float(steepness), 4),
        items_power=round(float(powers[2]), 4),
        signal_power=_ROWS_IN_SIGNAL[clicks],
        spread=0.0,
        users=(1, 1),
        items=(1, 1),
        rows=(1, 1),
    )


def main() -> None:
    """Measure, fit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", action="store_true")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    print(law_of(study(arguments.clicks, quick=arguments.quick), clicks=arguments.clicks))


if __name__ == "__main__":
    main()
