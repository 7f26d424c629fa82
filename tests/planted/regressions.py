"""Bugs of regressions: intervals and choices that look at the data behind the releases' back."""

from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np

from apportion.privacy import REPLACE_LABELS, REPLACE_VALUES, Budget
from apportion.regression import LabelPrivateRegression, UserERM
from planted.cases import Case, replayed_on

GROUPS = np.repeat(np.arange(40), np.arange(40) % 7 + 1)
X = np.linspace(-1, 1, len(GROUPS))
ONE = X + 0.3 * np.sin(9.0 * np.arange(len(X)))
OTHER = np.where(GROUPS == 6, 2.0, ONE)


# -- an interval from raw residuals --


def regression(labels, session, *, raw):
    """The intervals of a regression; the bug scales them by residuals of the labels around the released line."""
    model = LabelPrivateRegression(label_range=(-2, 2)).fit(X[:, None], labels, users=GROUPS, session=session)
    intervals = model.coef_intervals_
    if raw:
        residuals = labels - model.predict(X[:, None])
        width = 2 * np.sqrt(np.square(residuals).mean() / np.square(X).sum())
        intervals = np.stack([model.coef_ - width, model.coef_ + width], axis=1)
    return {"coefficients": model.coef_, "intervals": intervals}


# -- a floor that compares raw losses --


def floored(labels, session, *, raw):
    """Which of constant and model is published; the bug compares their losses on the data themselves."""
    model = UserERM("logistic", steps=2, sizes="public")
    classes = (labels > 0.5).astype(float)

    def compared(start, found, *_):
        rows = np.column_stack([X, np.ones(len(X))])
        losses = [np.logaddexp(0, -(2 * classes - 1) * (rows @ theta[0])).mean() for theta in (start, found)]
        return float(losses[0] - losses[1])

    if raw:
        with mock.patch.object(model, "_compared", compared):
            model.fit(X[:, None], classes, users=GROUPS, session=session)
    else:
        model.fit(X[:, None], classes, users=GROUPS, session=session)
    return {"coefficients": model.coef_, "part": model.model_part_}


def cases():
    """Every bug of this file."""
    yield Case(
        "an interval from raw residuals", "habit", "replay",
        *(
            partial(replayed_on, partial(regression, raw=wrong), ONE, OTHER, Budget(2.0, 0.0), REPLACE_LABELS)
            for wrong in (True, False)
        ),
    )  # fmt: skip
    yield Case(
        "a floor that compares raw losses", "habit", "replay",
        *(
            partial(replayed_on, partial(floored, raw=wrong), ONE, OTHER, Budget(500.0, 1e-5), REPLACE_VALUES)
            for wrong in (True, False)
        ),
    )  # fmt: skip
