"""Rows of the paper's comparison on ratings and clicks: what is fitted, with which settings, and how it is judged.

Every row has the same users' side, the same allocation (exponent 1/4), and biases for ratings; rows differ in how the
items are updated and in whether that sees features. "+ own" means that items may depart from the encoder, whose
vector is their prior mean; "no features" has one vector for all items as prior mean, so that features are the only
difference. Settings were chosen on the validation part at ε = 5, one seed, and serve all ε, in two searches: `FIRST`
serves DP-CMF, encoders alone and joint DP-SGD, `SETTINGS` the others. The second search came after a first table and
tried about 90 settings of AM-DPSGD on ratings (those of the time study) and 34 on clicks, 20 and 26 of AM-SSP with
features, 11 and 14 of AM-SSP without.

Clicks are judged twice by slice: over the whole catalogue, and with every slice ranked alone (`Recall@20 within`),
because rare movies are in nobody's top 20 of the whole catalogue, whatever a model knows of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.data.sparse_rows import SparseRows
from apportion.evaluation import MetricValue, popularity_slices, recall_at_k, recall_within_slices, rmse
from apportion.privacy import SeededNoise
from apportion.published.public_features.cmf import CollectiveFactorisation
from apportion.published.public_features.encoders import TwoLayerEncoder
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.public_features.joint import JointGradient
from apportion.published.public_features.minimisation import EncoderMinimisation
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.training import CommonEncoder, Training
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender

DELTA = 1e-5
RESAMPLES = (1, 4, 16)
FULL_BATCHES = Training(epochs=16, batch_size=None, rate=0.05)  # 16 steps, as in the paper's figures 4 and 8
SLICES = 5
OVERALL, BY_SLICE = 0, 1  # places among a row's figures; slices follow each other, rarest first
WITHIN, WITHIN_BY_SLICE = 1 + SLICES, 2 + SLICES  # of clicks only: every slice ranked alone
N_FIGURES = {"ratings": 1 + SLICES, "clicks": 2 * (1 + SLICES)}
ID_ONLY, FEATURES = "AM-SSP, no features", "AM-SSP, features + own"
GRADIENT_ID, GRADIENT = "AM-DPSGD, no features", "AM-DPSGD, features + own"
PURE_GRADIENT, FACTORISED, JOINT = "AM-DPSGD, features", "DP-CMF", "joint DP-SGD"
OURS_ID, OURS = "our recommender, no features", "our recommender, features"


def resampled(draws: int) -> str:
    """The row whose statistics are drawn so many times in the 16 steps of a round: 1 is SSP-c, 16 is SSP-i."""
    return f"AM-SSP, features + own, {draws} of 16 draws"


@dataclass(frozen=True)
class Settings:
    """What a kind of data is fitted with; all of it public."""

    common: dict[str, Any]
    statistics: dict[str, Any]
    gradient: dict[str, Any]
    gradient_common: dict[str, Any]
    factorised: dict[str, Any]
    own_step: float
    biased: bool
    without_features: tuple[dict[str, Any], dict[str, Any]] = ({}, {})  # what differs there in the first two


RATINGS = Settings(
    common={"dimension": 5, "rounds": 5, "growth": 1.2},
    statistics={},
    gradient={"steps": 4, "clip": 0.3, "rate": 0.02, "own_clip": 0.5},
    gradient_common={"dimension": 5, "rounds": 6, "growth": 1.0},
    factorised={"feature_weight": 0.7, "gram_share": 0.3, "ridge": 4.0, "label_bound": 1.0},
    own_step=0.5,
    biased=True,
)
CLICKS = Settings(
    common={
        "kind": "clicks", "dimension": 16, "rounds": 3, "growth": 2.0, "user_norm": 0.3, "user_ridge": 0.5,
        "unobserved": 0.5,
    },
    statistics={"label_bound": 1.0, "gram_share": 0.05, "departure": 0.1, "residual_variance": 0.1},
    gradient={"steps": 4, "clip": 0.2, "rate": 0.02, "own_clip": 0.5},
    gradient_common={
        "kind": "clicks", "dimension": 8, "rounds": 3, "growth": 1.0, "user_norm": 0.5, "user_ridge": 1.0,
        "unobserved": 0.2,
    },
    factorised={"feature_weight": 1.0, "gram_share": 0.1, "ridge": 32.0, "label_bound": 1.0},
    own_step=3.0,
    biased=False,
)  # fmt: skip
FIRST = {"ratings": RATINGS, "clicks": CLICKS}
OWN_STEP = {kind: chosen.own_step for kind, chosen in FIRST.items()}
SETTINGS = {
    "ratings": replace(
        RATINGS,
        common={"dimension": 8, "rounds": 5, "growth": 1.2},
        gradient={"steps": 4, "clip": 0.3, "rate": 0.01, "own_clip": 0.75},
        gradient_common={"dimension": 5, "rounds": 12, "growth": 0.9, "start_scale": 0.15, "bias_scale": 1.0},
        own_step=0.35,
    ),
    "clicks": replace(
        CLICKS,
        common={**CLICKS.common, "start_scale": 0.15, "unobserved": 0.4},
        gradient={**CLICKS.gradient, "clip": 0.4},
        gradient_common={**CLICKS.gradient_common, "dimension": 16, "start_scale": 0.15},
        without_features=({"unobserved": 0.3}, {"departure": 0.05}),
    ),
}


def main_rows() -> list[str]:
    """The rows that the claim compares."""
    return [ID_ONLY, FEATURES, *map(resampled, RESAMPLES), GRADIENT_ID, GRADIENT]


def reported_rows(kind: str) -> list[str]:
    """Rows that are shown beside them; the last two are the library's recommenders with their defaults."""
    return [FACTORISED, PURE_GRADIENT, *([JOINT] if kind == "ratings" else []), OURS_ID, OURS]


