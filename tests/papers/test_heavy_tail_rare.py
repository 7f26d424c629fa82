"""The study of rare classes: its runs are those of the paper's study, and what it adds keeps the bound of a row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from papers.heavy_tail.long_tail import long_tail
from papers.heavy_tail.many_runs import ManyRuns
from papers.heavy_tail.rare import BASELINES, HEAD, METHODS, SHARE, RareRuns, _badness, _setting
from papers.heavy_tail.search import Place
from papers.heavy_tail.synthetic import Problem

DATA, PROBLEM, PLACES = long_tail(3, 3), Problem(1.0, 2.0, 50), [Place(8, -4), Place(16, 0)]


@pytest.mark.parametrize("method", BASELINES, ids=lambda method: method.name)
def test_the_papers_optimizers_take_the_steps_of_the_papers_study(method):
    ours = RareRuns(DATA, method, PLACES, PROBLEM, 5, "cpu")
    stddev = PROBLEM.noise_multiplier * PROBLEM.clip_norm / len(DATA.labels)
    theirs = ManyRuns(DATA, [_setting(method, place, stddev) for place in PLACES], 1.0, 2.0, [5], "cpu")
    assert ours.steps == PROBLEM.steps
    assert np.allclose(ours.run(6, 3).loss, theirs.run(6, 3).loss, atol=1e-5)
    assert torch.allclose(ours.weights, theirs.weights, atol=1e-5)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_no_row_adds_more_than_the_clip_norm_in_the_metric_of_its_noise(method):
    runs = RareRuns(DATA, method, PLACES, PROBLEM, 5, "cpu")
    runs.run(3, 3)
    errors, _ = runs._errors(look=False)
    metric = errors / runs._scales() if method.kind == "scaled" else errors
    lengths = torch.linalg.vector_norm(metric, dim=2) * torch.linalg.vector_norm(runs._x, dim=1)[:, None]
    assert float(lengths.max()) <= PROBLEM.clip_norm * (1 + 1e-5)
    assert float(lengths.max()) > 0.5 * PROBLEM.clip_norm


def test_what_is_released_beside_gradients_is_paid_for_with_steps():
    steps = {method.name: RareRuns(DATA, method, PLACES, PROBLEM, 5, "cpu").steps for method in METHODS}
    assert steps["DP-GDM"] == steps["DP-AdamW, decay"] == 50
    assert steps["logits adjusted afterwards"] == int(50 * (1 - SHARE))
    assert steps["centred inputs, frequencies as bias"] == int(50 * (1 - 2 * SHARE))


def test_a_setting_is_judged_by_its_rarest_group_once_its_head_is_good_enough():
    good, better, poor = np.array([HEAD, 0.1]), np.array([HEAD + 0.1, 0.2]), np.array([HEAD - 0.1, 0.9])
    assert _badness(better) < _badness(good) < _badness(poor)
