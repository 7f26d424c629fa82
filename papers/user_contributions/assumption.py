"""When the paper's assumption fails: values that go with how many rows a user has.

The paper's weights are unbiased where a user's size says nothing of its values. Here users' means go with the logarithm
of their size by a dial from 0 (the assumption) to 1. Both kinds of weights are run on the same data: the paper's with
the variance paid for and public sizes, as it has them, and those for the mean over rows, with private sizes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from apportion.privacy import SeededNoise
from apportion.statistics import UserMean
from benchmarks.real_rows import DIALS, EPSILONS, RealRows, generated

RUNS = 60
RESULT = Path(__file__).parent / "results" / "when-the-assumption-fails.md"
KINDS: dict[str, dict[str, Any]] = {
    "paper's weights": {"weights": "paper", "sizes": "public"},
    "weights for rows": {},
}


def study(runs: int = RUNS, n_users: int = 1500) -> list[list[str]]:
    """One line for each dial, ε and kind of weights: error, bias, and how often intervals hold the mean over rows."""
    return [
        [f"{dial:g}", f"{epsilon:g}", kind, *measured(generated(dial, n_users), epsilon, runs, settings)]
        for dial in DIALS
        for epsilon in EPSILONS
        for kind, settings in KINDS.items()
    ]


def measured(rows: RealRows, epsilon: float, runs: int, settings: dict[str, Any]) -> list[str]:
    """Root mean squared error, bias, and coverage in per cent."""
    truth = rows.values.mean()
    errors, held = np.empty(runs), 0
    for run in range(runs):
        found = UserMean(epsilon, value_range=rows.ends, noise=SeededNoise(run), **settings)
        low, high = found.fit(rows.values, users=rows.users).interval_
        errors[run] = found.mean_ - truth
        held += bool(low <= truth <= high)
    return [f"{np.sqrt(np.mean(np.square(errors))):.3f}", f"{errors.mean():+.3f}", f"{100 * held / runs:.0f}"]


def main() -> None:
    """Run the study and write its table."""
    header = ["dial", "epsilon", "weights", "error", "bias", "covered, %"]
    lines = [header, ["---"] * len(header), *study()]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    about = f"1,500 users, values from 0 to 10, {RUNS} runs (seeds 0 to {RUNS - 1}), 95 % intervals.\n\n"
    RESULT.write_text(f"# When the paper's assumption fails\n\n{about}{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
