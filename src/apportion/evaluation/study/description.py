"""The contents of a study file: the data and their split, budgets, methods, metrics and tuning."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from apportion.data.repeats import REPEATS
from apportion.data.row_rules import MISSING
from apportion.errors import InputError
from apportion.evaluation.study.methods import NON_PRIVATE, Method, read_methods
from apportion.evaluation.study.table_reading import (
    Table,
    is_fraction,
    is_list_of,
    is_number,
    is_positive,
    is_range,
    is_table,
    is_tables,
    is_text,
    is_whole,
)

LOWER_IS_BETTER: Final = ("rmse", "mae")
BEST_ON_VALIDATION: Final = "best on validation"

Kind = Literal["ratings", "clicks"]

_READING: Final = (
    *("path", "min_value", "user", "item", "value", "timestamp", "columns", "items", "titles"),
    *("unlisted", "where", "missing", "repeats"),
    *("features", "feature_item", "feature_kinds", "feature_crosses"),
)


@dataclass(frozen=True)
class SplitPlan:
    """How data are divided: fractions of the rows (ratings) or users (clicks; from 1 on, a number of users)."""

    seed: int = 0
    validation: float = 0.1
    test: float = 0.1
    history: float = 0.8


@dataclass(frozen=True)
class Budgets:
    """Every ε for private methods, one δ, and the seeds of the noise."""

    epsilon: tuple[float, ...]
    delta: float
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Measures:
    """What is measured: the number of slices and, for clicks, the cut-offs."""

    slices: int = 5
    recall_at: tuple[int, ...] = ()
    ndcg_at: tuple[int, ...] = ()
    recall_at_by_slice: tuple[int, ...] = ()

    def names(self, kind: Kind) -> tuple[str, ...]:
        """Return names of the metrics, the main one first."""
        if kind == "ratings":
            return ("rmse", "mae")
        by_slice = (f"recall@{'/'.join(map(str, self.recall_at_by_slice))}",) if self.recall_at_by_slice else ()
        return (*(f"recall@{k}" for k in self.recall_at), *(f"ndcg@{k}" for k in self.ndcg_at), *by_slice)


@dataclass(frozen=True)
class Tuning:
    """Each method is tuned over its own grid at each ε: the best mean over these seeds on validation wins."""

    seeds: tuple[int, ...]
    metric: str


@dataclass(frozen=True)
class Inspection:
    """Models of the first seed are saved, to compare their nearest neighbours with the reference."""

    reference: str
    k: int = 20
    items: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Study:
    """The contents of a study file. `read_study` makes it from a file, `Study.from_table` from a dictionary."""

    kind: Kind
    budgets: Budgets
    methods: tuple[Method, ...]
    split: SplitPlan = SplitPlan()
    measures: Measures = Measures()
    value_range: tuple[float, float] = (1.0, 5.0)
    tuning: Tuning | None = None
    inspection: Inspection | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, the main one first."""
        return self.measures.names(self.kind)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Study:
        """Check a table read from TOML. Refuse anything unknown or out of range."""
        top = Table("the study", table)
        data = Table("[data]", top.take("data", "a table", is_table))
        kind: Kind = data.take("kind", '"ratings" or "clicks"', lambda value: value in ("ratings", "clicks"))
        split = _split_plan(data, kind)
        value_range = tuple(map(float, data.take("value_range", "[low, high], low below high", is_range, [1.0, 5.0])))
        reading = _reading(data, kind)
        data.finish()
        budgets = _budgets(Table("[budgets]", top.take("budgets", "a table", is_table)))
        methods = read_methods(top.take("methods", "one or more [[methods]] tables", is_tables))
        measures = _measures(Table("[evaluation]", top.take("evaluation", "a table", is_table, {})), kind)
        tuning = top.take("tuning", "a table", is_table, None)
        inspection = top.take("inspection", "a table", is_table, None)
        top.finish()
        return cls(
            kind=kind,
            budgets=budgets,
            methods=methods,
            split=split,
            measures=measures,
            value_range=(value_range[0], value_range[1]),
            tuning=None if tuning is None else _tuning(tuning, budgets, measures.names(kind), split),
            inspection=None if inspection is None else _inspection(inspection, methods),
            reading=reading,
        )


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read a study from a TOML file; paths in it are relative to the file's folder."""
    file = Path(path)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"{file.name} is not valid TOML: it is not text in UTF-8.", argument=None) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file.name} is not valid TOML: {error}.", argument=None) from None
    try:
        return Study.from_table(table)
    except InputError as error:
        raise error.inside(file.name) from None


