"""Segment kernels: the compiled path, NumPy's and torch's against plain loops, on every kind of segment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion import linalg
from apportion.errors import InputError

BACKENDS = ["numpy", "compiled", "torch"]


def problem(seed, width, dtype=np.float64, n_segments=12, longest=30):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, longest, n_segments)
    counts[rng.integers(n_segments)] = 0
    indptr = np.concatenate([[0], np.cumsum(counts)])
    n_rows = 40
    n_observations = int(indptr[-1])
    square = rng.standard_normal((width, width))
    return {
        "indptr": indptr,
        "indices": rng.integers(0, n_rows, n_observations).astype(np.int32),
        "features": rng.standard_normal((n_rows, width)).astype(dtype),
        "weights": rng.uniform(0.1, 2, n_observations).astype(dtype),
        "labels": rng.standard_normal(n_observations).astype(dtype),
        "base": (square @ square.T + np.eye(width)).astype(dtype),
        "base_rhs": rng.standard_normal(width).astype(dtype),
    }


def call(backend, name, p, **extra):
    """One kernel on one path; torch's takes and returns tensors."""
    structure = [p["indptr"], p["indices"], p["features"]]
    if backend == "torch":
        torch = pytest.importorskip("torch", reason="torch is not installed")
        from apportion.linalg import on_torch

        tensors = [torch.tensor(np.asarray(a)) for a in structure]
        keywords = {k: None if v is None else torch.tensor(np.asarray(v)) for k, v in extra.items()}
        return getattr(on_torch, name)(*tensors, **keywords).numpy()
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built (no C++ compiler)")
    with linalg.use_backend(backend):
        return getattr(linalg, name)(*structure, **extra)


