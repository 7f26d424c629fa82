"""Figures and tables of the public-features paper: lines where their numbers are, drawn from what claims stored."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import features_ml1m
from papers.public_features import figures, movielens, tables
from papers.public_features.__main__ import main
from papers.public_features.drawing import Line, Panel, figure
from papers.public_features.stand_ins import feature_driven_clicks

SVG = "{http://www.w3.org/2000/svg}"


def elements(markup, tag):
    return list(ElementTree.fromstring(markup).iter(f"{SVG}{tag}"))


def places(path):
    numbers = [float(number) for number in re.findall(r"-?[0-9.]+", path.get("d"))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def found(*, worse=()):
    """Figures of every row and ε on one seed: rows further down are worse, and those named are worst of all."""
    rows = [movielens.FEATURES, *map(movielens.resampled, movielens.RESAMPLES), movielens.GRADIENT]
    rows += [movielens.GRADIENT_ID, movielens.ID_ONLY]
    ranked = {name: 100.0 if name in worse else float(order) for order, name in enumerate(rows)}
    return {
        name: {e: [[value + place for place in range(12)]] for e in ("1", "5", "20")} for name, value in ranked.items()
    }


def stored():
    settings = features_ml1m._settings({"ratings": found(), "clicks": found()}, {"ratings": {}, "clicks": {"x": False}})
    settings["users with targets by slice"] = {"clicks": [1, 2, 3, 4, 5]}
    value = {kind: movielens.means(found()) for kind in ("ratings", "clicks")}
    return {"value": value, "settings": settings}


def test_points_lie_where_their_numbers_are():
    markup = figure("a", [Panel("b", {"up": Line([1, 2, 3], [1.0, 2.0, 4.0], [0.5, 0.5, 0.5])}, "x")])
    (path,) = elements(markup, "path")
    (x1, y1), (x2, y2), (x3, y3) = places(path)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y2 - y3 == pytest.approx(2 * (y1 - y2), abs=0.3)
    bars = [line for line in elements(markup, "line") if "bar" in line.get("class")]
    assert len(bars) == 3
    for bar, y in zip(bars, (y1, y2, y3), strict=True):
        ends = float(bar.get("y1")), float(bar.get("y2"))
        assert ends[0] - ends[1] == pytest.approx(y1 - y2, abs=0.2)  # two standard deviations are one unit
        assert sum(ends) / 2 == pytest.approx(y, abs=0.1)


def test_logarithmic_axes_and_a_common_scale_place_equal_ratios_alike():
    panels = [
        Panel("one", {"a": Line([1, 10, 100], [1.0, 10.0, 100.0])}, "x", log_x=True, log_y=True),
        Panel("two", {"b": Line([1, 10], [31.6228, 31.6228], dashed=True)}, "x", log_x=True, log_y=True),
    ]
    one, two = elements(figure("a", panels, same_y=True), "path")
    (x1, y1), (x2, y2), (x3, y3) = places(one)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    assert places(two)[0][1] == pytest.approx((y2 + y3) / 2, abs=0.2)
    assert "dashed" in two.get("class")
    apart = elements(figure("a", panels), "path")[1]
    assert abs(places(apart)[0][1] - (y2 + y3) / 2) > 10


def test_the_figures_command_draws_all_that_is_stored(tmp_path, capsys):
    assert main(["figures", "--folder", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(list(tmp_path.iterdir()))
    assert {path.stem for path in tmp_path.iterdir()} == {
        "tradeoff-ratings", "tradeoff-clicks", "draws", "slices-ratings", "slices-clicks", "time", "scaling", "cost",
        "visits",
    }  # fmt: skip
    for path in tmp_path.iterdir():
        markup = path.read_text(encoding="utf-8")
        _, _, width, height = map(float, ElementTree.fromstring(markup).get("viewBox").split())
        paths = elements(markup, "path")
        assert len(paths) >= 2, path.name
        for x, y in (place for line in paths for place in places(line)):
            assert 0 < x < width, path.name
            assert 0 < y < height, path.name


def test_the_tables_command_writes_every_row_that_is_stored(tmp_path, capsys):
    assert main(["tables", "--folder", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"scaling.md", "ml1m.md", "cost.md"}
    text = (tmp_path / "ml1m.md").read_text(encoding="utf-8")
    for kind, times in (("ratings", 1), ("clicks", 2)):
        for name in [*movielens.main_rows(), *movielens.reported_rows(kind)]:
            assert text.count(f"| {name} | 20 |") >= times, name


def test_without_results_only_what_formulas_say_is_drawn(tmp_path):
    drawn = figures.write(tmp_path / "drawn", results=tmp_path)
    assert {path.stem for path in drawn} == {"cost", "visits"}


def test_slices_of_clicks_are_drawn_and_listed_as_ranked_alone():
    pictures = figures.of_comparison(stored())
    assert "Recall@20 within the slice" in pictures["slices-clicks"]
    assert len(elements(pictures["slices-clicks"], "path")) == 3 * len(figures.SLICED)
    text = tables.comparison(stored())
    row = next(
        line for line in text.split("within slices")[1].splitlines() if line.startswith(f"| {movielens.FEATURES} |")
    )
    assert row.split(" | ")[2:4] == ["0.0000 (0.0000)", "7.0000 (0.0000)"]  # overall, and the slice ranked alone
    assert "Not held: x." in text


def test_every_statement_of_the_claim_is_checked_where_it_says():
    every = features_ml1m.checked(found(), 1)
    assert len(every) == 3 + 6 + 3 + 6
    assert all(every.values())
    assert not any(features_ml1m.checked(found(), -1).values())
    lost = features_ml1m.checked(found(worse=[movielens.FEATURES]), 1)
    assert {name for name, held in lost.items() if held} == {name for name in every if "draws" in name}
    rare = found()
    rare[movielens.FEATURES] = {e: [[*each[0][:7], 99.0, *each[0][8:]]] for e, each in rare[movielens.FEATURES].items()}
    failed = {n for n, held in features_ml1m.checked(rare, 1, movielens.WITHIN_BY_SLICE).items() if not held}
    assert failed == {f"features help in slice 1 at ε = {e}" for e in ("1", "5", "20")}
    assert all(features_ml1m.checked(rare, 1, movielens.BY_SLICE).values())


def test_users_with_targets_are_counted_by_slice():
    data, rows = feature_driven_clicks(200, 60, 12)
    bench = movielens.Bench.split("clicks", data, rows, held_out=30)
    order = np.argsort(bench.train.by_task.counts, kind="stable")
    rarest = set(order[:12].tolist())
    expected = {user for user, task in zip(bench.target.users, bench.target.tasks, strict=True) if int(task) in rarest}
    counted = bench.users_by_slice()
    assert counted[0] == len(expected)
    assert max(counted) <= 30
    other = movielens.Bench.split("clicks", data, rows, held_out=30, validation=True)
    assert not set(other.target.users.tolist()) & set(bench.target.users.tolist())


def test_a_lead_within_two_standard_errors_is_named():
    pair = {movielens.FEATURES: [[1.0], [1.2]], movielens.GRADIENT: [[1.1], [1.5]]}
    rows = {
        name: {e: [each * 12 for each in pair.get(name, [[5.0], [5.0]])] for e in by} for name, by in found().items()
    }
    lead, error = features_ml1m.leads(rows, 1)["SSP beats DP-SGD at ε = 5"]
    assert lead == pytest.approx(0.2)
    assert error == pytest.approx(np.sqrt(0.02 / 2 + 0.08 / 2))  # sample variances over two seeds
    close = features_ml1m.narrow(rows, 1, movielens.BY_SLICE)
    assert "SSP beats DP-SGD at ε = 5" in close
    assert "features help at ε = 5" not in close
