"""The MovieLens studies of the paper on MovieLens 1M: six methods, ours, and the limit without privacy.

Table 2's methods are two item updates times three allocations. Each is tuned at each ε over the same lists of settings
(the same random draws of what they have in common), on the validation part, with a noise seed that the test does not
use. Ours runs with its defaults, whose constants were chosen earlier with the same validation part in view (about 150
readings). No ε covers any of that tuning.

Ratings: 80/10/10 by rating, RMSE. Clicks: ratings of 4 and 5, 600 + 600 held-out users, 80/20 histories, Recall@20, and
by slice with k = 100, 80, 60, 40, 20 from the rarest to the most popular fifth of the movies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apportion.data import Interactions
from apportion.evaluation import Study, StudyResults, run_study

DELTA = 1e-5
OURS, LIMIT = "ours", "without privacy"
ALLOCATIONS: Mapping[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "uniform": ({"policy": "uniform sample"}, {"allocation.limit": [50, 100, 200, 500]}),
    "tail": ({"policy": "tail sample"}, {"allocation.limit": [50, 100, 200, 500]}),
    "adaptive": ({"policy": "adaptive"}, {"allocation.exponent": [0.125, 0.25, 0.375, 0.5]}),
}
COMMON: Mapping[str, list[Any]] = {
    "dimension": [1, 2, 4, 8, 16],
    "user_ridge": [0.1, 1.0, 10.0],
    "start_scale": [0.3, 1.0],
    "counts_share": [0.05, 0.15],
}
BY_UPDATE: Mapping[str, Mapping[str, list[Any]]] = {
    "statistics": {
        "rounds": [1, 2, 3, 5],
        "update.ridge": [1.0, 4.0, 16.0, 64.0],
        "update.label_bound": [1.0, 2.0],
        "update.gram_share": [0.3, 0.5],
    },
    "gradient": {
        "rounds": [1, 2, 4, 8],
        "update.steps": [1, 2, 4],
        "update.step": [0.3, 1.0, 3.0],
        "update.clip": [0.3, 1.0],
        "update.even": [True, False],
    },
}
ONLY_CLICKS: Mapping[str, list[Any]] = {"unobserved": [0.01, 0.03, 0.1, 0.3], "dimension": [4, 8, 16, 32]}
NAMES = {"statistics": "DPALS", "gradient": "DPSGD"}


def names() -> list[str]:
    """The six rows, as the paper calls them."""
    return [_name(update, allocation) for update in BY_UPDATE for allocation in ALLOCATIONS]


def study(kind: str, epsilons: Sequence[float], seeds: Sequence[int], draws: int) -> Study:
    """All rows at these ε, tuned over so many draws of settings."""
    rows = [_row(kind, update, allocation, draws) for update in BY_UPDATE for allocation in ALLOCATIONS]
    table: dict[str, Any] = {
        "data": {"kind": kind, "split_seed": 0},
        "budgets": {"epsilon": list(epsilons), "delta": DELTA, "seeds": list(seeds)},
        "methods": [*rows, {"name": OURS, "method": "ours"}, {"name": LIMIT, "method": "non-private"}],
        "tuning": {"rule": "best on validation", "seeds": [100]},
        "evaluation": {"slices": 5},
    }
    if kind == "clicks":
        table["data"] |= {"validation": 600, "test": 600}
        table["evaluation"] |= {"recall_at": [20], "ndcg_at": [], "recall_at_by_slice": [100, 80, 60, 40, 20]}
    return Study.from_table(table)


def untuned_rows() -> list[dict[str, Any]]:
    """Every row with the library's plain settings, for data on which nothing was tuned."""
    rows: list[dict[str, Any]] = [
        {"name": _name(update, allocation), "method": update, "allocation": policy}
        for update in BY_UPDATE
        for allocation, (policy, _) in ALLOCATIONS.items()
    ]
    return [*rows, {"name": OURS, "method": "ours"}, {"name": LIMIT, "method": "non-private"}]


def exponents(found: StudyResults, epsilon: float, choices: Sequence[float]) -> Study:
    """The adaptive rows again at one ε, with the settings chosen there, at every exponent (fig. 3, 9).

    Beside weights that are normalised per user, the ones that are only clipped (eq. 12), and the joint allocation.
    """
    methods: list[dict[str, Any]] = []
    for name in ("AdaDPALS", "AdaDPSGD"):
        cell = found.cell(name, epsilon)
        if cell is None:
            continue
        kept = {key: value for key, value in cell.combination.spec.items() if key != "allocation"}
        grid = {"allocation.exponent": list(choices)}
        methods += [
            {"name": f"{name}, normalised", **kept, "allocation": {"policy": "adaptive"}, "grid": grid},
            {"name": f"{name}, clipped", **kept, "allocation": {"policy": "closed form"}, "grid": grid},
            {"name": f"{name}, joint", **kept, "allocation": {"policy": "joint", "gamma": 1}},
        ]
    return Study.from_table(_again(found.study, methods, epsilon))


def run(study: Study, data: Interactions, folder: Path, processes: int = 2, **shown: Any) -> StudyResults:
    """Fit what is missing and return everything."""
    return run_study(study, data, folder, processes=processes, **shown)


def _again(first: Study, methods: list[dict[str, Any]], epsilon: float) -> dict[str, Any]:
    split = first.split
    data = {"kind": first.kind, "split_seed": split.seed, "validation": split.validation, "test": split.test}
    budgets = first.budgets
    table: dict[str, Any] = {
        "data": data,
        "budgets": {"epsilon": [epsilon], "delta": budgets.delta, "seeds": list(budgets.seeds)},
        "methods": methods,
        "evaluation": {"slices": first.measures.slices},
    }
    if first.kind == "clicks":
        table["evaluation"] |= {"recall_at": list(first.measures.recall_at), "ndcg_at": []}
    return table


def _row(kind: str, update: str, allocation: str, draws: int) -> dict[str, Any]:
    policy, own = ALLOCATIONS[allocation]
    grid = {**COMMON, **BY_UPDATE[update], **(ONLY_CLICKS if kind == "clicks" else {}), **own}
    name = _name(update, allocation)
    return {"name": name, "method": update, "allocation": policy, "grid": grid, "draws": draws}


def _name(update: str, allocation: str) -> str:
    return f"Ada{NAMES[update]}" if allocation == "adaptive" else f"{NAMES[update]} ({allocation})"
