"""The synthetic study of the paper's App. C: test error against the exponent of the weights.

m = 100 linear tasks in d = 5 dimensions, n = 10,000 users. User j has one feature vector u_j for all tasks, task i has
parameters θ_i, both Gaussian and projected on the unit ball; labels are u_j · θ_i plus noise of 0.001. Task i gets a
value q_i from the power law with density a x^(a−1) on [0, 1], a = 1 or 2; the values are scaled to sum to 20, and each
user takes part in task i with probability q_i, which never comes near 1 here and is cut there. 80 % of the pairs are
for training, 20 % for the test. Weights are n_i^(−μ), normalised per user; the exact n_i are public, as in the paper.
δ = 1e-5.

What the paper leaves open is settled so. Algorithm 1 is run with the paper's solve (projected on the ball of radius 1,
Γ_x = 1, Γ_y = 1) and with the library's. Algorithm 2 minimises the squared loss with the steps of Theorem 3.12 (a)
times a factor, and returns the mean iterate. Settings are chosen from `GRIDS` for every method, skew, ε and exponent
alike, on a draw of the data that is used for nothing else; so is the exponent that is compared with 0. Every seed draws
data and noise anew; exponents are compared on the same draws.

`make claim NAME=skew-synthetic` runs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Adaptive, KnownCounts
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.privacy import SeededNoise
from apportion.regression import MultiTaskERM, MultiTaskRidge, Observations
from apportion.report.svg import Drawing, Linear, Log

Floats = NDArray[np.float64]
Settings = Mapping[str, Any]

RESULTS = Path(__file__).parent / "results"
DELTA, LABEL_NOISE, TUNING_SEED = 1e-5, 1e-3, 1000
PAPER, SHRUNK, DESCENT = "Algorithm 1, the paper's solve", "Algorithm 1, shrunk", "Algorithm 2"
METHODS = (PAPER, SHRUNK, DESCENT)


def _grid(**choices: Sequence[Any]) -> tuple[Settings, ...]:
    return tuple(dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values()))


GRIDS: dict[str, tuple[Settings, ...]] = {
    PAPER: _grid(ridge=(0.0, 1e-3, 1e-2, 1e-1)),
    SHRUNK: _grid(ridge=(0.0, 1e-3, 1e-2, 1e-1)),
    DESCENT: _grid(gradient_bound=(0.03, 0.1), step_size=(1.0, 3.0), steps=(30, 100)),
}


@dataclass(frozen=True)
class Study:
    """What is run; the defaults are the paper's sizes."""

    n_users: int = 10_000
    n_tasks: int = 100
    dimension: int = 5
    tasks_per_user: float = 20.0
    skews: tuple[float, ...] = (1.0, 2.0)
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0)
    exponents: tuple[float, ...] = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)
    seeds: int = 12
    grids: Mapping[str, tuple[Settings, ...]] = field(default_factory=lambda: GRIDS)


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of the data."""

    train: Observations
    test: Observations
    counts: Floats
    n_users: int


def draw(study: Study, skew: float, seed: int) -> Draw:
    """Draw features, parameters, the graph and the labels, and split the pairs."""
    rng = np.random.default_rng([seed, round(100 * skew)])
    features = in_unit_ball(rng.standard_normal((study.n_users, study.dimension)))
    parameters = in_unit_ball(rng.standard_normal((study.n_tasks, study.dimension)))
    chances = rng.random(study.n_tasks) ** (1 / skew)
    chances = np.minimum(chances * study.tasks_per_user / chances.sum(), 1.0)
    users, tasks = np.nonzero(rng.random((study.n_users, study.n_tasks)) < chances)
    labels = np.einsum("nd,nd->n", features[users], parameters[tasks])
    labels += LABEL_NOISE * rng.standard_normal(len(labels))
    in_training = rng.random(len(users)) < 0.8
    ids = np.arange(study.n_tasks)
    parts = [
        Observations(
            Interactions.from_arrays(users[part], tasks[part], task_ids=ids), features[users[part]], labels[part]
        )
        for part in (in_training, ~in_training)
    ]
    counts = np.bincount(tasks[in_training], minlength=study.n_tasks).astype(np.float64)
    return Draw(parts[0], parts[1], np.maximum(counts, 1.0), study.n_users)


def in_unit_ball(vectors: Floats) -> Floats:
    """Project every row on the unit ball."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0))


