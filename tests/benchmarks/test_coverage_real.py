"""The claim on coverage puts means, medians and regressions together."""

from __future__ import annotations

from benchmarks import coverage_real
from benchmarks.real_rows import generated


def test_cells_of_means_and_of_regressions_are_counted_each_by_its_own_limits(monkeypatch):
    monkeypatch.setattr(coverage_real, "real_sets", list)
    monkeypatch.setattr(coverage_real, "generated", lambda dial: generated(dial, 5))
    monkeypatch.setattr(coverage_real, "means", lambda rows, epsilon, runs: (0.97, 1.0 + epsilon))
    monkeypatch.setattr(coverage_real, "medians", lambda rows, epsilon, runs: 0.99)
    monkeypatch.setattr(coverage_real, "regressions", lambda: {"held": (0.95, 1.5), "missed": (0.9, 2.5)})
    value = coverage_real.measure(quick=False).value
    assert value["least covered"] == 0.9
    assert value["cells below 93 %"] == 1
    assert value["cells of means wider than 2"] == 4  # ε = 3, for each of four dials
    assert value["cells of regressions wider than 2"] == 1
    assert value["missed"] == [0.9, 2.5]
