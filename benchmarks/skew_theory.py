"""Claim: excess empirical risk has the powers of m, n, d and β of the paper's bounds (13) and (15).

It also stays below (14), and what approximate counts cost stays below the factor of (21).

Powers are measured by least squares on logarithms and must be within 15 % of the predicted ones. See
papers/skew/theory.py for the data, the constants and what is public.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.claim import Outcome, print_table
from papers.skew import theory
from papers.skew.theory import Slope, Sweeps

TOLERANCE = 0.15

_FEW = {"m": (16, 64), "n": (250, 750), "d": (4, 16), "β": (0.25, 1.0)}
QUICK = Sweeps(
    ridge=_FEW,
    descent=_FEW,
    ridge_base=theory.Point(m=16, n=800, d=8, beta=1.0),
    descent_base=theory.Point(m=16, n=400, d=8, beta=0.5),
    count_errors=(0.5,),
    ridge_seeds=20,
    descent_seeds=8,
    bound_seeds=1,
)


def measure(quick: bool) -> Outcome:
    """Measure all four and compare."""
    sweeps = QUICK if quick else Sweeps()
    ridge = _shown("(13), Algorithm 1", theory.ridge_slopes(sweeps))
    descent = _shown("(15), Algorithm 2, rule (b)", theory.descent_slopes(sweeps))
    convex = theory.convex_bounds(sweeps)
    print("(14), Algorithm 2, rule (a)")
    print_table(
        ["point", "excess", "bound", "ratio"], [[c.where, c.measured, c.bound, c.measured / c.bound] for c in convex]
    )
    costs = theory.count_costs(sweeps)
    print("(21), approximate counts")
    print_table(
        ["s / least n_i", "ratio", "standard error", "(1/m) Σ (n̂+s)/n", "1 + (2/m) Σ s/n"],
        [[c.relative_error, c.ratio, c.error, c.predicted, c.factor] for c in costs],
    )
    deviation = max(s.deviation for s in [*ridge, *descent])
    below = max(c.measured / c.bound for c in convex)
    count_cost = max(c.ratio / c.factor for c in costs)
    powers = {"(13)": _powers(ridge), "(15)": _powers(descent)}
    return Outcome(
        value={"powers": powers, "largest_deviation": deviation, "over_bound_14": below, "over_factor_21": count_cost},
        target={
            "powers": {"(13)": theory.POWERS, "(15)": theory.POWERS},
            "largest_deviation": TOLERANCE,
            "over_bound_14": 1.0,
            "over_factor_21": 1.0,
        },
        holds=deviation <= TOLERANCE and below <= 1 and count_cost <= 1,
        headline=f"powers of m, n, d, β in the excess risk: (13) {_listed(ridge)}, (15) {_listed(descent)}, predicted "
        f"2, -1, 1, -1; at most {below:.2g} of the bound (14); cost of approximate counts at most {count_cost:.2f} of "
        "its bound (21)",
        settings={
            "ridge": theory.RIDGE,
            "fractions": [theory.LOW, theory.HIGH],
            "headroom": {"gamma=1": theory.headroom(1.0), "gamma=0": theory.headroom(0.0)},
            "sweeps": {"(13)": dict(sweeps.ridge), "(15) and (14)": dict(sweeps.descent)},
            "base": {"(13)": str(sweeps.ridge_base), "(15) and (14)": str(sweeps.descent_base)},
            "seeds": [sweeps.ridge_seeds, sweeps.descent_seeds],
            "standard_errors": {"(13)": [s.error for s in ridge], "(15)": [s.error for s in descent]},
            "over_bound": {"(13)": [s.over_bound for s in ridge], "(15)": [s.over_bound for s in descent]},
            "count_costs": [vars(c) for c in costs],
        },
    )


def _shown(title: str, found: Sequence[Slope]) -> Sequence[Slope]:
    print(title)
    rows = [
        [s.axis, " ".join(f"{v:g}" for v in s.values), " ".join(f"{e:.4g}" for e in s.excess), s.slope, s.error,
         s.predicted, " ".join(f"{r:.3f}" for r in s.over_bound)]
        for s in found
    ]  # fmt: skip
    print_table(["axis", "values", "excess risk", "power", "standard error", "predicted", "excess / bound"], rows)
    return found


def _powers(found: Sequence[Slope]) -> dict[str, float]:
    return {s.axis: s.slope for s in found}


def _listed(found: Sequence[Slope]) -> str:
    return ", ".join(f"{s.slope:.2f}" for s in found)