def _split_plan(data: Table, kind: Kind) -> SplitPlan:
    def accept(value: Any) -> bool:
        return is_number(value) and (0 <= value < 1 or (kind == "clicks" and is_whole(1)(value)))

    expected = "a fraction from 0 to 1" + (", or a whole number of users" if kind == "clicks" else "")
    plan = SplitPlan(
        seed=data.take("split_seed", "a whole number from 0", is_whole(0), SplitPlan.seed),
        validation=data.take("validation", expected, accept, SplitPlan.validation),
        test=data.take("test", expected, lambda value: accept(value) and value > 0, SplitPlan.test),
        history=data.take("history", "a fraction between 0 and 1", is_fraction, SplitPlan.history),
    )
    if sum(part for part in (plan.validation, plan.test) if part < 1) >= 1:
        raise InputError(
            f"Expected validation and test below 1 together, got {plan.validation:g} and {plan.test:g}.", argument=None
        )
    return plan


def _reading(data: Table, kind: Kind) -> dict[str, Any]:
    """Return where the data are and how they are read."""
    accepted = {
        "min_value": ("a number", is_number),
        "unlisted": ("drop or refuse", lambda value: value in MISSING),
        "missing": ("drop or refuse", lambda value: value in MISSING),
        "repeats": (f"one of {', '.join(REPEATS)}", lambda value: value in REPEATS),
        "feature_kinds": (
            "a table of kinds by column",
            lambda value: is_table(value) and all(map(is_text, value.values())),
        ),
        "feature_crosses": ("a list of lists of columns", is_list_of(is_list_of(is_text, least=2), distinct=False)),
    }
    result = {key: data.take(key, *accepted.get(key, ("text", is_text)), None) for key in _READING}
    if kind == "ratings" and result["min_value"] is not None:
        raise InputError(
            f"Expected min_value in [data] only with clicks, got {result['min_value']:g} with ratings.", argument=None
        )
    reading = {key: value for key, value in result.items() if value is not None}
    for key in reading:
        if key.startswith("feature_") and "features" not in reading:
            raise InputError(f"Expected features in [data], which {key} refers to, got none.", argument=None)
    return reading


def _budgets(table: Table) -> Budgets:
    numbers, seeds = "a list of different numbers above 0", "a list of different whole numbers from 0"
    budgets = Budgets(
        epsilon=tuple(map(float, table.take("epsilon", numbers, is_list_of(is_positive)))),
        delta=float(table.take("delta", "a number between 0 and 1", is_fraction, 1e-6)),
        seeds=tuple(table.take("seeds", seeds, is_list_of(is_whole(0)), [0])),
    )
    table.finish()
    return budgets


def _measures(table: Table, kind: Kind) -> Measures:
    slices = table.take("slices", "a whole number from 1", is_whole(1), 5)
    if kind == "ratings":
        table.finish()
        return Measures(slices)
    cutoffs = "a list of whole numbers from 1"
    measures = Measures(
        slices,
        recall_at=tuple(table.take("recall_at", cutoffs, is_list_of(is_whole(1)), [20])),
        ndcg_at=tuple(table.take("ndcg_at", cutoffs, is_list_of(is_whole(1), least=0), [100])),
        recall_at_by_slice=tuple(
            table.take(
                "recall_at_by_slice",
                f"a list of {slices} whole numbers from 1, one per slice, rarest first",
                lambda value: is_list_of(is_whole(1), distinct=False, least=slices)(value) and len(value) == slices,
                [20 * (slices - number) for number in range(slices)],
            )
        ),
    )
    table.finish()
    return measures


def _tuning(values: Mapping[str, Any], budgets: Budgets, metrics: Sequence[str], split: SplitPlan) -> Tuning:
    table = Table("[tuning]", values)
    table.take("rule", f'"{BEST_ON_VALIDATION}"', lambda value: value == BEST_ON_VALIDATION)
    unused = [max(budgets.seeds) + 1]  # seeds that the test does not use again
    tuning = Tuning(
        seeds=tuple(table.take("seeds", "a list of different whole numbers from 0", is_list_of(is_whole(0)), unused)),
        metric=table.take("metric", f"one of {', '.join(metrics)}", lambda value: value in metrics, metrics[0]),
    )
    table.finish()
    if split.validation == 0:
        raise InputError("Expected validation in [data] above 0, because [tuning] needs it, got 0.", argument=None)
    return tuning


def _inspection(values: Mapping[str, Any], methods: Sequence[Method]) -> Inspection:
    table = Table("[inspection]", values)
    names = [method.name for method in methods if not method.is_private]
    inspection = Inspection(
        reference=table.take(
            "reference",
            f"the name of a {NON_PRIVATE} method ({', '.join(names) or 'there is none'})",
            lambda value: value in names,
            *names[:1],
        ),
        k=table.take("k", "a whole number from 1", is_whole(1), Inspection.k),
        items=tuple(
            table.take(
                "items", "a list of ids or titles", is_list_of(lambda v: is_text(v) or is_whole(0)(v), least=0), []
            )
        ),
    )
    table.finish()
    return inspection
