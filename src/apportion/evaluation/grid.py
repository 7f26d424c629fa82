"""A study: methods x budgets x noise seeds from one TOML file, each fitted and measured once, resumable.

A *unit* is one fit and its measurement: settings of a method, ε, a noise seed, and the part of the data (validation or
test) it is measured on. A finished unit is one small file, named by a hash of everything that its figures depend on:
an interrupted study goes on where it stopped, and a method that was changed is the only one that is fitted again.

Figures are computed from raw data and noise is seeded: everything here is internal, and nothing of it is for release.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np

from apportion import __version__
from apportion.data import HeldOut, Interactions
from apportion.data.splits import MIN_OBSERVATIONS_HELD_OUT
from apportion.errors import ApportionError, InputError
from apportion.evaluation.rankings import evaluate_rankings
from apportion.evaluation.ratings import evaluate_ratings
from apportion.evaluation.results import Evaluation, MetricValue
from apportion.evaluation.slices import PopularitySlices, popularity_slices
from apportion.privacy import NoiseSource, SeededNoise

MARKING: Final = "INTERNAL, NOT FOR RELEASE: computed from raw data, not covered by epsilon; the noise is seeded"
NON_PRIVATE: Final = "non-private"
"""The method that has no ε and no noise: it is fitted once, whatever the budgets and seeds."""
LOWER_IS_BETTER: Final = ("rmse", "mae")
BEST_ON_VALIDATION: Final = "best on validation"

Kind = Literal["ratings", "clicks"]
Part = Literal["validation", "test"]
Show = Callable[[str, str, int, int], None]
Say = Callable[[str], None]

_FORMAT: Final = 1
_UNITS, _MODELS = "units", "models"
_READING: Final = ("path", "min_value", "user", "item", "value", "timestamp", "columns", "items", "titles")


class Builder(Protocol):
    """Makes an estimator from a method's settings; see `apportion.recommend.methods.build`."""

    def __call__(
        self,
        spec: Mapping[str, Any],
        kind: str,
        *,
        epsilon: float,
        delta: float,
        noise: NoiseSource | None = None,
        value_range: tuple[float, float] = (1.0, 5.0),
    ) -> Any:
        """Return an estimator whose `fit(data)` leaves `model_`; settings that make no sense are an `InputError`."""
        ...


# -- what a study says --


@dataclass(frozen=True)
class SplitPlan:
    """How data are divided: fractions of the rows (ratings), or of the users (clicks; from 1 on, their number)."""

    seed: int = 0
    validation: float = 0.1
    test: float = 0.1
    history: float = 0.8


@dataclass(frozen=True)
class Budgets:
    """Every ε that private methods are fitted at, one δ, and the seeds of the noise."""

    epsilon: tuple[float, ...]
    delta: float
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Measures:
    """What is measured: the number of slices, and for clicks the cut-offs."""

    slices: int = 5
    recall_at: tuple[int, ...] = ()
    ndcg_at: tuple[int, ...] = ()
    recall_at_by_slice: tuple[int, ...] = ()

    def names(self, kind: Kind) -> tuple[str, ...]:
        """Names of the metrics, the main one first."""
        if kind == "ratings":
            return ("rmse", "mae")
        by_slice = (f"recall@{'/'.join(map(str, self.recall_at_by_slice))}",) if self.recall_at_by_slice else ()
        return (*(f"recall@{k}" for k in self.recall_at), *(f"ndcg@{k}" for k in self.ndcg_at), *by_slice)


@dataclass(frozen=True)
class Tuning:
    """Each method, at each ε, is tuned over its own grid: the best mean over these seeds on validation wins."""

    seeds: tuple[int, ...]
    metric: str


@dataclass(frozen=True)
class Inspection:
    """Models of the first seed are kept, to be compared with the reference by their nearest neighbours."""

    reference: str
    k: int = 20
    items: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Combination:
    """A method with every setting fixed.

    Attributes:
        method: the method's name in the study.
        settings: what was set by the grid, by dotted key.
        spec: all settings, as the builder gets them.
    """

    method: str
    settings: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The method's name and what the grid set."""
        return f"{self.method}: {settings_in_words(self.settings)}" if self.settings else self.method