def error_on_test(method: str, data: Draw, epsilon: float, exponent: float, settings: Settings, seed: int) -> float:
    """Fit one model and return its RMSE on the test pairs."""
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "allocation": KnownCounts(Adaptive(exponent, floor=0.0), data.counts, data.n_users),
        "noise": SeededNoise(seed),
        "engine": LocalEngine(np.float64),
    }
    model: MultiTaskRidge | MultiTaskERM
    if method == DESCENT:
        model = MultiTaskERM("squared", floor=False, **common, **settings)
    elif method == PAPER:
        model = MultiTaskRidge(solve="psd", coefficient_bound=1.0, **common, **settings)
    else:
        model = MultiTaskRidge(**common, **settings)
    test = data.test
    coefficients = model.fit_observations(data.train).coef_[test.data.tasks]
    predicted = np.einsum("nd,nd->n", test.features, coefficients)
    return float(np.sqrt(np.square(predicted - test.labels).mean()))


@dataclass(frozen=True)
class Curve:
    """One method at one skew and ε: test errors [exponent, seed], and what was chosen on the tuning draw.

    Attributes:
        method: of `METHODS`.
        skew: a.
        epsilon: ε.
        errors: RMSE of every exponent (rows) and seed (columns).
        settings: for every exponent.
        best: position of the chosen exponent within (0, 1/2].
    """

    method: str
    skew: float
    epsilon: float
    errors: Floats
    settings: tuple[Settings, ...]
    best: int

    @property
    def log_gain(self) -> Floats:
        """Log of the error at exponent 0 over that at the chosen one, for every seed."""
        return np.asarray(np.log(self.errors[0] / self.errors[self.best]))

    @property
    def factor(self) -> float:
        """By what factor the chosen exponent is better than 0, a geometric mean over seeds."""
        return float(np.exp(self.log_gain.mean()))

    @property
    def factor_error(self) -> float:
        """Standard error of `factor`."""
        return self.factor * float(self.log_gain.std(ddof=1) / np.sqrt(self.log_gain.size))

    @property
    def t_statistic(self) -> float:
        """Mean log gain over its standard error."""
        return float(np.log(self.factor) / max(self.factor_error / self.factor, 1e-12))


def curves(study: Study) -> Iterator[Curve]:
    """Every method, skew and ε, one after another."""
    for skew in study.skews:
        tuning = draw(study, skew, TUNING_SEED)
        draws = [draw(study, skew, seed) for seed in range(study.seeds)]
        for method, epsilon in itertools.product(study.grids, study.epsilons):
            yield _curve(study, method, skew, epsilon, tuning, draws)


def _curve(study: Study, method: str, skew: float, epsilon: float, tuning: Draw, draws: Sequence[Draw]) -> Curve:
    chosen: list[Settings] = []
    tuned: list[float] = []
    for exponent in study.exponents:
        tried = [error_on_test(method, tuning, epsilon, exponent, s, TUNING_SEED) for s in study.grids[method]]
        chosen.append(study.grids[method][int(np.argmin(tried))])
        tuned.append(min(tried))
    errors = [
        [error_on_test(method, data, epsilon, exponent, settings, seed) for seed, data in enumerate(draws)]
        for exponent, settings in zip(study.exponents, chosen, strict=True)
    ]
    within = [k for k, exponent in enumerate(study.exponents) if 0 < exponent <= 0.5]
    best = min(within, key=tuned.__getitem__)
    return Curve(method, skew, epsilon, np.array(errors), tuple(chosen), best)


def table(study: Study, found: Sequence[Curve]) -> list[list[str]]:
    """Rows of mean ± standard deviation, a column per exponent, then the factor and its standard error."""
    rows = []
    for curve in found:
        means, spreads = curve.errors.mean(axis=1), curve.errors.std(axis=1, ddof=1)
        cells = [f"{mean:.4f}±{spread:.4f}" for mean, spread in zip(means, spreads, strict=True)]
        gain = f"{curve.factor:.3f}±{curve.factor_error:.3f} at {study.exponents[curve.best]:g}"
        rows.append([curve.method, f"{curve.skew:g}", f"{curve.epsilon:g}", *cells, gain, f"{curve.t_statistic:.1f}"])
    return rows


def header(study: Study) -> list[str]:
    """Names of the columns of `table`."""
    return ["method", "a", "ε", *(f"μ={exponent:g}" for exponent in study.exponents), "factor over μ=0", "t"]


