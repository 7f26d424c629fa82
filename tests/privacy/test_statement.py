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


def test_steps_that_differ_only_in_number_share_and_noise_are_on_one_line_if_asked():
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(0))
    shares = session.plan(steps=[0.1, 0.3, 0.1], last=0.25)
    total = BoundedSum.user_total(np.zeros(2), Rows(np.zeros((1, 2)), 1.0))
    for step, share in enumerate(shares.several("steps"), start=1):
        session.release(Purpose.GRADIENT.at(step=step), total, share)
    session.release(Purpose.GRADIENT.at(step=5), total, shares.one("last"))
    session.declare_tuning("by thought")
    noises = sorted(release.stddev for release in session.statement().releases)
    text = session.statement().to_text(fold=True)
    together = "  steps 1 to 3, each: gradient: Gaussian, 2, 50 % of the budget together (10 to 30 % each)"
    assert together in text
    assert f"noise {noises[0]:.4g} to {noises[-1]:.4g}" in text
    assert "  step 5: gradient: Gaussian, 2, 25 % of the budget, " in text
    assert "  step 2: gradient" in session.statement().to_text()
    assert session.statement().tuning_kind is Tuning.DECLARED


def test_rounds_are_on_one_line_only_where_they_release_the_same_sums():
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(0))
    shares = iter(session.plan(rounds=[0.1] * 6).several("rounds"))
    for number in range(3):
        for purpose, norm in ((Purpose.ITEM_SUMS, 2.0 if number == 0 else 1.0), (Purpose.SHARED_MOMENTS, 1.0)):
            total = BoundedSum.user_total(np.zeros(2), Rows(np.zeros((1, 2)), norm))
            session.release(purpose.at(round=number), total, next(shares))
    lines = [line.split(": Gaussian")[0] for line in session.statement().to_text(fold=True).splitlines()[-3:]]
    assert lines == [
        "  round 0: item sums",
        "  rounds 0 to 2, each: shared moments",
        "  rounds 1 to 2, each: item sums",
    ]
