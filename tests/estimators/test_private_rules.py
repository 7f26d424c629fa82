"""Rules for rows that a caller applied are named in the statement, and are no settings that were chosen by hand."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.statement import Tuning
from apportion.statistics import UserGroupBy, UserMean

RULES = ("that rows with an empty cell were left out", "that only rows with cost > 0 were kept")


@pytest.mark.parametrize("cls", [UserMean, UserGroupBy])
@pytest.mark.parametrize("with_session", [False, True])
def test_rules_are_in_the_statement_apart_from_what_is_public(cls, with_session):
    session = Session(Budget(1.0, 1e-6), noise=SeededNoise(1)) if with_session else None
    made = cls(epsilon=1.0, delta=1e-6, value_range=(0.0, 1.0), rules=RULES, noise=SeededNoise(0))
    if isinstance(made, UserGroupBy):
        made.set_params(keys=["a", "b"])
    values, users = np.linspace(0, 1, 40), np.arange(40) // 2
    by = {"by": np.array(["a", "b"])[users % 2]} if cls is UserGroupBy else {}
    statement = made.fit(values, users=users, session=session, **by).statement_
    assert statement.rules == RULES
    assert not set(RULES) & set(statement.public)
    assert statement.tuning_kind is Tuning.DEFAULTS
    assert f"Rules for rows, also public: {'; '.join(RULES)}." in statement.to_text()
