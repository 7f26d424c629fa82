"""Public rules by which rows of ordinary files are chosen and joined: an expression, empty cells, repeated pairs.

Each rule is applied within one user's rows. The number of rows that it left out is private: it may be shown on the
terminal of the person who holds the data, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from apportion.data.arrow_columns import EMPTY_WORDS
from apportion.data.arrow_texts import is_text
from apportion.data.columns import listed
from apportion.data.repeats import REPEATS, Repeats
from apportion.data.row_expressions import Expression, parse_expression
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from apportion.data.sources import CellKind

__all__ = ["MISSING", "Missing", "RowRules"]

Missing = Literal["drop", "refuse"]
"""What to do about rows with an empty cell."""

MISSING: Final[tuple[Missing, ...]] = ("drop", "refuse")

_IN_WORDS: Final[Mapping[Repeats, str]] = {
    "last": "that of several rows of one user for one item only the last was kept",
    "first": "that of several rows of one user for one item only the first was kept",
    "mean": "that several rows of one user for one item were replaced by their mean",
    "sum": "that several rows of one user for one item were replaced by their sum",
    "count": "that the value is the number of rows of one user for one item",
}


@dataclass(frozen=True)
class RowRules:
    """Which rows are kept, and how repeated rows are handled.

    Attributes:
        where: an expression on a row's own cells; rows where it is not true are left out. None keeps all.
        missing: whether a row with an empty cell is left out or refused.
        repeats: what to make of several rows of one user for one task.
        loose_times: whether a cell of the time column that is empty or no time counts as before all times; else it is
            empty like any other, or refused.
    """

    where: str | None = None
    missing: Missing = "refuse"
    repeats: Repeats = "refuse"
    loose_times: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (("missing", self.missing, MISSING), ("repeats", self.repeats, REPEATS)):
            if value not in known:
                raise InputError(f"Expected {name} to be one of {', '.join(known)}, got {value!r}.", argument=name)
        self.expression  # noqa: B018 - one that cannot be read is refused before any data is

    @cached_property
    def expression(self) -> Expression | None:
        """The expression, parsed."""
        return None if self.where is None else parse_expression(self.where)

    def in_words(self) -> tuple[str, ...]:
        """Return the rules in words, for the public assumptions of a statement."""
        rules = [] if self.where is None else [f"that only rows with {self.where} were kept"]
        if self.missing == "drop":
            rules.append("that rows with an empty cell were left out")
        if self.repeats != "refuse":
            rules.append(_IN_WORDS[self.repeats])
        return tuple(rules)

    def kinds(self, roles: Mapping[str, CellKind], found: tuple[str, ...], *, untyped: bool) -> dict[str, CellKind]:
        """Return the columns to read, and how: those of the roles, and those of the expression.

        Numbers and times of a file without a schema are read as text if empty cells are left out, because NA is empty,
        and if the expression names them, because it has them as they are written.
        """
        reads: dict[str, CellKind] = {}
        for name, held in (self.expression.columns if self.expression is not None else {}).items():
            if name not in found:
                problem = f"There is no column {name!r} for the expression; the columns are {listed(found)}."
                raise InputError(problem, argument="where")
            reads[name] = "number" if held == "number" and not untyped else "text"
        as_text = [name for name in roles if untyped and (self.missing == "drop" or name in reads)]
        return reads | {
            name: "text" if kind in ("number", "time") and name in as_text else kind for name, kind in roles.items()
        }

    def pass_on(
        self,
        batches: Iterable[pa.RecordBatch],
        roles: Mapping[str, CellKind],
        left_out: dict[str, int],
        append: Callable[[pa.RecordBatch, int], None],
    ) -> None:
        """Pass the rows that are kept on, batch by batch. Refuse data of which no row is left.

        Args:
            batches: rows.
            roles: see `kept`, and so is `left_out`.
            left_out: see `roles`.
            append: receives the kept rows of each batch, and the number of the first of them among all kept rows.
        """
        n_rows = n_kept = 0
        for batch in batches:
            kept = self.kept(batch, roles, n_rows + 1, left_out)
            n_rows += batch.num_rows
            with among_kept(n_rows > n_kept + kept.num_rows):
                append(kept, n_kept + 1)
            n_kept += kept.num_rows
        if not n_kept:
            problem = f"{_why_none(n_rows, left_out)}; expected some in columns {', '.join(roles)}."
            raise InputError(problem, argument=None)

    def kept(
        self, batch: pa.RecordBatch, roles: Mapping[str, CellKind], first_row: int, left_out: dict[str, int]
    ) -> pa.RecordBatch:
        """Return the rows of a batch that the rules keep.

        Args:
            batch: rows.
            roles: the columns in which a cell must not be empty, and how they are read.
            first_row: number of the batch's first row, for error messages.
            left_out: receives the number of rows left out by each rule.
        """
        if self.expression is not None or self.missing == "drop":
            batch = _with_plain_text(batch)
        if self.expression is not None:
            batch = _filtered(batch, self.expression.chosen(batch, first_row), "where", left_out)
        if self.missing == "drop":
            batch = _with_empty_words(batch, roles)
            needed = [name for name, kind in roles.items() if not (kind == "time" and self.loose_times)]
            batch = _filtered(batch, _filled(batch, needed), "missing", left_out)
        return batch


@contextmanager
def among_kept(rows_are_left_out: bool) -> Iterator[None]:
    """Add to an error that its row is counted among the kept rows, if other rows are left out."""
    try:
        yield
    except InputError as error:
        raise (error.inside("among the rows kept") if rows_are_left_out else error) from None


def _why_none(n_rows: int, left_out: Mapping[str, int]) -> str:
    """Return the beginning of the sentence that no row is left, with what left them out."""
    empty, others = left_out.get("missing", 0), left_out.get("where", 0)
    found = [f"{empty} had an empty cell"] * bool(empty) + [f"{others} did not fulfil the expression"] * bool(others)
    return f"No row is left: {' and '.join(found)} (of {n_rows})" if n_rows else "There are no rows"


def _with_plain_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with texts in a form that Arrow can filter."""
    import pyarrow as pa

    if not any(pa.types.is_string_view(kind) for kind in batch.schema.types):
        return batch
    wide = [pa.large_string() if pa.types.is_string_view(kind) else kind for kind in batch.schema.types]
    return batch.cast(pa.schema(list(zip(batch.schema.names, wide, strict=True))))


