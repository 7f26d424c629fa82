"""The study of rare classes: its runs are those of the paper's study, and what it adds keeps the bound of a row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from papers.heavy_tail.long_tail import LongTail, long_tail
from papers.heavy_tail.many_runs import ManyRuns
from papers.heavy_tail.nearest import centred_rows, class_sums
from papers.heavy_tail.rare import (
    BASELINES,
    HEAD,
    METHODS,
    SHARE,
    START_RATES,
    RareBench,
    RareRuns,
    _badness,
    _setting,
)
from papers.heavy_tail.rare_sets import COLUMNS, drug_conditions, small_barcode
from papers.heavy_tail.search import Place
from papers.heavy_tail.synthetic import Problem

DESCENTS = [method for method in METHODS if method.kind != "nearest"]
DATA, PROBLEM, PLACES = long_tail(3, 3), Problem(1.0, 2.0, 50), [Place(8, -4), Place(16, 0)]


@pytest.mark.parametrize("method", BASELINES, ids=lambda method: method.name)
def test_the_papers_optimizers_take_the_steps_of_the_papers_study(method):
    ours = RareRuns(DATA, method, PLACES, PROBLEM, 5, "cpu")
    stddev = PROBLEM.noise_multiplier * PROBLEM.clip_norm / len(DATA.labels)
    theirs = ManyRuns(DATA, [_setting(method, place, stddev) for place in PLACES], 1.0, 2.0, [5], "cpu")
    assert ours.steps == PROBLEM.steps
    assert np.allclose(ours.run(6, 3).loss, theirs.run(6, 3).loss, atol=1e-5)
    assert torch.allclose(ours.weights, theirs.weights, atol=1e-5)


@pytest.mark.parametrize("method", DESCENTS, ids=lambda method: method.name)
def test_no_row_adds_more_than_the_clip_norm_in_the_metric_of_its_noise(method):
    runs = RareRuns(DATA, method, PLACES, PROBLEM, 5, "cpu")
    runs.run(3, 3)
    errors, _ = runs._errors(look=False)
    metric = errors / runs._scales() if method.kind == "scaled" else errors
    lengths = torch.linalg.vector_norm(metric, dim=2) * torch.linalg.vector_norm(runs._x, dim=1)[:, None]
    assert float(lengths.max()) <= PROBLEM.clip_norm * (1 + 1e-5)
    assert float(lengths.max()) > 0.5 * PROBLEM.clip_norm


def test_what_is_released_beside_gradients_is_paid_for_with_steps():
    steps = {method.name: RareRuns(DATA, method, PLACES, PROBLEM, 5, "cpu").steps for method in DESCENTS}
    assert steps["DP-GDM"] == steps["DP-AdamW, decay"] == 50
    assert steps["logits adjusted afterwards"] == int(50 * (1 - SHARE))
    assert steps["centred inputs, frequencies as bias"] == int(50 * (1 - 2 * SHARE))


def test_a_row_moves_the_sums_of_the_nearest_means_by_at_most_1():
    rows = centred_rows(DATA, DATA.inputs.mean(0))
    whole = class_sums(rows, DATA.labels, DATA.n_classes)
    for row in range(len(rows)):
        rest = np.arange(len(rows)) != row
        moved = np.linalg.norm(whole - class_sums(rows[rest], DATA.labels[rest], DATA.n_classes))
        assert moved == pytest.approx(1.0)


def test_nearest_means_without_noise_find_classes_that_lie_apart_and_with_much_noise_they_do_not():
    [nearest] = [method for method in METHODS if method.kind == "nearest"]
    assert nearest.released == 2 * SHARE
    inputs = np.eye(DATA.n_classes, 40, dtype=np.float32)[DATA.labels] + 0.01 * DATA.inputs[:, :1]
    apart = LongTail(inputs, DATA.labels, DATA.groups, DATA.n_classes, DATA.sizes)
    clear, hidden = (RareBench(Problem(1.0, noise, 50), apart, "cpu") for noise in (1e-6, 1e3))
    assert clear.at_the_end(nearest, [Place(-16, 0)], [1]).min() == 1.0
    assert hidden.at_the_end(nearest, [Place(-16, 0)], [1, 2, 3]).mean() < 0.7


def test_a_setting_is_judged_by_its_rarest_group_once_its_head_is_good_enough():
    good, better, poor = np.array([HEAD, 0.1]), np.array([HEAD + 0.1, 0.2]), np.array([HEAD - 0.1, 0.9])
    assert _badness(better) < _badness(good) < _badness(poor)


def test_conditions_of_reviews_become_classes_by_their_number_and_rows_of_one_length(tmp_path):
    names = ["acne"] * 120 + ["Anxiety "] * 20 + ["  flu"] * 10 + ["rare thing"] * 7
    columns = ("condition", "benefitsReview", "sideEffectsReview", "commentsReview")
    lines = ["\t".join(columns), *(f"{name}\tit helped, word{chr(97 + k % 26)}\t\tok" for k, name in enumerate(names))]
    file = tmp_path / "reviews.tsv"
    file.write_text("\n".join(lines), encoding="utf-8")
    data = drug_conditions(file)
    assert data.n_classes == 3  # seven reviews are too few
    assert np.bincount(data.labels).tolist() == [120, 20, 10]
    assert np.bincount(data.groups).tolist() == [120, 0, 20, 10]
    assert np.allclose(np.linalg.norm(data.inputs, axis=1), math.sqrt(COLUMNS / 3))


def test_the_head_that_is_asked_for_is_that_of_momentum_at_its_lowest_loss():
    bench = RareBench(PROBLEM, DATA, "cpu")
    accuracies, losses = bench._ends(BASELINES[1], [Place(rate) for rate in START_RATES], 5)
    assert bench.head_at_lowest_loss([5]) == accuracies[losses.argmin(), 0]
    assert _badness(np.array([0.4, 0.2]), 0.3) < _badness(np.array([0.2, 0.9]), 0.3)


def test_small_barcodes_have_the_classes_that_are_asked_for(tmp_path):
    data = small_barcode(tmp_path, sizes=((10, 6), (5, 2)))
    assert data.inputs.shape == (70, 784)
    assert np.bincount(data.groups).tolist() == [60, 10]
    assert data.n_classes == 15
