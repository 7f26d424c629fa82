"""The closed list: only its names exist, and whatever numbers come with them, one user moves a sum within its bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.allocation.weightings import SplitEqually, TaskFactors
from apportion.data.users import Users
from apportion.engines import Processors
from apportion.errors import InputError
from apportion.federated import Question
from apportion.linalg import RatingRound
from apportion.parties import parties_of
from apportion.privacy.contributions import (
    ClippedParts,
    HeldOut,
    Output,
    RatingParts,
    TaskCounts,
    WithoutHeldOut,
    step_of,
)
from apportion.recommend.model import FoldIn
from apportion.transport.catalogue import CATALOGUE, checked, name_of, read, written
from apportion.transport.listed import PublicFacts
from apportion.transport.plain import packed, unpacked
from apportion.transport.question import sums_over

N_ITEMS = 4
FACTS = PublicFacts(N_ITEMS)


def regression(rng, size, kind=np.float64, dimension=3):
    """A regression of arbitrary numbers, some of them far too large."""

    def numbers(*shape):
        return (size * rng.standard_normal(shape)).astype(kind)

    base = numbers(dimension, dimension)
    fold_in = FoldIn(numbers(N_ITEMS, dimension), abs(numbers(N_ITEMS)), base + base.T, numbers(dimension))
    names = ("features", "observation_weights", "base", "base_rhs")
    return {"dimension": dimension, **{name: getattr(fold_in, name).tobytes() for name in names}}


def _of_encoder(rng, size, seed):
    rows = {
        **regression(rng, size, np.float32),
        "factors": abs(size * rng.standard_normal(N_ITEMS)).tobytes() if seed % 2 else None,
        "normalised": True,
        "centre": size,
        "taste": 1 + seed % 3,
        "bias_scale": 0.5,
        "user_norm": 0.2,
    }
    return {"encoder-matrices": rows, "encoder-vectors": {**rows, "label_bound": 0.7}}


def _of_parties(rng, size, seed):
    numbers = size * rng.standard_normal((N_ITEMS, N_ITEMS))
    common = {"direction": numbers[0].tobytes(), "share": 0.5, "size": 0.5, "size_stddev": min(size, 1e6), "doubt": 1.0}
    return {
        "loss": ("squared", "logistic")[seed % 2],
        "structure": ("em", "low-rank", "low-rank+sparse", "group-sparse", "relations")[seed % 5],
        "clip_norm": 0.7 if seed % 3 else None,
        "weights": {"mean": 0.5, "size": 0.1} if seed % 2 else None,
        "fit_intercept": seed % 4 == 0,
        "accelerated": True,
        "condition": None,
        "sparse_penalty": 0.5 if seed % 5 == 2 else None,
        "whole_posterior": seed % 10 == 0,
        "answers": [{"shared": (numbers + numbers.T).tobytes(), "common": common if seed % 2 else None}],
    }


def asked(name, seed=0, size=1.0):
    """Plain data that ask for a contribution, with numbers that no fit would send."""
    rng = np.random.default_rng(seed)
    votes = {"clip_norm": 0.5, "fraction": 0.5, "most": 1, "voters": 1.0}
    of_round = regression(rng, size)
    of_round["trust"] = of_round.pop("observation_weights")
    given = {
        "number-of-users": {},
        "user-means": {},
        "popularity": {},
        "leading-popularity": {"factors": abs(size * rng.standard_normal(N_ITEMS)).tobytes()},
        "value-shares": {"number": 2, "cuts": np.array([2.0, 3.5]).tobytes()},
        "clip-norms": {"centre": size, "unit": 1e-9},
        "user-spread": {"centre": size, "unit": 1e-9, "clip_norm": 0.4},
        "rating-round": {
            **of_round,
            "coordinates": 2,
            "scales": np.array([1e-9, 1e9]).tobytes(),
            "centre": -size,
            "unit": 1e-9,
            "clip_norm": 1.0,
            "summary_clip": 2.0,
            "starting": bool(seed % 2),
            "start_norm": size,
            "vector_weights": rng.uniform(0, 1, N_ITEMS).tobytes(),
            "factors": abs(size * rng.standard_normal(N_ITEMS)).tobytes(),
            "normalised": bool(seed % 3),
        },
        "variance-votes": {
            "fold_ins": [regression(rng, size) for _ in range(2)],
            "centre": size,
            "unit": 1e-9,
            **votes,
        },
        "choice-totals": {
            "dimension": 2,
            "vectors": (size * rng.standard_normal((N_ITEMS, 2))).tobytes(),
            "among": None if seed % 2 else (rng.random(N_ITEMS) < 0.6).astype(np.float64).tobytes(),
        },
        "choice-tastes": {
            **regression(rng, size, np.float32),
            "among": (rng.random(N_ITEMS) < 0.6).astype(np.float64).tobytes() if seed % 2 else None,
        },
        "click-totals": {
            "dimension": 2,
            "vectors": (size * rng.standard_normal((N_ITEMS, 2))).tobytes(),
            "factors": abs(size * rng.standard_normal(N_ITEMS)).tobytes() if seed % 2 else None,
            "normalised": True,
        },
        "click-tastes": {
            **regression(rng, size, np.float32),
            "factors": None if seed % 2 else abs(size * rng.standard_normal(N_ITEMS)).tobytes(),
            "normalised": True,
        },
        **_of_encoder(rng, size, seed),
        "click-votes": {"fold_ins": [regression(rng, size, np.float32) for _ in range(2)], **votes},
        "party-models": _of_parties(rng, size, seed),
    }[name]
    return {"name": name, "given": given, "without": None}


def users_of(rows):
    """Users from lists of (item, value), items ascending."""
    indptr = np.cumsum([0, *map(len, rows)])
    flat = [pair for row in rows for pair in row]
    columns = {
        "tasks": np.array([item for item, _ in flat], np.int32),
        "values": np.array([value for _, value in flat], np.float32),
    }
    keys = np.arange(2 * len(rows), dtype=np.uint64).reshape(-1, 2)
    return Users(indptr, columns, n_tasks=N_ITEMS, keys=keys)


VALUES = st.sampled_from([1.0, 5.0, 3.0, 1e30, -1e30])
ROWS = st.dictionaries(st.integers(0, N_ITEMS - 1), VALUES, min_size=1).map(lambda held: sorted(held.items()))


@pytest.mark.parametrize("name", sorted(CATALOGUE))
@given(
    rows=st.lists(ROWS, min_size=1, max_size=3),
    seed=st.integers(0, 50),
    size=st.sampled_from([1e-9, 1.0, 1e4, 5e7]),
    precision=st.sampled_from(["float32", "float64"]),
)
@settings(max_examples=12, deadline=None)
def test_a_user_moves_a_sum_within_its_sensitivity_whatever_numbers_a_server_sends(name, rows, seed, size, precision):
    contribution = read(unpacked(packed(asked(name, seed, size))), FACTS)
    question = Question((contribution,), np.dtype(precision))
    users = users_of(rows)
    without = Users(
        users.indptr[:-1],
        {each: users.column(each)[: users.indptr[-2]] for each in ("tasks", "values")},
        n_tasks=N_ITEMS,
        keys=users.keys[:-1],
    )
    full, rest = (sums_over(question, each) for each in (users, without))
    for one, two, total in zip(full._sums[0], rest._sums[0], full.sealed((contribution,)), strict=True):
        moved = float(np.linalg.norm((one - two).astype(np.float64))) * total.step
        assert moved <= total.l2_sensitivity * (1 + 1e-9)


@given(seed=st.integers(0, 60), size=st.sampled_from([1e-9, 1.0, 1e4, 5e7]), scale=st.sampled_from([1.0, 1e30, 0.0]))
@settings(max_examples=20, deadline=None)
def test_a_party_moves_the_sum_of_models_within_its_sensitivity_whatever_a_server_sends(seed, size, scale):
    contribution = read(unpacked(packed(asked("party-models", seed, size))), FACTS)
    rng = np.random.default_rng(seed)
    party = parties_of([scale * rng.standard_normal((7, N_ITEMS))], [scale * (rng.standard_normal(7) > 0)])
    full = sums_over(Question((contribution,), np.dtype("float64")), party)
    (total,) = full.sealed((contribution,))
    spread = 1.0 if total.scales is None else total.scales
    moved = float(np.linalg.norm(full._sums[0][0] / spread)) * total.step
    assert moved <= total.l2_sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_how_many_numbers_an_answer_has_is_known_before_it_is_made(name, seed):
    known = checked(asked(name, seed), FACTS)
    answer = sums_over(Question((known.made(),), np.dtype("float32")), users_of([]))
    assert known.n_numbers == answer.n_numbers


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_a_contribution_that_was_made_is_written_as_it_was_asked_for(name):
    plain = asked(name)
    assert written(read(plain, FACTS), None, FACTS) == plain


@pytest.mark.parametrize(
    "name",
    [
        "apportion.cli.outputs:write_text",
        "apportion.privacy.contributions.clipped:ClippedParts",
        "__class__",
        "take",
        "",
        None,
        ["popularity"],
        "Popularity",
    ],
)
def test_no_other_name_exists(name):
    """A1: the first transport looked names up in the library, so a server could have functions run."""
    with pytest.raises(InputError, match=r"one of the words|something else"):
        read({"name": name, "given": {}, "without": None}, FACTS)


@pytest.mark.parametrize("further", ["l2_sensitivity", "step", "summary_step", "neighbours", "value_range", "what"])
def test_a_server_cannot_say_what_the_client_derives(further):
    """A2: the first transport took steps and clip norms of outputs apart, so a sensitivity could be understated."""
    plain = asked("rating-round")
    plain["given"][further] = 1e-6
    with pytest.raises(InputError, match="Expected the fields"):
        read(plain, FACTS)


def test_a_smaller_clip_norm_is_a_smaller_part_and_not_only_a_smaller_sensitivity():
    plain, users = asked("rating-round"), users_of([[(0, 5.0), (1, 1.0)]])
    plain["given"] |= {"clip_norm": 1e-3, "centre": 3.0, "unit": 1.0, "starting": False}
    plain["given"] |= {"base": np.eye(3).tobytes(), "scales": np.ones(2).tobytes()}
    contribution = read(plain, FACTS)
    sums = contribution.partial(users, Processors(np.float64, exact=True))
    total = contribution.sealed(sums)[0]
    assert 1e-3 <= total.l2_sensitivity < 1.001e-3
    assert 0 < np.linalg.norm(sums[0].astype(float)) * total.step <= 1e-3


def _of_dimension(dimension, kind=np.float64):
    return regression(np.random.default_rng(0), 1.0, kind, dimension)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("rating-round", "clip_norm", float("inf")),
        ("rating-round", "clip_norm", 0.0),
        ("rating-round", "dimension", 1),
        ("rating-round", "features", b""),
        ("rating-round", "trust", (-np.ones(N_ITEMS)).tobytes()),
        ("rating-round", "factors", np.full(N_ITEMS, np.nan).tobytes()),
        ("click-votes", "voters", 2.0),
        ("variance-votes", "fold_ins", []),
        ("value-shares", "cuts", np.array([3.0, 2.0]).tobytes()),
        ("click-tastes", "base", np.arange(9, dtype=np.float32).tobytes()),
        ("click-votes", "fold_ins", [_of_dimension(2, np.float32), _of_dimension(3, np.float32)]),
        ("variance-votes", "fold_ins", [_of_dimension(2), _of_dimension(3)]),
    ],
)
def test_numbers_outside_the_schema_are_refused(name, field, value):
    plain = asked(name)
    plain["given"][field] = value
    with pytest.raises(InputError):
        read(plain, FACTS)


def test_numbers_that_do_not_fit_together_are_refused():
    plain = asked("rating-round")
    plain["given"] |= {"coordinates": 1, "scales": np.ones(1).tobytes()}
    with pytest.raises(InputError, match="scales"):
        read(plain, FACTS)


def _round(**changes):
    made = read(asked("rating-round"), FACTS)
    held = {name: getattr(made.round, name) for name in RatingRound.__dataclass_fields__}
    return RatingParts(RatingRound(**{**held, **changes}), made.weights, "another name")


@pytest.mark.parametrize(
    "contribution",
    [
        ClippedParts(lambda users, weights: (np.ones((users.n_users, 1)),), (Output(1, 1.0, False, "mine"),)),
        TaskCounts(TaskFactors(np.ones(N_ITEMS), "mine", normalised=False)),
        _round(full_vote=1.0),
        _round(step=2 * step_of(1.0)),
        _round(value_range=(0.0, 9.0)),
        WithoutHeldOut(TaskCounts(SplitEqually()), HeldOut(0.1, seed=7, most=2)),
    ],
    ids=["function", "weights", "constant", "step", "scale", "seed"],
)
def test_a_server_does_not_ask_what_clients_would_answer_otherwise(contribution):
    with pytest.raises(InputError, match="clients"):
        written(contribution, None, FACTS)


def test_words_for_the_statement_are_not_sent():
    assert name_of(written(_round(), None, FACTS)) == "rating-round"


def test_held_out_rows_are_left_out():
    rows = HeldOut(0.4, most=1)
    plain = written(TaskCounts(SplitEqually()), rows, FACTS)
    made = read(plain, FACTS)
    assert isinstance(made, WithoutHeldOut)
    assert made.rows == rows
    assert written(made, None, FACTS) == plain
