"""Claim: test RMSE on MovieLens 1M under user-level DP, with the settings a user gets who gives ε and data.

Random 80/10/10 split of the ratings, δ = 1e-5, add/remove of a user, everything in the budget; mean over five noise
seeds. The defaults are one set of constants for every ε and every data set, but they were found with the validation
part of this one in view (about 150 readings), so this is not an independent test of them. The quick form fits
generated ratings at ε = 5 and asks that the model beat what user means alone predict.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from apportion.data import Interactions
from apportion.evaluation import BiasModel, GlobalMean, RatingModel, rmse
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateRatingRecommender, RatingRecommender, RatingSettings
from benchmarks import movielens
from benchmarks.claim import Outcome, Rehearsal, print_table

TARGETS = {"1": 0.965, "5": 0.915, "20": 0.893}
SPLIT_SEED = 0
SettingsOf = Callable[[float], RatingSettings | None]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure the default settings."""
    return measure_with(quick, TARGETS, settings_of=lambda _: None, tuning=None)


def measure_with(
    quick: bool, targets: dict[str, float], settings_of: SettingsOf, tuning: str | None
) -> Outcome | Rehearsal:
    """Measure given settings per ε against given targets."""
    if quick:
        return _quick(settings_of)
    train, _, test = movielens.ratings().split_by_value(np.random.default_rng(SPLIT_SEED))
    value, rows = {}, []
    for epsilon in movielens.EPSILONS:
        errors = [_error(train, test, epsilon, seed, settings_of(epsilon), tuning) for seed in movielens.NOISE_SEEDS]
        value[f"{epsilon:g}"] = round(float(np.mean(errors)), 5)
        rows.append([f"{epsilon:g}", float(np.mean(errors)), float(np.std(errors)), targets[f"{epsilon:g}"]])
    twin = _test_error(RatingRecommender().fit(train).model_, train, test)
    mean = _test_error(GlobalMean().fit(train), train, test)
    biased = _test_error(BiasModel().fit(train), train, test)
    note = "tuned on its validation part, not covered by ε" if tuning else "defaults developed on this data set"
    print_table(["epsilon", "test RMSE", "st. dev. over seeds", "target"], rows)
    print_table(["not private", "test RMSE"], [["ALS", twin], ["damped means", biased], ["global mean", mean]])
    return Outcome(
        value=value,
        target=targets,
        holds=all(value[e] <= targets[e] for e in targets),
        headline="MovieLens 1M test RMSE "
        + " / ".join(f"{v:.4f}" for v in value.values())
        + f" at ε = 1 / 5 / 20, δ = 1e-5 (without privacy: ALS {twin:.4f}, damped item and "
        f"user means {biased:.4f}, global mean {mean:.4f}); {note}",
        settings={
            "split": f"80/10/10 by rating, seed {SPLIT_SEED}",
            "noise_seeds": list(movielens.NOISE_SEEDS),
            "delta": movielens.DELTA,
            "tuning": tuning or "defaults; their constants were chosen with this data set's validation part in view",
            "non_private": {"als": twin, "damped_means": biased, "global_mean": mean},
        },
    )


def _error(
    train: Interactions,
    test: Interactions,
    epsilon: float,
    seed: int,
    settings: RatingSettings | None,
    tuning: str | None,
) -> float:
    estimator = PrivateRatingRecommender(
        epsilon, movielens.DELTA, settings=settings, tuning=tuning, noise=SeededNoise(seed), random_state=seed
    )
    return _test_error(estimator.fit(train).model_, train, test)


def _test_error(model: RatingModel, train: Interactions, test: Interactions) -> float:
    return rmse(model.predict(train, test), test).overall


def _quick(settings_of: SettingsOf) -> Rehearsal:
    train, _, test = movielens.generated_ratings().split_by_value(np.random.default_rng(SPLIT_SEED))
    ours = _error(train, test, 5.0, 0, settings_of(5.0), "study")
    means = BiasModel(task_damping=1e12).fit(train)  # infinitely damped items leave the users' own means
    plain = _test_error(means, train, test)
    print_table(["model", "test RMSE"], [["private, epsilon = 5", ours], ["each user's own mean", plain]])
    return Rehearsal({"rmse": ours, "user means": plain}, {"better than every user's own mean": ours < plain})
