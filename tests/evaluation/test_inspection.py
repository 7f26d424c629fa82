"""Neighbours and overlaps against slow definitions; blocks and missing vectors change nothing they should not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data import Vocabulary, synthetic
from apportion.errors import InputError
from apportion.evaluation import Study, nearest, neighbours, overlap, popularity_slices, run_study
from apportion.evaluation.inspection import inspect_study
from apportion.evaluation.study.parts import split_study, study_slices
from apportion.privacy import SeededNoise
from apportion.recommend import ClickRecommender, PrivateClickRecommender
from apportion.recommend.model import ClickModel, FoldIn


def model_of(vectors, ids=None):
    vectors = np.asarray(vectors, np.float32)
    n_tasks, width = vectors.shape
    return ClickModel(
        fold_in=FoldIn(vectors, np.ones(n_tasks, np.float32), np.eye(width), np.zeros(width)),
        vectors=vectors,
        popularity=np.ones(n_tasks),
        reliability=np.ones(n_tasks),
        task_ids=Vocabulary(np.arange(n_tasks) if ids is None else ids, name="task"),
        statement=None,
    )


def random_models(seed, n_tasks=25, width=3):
    rng = np.random.default_rng(seed)
    return [model_of(rng.standard_normal((n_tasks, width))) for _ in range(2)]


def test_neighbours_of_a_toy_by_hand():
    ids = ["north", "north-east", "east", "south"]
    model = model_of([[0, 2], [1, 1.1], [3, 0], [0, -1]], ids)
    turned = model_of([[0, 2], [1, -1], [0.1, 1], [1, 0]], ids)
    found = neighbours({"one": model, "two": turned}, "north", 2)
    assert list(found) == ["one", "two"]
    assert [each.task for each in found["one"]] == ["north-east", "east"]
    assert [each.task for each in found["two"]] == ["east", "south"]
    assert found["one"][0].similarity == pytest.approx(1.1 / np.hypot(1, 1.1), rel=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 24))
def test_the_nearest_of_all_are_those_of_each(seed, k):
    model = random_models(seed)[0]
    found = nearest(model, k)
    for task in range(model.n_tasks):
        assert found[task].tolist() == [each.task for each in model.similar(task, k)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 24), st.integers(1, 4))
def test_overlap_is_the_mean_share_of_common_neighbours(seed, k, n_slices):
    model, reference = random_models(seed)
    slices = popularity_slices(np.random.default_rng(seed).integers(0, 9, 25), n_slices)
    shares = np.array(
        [
            len({each.task for each in model.similar(task, k)} & {each.task for each in reference.similar(task, k)}) / k
            for task in range(25)
        ]
    )
    found = overlap(model, reference, k, slices=slices)
    assert found.overall == pytest.approx(shares.mean())
    assert found.by_slice == pytest.approx([shares[slices.of_task == number].mean() for number in range(n_slices)])
    assert sum(found.n_by_slice) == found.n == 25
    assert overlap(reference, model, k).overall == pytest.approx(found.overall)
    assert overlap(model, model, k).overall == 1.0


def test_blocks_change_nothing(monkeypatch):
    model, reference = random_models(3)
    whole, all_nearest = overlap(model, reference, 5), nearest(model, 5)
    monkeypatch.setattr("apportion.evaluation.inspection._CELLS_AT_ONCE", 3 * 25)
    assert overlap(model, reference, 5) == whole
    assert (nearest(model, 5) == all_nearest).all()


def test_a_large_catalogue_needs_no_matrix_of_all_pairs():
    import tracemalloc

    rng = np.random.default_rng(0)
    model, reference = (model_of(rng.standard_normal((5_000, 2))) for _ in range(2))
    tracemalloc.start()
    found = overlap(model, reference, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.n == 5_000
    assert peak < 5_000 * 5_000 * 4 / 1.5  # bytes; all cosines at once would take half as many again


def test_tasks_without_a_vector_share_nothing_and_are_left_out_of_the_reference():
    vectors = np.random.default_rng(1).standard_normal((10, 3))
    silent = vectors.copy()
    silent[:4] = 0.0
    full, gaps = model_of(vectors), model_of(silent)
    assert overlap(full, gaps, 2).n == 6
    found = overlap(gaps, full, 9)  # all others are neighbours, yet a task without vector has none
    assert (found.n, found.overall) == (10, pytest.approx(6 / 10))
    slices = popularity_slices(np.arange(10), 5)
    assert overlap(full, gaps, 9, slices=slices).by_slice == (None, None, 1.0, 1.0, 1.0)
    with pytest.raises(InputError, match="all 10 vectors are zero"):
        overlap(full, model_of(np.zeros((10, 3))), 2)


def test_what_cannot_be_compared_is_refused():
    model, reference = random_models(0)
    with pytest.raises(InputError, match="Expected k from 1 to 24, got 25"):
        overlap(model, reference, 25)
    with pytest.raises(InputError, match="Expected k from 1 to 24, got 0"):
        nearest(model, 0)
    with pytest.raises(InputError, match="same list of tasks, got 25 and 25"):
        overlap(model, model_of(reference.vectors, np.arange(1, 26)), 5)
    with pytest.raises(InputError, match="Expected slices of 25 tasks, got 3"):
        overlap(model, reference, 5, slices=popularity_slices([1, 2, 3], 1))
    with pytest.raises(InputError, match="at least one model"):
        neighbours({}, 1)


def test_a_model_with_a_large_budget_agrees_more_with_the_limit_than_one_with_a_small():
    data, _ = synthetic.long_tailed_clicks(1500, 120, 40_000, rank=3, rng=np.random.default_rng(0))
    limit = ClickRecommender(dimension=3).fit(data).model_
    shares = {}
    for epsilon in (0.1, 100.0):
        private = PrivateClickRecommender(epsilon=epsilon, dimension=3, rounds=3, noise=SeededNoise(0))
        shares[epsilon] = overlap(private.fit(data).model_, limit, 10).overall
    assert shares[0.1] < 0.2  # 10 of 119 at random is 0.084
    assert shares[100.0] > shares[0.1] + 0.1


def test_a_study_keeps_models_and_compares_them_with_its_reference(tmp_path):
    data, _ = synthetic.long_tailed_clicks(300, 60, 5000, rank=2, rng=np.random.default_rng(0))
    table = {
        "data": {"kind": "clicks"},
        "budgets": {"epsilon": [1, 8], "seeds": [3, 4]},
        "methods": [
            {"method": "ours", "dimension": 2, "rounds": 2},
            {"name": "limit", "method": "non-private", "dimension": 2},
        ],
        "inspection": {"k": 5},
    }
    study = Study.from_table(table)
    results = run_study(study, data, tmp_path / "s")
    assert len(list((tmp_path / "s" / "models").iterdir())) == 3  # of the first seed alone
    slices = study_slices(study, split_study(study, data).train)
    found = inspect_study(results, slices, [7, 8], n_neighbours=3)
    assert {epsilon: list(by_label) for epsilon, by_label in found.overlaps.items()} == {1.0: ["ours"], 8.0: ["ours"]}
    assert list(found.neighbours) == [(7, 1.0), (8, 1.0), (7, 8.0), (8, 8.0)]
    assert list(found.neighbours[7, 1.0]) == ["limit", "ours"]
    assert found.neighbours[7, 1.0]["limit"] == found.neighbours[7, 8.0]["limit"]
    assert len(found.neighbours[8, 8.0]["ours"]) == 3
    assert len(found.to_dict()["neighbours"]) == 8
    plain = run_study(Study.from_table(table | {"inspection": {}}), data, tmp_path / "s")
    assert plain.cells[0].model is not None
    del table["inspection"]
    without = run_study(Study.from_table(table), data, tmp_path / "s")
    with pytest.raises(InputError, match="a table \\[inspection\\]"):
        inspect_study(without, slices)
