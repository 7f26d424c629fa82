"""Rows of the paper's comparison on ratings and clicks: what is fitted, with which settings, and how it is judged.

Every row has the same users' side, the same allocation (exponent 1/4), and biases for ratings; rows differ in how the
items are updated and in whether that sees features. "+ own" means that items may depart from the encoder, whose
vector is their prior mean; "no features" has one vector for all items as prior mean, so that features are the only
difference. Settings were chosen on the validation part at ε = 5, one seed, and serve all ε.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from apportion.data import Interactions
from apportion.data.sparse_rows import SparseRows
from apportion.evaluation import popularity_slices, recall_at_k, rmse
from apportion.privacy import SeededNoise
from apportion.recommend.features.cmf import CollectiveFactorisation
from apportion.recommend.features.encoders import TwoLayerEncoder
from apportion.recommend.features.gradient import EncoderGradient
from apportion.recommend.features.joint import JointGradient
from apportion.recommend.features.minimisation import EncoderMinimisation
from apportion.recommend.features.ssp import EncoderStatistics
from apportion.recommend.features.training import CommonEncoder, Training

DELTA = 1e-5
RESAMPLES = (1, 4, 16)
FULL_BATCHES = Training(epochs=16, batch_size=None, rate=0.05)  # 16 steps, as in the paper's figures 4 and 8
SLICES = 5
ID_ONLY, FEATURES = "AM-SSP, no features", "AM-SSP, features + own"
GRADIENT_ID, GRADIENT = "AM-DPSGD, no features", "AM-DPSGD, features + own"
PURE_GRADIENT, FACTORISED, JOINT = "AM-DPSGD, features", "DP-CMF", "joint DP-SGD"


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
    biased: bool


RATINGS = Settings(
    common={"dimension": 5, "rounds": 5, "growth": 1.2},
    statistics={},
    gradient={"steps": 4, "clip": 0.3, "rate": 0.02, "own_clip": 0.5},
    gradient_common={"dimension": 5, "rounds": 6, "growth": 1.0},
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
    biased=False,
)  # fmt: skip
SETTINGS = {"ratings": RATINGS, "clicks": CLICKS}
OWN_STEP = {"ratings": 0.5, "clicks": 3.0}


def main_rows() -> list[str]:
    """The rows that the claim compares."""
    return [ID_ONLY, FEATURES, *map(resampled, RESAMPLES), GRADIENT_ID, GRADIENT]


def estimator(kind: str, name: str, rows: SparseRows, epsilon: float, seed: int) -> EncoderMinimisation:
    """The row's estimator; the encoder's first parameters are the same for every seed of the noise."""
    chosen = SETTINGS[kind]
    torch.manual_seed(0)
    given = dict(chosen.gradient_common if "DPSGD" in name or name == JOINT else chosen.common)
    width = given["dimension"] + (1 if chosen.biased else 0)

    def encoder(sparse: bool = True) -> Any:
        return TwoLayerEncoder(rows.groups, width, sparse=sparse)

    own = OWN_STEP[kind]
    by_resamples = {
        resampled(draws): lambda draws=draws: EncoderStatistics(
            encoder(), FULL_BATCHES, resamples=draws, **chosen.statistics
        )
        for draws in RESAMPLES
    }
    updates: dict[str, Callable[[], Any]] = {
        ID_ONLY: lambda: EncoderStatistics(CommonEncoder(width), **chosen.statistics),
        FEATURES: lambda: EncoderStatistics(encoder(), **chosen.statistics),
        **by_resamples,
        GRADIENT_ID: lambda: EncoderGradient(CommonEncoder(width), own_step=own, **chosen.gradient),
        GRADIENT: lambda: EncoderGradient(encoder(False), own_step=own, **chosen.gradient),
        PURE_GRADIENT: lambda: EncoderGradient(encoder(False), **chosen.gradient),
        FACTORISED: lambda: CollectiveFactorisation(label_bound=0.7 if chosen.biased else 1.0, gram_share=0.3),
        JOINT: lambda: EncoderGradient(encoder(False), **{**chosen.gradient, "steps": 1, "sampling": 0.3}),
    }
    if name == JOINT:
        given |= {"rounds": 40}
    made = JointGradient if name == JOINT else EncoderMinimisation
    return made(epsilon, DELTA, features=rows, update=updates[name](), noise=SeededNoise(seed), **given)


@dataclass(frozen=True)
class Bench:
    """Data of a kind, split, with features of its items.

    Attributes:
        kind: "ratings" or "clicks".
        train: what is fitted.
        history: what predictions for test users start from.
        target: what is predicted.
        rows: features of the items.
    """

    kind: str
    train: Interactions
    history: Interactions
    target: Interactions
    rows: SparseRows

    @classmethod
    def split(cls, kind: str, data: Interactions, rows: SparseRows, *, held_out: int = 600) -> Bench:
        """80/10/10 by rating for ratings; held-out users for clicks; the test part is judged."""
        rng = np.random.default_rng(0)
        if kind == "ratings":
            train, _, test = data.split_by_value(rng)
            return cls(kind, train, train, test, rows)
        parts = data.split_by_users(rng, n_validation=held_out, n_test=held_out)
        return cls(kind, parts.train, parts.test.history, parts.test.target, rows)

    def judged(self, name: str, epsilon: float, seed: int) -> list[float]:
        """RMSE or Recall@20 on the test part: overall, then by popularity slice, rarest first."""
        model: Any = estimator(self.kind, name, self.rows, epsilon, seed).fit(self.train).model_
        slices = popularity_slices(self.train.by_task.counts, SLICES)
        if self.kind == "ratings":
            found = rmse(model.predict(self.history, self.target), self.target, slices=slices)
        else:
            found = recall_at_k(model, self.history, self.target, k=20, slices=slices)
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
        if key not in known:
            known[key] = bench.judged(name, epsilon, seed)
            if store is not None:
                with store.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "figures": known[key]}) + "\n")
        found[name].setdefault(f"{epsilon:g}", []).append(known[key])
    return found


def means(found: dict[str, dict[str, list[list[float]]]], place: int = 0) -> dict[str, dict[str, float]]:
    """Means over seeds of one figure: 0 is overall, then the slices."""
    return {
        name: {e: round(float(np.mean([figures[place] for figures in each])), 5) for e, each in by.items()}
        for name, by in found.items()
    }


def spreads(found: dict[str, dict[str, list[list[float]]]]) -> dict[str, dict[str, float]]:
    """Standard deviations over seeds, overall."""
    return {
        name: {e: round(float(np.std([figures[0] for figures in each])), 5) for e, each in by.items()}
        for name, by in found.items()
    }


def _stored(store: Path | None) -> dict[str, list[float]]:
    if store is None or not store.exists():
        return {}
    lines = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()]
    return {line["key"]: line["figures"] for line in lines}
