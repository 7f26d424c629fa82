"""Running a study: which units are needed, which are missing, and which settings tuning chooses."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.errors import InputError
from apportion.evaluation.study.bench import UNITS, Bench, Builder, build_unit
from apportion.evaluation.study.description import LOWER_IS_BETTER, Study, Tuning
from apportion.evaluation.study.item_features import features_fingerprint, with_feature_rows
from apportion.evaluation.study.methods import Combination, Method
from apportion.evaluation.study.parts import Part, fingerprint
from apportion.evaluation.study.processes import processors, run_here, run_in_processes
from apportion.evaluation.study.study_results import Cell, StudyResults
from apportion.evaluation.study.units import Unit, unit_of

Show = Callable[[str, str, int, int], None]
Say = Callable[[str], None]


def run_study(
    study: Study,
    data: Interactions,
    folder: str | os.PathLike[str],
    *,
    features: ItemFeatures | None = None,
    build: Builder | None = None,
    processes: int = 1,
    fresh: bool = False,
    show: Show | None = None,
    say: Say | None = None,
) -> StudyResults:
    """Run the missing units of a study, and return all its results.

    Nothing is written before every method has been built once and the data have been divided. A unit that fails is
    listed among the failures, and the others continue. Ctrl-C keeps what is finished.

    Args:
        study: what to do.
        data: the data, of the study's kind.
        folder: where finished units are stored; created if needed.
        features: public item features, for methods with `features = true`; if no method says whether it has them, every
            method "ours" becomes two rows, without and with them.
        build: makes estimators; None for `apportion.recommend.methods.build`. With several processes it must be
            importable: a function at the top level of a module.
        processes: number of processes; each holds the data, and they share the processors.
        fresh: whether to run finished fits again, for example after a change of the library's own code.
        show: shows progress; called with a job, a step, the number done and the total.
        say: shows a sentence.
    """
    study = study if features is None else with_feature_rows(study)
    bench = Bench(study, data, Path(folder), build or _library_builder(), features)
    _refuse_unless_study(bench.folder)
    if processes < 1:
        raise InputError(f"Expected processes >= 1, got {processes}.", argument="processes")
    refuse_bad_methods(study, bench.build, features)
    known = None if features is None else features_fingerprint(features, data.task_ids)
    _ = bench.parts, bench.slices  # refuse data that cannot be divided before anything is written
    run = _Run(bench, (fingerprint(data), known), min(processes, processors()), fresh, show, say)
    return run.all()


class _Run:
    """A study in progress."""

    def __init__(
        self,
        bench: Bench,
        fingerprints: tuple[str, str | None],
        processes: int,
        fresh: bool,
        show: Show | None,
        say: Say | None,
    ) -> None:
        self.bench = bench
        self.study = bench.study
        self.data, self.features = fingerprints
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
        known = None if self.bench.features is None else self.bench.features.sentence
        return StudyResults(self.study, cells, explored, failures, self.bench.parts.words, known)

    def _combinations(self, methods: Sequence[Method]) -> Iterator[tuple[Combination, float | None]]:
        for method in methods:
            for combination in method.combinations():
                for epsilon in self._epsilons(method):
                    yield combination, epsilon

    def _epsilons(self, method: Method) -> tuple[float | None, ...]:
        return self.study.budgets.epsilon if method.is_private else (None,)

    def _chosen(self, explored: Sequence[Cell], tuning: Tuning) -> Iterator[tuple[str, Combination, float | None]]:
        """Return the best combination of each method at each ε, under the method's own name."""
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
            [
                unit_of(self.study, self.data, combination, epsilon, seed, part, self.features)
                for seed in (seeds if epsilon is not None else (None,))
            ]
            for _, combination, epsilon in wanted
        ]
        in_order = (unit for by_seed in itertools.zip_longest(*units) for unit in by_seed if unit is not None)
        self._run(job, {unit.key: unit for unit in in_order})
        return tuple(
            Cell(
                label,
                combination,
                epsilon,
                tuple(result for unit in mine if (result := self.bench.stored_result(unit)) is not None),
                self.bench.model_folder(mine[0]) if mine[0].keep_model and self.bench.stored_result(mine[0]) else None,
            )
            for (label, combination, epsilon), mine in zip(wanted, units, strict=True)
        )

    def _run(self, job: str, units: Mapping[str, Unit]) -> None:
        missing = [unit for unit in units.values() if self.fresh or self.bench.stored_result(unit) is None]
        if len(missing) < len(units):
            self.say(f"{job}: {len(units) - len(missing)} of {len(units)} fits were already finished and are kept.")
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
            run_here(self.bench, missing, finished)
        else:
            run_in_processes(self.bench, missing, min(self.processes, len(missing)), finished)


def _library_builder() -> Builder:
    from apportion.recommend.methods import build

    return build


def refuse_bad_methods(study: Study, build: Builder, features: ItemFeatures | None = None) -> None:
    """Build every combination of every method once, so that invalid settings are refused by name."""
    for method in study.methods:
        for combination in method.combinations():
            epsilon, seed = (study.budgets.epsilon[0], 0) if method.is_private else (None, None)
            try:
                build_unit(build, study, combination.spec, epsilon, seed, features)
            except (InputError, TypeError, ValueError) as error:
                raise InputError(f"Method {combination.label!r}: {error}", argument=None) from None


def _refuse_unless_study(folder: Path) -> None:
    """Refuse a folder that holds something else."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / UNITS).is_dir():
        raise InputError(
            f"Refusing to write into {str(folder)!r}: it is not empty and does not hold an earlier study.",
            argument="folder",
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"Refusing to write into {str(folder)!r}: it is a file.", argument="folder")
