"""Leaks in whole commands: raw numbers that reach a file or a figure beside what was released."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from apportion.auditing import AuditError
from apportion.evaluation import tuning
from apportion.evaluation.validation_scores import keep_back
from apportion.recommend import PrivateRatingRecommender
from apportion.regression import LabelPrivateRegression
from command_runs import FIT, OTHER_VALUES, WITHOUT_USERS, made_rows, turned, unequal, without, written_twice
from planted.cases import Case, Verdict


@dataclass(frozen=True)
class Leak:
    """A command and what is wrong with it.

    Attributes:
        steps: what is run.
        wrong: puts the bug in.
        right: the twin: the command as it is, or with the same change from released numbers alone.
    """

    steps: list
    wrong: Callable[[], AbstractContextManager]
    right: Callable[[], AbstractContextManager] = mock.MagicMock


def raw_mean_in_a_setting():
    fit = PrivateRatingRecommender.fit

    def leaking(self, data, *arguments, **named):
        fitted = fit(self, data, *arguments, **named)
        fitted.model_.settings["mean"] = float(data.values.mean())
        return fitted

    return mock.patch.object(PrivateRatingRecommender, "fit", leaking)


def score_over_the_true_count():
    one_try = tuning._one_try

    def leaking(parts, *arguments):
        true = int((keep_back(parts.validation)[1].by_user.counts > 0).sum())
        return replace(one_try(parts, *arguments), n_users=float(true))

    return mock.patch.object(tuning, "_one_try", leaking)


def intervals_from(spread):
    """Intervals of coefficients that are as wide as a function of labels, features and the fitted line says."""
    fit = LabelPrivateRegression.fit

    def changed(self, X, y, **named):
        fitted = fit(self, X, y, **named)
        fitted.coef_intervals_ = fitted.coef_[:, None] + np.array([-2.0, 2.0]) * spread(np.asarray(y), X, fitted)
        return fitted

    return mock.patch.object(LabelPrivateRegression, "fit", changed)


def of_raw_residuals(y, X, fitted):
    return float(np.std(y - fitted.predict(X)))


def of_predictions(y, X, fitted):
    return 1.0 + float(np.std(fitted.predict(X)))


LEAKS = {
    "a raw mean among the settings of a model": Leak([FIT], raw_mean_in_a_setting),
    "a search divides by the true number of validation users": Leak(WITHOUT_USERS["search"], score_over_the_true_count),
    "intervals from the variance of raw residuals": Leak(
        OTHER_VALUES["regress"], partial(intervals_from, of_raw_residuals), partial(intervals_from, of_predictions)
    ),
}


def looked_at(steps, wrong, folder):
    """What differs between two runs on different data with the same releases."""
    rows, users = made_rows(), range(5, 60)
    other = turned(rows, *users) if steps in OTHER_VALUES.values() else without(rows, *users)
    with wrong():
        first, second, _ = written_twice(steps, rows, other, Path(folder))
    return unequal(first, second)


def judged(steps, wrong):
    """Whether anything differs. There is no chance in it: noise is seeded, and numbers are printed with all digits."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = looked_at(steps, wrong, folder)
        except AuditError as error:  # other releases than the first run's
            return Verdict(True, str(error)[:120])
    return Verdict(bool(found), f"differ on data with the same releases: {', '.join(found) or 'nothing'}"[:120])


def cases():
    """Every leak, and its twin without one."""
    return [
        Case(
            name,
            "a hostile reading",
            "bytes",
            lambda leak=leak: judged(leak.steps, leak.wrong),
            lambda leak=leak: judged(leak.steps, leak.right),
        )
        for name, leak in LEAKS.items()
    ]
