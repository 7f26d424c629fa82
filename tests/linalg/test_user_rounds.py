"""The fused round on ratings: the same whole numbers on every path, each user's part within its norm and its own."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import linalg
from apportion.errors import InputError
from apportion.linalg import RatingRound, TaskWeights
from apportion.linalg.fixed_sums import Runs

needs_kernel = pytest.mark.skipif(not linalg.compiled_available(), reason="the compiled kernel was not built")
CLIP, SUMMARY_CLIP = 0.7, 2.0


def round_of(rng, n_tasks, latent, *, scale=1.0, starting=False):
    features = rng.standard_normal((n_tasks, 2 + latent)) * scale
    features[:, 0] = 1.0
    precision = 1 / np.array([0.15, 0.15] + [1.0] * latent)
    return RatingRound(
        features=features,
        trust=rng.uniform(0.2, 1.2, n_tasks),
        base=np.diag(precision),
        base_rhs=precision * np.eye(2 + latent)[1],
        scales=np.array([1.0] + [1.2 / np.sqrt(max(latent, 1))] * latent),
        value_range=(1.0, 5.0),
        centre=3.4,
        unit=1.0,
        clip_norm=CLIP,
        step=linalg.step_below(CLIP, 32),
        summary_clip=SUMMARY_CLIP,
        summary_step=linalg.step_below(SUMMARY_CLIP, 32),
        starting=starting,
        start_norm=1.7,
        vector_weights=rng.choice([0.0, 0.3, 1.0], n_tasks),
    )


def users(rng, n_tasks, lengths):
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tasks = [np.sort(rng.choice(n_tasks, n, replace=False)) for n in lengths]
    tasks = np.concatenate([*tasks, np.zeros(0, np.int64)]).astype(np.int32)
    values = rng.integers(0, 13, len(tasks)).astype(np.float32) / 2  # some outside the range
    return indptr, tasks, values, rng.uniform(0, 1, len(tasks)).astype(np.float32)


def sums_of(indptr, tasks, values, weights, about, **keywords):
    by_task = np.zeros((about.n_tasks, about.width), np.int64)
    total = np.zeros(about.summary_width, np.int64)
    linalg.rating_round(indptr, tasks, values, weights, about, by_task, total, **keywords)
    return np.concatenate([by_task.ravel(), total])


def by_numpy(*arguments):
    with linalg.use_backend("numpy"):
        return sums_of(*arguments)


def on_every_path(*arguments):
    """Names of the paths and their sums: every instruction set with several numbers of threads."""
    for instructions in linalg.instruction_sets():
        with linalg.use_instruction_set(instructions):
            for threads in (1, 2, 7):
                yield f"{instructions}, {threads} threads", sums_of(*arguments, threads=threads)


def alone(indptr, tasks, values, weights, about, user):
    """What one user adds."""
    rows = slice(indptr[user], indptr[user + 1])
    own = weights if isinstance(weights, TaskWeights) else weights[rows]
    return sums_of(np.array([0, rows.stop - rows.start]), tasks[rows], values[rows], own, about)


def squared_norms(sums, about):
    """Squares of the norms of rows and vote, in steps, as Python integers."""
    split = about.n_tasks * about.width
    return tuple(sum(int(x) ** 2 for x in part) for part in (sums[:split], sums[split:]))


@needs_kernel
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    latent=st.sampled_from([0, 1, 3, 8, 13, 40]),
    scale=st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 1e6, 1e12, 1e30, 1e150, 1e200]),
    starting=st.booleans(),
    by_task=st.booleans(),
)
def test_every_path_adds_the_same_whole_numbers(seed, latent, scale, starting, by_task):
    rng = np.random.default_rng(seed)
    about = round_of(rng, 120, latent, scale=scale, starting=starting)
    indptr, tasks, values, weights = users(rng, 120, rng.integers(0, 60, 40))
    if by_task:
        weights = TaskWeights(rng.uniform(0, 3, 120), only_down=bool(seed % 2))
    wanted = by_numpy(indptr, tasks, values, weights, about)
    for path, found in on_every_path(indptr, tasks, values, weights, about):
        np.testing.assert_array_equal(found, wanted, err_msg=path)


@needs_kernel
@pytest.mark.parametrize("latent", [0, 8, 9])
def test_users_with_one_row_with_no_row_and_with_fifty_thousand_rows(latent):
    rng = np.random.default_rng(3)
    about = round_of(rng, 60_000, latent)
    indptr, tasks, values, weights = users(rng, 60_000, [1, 0, 50_000, 1, 0, 7, 8, 9, 1025])
    weights /= 200
    wanted = by_numpy(indptr, tasks, values, weights, about)
    for path, found in on_every_path(indptr, tasks, values, weights, about):
        np.testing.assert_array_equal(found, wanted, err_msg=path)
    assert wanted.any()


@needs_kernel
def test_threads_that_share_one_place_add_the_same_as_those_with_their_own(monkeypatch):
    rng = np.random.default_rng(4)
    about = round_of(rng, 50, 8)
    data = users(rng, 50, rng.integers(0, 50, 2000))
    wanted = sums_of(*data, about, threads=1)
    np.testing.assert_array_equal(sums_of(*data, about, threads=5), wanted)
    monkeypatch.setattr("apportion.linalg.user_rounds._MOST_COPIES", 0)
    np.testing.assert_array_equal(sums_of(*data, about, threads=5), wanted)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
@pytest.mark.parametrize("scale", [1.0, 1e12, 1e30])
@pytest.mark.parametrize("starting", [False, True])
def test_what_users_add_is_what_each_adds_alone_and_no_longer_than_its_norm(backend, scale, starting):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    rng = np.random.default_rng(5)
    about = round_of(rng, 80, 5, scale=scale, starting=starting)
    data = users(rng, 80, [*rng.integers(1, 60, 12), 1, 80])
    weights = TaskWeights(rng.uniform(0.1, 1, 80))
    with linalg.use_backend(backend):
        whole = sums_of(*data[:3], weights, about)
        parts = [alone(*data[:3], weights, about, user) for user in range(14)]
    np.testing.assert_array_equal(sum(parts), whole)
    most = int(CLIP / about.step) ** 2, int(SUMMARY_CLIP / about.summary_step) ** 2
    norms = [squared_norms(part, about) for part in parts]
    assert all(rows <= most[0] and vote <= most[1] for rows, vote in norms)
    assert max(rows for rows, _ in norms) > 0.99 * most[0] or scale > 1  # some were clipped


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_any_cut_of_the_users_adds_up_to_the_same(backend):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    rng = np.random.default_rng(6)
    about = round_of(rng, 50, 8)
    indptr, tasks, values, weights = users(rng, 50, rng.integers(0, 50, 30))
    with linalg.use_backend(backend):
        whole = sums_of(indptr, tasks, values, weights, about)
        for n_cuts in (2, 7):
            cuts = np.linspace(0, 30, n_cuts + 1).astype(int)
            parts = []
            for first, last in itertools.pairwise(cuts):
                rows = slice(indptr[first], indptr[last])
                own = indptr[first : last + 1] - indptr[first]
                parts.append(sums_of(own, tasks[rows], values[rows], weights[rows], about))
            np.testing.assert_array_equal(sum(parts), whole)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_a_user_without_a_solution_or_without_weight_adds_nothing(backend):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    rng = np.random.default_rng(7)
    about = round_of(rng, 40, 3)
    indptr, tasks, values, weights = users(rng, 40, [12, 12, 12])
    whole = alone(indptr, tasks, values, weights, about, 0)
    weights[12:24] = 0
    values[24:] = np.nan  # counts as the lowest value
    with linalg.use_backend(backend):
        assert not alone(indptr, tasks, values, weights, about, 1).any()
        assert alone(indptr, tasks, values, weights, about, 2).any()
        np.testing.assert_array_equal(alone(indptr, tasks, values, weights, about, 0), whole)
        negative = replace(about, base=-1e3 * np.eye(5))
        assert not sums_of(indptr, tasks, values, weights, negative).any()
        huge = replace(about, features=np.full((40, 5), 1e200))
        assert not sums_of(indptr, tasks, values, weights, huge).any()


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_tasks_that_are_out_of_order_are_refused_and_nothing_is_added(backend):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    about = round_of(np.random.default_rng(8), 10, 2)
    by_task, total = np.zeros((10, 3), np.int64), np.zeros(about.summary_width, np.int64)
    ones = np.ones(4)
    for tasks in ([1, 1, 2, 3], [2, 1, 2, 3], [0, 1, 2, 10], [-1, 1, 2, 3]):
        with linalg.use_backend(backend), pytest.raises(InputError, match="ascending order, each once, all below 10"):
            linalg.rating_round([0, 2, 4], np.array(tasks, np.int32), ones, ones, about, by_task, total)
    assert not by_task.any()
    assert not total.any()


@given(seed=st.integers(0, 10**6), only_down=st.booleans())
@settings(max_examples=30, deadline=None)
def test_weights_formed_from_tasks_have_squares_that_sum_to_at_most_one(seed, only_down):
    rng = np.random.default_rng(seed)
    indptr, tasks, _, _ = users(rng, 90, rng.integers(0, 80, 20))
    omega = TaskWeights(rng.uniform(0, 1, 90) * 10.0 ** rng.integers(-12, 20), only_down)
    runs = Runs(indptr)
    weights = omega.of_runs(runs, tasks)
    squares = np.bincount(runs.owner, weights**2, minlength=20)
    assert squares.max() <= 1
    if not only_down:
        assert squares[np.diff(indptr) > 0].min() > 1 - 1e-5


def test_the_round_is_the_regression_that_it_says():
    """Against least squares by NumPy with each observation left out in turn."""
    rng = np.random.default_rng(9)
    about = replace(round_of(rng, 30, 4), clip_norm=1e6, step=2.0**-30)
    indptr, tasks, values, weights = users(rng, 30, [17])
    found = sums_of(indptr, tasks, values, weights, about)[: 30 * 5].reshape(30, 5) * about.step
    labels = np.clip(values.astype(float), 1, 5) - 3.4
    x, c = about.features[tasks], about.trust[tasks]
    for k, task in enumerate(tasks):
        rest = np.arange(17) != k
        matrix = about.base + (x[rest].T * c[rest]) @ x[rest]
        own = np.linalg.solve(matrix, about.base_rhs + (c * labels * x.T)[:, rest].sum(axis=1))
        of_vector = np.array([1.0] + [about.vector_weights[task]] * 4)
        wanted = weights[k] * (labels[k] - x[k] @ own) * own[1:] * about.scales * of_vector
        np.testing.assert_allclose(found[task], wanted, atol=1e-7)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("compiled", marks=needs_kernel)])
def test_norm_that_vectors_do_not_use_is_left_for_the_rest(backend):
    """Clipped users say more of biases, and of the vectors that are left, if some tasks' vectors are left out."""
    rng = np.random.default_rng(11)
    about = replace(round_of(rng, 30, 4), clip_norm=0.2, vector_weights=None)
    some = replace(about, vector_weights=(np.arange(30) % 2).astype(float))
    given = users(rng, 30, [25])
    with linalg.use_backend(backend):
        alone, ours = (abs(sums_of(*given, each)[: 30 * 5].reshape(30, 5)) * each.step for each in (about, some))
    assert np.linalg.norm(ours) <= 0.2
    assert np.linalg.norm(ours) > 0.199
    assert not ours[::2, 1:].any()
    seen = alone.any(axis=1)
    assert (ours[seen, 0] > 1.05 * alone[seen, 0]).all()
    odd = seen & (np.arange(30) % 2 == 1)
    assert (ours[odd, 1:] > 1.05 * alone[odd, 1:]).all()


