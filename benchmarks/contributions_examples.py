"""Claim: the examples of the user-contributions paper come out with their exact numbers.

Means: Example 2 (g users of 1 row, g of g rows, σ = 1, B/ε = √(g/2)) has variances (2g + 1)/(4g²) with smooth weights
and 3/(4g) with the best sample limit, so a ratio of 3g/(2g + 1), which tends to 3/2 (Theorem 2). The ratio is never
above 4 (Theorem 3): random instances and hill climbing look for the largest. There users of one size are counted by any
positive number: multiplying all counts by c and dividing the trade-off by c leaves the ratio as it is, so this is the
same as whole numbers of users.

Regression with private labels: in Example 1 the best sample limit has at least g/4 times the variance of the optimal
weights (Claim 3: at least 1/(4g³) against at most 1/g⁴), in Example 3 every sample limit has variance at least g/9 for
at least half of the samples, the optimal weights at most 6/g (Claim 9).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.users import (
    SampleLimit,
    best_sample_limit,
    optimal_threshold,
    sample_limit_objective,
    weight_objective,
)
from apportion.regression.label_weights.optimal import least_squares_weights, optimal_label_weights
from benchmarks.claim import Outcome, print_table

SEED = 0
AT_MOST = {
    "example_2_error": 1e-12,
    "example_2_last_ratio": 1.5,
    "largest_ratio_random": 4.0,
    "largest_ratio_climbing": 4.0,
    "example_1_ours_times_g4": 1.0,
    "example_3_ours_times_g_over_6": 1.0,
    "largest_gap": 1e-5,
}
AT_LEAST = {
    "example_2_last_ratio": 1.49999,
    "example_1_ratio_over_quarter_g": 1.0,
    "example_1_limited_times_4g3": 1.0,
    "example_3_least_share_above_g_over_9": 0.5,
}

Floats = NDArray[np.float64]


def measure(quick: bool) -> Outcome:
    """All four, and whether each is as the paper says."""
    value = _theorem_2((1, 10, 1_000_000) if quick else (1, 2, 10, 100, 1_000, 1_000_000))
    value |= _theorem_3(*((1_000, 4, 400) if quick else (100_000, 100, 3_000)))
    value |= _example_1((4,) if quick else (4, 8, 16))
    value |= _example_3((8,) if quick else (8, 16, 32), draws=20 if quick else 200)
    value["largest_gap"] = max(value.pop("example_1_gap"), value.pop("example_3_gap"))
    holds = all(value[name] <= limit for name, limit in AT_MOST.items())
    holds &= all(value[name] >= limit for name, limit in AT_LEAST.items())
    return Outcome(value, {"at_most": AT_MOST, "at_least": AT_LEAST}, holds, _headline(value), {"seed": SEED})


def _headline(value: dict[str, Any]) -> str:
    ratios = ", ".join(f"{ratio:.1f} at g = {g}" for g, ratio in value["example_1_ratios"].items())
    return (
        f"means: ratio of variances {value['example_2_last_ratio']:.5f} in Example 2 (3/2 in the limit), at most "
        f"{value['largest_ratio_climbing']:.4f} found by hill climbing (4 proved); private labels: {ratios} (Example 1)"
    )


def _theorem_2(scales: tuple[int, ...]) -> dict[str, Any]:
    """Both variances against their closed forms."""
    rows, errors = [], []
    for g in scales:
        sizes, counts, price = [1, g], [float(g), float(g)], float(g)  # 2 (B/ε)² = g
        ours = price * weight_objective(sizes, optimal_threshold(sizes, 1 / price, counts), 1 / price, counts)
        limit = best_sample_limit(sizes, 1 / price, counts)
        limited = price * sample_limit_objective(sizes, limit, 1 / price, counts)
        errors += [abs(ours * 4 * g**2 / (2 * g + 1) - 1), abs(limited * 4 * g / 3 - 1)]
        rows.append([g, ours, limit, limited, limited / ours])
    print_table(["Example 2: g", "smooth", "best limit", "its variance", "ratio"], rows)
    return {"example_2_error": max(errors), "example_2_last_ratio": float(rows[-1][-1])}


def _theorem_3(instances: int, climbs: int, steps: int) -> dict[str, Any]:
    """The largest ratio, over random instances and by hill climbing from random ones."""
    rng = np.random.default_rng(SEED)
    at_random = max(_ratio(_random_point(rng)) for _ in range(instances))
    ratio, point = max((_climb(rng, steps) for _ in range(climbs)), key=lambda found: found[0])
    sizes, counts, trade_off = _unpacked(point)
    print(f"Theorem 3: largest ratio {at_random:.5f} of {instances:,} at random, {ratio:.5f} by {climbs} climbs, at")
    print_table(["size", "users, relative"], np.column_stack([sizes, counts / counts.max()]).tolist())
    where = {"sizes": sizes.tolist(), "counts": counts.tolist(), "trade_off": trade_off}
    return {"largest_ratio_random": at_random, "largest_ratio_climbing": ratio, "largest_ratio_at": where}


def _random_point(rng: np.random.Generator) -> Floats:
    """Logarithms of up to eight sizes, of how many users have each, and of the trade-off."""
    kinds, reach = int(rng.integers(2, 9)), float(rng.choice([1.0, 3.0, 8.0, 14.0]))
    return np.concatenate([reach * rng.random(kinds), rng.uniform(-8, 8, kinds), rng.uniform(-8, 8, 1)])


def _unpacked(point: Floats) -> tuple[Floats, Floats, float]:
    kinds = len(point) // 2
    sizes: Floats = np.round(np.exp(point[:kinds])).astype(np.float64)
    return sizes, np.exp(point[kinds:-1]), float(np.exp(point[-1]))


def _ratio(point: Floats) -> float:
    """The variance of the best sample limit over that of smooth weights."""
    sizes, counts, trade_off = _unpacked(point)
    limited = sample_limit_objective(sizes, best_sample_limit(sizes, trade_off, counts), trade_off, counts)
    return limited / weight_objective(sizes, optimal_threshold(sizes, trade_off, counts), trade_off, counts)


def _climb(rng: np.random.Generator, steps: int) -> tuple[float, Floats]:
    """Random steps, kept where the ratio grows; they lengthen with success and shorten without."""
    point, length = _random_point(rng), 2.0
    kinds, best = len(point) // 2, _ratio(point)
    low = np.concatenate([np.zeros(kinds), np.full(kinds + 1, -20.0)])
    high = np.concatenate([np.full(kinds, 14.0), np.full(kinds + 1, 20.0)])
    for _ in range(steps):
        moved = point + length * rng.standard_normal(len(point)) * (rng.random(len(point)) < 0.4)
        moved = np.clip(moved, low, high)
        ratio = _ratio(moved)
        if ratio > best:
            point, best, length = moved, ratio, 1.3 * length
        else:
            length = max(0.98 * length, 1e-4)
    return best, point


def _users(blocks: list[tuple[int, list[tuple[int, tuple[float, float]]]]]) -> tuple[Floats, NDArray[np.int64]]:
    """Features and offsets: each block is a number of users, and how many rows of which features each of them has."""
    rows: list[Floats] = []
    sizes: list[int] = []
    for n_users, kinds in blocks:
        one = np.concatenate([np.tile(features, (count, 1)) for count, features in kinds])
        rows.append(np.tile(one, (n_users, 1)))
        sizes += [len(one)] * n_users
    return np.concatenate(rows), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _limited(features: Floats, indptr: NDArray[np.int64], limit: int, seed: int, **problem: Any) -> float:
    """The objective of least squares on at most `limit` rows of each user."""
    kept = SampleLimit(limit, seed).row_weights(indptr, 1.0).rows > 0
    return least_squares_weights(features, indptr, kept=kept, norm=1, **problem).objective


def _example_1(scales: tuple[int, ...]) -> dict[str, Any]:
    """No label noise, 2 d (B/ε)² = 1; rows of one user are alike, so that which ones a limit keeps is all the same."""
    rows = []
    for g in scales:
        one, other = (1.0, 0.0), (0.0, 1.0)
        features, indptr = _users(
            [(1, [(1, (float(g), 0.0))]), (g * g, [(g, one)]), (1, [(g, other)]), (g * g, [(1, other)])]
        )
        ours = optimal_label_weights(features, indptr, variance=0.0, price=1.0, norm=1)
        limited = min(_limited(features, indptr, h, SEED, variance=0.0, price=1.0) for h in range(1, g + 1))
        rows.append([g, ours.objective, limited, limited / ours.objective, g / 4, ours.gap])
    print_table(["Example 1: g", "ours", "best limit", "ratio", "g/4", "gap"], rows)
    return {
        "example_1_ratios": {str(row[0]): row[3] for row in rows},
        "example_1_ratio_over_quarter_g": min(row[3] / row[4] for row in rows),
        "example_1_ours_times_g4": max(row[1] * row[0] ** 4 for row in rows),
        "example_1_limited_times_4g3": min(row[2] * 4 * row[0] ** 3 for row in rows),
        "example_1_gap": max(row[5] for row in rows),
    }


def _example_3(scales: tuple[int, ...], draws: int) -> dict[str, Any]:
    """σ = 1, 2 d (B/ε)² = g, features of length 1; a limit's variance depends on which rows it keeps."""
    rows = []
    for g in scales:
        features, indptr = _users([(1, [(g, (1.0, 0.0))]), (g, [(1, (1.0, 0.0)), (g - 1, (0.0, 1.0))])])
        ours = optimal_label_weights(features, indptr, variance=1.0, price=float(g), norm=1)
        found = [_draws(features, indptr, h, draws, float(g)) for h in range(1, g + 1)]
        share = min(float(np.mean(each >= g / 9)) for each in found)
        least = min(float(np.median(each)) for each in found)
        rows.append([g, ours.objective, 6 / g, least, g / 9, share, ours.gap])
    print_table(["Example 3: g", "ours", "6/g", "least median of a limit", "g/9", "least share above", "gap"], rows)
    return {
        "example_3_ours_times_g_over_6": max(row[1] / row[2] for row in rows),
        "example_3_least_share_above_g_over_9": min(row[5] for row in rows),
        "example_3_gap": max(row[6] for row in rows),
    }


def _draws(features: Floats, indptr: NDArray[np.int64], limit: int, draws: int, price: float) -> Floats:
    return np.array([_limited(features, indptr, limit, k, variance=1.0, price=price) for k in range(draws)])
