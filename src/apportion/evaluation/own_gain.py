"""What each party gains by learning with the others, measured by the party on its own rows.

Every party splits its rows into folds. For each fold it learns from the other folds, once with the released matrices
and once alone, and compares both on the held-out rows. The released matrices come from the whole fit. The held-out rows
took part in it, as part of one task among many and under the noise. That favours learning together a little. Results
are computed from raw data; each belongs only to its party.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.data.standardisation import Standardisation
from apportion.data.vocabulary import Vocabulary
from apportion.losses import Logistic
from apportion.parties import Parties, ProtectedMultiTask
from apportion.parties.tasks import FOLDS, TaskRows

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class OwnGain:
    """One party's comparison.

    Attributes:
        n_rows: number of held-out rows.
        folds: number of folds.
        together: mean loss on these rows when learning with the others; None with fewer than two rows.
        alone: mean loss when learning alone.
    """

    n_rows: int
    folds: int
    together: float | None
    alone: float | None

    @property
    def gain(self) -> float | None:
        """By how much learning together lowers the loss."""
        return None if self.together is None or self.alone is None else self.alone - self.together


def own_gains(
    model: ProtectedMultiTask,
    matrices: Sequence[Floats],
    labels: Sequence[Floats],
    *,
    deviations: bool,
    has: NDArray[np.bool_] | None = None,
    folds: int = FOLDS,
    progress: Progress | None = None,
) -> list[OwnGain]:
    """Return every party's gain: by mean squared error, or by log loss if labels are classes.

    Args:
        model: the model, fitted to these rows in the parties' own units.
        matrices: original features, one matrix for each task.
        labels: one column for each task.
        deviations: whether parties divide features by their standard deviations.
        has: which features each task has, [tasks, features]; None for all.
        folds: number of folds; a party with fewer rows leaves out one row at a time.
        progress: called after every fold.
    """
    parts = [_folds(len(column), folds) for column in labels]
    together, alone = np.zeros(len(labels)), np.zeros(len(labels))
    for fold in range(folds):
        kept = [part != fold for part in parts]
        train = [x[k] for x, k in zip(matrices, kept, strict=True)], [y[k] for y, k in zip(labels, kept, strict=True)]
        units = Standardisation.of(*train, deviations=deviations, classes=model.loss == "logistic")
        parties = learned_again(model, *units.standardised(*train), has=has)
        for total, models in ((together, parties.models()), (alone, parties.alone())):
            total += _losses(units.in_given_units(_masked(models, has)), matrices, labels, kept, model.loss)
        if progress is not None:
            progress("fold", fold + 1, folds)
    return [_gain(len(column), folds, *sums) for column, *sums in zip(labels, together, alone, strict=True)]


def learned_again(
    model: ProtectedMultiTask, matrices: Sequence[Floats], labels: Sequence[Floats], *, has: NDArray[np.bool_] | None
) -> Parties:
    """Return parties that received the released matrices but learned from these rows instead."""
    indptr = np.concatenate([[0], np.cumsum([len(column) for column in labels])]).astype(np.int64)
    ids = Vocabulary.of_range(len(labels), name="task")
    rows = TaskRows(ids, np.concatenate(list(matrices)), np.concatenate(list(labels)), indptr)
    rows = rows if has is None else rows.masked(_widened(has, rows.dimension))
    rows = rows.centred()[0] if model.fit_intercept else rows
    return model.side().after(rows, [released.answer for released in model.released_])


def _folds(n_rows: int, folds: int) -> NDArray[np.int64]:
    """Return the fold of every row, at random from a fixed seed; a single row is never left out."""
    if n_rows < 2:
        return np.full(n_rows, -1)
    return np.random.default_rng(0).permutation(n_rows) % min(folds, n_rows)


def _losses(
    result: tuple[Floats, Floats],
    matrices: Sequence[Floats],
    labels: Sequence[Floats],
    kept: Sequence[NDArray[np.bool_]],
    loss: str,
) -> Floats:
    """Return each task's sum of losses over the held-out rows."""
    sums = np.zeros(len(labels))
    for at, (x, y, k, w, start) in enumerate(zip(matrices, labels, kept, *result, strict=True)):
        scores = x[~k] @ w + start
        if loss == "logistic":
            sums[at] = Logistic().value(scores, y[~k]).sum()
        else:
            sums[at] = np.square(scores - y[~k]).sum()
    return sums


def _gain(n_rows: int, folds: int, together: float, alone: float) -> OwnGain:
    if n_rows < 2:
        return OwnGain(0, 0, None, None)
    return OwnGain(n_rows, min(folds, n_rows), float(together / n_rows), float(alone / n_rows))


def _masked(models: Floats, has: NDArray[np.bool_] | None) -> Floats:
    return models if has is None else models * _widened(has, models.shape[1])


def _widened(has: NDArray[np.bool_], dimension: int) -> NDArray[np.bool_]:
    """Return the mask with a constant at the end, which every task has."""
    return np.pad(has, ((0, 0), (0, dimension - has.shape[1])), constant_values=True)