def _filtered(batch: pa.RecordBatch, mask: pa.Array, rule: str, left_out: dict[str, int]) -> pa.RecordBatch:
    kept = batch.filter(mask)
    left_out[rule] = left_out.get(rule, 0) + batch.num_rows - kept.num_rows
    return kept


def _filled(batch: pa.RecordBatch, names: list[str]) -> pa.Array:
    """Return, for each row, whether none of the named cells is empty. NaN counts as empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    mask = pa.array([True] * batch.num_rows) if not names else None
    for name in names:
        cells = batch.column(name)
        filled = pc.is_valid(cells)
        if pa.types.is_floating(cells.type):
            filled = pc.and_(filled, pc.fill_null(pc.invert(pc.is_nan(cells)), False))
        mask = filled if mask is None else pc.and_(mask, filled)
    return mask


def _with_empty_words(batch: pa.RecordBatch, roles: Mapping[str, CellKind]) -> pa.RecordBatch:
    """Return the batch with words such as NA replaced by empty cells, in text columns of numbers and times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, name in enumerate(batch.schema.names):
        if roles.get(name) not in ("number", "time") or not is_text(batch.column(place).type):
            continue
        cells = batch.column(place).cast(pa.large_string())
        words = pc.utf8_lower(pc.utf8_trim_whitespace(cells))
        empty = pc.fill_null(pc.is_in(words, pa.array(EMPTY_WORDS, words.type)), True)
        batch = batch.set_column(place, name, pc.if_else(empty, pa.scalar(None, cells.type), cells))
    return batch
