"""Every sum of every engine: removing any user moves it by at most its sensitivity, and some user reaches that."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.allocation import SplitEqually
from apportion.auditing.hidden_values import distance, raw_value
from apportion.data import Interactions
from apportion.data.users import Users
from apportion.engines import LocalEngine, TorchEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy import Gaussian, Labels, ObservationRows, Rows, Weights
from apportion.privacy.contributions import (
    ClippedParts,
    GroupSums,
    TaskCounts,
    TaskGrams,
    TaskMoments,
    UserGram,
    UserTotal,
    Weighting,
)
from apportion.privacy.neighbours import REPLACE_VALUES_PUBLIC_GRAPH
from apportion.regression.user_sides import ClippedFeatures, ClippedLabels
from contribution_cases import CONTRIBUTIONS, NORMS, STATISTICS, WIDTH, OwnRows, RowsOfPairs, SomeTasks, users_of

from strategies import interactions, random_interactions


def torch_engine(dtype=np.float64):
    pytest.importorskip("torch", reason="torch is not installed")
    return TorchEngine("cpu", dtype)


ENGINES = {"local": lambda: LocalEngine(np.float64, chunk=10), "torch": torch_engine}


@pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("make", CONTRIBUTIONS.values(), ids=CONTRIBUTIONS)
@given(data=interactions(), user=st.integers(0, 11))
def test_removing_any_user_moves_the_sum_by_at_most_its_sensitivity(make_engine, make, data, user):
    engine = make_engine()
    all_full, all_rest = (engine.add_up(users_of(some), [make()]) for some in (data, data.without(user)))
    for full, rest in zip(all_full, all_rest, strict=True):
        assert distance(full, raw_value(rest), Gaussian()) <= full.l2_sensitivity * (1 + 1e-9)
        assert full.l2_sensitivity == rest.l2_sensitivity


@pytest.mark.parametrize("name", CONTRIBUTIONS)
def test_a_user_at_the_bound_reaches_it(name):
    data = Interactions.from_arrays(["a", "a", "b"], [0, 1, 0], [5.0, 5.0, 1.0], task_ids=[0, 1])
    labels = ClippedLabels(1.5, "values")
    reaching = {
        "moments": TaskMoments(SplitEqually(), OwnRows(scaled=True), labels),
        "moments of ones": TaskMoments(SplitEqually(), OwnRows(scaled=True)),
        "moments of some tasks": TaskMoments(SomeTasks(), OwnRows(scaled=True)),
        "grams": TaskGrams(SplitEqually(), OwnRows(scaled=True)),
        "moments of observations": TaskMoments(SplitEqually(), RowsOfPairs(), labels),
        "grams of observations": TaskGrams(SplitEqually(), RowsOfPairs()),
        "user total": UserTotal(OwnRows(scaled=True)),
        "user gram": UserGram(OwnRows(scaled=True)),
        "sums by group": GroupSums(tuple(replace(each, cap=0.1) for each in STATISTICS)),
        "sums by group in L1 norm": GroupSums(tuple(replace(each, cap=0.1) for each in STATISTICS), taxicab=True),
        "norms over groups": ClippedParts(replace(NORMS, most=1.0), (NORMS.output,)),
    }

    def sums(some):
        users = users_of(some, np.ones((2, WIDTH))).with_columns(features=np.ones((some.n_observations, WIDTH)))
        return LocalEngine(np.float64).add_up(users, [reaching.get(name, CONTRIBUTIONS[name]())])

    for full, rest in zip(sums(data), sums(data.without(0)), strict=True):
        if name == "shares of keys" or "L1" in name:  # bounded in the L1 norm
            assert np.abs(raw_value(full) - raw_value(rest)).sum() >= 0.999 * full.l1_sensitivity
        else:
            assert distance(full, raw_value(rest), Gaussian()) >= 0.999 * full.l2_sensitivity


def test_sums_are_what_they_say():
    data = random_interactions(1)
    users = users_of(data)
    rows, labels = OwnRows()(users, None), ClippedLabels(1.5)(users, None)
    w, x, y = SplitEqually().of(users)._values.astype(float), rows._values, labels._values
    moments, grams = np.zeros((data.n_tasks, WIDTH)), np.zeros((data.n_tasks, WIDTH, WIDTH))
    for k, (user, task) in enumerate(zip(data.users, data.tasks, strict=True)):
        moments[task] += w[k] * y[k] * x[user]
        grams[task] += w[k] * np.outer(x[user], x[user])
    lower = np.tril_indices(WIDTH)
    found = LocalEngine(np.float64).add_up(users, [CONTRIBUTIONS["moments"](), CONTRIBUTIONS["grams"]()])
    np.testing.assert_allclose(raw_value(found[0]), moments, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(raw_value(found[1]), grams[:, *lower], rtol=1e-6, atol=1e-9)


@dataclass(frozen=True)
class OneShort(ClippedFeatures):
    """Forgets the first row."""

    def __call__(self, users, kernels):
        return ObservationRows(super().__call__(users, kernels)._values[1:], self.norm)


@pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES)
def test_rows_of_observations_are_summed_by_task_and_refused_in_sums_over_users(make_engine):
    data, engine = random_interactions(4), make_engine()
    users, rows = users_of(data), ClippedFeatures(0.7)
    expected = np.zeros((data.n_tasks, WIDTH))
    weights, held = SplitEqually().of(users)._values, rows(users, None)._values
    np.add.at(expected, data.tasks, weights[:, None] * held)
    found = add_up_one(engine, users, TaskMoments(SplitEqually(), rows))
    np.testing.assert_allclose(raw_value(found), expected, rtol=1e-6, atol=1e-9)
    for contribution in (UserTotal(rows), UserGram(rows)):
        with pytest.raises(InputError, match="one row per user"):
            engine.add_up(users, [contribution])
    with pytest.raises(InputError, match="observations"):
        engine.add_up(users, [TaskMoments(SplitEqually(), OneShort(0.7))])


@pytest.mark.parametrize("name", CONTRIBUTIONS)
def test_engines_agree(name):
    data = random_interactions(7, n_users=80)
    both = [engine.add_up(users_of(data), [CONTRIBUTIONS[name]()]) for engine in (LocalEngine(), torch_engine())]
    for here, there in zip(*both, strict=True):
        np.testing.assert_allclose(raw_value(there), raw_value(here), rtol=1e-9, atol=1e-12)
        assert here.l2_sensitivity == pytest.approx(there.l2_sensitivity, rel=1e-8)


def test_users_without_data_contribute_nothing():
    """Though they have rows of their own."""
    data = random_interactions(3)
    empty = users_of(data.where(np.zeros(data.n_observations, bool)))
    assert empty.of_user("rows").all()
    for name, make in CONTRIBUTIONS.items():
        for found in LocalEngine(np.float64).add_up(empty, [make()]):
            assert not raw_value(found).any(), name


def test_released_sums_are_exact_to_rounding_of_float64_whatever_the_engine_computes_in():
    data = random_interactions(9, n_users=400)
    rows = np.random.default_rng(0).standard_normal((400, WIDTH)).astype(np.float32)
    form = OwnRows(1.0, scaled=True)
    for engine in (LocalEngine(np.float32), torch_engine(np.float32)):
        for contribution in (TaskMoments(SplitEqually(), form), TaskGrams(SplitEqually(), form)):
            full, rest = (add_up_one(engine, users_of(some, rows), contribution) for some in (data, data.without(3)))
            assert distance(full, raw_value(rest), Gaussian()) <= 1.0
            (sums,) = contribution.partial(users_of(data, rows), engine.kernels)
            assert sums.dtype == np.float64


def test_sums_over_nobody_are_zeros_and_no_error():
    nobody = Users(
        [0],
        {"tasks": np.zeros(0, np.int32), "values": np.zeros(0, np.float32)},
        n_tasks=9,
        keys=np.zeros((0, 2), np.uint64),
    )
    nobody = nobody.with_columns(features=np.zeros((0, WIDTH)), labels=np.zeros(0), standing=np.zeros(0))
    nobody = nobody.with_user_columns(rows=np.zeros((0, WIDTH)))
    for name, make in CONTRIBUTIONS.items():
        for found in LocalEngine(np.float64).add_up(nobody, [make()]):
            assert not raw_value(found).any(), name
            assert np.prod(found.shape) > 0


OF_USERS = (
    "user total",
    "user gram",
    "parts of users",
    "weights of cells",
    "weights of cells, middle rows",
    "votes",
    "parts without held-out rows",
)
OF_CELLS = (
    "sums by group",
    "norms over groups",
    "sums by group in L1 norm",
    "L1 norms over groups",
    "boxes by group",
)  # several rows of a task are one cell
BY_TASK = [name for name in CONTRIBUTIONS if name not in (*OF_USERS, *OF_CELLS)]


@pytest.mark.parametrize("name", BY_TASK)
def test_a_user_who_names_a_task_twice_is_refused(name):
    columns = {"values": np.ones(4), "features": np.ones((4, WIDTH)), "labels": np.ones(4), "standing": np.ones(4)}
    rows = {"rows": np.ones((3, WIDTH))}
    once, twice, falling = (
        Users([0, 2, 2, 4], {**columns, "tasks": np.array(tasks, np.int32)}, user_columns=rows, n_tasks=3)
        for tasks in ([1, 2, 0, 2], [1, 1, 0, 2], [1, 2, 2, 0])
    )
    contribution = CONTRIBUTIONS[name]()
    LocalEngine().add_up(once, [contribution])
    for bad in (twice, falling):
        with pytest.raises(InputError, match="each once"):
            LocalEngine().add_up(bad, [contribution])


@dataclass(frozen=True, eq=False)
class Longer(OwnRows):
    """Rows that say another bound than the form does."""

    def __call__(self, users, kernels):
        return Rows.clipped(users.of_user("rows"), 10 * self.norm)


@dataclass(frozen=True, eq=False)
class Larger(ClippedLabels):
    """Labels that say another bound than the form does."""

    def __call__(self, users, kernels):
        return Labels.clipped(users.column("labels"), 10 * self.bound)


@dataclass(frozen=True, eq=False)
class OtherRelation(Weighting):
    """Weights for neighbours of one graph, declared as if anybody could leave."""

    description: str = "wrong"

    def form(self, users):
        ones = np.ones(users.n_rows, np.float32)
        return Weights.normalised(ones, users.indptr, "wrong", REPLACE_VALUES_PUBLIC_GRAPH)


@dataclass(frozen=True, eq=False)
class Negative(Weighting):
    """Weights of both signs, declared as if none was below 0."""

    description: str = "wrong"

    def form(self, users):
        return SplitEqually().form(users).times(np.full(users.n_rows, -1.0), 1.0)


@pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES)
def test_parts_with_another_bound_than_was_declared_are_refused(make_engine):
    """The sensitivity follows from what is declared, so what is formed must be within it."""
    users, plain = users_of(random_interactions(5)), SplitEqually()
    for contribution in (
        TaskMoments(plain, Longer()),
        TaskGrams(plain, Longer()),
        UserTotal(Longer()),
        UserGram(Longer()),
        TaskMoments(plain, OwnRows(), Larger(1.5)),
        TaskCounts(OtherRelation()),
        TaskGrams(Negative(), OwnRows()),
    ):
        with pytest.raises(TypeError, match=r"as declared|than it declares"):
            make_engine().add_up(users, [contribution])


def test_a_weighting_that_breaks_its_bound_is_refused():
    @dataclass(frozen=True, eq=False)
    class TooHeavy(Weighting):
        description: str = "ones"

        def form(self, users):
            return Weights(np.ones(users.n_rows), users.indptr, "ones")

    with pytest.raises(InputError, match="squared weights to sum to at most 1"):
        LocalEngine().add_up(users_of(random_interactions(5)), [TaskCounts(TooHeavy())])