@dataclass(frozen=True)
class Method:
    """A row of the comparison: its name, its settings, and the lists of settings to combine.

    Attributes:
        name: in tables.
        spec: settings, as the builder gets them.
        grid: lists of settings, by dotted key.
        draws: how many combinations of the grid to draw at random; None for all of them.
    """

    name: str
    spec: Mapping[str, Any]
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    draws: int | None = None

    @property
    def is_private(self) -> bool:
        """Whether it has an ε at all."""
        return bool(self.spec["method"] != NON_PRIVATE)

    def combinations(self) -> tuple[Combination, ...]:
        """Every combination of the grid, the last key running fastest, or as many as are drawn."""
        if self.draws is not None:
            drawn = {repr(settings): settings for settings in map(self._drawn, range(self.draws))}
            return tuple(map(self._combined, drawn.values()))
        return tuple(
            self._combined(dict(zip(self.grid, values, strict=True)))
            for values in itertools.product(*self.grid.values())
        )

    def _drawn(self, number: int) -> dict[str, Any]:
        """Settings drawn one by one: methods that share a key and its list draw the same values of it."""
        positions = {key: zlib.crc32(f"{number} {key}".encode()) for key in self.grid}
        return {key: choices[positions[key] % len(choices)] for key, choices in self.grid.items()}

    def _combined(self, settings: Mapping[str, Any]) -> Combination:
        spec = dict(self.spec)
        for key, value in settings.items():
            spec = _with(spec, key.split("."), value, f"grid of method {self.name!r}")
        return Combination(self.name, settings, spec)


@dataclass(frozen=True)
class Study:
    """Everything that a study file says; `read_study` makes it from a file, `Study.from_table` from a dictionary."""

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
        """Check a table as read from TOML; anything unknown or out of range is refused."""
        top = _Table("the study", table)
        data = _Table("[data]", top.take("data", "a table", _is_table))
        kind: Kind = data.take("kind", '"ratings" or "clicks"', lambda value: value in ("ratings", "clicks"))
        split = _split_plan(data, kind)
        value_range = tuple(map(float, data.take("value_range", "[low, high], low below high", _is_range, [1.0, 5.0])))
        reading = _reading(data, kind)
        data.finish()
        budgets = _budgets(_Table("[budgets]", top.take("budgets", "a table", _is_table)))
        methods = _methods(top.take("methods", "one or more [[methods]] tables", _is_tables))
        measures = _measures(_Table("[evaluation]", top.take("evaluation", "a table", _is_table, {})), kind)
        tuning = top.take("tuning", "a table", _is_table, None)
        inspection = top.take("inspection", "a table", _is_table, None)
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
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file.name} is not valid TOML: {error}.") from None
    try:
        return Study.from_table(table)
    except InputError as error:
        raise InputError(f"{file.name}: {error}") from None


def settings_in_words(settings: Mapping[str, Any]) -> str:
    """Settings by the last word of their keys.

    >>> settings_in_words({"allocation.exponent": 0.25, "dimension": 8})
    'exponent 0.25, dimension 8'
    """
    return ", ".join(f"{key.rsplit('.', 1)[-1]} {_value_in_words(value)}" for key, value in settings.items())


