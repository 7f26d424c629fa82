"""Real and generated data for claims on regressions: features, numbers to predict, and whose rows they are."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.claim import data_folder, need

Floats = NDArray[np.float64]

DEPENDENCES, CURVES = (0.0, 0.5, 1.0), (0.0, 0.3)
SEED = 20_260_901


@dataclass(frozen=True, eq=False)
class Table:
    """One problem.

    Attributes:
        name: for tables.
        features: public or private, as the claim says.
        labels: to predict.
        users: whose row it is.
        label_range: of the labels.
    """

    name: str
    features: Floats
    labels: Floats
    users: NDArray[Any]
    label_range: tuple[float, float]


def real_tables() -> list[Table]:
    """Exam, ScotsSec, egsingle, InstEval and School."""
    mlmrev = data_folder() / "mlmrev"
    exam, scots, years = (_columns(mlmrev / name) for name in ("Exam.csv", "ScotsSec.csv", "egsingle.csv"))
    lectures = _columns(data_folder() / "insteval" / "InstEval.csv")
    female = (np.array(exam["sex"]) == "F").astype(float)
    rated = np.column_stack([_numbers(lectures[name]) for name in ("studage", "lectage", "service")])
    return [
        Table("Exam", _stacked(exam, "standLRT"), _numbers(exam["normexam"]), np.array(exam["school"]), (-4.0, 4.0)),
        Table(
            "Exam, 2 features",
            np.column_stack([_numbers(exam["standLRT"]), female]),
            _numbers(exam["normexam"]),
            np.array(exam["school"]),
            (-4.0, 4.0),
        ),
        Table("ScotsSec", _stacked(scots, "verbal"), _numbers(scots["attain"]), np.array(scots["primary"]), (1, 10)),
        Table("egsingle", _stacked(years, "year"), _numbers(years["math"]), np.array(years["childid"]), (-6.0, 6.0)),
        Table("InstEval", rated, _numbers(lectures["y"]), np.array(lectures["s"]), (1.0, 5.0)),
        _school(),
    ]


def generated_tables(n_users: int = 400) -> list[Table]:
    """Users whose levels go with their number of rows, and labels that are curved in the feature, each by a dial."""
    return [_generated(dependence, curve, n_users) for dependence in DEPENDENCES for curve in CURVES]


def _generated(dependence: float, curve: float, n_users: int) -> Table:
    rng = np.random.default_rng(SEED)
    sizes = np.clip(np.exp(rng.normal(2.5, 0.8, n_users)), 1, 120).astype(int)
    logs = np.log(sizes)
    level = dependence * (logs - logs.mean()) / logs.std() + np.sqrt(1 - dependence**2) * rng.normal(size=n_users)
    users = np.repeat(np.arange(n_users), sizes)
    x = rng.normal(size=len(users)) + 0.3 * level[users]
    labels = x + curve * (np.square(x) - 1) + 0.5 * level[users] + rng.normal(size=len(users))
    return Table(f"dependence {dependence:g}, curve {curve:g}", x[:, None], labels, users, (-5.0, 7.0))


def _school() -> Table:
    from scipy.io import loadmat

    found = loadmat(need(data_folder() / "school" / "school.mat", "School"))
    features = [np.asarray(each, float) for each in found["X"].ravel()]
    labels = [np.asarray(each, float).ravel() for each in found["Y"].ravel()]
    users = np.repeat(np.arange(len(labels)), [len(each) for each in labels])
    chosen = np.vstack(features)[:, [3, 4, 5]]  # free meals, band, gender
    return Table("School", chosen, np.concatenate(labels), users, (0.0, 70.0))


def _columns(path: Path) -> dict[str, list[str]]:
    with need(path, path.stem).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def _numbers(column: list[str]) -> Floats:
    return np.array([float(cell) for cell in column])


def _stacked(columns: dict[str, list[str]], name: str) -> Floats:
    return _numbers(columns[name])[:, None]