def expected(p, weights):
    """Grams and moments by plain loops in float64."""
    width = p["features"].shape[1]
    n_segments = len(p["indptr"]) - 1
    grams, moments = np.zeros((n_segments, width, width)), np.zeros((n_segments, width))
    for s in range(n_segments):
        for k in range(p["indptr"][s], p["indptr"][s + 1]):
            x = p["features"][p["indices"][k]].astype(np.float64)
            w = 1.0 if weights is None else float(weights[k])
            grams[s] += w * np.outer(x, x)
            moments[s] += w * float(p["labels"][k]) * x
    return grams, moments


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 2, 5, 8, 9, 16, 17, 33, 64, 130])
@pytest.mark.parametrize("weighted", [False, True])
def test_all_paths_agree_with_plain_loops(backend, dtype, width, weighted):
    p = problem(width, width, dtype)
    weights = p["weights"] if weighted else None
    grams, moments = expected(p, weights)
    tolerance = {"rtol": 2e-4, "atol": 2e-4} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-9}
    got = call(backend, "segment_gram", p, weights=weights)
    np.testing.assert_allclose(got, linalg.pack(grams), **tolerance)
    coefficients = p["labels"] if weights is None else weights * p["labels"]
    np.testing.assert_allclose(call(backend, "segment_moment", p, coefficients=coefficients), moments, **tolerance)
    solution = np.linalg.solve(grams + p["base"], (moments + p["base_rhs"])[:, :, None])[:, :, 0]
    keywords = {"weights": weights, "labels": p["labels"], "base": p["base"], "base_rhs": p["base_rhs"]}
    loose = {"rtol": 5e-3, "atol": 5e-3} if dtype == np.float32 else {"rtol": 1e-8, "atol": 1e-8}
    np.testing.assert_allclose(call(backend, "segment_solve", p, **keywords), solution, **loose)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plain_ridge_gives_the_same_by_whatever_form_is_cheaper(backend):
    p = problem(3, 24, n_segments=30)  # segments shorter and longer than the width
    grams, moments = expected(p, p["weights"])
    ridge = 0.7 * np.eye(24)
    solution = np.linalg.solve(grams + ridge, moments[:, :, None])[:, :, 0]
    got = call(backend, "segment_solve", p, weights=p["weights"], labels=p["labels"], base=ridge)
    np.testing.assert_allclose(got, solution, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_negative_weights_are_allowed_in_a_gram(backend):
    p = problem(4, 6)
    signed = p["weights"] * np.where(np.arange(len(p["weights"])) % 3, 1, -1)
    np.testing.assert_allclose(
        call(backend, "segment_gram", p, weights=signed), linalg.pack(expected(p, signed)[0]), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_giant_segment_among_empty_ones(backend):
    rng = np.random.default_rng(0)
    n, width = 60_000, 7
    p = {
        "indptr": np.array([0, 0, n, n, n]),
        "indices": rng.integers(0, 500, n).astype(np.int32),
        "features": rng.standard_normal((500, width)),
        "labels": rng.standard_normal(n),
    }
    rows = p["features"][p["indices"]]
    got = call(backend, "segment_solve", p, labels=p["labels"], base=np.eye(width))
    np.testing.assert_allclose(got[1], np.linalg.solve(rows.T @ rows + np.eye(width), rows.T @ p["labels"]), rtol=1e-8)
    assert not got[[0, 2, 3]].any()


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
@given(seed=st.integers(0, 10**6), width=st.integers(1, 40))
def test_packed_solves_agree_and_mark_what_is_not_positive_definite(backend, seed, width):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built (no C++ compiler)")
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((6, width, width))
    full = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(width)
    full[2] -= (np.linalg.eigvalsh(full[2])[0] + 1.0) * np.eye(width)  # smallest eigenvalue -1
    rhs = rng.standard_normal((6, width))
    with linalg.use_backend(backend):
        solved, failed = linalg.solve_packed(linalg.pack(full), rhs)
        shifted, none_failed = linalg.solve_packed(linalg.pack(full), rhs, 2.0 * np.eye(width))
    assert failed.tolist() == [False, False, True, False, False, False]
    assert np.isnan(solved[2]).all()
    kept = ~failed
    np.testing.assert_allclose(
        solved[kept], np.linalg.solve(full[kept], rhs[kept][:, :, None])[:, :, 0], rtol=1e-6, atol=1e-7
    )
    assert not none_failed.any()
    np.testing.assert_allclose(
        shifted, np.linalg.solve(full + 2.0 * np.eye(width), rhs[:, :, None])[:, :, 0], rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_segment_without_a_solution_is_named_not_returned(backend):
    p = problem(5, 4)
    broken = p["base"] - 1e4 * np.eye(4)
    with pytest.raises(ArithmeticError, match="no solution"):
        call(backend, "segment_solve", p, labels=p["labels"], base=broken)
    p["features"][p["indices"][0]] = np.nan
    with pytest.raises(ArithmeticError, match="no solution"):
        call(backend, "segment_solve", p, labels=p["labels"], base=p["base"])


@pytest.mark.skipif(not linalg.compiled_available(), reason="the compiled kernel was not built (no C++ compiler)")
def test_results_do_not_depend_on_the_number_of_threads_or_the_run():
    p = problem(6, 20, np.float32, n_segments=400, longest=200)
    structure = (p["indptr"], p["indices"], p["features"])
    one = linalg.segment_gram(*structure, weights=p["weights"], threads=1)
    for threads in (1, 2, 5):
        np.testing.assert_array_equal(linalg.segment_gram(*structure, weights=p["weights"], threads=threads), one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([0, 99], np.int32)}, "got 0 to 99"),
        ({"indices": np.array([-1, 0], np.int32)}, "got -1 to 0"),
        ({"indptr": np.array([0, 3])}, "from 0 to 2"),
        ({"indptr": np.array([0, 2, 1, 2])}, "does not decrease"),
        ({"features": np.ones((3, 2), np.int64)}, "int64"),
        ({"weights": np.ones(5)}, r"weights of shape \(2,\), got \(5,\)"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_any_pointer_is_followed(change, message):
    good = {
        "indptr": np.array([0, 2]),
        "indices": np.array([0, 1], np.int32),
        "features": np.ones((3, 2)),
        "weights": np.ones(2),
    }
    with pytest.raises(ValueError, match=message):
        linalg.segment_gram(**{**good, **change})


def test_the_number_of_threads_can_be_set_from_outside(monkeypatch):
    monkeypatch.setenv("APPORTION_THREADS", "3")
    assert linalg.thread_count(None) == 3
    assert linalg.thread_count(1) == 1


def test_packing_is_the_lower_triangle_row_by_row():
    full = np.array([[1.0, 2, 4], [2, 3, 5], [4, 5, 6]])
    assert linalg.pack(full).tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(linalg.unpack(linalg.pack(full)), full)
    with pytest.raises(ValueError, match="triangular"):
        linalg.unpack(np.ones(4))


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
@pytest.mark.parametrize("width", [1, 5, 8, 17, 64, 130])
@pytest.mark.parametrize("signed", [False, True])
def test_float32_features_are_summed_exactly_as_their_float64_copies(backend, width, signed):
    p = problem(width, width, np.float32)
    weights = p["weights"].astype(np.float64) * (np.sign(p["labels"]) if signed else 1)
    grams, moments = expected(p, weights)
    close = {"rtol": 1e-12, "atol": 1e-12}
    got = call(backend, "segment_gram", p, weights=weights, dtype=np.float64)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, linalg.pack(grams), **close)
    got = call(backend, "segment_moment", p, coefficients=weights * p["labels"], dtype=np.float64)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, moments, **close)


def test_sums_below_the_precision_of_the_features_are_refused():
    p = problem(0, 3)
    for dtype in (np.float32, np.float16, np.int64):
        with pytest.raises(InputError, match="not below the features' float64"):
            linalg.segment_moment(p["indptr"], p["indices"], p["features"], coefficients=p["labels"], dtype=dtype)


def long_features(shuffled, n_segments=300, n_rows=70_000, width=65):
    """Rows of more bytes than the kernel takes at once: 18 MB."""
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 400, n_segments)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    picks = [rng.choice(n_rows, n, replace=False) for n in counts]
    indices = np.concatenate([rows if shuffled else np.sort(rows) for rows in picks]).astype(np.int32)
    features = rng.standard_normal((n_rows, width)).astype(np.float32)
    return {"indptr": indptr, "indices": indices, "features": features}, rng.standard_normal(len(indices))


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_moments_of_features_larger_than_the_cache_leave_nothing_out(shuffled, threads):
    p, coefficients = long_features(shuffled)
    got = call("compiled", "segment_moment", p, coefficients=coefficients, dtype=np.float64, threads=threads)
    wanted = call("numpy", "segment_moment", p, coefficients=coefficients, dtype=np.float64)
    np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11)


