"""The search that tunes every optimizer alike, what it leads to, and the claims that are read from stored runs."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from apportion.privacy.accounting import SampledGaussian, epsilon_of
from benchmarks import claim, heavytail_mnist, heavytail_synthetic
from papers.heavy_tail import deep, figures, front, synthetic
from papers.heavy_tail.long_tail import long_tail
from papers.heavy_tail.many_trainings import Task
from papers.heavy_tail.search import DISTANCES, LARGEST_CONSTANT, MOVES, Place, Search
from papers.heavy_tail.updates import OPTIMIZERS, setting_for

torch.set_num_threads(1)


def searched(loss, **settings):
    search = Search(**settings)
    rounds = 0
    while wanted := search.wanted():
        assert not set(wanted) & set(search.losses)  # nothing is tried twice
        search.take({place: loss(place) for place in wanted})
        rounds += 1
    return search, rounds


@pytest.mark.parametrize(("rate", "constant"), [(3, 0), (-21, 0), (37, 5), (11, -13)])
def test_a_search_ends_at_the_lowest_point_of_a_bowl_with_all_its_neighbours_tried(rate, constant):
    found, _ = searched(lambda p: (p.rate - rate) ** 2 + 2 * (p.constant - constant) ** 2, with_constant=True)
    assert found.best == Place(rate, constant)
    assert found.resolved
    around = {Place(rate + i, constant + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    assert around <= set(found.losses)
    assert len(found.losses) < 100


def test_a_search_without_a_constant_ends_with_neighbours_nine_percent_away():
    found, _ = searched(lambda p: abs(p.rate - 13), with_constant=False)
    assert found.best == Place(13)
    assert {Place(12), Place(14)} <= set(found.losses)
    assert Place(14).effective_rate / Place(13).effective_rate == pytest.approx(1.09, abs=0.001)
    assert all(place.constant == 0 for place in found.losses)


def test_a_search_that_never_turns_stops_and_says_so():
    found, rounds = searched(lambda p: -p.rate, with_constant=False)
    assert not found.resolved
    assert rounds <= 1 + MOVES * len(DISTANCES)


def test_constants_stay_in_their_range_and_infinite_losses_are_the_worst():
    found, _ = searched(lambda p: math.nan if p.rate > 0 else p.constant - p.rate, with_constant=True)
    assert min(place.constant for place in found.losses) == -LARGEST_CONSTANT
    assert found.best == Place(0, -LARGEST_CONSTANT)
    assert found.resolved


def test_one_effective_rate_moves_weights_alike_where_gradients_are_constant():
    """After many steps on a constant gradient every optimizer moves by the effective rate times the gradient a step."""
    from papers.heavy_tail.updates import Updates

    stddev = 0.5
    for name in OPTIMIZERS:
        made = setting_for(name, 0.3, 2.0, stddev)
        updates = Updates(name, torch.tensor([made.lr]), torch.tensor([made.constant]), stddev)
        weights, generator = torch.zeros(4000), torch.Generator().manual_seed(0)
        for _ in range(400):
            updates.apply(weights, 0.01 + stddev * torch.randn(4000, generator=generator))
        assert float(weights.mean()) == pytest.approx(-0.3 * 0.01 * 400, rel=0.2), name


def test_reach_is_read_off_the_lines_between_points_for_each_seed():
    lines = [
        {"loss": [[4.0, 2.0, 3.0], [5.0, 4.0, 3.0]], "rarest accuracy": [[0.0, 0.1, 0.2], [0.0, 0.1, 0.3]]},
        {"loss": [[9.0, 9.0, 9.0], [9.0, 9.0, 9.0]], "rarest accuracy": [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]},
    ]
    assert front.reach(lines, 2.5) == pytest.approx([0.15, 0.0])
    assert front.reach(lines, 3.0) == pytest.approx([0.2, 0.3])
    assert front.reach(lines, 9.0) == [1.0, 1.0]


def test_a_sweep_has_every_optimizer_at_the_same_rates_and_is_drawn():
    bench = synthetic.Bench(synthetic.Problem(1.0, 2.0, 6), long_tail(3, 2), "cpu")
    found = front.sweep(bench, (1, 2), rates=(0, 8))
    assert {name: len(lines) for name, lines in found.items()} == {
        "DP-GD": 1, "DP-GDM": 1, "DP-Adam": 1, "DP-AdamBC": 3,
    }  # fmt: skip
    assert all(line["effective rate"] == [1.0, 2.0] for lines in found.values() for line in lines)
    again = bench.curves("DP-GDM", [Place(8)], (2,))[0][0]
    assert found["DP-GDM"][0]["loss"][1][1] == pytest.approx(float(again.loss[0, -1]), abs=1e-3)
    picture = ElementTree.fromstring(figures.front({"problem": "small", "front": found}, highest=1e9))
    assert len(picture.findall("{*}path")) == 6
    assert len(picture.findall("{*}circle")) == 12


def linear_task():
    data = long_tail(3, 2)
    start = {"weight": torch.zeros((data.n_classes, data.inputs.shape[1]))}
    return Task(
        lambda p, row: p["weight"] @ row, start, torch.as_tensor(data.inputs), torch.as_tensor(data.labels),
        data.groups, 3,
    )  # fmt: skip


def test_deep_trainings_take_the_best_of_what_was_tried_and_are_accounted_for(tmp_path, monkeypatch):
    plan = deep.Plan(1.0, 0.8, 0.5, 8, looks=2, seeds=(1, 2), distances=(8,), start_constants=(0,))
    found = deep.study(linear_task(), plan, "cpu")
    for held in found["optimizers"].values():
        best = min(held["tried"], key=lambda one: one["loss at the end"])
        assert held["loss"]["effective rate"] == best["effective rate"]
        assert held["resolved"]
        rarest = max(one["rarest accuracy at the end"] for one in held["tried"])
        chosen = [one for one in held["tried"] if one["effective rate"] == held["rarest"]["effective rate"]]
        assert rarest in [one["rarest accuracy at the end"] for one in chosen]
        assert [run["seed"] for run in held["loss"]["runs"]] == [1, 2]
    monkeypatch.setattr(synthetic, "RESULTS", tmp_path)
    synthetic.stored({**found, "group names": ["a", "b", "c"], "source": "drawn", "device": "processor"}, "mnist")
    study = heavytail_mnist.stored_study("mnist")
    assert study["steps"] == [0, 4, 8]
    assert study["epsilon"][0] == 0
    assert study["epsilon"][-1] == pytest.approx(epsilon_of([SampledGaussian(0.8, 0.5, 8)], 1e-5), rel=2e-3)
    outcome = heavytail_mnist.deep_outcome(study, "a linear model", {})
    assert outcome.holds
    ends = [run["group accuracy"][-1][-1] for run in study["optimizers"]["DP-GD"]["loss"]["runs"]]
    assert outcome.value["DP-GD, by loss"]["accuracy by group"][-1] == pytest.approx(np.mean(ends), abs=1e-4)
    pictures = figures.of_trainings(study, "a linear model", study["group names"])
    assert len(ElementTree.fromstring(pictures["loss"]).findall("{*}path")) == 4 * 4


def test_the_stored_claim_is_that_of_the_stored_runs():
    study = heavytail_synthetic.read_stored("synthetic")
    stored = json.loads((claim.RESULTS / "heavytail-synthetic.json").read_text(encoding="utf-8"))
    orders = heavytail_synthetic.orders(study)
    assert stored["value"]["orders"] == orders
    assert stored["holds"] == all(orders.values())
    for name, by_loss in front.reaches(study["front"], heavytail_synthetic.LOSSES).items():
        for loss, by_seed in by_loss.items():
            assert study["reach"][name][loss] == pytest.approx(by_seed, abs=1.01e-4)
    for held in study["optimizers"].values():
        best = min(held["tried"], key=lambda one: one["loss"])
        assert held["loss"]["effective rate"] == pytest.approx(best["effective rate"], abs=1e-3)
    assert not set(study["seeds"]) & set(study["tuning seeds"])
