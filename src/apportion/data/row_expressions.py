"""Expressions that choose rows, such as `rating > 0 and country in ('DE', 'FR')`.

An expression sees the cells of one row and nothing else, so whether a user's row is chosen never depends on another
user. The language is the scalar part of SQL: columns, numbers, texts in single quotes, `+ - * /`, comparisons, `and`,
`or`, `not`, `in`, `between`, `like`, `is null` and a few functions. It has no queries, aggregates, windows or
functions that read files or the clock. A row is chosen if the expression is true; comparing an empty cell is not true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from apportion.data.arrow_columns import casts_to, expected_number, first_failing, texts_of, with_decimal_points
from apportion.data.arrow_texts import is_text
from apportion.data.vocabulary import bad_cell
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Expression", "Held", "parse_expression"]

Held = Literal["number", "text", "truth", "anything"]
"""What a part of an expression stands for; a column holds anything until it is compared with something."""

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*")"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<sign><>|<=|>=|==|!=|[=<>()+\-*/,]))"""
)
_COMPARISONS: Final = {
    "=": "equal", "==": "equal", "!=": "not_equal", "<>": "not_equal",
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip
_SUMS: Final = {"+": "add", "-": "subtract"}
_PRODUCTS: Final = {"*": "multiply", "/": "divide"}
_FUNCTIONS: Final[dict[str, tuple[str, Held, Held]]] = {
    "abs": ("abs", "number", "number"),
    "lower": ("utf8_lower", "text", "text"),
    "upper": ("utf8_upper", "text", "text"),
    "trim": ("utf8_trim_whitespace", "text", "text"),
    "length": ("utf8_length", "text", "number"),
}
_LITERALS: Final = {"true": 1.0, "false": 0.0}
_RESERVED: Final = frozenset(
    ("and", "or", "not", "in", "is", "null", "like", "between", "select", "from", "over", "true", "false")
)
_LONGEST: Final = 2000
_DEEPEST: Final = 60

Part = TypeVar("Part")
Cells = Any
Columns = Callable[[str, Held], Cells]
"""Returns the cells of a column, as numbers or texts."""


@dataclass(frozen=True)
class _Part:
    """A part of an expression: what it holds, and how it is computed from the columns of a batch."""

    holds: Held
    of: Callable[[Columns], Cells]
    column: str | None = None


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Attributes:
        text: as it was written.
        columns: the columns that it reads, and what each is read as.
    """

    text: str
    columns: dict[str, Held]
    _whole: _Part

    def chosen(self, batch: pa.RecordBatch, first_row: int = 1) -> pa.Array:
        """Return, for each row of a batch, whether it is chosen.

        Args:
            batch: rows with all columns of the expression.
            first_row: number of the batch's first row, for error messages.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        truth = self._whole.of(lambda name, held: _cells(batch.column(name), name, held, first_row))
        if isinstance(truth, pa.Scalar):  # an expression without columns
            truth = pa.array([truth.as_py()] * batch.num_rows, pa.bool_())
        return pc.fill_null(truth, False)


def parse_expression(text: str) -> Expression:
    """Parse an expression. Refuse anything outside the language in one sentence.

    >>> parse_expression("rating > 0 and not lower(country) in ('de', 'fr')").columns
    {'rating': 'number', 'country': 'text'}
    """
    if len(text) > _LONGEST:
        raise InputError(f"Expected an expression of at most {_LONGEST} characters, got {len(text)}.", argument="where")
    parser = _Parser(text)
    whole = parser.whole()
    return Expression(text, parser.columns, whole)


class _Parser:
    """Reads an expression from left to right, one method for each strength of binding."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._depth = 0
        self.columns: dict[str, Held] = {}

    def whole(self) -> _Part:
        part = self._truth(self._either())
        if self._tokens:
            raise self._unexpected("the end")
        return part

    def _either(self) -> _Part:
        return self._joined("or", "or_kleene", self._both)

    def _both(self) -> _Part:
        return self._joined("and", "and_kleene", self._negated)

    def _joined(self, word: str, function: str, inner: Callable[[], _Part]) -> _Part:
        part = inner()
        while self._take_word(word):
            part = _call(function, "truth", self._truth(part), self._truth(inner()))
        return part

    def _negated(self) -> _Part:
        if self._take_word("not"):
            return _call("invert", "truth", self._truth(self._deeper(self._negated)))
        return self._compared()

    def _compared(self) -> _Part:
        left = self._sum()
        if self._tokens and (function := _COMPARISONS.get(self._tokens[0][1])) and self._tokens[0][0] == "sign":
            self._tokens.pop(0)
            return self._comparison(function, left, self._sum())
        if self._take_word("is"):
            negative = self._take_word("not")
            self._expect_word("null")
            return self._empty(left, negative)
        negative = self._take_word("not")
        if self._take_word("in"):
            return _negated_if(negative, self._among(left))
        if self._take_word("between"):
            return _negated_if(negative, self._between(left))
        if self._take_word("like"):
            return _negated_if(negative, self._like(left))
        if negative:
            raise self._unexpected("in, between or like")
        return left

    def _comparison(self, function: str, left: _Part, right: _Part) -> _Part:
        known: list[Held] = [part.holds for part in (left, right) if part.holds != "anything"]
        kind = known[0] if known else "number"
        return _call(function, "truth", self._as(left, kind), self._as(right, kind))

    def _empty(self, part: _Part, negative: bool) -> _Part:
        if part.column is not None:
            self.columns.setdefault(part.column, "anything")
        return _call("is_valid" if negative else "is_null", "truth", part)

    def _among(self, left: _Part) -> _Part:
        self._expect_sign("(")
        tests = [self._comparison("equal", left, self._sum())]
        while self._take_sign(","):
            tests.append(self._comparison("equal", left, self._sum()))
        self._expect_sign(")")
        result = tests[0]
        for test in tests[1:]:
            result = _call("or_kleene", "truth", result, test)
        return result

    def _between(self, left: _Part) -> _Part:
        low = self._sum()
        self._expect_word("and")
        high = self._sum()
        above, below = self._comparison("greater_equal", left, low), self._comparison("less_equal", left, high)
        return _call("and_kleene", "truth", above, below)

    def _like(self, left: _Part) -> _Part:
        kind, written = self._tokens[0] if self._tokens else ("", "")
        if kind != "text":
            raise self._unexpected("a text in single quotes")
        self._tokens.pop(0)
        pattern, texts = _unquoted(written), self._as(left, "text")

        def matched(columns: Columns) -> Cells:
            import pyarrow.compute as pc

            return pc.match_like(texts.of(columns), pattern)

        return _Part("truth", matched)

    def _sum(self) -> _Part:
        return self._operated(_SUMS, self._product)

    def _product(self) -> _Part:
        return self._operated(_PRODUCTS, self._signed)

    def _operated(self, signs: dict[str, str], inner: Callable[[], _Part]) -> _Part:
        part = inner()
        while self._tokens and self._tokens[0][0] == "sign" and self._tokens[0][1] in signs:
            function = signs[self._tokens.pop(0)[1]]
            part = _call(function, "number", self._as(part, "number"), self._as(inner(), "number"))
        return part

    def _signed(self) -> _Part:
        if self._take_sign("-"):
            return _call("negate", "number", self._as(self._deeper(self._signed), "number"))
        return self._unit()

    def _unit(self) -> _Part:
        if self._take_sign("("):
            part = self._deeper(self._either)
            self._expect_sign(")")
            return part
        kind, written = self._tokens[0] if self._tokens else ("", "")
        if kind not in ("number", "text", "quoted", "word") or (kind == "word" and not self._may_stand_alone(written)):
            raise self._unexpected("a column, a number or a text in single quotes")
        self._tokens.pop(0)
        if kind == "number":
            return _constant("number", float(written))
        if kind == "text":
            return _constant("text", _unquoted(written))
        if kind == "word" and written.lower() in _LITERALS:
            return _constant("number", _LITERALS[written.lower()])
        if kind == "word" and self._take_sign("("):
            return self._function(written)
        return _column(_unquoted(written) if kind == "quoted" else written)

    def _may_stand_alone(self, word: str) -> bool:
        return word.lower() not in _RESERVED or word.lower() in _LITERALS

    def _function(self, name: str) -> _Part:
        if name.lower() not in _FUNCTIONS:
            raise InputError(
                f"Expected one of the functions {', '.join(sorted(_FUNCTIONS))}, got {name!r} in {self._text!r}; an "
                "expression sees one row, without aggregates, queries or files.",
                argument="where",
            )
        function, takes, gives = _FUNCTIONS[name.lower()]
        argument = self._as(self._deeper(self._sum), takes)
        self._expect_sign(")")
        part = _call(function, gives, argument)
        return _call("cast", gives, part) if name.lower() == "length" else part

    def _as(self, part: _Part, kind: Held) -> _Part:
        """Return a part as a number, a text or a truth value. From then on, a column is read as that."""
        if part.column is None or kind == "truth":
            if part.holds != kind:
                raise InputError(f"Expected a {kind}, got a {part.holds} in {self._text!r}.", argument="where")
            return part
        before = self.columns.get(part.column, "anything")
        if before not in ("anything", kind):
            raise InputError(
                f"Column {part.column!r} cannot be both a {before} and a {kind} in {self._text!r}.", argument="where"
            )
        self.columns[part.column] = kind
        return _column(part.column, kind)

    def _truth(self, part: _Part) -> _Part:
        if part.holds != "truth":
            raise InputError(
                f"Expected a comparison, such as rating > 0, got {self._text!r}, which is not true or false.",
                argument="where",
            )
        return part

    def _deeper(self, inner: Callable[[], Part]) -> Part:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InputError(f"Expected at most {_DEEPEST} nested parts in {self._text[:40]!r}...", argument="where")
        part = inner()
        self._depth -= 1
        return part

    def _take_word(self, word: str) -> bool:
        return self._take("word", lambda written: written.lower() == word)

    def _take_sign(self, sign: str) -> bool:
        return self._take("sign", lambda written: written == sign)

    def _take(self, kind: str, fits: Callable[[str], bool]) -> bool:
        if self._tokens and self._tokens[0][0] == kind and fits(self._tokens[0][1]):
            self._tokens.pop(0)
            return True
        return False

    def _expect_word(self, word: str) -> None:
        if not self._take_word(word):
            raise self._unexpected(word)

    def _expect_sign(self, sign: str) -> None:
        if not self._take_sign(sign):
            raise self._unexpected(repr(sign))

    def _unexpected(self, expected: str) -> InputError:
        got = repr(self._tokens[0][1]) if self._tokens else "the end"
        return InputError(f"Expected {expected}, got {got} in {self._text!r}.", argument="where")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, place = [], 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            problem = (
                f"Expected columns, numbers, texts and comparisons, got {text[place:].strip()[:20]!r} in {text!r}."
            )
            raise InputError(problem, argument="where")
        kind = str(found.lastgroup)
        tokens.append((kind, found.group(kind)))
        place = found.end()
    return tokens


def _unquoted(written: str) -> str:
    quote = written[0]
    return written[1:-1].replace(quote * 2, quote)


def _constant(kind: Held, value: float | str) -> _Part:
    def constant(_: Columns) -> Cells:
        import pyarrow as pa

        return pa.scalar(value, pa.float64() if kind == "number" else pa.large_string())

    return _Part(kind, constant)


def _column(name: str, kind: Held = "anything") -> _Part:
    return _Part(kind, lambda columns: columns(name, kind), column=name)


def _call(function: str, gives: Held, *parts: _Part) -> _Part:
    """Return a part that a function of Arrow computes from other parts. All numbers are float64."""

    def called(columns: Columns) -> Cells:
        import pyarrow as pa
        import pyarrow.compute as pc

        cells: Sequence[Cells] = [part.of(columns) for part in parts]
        return pc.cast(cells[0], pa.float64()) if function == "cast" else pc.call_function(function, list(cells))

    return _Part(gives, called)


def _negated_if(negative: bool, part: _Part) -> _Part:
    return _call("invert", "truth", part) if negative else part


def _cells(cells: pa.Array, name: str, held: Held, first_row: int) -> pa.Array:
    """Return the cells of a column as float64 or as text. Name the first cell that cannot be converted."""
    import pyarrow as pa

    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if held == "anything":
        return cells
    if held == "text":
        return texts_of(cells, name, first_row).cast(pa.large_string())
    if is_text(cells.type):
        import pyarrow.compute as pc

        cells = with_decimal_points(pc.utf8_trim_whitespace(cells.cast(pa.large_string())))
    if pa.types.is_boolean(cells.type):
        cells = cells.cast(pa.int8())
    if pa.types.is_decimal(cells.type):  # as written: a direct cast rounds by the number of digits of the column
        cells = cells.cast(pa.string())
    if not pa.types.is_null(cells.type):
        position = first_failing(cells, casts_to(pa.float64()))
        if position is not None:
            cell = cells[position].as_py()
            words = expected_number(cell, "a number, as the expression does")
            raise bad_cell(name, cell, first_row + position, words)
    return cells.cast(pa.float64())