def estimator(kind: str, name: str, rows: SparseRows, epsilon: float, seed: int) -> EncoderMinimisation:
    """The row's estimator; the encoder's first parameters are the same for every seed of the noise."""
    chosen = (FIRST if name in (FACTORISED, PURE_GRADIENT, JOINT) else SETTINGS)[kind]
    torch.manual_seed(0)
    given = dict(chosen.gradient_common if "DPSGD" in name or name == JOINT else chosen.common)
    plain, plain_statistics = chosen.without_features
    given |= plain if name == ID_ONLY else {}
    width = given["dimension"] + (1 if chosen.biased else 0)

    def encoder(sparse: bool = True) -> Any:
        return TwoLayerEncoder(rows.groups, width, sparse=sparse)

    own = chosen.own_step
    by_resamples = {
        resampled(draws): lambda draws=draws: EncoderStatistics(
            encoder(), FULL_BATCHES, resamples=draws, **chosen.statistics
        )
        for draws in RESAMPLES
    }
    updates: dict[str, Callable[[], Any]] = {
        ID_ONLY: lambda: EncoderStatistics(CommonEncoder(width), **{**chosen.statistics, **plain_statistics}),
        FEATURES: lambda: EncoderStatistics(encoder(), **chosen.statistics),
        **by_resamples,
        GRADIENT_ID: lambda: EncoderGradient(CommonEncoder(width), own_step=own, **chosen.gradient),
        GRADIENT: lambda: EncoderGradient(encoder(False), own_step=own, **chosen.gradient),
        PURE_GRADIENT: lambda: EncoderGradient(encoder(False), **chosen.gradient),
        FACTORISED: lambda: CollectiveFactorisation(**chosen.factorised),
        JOINT: lambda: EncoderGradient(encoder(False), **{**chosen.gradient, "steps": 1, "sampling": 0.3}),
    }
    if name == JOINT:
        given |= {"rounds": 40}
    made = JointGradient if name == JOINT else EncoderMinimisation
    return made(epsilon, DELTA, features=rows, update=updates[name](), noise=SeededNoise(seed), **given)


def recommender(kind: str, features: ItemFeatures | None, epsilon: float, seed: int) -> Any:
    """The library's recommender of the kind, with its defaults."""
    made = PrivateRatingRecommender if kind == "ratings" else PrivateClickRecommender
    return made(epsilon, DELTA, features=features, noise=SeededNoise(seed), random_state=seed)


