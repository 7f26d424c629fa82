"""Bugs of reading: one user's cells change how the rows of others are read. Replay in memory cannot see these."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from apportion.auditing.fits import audit_file, fit_of
from apportion.auditing.neighbour_files import UserFile
from apportion.cli.loading import load_data
from apportion.cli.options import DataOptions
from apportion.data import arrow_columns
from apportion.data.arrow_columns import ValueColumn
from apportion.data.row_rules import RowRules
from apportion.data.time_texts import UNREADABLE
from apportion.privacy import Budget
from planted.cases import Case, Verdict

from private_estimators import ratings

FORMATS = ("csv", "jsonl", "parquet")
NAMES = ("user", "item", "rating", "timestamp")


def rows():
    """Two rows of each user for each item, the later one first; one user has odd cells: a value of 10, an empty one."""
    rng = np.random.default_rng(0)
    found = [
        (f"u{user}", f"i{item}", int(rng.integers(1, 6)), str(1_600_000_000 + late))
        for user in range(12)
        for item in range(4)
        for late in (9, 3)
    ]
    own = [("zz", f"i{k % 4}", 3 + (k == 5) * 7 if k != 7 else None, "unknown" if k == 3 else "5") for k in range(9)]
    return [*found[:20], *own, *found[20:]]


def written(folder, ending):
    """Write the rows as a file of a format."""
    path = folder / f"ratings.{ending}"
    if ending == "parquet":
        parquet.write_table(pa.table(dict(zip(NAMES, zip(*rows(), strict=True), strict=True))), path)
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows()))
    else:
        lines = [",".join("" if cell is None else str(cell) for cell in row) for row in (NAMES, *rows())]
        path.write_text("\n".join(lines) + "\n")
    return path


def load(path):
    named = {"user": "user", "item": "item", "value": "rating"}
    return load_data(path, DataOptions(**named, scale=(0.0, 10.0)), single_user=True).data


def audited(ending):
    """Audit the file of a format; the user whose cells are odd has the most rows."""
    with tempfile.TemporaryDirectory() as place:
        file = UserFile(written(Path(place), ending), "user")
        return audit_file(
            file,
            load,
            fit_of(lambda: ratings(rounds=1, items="from-data", value_range=(0.0, 10.0))),
            Budget(5.0, 1e-5),
            users=3,
        )


def read_with(owner, name, wrong, ending="csv"):
    """Audit a reader with one function replaced by a wrong one."""
    with mock.patch.object(owner, name, wrong):
        return verdict_of(audited(ending))


@cache
def read_as_it_is(ending="csv"):
    return verdict_of(audited(ending))


def verdict_of(report):
    failed = [check.words for check in report.checks if not check.passed]
    assert len(report.checks) == 2
    return Verdict(report.violated, (failed or [report.checks[0].words])[0][:120])


def times_of_the_whole_column(honest):
    """No cell is a time if one of them is none."""

    def times(cells, column, first_row, *, loose):
        seconds, rest = honest(cells, column, first_row, loose=loose)
        return (np.full_like(seconds, UNREADABLE), None) if (seconds == UNREADABLE).any() else (seconds, rest)

    return times


def values_of_the_largest(honest):
    """Values are halved if one of them shows that the scale ends at ten."""

    def finish(self):
        values = honest(self)
        return values / 2 if values.max() > 5 else values

    return finish


def items_without_empty_cells(honest):
    """Rows of an item are left out if one of them has an empty value."""

    def kept(self, batch, roles, first_row, left_out):
        items, values = batch.column("item"), batch.column("rating")
        empty = pc.is_in(items, items.filter(pc.is_null(values)))
        return honest(self, batch.filter(pc.invert(empty)), roles, first_row, left_out)

    return kept


BUGS = {
    "times judged by the whole column": (arrow_columns, "times_of_texts", times_of_the_whole_column),
    "a scale judged by the largest value": (ValueColumn, "finish", values_of_the_largest),
    "an empty cell that empties an item": (RowRules, "kept", items_without_empty_cells),
}


def cases():
    for name, (owner, function, make) in BUGS.items():
        wrong = make(getattr(owner, function))
        yield Case(
            name,
            "a reader that decides by all rows",
            "replay",
            lambda owner=owner, function=function, wrong=wrong: read_with(owner, function, wrong),
            read_as_it_is,
        )
