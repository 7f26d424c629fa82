"""The paper's benchmarks on small stand-ins with the layout of the real downloads."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data import Interactions
from apportion.errors import InputError
from apportion.evaluation import run_study
from papers.skew.__main__ import main
from papers.skew.protocols import PROTOCOLS, with_at_least

METHODS = [
    {"name": "ours", "method": "ours"},
    {"name": "AdaDPALS", "method": "statistics", "allocation": {"policy": "adaptive"}, "dimension": 4},
    {"name": "ALS", "method": "non-private"},
]


def rows(seed, n_users=150, n_tasks=60, tail=0.4):
    """(user, task) pairs with a long tail."""
    rng = np.random.default_rng(seed)
    chance = 0.9 / np.arange(1, n_tasks + 1) ** tail
    return np.argwhere(rng.random((n_users, n_tasks)) < chance), rng


def write_ml10m(folder):
    pairs, rng = rows(0)
    values = rng.integers(1, 11, len(pairs)) / 2
    lines = [f"{u + 1}::{t + 1}::{v:g}::838985046" for (u, t), v in zip(pairs, values, strict=True)]
    (folder / "ratings.dat").write_text("\n".join(lines) + "\n")
    return pairs, values


def write_ml20m(folder):
    pairs, rng = rows(1)
    values = rng.integers(6, 11, len(pairs)) / 2
    lines = [f"{u + 1},{t + 1},{v:g},1112486027" for (u, t), v in zip(pairs, values, strict=True)]
    (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "\n".join(lines) + "\n")
    return pairs, values


def write_msd(folder):
    pairs, rng = rows(2, n_users=700, n_tasks=80, tail=0.3)
    values = rng.integers(1, 9, len(pairs))
    lines = [f"b80344d063b5ccb3{u:04x}\tSOAKIMP{t:04d}\t{v}" for (u, t), v in zip(pairs, values, strict=True)]
    (folder / "train_triplets.txt").write_text("\n".join(lines) + "\n")
    return pairs, values


WRITERS = {"ml10m": write_ml10m, "ml20m": write_ml20m, "msd": write_msd}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_download_is_read_split_and_measured_as_the_benchmark_says(name, tmp_path):
    WRITERS[name](tmp_path)
    protocol = PROTOCOLS[name]
    data = protocol.load(tmp_path)
    held_out = None if protocol.kind == "ratings" else 30
    study = protocol.study(METHODS, [5.0], [0], held_out=held_out)
    results = run_study(study, data, tmp_path / "out")
    assert not results.failures
    metric = "rmse" if protocol.kind == "ratings" else "recall@20"
    figures = {label: results.cell(label, 5.0).figure(metric).mean for label in results.labels}
    assert list(figures) == ["ours", "AdaDPALS", "ALS"]
    assert all(np.isfinite(list(figures.values())))
    assert results.study.budgets.delta == protocol.delta


def test_ml10m_keeps_half_stars_and_every_row(tmp_path):
    pairs, values = write_ml10m(tmp_path)
    data = PROTOCOLS["ml10m"].load(tmp_path)
    assert data.n_observations == len(pairs)
    assert sorted(data.values.tolist()) == sorted(values.tolist())


def test_ml20m_keeps_liked_movies_of_users_with_five(tmp_path):
    pairs, values = write_ml20m(tmp_path)
    data = PROTOCOLS["ml20m"].load(tmp_path)
    liked = pairs[values >= 4]
    enough = np.bincount(liked[:, 0], minlength=150) >= 5
    assert data.n_observations == enough[liked[:, 0]].sum()
    assert data.by_user.counts.min() >= 5
    assert data.values.min() >= 4


def test_msd_filters_songs_first_and_then_users(tmp_path):
    pairs, _ = write_msd(tmp_path)
    data = PROTOCOLS["msd"].load(tmp_path)
    popular = np.bincount(pairs[:, 1], minlength=80) >= 200
    kept = pairs[popular[pairs[:, 1]]]
    heavy = np.bincount(kept[:, 0], minlength=700) >= 20
    assert 0 < data.n_tasks <= popular.sum() < 80
    assert data.n_observations == heavy[kept[:, 0]].sum()
    assert data.by_user.counts.min() >= 20


def test_what_the_filters_reveal_is_in_the_statement(tmp_path):
    write_msd(tmp_path)
    protocol = PROTOCOLS["msd"]
    study = protocol.study(METHODS[:1], [1.0], [0], held_out=20)
    public = study.methods[0].spec["public"]
    assert any("200 or more users" in sentence for sentence in public)


def test_a_missing_file_or_an_empty_result_gets_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"Expected ratings\.dat in .*; it is part of the benchmark's own download"):
        PROTOCOLS["ml10m"].load(tmp_path)
    few = Interactions.from_arrays([1, 2], [1, 2])
    with pytest.raises(InputError, match="No row is left of users with 3 tasks or more"):
        with_at_least(few, users=3)


def test_the_command_runs_a_benchmark_from_a_download_and_writes_its_table(tmp_path, capsys):
    write_ml10m(tmp_path)
    code = main(["ml10m", "--data", str(tmp_path), "--epsilon", "5", "--seeds", "1", "--out", str(tmp_path / "out")])
    assert code == 0
    shown = capsys.readouterr().out
    assert "AdaDPSGD" in shown
    assert "without privacy" in shown
    assert (tmp_path / "out" / "table.csv").read_text().count("\n") > 20
    assert "not covered by" in (tmp_path / "out" / "comparison.html").read_text()


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert main(["msd", "--data", str(tmp_path)]) == 1
    assert "Expected train_triplets.txt" in capsys.readouterr().err
