"""The synthetic data of section 6, and figures 1 to 3 drawn from them.

Rows come from scikit-learn's make_regression: 10 features of which 5 matter, bias 0, noise 20. The number of users with
i rows is proportional to 1/i^α and rounded, as many users as there are rows for; what is left goes to one more. Rows
are assigned at random. Every n takes the first rows of one draw, so that only n changes from one problem to the next.

Figure 1: error against n at α = 1.5, ε = 1. Figure 2: error against α at n = 3000, ε = 1. Figure 3: other ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_regression

from apportion.report.svg import Drawing, Linear, Log
from papers.user_contributions.linear import ALL_ROWS, BEST_LIMIT, EPSILONS, OURS, PAID, Problem, Scores

N_FEATURES, N_INFORMATIVE, NOISE = 10, 5, 20.0
SEED = 0
DRAWN = (OURS, PAID, BEST_LIMIT, ALL_ROWS)


@dataclass(frozen=True)
class Study:
    """What is run; the defaults are the paper's.

    Attributes:
        sizes: n, at `exponent`.
        exponents: α, at the largest n.
        exponent: α of the study over n.
        epsilons: ε.
    """

    sizes: tuple[int, ...] = (600, 1200, 1800, 2400, 3000)
    exponents: tuple[float, ...] = (1.0, 1.25, 1.5, 1.75, 2.0)
    exponent: float = 1.5
    epsilons: tuple[float, ...] = EPSILONS

    def settings(self) -> list[tuple[int, float]]:
        """Every (n, α) once."""
        over_sizes = [(n_rows, self.exponent) for n_rows in self.sizes]
        return list(dict.fromkeys(over_sizes + [(max(self.sizes), exponent) for exponent in self.exponents]))

    def problem(self, n_rows: int, exponent: float) -> Problem:
        """The data of one setting."""
        features, labels = make_regression(
            n_samples=max(self.sizes),
            n_features=N_FEATURES,
            n_informative=N_INFORMATIVE,
            bias=0.0,
            noise=NOISE,
            random_state=SEED,
        )
        sizes = zipf_sizes(n_rows, exponent)
        groups = np.random.default_rng(SEED).permutation(np.repeat(np.arange(len(sizes)), sizes))
        return Problem(f"synthetic, n = {n_rows}, α = {exponent:g}", features[:n_rows], labels[:n_rows], groups)


def zipf_sizes(n_rows: int, exponent: float) -> NDArray[np.int64]:
    """How many rows each user has: about c/i^α users with i rows, with the largest c that the rows allow.

    >>> zipf_sizes(20, 1.5).tolist()
    [1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4]
    """
    possible = np.arange(1, n_rows + 1)
    low, high = 0.0, float(n_rows)
    for _ in range(60):
        middle = (low + high) / 2
        fits = bool((np.rint(middle * possible**-exponent) * possible).sum() <= n_rows)
        low, high = (middle, high) if fits else (low, middle)
    users = np.rint(low * possible**-exponent).astype(np.int64)
    left = n_rows - int((users * possible).sum())
    if left:
        users[left - 1] += 1
    return np.repeat(possible, users)


_STYLE = (
    "text{font:11px sans-serif;fill:#333} .title{font-weight:600} path{fill:none;stroke-width:1.6} line{stroke:#ddd} "
    + " ".join(
        f".c{k}{{stroke:{colour}}} text.c{k}{{fill:{colour};stroke:none}} circle.c{k}{{fill:{colour}}}"
        for k, colour in enumerate(("#0f6e78", "#5d7f2f", "#b65a2b", "#a6415f"))
    )
)
_PANEL, _HEIGHT, _LEGEND = 270.0, 220.0, 24.0
Line = tuple[float, Scores]


def figure(found: Sequence[Line], across_name: str) -> str:
    """Error on a ratio scale against n or α: a panel per ε, a line per method."""
    epsilons = sorted({scores.epsilon for _, scores in found})
    picture = Drawing(_PANEL * len(epsilons), _HEIGHT + _LEGEND, f"Prediction error against {across_name}")
    errors = [scores.by_method[name].mean for _, scores in found for name in DRAWN]
    low, high = min(errors) / 1.3, max(errors) * 1.3
    for column, epsilon in enumerate(epsilons):
        panel = [(x, scores) for x, scores in found if scores.epsilon == epsilon]
        up = Log(low, high, _HEIGHT - 34, 24)
        _panel(picture, panel, up, _PANEL * column, f"ε = {epsilon:g}", across_name)
    for order, name in enumerate(DRAWN):
        picture.text((44 + 190.0 * order, _HEIGHT + 14), f"● {name}", f"c{order}")
    markup = picture.markup().replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    inside = markup.index(">") + 1
    return f'{markup[:inside]}<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{markup[inside:]}\n'


def _panel(picture: Drawing, panel: Sequence[Line], up: Log, left: float, title: str, across_name: str) -> None:
    places = sorted(x for x, _ in panel)
    across = Linear(places[0], places[-1], left + 62, left + _PANEL - 16)
    picture.text((left + 62, 16), title, "title")
    for tick in up.ticks():
        picture.line((across.start, up(tick)), (across.end, up(tick)), "")
        picture.text((across.start - 5, up(tick) + 4), f"{tick:,.0f}", anchor="end")
    for place in places:
        picture.text((across(place), up.start + 15), f"{place:g}", anchor="middle")
    picture.text(((across.start + across.end) / 2, up.start + 30), across_name, anchor="middle")
    for order, name in enumerate(DRAWN):
        points = [(across(x), up(scores.by_method[name].mean)) for x, scores in sorted(panel, key=lambda line: line[0])]
        picture.path(points, f"c{order}")
        for point in points:
            picture.circle(point, 2.4, f"c{order}")
