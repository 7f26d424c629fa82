"""The smaller studies: budgets over rounds, noise against signal, the number of tasks, the share of training rows.

Figures 4, 5 and 8 and appendix D. Each function returns a table of numbers; `to_markdown` writes one down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.rounds import Geometric, Power, RoundSchedule
from papers.model_protection import data, methods, tradeoff
from papers.model_protection.data import Problem

Floats = NDArray[np.float64]
Make = Callable[[int], Problem]

EXPONENTS = (-2.0, -1.0, -0.5, 0.0, 0.4, 1.0, 2.0, 4.0)
RATIOS = (1.3, 1.1, 1.0, 0.9, 0.8, 0.6, 0.4)
NUMBERS = (20, 40, 80, 160, 320)
SHARES = (0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Table:
    """Named rows of numbers, means and standard deviations over repetitions.

    Attributes:
        columns: names.
        rows: by name, one row for each column, one number for each repetition.
    """

    columns: tuple[str, ...]
    rows: dict[str, Floats]

    def mean(self, row: str) -> Floats:
        """Over repetitions."""
        return np.asarray(self.rows[row].mean(axis=1))


def to_markdown(table: Table, title: str, about: str) -> str:
    """One row of the table a line."""
    lines = [f"# {title}", "", about, "Computed from raw data with seeded noise: not for release.", ""]
    lines += [f"| | {' | '.join(table.columns)} |", "|---|" + "---|" * len(table.columns)]
    for name, found in table.rows.items():
        lines.append(f"| {name} | " + " | ".join(f"{row.mean():.4f} ± {_spread(row):.4f}" for row in found) + " |")
    return "\n".join(lines) + "\n"


def schedules(
    make: Make,
    repetitions: int,
    epsilon: float,
    rounds: int,
    kinds: Sequence[float] = EXPONENTS,
    *,
    powers: bool = True,
) -> Table:
    """Fig. 4: error of Algorithm 2 by how the budget is divided over rounds, with and without momentum.

    Every round reads its own release alone, as in the paper: reading all of them together makes the division matter
    less.

    Args:
        make: the data of a repetition.
        repetitions: how many.
        epsilon: of the whole fit.
        rounds: of Algorithm 2.
        kinds: exponents α of t^α, or ratios Q of Q^(-t).
        powers: which of the two.
    """
    rows: dict[str, Floats] = {}
    for accelerated in (True, False):
        found = np.empty((len(kinds), repetitions))
        for run in range(repetitions):
            problem = make(run)
            for at, kind in enumerate(kinds):
                division: RoundSchedule = Power(kind) if powers else Geometric(kind)
                fitted = methods.ours(
                    problem, methods.LOW_RANK, epsilon, run,
                    schedule=division, rounds=rounds, accelerated=accelerated, pooled=False,
                )  # fmt: skip
                found[at, run] = problem.score(fitted.coef_)
        rows["accelerated" if accelerated else "plain"] = found
    letter = "α" if powers else "Q"
    return Table(tuple(f"{letter} = {kind:g}" for kind in kinds), rows)


def noise_to_signal(make: Make, repetitions: int, epsilons: Sequence[float], rounds: int) -> Table:
    """Fig. 5: log10 of the noise's Frobenius norm, in expectation, over that of the released matrix, round by round."""
    rows: dict[str, Floats] = {}
    for epsilon in epsilons:
        found = np.empty((rounds, repetitions))
        for run in range(repetitions):
            problem = make(run)
            fitted = methods.ours(problem, methods.LOW_RANK, epsilon, run, rounds=rounds, pooled=False)
            for at, released in enumerate(fitted.released_):
                width = len(released.matrix)
                noise = released.stddev * math.sqrt(width * (width + 1) / 2)
                found[at, run] = math.log10(noise / float(np.linalg.norm(released.matrix)))
        rows[f"ε = {epsilon:g}"] = found
    return Table(tuple(f"round {k + 1}" for k in range(rounds)), rows)


def numbers_of_tasks(
    make: Make, repetitions: int, epsilons: Sequence[float], numbers: Sequence[int] = NUMBERS, judged: int = 20
) -> Table:
    """Fig. 8: error of the first 20 tasks by how many learn together; δ is 1/m² of each number m."""
    rows = {f"{method}, ε = {epsilon:g}": np.empty((len(numbers), repetitions)) for method in _COMPARED
            for epsilon in epsilons}  # fmt: skip
    rows[methods.ALONE_L2] = np.empty((len(numbers), repetitions))
    for run in range(repetitions):
        whole = make(run)
        for at, number in enumerate(numbers):
            problem = whole.of_tasks(number, judged)
            rows[methods.ALONE_L2][at, run] = problem.score(problem.alone)
            for method in _COMPARED:
                for epsilon in epsilons:
                    fitted = methods.ours(problem, method, epsilon, run)
                    rows[f"{method}, ε = {epsilon:g}"][at, run] = problem.score(fitted.coef_)
    return Table(tuple(f"{number} tasks" for number in numbers), rows)


def training_shares(
    make: Callable[..., Problem],
    repetitions: int,
    epsilons: Sequence[float],
    shares: Sequence[float] = SHARES,
    private: Sequence[str] = (methods.EM, methods.LOW_RANK, methods.MEAN),
    n_penalties: int = 8,
) -> list[tradeoff.Scores]:
    """App. D: the trade-off with other shares of every task's rows for training."""
    return [
        tradeoff.measure(partial(make, share=share), repetitions, epsilons, private, n_penalties=n_penalties)
        for share in shares
    ]


_COMPARED = (methods.EM, methods.LOW_RANK)


def low_rank(seed: int) -> Problem:
    """The paper's generated tasks with low-rank models."""
    return data.synthetic("low-rank", seed)


def _spread(values: Floats) -> float:
    return float(values.std(ddof=1)) if values.size > 1 else 0.0
