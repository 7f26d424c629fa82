"""The paper's drug reviews where they are at hand, and a generated stand-in of the same shape that always is.

The reviews are those of the file drugLibTrain_raw.tsv of the UCI data set "Drug Review Dataset (Druglib.com)": 3,107
rows. As in the paper, a "user" is a drug: 502 of them, with 1 to 63 rows. Features are how effective it was and how bad
its side effects were, one column for each category but the first in alphabetical order, so that d = 8; which categories
there are is public. The label is the rating, 1 to 10.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from benchmarks.claim import data_folder, need

Floats = NDArray[np.float64]

EFFECTIVENESS = (
    "Considerably Effective", "Highly Effective", "Ineffective", "Marginally Effective", "Moderately Effective",
)  # fmt: skip
SIDE_EFFECTS = (
    "Extremely Severe Side Effects", "Mild Side Effects", "Moderate Side Effects", "No Side Effects",
    "Severe Side Effects",
)  # fmt: skip
FEATURE_NORM = 2**0.5  # of a row with a 1 for each of the two
USERS, LARGEST, EXPONENT = 502, 63, 1.5  # sizes of the stand-in: the number of users with s rows is as s^-1.5


def load_drugs(path: Path | None = None) -> tuple[Floats, Floats, NDArray[np.str_]]:
    """Features, ratings and whose row it is; from APPORTION_DATA unless a file is given."""
    file = path or need(data_folder() / "drugs" / "drugLibTrain_raw.tsv", "The set of drug reviews")
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    features = np.column_stack(
        [
            one_hot([row["effectiveness"] for row in rows], EFFECTIVENESS),
            one_hot([row["sideEffects"] for row in rows], SIDE_EFFECTS),
        ]
    )
    return features, np.array([float(row["rating"]) for row in rows]), np.array([row["urlDrugName"] for row in rows])


def standin_drugs(seed: int) -> tuple[Floats, Floats, NDArray[np.int_]]:
    """The same from a generator: 502 users, 3,000 to 3,200 rows in random order, ratings from a linear model."""
    rng = np.random.default_rng(seed)
    chances = np.arange(1, LARGEST + 1) ** -EXPONENT
    places = (np.arange(USERS) + rng.random(USERS)) / USERS  # evenly, so that the number of rows hardly varies
    sizes = 1 + np.searchsorted(np.cumsum(chances / chances.sum())[:-1], places)
    n_rows = int(sizes.sum())
    effective = rng.choice(5, n_rows, p=(0.30, 0.43, 0.08, 0.06, 0.13))
    side = rng.choice(5, n_rows, p=(0.06, 0.33, 0.19, 0.30, 0.12))
    liked = np.array([7.7, 9.0, 2.2, 4.0, 6.2])[effective] + np.array([-2.0, 0.2, -0.6, 0.6, -1.4])[side]
    ratings = np.clip(np.rint(liked + 1.5 * rng.standard_normal(n_rows)), 1.0, 10.0)
    features = np.column_stack([np.eye(5)[effective, 1:], np.eye(5)[side, 1:]])
    return features, ratings, rng.permutation(np.repeat(np.arange(USERS), sizes))


def one_hot(values: Sequence[str], categories: Sequence[str]) -> Floats:
    """A column for each category but the first."""
    places = {category: place for place, category in enumerate(categories)}
    unknown = next((value for value in values if value not in places), None)
    if unknown is not None:
        raise InputError(f"Expected a category among {', '.join(map(repr, categories))}, got {unknown!r}.")
    return np.asarray(np.eye(len(categories))[[places[value] for value in values], 1:])
