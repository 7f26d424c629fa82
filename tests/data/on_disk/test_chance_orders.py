"""Queries whose results depend on the order in which DuckDB meets rows, which other users' rows change."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from apportion.data.on_disk.queries import QueryTable
from apportion.errors import InputError

ORDERED = [
    "avg(rating ORDER BY rating)", "sum(rating ORDER BY item, rating)", "first(rating ORDER BY item, rating)",
    "list(rating ORDER BY rating)[1]", "arg_max(rating, item ORDER BY item, rating)", "avg(rating::DECIMAL(9, 6))",
    "sum(CAST(rating AS BIGINT))", "count(*)", "count(DISTINCT rating)", "min(rating)", "max(rating)", "median(rating)",
    "max(rating) OVER (PARTITION BY user)", "quantile_cont(rating, 0.9)",
    "string_agg(rating::VARCHAR, ',' ORDER BY rating::VARCHAR)",
]  # fmt: skip
LEFT_TO_CHANCE = [
    "first(rating)", "any_value(rating)", "last(rating ORDER BY item)", "avg(rating)", "SUM(rating)", "fsum(rating)",
    "arg_max(rating, item)", "arg_max(rating, item ORDER BY item)", "list(rating)[1]", "mode(rating)", "stddev(rating)",
    "sum(rating::DOUBLE)", "sum(DISTINCT rating)", "avg(rating) OVER (PARTITION BY user)", "1 + avg(rating) / 2",
    "string_agg(rating::VARCHAR, ',')",
]  # fmt: skip


def written(path, ahead):
    """Many rows of 8,000 users, in a file in which another user has rows before them."""
    rng, n = np.random.default_rng(0), 150_000
    users = np.concatenate([np.full(ahead, -1), rng.integers(0, 8_000, n)])
    ratings = np.concatenate([np.ones(ahead), rng.normal(size=n)])
    items = np.concatenate([np.zeros(ahead, int), rng.integers(0, 4, n)])
    parquet.write_table(pa.table({"user": users, "item": items, "rating": ratings}), path, row_group_size=50_000)


def results(path, asked):
    grouped = "" if "OVER" in asked else "GROUP BY user"
    query = f"SELECT DISTINCT user, {asked} AS rating FROM '{path}' {grouped}"
    rows = QueryTable(query, None).read_all("user").sort_by("user").to_pydict()
    return {user: rating for user, rating in zip(rows["user"], rows["rating"], strict=True) if user >= 0}


@pytest.mark.parametrize("asked", ORDERED)
def test_a_user_more_changes_no_result_of_others(asked, tmp_path):
    written(tmp_path / "a.parquet", 0)
    written(tmp_path / "b.parquet", 30_000)
    assert results(tmp_path / "a.parquet", asked) == results(tmp_path / "b.parquet", asked)


@pytest.mark.parametrize("asked", LEFT_TO_CHANCE)
def test_a_result_that_is_left_to_chance_is_refused(asked, tmp_path):
    written(tmp_path / "a.parquet", 0)
    with pytest.raises(InputError, match="depends on the order in which DuckDB meets rows") as caught:
        results(tmp_path / "a.parquet", asked)
    assert caught.value.argument == "query"


def test_so_is_a_row_that_is_left_to_chance(tmp_path):
    written(tmp_path / "a.parquet", 0)
    with pytest.raises(InputError, match="DISTINCT ON keeps the row that DuckDB meets first"):
        QueryTable(f"SELECT DISTINCT ON (user, item) * FROM '{tmp_path / 'a.parquet'}'", None)


def test_tables_of_a_database_are_looked_at_alike(tmp_path):
    with duckdb.connect(str(tmp_path / "a.duckdb")) as made:
        made.execute("CREATE TABLE ratings AS SELECT range % 5 AS user, range / 7 AS rating FROM range(100)")
    asked = "SELECT user, {} AS rating FROM ratings GROUP BY user"
    with pytest.raises(InputError, match=r"The result of avg\(\) depends on the order"):
        QueryTable(asked.format("avg(rating)"), str(tmp_path / "a.duckdb"))
    table = QueryTable(asked.format("avg(rating ORDER BY rating)"), str(tmp_path / "a.duckdb"))
    assert table.read_all("user").num_rows == 5
