"""Claim: a file of ratings with text ids becomes `Interactions` in at most 1.5 times what DuckDB takes to sort it.

25 million rows, 150 a user, in random order, as CSV and as Parquet. The peer is `CREATE TABLE ... ORDER BY user` over
the same file with VARCHAR ids, in memory, by as many threads; the fastest of three, one after the other. Ours also
checks every cell, gives ids their codes as Python compares texts, and sorts by user and item.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from apportion.data import Interactions
from benchmarks import scale
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table

ROWS, ROWS_PER_USER, TASKS = 25_000_000, 150, 20_000
LIMIT = 1.5


def measure(quick: bool) -> Outcome | Rehearsal:
    """Read both files by both."""
    import pyarrow as pa

    pa.set_cpu_count(scale.threads())
    rows = 60_000 if quick else ROWS
    seconds: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder), rows):
            pairs = [(_seconds_ours(path), _seconds_duckdb(path)) for _ in range(2 if quick else 3)]
            seconds[path.suffix[1:]] = (min(ours for ours, _ in pairs), min(theirs for _, theirs in pairs))
    print_table(["file", "seconds", "DuckDB"], [[name, *both] for name, both in seconds.items()])
    value = {name: round(ours / theirs, 3) for name, (ours, theirs) in seconds.items()}
    if quick:
        return Rehearsal(value, {"a small file takes less than ten times as long": max(value.values()) < 10})
    return Outcome(
        value,
        dict.fromkeys(value, LIMIT),
        max(value.values()) <= LIMIT,
        f"25M rows with text ids become `Interactions` in {value['csv']:.2f}x (CSV) and {value['parquet']:.2f}x "
        "(Parquet) of the time that DuckDB takes to sort them",
        {"rows": rows, "tasks": TASKS, "threads": scale.threads(), "seconds": seconds},
    )


def write(folder: Path, rows: int, block: int = 1_000_000) -> list[Path]:
    """The same rows as CSV and as Parquet, no pair twice; users in random order within each block of rows."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    rng, n_users = np.random.default_rng(6), max(rows // ROWS_PER_USER, 20)
    paths = [folder / "ratings.csv", folder / "ratings.parquet"]
    schema = pa.schema([("user", pa.string()), ("item", pa.string()), ("rating", pa.float64())])
    with csv.CSVWriter(paths[0], schema) as text, parquet.ParquetWriter(paths[1], schema) as packed:
        for start in range(0, rows, block):
            index = start + rng.permutation(min(block, rows - start))
            users = index % n_users
            tasks = (users * 31 + index // n_users * 127) % TASKS
            ids = [pa.array(codes).cast(pa.string()) for codes in (users, tasks)]
            named = [
                pa.compute.binary_join_element_wise(letter, each, "") for letter, each in zip("ui", ids, strict=True)
            ]
            table = pa.table([*named, pa.array(rng.integers(1, 6, len(index)).astype(np.float64))], schema=schema)
            text.write_table(table)
            packed.write_table(table)
    return paths


def _seconds_ours(path: Path) -> float:
    return scale.best_of(1, lambda: Interactions.read(path))


def _seconds_duckdb(path: Path) -> float:
    try:
        import duckdb
    except ImportError as missing:
        raise UnavailableError("the package `duckdb` is not installed") from missing
    columns = "columns={'user': 'VARCHAR', 'item': 'VARCHAR', 'rating': 'DOUBLE'}, header=true"
    source = f"read_csv('{path}', {columns})" if path.suffix == ".csv" else f"read_parquet('{path}')"
    with duckdb.connect() as database:
        database.execute(f"SET threads = {scale.threads()}")
        return scale.best_of(1, lambda: database.execute(f'CREATE TABLE t AS SELECT * FROM {source} ORDER BY "user"'))
