"""Queries of DuckDB whose results depend on the order in which it meets rows, which are refused.

DuckDB divides rows among threads and tables of groups, and where one part ends depends on the rows of all users. So
`first(rating)` of a user may be another of its rows if one user more is there, and `avg(rating)` of floats, which
rounds, may have another last bit. An aggregate function is taken if no order matters to it, if it says its order
(`first(rating ORDER BY time, rating)`), or if it adds up whole or decimal numbers (`avg(rating::DECIMAL(9, 3))`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apportion.errors import InputError

_OF_NO_ORDER = {
    *(
        "count",
        "count_star",
        "count_if",
        "countif",
        "regr_count",
        "approx_count_distinct",
        "min",
        "max",
        "median",
        "mad",
    ),
    *("bool_and", "bool_or", "bit_and", "bit_or", "bit_xor", "quantile", "quantile_cont", "quantile_disc"),
}
_SUMS = {"sum", "avg", "mean"}
_EXACT = {
    *("TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("DECIMAL", "NUMERIC"),
}
_PLACES = {"query_location", "query_location_length", "alias"}

_AGGREGATE = (
    "The result of {name} depends on the order in which DuckDB meets rows, and so on rows of other users: say the "
    "order, as in first(rating ORDER BY time, rating) or avg(rating ORDER BY rating), which names all that is "
    "aggregated, or add up decimals, as in avg(rating::DECIMAL(9, 3))."
)
_DISTINCT = (
    "DISTINCT ON keeps the row that DuckDB meets first, which depends on rows of other users; use GROUP BY, with "
    "first(rating ORDER BY time, rating) for what is kept."
)


def refuse_chance_orders(connection: Any, nodes: Iterable[dict[str, Any]]) -> None:
    """Refuse aggregates whose results depend on an order that a query does not say.

    Args:
        connection: to DuckDB, which knows which functions aggregate.
        nodes: of the parsed query.
    """
    asked = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
    aggregates = {name for (name,) in connection.execute(asked).fetchall()} - _OF_NO_ORDER
    for node in nodes:
        if node.get("type") == "DISTINCT_MODIFIER" and node.get("distinct_on_targets"):
            raise InputError(_DISTINCT, argument="query")
        name = str(node.get("function_name", "")).lower()
        if node.get("class") in ("FUNCTION", "WINDOW") and name in aggregates and not _says_order(node, name):
            raise InputError(_AGGREGATE.format(name=f"{name}()"), argument="query")


def _says_order(node: dict[str, Any], name: str) -> bool:
    """Whether an aggregate is of all that it orders by, or a sum of exact numbers."""
    arguments = [each for each in _arguments(node) if each.get("class") != "CONSTANT"]
    if name in _SUMS and all(map(_is_exact, arguments)):
        return True
    ordered = [_plain(each) for each in _ordered_by(node)]
    return bool(ordered) and all(_plain(each) in ordered for each in arguments)


def _arguments(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for each in node.get("arguments", node.get("children", [])):
        yield each.get("expression", each)


def _ordered_by(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    orders = (node.get("order_bys") or {}).get("orders", node.get("arg_orders", []))
    for each in orders:
        yield each["expression"]


def _is_exact(argument: dict[str, Any]) -> bool:
    """Whether an argument is a cast to whole or decimal numbers, whose sums do not round."""
    kind = argument.get("type_expr", {}).get("type_name") or argument.get("cast_type", {}).get("id")
    return argument.get("class") == "CAST" and str(kind).upper() in _EXACT


def _plain(tree: Any) -> Any:
    """Return an expression without where it stands in the query."""
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items() if name not in _PLACES}
    return [_plain(each) for each in tree] if isinstance(tree, list) else tree
