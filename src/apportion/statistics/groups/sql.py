"""Queries in SQL that are statistics by group: `SELECT ward, avg(cost) FROM 'visits.parquet' GROUP BY ward`.

DuckDB's parser reads the text; nothing is run. What is not a statistic by group is refused with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apportion.data.duckdb_package import imported_duckdb
from apportion.data.time_bins import BINS
from apportion.data.vocabulary import shortened
from apportion.errors import InputError

_OF_VALUES: Final = {
    "avg": "mean",
    "mean": "mean",
    "sum": "sum",
    "var_pop": "variance",
    "median": "quantile",
    "quantile": "quantile",
    "quantile_cont": "quantile",
}
_UNKNOWN_PARTS: Final = {
    "where_clause": "WHERE: give the condition with --where",
    "having": "HAVING: which groups pass would be a release of its own",
    "qualify": "QUALIFY",
    "sample": "a sample",
}


@dataclass(frozen=True)
class GroupQuery:
    """A query that is a statistic by group.

    Attributes:
        table: what it reads: the name of a file.
        by: the columns that make a group.
        statistics: which, as `UserGroupBy` calls them.
        value: the column of values; None where only rows or users are counted.
        ranks: of quantiles.
    """

    table: str
    by: tuple[str, ...]
    statistics: tuple[str, ...]
    value: str | None
    ranks: tuple[float, ...] = (0.5,)


def parsed_query(text: str, user: str) -> GroupQuery:
    """Read a query.

    Args:
        text: SQL.
        user: the column that identifies users; its distinct values may be counted.

    >>> query = parsed_query("SELECT ward, avg(cost) FROM 'visits.parquet' GROUP BY ward", "patient")
    >>> query.table, query.by, query.statistics, query.value
    ('visits.parquet', ('ward',), ('mean',), 'cost')
    """
    node = _node(text)
    selected = node["select_list"]
    asked = [each for each in selected if not _divides(each)]
    named = [_divider(each) for each in selected if _divides(each)]
    by_all = node.get("aggregate_handling") == "FORCE_AGGREGATES"
    by = tuple(named if by_all else (_group(each, selected) for each in node["group_expressions"]))
    strange = next((name for name in named if name not in by), None)
    if strange is not None:
        raise _refusal(f"column {strange!r}, which is not in GROUP BY")
    found = [_aggregate(each, user) for each in asked]
    values = {value for _, value, _ in found if value is not None}
    if not found:
        raise _refusal("a list of columns without an aggregate")
    if len(values) > 1:
        raise _refusal(f"aggregates of several columns, {', '.join(sorted(values))}")
    ranks = tuple(rank for _, _, rank in found if rank is not None)
    statistics = tuple(dict.fromkeys(name for name, _, _ in found))
    return GroupQuery(_table(node), by, statistics, next(iter(values), None), ranks or (0.5,))


def _node(text: str) -> Mapping[str, Any]:
    """The one SELECT of a text, without anything that has no private form here."""
    held = _parsed(text)
    if held.get("error"):
        said = str(held["error_message"]).rstrip("!.")
        raise InputError(f"Expected one SELECT in SQL, got {shortened(text)} ({said}).", argument="sql")
    if len(held["statements"]) != 1:
        raise InputError(f"Expected one query in SQL, got {len(held['statements'])}.", argument="sql")
    node: Mapping[str, Any] = held["statements"][0]["node"]
    if node["type"] != "SELECT_NODE":
        raise _refusal("a set operation of several SELECTs")
    if any(each["type"] == "DISTINCT_MODIFIER" for each in node["modifiers"]):
        raise _refusal("SELECT DISTINCT: GROUP BY has each group once")
    if node["modifiers"]:
        words = str(node["modifiers"][0]["type"]).removesuffix("_MODIFIER").replace("_", " ")
        raise _refusal(f"{words}: order or cut the released table")
    if node["cte_map"]["map"]:
        raise _refusal("WITH")
    for name, words in _UNKNOWN_PARTS.items():
        if node.get(name) is not None:
            raise _refusal(words)
    if len(node["group_sets"]) > 1:
        raise _refusal("several sets of groups")
    named: Mapping[str, Any] = _without_qualifiers(node, node["from_table"].get("alias") or None)
    return named


def _without_qualifiers(held: Any, alias: str | None) -> Any:
    """The same with columns by their own names, where the only table's alias stands before them."""
    if isinstance(held, list):
        return [_without_qualifiers(each, alias) for each in held]
    if not isinstance(held, dict):
        return held
    names = held.get("column_names")
    if alias is not None and names and names[:-1] == [alias]:
        return {**held, "column_names": names[-1:]}
    return {name: _without_qualifiers(each, alias) for name, each in held.items()}