def write(study: Study, found: Sequence[Curve], folder: Path = RESULTS) -> None:
    """Write the table as Markdown and the curves as a drawing."""
    folder.mkdir(parents=True, exist_ok=True)
    names = header(study)
    lines = [
        "# Synthetic study: test RMSE against the exponent μ of the weights",
        "",
        f"Mean ± standard deviation over {study.seeds} draws of data and noise; δ = {DELTA:g}. The noise is seeded.",
        "The factor is RMSE at μ = 0 over RMSE at the best μ in (0, 1/2], chosen on a draw used for nothing else.",
        "",
        f"| {' | '.join(names)} |",
        f"|{'---|' * len(names)}",
        *(f"| {' | '.join(row)} |" for row in table(study, found)),
        "",
        "Settings were chosen for every cell from these grids:",
        "",
        *(f"- {method}: {_in_words(grid)}" for method, grid in study.grids.items()),
    ]
    (folder / "synthetic.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "synthetic.svg").write_text(figure(study, found), encoding="utf-8")


def _in_words(grid: Sequence[Settings]) -> str:
    values = {name: sorted({settings[name] for settings in grid}) for name in grid[0]}
    return "; ".join(f"{name} in {', '.join(f'{value:g}' for value in listed)}" for name, listed in values.items())


_STYLE = (
    "text{font:11px sans-serif;fill:#333} .title{font-weight:600} path{fill:none;stroke-width:1.6} "
    "line{stroke:#ddd} .bar{stroke-width:1.2} "
    + " ".join(
        f".c{k}{{stroke:{colour}}} text.c{k}{{fill:{colour};stroke:none}} circle.c{k}{{fill:{colour}}}"
        for k, colour in enumerate(("#4c6f91", "#0f6e78", "#b65a2b", "#9a5d9c", "#5d7f2f", "#a6415f"))
    )
)
_PANEL, _HEIGHT = 270.0, 210.0


def figure(study: Study, found: Sequence[Curve]) -> str:
    """RMSE against μ on a ratio scale: a panel per method and skew, a line per ε, bars of one standard deviation."""
    methods = list(dict.fromkeys(curve.method for curve in found))
    size = (_PANEL * len(methods), _HEIGHT * len(study.skews) + 8)
    picture = Drawing(*size, "Test error against the exponent of weights")
    for (column, method), (row, skew) in itertools.product(enumerate(methods), enumerate(study.skews)):
        panel = [curve for curve in found if (curve.method, curve.skew) == (method, skew)]
        _panel(picture, study, panel, _PANEL * column, _HEIGHT * row)
    markup = picture.markup().replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    inside = markup.index(">") + 1
    return f'{markup[:inside]}<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{markup[inside:]}\n'


def _panel(picture: Drawing, study: Study, panel: Sequence[Curve], left: float, top: float) -> None:
    means = np.array([curve.errors.mean(axis=1) for curve in panel])
    across = Linear(0.0, max(study.exponents), left + 44, left + _PANEL - 48)
    up = Log(float(means.min()) / 1.3, float(means.max()) * 1.3, top + _HEIGHT - 34, top + 24)
    picture.text((left + 44, top + 16), f"{panel[0].method}, a = {panel[0].skew:g}", "title")
    for tick in up.ticks():
        picture.line((across.start, up(tick)), (across.end, up(tick)), "")
        picture.text((across.start - 5, up(tick) + 4), f"{tick:g}", anchor="end")
    for exponent in across.ticks():
        picture.text((across(exponent), up.start + 15), f"{exponent:g}", anchor="middle")
    picture.text(((across.start + across.end) / 2, up.start + 30), "exponent μ", anchor="middle")
    places = _apart([up(float(line[-1])) for line in means])
    for order, (curve, place) in enumerate(zip(panel, places, strict=True)):
        _line(picture, study, curve, across, up, f"c{order % 6}")
        picture.text((across.end + 6, place + 4), f"ε = {curve.epsilon:g}", f"c{order % 6}")


def _line(picture: Drawing, study: Study, curve: Curve, across: Linear, up: Log, css: str) -> None:
    means, spreads = curve.errors.mean(axis=1), curve.errors.std(axis=1, ddof=1)
    points = [(across(x), up(float(y))) for x, y in zip(study.exponents, means, strict=True)]
    picture.path(points, css)
    for (x, y), mean, spread in zip(points, means, spreads, strict=True):
        picture.line((x, up(float(mean - spread))), (x, up(float(mean + spread))), f"bar {css}")
        picture.circle((x, y), 2.2, css)


def _apart(places: Sequence[float], gap: float = 12.0) -> list[float]:
    """Places of labels from top to bottom, moved down until none covers the one above."""
    moved = list(places)
    for above, below in itertools.pairwise(np.argsort(places).tolist()):
        moved[below] = max(moved[below], moved[above] + gap)
    return moved
