"""Claim: a private list has at least as many keys, and rows, as the usual rule lists, at every ε from 0.5 to 10.

The usual rule is that of PipelineDP, Tumult and OpenDP with Gaussian noise, as published: every user keeps at most L
keys at random, each counts 1, noise is for √L, and the threshold is for δ/2 over L keys. It gets the best L of a grid,
chosen on the data and not paid for. Ours divides one unit over the keys of a user, 3 to 300. Both have the whole
budget and δ = 1e-6, half of it for the threshold. Also by simulation: how often a user's own keys are listed, at the
worst number of keys.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions, Vocabulary
from apportion.data.item_lists import in_text_order, texts_of, with_priorities
from apportion.engines import LocalEngine, add_up_one
from apportion.estimators.items import FEWEST_ITEMS, MOST_ITEMS
from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.contributions import KeyCounts
from apportion.privacy.keys import KeyedSum, chance_of_own_keys, threshold_for
from benchmarks import movielens
from benchmarks.claim import Outcome, Rehearsal, data_folder, need, print_table

EPSILONS, DELTA = (0.5, 1.0, 2.0, 5.0, 10.0), 1e-6
LIMITS = (1, 3, 10, 30, 100)
SEEDS = 3
Found = tuple[float, float]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Number of keys and share of rows listed, for every data set and ε, as means over seeds of the noise."""
    worst = simulated_chance(2_000 if quick else 20_000)
    if quick:
        data = {"Zipf": zipf(3_000, 2_000)}
        rows = [row for name, each in data.items() for row in compared(name, each, (5.0,), 1)]
        return Rehearsal({"rows": rows}, {"own keys are listed no more often than the formula says": worst <= 0.0575})
    sets = {"MovieLens 1M": movielens.ratings(), "Amazon Beauty": beauty(), "Penn Treebank": sentences()}
    sets["Zipf"] = zipf(100_000, 50_000)
    rows = [row for name, each in sets.items() for row in compared(name, each, EPSILONS, SEEDS)]
    print_table(["data", "epsilon", "keys", "rows", "keys, usual rule", "rows, usual rule", "its best L"], rows)
    least = min(min(row[2] / max(row[4], 1e-9), row[3] / max(row[5], 1e-9)) for row in rows)
    return Outcome(
        value={"least_ratio": round(least, 4), "own_keys_listed": worst, "rows": rows},
        target={"least_ratio": 1.0, "own_keys_listed": "at most 0.05, within 5 deviations"},
        holds=least >= 1.0 and worst <= 0.0575,
        headline=f"private lists of keys: at least {least:.2f} times the keys and rows of the usual rule at its best "
        f"limit, on {len(sets)} data sets at ε from 0.5 to 10",
        settings={
            "delta": DELTA,
            "limits": LIMITS,
            "noise_seeds": SEEDS,
            "most_keys": MOST_ITEMS,
            "fewest_keys": FEWEST_ITEMS,
        },
    )


def compared(name: str, data: Interactions, epsilons: tuple[float, ...], seeds: int) -> list[list[Any]]:
    """Ours and the usual rule at its best limit, at each ε."""
    hidden = ours(data)
    kept = {limit: limited(data, limit) for limit in LIMITS}
    rows: list[list[Any]] = []
    for epsilon in epsilons:
        own = np.mean([listed(data, hidden, epsilon, seed) for seed in range(seeds)], axis=0)
        usual = {
            limit: np.mean([usual_list(data, counts, limit, epsilon, seed) for seed in range(seeds)], axis=0)
            for limit, counts in kept.items()
        }
        best = [max(usual.values(), key=lambda found, k=k: float(found[k]))[k] for k in (0, 1)]  # type: ignore[misc]
        limit = max(usual, key=lambda each: float(usual[each][0]))
        rows.append(
            [name, epsilon, float(own[0]), round(float(own[1]), 4), float(best[0]), round(float(best[1]), 4), limit]
        )
    return rows


