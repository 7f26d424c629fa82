"""Queries of DuckDB that read text files whose columns DuckDB guesses from rows, which are refused.

One user's cell would change how the cells of others are read. In a query that reads text, every source must say itself
what its columns are: a reader with `columns =` of its own, and for CSV without detection of separators and quotation
marks; a table of the database; or a part of the query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from apportion.errors import InputError

_GUESSED = re.compile(r"\bREAD_(?!PARQUET|TEXT|BLOB)(?!\w*OBJECTS)\w+|SNIFF")
_NAME = re.compile(r"[A-Za-z_]\w*")  # a file has a full stop in its name
_CSV = {"read_csv", "read_csv_auto"}
_JSON = {"read_json", "read_json_auto", "read_ndjson", "read_ndjson_auto"}
_WITHOUT_TEXT = {"read_parquet", "parquet_scan", "range", "generate_series", "unnest"}


def refuse_guessed_columns(connection: Any, query: str) -> None:
    """Refuse a query that reads text files with columns that it does not name."""
    statement = connection.extract_statements(query)[-1].query
    plan = str(connection.sql(f"EXPLAIN {statement}").fetchall())
    if _GUESSED.search(plan) and not _all_named(connection, statement):
        problem = (
            "DuckDB guesses the columns of a text file from its rows, so one user's rows could change those of others; "
            "name them for every such file, as in read_csv('a.csv', auto_detect = false, header = true, columns = "
            "{'user': 'VARCHAR', 'item': 'VARCHAR'}), or shard the file itself."
        )
        raise InputError(problem, argument="query")


def _all_named(connection: Any, statement: str) -> bool:
    """Whether every source of a query says itself what its columns are."""
    tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchone()[0])
    if tree.get("error"):
        return False
    nodes = list(_nodes(tree))
    known = "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
    tables = {name for (name,) in connection.execute(known).fetchall()}
    parts = {each["key"] for node in nodes for each in _parts(node) if _NAME.fullmatch(each["key"])}
    return all(_is_named(node, tables | parts) for node in nodes)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all nodes of a query."""
    if isinstance(tree, dict):
        yield tree
    for each in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(each)


def _parts(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a query that have a name (WITH)."""
    held = node.get("cte_map")
    return held.get("map", []) if isinstance(held, dict) else []


def _is_named(node: dict[str, Any], known: set[str]) -> bool:
    """Whether a node is no source, or a source with columns of its own."""
    if node.get("type") == "BASE_TABLE":
        return node.get("table_name") in known
    if node.get("type") != "TABLE_FUNCTION":
        return True
    function = node.get("function", {})
    name, given = str(function.get("function_name", "")).lower(), dict(_given(function))
    if name in _CSV and _is_false(given.get("auto_detect", {})):
        return "columns" in given
    return name in _WITHOUT_TEXT or (name in _JSON and "columns" in given)


def _given(function: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield arguments by name: `name = value` or `name := value`."""
    for each in function.get("arguments", function.get("children", [])):
        argument = each.get("expression", each)
        if argument.get("type") == "COMPARE_EQUAL":
            yield ".".join(argument["left"].get("column_names", [])).lower(), argument["right"]
        else:
            yield str(each.get("name") or each.get("alias") or "").lower(), argument


def _is_false(value: dict[str, Any]) -> bool:
    value = value.get("child", value)  # before version 2, false is a cast of "f"
    held = value.get("literal", value.get("value", {}))
    return str(held.get("text", held.get("value", ""))).lower() in ("false", "f")