def _divides(held: Mapping[str, Any]) -> bool:
    """Whether something selected is a column that divides rows into groups, or bins of one."""
    return held["class"] == "COLUMN_REF" or held.get("function_name") == "date_trunc"


def _group(held: Mapping[str, Any], selected: Sequence[Mapping[str, Any]]) -> str:
    """What GROUP BY names: a column, bins of one, or the place or the alias of what was selected."""
    literal = held.get("literal")
    if literal is not None:
        place = int(literal["text"]) if literal["kind"] == "INTEGER" else 0
        if not 1 <= place <= len(selected):
            raise _refusal(f"GROUP BY {literal['text']}: {len(selected)} things are selected")
        return _divider(selected[place - 1])
    alias = held.get("column_names")
    return _divider(next((each for each in selected if each["alias"] and [each["alias"]] == alias), held))


def _divider(held: Mapping[str, Any]) -> str:
    """A column, or COLUMN:month for date_trunc('month', COLUMN)."""
    if held.get("function_name") != "date_trunc":
        return _column(held)
    size, column = _arguments(held)
    name = size.get("literal", {}).get("text")
    if name not in BINS:
        raise _refusal(f"date_trunc of anything but {', '.join(map(repr, BINS))}")
    return f"{_column(column)}:{name}"


def _parsed(text: str) -> dict[str, Any]:
    duckdb = imported_duckdb("Queries in SQL need", extra="query", oldest=(2, 0))  # whose parser writes other trees
    with duckdb.connect() as connection:
        row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    assert row is not None
    held: dict[str, Any] = json.loads(row[0])
    return held


def _table(node: Mapping[str, Any]) -> str:
    table = node["from_table"]
    if table["type"] != "BASE_TABLE" or table.get("sample") is not None:
        raise _refusal("anything but one file after FROM: joins would change who a user is")
    return ".".join(table["qualified_name"]["path"])  # visits.csv without quotes is table csv of schema visits


def _aggregate(held: Mapping[str, Any], user: str) -> tuple[str, str | None, float | None]:
    """The statistic, its column, and its rank."""
    if held["class"] != "FUNCTION":
        raise _refusal("an expression that is no aggregate")
    name, arguments = str(held["function_name"]).lower(), _arguments(held)
    if held.get("filter") is not None:
        raise _refusal("FILTER: give the condition with --where")
    if held["distinct"]:
        if name != "count" or len(arguments) != 1 or _column(arguments[0]) != user:
            raise _refusal(f"DISTINCT but for count(DISTINCT {user}), the number of users")
        return "users", None, None
    if name == "count_star":
        return "count", None, None
    if name == "count":
        raise _refusal("count of a column, which leaves out empty cells: write count(*)")
    if name not in _OF_VALUES or not arguments:
        known = ", ".join(["count(*)", *_OF_VALUES])
        raise _refusal(f"{name}: the aggregates are {known}")
    rank = _rank(arguments[1]) if len(arguments) > 1 else 0.5 if name == "median" else None
    if _OF_VALUES[name] == "quantile" and rank is None:
        raise _refusal(f"{name} without a rank")
    return _OF_VALUES[name], _column(arguments[0]), rank


def _arguments(held: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [each["expression"] for each in held["arguments"]]


def _column(held: Mapping[str, Any]) -> str:
    if held["class"] != "COLUMN_REF" or len(held["column_names"]) != 1:
        raise _refusal("an expression where the name of a column is expected")
    return str(held["column_names"][0])


def _rank(held: Mapping[str, Any]) -> float:
    try:
        return float(held["literal"]["text"])
    except (KeyError, ValueError) as problem:
        raise _refusal("a rank that is not a number") from problem


def _refusal(what: str) -> InputError:
    return InputError(f"A private query cannot have {what}.", argument="sql")
