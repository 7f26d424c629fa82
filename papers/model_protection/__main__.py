"""Runs the paper's experiments: see README.md in this folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

from benchmarks.__main__ import run as run_claim
from papers.model_protection import data, leakage, methods, studies, tradeoff
from papers.model_protection.data import Problem

QUICK_TASKS = {"n_tasks": 60, "n_rows": 15, "n_features": 8}
_OVER = "Mean ± standard deviation over {} repetitions."


def main(words: list[str] | None = None) -> int:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="papers.model_protection", description=__doc__)
    parser.add_argument("name", choices=["tradeoff", *STUDIES])
    parser.add_argument("--quick", action="store_true", help="the short form of a study, on small generated data")
    arguments = parser.parse_args(words)
    if arguments.name == "tradeoff":
        return run_claim("protected-tradeoff", quick=arguments.quick)
    for name, text in STUDIES[arguments.name](arguments.quick).items():
        print(text)
        if not arguments.quick:
            (tradeoff.RESULTS / name).write_text(text, encoding="utf-8")
    return 0


def _low_rank(quick: bool) -> Callable[[int], Problem]:
    return partial(data.synthetic, "low-rank", **QUICK_TASKS) if quick else studies.low_rank


def leak(quick: bool) -> dict[str, str]:
    """Fig. 2."""
    draws = 5 if quick else 200
    found = {
        epsilon: leakage.mean_of([leakage.measure(seed, epsilon) for seed in range(draws)])
        for epsilon in (0.1, 1.0, 10.0, 100.0)
    }
    return {"fig-2-leakage.md": leakage.to_markdown(found, draws)}


def schedules(quick: bool) -> dict[str, str]:
    """Fig. 4, at an ε at which the honest release is worth sharing."""
    runs, rounds, epsilon = (2, 3, 10.0) if quick else (10, 10, 10.0)
    powers = studies.schedules(_low_rank(quick), runs, epsilon, rounds)
    ratios = studies.schedules(_low_rank(quick), runs, epsilon, rounds, studies.RATIOS, powers=False)
    about = f"nMSE of Algorithm 2 with {rounds} rounds at ε = {epsilon:g}, low-rank models. {_OVER.format(runs)}"
    return {
        "fig-4-powers.md": studies.to_markdown(powers, "Fig. 4 (a): μ of a round in proportion to t^α", about),
        "fig-4-ratios.md": studies.to_markdown(ratios, "Fig. 4 (b): μ of a round in proportion to Q^(-t)", about),
    }


def noise(quick: bool) -> dict[str, str]:
    """Fig. 5."""
    runs, rounds = (2, 3) if quick else (20, 10)
    table = studies.noise_to_signal(_low_rank(quick), runs, (0.1, 1.0, 10.0), rounds)
    about = f"log10 of noise over released matrix (Frobenius), Algorithm 2, low-rank models. {_OVER.format(runs)}"
    return {"fig-5-noise-to-signal.md": studies.to_markdown(table, "Fig. 5: noise to signal", about)}


def numbers(quick: bool) -> dict[str, str]:
    """Fig. 8."""
    runs, many = (2, (20, 60)) if quick else (10, studies.NUMBERS)
    table = studies.numbers_of_tasks(_low_rank(quick), runs, (1.0, 10.0), many)
    about = f"nMSE of the first 20 tasks, low-rank models. {_OVER.format(runs)}"
    return {"fig-8-tasks.md": studies.to_markdown(table, "Fig. 8: how many tasks learn together", about)}


def shares(quick: bool) -> dict[str, str]:
    """App. D on School, or on its stand-in."""
    if quick:
        make = partial(data.school_standin, n_tasks=20)
        found = studies.training_shares(make, 2, (1.0,), (0.3, 0.7), (methods.EM,), n_penalties=3)
    else:
        found = studies.training_shares(data.school, 5, (0.1, 1.0, 10.0))
    used = (0.3, 0.7) if quick else studies.SHARES
    texts = [
        tradeoff.to_markdown(scores, f"Training share {share:g}: {scores.name}", "nMSE on test rows.")
        for share, scores in zip(used, found, strict=True)
    ]
    return {"training-shares.md": "\n".join(texts)}


def outcomes(quick: bool) -> dict[str, str]:
    """Fig. 9 (b) on generated data of the shape of LSOA II: 1 - average AUC."""
    if quick:
        make = partial(data.outcomes_standin, n_subjects=150, n_tasks=8, n_features=12)
        scores = tradeoff.measure(make, 2, (1.0,), (methods.EM, methods.MEAN), n_penalties=3)
    else:
        make = partial(data.outcomes_standin, n_subjects=600)
        private = (methods.EM, methods.LOW_RANK, methods.MEAN, methods.RELATED)
        scores = tradeoff.measure(make, 3, (0.1, 1.0, 10.0), private, n_penalties=4)
    about = "1 - average AUC on test rows; 41 binary outcomes of 600 generated people, 295 features."
    return {"tradeoff-outcomes.md": tradeoff.to_markdown(scores, f"Accuracy against ε: {scores.name}", about)}


STUDIES: dict[str, Callable[[bool], dict[str, str]]] = {
    "leak": leak,
    "schedules": schedules,
    "noise": noise,
    "numbers": numbers,
    "shares": shares,
    "outcomes": outcomes,
}

if __name__ == "__main__":
    sys.exit(main())
