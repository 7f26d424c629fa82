"""Claim: on worst-case releases the auditor comes close to ε, and canaries see into whole fits.

Gaussian and Laplace releases on neighbours that differ as much as they may: the likelihood-ratio audit, and the tester
that knows nothing of the mechanism, must show at least 0.8 of ε and not more than ε. Then whole recommenders, with
canary users: many fits with and without one canary, and one fit with many. What they show must be above 0.1 of the
claim and at most the claim; and above the claim for a recommender that forgets the label bound in its noise.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from apportion.allocation import Adaptive
from apportion.auditing import audit_likelihood, audit_many_runs, audit_one_run
from apportion.auditing.tester import audit_outputs
from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.privacy import (
    REPLACE_VALUES,
    Budget,
    NoiseSource,
    SeededNoise,
    Session,
)
from apportion.privacy.contributions import BoxedColumns, PublicRowWeights, RowTotal
from apportion.published.skew import AlternatingMinimisation, SufficientStatistics
from apportion.recommend import PrivateRatingRecommender
from apportion.recommend.model import ItemModel
from benchmarks.claim import Outcome, Rehearsal, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

CONFIDENCE = 0.999
LEAST, LEAST_OF_CANARIES = 0.8, 0.1
QUICK_LEAST = 0.3
CANARY_EPSILON, DELTA = 8.0, 1e-5
CANARY_VALUE = 1.0  # the other end of a scale on which most ratings are 5
LABEL_BOUND = 4.0

Fit = Callable[[Interactions, NoiseSource], ItemModel]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Audit single releases, then whole fits."""
    releases = _releases(quick)
    print_table(["release", "part of epsilon shown"], list(releases.items()))
    canaries = _canaries(quick)
    print_table(
        ["recommender", "epsilon", "shown by canaries", "what was tried"],
        [[name, found.claimed, found.lower_bound, found.tried] for name, found in canaries.items()],
    )
    least = QUICK_LEAST if quick else LEAST
    tight = all(least <= part <= 1 for part in releases.values())
    parts = {name: found.lower_bound / found.claimed for name, found in canaries.items()}
    seen = all(LEAST_OF_CANARIES < part <= 1 for name, part in parts.items() if name != WRONG)
    honest = [part for name, part in parts.items() if name != WRONG]
    value = {name: round(part, 4) for name, part in {**releases, **parts}.items()}
    if quick:
        shows = {f"{least} to 1 of epsilon shown by {_draws(quick)} draws": tight, "canaries see into fits": seen}
        return Rehearsal(value, {**shows, "a forgotten label bound is seen": parts[WRONG] > 1})
    return Outcome(
        value=value,
        target={
            "releases": f"{LEAST} to 1",
            "recommenders": f"above {LEAST_OF_CANARIES}, at most 1",
            WRONG: "above 1",
        },
        holds=tight and seen and parts[WRONG] > 1,
        headline=f"audits show {min(releases.values()):.2f} to {max(releases.values()):.2f} of ε on worst-case "
        f"Gaussian and Laplace releases; canaries in whole fits {min(honest):.2f} to {max(honest):.2f} of it, and "
        f"{parts[WRONG]:.2f} times the claim where the label bound is forgotten",
        settings={"confidence_of_each": CONFIDENCE, "draws": _draws(quick), "delta": DELTA},
    )


# -- single releases --

_INDPTR = np.array([0, 2, 3])
_ENDS = np.array([0.0, 0.0, 0.5]), np.array([1.0, 1.0, 0.5])


def _draws(quick: bool) -> int:
    return 600 if quick else 25_000


