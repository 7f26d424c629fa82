"""Claim: ours is never significantly worse than learning alone, nears joint learning without privacy, beats its rivals.

Generated tasks with low-rank and with group-sparse models (320 tasks of 30 rows and 30 features) and School, at ε from
0.1 to 10, δ = 1/m², replacing one task. Ours is private EM with the library's defaults; the low-rank and group-sparse
methods are shown beside it. Learning alone is ridge on generated data and the better of ridge and lasso on School, as
in the paper, each task choosing its penalty. Rivals are DP-AGGR and DP-MTRL by group privacy, and DP-AGGR with a
sensitivity of K/m, each with its best settings by the test rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.claim import Outcome, UnavailableError, print_table
from papers.model_protection import data, methods, tradeoff
from papers.model_protection.data import Problem

REPETITIONS, QUICK_REPETITIONS = 20, 3
EPSILONS, QUICK_EPSILONS = tradeoff.EPSILONS, (0.1, 10.0)
LEAST_WAY = 0.75  # of the way from learning alone to joint learning without privacy, at the largest ε

Make = Callable[[int], Problem]


def measure(quick: bool) -> Outcome:
    """Run the study on every data set."""
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    found = {name: _studied(name, make, repetitions, quick) for name, make in _problems(quick).items()}
    verdicts = {name: _verdict(scores) for name, scores in found.items()}
    return Outcome(
        value=verdicts,
        target={
            "never significantly worse than alone": f"at {tradeoff.LEVEL:g} for all epsilons together",
            "way to joint learning at the largest epsilon": f"at least {LEAST_WAY}",
            "beats": "every rival at every epsilon",
        },
        holds=all(verdict["holds"] for verdict in verdicts.values()),
        headline=_headline(verdicts),
        settings={
            "repetitions": repetitions,
            "epsilons": list(QUICK_EPSILONS if quick else EPSILONS),
            "delta": "1/m^2",
            "neighbours": "replace one task",
            "seeds": f"0 to {repetitions - 1}",
        },
    )


def _problems(quick: bool) -> dict[str, Make]:
    if quick:
        small = partial(data.synthetic, "low-rank", n_tasks=120, n_rows=20, n_features=10)
        return {"low-rank": small}
    return {
        "School": data.school,
        "low-rank": partial(data.synthetic, "low-rank"),
        "group-sparse": partial(data.synthetic, "group-sparse"),
    }


def _studied(name: str, make: Make, repetitions: int, quick: bool) -> tradeoff.Scores:
    try:
        scores = tradeoff.measure(
            make, repetitions, QUICK_EPSILONS if quick else EPSILONS,
            (methods.EM, *methods.RIVALS) if quick else (*methods.OURS, *methods.RIVALS),
            say=None if quick else lambda text: print(text, flush=True), n_penalties=5 if quick else 12,
        )  # fmt: skip
    except UnavailableError as missing:
        raise UnavailableError(f"{missing} The other data sets are generated.") from missing
    rows = [[method, *(f"{row.mean():.4g}" for row in each)] for method, each in scores.private.items()]
    rows += [[method, *[f"{each.mean():.4g}"] * len(scores.epsilons)] for method, each in scores.fixed.items()]
    print_table([name, *(f"epsilon = {epsilon:g}" for epsilon in scores.epsilons)], rows)
    if not quick:
        title = f"Accuracy against ε: {scores.name}"
        text = tradeoff.to_markdown(scores, title, "nMSE on test rows; δ = 1/m², neighbours replace one task.")
        (tradeoff.RESULTS / f"tradeoff-{name.lower()}.md").write_text(text, encoding="utf-8")
    return scores


def _verdict(scores: tradeoff.Scores) -> dict[str, Any]:
    """What is claimed of one data set, and by how much it holds or fails."""
    against = [methods.ALONE_L2]
    if "School" in scores.name:
        against = [min((methods.ALONE_L2, methods.ALONE_L1), key=lambda name: float(scores.fixed[name].mean()))]
    never_worse = {name: scores.never_worse(methods.EM, name) for name in against}
    way = scores.way_gone(methods.EM, against[0])
    beaten = {rival: scores.beats(methods.EM, rival) for rival in methods.RIVALS}
    return {
        "ours": [round(float(row.mean()), 4) for row in scores.private[methods.EM]],
        "ours_sd": [round(float(row.std(ddof=1)), 4) for row in scores.private[methods.EM]],
        "alone": {name: round(float(each.mean()), 4) for name, each in scores.fixed.items() if name in methods.ALONE},
        "joint, not private": round(float(scores.fixed[scores.best_joint].mean()), 4),
        "never_significantly_worse": never_worse,
        "p_values": {name: [float(f"{p:.2g}") for p in scores.worse_by(methods.EM, name)] for name in against},
        "way_to_joint": [round(float(part), 3) for part in way],
        "beats": beaten,
        "holds": all(never_worse.values()) and all(beaten.values()) and bool(way[-1] >= LEAST_WAY),
    }


def _headline(verdicts: dict[str, dict[str, Any]]) -> str:
    parts = [
        f"{name}: {v['ours'][0]:.3g} to {v['ours'][-1]:.3g} (alone {min(v['alone'].values()):.3g}, joint "
        f"{v['joint, not private']:.3g})"
        for name, v in verdicts.items()
    ]
    return "private EM from ε = 0.1 to 10, nMSE: " + "; ".join(parts)