@pytest.mark.parametrize("weight", [-0.1, 1.5, np.nan])
def test_weights_of_vectors_outside_their_range_are_refused(weight):
    about = round_of(np.random.default_rng(0), 3, 2)
    with pytest.raises(InputError):
        replace(about, vector_weights=np.array([0.0, weight, 1.0]))


@pytest.mark.parametrize(
    ("latent", "starting", "scale"), [(0, False, 1.0), (8, False, 1.0), (8, True, 1e30), (3, False, 1e160)]
)
def test_torch_adds_the_same_whole_numbers(latent, starting, scale):
    """By the operations of the reference, so that a GPU's sums are the processor's."""
    torch = pytest.importorskip("torch")
    from apportion.linalg import rating_on_torch

    rng = np.random.default_rng(latent)
    about = round_of(rng, 90, latent, scale=scale, starting=starting)
    indptr, tasks, values, weights = users(rng, 90, [*rng.integers(0, 80, 60), 0, 1, 90])
    placed = torch.tensor(tasks), torch.tensor(values)
    for own, there in ((weights, torch.tensor(weights)), (TaskWeights(rng.uniform(0, 1, 90)),) * 2):
        found = rating_on_torch.rating_round(indptr, *placed, there, about, "cpu")
        together = np.concatenate([each.numpy().ravel() for each in found])
        np.testing.assert_array_equal(together, sums_of(indptr, tasks, values, own, about))