def ours(data: Interactions) -> KeyedSum:
    """The hidden counts of all keys."""
    keyed = in_text_order(data)
    counts: Any = add_up_one(LocalEngine(np.float64), with_priorities(keyed), KeyCounts(MOST_ITEMS, least=FEWEST_ITEMS))
    return KeyedSum(counts, texts_of(keyed.task_ids))


def listed(data: Interactions, hidden: KeyedSum, epsilon: float, seed: int) -> Found:
    """Number of keys and share of rows that a private list has."""
    session = Session(Budget(epsilon, DELTA, DELTA / 2), noise=SeededNoise(seed))
    found = session.release_keys("keys", hidden, session.plan(keys=1.0).one("keys"), DELTA / 2)
    names = set(found.texts)
    return covered(data, np.array([str(each) in names for each in data.task_ids]))


def limited(data: Interactions, limit: int) -> NDArray[np.float64]:
    """How many users keep each key, each at most so many at random."""
    rng = np.random.default_rng(limit)
    order = np.lexsort((rng.random(data.n_observations), data.users))
    rank = np.arange(data.n_observations) - data.by_user.indptr[data.users]
    return np.bincount(data.tasks[order[rank < limit]], minlength=data.n_tasks).astype(np.float64)


def usual_list(data: Interactions, counts: NDArray[np.float64], limit: int, epsilon: float, seed: int) -> Found:
    """What the usual rule lists: counts with Gaussian noise for √L above 1 + σ Φ⁻¹((1 − δ/2)^(1/L))."""
    stddev = limit**0.5 / Budget(epsilon, DELTA, DELTA / 2).mu
    threshold = 1 + stddev * -NormalDist().inv_cdf(DELTA / 2 / limit)
    noisy = counts + stddev * np.random.default_rng(seed).standard_normal(len(counts))
    return covered(data, (counts > 0) & (noisy >= threshold))


def covered(data: Interactions, chosen: NDArray[np.bool_]) -> Found:
    """Number of keys, and the share of rows that they have."""
    return float(chosen.sum()), float(chosen[data.tasks].mean())


def simulated_chance(draws: int) -> float:
    """How often a user's own keys are listed at δ_τ = 0.05, at the worst number of keys."""
    rng, scale, most, delta = np.random.default_rng(0), 2.0, 100, 0.05
    threshold = threshold_for(delta, scale, most, "gaussian")
    assert chance_of_own_keys(threshold, scale, most, "gaussian") <= delta
    seen = [(n**-0.5 + scale * rng.standard_normal((draws, n)) >= threshold).any(axis=1).mean() for n in (1, 10, most)]
    return round(float(max(seen)), 5)


def beauty() -> Interactions:
    """Who bought what, of Amazon Beauty."""
    path = need(data_folder() / "amazon-beauty" / "beauty.txt", "Amazon Beauty")
    return Interactions.read(path, columns=["user", "item"], separator=" ")


def sentences() -> Interactions:
    """The words of Penn Treebank; every ten sentences in a row are a user."""
    lines = need(data_folder() / "penn-treebank" / "ptb.train.txt", "Penn Treebank").read_text().splitlines()
    pairs = sorted({(k // 10, word) for k, line in enumerate(lines) for word in line.split()})
    return Interactions.from_arrays([user for user, _ in pairs], [word for _, word in pairs])


def zipf(users: int, keys: int) -> Interactions:
    """Generated: sizes log-normal, keys by rank to the power -1."""
    rng = np.random.default_rng(0)
    sizes = np.minimum(np.exp(rng.normal(2, 1, users)).astype(int) + 1, keys // 10)
    weights = 1 / np.arange(1, keys + 1)
    owner = np.repeat(np.arange(users), sizes)
    pairs = np.unique(np.stack([owner, rng.choice(keys, len(owner), p=weights / weights.sum())]), axis=1)
    return Interactions.from_codes(
        pairs[0], pairs[1], user_ids=Vocabulary.of_range(users), task_ids=Vocabulary.of_range(keys)
    )
