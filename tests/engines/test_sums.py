"""Every sum of every engine: removing any user moves it by at most its sensitivity, and some user reaches that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion import allocation
from apportion.auditing.door import distance, peek
from apportion.data import Interactions
from apportion.engines import LocalEngine, TorchEngine
from apportion.errors import InputError
from apportion.privacy import Gaussian, Labels, ObservationRows, Rows, bounded_sum
from apportion.privacy.clipped_total import ClippedTotal

from strategies import interactions, random_interactions

WIDTH = 3


def rows_of(data, norm=0.7):
    rng = np.random.default_rng(5)
    return Rows.clipped(rng.standard_normal((data.n_users, WIDTH)), norm)


def rows_of_pairs(data, norm=0.7):
    """Features of (user, task) pairs that do not move when others leave."""
    users, tasks = data.users.astype(float), data.tasks.astype(float)
    columns = [np.sin(7 * users + tasks), np.cos(tasks - 3 * users), 1 + 0 * users]
    return ObservationRows.clipped(np.stack(columns, axis=1), norm)


def part_per_observation(chunk):
    return np.stack([chunk.values, chunk.tasks + 1.0, np.ones(len(chunk.tasks))], axis=1)


def part_per_user(chunk):
    totals = np.bincount(chunk.owner, chunk.values, minlength=len(chunk.indptr) - 1)
    return np.stack([totals, np.ones_like(totals)], axis=1)


def both_parts(chunk):
    return part_per_observation(chunk), part_per_user(chunk)


SUMS = {
    "counts": lambda e, d: e.counts(d, allocation.equal_split(d)),
    "moments": lambda e, d: e.moments(
        d, allocation.equal_split(d), rows_of(d), Labels.clipped(d.values.astype(float) - 3, 1.5)
    ),
    "moments of ones": lambda e, d: e.moments(d, allocation.equal_split(d), rows_of(d)),
    "grams": lambda e, d: e.grams(d, allocation.equal_split(d), rows_of(d)),
    "moments of observations": lambda e, d: e.moments(
        d, allocation.equal_split(d), rows_of_pairs(d), Labels.clipped(d.values.astype(float) - 3, 1.5)
    ),
    "grams of observations": lambda e, d: e.grams(d, allocation.equal_split(d), rows_of_pairs(d)),
    "user total": lambda e, d: e.user_total(d, rows_of(d)),
    "user gram": lambda e, d: e.user_gram(d, rows_of(d)),
    "task part": lambda e, d: e.part_sums(d, allocation.equal_split(d), both_parts, (3, 2), (2.5, 4.0), "test")[0],
    "user part": lambda e, d: e.part_sums(d, allocation.equal_split(d), both_parts, (3, 2), (2.5, 4.0), "test")[1],
    "user sum": lambda e, d: e.user_sum(d, part_per_user, 2, 4.0, "test"),
}


def torch_engine(dtype=np.float64):
    pytest.importorskip("torch", reason="torch is not installed")
    return TorchEngine("cpu", dtype)


ENGINES = {"local": lambda: LocalEngine(np.float64, chunk=10), "torch": torch_engine}


@pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("form", SUMS.values(), ids=SUMS)
@given(data=interactions(), user=st.integers(0, 11))
def test_removing_any_user_moves_the_sum_by_at_most_its_sensitivity(make_engine, form, data, user):
    engine = make_engine()
    full, rest = form(engine, data), form(engine, data.without(user))
    assert distance(full, peek(rest), Gaussian()) <= full.l2_sensitivity * (1 + 1e-9)
    assert full.l2_sensitivity == rest.l2_sensitivity


@pytest.mark.parametrize("name", SUMS)
def test_a_user_at_the_bound_reaches_it(name):
    data = Interactions.from_arrays(["a", "a", "b"], [0, 1, 0], [5.0, 5.0, 1.0], task_ids=[0, 1])
    engine = LocalEngine(np.float64)
    rows = Rows.scaled(np.ones((2, WIDTH)), 0.7)

    def own_rows(d):
        return ObservationRows.scaled(np.ones((d.n_observations, WIDTH)), 0.7)

    reaching = {
        "moments": lambda d: engine.moments(
            d, allocation.equal_split(d), rows, Labels.clipped(d.values.astype(float), 1.5)
        ),
        "moments of ones": lambda d: engine.moments(d, allocation.equal_split(d), rows),
        "grams": lambda d: engine.grams(d, allocation.equal_split(d), rows),
        "moments of observations": lambda d: engine.moments(
            d, allocation.equal_split(d), own_rows(d), Labels.clipped(d.values.astype(float), 1.5)
        ),
        "grams of observations": lambda d: engine.grams(d, allocation.equal_split(d), own_rows(d)),
        "user total": lambda d: engine.user_total(d, rows),
        "user gram": lambda d: engine.user_gram(d, rows),
    }
    form = reaching.get(name, lambda d: SUMS[name](engine, d))
    full, rest = form(data), form(data.without(0))
    assert distance(full, peek(rest), Gaussian()) >= 0.999 * full.l2_sensitivity


def test_sums_are_what_they_say():
    data = random_interactions(1)
    engine = LocalEngine(np.float64)
    weights, rows = allocation.equal_split(data), rows_of(data)
    labels = Labels.clipped(data.values.astype(float) - 3, 1.5)
    w, x, y = weights._values.astype(float), rows._values, labels._values
    moments, grams = np.zeros((data.n_tasks, WIDTH)), np.zeros((data.n_tasks, WIDTH, WIDTH))
    for k, (user, task) in enumerate(zip(data.users, data.tasks, strict=True)):
        moments[task] += w[k] * y[k] * x[user]
        grams[task] += w[k] * np.outer(x[user], x[user])
    lower = np.tril_indices(WIDTH)
    np.testing.assert_allclose(peek(engine.moments(data, weights, rows, labels)), moments, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(peek(engine.grams(data, weights, rows)), grams[:, *lower], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES)
def test_rows_of_observations_are_summed_by_task_and_refused_in_sums_over_users(make_engine):
    data, engine = random_interactions(4), make_engine()
    weights, rows = allocation.equal_split(data), rows_of_pairs(data)
    expected = np.zeros((data.n_tasks, WIDTH))
    np.add.at(expected, data.tasks, weights._values[:, None] * rows._values)
    np.testing.assert_allclose(peek(engine.moments(data, weights, rows)), expected, rtol=1e-6, atol=1e-9)
    for method in (engine.user_total, engine.user_gram):
        with pytest.raises(InputError, match="one row per user"):
            method(data, rows)
    with pytest.raises(InputError, match="observations"):
        engine.moments(data, weights, ObservationRows(rows._values[1:], 1.0))


@pytest.mark.parametrize("name", SUMS)
def test_engines_agree(name):
    data = random_interactions(7, n_users=80)
    here, there = SUMS[name](LocalEngine(np.float64), data), SUMS[name](torch_engine(), data)
    np.testing.assert_allclose(peek(there), peek(here), rtol=1e-9, atol=1e-12)
    assert here.l2_sensitivity == pytest.approx(there.l2_sensitivity, rel=1e-8)


def test_user_solves_agree_between_engines_and_with_plain_algebra():
    data = random_interactions(8)
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((data.n_tasks, 4)), rng.standard_normal(data.n_observations)
    trust, base, side = rng.uniform(0.5, 2, data.n_observations), np.eye(4) + 0.1, rng.standard_normal(4)
    here = LocalEngine(np.float64).solve_users(data, features, labels, base, side, trust)
    there = torch_engine().solve_users(data, features, labels, base, side, trust)
    np.testing.assert_allclose(there.numpy(), here, rtol=1e-9, atol=1e-12)
    mine = data.users == 3
    x, w = features[data.tasks[mine]], trust[mine]
    expected = np.linalg.solve(base + (x.T * w) @ x, side + x.T @ (w * labels[mine]))
    np.testing.assert_allclose(here[3], expected, rtol=1e-9)


def test_chunking_does_not_change_a_sum():
    data = random_interactions(2, n_users=60)
    whole = peek(SUMS["task part"](LocalEngine(np.float64), data))
    cut = peek(SUMS["task part"](LocalEngine(np.float64, chunk=7), data))
    np.testing.assert_allclose(cut, whole, rtol=1e-12)


def test_users_without_data_contribute_nothing():
    data = random_interactions(3)
    empty = data.where(np.zeros(data.n_observations, bool))
    engine = LocalEngine(np.float64)
    for name in ("user total", "user gram", "user sum", "user part"):
        assert not peek(SUMS[name](engine, empty)).any()


def test_released_sums_are_exact_to_rounding_of_float64_whatever_the_engine_computes_in():
    data = random_interactions(9, n_users=400)
    rows = Rows.scaled(np.random.default_rng(0).standard_normal((400, WIDTH)).astype(np.float32), 1.0)
    for engine in (LocalEngine(np.float32), torch_engine(np.float32)):
        whole = engine.moments(data, allocation.equal_split(data), rows)
        rest = data.without(3)
        assert peek(whole).dtype == np.float64
        assert distance(whole, peek(engine.moments(rest, allocation.equal_split(rest), rows)), Gaussian()) <= 1.0
        assert engine.grams(data, allocation.equal_split(data), rows)._reveal(bounded_sum._KEY).dtype == np.float64


def test_sums_over_nobody_are_zeros_and_no_error():
    empty = random_interactions(4).where(np.zeros(random_interactions(4).n_observations, bool))
    for name, form in SUMS.items():
        assert not peek(form(LocalEngine(np.float64), empty)).any(), name


def test_a_user_who_names_a_task_twice_is_refused():
    total = ClippedTotal(1.0, 1, 3, "x")
    with pytest.raises(InputError, match="each once"):
        total.add_by_task(np.ones((2, 1)), np.array([0, 2]), np.array([1, 1], np.int32))
    total.add_by_task(np.ones((4, 1)), np.array([0, 2, 2, 4]), np.array([1, 2, 0, 2], np.int32))
    assert peek(total.sealed()).ravel() == pytest.approx([0.7071, 0.7071, 1.4142], abs=1e-3)


@pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES)
def test_a_part_has_one_row_for_each_user_and_nobody_outside_a_sample_is_added(make_engine):
    data = Interactions.from_arrays([0] * 50 + [1], [*range(50), 0], np.ones(51), task_ids=np.arange(50))
    weights = allocation.equal_split(data)

    def nothing(chunk):
        return np.zeros((len(chunk.tasks), 1))

    def by_observation(chunk):
        return nothing(chunk), np.ones((len(chunk.tasks), 1))

    def of_everybody(chunk):
        return nothing(chunk), np.ones((len(chunk.indptr) - 1, 1))

    with pytest.raises(InputError, match="Expected a row for each user"):
        make_engine().part_sums(data, weights, by_observation, (1, 1), (1.0, 1.0), "test")
    sample = weights.of_users(np.array([True, False]))
    found = make_engine().part_sums(data, sample, of_everybody, (1, 1), (1.0, 1.0), "test")[1]
    assert peek(found) == pytest.approx([1.0], abs=1e-5)
