"""Accuracy against ε: ours, learning alone, joint learning without privacy, and the other private methods.

Figures 6, 7 and 9 of the paper, and with other shares of training rows those of its appendix D. Scores are nMSE, or
1 - average AUC: less is better. Repetitions make fresh data, or divide them afresh; comparisons are paired over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from papers.model_protection import methods
from papers.model_protection.data import Problem

Floats = NDArray[np.float64]
Say = Callable[[str], None]

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
RESULTS = Path(__file__).parent / "results"
LEVEL = 0.01  # of all comparisons of one method on one data set together


@dataclass(frozen=True)
class Scores:
    """What a study found.

    Attributes:
        name: of the data.
        epsilons: at which private methods ran.
        private: scores by method, one row for each ε, one column for each repetition.
        fixed: scores of what has no ε, one for each repetition.
    """

    name: str
    epsilons: tuple[float, ...]
    private: Mapping[str, Floats]
    fixed: Mapping[str, Floats]

    def worse_by(self, ours: str, other: str) -> Floats:
        """p-values at every ε that ours has no larger mean than something without ε: paired t-tests, one-sided."""
        from scipy.stats import t

        gaps = self.private[ours] - self.fixed[other]
        n = gaps.shape[1]
        spread = np.maximum(gaps.std(axis=1, ddof=1), 1e-12) / np.sqrt(n)
        return np.asarray(t.sf(gaps.mean(axis=1) / spread, n - 1))

    def never_worse(self, ours: str, other: str) -> bool:
        """Whether ours is nowhere significantly worse, at `LEVEL` over all ε together."""
        return bool((self.worse_by(ours, other) >= LEVEL / len(self.epsilons)).all())

    def beats(self, ours: str, rival: str) -> bool:
        """Whether ours has the smaller mean at every ε."""
        return bool((self.private[ours].mean(axis=1) < self.private[rival].mean(axis=1)).all())

    @property
    def best_joint(self) -> str:
        """The best method that is not private."""
        return min(methods.NOT_PRIVATE, key=lambda name: float(self.fixed[name].mean()))

    def way_gone(self, ours: str, alone: str) -> Floats:
        """How much of the way from learning alone to the best joint learning without privacy, at every ε."""
        begin, end = float(self.fixed[alone].mean()), float(self.fixed[self.best_joint].mean())
        return np.asarray((begin - self.private[ours].mean(axis=1)) / (begin - end))


def measure(
    make: Callable[[int], Problem],
    repetitions: int,
    epsilons: Sequence[float] = EPSILONS,
    private: Sequence[str] = (*methods.OURS, *methods.RIVALS),
    say: Say | None = None,
    n_penalties: int = 12,
) -> Scores:
    """Run every method on `make(0)`, `make(1)`, ...; penalties without privacy are chosen on the first."""
    first = make(0)
    penalties = methods.Penalties.of(first, n_penalties)
    found = {name: np.empty((len(epsilons), repetitions)) for name in private}
    fixed: dict[str, list[float]] = {}
    for run in range(repetitions):
        problem = first if run == 0 else make(run)
        for name, score in methods.without_noise(problem, penalties).items():
            fixed.setdefault(name, []).append(score)
        for at, epsilon in enumerate(epsilons):
            for name in private:
                found[name][at, run] = _score(problem, name, epsilon, run)
        if say is not None:
            say(f"{problem.name}: repetition {run + 1} of {repetitions}")
    return Scores(first.name, tuple(epsilons), found, {name: np.array(each) for name, each in fixed.items()})


def _score(problem: Problem, name: str, epsilon: float, seed: int) -> float:
    if name in methods.OURS:
        return problem.score(methods.ours(problem, name, epsilon, seed).coef_)
    return methods.rival(problem, name, epsilon, seed)


def to_markdown(scores: Scores, title: str, about: str) -> str:
    """Means and standard deviations over the repetitions, one row a method."""
    runs = next(iter(scores.fixed.values())).size
    lines = [
        f"# {title}",
        "",
        f"{about} Mean ± standard deviation over {runs} repetitions. Computed from raw data with seeded",
        "noise: not for release. DP-AGGR and DP-MTRL have the best of their settings by the test rows; the",
        "group-privacy forms have no guarantee as published.",
        "",
        "| method | " + " | ".join(f"ε = {epsilon:g}" for epsilon in scores.epsilons) + " |",
        "|---|" + "---|" * len(scores.epsilons),
    ]
    for name, found in scores.private.items():
        lines.append(f"| {name} | " + " | ".join(_cell(row) for row in found) + " |")
    for name, each in scores.fixed.items():
        lines.append(f"| {name} | " + " | ".join([_cell(each)] * len(scores.epsilons)) + " |")
    return "\n".join(lines) + "\n"


def _cell(values: Floats) -> str:
    mean, spread = float(values.mean()), float(values.std(ddof=1)) if values.size > 1 else 0.0
    return f"{mean:.3g} ± {spread:.2g}" if mean >= 100 else f"{mean:.4f} ± {spread:.4f}"
