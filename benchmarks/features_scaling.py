"""Claim: with p ≫ m features and an active norm constraint, noisy gradient descent gets worse with p and SSP does not.

Generated linear problems (papers/public_features/scaling.py): excess empirical risk against p at m = 40 items, each
method at its best number of steps and step size, mean over seeds; slopes of straight lines through log risk
against log p. Without the constraint neither grows (Remark 7). Slopes in m, at p = 6400, are reported beside them.
"""

from __future__ import annotations

from typing import Any

from benchmarks.claim import Outcome, print_table
from papers.public_features import scaling

LEVEL, SEEDS = 1.0, range(5)
WIDE, FEW = (400, 800, 1600, 3200, 6400, 12_800), (10, 20, 40, 80)
LIMITS = {"noisy gradient descent, ball": 0.4, "SSP, ball": 0.1, "no constraint": 0.1}


def measure(quick: bool) -> Outcome:
    """Measure all slopes."""
    items, wide, few = (10, (80, 320, 1280), (5, 10)) if quick else (40, WIDE, FEW)
    steps = (16,) if quick else scaling.STEPS
    rates = scaling.RATES[1:8:2] if quick else scaling.RATES
    grid = [(count, rate) for count in steps for rate in rates]
    seeds = list(range(8)) if quick else list(SEEDS)
    risks: dict[str, Any] = {}
    for case in scaling.CASES:
        for method in scaling.METHODS:
            pairs = [(items, p) for p in wide]
            risks[f"{method}, {case}"] = scaling.curve(pairs, case, method, level=LEVEL, seeds=seeds, grid=grid)
    slopes = {name: round(scaling.slope(wide, values), 3) for name, values in risks.items()}
    print_table(
        ["method, constraint", *[f"p = {p}" for p in wide], "slope"],
        [[name, *values, slopes[name]] for name, values in risks.items()],
    )
    in_items = {
        method: round(
            scaling.slope(
                few, scaling.curve([(m, wide[-2]) for m in few], "ball", method, level=LEVEL, seeds=seeds, grid=grid)
            ),
            3,
        )
        for method in scaling.METHODS
    }
    print_table(["slope in m, ball", *in_items], [["", *in_items.values()]])
    growing, flat = slopes["noisy gradient descent, ball"], [slopes["SSP-i, ball"], slopes["SSP-c, ball"]]
    free = max(slopes[f"{method}, none"] for method in scaling.METHODS)
    return Outcome(
        value={"p": slopes, "m": in_items},
        target={
            "noisy gradient descent, ball": f"above {LIMITS['noisy gradient descent, ball']}",
            "SSP, ball": f"below {LIMITS['SSP, ball']}",
            "any, none": f"below {LIMITS['no constraint']}",
        },
        holds=growing > LIMITS["noisy gradient descent, ball"]
        and max(flat) < LIMITS["SSP, ball"]
        and free < LIMITS["no constraint"],
        headline=f"Wide linear encoders (m = {items}, p = {wide[0]} to {wide[-1]}): under an active norm constraint "
        f"excess risk grows as p^{growing:.2f} for noisy gradient descent, p^{flat[0]:.2f} for SSP-i and "
        f"p^{flat[1]:.2f} for SSP-c; without one at most p^{free:.2f} for any of them; in m: "
        + ", ".join(f"{method} m^{value:.2f}" for method, value in in_items.items()),
        settings={
            "items": items, "features": list(wide), "items_for_m": list(few), "noise_multiplier": LEVEL,
            "seeds": seeds, "steps": list(steps), "rates": [float(rate) for rate in rates], "risks": risks,
        },
    )  # fmt: skip