def _value_in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(str(inner) if key in ("policy", "method") else f"{key} {inner}" for key, inner in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


_NEEDED: Final = object()


class _Table:
    """A table that is read key by key; what is wrong or left over is refused with its place."""

    def __init__(self, place: str, values: Mapping[str, Any]) -> None:
        self.place = place
        self.values = dict(values)
        self.known: list[str] = []

    def take(self, key: str, expected: str, accept: Callable[[Any], bool], default: Any = _NEEDED) -> Any:
        """The value of a key, checked."""
        self.known.append(key)
        if key not in self.values:
            if default is _NEEDED:
                raise InputError(f"Expected {key} in {self.place} ({expected}), got none.")
            return default
        value = self.values.pop(key)
        if not accept(value):
            raise InputError(f"Expected {key} in {self.place} to be {expected}, got {value!r}.")
        return value

    def finish(self) -> None:
        """Refuse what nobody asked for."""
        for key in self.values:
            raise InputError(f"Expected only {', '.join(self.known)} in {self.place}, got {key!r}.")


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) > 0 and all(map(_is_table, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_range(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_number, value)) and value[0] < value[1]


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_fraction(value: Any) -> bool:
    return _is_number(value) and 0 < value < 1


def _is_whole(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are(accept: Callable[[Any], bool], *, distinct: bool = True, least: int = 1) -> Callable[[Any], bool]:
    def accepted(value: Any) -> bool:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) < least:
            return False
        return all(map(accept, value)) and not (distinct and len(set(value)) < len(value))

    return accepted


def _split_plan(data: _Table, kind: Kind) -> SplitPlan:
    def accept(value: Any) -> bool:
        return _is_number(value) and (0 <= value < 1 or (kind == "clicks" and _is_whole(1)(value)))

    expected = "a fraction from 0 to 1" + (", or a whole number of users" if kind == "clicks" else "")
    plan = SplitPlan(
        seed=data.take("split_seed", "a whole number from 0", _is_whole(0), SplitPlan.seed),
        validation=data.take("validation", expected, accept, SplitPlan.validation),
        test=data.take("test", expected, lambda value: accept(value) and value > 0, SplitPlan.test),
        history=data.take("history", "a fraction between 0 and 1", _is_fraction, SplitPlan.history),
    )
    if sum(part for part in (plan.validation, plan.test) if part < 1) >= 1:
        raise InputError(f"Expected validation and test below 1 together, got {plan.validation:g} and {plan.test:g}.")
    return plan


def _reading(data: _Table, kind: Kind) -> dict[str, Any]:
    """What says where the data are and how they are read, for whoever reads them."""
    accepted = {"min_value": ("a number", _is_number)}
    found = {key: data.take(key, *accepted.get(key, ("text", _is_text)), None) for key in _READING}
    if kind == "ratings" and found["min_value"] is not None:
        raise InputError(f"Expected min_value in [data] only with clicks, got {found['min_value']:g} with ratings.")
    return {key: value for key, value in found.items() if value is not None}


def _budgets(table: _Table) -> Budgets:
    numbers, seeds = "a list of different numbers above 0", "a list of different whole numbers from 0"
    budgets = Budgets(
        epsilon=tuple(map(float, table.take("epsilon", numbers, _are(_is_positive)))),
        delta=float(table.take("delta", "a number between 0 and 1", _is_fraction, 1e-6)),
        seeds=tuple(table.take("seeds", seeds, _are(_is_whole(0)), [0])),
    )
    table.finish()
    return budgets


def _methods(tables: Sequence[Mapping[str, Any]]) -> tuple[Method, ...]:
    methods = tuple(_method(table, number) for number, table in enumerate(tables, 1))
    names = [method.name for method in methods]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"Expected a different name for each of [[methods]], got {name!r} {names.count(name)} times."
            )
    return methods


def _method(values: Mapping[str, Any], number: int) -> Method:
    table = _Table(f"[[methods]] number {number}", values)
    kind = table.take("method", "text", _is_text)
    name = table.take("name", "text", _is_text, kind)
    grid = dict(_flat(table.take("grid", "a table of lists", _is_table, {})))
    draws = table.take("draws", "a whole number from 1", _is_whole(1), None)
    if draws is not None and not grid:
        raise InputError(f"Expected a grid for the {draws} draws of method {name!r}, got none.")
    spec = {"method": kind, **table.values}
    for key, choices in grid.items():
        if not _are(lambda _: True, distinct=False)(choices):
            raise InputError(f"Expected {key} in the grid of method {name!r} to be a list of values, got {choices!r}.")
        if _holds(spec, key.split(".")):
            raise InputError(f"Expected {key} of method {name!r} either as a setting or in its grid, got both.")
    method = Method(name, spec, {key: tuple(choices) for key, choices in grid.items()}, draws)
    method.combinations()  # refuses a key that leads into something other than a table
    return method


