"""Claim: weights learn a better logistic model than sample limiting, and that a better one than no bound.

The paper's study of drug reviews, best h against best h: at its own budgets (ε = 30 to 50 at δ = 0.1, no guarantee
worth the name) and at δ = 1/m², from ε = 1. At every budget the mean losses over 50 runs must be in that order, and
each gap must be at least 2 standard errors of the difference run by run. A generated set of the same shape is reported
beside.
See papers/user_contributions/logistic.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.claim import Outcome, print_table
from papers.user_contributions import logistic
from papers.user_contributions.logistic import Losses, Study

LEAST_T = 2.0
QUICK = Study(budgets=((30.0, logistic.PAPERS_DELTA), (3.0, None)), thresholds=(1, 2), runs=30)


def measure(quick: bool) -> Outcome:
    """Run the study and compare at every budget."""
    study = QUICK if quick else Study()
    problems = [logistic.generated_reviews()] if quick else [logistic.drug_reviews(), logistic.generated_reviews()]
    found = [_shown(each) for problem in problems for each in logistic.losses(problem, study)]
    print()
    for (name, delta), part in logistic.by_delta(found).items():
        print(logistic.title(name, delta))
        print_table(logistic.header(part), logistic.table(part))
    if not quick:
        logistic.write(study, found)
    must = [each for each in found if each.problem == problems[0].name]
    return _outcome(study, must, [each for each in found if each not in must])


def _shown(each: Losses) -> Losses:
    means = " < ".join(f"{mean:.4f}" for mean in each.means)
    print(f"{each.problem}, ε = {each.epsilon:g}, δ = {each.delta:.2g}: {means}: {each.in_order}", flush=True)
    return each


def _outcome(study: Study, must: Sequence[Losses], beside: Sequence[Losses]) -> Outcome:
    in_order = sum(each.in_order for each in must)
    weakest = min(min(each.t_statistics) for each in must)
    at = must[0]
    honest = [each for each in must if each.delta < logistic.PAPERS_DELTA]
    shown = " / ".join(f"{mean:.3f}" for mean in at.means)
    real = "; ".join(f"ε = {each.epsilon:g}: {' / '.join(f'{mean:.3f}' for mean in each.means)}" for each in honest[:3])
    return Outcome(
        value={"in_order": in_order, "least_t": weakest, **_by_budget(must), "beside": _by_budget(beside)},
        target={"in_order": len(must), "least_t": LEAST_T},
        holds=in_order == len(must) and weakest >= LEAST_T,
        headline=f"drug reviews, loss of best weights / best sample limit / no bound at the paper's "
        f"ε = {at.epsilon:g}, δ = {at.delta:g} (no guarantee worth the name): {shown}; at δ = 1/m², {real}; without "
        f"privacy {at.least:.3f}; in order at {in_order} of {len(must)} budgets",
        settings={
            "runs": study.runs,
            "thresholds": study.thresholds,
            "noise_seeds": f"0 to {study.runs - 1}",
            "gradient_bound": logistic.GRADIENT_BOUND,
            "domain_radius": logistic.RADIUS,
            "papers_table": {f"{epsilon:g}": best for epsilon, best in logistic.PAPERS_BEST.items()},
        },
    )


def _by_budget(found: Sequence[Losses]) -> dict[str, Any]:
    """Mean losses of what is compared and of the formula's, by budget."""
    return {
        f"{each.problem}, epsilon={each.epsilon:g}, delta={each.delta:.2g}": {
            **dict(zip(each.compared, each.means, strict=True)),
            **{name: float(each.by_method[name].mean()) for name in each.by_method if name.endswith("by formula")},
            "t": each.t_statistics,
            "without privacy": each.least,
        }
        for each in found
    }
