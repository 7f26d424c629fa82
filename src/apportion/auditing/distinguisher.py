"""A trained distinguisher: one number for each output of a mechanism, larger if one data set is more likely.

It learns from draws on two neighbouring data sets how to separate them, if the caller has not said what to look at.
Whatever it learns, a bound from draws that it has not seen is valid; a poor distinguisher only makes the bound small.

Three small models are tried, and the best on part of the training draws is kept: logistic regression on the numbers,
logistic regression with their squares, products and extremes, and a histogram of the first model's score. Features are
whitened by their covariance within each data set, so that a direction without noise is found however small it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.auditing.likelihood import epsilon_from_statistics
from apportion.errors import InputError

Floats = NDArray[np.float64]
Score = Callable[[Floats], Floats]

_FEW = 12  # up to this many columns, all pairwise products are features
_BINS = 40
_LARGEST_LOGIT = 30.0


def as_matrix(outputs: Sequence[Any] | NDArray[Any], width: int | None = None) -> Floats:
    """Return one row of numbers for each output, and the longest length; shorter rows are padded.

    Args:
        outputs: numbers, arrays, or mappings and sequences of these.
        width: columns of the result; None for as many as the longest output needs.
    """
    if isinstance(outputs, np.ndarray) and outputs.dtype != object:
        rows = np.asarray(outputs, np.float64).reshape(len(outputs), -1)
        lengths = np.full(len(rows), rows.shape[1])
    else:
        parts = [np.fromiter(_numbers(output), np.float64) for output in outputs]
        lengths = np.array([len(part) for part in parts])
        rows = np.zeros((len(parts), int(lengths.max(initial=0))))
        for row, part in zip(rows, parts, strict=True):
            row[: len(part)] = part
    wide = rows.shape[1] if width is None else width - 1
    fitted = np.zeros((len(rows), wide))
    fitted[:, : min(wide, rows.shape[1])] = rows[:, :wide]
    lost = ~np.isfinite(fitted)
    return np.column_stack([np.where(lost, 0.0, fitted), lengths + 0.5 * lost.sum(axis=1)])


def train(here: Floats, there: Floats, delta: float = 0.0) -> Score:
    """Return a score that tends to be larger on draws like those of `here` than on those like `there`.

    Args:
        here: one row for each draw on one data set.
        there: the same on its neighbour.
        delta: the δ of the guarantee under test.
    """
    if min(len(here), len(there)) < 20:
        raise InputError(
            f"Expected at least 20 draws on each data set, got {len(here)} and {len(there)}.", argument=None
        )
    tried, kept = (here[::3], there[::3]), (np.delete(here, np.s_[::3], 0), np.delete(there, np.s_[::3], 0))

    def gain(score: Score) -> float:
        one, two = score(tried[0]), score(tried[1])
        ways = epsilon_from_statistics(one, two, 0.1, delta), epsilon_from_statistics(-two, -one, 0.1, delta)
        return max(ways)

    linear = _logistic(*kept, _plain)
    models = [linear, _logistic(*kept, _enriched), _histogram(*kept, linear)]
    return max(models, key=gain)


def _plain(rows: Floats) -> Floats:
    return rows


def _enriched(rows: Floats) -> Floats:
    """Return the numbers, compressed, their squares or products, and the extremes of each row."""
    soft = np.arcsinh(rows)
    if rows.shape[1] <= _FEW:
        one, two = np.triu_indices(rows.shape[1])
        squares = soft[:, one] * soft[:, two]
    else:
        squares = np.square(soft)
    extremes = [soft.max(axis=1), soft.min(axis=1), np.log1p(np.square(rows).sum(axis=1))]
    return np.column_stack([soft, squares, np.abs(soft), *extremes])


def _logistic(here: Floats, there: Floats, features: Callable[[Floats], Floats]) -> Score:
    """Fit a logistic regression with a small ridge on whitened features."""
    centre = np.median(np.concatenate([here, there]), axis=0)
    spread = np.maximum(np.sqrt((here.var(axis=0) + there.var(axis=0)) / 2), 1e-9)

    def prepared(rows: Floats) -> Floats:
        return features((rows - centre) / spread)

    one, two = prepared(here), prepared(there)
    whitening = _whitening(one, two)
    middle = (one.mean(axis=0) + two.mean(axis=0)) / 2
    coefficients = _newton((one - middle) @ whitening, (two - middle) @ whitening)
    direction = whitening @ coefficients
    return lambda rows: np.asarray((prepared(rows) - middle) @ direction)


def _whitening(one: Floats, two: Floats) -> Floats:
    """Return a matrix that whitens the covariance within the two sets; directions without noise become large."""
    within = [np.atleast_2d(np.cov(rows, rowvar=False)) for rows in (one, two)]
    values, vectors = np.linalg.eigh((within[0] + within[1]) / 2)
    floor = 1e-12 * max(float(values.max(initial=0.0)), 1e-300)
    return np.asarray(vectors / np.sqrt(np.maximum(values, floor)))


def _newton(one: Floats, two: Floats, ridge: float = 1e-2, steps: int = 25) -> Floats:
    """Return coefficients without an intercept, because thresholds are chosen later."""
    rows = np.concatenate([one, two])
    signs = np.concatenate([np.ones(len(one)), -np.ones(len(two))])
    result = np.zeros(rows.shape[1])
    for _ in range(steps):
        margins = np.clip(signs * (rows @ result), -_LARGEST_LOGIT, _LARGEST_LOGIT)
        wrong = 1 / (1 + np.exp(margins))
        slope = rows.T @ (signs * wrong) / len(rows) - ridge * result
        curvature = (rows * (wrong * (1 - wrong))[:, None]).T @ rows / len(rows) + ridge * np.eye(len(result))
        step = np.linalg.solve(curvature, slope)
        result += step * min(1.0, 5.0 / max(float(np.abs(rows @ step).max(initial=0.0)), 1e-12))
        if float(np.abs(step).max(initial=0.0)) < 1e-6:
            break
    return result


def _histogram(here: Floats, there: Floats, score: Score) -> Score:
    """Return the log ratio of two histograms of a score, with bins of equal counts."""
    one, two = score(here), score(there)
    edges = np.unique(np.quantile(np.concatenate([one, two]), np.linspace(0, 1, _BINS + 1)[1:-1]))
    counts = [np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1) for values in (one, two)]
    table = np.log((counts[0] + 1) / (counts[0].sum() + 1)) - np.log((counts[1] + 1) / (counts[1].sum() + 1))
    return lambda rows: np.asarray(table[np.searchsorted(edges, score(rows))])


def _numbers(output: Any) -> Iterable[float]:
    """Yield all numbers of a nested output, in order."""
    if isinstance(output, Mapping):
        for key in sorted(output, key=str):
            yield from _numbers(output[key])
    elif isinstance(output, np.ndarray):
        yield from output.astype(np.float64).ravel().tolist()
    elif isinstance(output, list | tuple):
        for part in output:
            yield from _numbers(part)
    elif isinstance(output, bool | int | float | np.generic):
        yield float(output)
    else:
        raise InputError(
            f"Expected outputs made of numbers, arrays, mappings and sequences, got {type(output).__name__}.",
            argument="outputs",
        )