@needs_kernel
def test_moments_of_users_are_the_same_by_kernel_and_numpy_and_for_each_user_alone():
    from apportion.linalg.user_moments import moments_of_users

    rng = np.random.default_rng(8)
    indptr, tasks, values, _ = users(rng, 60, [*rng.integers(0, 50, 30), 0, 60])
    features, trust, labels = rng.standard_normal((60, 4)), rng.uniform(0.2, 1, 60), values.astype(float)
    given = (features, trust)
    found = [joined(*each) for each in _moments(indptr, tasks, *given, labels)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-12)
    for user in (0, 7, 31):
        rows = slice(indptr[user], indptr[user + 1])
        alone = joined(*moments_of_users(np.array([0, rows.stop - rows.start]), tasks[rows], *given, labels[rows]))
        np.testing.assert_array_equal(alone[0], found[0][user])


def joined(grams, moments):
    return np.concatenate([grams, moments]).T


def _moments(*given):
    from apportion.linalg.user_moments import moments_of_users

    for backend in ("compiled", "numpy"):
        with linalg.use_backend(backend):
            yield moments_of_users(*given)


@needs_kernel
@pytest.mark.parametrize("dim", [1, 2, 5, 10, 13])
def test_solutions_have_the_same_bits_by_numpy_and_by_every_instruction_set(dim):
    from apportion.linalg.user_moments import solutions

    rng = np.random.default_rng(dim)
    rows = rng.standard_normal((37, dim, 2 * dim))
    full = rows @ rows.transpose(0, 2, 1)
    full[5], full[9], full[11] = -full[5], np.nan, np.inf  # without a solution
    grams = np.ascontiguousarray(np.stack([full[:, r, c] for r in range(dim) for c in range(r + 1)]))
    given = (0.3 * np.eye(dim), rng.standard_normal(dim), grams, rng.standard_normal((dim, 37)))
    good = np.delete(np.arange(37), [5, 9, 11])
    with linalg.use_backend("numpy"), np.errstate(all="ignore"):
        wanted = solutions(*given)
    right = given[3].T + given[1]
    np.testing.assert_allclose(
        wanted.T[good], np.linalg.solve(full[good] + given[0], right[good][:, :, None])[:, :, 0], rtol=1e-8
    )
    for instructions in linalg.instruction_sets():
        with linalg.use_instruction_set(instructions):
            np.testing.assert_array_equal(solutions(*given), wanted, err_msg=instructions)
            alone = solutions(*given[:2], *(np.ascontiguousarray(each[:, 3:4]) for each in given[2:]))
            np.testing.assert_array_equal(alone[:, 0], wanted[:, 3])
