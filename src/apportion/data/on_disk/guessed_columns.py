"""Queries of DuckDB in which one user's rows could change how the cells of others are read, which are refused.

A query is one SELECT, and every source of it says itself what its columns are: a reader of text with `columns =` of its
own and no option that lets a row reach into others; Parquet files that agree on their columns; a part of the query. A
query of a database reads its tables alone, whatever views and macros say: `queries.py` keeps DuckDB from other files.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apportion.data.on_disk.chance_orders import refuse_chance_orders
from apportion.errors import InputError

_PART = re.compile(r"[A-Za-z_]\w*")  # a file has a full stop in its name
_PARQUET = re.compile(r"[^?]+\.parquet", re.IGNORECASE)  # with a question mark, DuckDB looks for endings before it
_FOLDERS = {"hive_partitioning", "hive_types_autocast", "hive_types"}
_TEXT_OPTIONS = {"columns", "dateformat", "timestampformat", "compression"} | _FOLDERS
_CSV_OPTIONS = {"auto_detect", "header", "delim", "sep", "quote", "nullstr", "skip", "encoding"} | _TEXT_OPTIONS
_JSON_OPTIONS = {"records", "format"} | _TEXT_OPTIONS
_READERS = {
    **dict.fromkeys(("read_csv", "read_csv_auto"), _CSV_OPTIONS),
    **dict.fromkeys(("read_json", "read_json_auto", "read_ndjson", "read_ndjson_auto"), _JSON_OPTIONS),
    **dict.fromkeys(("read_parquet", "parquet_scan"), {"filename", "binary_as_string"} | _FOLDERS),
}
_WITHOUT_FILES = {"range", "generate_series", "unnest"}
_LINES = {"newline_delimited", "nd"}

_GUESSED = (
    "DuckDB guesses the columns of a text file from its rows, so one user's rows could change those of others; name "
    "them for every such file, as in read_csv('a.csv', auto_detect = false, header = true, quote = '', columns = "
    "{'user': 'VARCHAR', 'item': 'VARCHAR'}) or read_ndjson('a.jsonl', records = true, columns = {...}), or shard the "
    "file itself."
)
_SOURCE = (
    "The query reads '{name}', which is no Parquet file, no part of the query (WITH) and no reader of files that is "
    "known to read every row by itself. "
)
_FOLDER = (
    "The folder of '{file}' has a name such as user=7. DuckDB makes a column of it, whose type depends on the folders "
    "of all users; say hive_partitioning = true and hive_types_autocast = false, or hive_partitioning = false, in "
    "the reader of the file, as in read_parquet('a/*/*.parquet', hive_partitioning = false)."
)
_DIFFERENT = (
    "'{file}' has other columns or types than '{first}'. DuckDB reads both with those of one, so one user's file could "
    "change how the others are read; write them with the same columns in the same order, or shard the files themselves."
)


@dataclass(frozen=True)
class _Call:
    """A reader in a query: its files as they are written, and its options."""

    name: str
    files: list[str]
    options: dict[str, Any]

    def says(self, option: str, *values: str) -> bool:
        """Whether an option has one of these values."""
        return str(_literal(self.options.get(option, {}))).lower() in values


def refuse_guessed_columns(connection: Any, query: str, of_database: bool) -> None:
    """Refuse a query that is not one SELECT, whose results hang on the order of rows, or whose sources rows decide on.

    Sources of a query of a database are its tables alone, and are not looked at.

    Args:
        connection: to an empty database.
        query: in SQL.
        of_database: whether the query is one of a database, in which no file can be read.
    """
    nodes = list(_nodes(_tree(connection, query)))
    if any(node.get("type") == "SHOW_REF" for node in nodes):
        raise _refusal("DESCRIBE, SUMMARIZE and SHOW tell of a table, not of users; select the rows themselves.")
    refuse_chance_orders(connection, nodes)
    parts = {each["key"].lower() for node in nodes for each in _parts(node) if _PART.fullmatch(each["key"])}
    for node in () if of_database else nodes:
        if (call := _call(node, parts)) is not None:
            _refuse_options(call)
            _refuse_files(connection, call)


def _refusal(problem: str) -> InputError:
    return InputError(problem, argument="query")


def _tree(connection: Any, query: str) -> Any:
    """Return the parsed query."""
    kinds = [each.type.name for each in connection.extract_statements(query)]
    if kinds != ["SELECT"]:
        raise _refusal(
            f"A query is one SELECT statement, not {' and '.join(kinds) or 'empty'}; make tables and settings before, "
            "and list the values of a PIVOT after IN."
        )
    tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])
    if tree.get("error"):
        raise _refusal(f"The query cannot be checked: {tree.get('error_message')} Write it as one plain SELECT.")
    return tree


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


def _call(node: dict[str, Any], parts: set[str]) -> _Call | None:
    """Return the reader that a node is, None if it reads no file."""
    if node.get("type") == "BASE_TABLE":
        return _bare(node, parts)
    if node.get("type") != "TABLE_FUNCTION":
        return None
    function = node.get("function", {})
    name = str(function.get("function_name", "")).lower()
    if name in _WITHOUT_FILES:
        return None
    if name not in _READERS:
        raise _refusal(_SOURCE.format(name=name) + _GUESSED)
    return _reader(name, list(_given(function)))


def _bare(node: dict[str, Any], parts: set[str]) -> _Call | None:
    """Return the reader that DuckDB takes for a bare name, None for a part of the query."""
    path = [node.get("catalog_name"), node.get("schema_name"), node.get("table_name")]
    name = ".".join(filter(None, path))
    if name.lower() in parts:
        return None
    if name != path[-1] or not _PARQUET.fullmatch(name):
        raise _refusal(_SOURCE.format(name=name) + _GUESSED)
    return _Call("read_parquet", [name], {})


def _reader(name: str, given: list[tuple[str, Any]]) -> _Call:
    """Return a reader with what it is given."""
    sources = [value for option, value in given if not option]
    options = {option: value for option, value in given if option}
    files = _texts(sources[0]) if len(sources) == 1 else []
    if not files or len(options) + 1 != len(given):
        raise _refusal(f"Write the files of {name} as text, such as 'a/*.csv', or a list of texts; each option once.")
    return _Call(name, files, options)


def _refuse_options(call: _Call) -> None:
    """Refuse options other than known ones, and text files with columns that a query does not name."""
    known = _READERS[call.name]
    if "columns" in known and not ("columns" in call.options and _reads_lines(call)):
        raise _refusal(_GUESSED)
    if unknown := sorted(call.options.keys() - known):
        raise _refusal(
            f"With {', '.join(unknown)}, {call.name} could read one user's rows otherwise because of those of others; "
            f"it may have {', '.join(sorted(known))}."
        )


def _reads_lines(call: _Call) -> bool:
    """Whether a reader of text takes every line for a row, as it was told, so that no cell can hold other rows."""
    if "auto_detect" in _READERS[call.name]:
        return call.says("auto_detect", "false", "f") and call.says("quote", "")
    by_name = call.name.startswith("read_ndjson") and "format" not in call.options
    return call.says("records", "true", "t") and (by_name or call.says("format", *_LINES))


def _refuse_files(connection: Any, call: _Call) -> None:
    """Refuse files that other files could change: typed folders, and Parquet files that differ."""
    text = "columns" in _READERS[call.name]
    files = _matched(connection, call.files) if text else _alike(connection, call.files)
    typed = call.says("hive_partitioning", "true", "t") and call.says("hive_types_autocast", "false", "f")
    named = next((file for file in files if "=" in file.replace("\\", "/").rpartition("/")[0]), None)
    if named is not None and not typed and not call.says("hive_partitioning", "false", "f"):
        raise _refusal(_FOLDER.format(file=named))


def _matched(connection: Any, patterns: list[str]) -> list[str]:
    """Return the files that patterns stand for."""
    files: list[str] = []
    for pattern in patterns:
        found = connection.execute("SELECT file FROM glob(?)", [pattern]).fetchall()
        if not found:
            raise _refusal(f"There is no file '{pattern}'.")
        files.extend(file for (file,) in found)
    return files


def _alike(connection: Any, patterns: list[str]) -> list[str]:
    """Return the Parquet files that patterns stand for, which must agree on names, order and types of columns."""
    asked = "SELECT file_name, name, duckdb_type, num_children, repetition_type = 'REPEATED' FROM parquet_schema(?)"
    columns: dict[str, list[Any]] = defaultdict(list)
    for file, *column in connection.execute(asked, [patterns]).fetchall():
        columns[file].append(column)
    first = next(iter(columns))
    for file, held in columns.items():
        if held[1:] != columns[first][1:]:  # the first row of each is the name that a writer gave to the whole
            raise _refusal(_DIFFERENT.format(file=file, first=first))
    return list(columns)


def _given(function: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield arguments by name: `name = value` or `name := value`."""
    for each in function.get("arguments", function.get("children", [])):
        argument = each.get("expression", each)
        if argument.get("type") == "COMPARE_EQUAL":
            yield ".".join(argument["left"].get("column_names", [])).lower(), argument["right"]
        else:
            yield str(each.get("name") or each.get("alias") or "").lower(), argument


def _texts(value: dict[str, Any]) -> list[str]:
    """Return a text, or those of a list; nothing for other values."""
    listed = value.get("function_name") == "list_value"
    held = value.get("arguments", value.get("children", [])) if listed else [value]
    texts = [_literal(each.get("expression", each)) for each in held]
    return [] if None in texts else [text for text in texts if text]


def _literal(value: Any) -> str | None:
    """Return what a constant is, None for other values."""
    value = value.get("child", value)  # before version 2, false is a cast of "f"
    held = value.get("literal", value.get("value")) if value.get("type") == "VALUE_CONSTANT" else None
    text = held.get("text", held.get("value")) if isinstance(held, dict) else None
    return None if text is None else str(text)
