"""A new mechanism: it is charged, drawn, stated and audited like the library's own."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.auditing import audit_neighbour
from apportion.errors import InputError
from apportion.privacy import BoundedSum, Budget, Rows, SeededNoise, Session
from extending.mechanism.staircase import Staircase


def a_sum(rows=((1.0,),), norm=1.0):
    values = np.asarray(rows)
    return BoundedSum.user_total(values.sum(axis=0), Rows(values, norm))


def test_it_is_charged_stated_and_replayed_without_a_change_elsewhere():
    session = Session(Budget(1.0, 0.0), noise=SeededNoise(0))
    session.release_with(Staircase(), "mine", a_sum(), session.plan(a=0.5).one("a"))
    (release,) = session.statement().releases
    assert (release.mechanism, release.epsilon) == ("staircase", pytest.approx(0.5))

    def fit(rows, session):
        return {"sum": session.release_with(Staircase(), "mine", a_sum(rows), session.plan(a=1.0).one("a"))}

    arguments = {"budget": Budget(1.0, 0.0), "noise": SeededNoise(1)}
    assert audit_neighbour(fit, [[1.0], [0.5]], [[0.5]], arguments) == {"mine": 1.0}


def test_what_its_proof_does_not_cover_is_refused_before_a_charge():
    session = Session(Budget(1.0, 0.0), noise=SeededNoise(0))
    for wrong in (a_sum([[2.0]], 2.0), a_sum([[0.5, 0.5]])):
        with pytest.raises(InputError, match="one number that moves by at most 1"):
            session.release_with(Staircase(), "mine", wrong, session.plan(a=0.5).one("a"))
    assert session.spent == 0
