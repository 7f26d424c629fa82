"""Statements: read back as they were written, or refused in one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest

from apportion.data.users import Users
from apportion.errors import InputError
from apportion.privacy import (
    ADD_REMOVE,
    REPLACE_VALUES,
    BoundedSum,
    Budget,
    Neighbours,
    PublicRowWeights,
    Purpose,
    RankedRows,
    Rows,
    SeededNoise,
    Session,
    Statement,
    UniformBase,
)
from apportion.privacy.neighbours import RELATIONS
from apportion.privacy.statement import FORMAT, Tuning


def a_session():
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(0), public=["a list"], window="2025")
    plan = session.plan(a=0.1, b=0.1, c=0.1, d=0.1)
    total = BoundedSum.user_total(np.zeros(2), Rows(np.zeros((1, 2)), 1.0))
    session.release(Purpose.POPULARITY, total, plan.one("a"))
    session.release(Purpose.GRADIENT.at(round=2, step=5), total, plan.one("b"))
    session.release_laplace("of my own", total, plan.one("c"))
    session.choose("a choice", total, plan.one("d"))
    session.declare_users(77)
    return session


def test_a_statement_is_read_back_as_it_was_written():
    statement = a_session().statement()
    again = Statement.from_json(statement.to_json())
    assert again == statement
    assert again.neighbours is ADD_REMOVE
    assert again.releases[1].purpose is Purpose.GRADIENT
    assert json.loads(statement.to_json())["releases"][1]["stage"] == {"round": 2, "step": 5}
    sampled = Session(Budget(2.0, 1e-5), neighbours=REPLACE_VALUES).statement()
    assert Statement.from_json(sampled.to_json()).neighbours is REPLACE_VALUES


def test_a_choice_of_points_is_read_back_too():
    session = Session(Budget(1.0, 0.0), noise=SeededNoise(0), neighbours=REPLACE_VALUES)
    rows, base = np.full(4, 0.25), UniformBase(0.0, 4.0)
    users = Users(np.arange(5), {"values": np.arange(4.0), "weights": rows})
    scores = RankedRows(users, PublicRowWeights.from_rows(rows, np.arange(5), "even"), base).scores([], [0.5])
    session.choose_points(Purpose.QUANTILES.at(step=1), scores, base, session.plan(a=1.0).one("a"))
    assert Statement.from_json(session.statement().to_json()) == session.statement()


def test_relations_are_known_by_their_key_whatever_the_words():
    assert len({relation.key for relation in RELATIONS.values()}) == len(RELATIONS)
    stored = json.loads(a_session().statement().to_json())
    stored["neighbours"]["relation"] = "one person more or less"
    assert Statement.from_json(json.dumps(stored)).neighbours is ADD_REMOVE
    stored["neighbours"] = {"key": "swap-shops", "unit": "shop", "relation": "swap two shops"}
    assert Statement.from_json(json.dumps(stored)).neighbours == Neighbours("swap-shops", "shop", "swap two shops")


@pytest.mark.parametrize(
    ("written", "advice"), [(FORMAT + 1, "newer apportion"), (1, "create it again"), (None, "again")]
)
def test_another_format_is_refused_in_one_sentence(written, advice):
    stored = {**json.loads(a_session().statement().to_json()), "format": written, "surplus": 1}
    with pytest.raises(InputError, match=rf"has format {written!r}, but this version .* reads format {FORMAT}") as no:
        Statement.from_json(json.dumps(stored))
    assert advice in str(no.value)
    assert "\n" not in str(no.value)


def test_an_unknown_mechanism_can_be_read_since_its_words_are_stored():
    stored = json.loads(a_session().statement().to_json())
    stored["releases"][0] |= {"mechanism": "quantum", "mechanism_words": "quantum noise"}
    read = Statement.from_json(json.dumps(stored))
    assert "popularity: quantum noise" in read.to_text()


def test_steps_that_differ_in_their_number_alone_share_a_line_if_asked():
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(0))
    shares = session.plan(steps=[0.1] * 3, last=0.5)
    total = BoundedSum.user_total(np.zeros(2), Rows(np.zeros((1, 2)), 1.0))
    for step, share in enumerate(shares.several("steps"), start=1):
        session.release(Purpose.GRADIENT.at(step=step), total, share)
    session.release(Purpose.GRADIENT.at(step=4), total, shares.one("last"))
    session.declare_tuning("by thought")
    text = session.statement().to_text(fold_steps=True)
    assert "  steps 1 to 3, each: gradient: Gaussian, 2, 10 % of the budget" in text
    assert "  step 4: gradient: Gaussian, 2, 50 %" in text
    assert "  step 2: gradient" in session.statement().to_text()
    assert session.statement().tuning_kind is Tuning.DECLARED