def _flat(table: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys, whether they were written so in quotes or as tables in tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{start}{key}.")
        else:
            yield f"{start}{key}", value


def _holds(spec: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(spec, Mapping) or key not in spec:
            return False
        spec = spec[key]
    return True


def _with(spec: Mapping[str, Any], keys: Sequence[str], value: Any, place: str) -> dict[str, Any]:
    """A copy in which one value, some tables down, is set."""
    first, *others = keys
    if not others:
        return {**spec, first: value}
    inner = spec.get(first, {})
    if not isinstance(inner, Mapping):
        raise InputError(
            f"Expected {first} to be a table, as the {place} sets {'.'.join(others)} in it, got {inner!r}."
        )
    return {**spec, first: _with(inner, others, value, place)}


def _measures(table: _Table, kind: Kind) -> Measures:
    slices = table.take("slices", "a whole number from 1", _is_whole(1), 5)
    if kind == "ratings":
        table.finish()
        return Measures(slices)
    cutoffs = "a list of whole numbers from 1"
    measures = Measures(
        slices,
        recall_at=tuple(table.take("recall_at", cutoffs, _are(_is_whole(1)), [20])),
        ndcg_at=tuple(table.take("ndcg_at", cutoffs, _are(_is_whole(1), least=0), [100])),
        recall_at_by_slice=tuple(
            table.take(
                "recall_at_by_slice",
                f"a list of {slices} whole numbers from 1, one per slice, rarest first",
                lambda value: _are(_is_whole(1), distinct=False, least=slices)(value) and len(value) == slices,
                [20 * (slices - number) for number in range(slices)],
            )
        ),
    )
    table.finish()
    return measures


def _tuning(values: Mapping[str, Any], budgets: Budgets, metrics: Sequence[str], split: SplitPlan) -> Tuning:
    table = _Table("[tuning]", values)
    table.take("rule", f'"{BEST_ON_VALIDATION}"', lambda value: value == BEST_ON_VALIDATION)
    unused = [max(budgets.seeds) + 1]  # noise that the test does not meet again
    tuning = Tuning(
        seeds=tuple(table.take("seeds", "a list of different whole numbers from 0", _are(_is_whole(0)), unused)),
        metric=table.take("metric", f"one of {', '.join(metrics)}", lambda value: value in metrics, metrics[0]),
    )
    table.finish()
    if split.validation == 0:
        raise InputError("Expected validation in [data] above 0, as [tuning] needs it, got 0.")
    return tuning


def _inspection(values: Mapping[str, Any], methods: Sequence[Method]) -> Inspection:
    table = _Table("[inspection]", values)
    names = [method.name for method in methods if not method.is_private]
    inspection = Inspection(
        reference=table.take(
            "reference",
            f"the name of a {NON_PRIVATE} method ({', '.join(names) or 'there is none'})",
            lambda value: value in names,
            *names[:1],
        ),
        k=table.take("k", "a whole number from 1", _is_whole(1), Inspection.k),
        items=tuple(
            table.take("items", "a list of ids or titles", _are(lambda v: _is_text(v) or _is_whole(0)(v), least=0), [])
        ),
    )
    table.finish()
    return inspection


# -- the parts of the data --


@dataclass(frozen=True)
class Parts:
    """What is trained on, and what is shown and to be found on validation and on test."""

    train: Interactions
    validation: HeldOut | None
    test: HeldOut
    words: str

    def held_out(self, part: Part) -> HeldOut:
        """The part to measure on."""
        held_out = self.test if part == "test" else self.validation
        assert held_out is not None
        return held_out


def split_study(study: Study, data: Interactions) -> Parts:
    """Divide the data as the study says: rows for ratings, whole users for clicks."""
    plan, rng = study.split, np.random.default_rng(study.split.seed)
    if study.kind == "ratings":
        train, validation, test = data.split_by_value(
            rng, (1 - plan.validation - plan.test, plan.validation, plan.test)
        )
        words = (
            f"rows at random: {plan.validation:.0%} for validation, {plan.test:.0%} for test, the others for training; "
            f"split seed {plan.seed}"
        )
        return Parts(train, HeldOut(train, validation) if plan.validation else None, HeldOut(train, test), words)
    n_eligible = int((data.by_user.counts >= MIN_OBSERVATIONS_HELD_OUT).sum())
    n_validation, n_test = (
        int(size) if size >= 1 else max(1, round(size * n_eligible)) if size else 0
        for size in (plan.validation, plan.test)
    )
    parts = data.split_by_users(rng, n_validation, n_test, plan.history)
    words = (
        f"whole users at random: {n_validation:,} for validation, {n_test:,} for test, the others for training; of a "
        f"held-out user {plan.history:.0%} of the rows are shown and the others are to be found; split seed {plan.seed}"
    )
    return Parts(parts.train, parts.validation if n_validation else None, parts.test, words)


def study_slices(study: Study, train: Interactions) -> PopularitySlices:
    """The study's popularity slices, by counts of the training part."""
    return popularity_slices(train.by_task.counts, study.measures.slices)


# -- units --


@dataclass(frozen=True)
class Unit:
    """One fit and its measurement.

    Attributes:
        words: what it is, for people.
        content: everything that its figures depend on, ready for JSON.
        keep_model: whether the model is to be kept as well.
    """

    words: str
    content: Mapping[str, Any]
    keep_model: bool = False

    @property
    def key(self) -> str:
        """A name for its file: a hash of the content."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:32]


def fingerprint(data: Interactions) -> str:
    """A hash of who did what with what value."""
    digest = hashlib.sha256(f"{data.n_users} {data.n_tasks}".encode())
    for array in (data.users, data.tasks, data.values):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


class _Bench:
    """Fits and measures units of one study on one data set; every process has one."""

    def __init__(self, study: Study, data: Interactions, folder: Path, build: Builder) -> None:
        self.study = study
        self.data = data
        self.folder = folder
        self.build = build

    @cached_property
    def parts(self) -> Parts:
        return split_study(self.study, self.data)

    @cached_property
    def slices(self) -> PopularitySlices:
        return study_slices(self.study, self.parts.train)

    def result_file(self, unit: Unit) -> Path:
        return self.folder / _UNITS / f"{unit.key}.json"

    def model_folder(self, unit: Unit) -> Path:
        return self.folder / _MODELS / unit.key

    def run(self, unit: Unit) -> str | None:
        """Fit, measure and store; what went wrong is returned in a sentence."""
        started = time.perf_counter()
        try:
            model = self._fitted(unit.content)
            evaluation = self._measured(model, unit.content["part"])
            if unit.keep_model:
                self._keep(model, unit)
            result = {
                "marking": MARKING,
                "unit": unit.content,
                "evaluation": evaluation.to_dict(),
                "statement": None if model.statement is None else json.loads(model.statement.to_json()),
                "seconds": round(time.perf_counter() - started, 3),
            }
            _write(self.result_file(unit), json.dumps(result, indent=1))
        except ApportionError as error:
            return str(error)
        except Exception as error:  # one unit that fails must not stop the others
            return f"{type(error).__name__}: {error}"
        return None

    def _fitted(self, content: Mapping[str, Any]) -> Any:
        epsilon, seed = content["epsilon"], content["seed"]
        estimator = build_unit(self.build, self.study, content["spec"], epsilon, seed)
        model = estimator.fit(self.parts.train).model_
        if epsilon is not None and (model.statement is None or model.statement.epsilon > epsilon * (1 + 1e-9)):
            stated = "no privacy statement" if model.statement is None else f"epsilon = {model.statement.epsilon:g}"
            raise InputError(f"Expected a model with epsilon = {epsilon:g}, got one with {stated}.")
        return model

    def _measured(self, model: Any, part: Part) -> Evaluation:
        held_out, measures = self.parts.held_out(part), self.study.measures
        if self.study.kind == "ratings":
            return evaluate_ratings(model, held_out.history, held_out.target, slices=self.slices)
        return evaluate_rankings(
            model,
            held_out.history,
            held_out.target,
            recall_at=measures.recall_at,
            ndcg_at=measures.ndcg_at,
            recall_at_by_slice=measures.recall_at_by_slice,
            slices=self.slices,
        )

    def _keep(self, model: Any, unit: Unit) -> None:
        from apportion.recommend import save

        save(model, self.model_folder(unit))

    def found(self, unit: Unit) -> Evaluation | None:
        """What a finished unit measured; None if it is not there, or not whole."""
        if unit.keep_model and not self.model_folder(unit).is_dir():
            return None
        try:
            stored = json.loads(self.result_file(unit).read_text(encoding="utf-8"))
            return Evaluation.from_dict(stored["evaluation"]) if stored["unit"] == unit.content else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def build_unit(build: Builder, study: Study, spec: Mapping[str, Any], epsilon: float | None, seed: int | None) -> Any:
    """The estimator of a unit; without ε and seed it is one without privacy."""
    return build(
        spec,
        study.kind,
        epsilon=study.budgets.epsilon[0] if epsilon is None else epsilon,
        delta=study.budgets.delta,
        noise=None if seed is None else SeededNoise(seed),
        value_range=study.value_range,
    )


def _write(path: Path, text: str) -> None:
    """Write a file beside its place, then move it there: it is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, staged = tempfile.mkstemp(prefix=f".{path.stem}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(staged, 0o644)
        os.replace(staged, path)
    except BaseException:
        Path(staged).unlink(missing_ok=True)
        raise


# -- several processes --

_bench: _Bench | None = None


def _start(study: Study, data: Interactions, folder: Path, build: Builder) -> None:
    """Begin a worker: it holds the data, and leaves Ctrl-C to the process that started it."""
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bench = _Bench(study, data, folder, build)


def _work(unit: Unit) -> str | None:
    assert _bench is not None
    return _bench.run(unit)


def _run_here(bench: _Bench, units: Sequence[Unit], finished: Callable[[Unit, str | None], None]) -> None:
    for unit in units:
        finished(unit, bench.run(unit))


def _run_in_processes(
    bench: _Bench, units: Sequence[Unit], processes: int, finished: Callable[[Unit, str | None], None]
) -> None:
    others = set(multiprocessing.active_children())
    with _threads_for(processes):
        pool = ProcessPoolExecutor(
            processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(bench.study, bench.data, bench.folder, bench.build),
        )
        try:
            running = {pool.submit(_work, unit): unit for unit in units}
            for future in as_completed(running):
                finished(running[future], future.result())
        except BrokenProcessPool:
            raise ApportionError(
                "A worker process ended before its work was done, perhaps for lack of memory; finished fits are kept."
            ) from None
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _threads_for(processes: int) -> Iterator[None]:
    """While workers start, have each use its part of the processors and no more."""
    threads = str(max(1, processors() // processes))
    names = ("APPORTION_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: threads for name in names if not _is_lower(before[name], threads)})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_lower(text: str | None, threads: str) -> bool:
    return text is not None and text.isdecimal() and 0 < int(text) < int(threads)


# -- results --


@dataclass(frozen=True)
class Figure:
    """A mean over seeds, its standard deviation (None for a single seed), and the number of seeds."""

    mean: float
    stddev: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure | None:
        """The figure of some values; None of none."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Cell:
    """One method at one ε: what was measured with each seed that succeeded.

    Attributes:
        label: the row that it belongs to.
        combination: the method and its settings.
        epsilon: ε, or None for a method without privacy.
        evaluations: one per seed.
        model: folder of the kept model of the first seed, if models are kept.
    """

    label: str
    combination: Combination
    epsilon: float | None
    evaluations: tuple[Evaluation, ...]
    model: Path | None = None

    def figure(self, metric: str, position: int | None = None) -> Figure | None:
        """Mean and standard deviation of a metric, overall or in the slice at a position."""
        measured = [_measured_at(evaluation[metric], position) for evaluation in self.evaluations]
        return Figure.of([value for value in measured if value is not None])


def _measured_at(value: MetricValue, position: int | None) -> float | None:
    return value.overall if position is None else value.by_slice[position]


@dataclass(frozen=True)
class StudyResults:
    """What a study found.

    Attributes:
        study: what was asked.
        cells: every row at every ε, measured on the test part.
        explored: with tuning, every combination at every ε, measured on the validation part.
        failures: what could not be fitted or measured, and why.
        split: how the data were divided, in words.
    """

    study: Study
    cells: tuple[Cell, ...]
    explored: tuple[Cell, ...]
    failures: tuple[tuple[str, str], ...]
    split: str

    @property
    def labels(self) -> tuple[str, ...]:
        """The rows, in the order of the study."""
        return tuple(dict.fromkeys(cell.label for cell in self.cells))

    @property
    def slices(self) -> tuple[str, ...]:
        """Names of the popularity slices, rarest first."""
        return next((cell.evaluations[0].slices for cell in self.cells if cell.evaluations), ())

    def cell(self, label: str, epsilon: float) -> Cell | None:
        """A row at an ε; a method without privacy has the same at each."""
        return next((cell for cell in self.cells if cell.label == label and cell.epsilon in (None, epsilon)), None)

    @property
    def tuning_in_words(self) -> str:
        """How settings were chosen, and how many fits looked at the data for that."""
        tuning = self.study.tuning
        if tuning is None:
            return "Nothing was tuned: every combination of settings is a row of its own."
        if not self.explored:
            return "Nothing was tuned: no method has more than one combination of settings."
        tuned = dict.fromkeys(cell.combination.method for cell in self.explored)
        n_fits = sum(1 if cell.epsilon is None else len(tuning.seeds) for cell in self.explored)
        return (
            f"Tuned, each over its own grid and separately for each ε: {'; '.join(tuned)}. The settings with the best "
            f"mean {tuning.metric} on the validation part were taken; {n_fits:,} fits looked at that part "
            f"(noise seeds {', '.join(map(str, tuning.seeds))}). This choice is not private: no ε covers it."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "marking": MARKING,
            "version": __version__,
            "kind": self.study.kind,
            "split": self.split,
            "delta": self.study.budgets.delta,
            "seeds": list(self.study.budgets.seeds),
            "tuning": self.tuning_in_words,
            "slices": list(self.slices),
            "rows": [self._row(cell) for cell in self.cells],
            "validation": [self._row(cell) for cell in self.explored],
            "failures": [{"fit": words, "reason": reason} for words, reason in self.failures],
        }

    def _row(self, cell: Cell) -> dict[str, Any]:
        def figures(metric: str) -> dict[str, Any]:
            by_slice = [cell.figure(metric, position) for position in range(len(self.slices))]
            overall = cell.figure(metric)
            return {
                "overall": None if overall is None else overall.to_dict(),
                "by_slice": [None if figure is None else figure.to_dict() for figure in by_slice],
            }

        return {
            "method": cell.label,
            "epsilon": cell.epsilon,
            "settings": dict(cell.combination.settings),
            "spec": dict(cell.combination.spec),
            "model": None if cell.model is None else f"{cell.model.parent.name}/{cell.model.name}",
            "metrics": {metric: figures(metric) for metric in self.study.metrics},
        }


# -- running --


def run_study(
    study: Study,
    data: Interactions,
    folder: str | os.PathLike[str],
    *,
    build: Builder | None = None,
    processes: int = 1,
    fresh: bool = False,
    show: Show | None = None,
    say: Say | None = None,
) -> StudyResults:
    """Run what is missing of a study, and return all of it.

    Nothing is written before every method has been built once and the data have been divided. A unit that fails is
    among the failures; the others go on. Ctrl-C leaves what is finished.

    Args:
        study: what to do.
        data: the data, of the study's kind.
        folder: where finished units are kept; made if it does not exist.
        build: makes estimators; None for `apportion.recommend.methods.build`. With several processes it has to be
            importable there: a function at the top of a module.
        processes: how many processes fit at once; each holds the data, and they share the processors.
        fresh: whether to fit again what is finished already, as after a change of the library's own code.
        show: shows progress, called with a job, a step, how many are done and of how many.
        say: shows a sentence.
    """
    bench = _Bench(study, data, Path(folder), build or _library_builder())
    _refuse_unless_study(bench.folder)
    if processes < 1:
        raise InputError(f"Expected processes >= 1, got {processes}.")
    _refuse_bad_methods(study, bench.build)
    _ = bench.parts, bench.slices  # refuse data that cannot be divided before anything is written
    run = _Run(bench, fingerprint(data), min(processes, processors()), fresh, show, say)
    return run.all()


class _Run:
    """A study on its way."""

    def __init__(
        self, bench: _Bench, data: str, processes: int, fresh: bool, show: Show | None, say: Say | None
    ) -> None:
        self.bench = bench
        self.study = bench.study
        self.data = data
        self.processes = processes
        self.fresh = fresh
        self.show = show or (lambda *_: None)
        self.say = say or (lambda _: None)
        self.failures: dict[str, tuple[str, str]] = {}

    def all(self) -> StudyResults:
        explored: tuple[Cell, ...] = ()
        wanted = [(each.label, each, epsilon) for each, epsilon in self._combinations(self.study.methods)]
        if self.study.tuning is not None:
            tunable = [method for method in self.study.methods if len(method.combinations()) > 1]
            candidates = [(each.label, each, epsilon) for each, epsilon in self._combinations(tunable)]
            explored = self._cells("tuning", candidates, "validation", self.study.tuning.seeds)
            wanted = list(self._chosen(explored, self.study.tuning))
        cells = self._cells("test", wanted, "test", self.study.budgets.seeds)
        failures = tuple(self.failures.values())
        return StudyResults(self.study, cells, explored, failures, self.bench.parts.words)

    def _combinations(self, methods: Sequence[Method]) -> Iterator[tuple[Combination, float | None]]:
        for method in methods:
            for combination in method.combinations():
                for epsilon in self._epsilons(method):
                    yield combination, epsilon

    def _epsilons(self, method: Method) -> tuple[float | None, ...]:
        return self.study.budgets.epsilon if method.is_private else (None,)

    def _chosen(self, explored: Sequence[Cell], tuning: Tuning) -> Iterator[tuple[str, Combination, float | None]]:
        """The best combination of each method at each ε, under the method's own name."""
        sign = 1 if tuning.metric in LOWER_IS_BETTER else -1
        for method in self.study.methods:
            if len(method.combinations()) == 1:
                yield from ((method.name, method.combinations()[0], epsilon) for epsilon in self._epsilons(method))
                continue
            for epsilon in self._epsilons(method):
                scores = {
                    number: sign * figure.mean
                    for number, cell in enumerate(explored)
                    if (cell.combination.method, cell.epsilon) == (method.name, epsilon)
                    and (figure := cell.figure(tuning.metric)) is not None
                    and figure.n == (len(tuning.seeds) if method.is_private else 1)
                }
                if scores:
                    best = explored[min(scores, key=lambda number: scores[number])]
                    yield method.name, best.combination, epsilon

    def _cells(
        self,
        job: str,
        wanted: Sequence[tuple[str, Combination, float | None]],
        part: Part,
        seeds: Sequence[int],
    ) -> tuple[Cell, ...]:
        """Run the units of some cells, all cells of a seed before the next seed, and collect them."""
        units = [
            [self._unit(combination, epsilon, seed, part) for seed in (seeds if epsilon is not None else (None,))]
            for _, combination, epsilon in wanted
        ]
        in_order = (unit for by_seed in itertools.zip_longest(*units) for unit in by_seed if unit is not None)
        self._run(job, {unit.key: unit for unit in in_order})
        return tuple(
            Cell(
                label,
                combination,
                epsilon,
                tuple(found for unit in mine if (found := self.bench.found(unit)) is not None),
                self.bench.model_folder(mine[0]) if mine[0].keep_model and self.bench.found(mine[0]) else None,
            )
            for (label, combination, epsilon), mine in zip(wanted, units, strict=True)
        )

    def _unit(self, combination: Combination, epsilon: float | None, seed: int | None, part: Part) -> Unit:
        study = self.study
        content = {
            "format": _FORMAT,
            "version": __version__,
            "data": self.data,
            "kind": study.kind,
            "value_range": study.value_range,
            "split": asdict(study.split),
            "measures": asdict(study.measures),
            "spec": combination.spec,
            "epsilon": epsilon,
            "delta": None if epsilon is None else study.budgets.delta,
            "seed": seed,
            "part": part,
        }
        budget = "" if epsilon is None else f", epsilon = {epsilon:g}, seed {seed}"
        keep = study.inspection is not None and part == "test" and seed in (None, study.budgets.seeds[0])
        as_json = json.loads(json.dumps(content, default=str))
        return Unit(f"{combination.label}{budget}, on {part}", as_json, keep)

    def _run(self, job: str, units: Mapping[str, Unit]) -> None:
        missing = [unit for unit in units.values() if self.fresh or self.bench.found(unit) is None]
        if len(missing) < len(units):
            self.say(f"{job}: {len(units) - len(missing)} of {len(units)} fits were finished before and are kept.")
        if not missing:
            return
        done = 0
        self.show(job, "fit", done, len(missing))

        def finished(unit: Unit, failure: str | None) -> None:
            nonlocal done
            done += 1
            if failure is not None:
                self.failures[unit.key] = (unit.words, failure)
                self.say(f"Failed: {unit.words}: {failure}")
            self.show(job, "fit", done, len(missing))

        for unit in missing:
            self.bench.result_file(unit).unlink(missing_ok=True)
        if self.processes == 1 or len(missing) == 1:
            _run_here(self.bench, missing, finished)
        else:
            _run_in_processes(self.bench, missing, min(self.processes, len(missing)), finished)


def _library_builder() -> Builder:
    from apportion.recommend.methods import build

    return build


def _refuse_bad_methods(study: Study, build: Builder) -> None:
    for method in study.methods:
        for combination in method.combinations():
            epsilon, seed = (study.budgets.epsilon[0], 0) if method.is_private else (None, None)
            try:
                build_unit(build, study, combination.spec, epsilon, seed)
            except (InputError, TypeError, ValueError) as error:
                raise InputError(f"Method {combination.label!r}: {error}") from None


def _refuse_unless_study(folder: Path) -> None:
    """Refuse a place that holds something else: results would be mixed into it."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _UNITS).is_dir():
        raise InputError(f"Refusing to write into {str(folder)!r}: it is not empty and holds no earlier study.")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"Refusing to write into {str(folder)!r}: it is a file.")