def _releases(quick: bool) -> dict[str, float]:
    draws = _draws(quick)
    rng = np.random.default_rng(0)
    laplace = rng.laplace(size=(2, 40 * draws if quick else 8 * draws))
    found = audit_outputs(laplace[0] + 1, laplace[1], 1.0, confidence=CONFIDENCE)
    return {
        "Laplace, epsilon 1": _part(_laplace, Budget(1.0, 0.0), draws),
        "Laplace, epsilon 3": _part(_laplace, Budget(3.0, 0.0), draws),
        "Gaussian, epsilon 4": _part(_gaussian(1), Budget(4.0, DELTA), draws),
        "Gaussian, epsilon 8, four rounds": _part(_gaussian(4), Budget(8.0, DELTA), draws // 2),
        "Laplace, epsilon 1, by the tester": found.lower_bound / found.claimed,
    }


def _part(fit: Callable[[Any, Session], dict[str, Any]], budget: Budget, draws: int) -> float:
    arguments = {"budget": budget, "neighbours": REPLACE_VALUES}
    found = audit_likelihood(fit, *_ENDS, arguments, noise=SeededNoise, draws=draws, confidence=CONFIDENCE)
    return found.lower_bound / found.claimed


def _total(values: Any) -> Any:
    """A user whose two rows go from one end of the box to the other."""
    held = np.array([0.25, 0.25, 0.5])
    users = Users(_INDPTR, {"values": values, "weights": held})
    weights = PublicRowWeights.from_rows(held, _INDPTR, "fixed")
    return add_up_one(LocalEngine(), users, RowTotal(BoxedColumns(0.0, 1.0), 1, weights))


def _laplace(values: Any, session: Session) -> dict[str, Any]:
    return {"total": session.release_laplace("total", _total(values), session.plan(total=1.0).one("total"))}


def _gaussian(rounds: int) -> Callable[[Any, Session], dict[str, Any]]:
    def fit(values: Any, session: Session) -> dict[str, Any]:
        shares = session.plan(rounds=[(1 - 1e-12) / rounds] * rounds)["rounds"]
        assert isinstance(shares, tuple)
        return {str(k): session.release(f"round {k}", _total(values), share) for k, share in enumerate(shares)}

    return fit


# -- whole fits --

WRONG = "label bound forgotten, many fits"


def _canaries(quick: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    few, _ = long_tailed_ratings(40, 25, 300, rank=2, rng=rng, stars="whole", global_mean=4.6)
    n_users = 4000 if quick else 20_000
    many, _ = long_tailed_ratings(n_users, 300, 6 * n_users, rank=2, rng=rng, stars="whole", global_mean=4.6)
    planted = importlib.import_module("paper_errata").LabelsBeyondTheirBound
    found = {
        "ratings, one fit": audit_one_run(
            _ratings(n_users), many, value=CANARY_VALUE, canaries=n_users // 2, confidence=CONFIDENCE,
            rng=np.random.default_rng(1),
        ),
        WRONG: audit_many_runs(
            _statistics(planted), few, value=CANARY_VALUE, runs=350 if quick else 1500, confidence=CONFIDENCE
        ),
    }  # fmt: skip
    if not quick:
        found["sufficient statistics, many fits"] = audit_many_runs(
            _statistics(LocalEngine), few, value=CANARY_VALUE, runs=6000, confidence=CONFIDENCE
        )
    return found


def _ratings(n_users: int) -> Fit:
    def fit(data: Interactions, noise: NoiseSource) -> ItemModel:
        estimator = PrivateRatingRecommender(
            CANARY_EPSILON, DELTA, dimension=2, rounds=2, n_users=n_users, noise=noise,
            engine=LocalEngine(np.float64, threads=1),
        )  # fmt: skip
        model: ItemModel = estimator.fit(data).model_
        return model

    return fit


def _statistics(engine: Any) -> Fit:
    def fit(data: Interactions, noise: NoiseSource) -> ItemModel:
        estimator = AlternatingMinimisation(
            CANARY_EPSILON, DELTA, update=SufficientStatistics(label_bound=LABEL_BOUND, gram_share=0.1),
            allocation=Adaptive(0.25), dimension=2, rounds=2, growth=4.0, user_ridge=0.1, n_users=40,
            engine=engine(np.float64, threads=1), noise=noise,
        )  # fmt: skip
        model: ItemModel = estimator.fit(data).model_
        return model

    return fit