@dataclass(frozen=True)
class Bench:
    """Data of a kind, split, with features of its items.

    Attributes:
        kind: "ratings" or "clicks".
        train: what is fitted.
        history: what predictions for test users start from.
        target: what is predicted.
        rows: features of the items.
        features: the same by the items' ids, for the library's recommenders; None where these are not compared.
    """

    kind: str
    train: Interactions
    history: Interactions
    target: Interactions
    rows: SparseRows
    features: ItemFeatures | None = None

    @classmethod
    def split(
        cls,
        kind: str,
        data: Interactions,
        rows: SparseRows,
        *,
        features: ItemFeatures | None = None,
        held_out: int = 600,
        validation: bool = False,
    ) -> Bench:
        """80/10/10 by rating for ratings; held-out users for clicks. The test part is judged, or validation."""
        rng = np.random.default_rng(0)
        if kind == "ratings":
            train, valid, test = data.split_by_value(rng)
            return cls(kind, train, train, valid if validation else test, rows, features)
        parts = data.split_by_users(rng, n_validation=held_out, n_test=held_out)
        judged = parts.validation if validation else parts.test
        return cls(kind, parts.train, judged.history, judged.target, rows, features)

    def judged(self, name: str, epsilon: float, seed: int) -> list[float]:
        """RMSE, or Recall@20 and Recall@20 within slices, on the test part: each overall, then by slice."""
        model: Any = self._estimator(name, epsilon, seed).fit(self.train).model_
        slices = popularity_slices(self.train.by_task.counts, SLICES)
        if self.kind == "ratings":
            return _figures(rmse(model.predict(self.history, self.target), self.target, slices=slices))
        whole = recall_at_k(model, self.history, self.target, k=20, slices=slices)
        within = recall_within_slices(model, self.history, self.target, k=20, slices=slices)
        return _figures(whole) + _figures(within)

    def users_by_slice(self) -> list[int]:
        """How many users have something to be predicted in each slice, rarest first."""
        of_target = popularity_slices(self.train.by_task.counts, SLICES).of_task[self.target.tasks]
        return [len(np.unique(self.target.users[of_target == number])) for number in range(SLICES)]

    def _estimator(self, name: str, epsilon: float, seed: int) -> Any:
        if name in (OURS_ID, OURS):
            return recommender(self.kind, self.features if name == OURS else None, epsilon, seed)
        return estimator(self.kind, name, self.rows, epsilon, seed)


def _figures(found: MetricValue) -> list[float]:
    return [float(found.overall), *[float(value or 0.0) for value in found.by_slice]]


def run(
    bench: Bench, names: Sequence[str], epsilons: Iterable[float], seeds: Sequence[int], store: Path | None = None
) -> dict[str, dict[str, list[list[float]]]]:
    """Figures by row and ε, one list per seed; what the store has already is not fitted again."""
    known = _stored(store)
    found: dict[str, dict[str, list[list[float]]]] = {name: {} for name in names}
    jobs = [(seed, epsilon, name) for seed in seeds for epsilon in epsilons for name in names]
    for seed, epsilon, name in jobs:
        key = f"{bench.kind}|{name}|{epsilon:g}|{seed}"
        if len(known.get(key, ())) != N_FIGURES[bench.kind]:
            known[key] = bench.judged(name, epsilon, seed)
            if store is not None:
                with store.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "figures": known[key]}) + "\n")
        found[name].setdefault(f"{epsilon:g}", []).append(known[key])
    return found


def means(found: dict[str, dict[str, list[list[float]]]], place: int = 0) -> dict[str, dict[str, float]]:
    """Means over seeds of one figure, by its place."""
    return {
        name: {e: round(float(np.mean([figures[place] for figures in each])), 5) for e, each in by.items()}
        for name, by in found.items()
    }


def spreads(found: dict[str, dict[str, list[list[float]]]], place: int = 0) -> dict[str, dict[str, float]]:
    """Standard deviations over seeds of one figure, by its place."""
    return {
        name: {e: round(float(np.std([figures[place] for figures in each])), 5) for e, each in by.items()}
        for name, by in found.items()
    }


def _stored(store: Path | None) -> dict[str, list[float]]:
    if store is None or not store.exists():
        return {}
    lines = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()]
    return {line["key"]: line["figures"] for line in lines}
