"""Claim: `apportion plan` forecasts the RMSE of ratings within 2 %, for fits that its law had not seen.

The law (`apportion.evaluation.planning`, fitted by `benchmarks.price_study`) forecasts by how much privacy raises the
error over that of the same recommender where noise is nothing. It is compared with 20 fits on test parts: three
generated sets and two subsamples of MovieLens 1M, of sizes and at ε that are not in the study. They are of the same
kinds as in the study. How far data of other kinds are off is shown beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from apportion.evaluation.planning import RATINGS
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.movielens import DELTA
from benchmarks.price_study import QUICK, Fit, generated, law_of, measured, study, subsample
from benchmarks.rating_sets import REAL

ALLOWED = 0.02
UNSEEN_EPSILONS = (0.7, 1.5, 4.0, 12.0)
UNSEEN_GENERATED = ((2000, 500, 30), (8000, 800, 15), (20_000, 3000, 12))
UNSEEN_SUBSAMPLES = ((4500, 4000, 100), (2200, 800, 200))
OTHER_KINDS = ("MovieLens 100K", "MovieLens small", "FilmTrust", "InstEval")
SEEDS = range(10, 12)


def measure(quick: bool) -> Outcome | Rehearsal:
    """Compare forecasts with fits."""
    if quick:
        law = law_of(study(clicks=False, quick=True))
        data = generated((1000, 100, 15), clicks=False, seed=1)
        (fit,) = measured("generated", data, False, (2.0,), SEEDS[:1], test=True)
        found = {"short study": _apart(fit, law.loss(fit.size, fit.mu)), "stored law": _apart(fit)}
        return Rehearsal(found, {f"within 6 % with a study of {len(QUICK)} sizes": abs(found["short study"]) < 0.06})
    unseen = list(_unseen())
    others = [fit for name in OTHER_KINDS for fit in _fits(name)]
    rows = [[f.name, *_size(f), f.epsilon, f.loss, RATINGS.loss(f.size, f.mu), _apart(f)] for f in (*unseen, *others)]
    print_table(["data", "users", "items", "rows", "epsilon", "loss", "forecast", "apart"], rows)
    apart = np.abs([_apart(fit) for fit in unseen])
    elsewhere = np.abs([_apart(fit) for fit in others])
    within = int((apart <= ALLOWED).sum())
    return Outcome(
        value={
            "fits": len(unseen),
            "within": within,
            "furthest": round(float(apart.max()), 4),
            "mean": round(float(apart.mean()), 4),
            "other_kinds": {"mean": round(float(elsewhere.mean()), 4), "furthest": round(float(elsewhere.max()), 4)},
        },
        target={"within": "all", "furthest": ALLOWED},
        holds=within == len(unseen),
        headline=f"`apportion plan`, ratings: {within} of {len(unseen)} forecasts within 2 % of fits that the law had "
        f"not seen, mean distance {apart.mean():.1%}, furthest {apart.max():.1%}; on data of other kinds mean "
        f"{elsewhere.mean():.1%}, furthest {elsewhere.max():.1%}",
        settings={
            "law": RATINGS.__dict__,
            "fitted_by": "python -m benchmarks.price_study",
            "unseen": {"generated": UNSEEN_GENERATED, "subsamples of MovieLens 1M": UNSEEN_SUBSAMPLES},
            "epsilon": UNSEEN_EPSILONS,
            "other_kinds": OTHER_KINDS,
            "split": "80/10/10 by rating, seed 0; test part",
            "noise_seeds": list(SEEDS),
            "delta": DELTA,
        },
    )


def _unseen() -> Iterator[Fit]:
    for make, sizes in ((generated, UNSEEN_GENERATED), (subsample, UNSEEN_SUBSAMPLES)):
        for each in sizes:
            data = make(each, clicks=False, seed=1)
            yield from measured(make.__name__, data, False, UNSEEN_EPSILONS, SEEDS, test=True)


def _fits(name: str) -> Iterator[Fit]:
    data, scale = REAL[name]()
    return measured(name, data, False, (1.0, 5.0), SEEDS, test=True, scale=scale)


def _apart(fit: Fit, forecast: float | None = None) -> float:
    """How far the forecast error is from the measured one, as a fraction of it."""
    expected = RATINGS.loss(fit.size, fit.mu) if forecast is None else forecast
    return (1 + expected) / (1 + fit.loss) - 1


def _size(fit: Fit) -> Sequence[float]:
    return fit.size.users, fit.size.items, round(fit.size.rows, 1)
