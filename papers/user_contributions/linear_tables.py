"""Tables of the linear regression study, and how far the one on drugs depends on which categories are left out.

A model with an intercept leaves out one category of each of its two questions; which one changes no prediction of least
squares, but it changes what the coefficients are, and so what weights that minimise their variance look like.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from papers.user_contributions import drugs
from papers.user_contributions.linear import (
    ALL_ROWS,
    BEST_LIMIT,
    FORMULA_LIMIT,
    OURS,
    PREDICTIONS,
    Floats,
    Groups,
    Problem,
    Scores,
)

COMPARED = (OURS, PREDICTIONS, BEST_LIMIT, FORMULA_LIMIT, ALL_ROWS)
_LEVELS = len(drugs.EFFECTIVENESS)
LeftOut = tuple[int, int]


def with_intercept(features: Floats) -> Floats:
    """The features and a column of ones."""
    return np.column_stack([features, np.ones(len(features))])


def leaving_out(features: Floats, left_out: LeftOut) -> Floats:
    """Drug reviews with other categories left out than the first of each question.

    Args:
        features: as `drugs.load_drugs` gives them.
        left_out: positions in `drugs.EFFECTIVENESS` and in `drugs.SIDE_EFFECTS`.
    """
    questions = np.split(features, [_LEVELS - 1], axis=1)
    full = [np.column_stack([1 - question.sum(axis=1), question]) for question in questions]
    return np.column_stack([np.delete(each, place, axis=1) for each, place in zip(full, left_out, strict=True)])


def reviews_by_left_out(features: Floats, ratings: Floats, groups: Groups) -> Iterator[Problem]:
    """A problem with intercept for every pair of categories that can be left out."""
    for first, second in itertools.product(range(_LEVELS), repeat=2):
        name = f"{drugs.EFFECTIVENESS[first]}, {drugs.SIDE_EFFECTS[second]}"
        yield Problem(name, with_intercept(leaving_out(features, (first, second))), ratings, groups)


def header(epsilons: Iterable[float]) -> list[str]:
    """Names of the columns of `table`."""
    return ["method", *(f"ε = {epsilon:g}" for epsilon in epsilons)]


def table(found: Sequence[Scores]) -> list[list[str]]:
    """One problem: a row per method with error over the runs (in expectation), factor to ours, and h."""
    rows = []
    for method in found[0].by_method:
        cells = []
        for scores in found:
            score = scores.by_method[method]
            expected = "" if math.isnan(score.expected) else f" ({shown(score.expected)})"
            limit = "" if score.limit is None else f", h = {score.limit}"
            cells.append(f"{shown(score.mean)}{expected}, ×{scores.factors()[method]:.3g}{limit}")
        rows.append([method, *cells])
    return [*rows, ["least squares, not private", *(shown(scores.least_squares) for scores in found)]]


def shown(error: float) -> str:
    """Two decimals, or none where the error is large."""
    return f"{error:.2f}" if error < 100 else f"{error:,.0f}"


def to_markdown(title: str, found: Sequence[Sequence[Scores]]) -> str:
    """A table for each problem, which comes with all its ε."""
    lines = [
        f"# {title}",
        "",
        "Mean squared prediction error over the runs (its expectation over the noise in brackets) and the factor to",
        "ours. Computed from raw data with seeded noise: not for release. The range of labels and, but for the row",
        "that pays for it, σ² come from the data, as in the paper: not private.",
    ]
    for of_problem in found:
        lines += ["", f"## {of_problem[0].problem}", "", f"{of_problem[0].about}.", ""]
        lines += _markdown(header(scores.epsilon for scores in of_problem), table(of_problem))
    return "\n".join(lines) + "\n"


def left_out_to_markdown(found: Mapping[str, Sequence[Scores]]) -> str:
    """Expected errors for every pair of categories left out, at every ε, and how often the order is the paper's."""
    epsilons = [scores.epsilon for scores in next(iter(found.values()))]
    lines = [
        "# Drugs with intercept, by the categories that are left out",
        "",
        "Expected squared prediction error at every ε: " + " / ".join(f"{epsilon:g}" for epsilon in epsilons) + ".",
        "Computed from raw data: not for release. The last column says where ours < both limits < all rows.",
        "",
    ]
    rows = []
    for name, of_problem in found.items():
        errors = [" / ".join(shown(scores.by_method[m].expected) for scores in of_problem) for m in COMPARED]
        ordered = [f"{scores.epsilon:g}" for scores in of_problem if scores.in_expected_order()]
        rows.append([name, *errors, ", ".join(ordered) or "nowhere"])
    return "\n".join([*lines, *_markdown(["left out", *COMPARED, "in order at ε"], rows)]) + "\n"


def _markdown(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *(f"| {' | '.join(row)} |" for row in rows)]