def test_moments_of_features_larger_than_the_cache_name_the_segment_that_is_spoiled():
    p, coefficients = long_features(shuffled=False)
    p["features"][p["indices"][p["indptr"][7]], 3] = np.nan
    first = min(
        s for s in range(300) if np.isnan(p["features"][p["indices"][p["indptr"][s] : p["indptr"][s + 1]], 3]).any()
    )
    with pytest.raises(ArithmeticError, match=f"Segment {first} has no finite moment: features"):
        call("compiled", "segment_moment", p, coefficients=coefficients, dtype=np.float64)


def crowd(seed, dtype=np.float32):
    """Segments of all lengths, one of them beyond what threads share, over skewed coordinates."""
    rng = np.random.default_rng(seed)
    width, n_rows = 8, 500
    lengths = np.concatenate([rng.integers(0, 12, 200), rng.integers(12, 300, 20), [40_000]])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return {
        "indptr": indptr,
        "indices": rng.integers(0, n_rows, indptr[-1]).astype(np.int32),
        "features": (rng.standard_normal((n_rows, width)) * np.geomspace(1, 1e-2, width)).astype(dtype),
        "labels": rng.standard_normal(indptr[-1]).astype(dtype),
    }


def one_of(p, segment):
    part = slice(p["indptr"][segment], p["indptr"][segment + 1])
    return {"indptr": [0, part.stop - part.start], "indices": p["indices"][part], "features": p["features"]}, part


@pytest.mark.parametrize("base", ["identity", "skewed"])
def test_a_solution_is_the_same_to_the_last_bit_alone_and_in_a_crowd(base):
    p = crowd(3)
    gram = 1e-3 * (p["features"].T @ p["features"]) + 1e-4 * np.eye(8)
    matrix = (np.eye(8) if base == "identity" else gram).astype(np.float32)
    together = call("compiled", "segment_solve", p, labels=p["labels"], base=matrix)
    for segment in [0, 1, 7, 150, 201, 219, 220]:
        alone, part = one_of(p, segment)
        found = call("compiled", "segment_solve", alone, labels=p["labels"][part], base=matrix, threads=1)
        np.testing.assert_array_equal(found[0], together[segment])


@pytest.mark.parametrize("backend", ["numpy", "compiled", "torch"])
def test_segments_without_a_solution_become_zero_if_asked_and_leave_the_others_alone(backend):
    indptr, indices = np.array([0, 1, 2, 3]), np.array([0, 1, 0], np.int32)
    features, weights = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -5.0, 2.0])
    p = {"indptr": indptr, "indices": indices, "features": features}
    arguments = {"labels": np.ones(3), "base": np.eye(2), "weights": weights}
    if backend == "torch":
        torch = pytest.importorskip("torch", reason="torch is not installed")
        from apportion.linalg import on_torch

        tensors = {name: torch.tensor(value) for name, value in arguments.items()}
        found = on_torch.segment_solve(*(torch.tensor(a) for a in p.values()), **tensors, unsolved="zero").numpy()
    else:
        found = call(backend, "segment_solve", p, **arguments, unsolved="zero")
    np.testing.assert_allclose(found, [[0.5, 0.0], [0.0, 0.0], [2 / 3, 0.0]], atol=1e-12)
    with pytest.raises(ArithmeticError):
        call(backend, "segment_solve", p, **arguments)
