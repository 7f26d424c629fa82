"""`apportion protect`: tasks of different parties learn together, and no task's data or model leaks to the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.cautions import weak_epsilon
from apportion.cli.ledger_options import ledger_options
from apportion.cli.options import collect, json_option, noise_of, open_option
from apportion.cli.outputs import REPORT, print_json, say_page
from apportion.cli.progress import Reporter
from apportion.cli.protect_options import ProtectOptions, protect_options
from apportion.cli.protect_outputs import (
    PARTIES,
    SHARED,
    as_document,
    refuse_unless_new,
    write_results,
)

if TYPE_CHECKING:
    from apportion.data.standardisation import Standardisation
    from apportion.data.task_files import TaskFolder
    from apportion.parties import ProtectedMultiTask
    from apportion.privacy import Session
    from apportion.report.parties import PartyResult, SharedResult

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(short_help="Let parties learn together without leaking any task to the others.")
@click.argument("folder", type=_FOLDER)
@protect_options
@ledger_options
@open_option
@json_option
def protect(folder: Path, as_json: bool, **options: Any) -> None:
    """Learn jointly across parties under joint differential privacy. FOLDER has one CSV, TSV or Parquet file per task.

    \b
    apportion protect schools/ --label score --epsilon 1 --out results/

    results/shared holds what everybody may see. results/parties/TASK holds one party's model and its gain, for that
    party only. It is public which features a file lacks. Rows without a label are left out.
    """  # noqa: D301
    asked: ProtectOptions = collect(ProtectOptions, options)
    refuse_unless_new(asked.out)
    with Reporter() as reporter:
        tasks, session = _read(folder, asked, reporter)
        shared, parties = learn(tasks, asked, session, reporter)
        write_results(shared, parties, asked.out)
    _tell(shared, asked.out, as_json)
    say_page(asked.out / SHARED / REPORT, quiet=as_json)


def learn(
    tasks: TaskFolder, asked: ProtectOptions, session: Session | None, reporter: Reporter
) -> tuple[SharedResult, list[PartyResult]]:
    """Fit, and separate what may be shared from what belongs to each party."""
    from apportion.data.standardisation import Standardisation
    from apportion.evaluation.own_gain import own_gains
    from apportion.report.parties import INTERCEPT, PartyResult, SharedResult

    classes, deviations = asked.loss == "logistic", asked.units == "own"
    names = [*tasks.features, *([INTERCEPT] if classes else [])]
    has = None if tasks.has.all() else tasks.has
    units = Standardisation.of(tasks.matrices, tasks.labels, deviations=deviations, classes=classes)
    model = estimator_of(asked, tasks, names)
    model.fit(
        *units.standardised(tasks.matrices, tasks.labels), session=session, progress=reporter.of("learning together")
    )
    gains = own_gains(
        model, tasks.matrices, tasks.labels, deviations=deviations, has=has,
        progress=reporter.of("gain of each party"),
    )  # fmt: skip
    models = _own_models(model, units, tasks, asked)
    parties = [
        PartyResult(task, own, gain, float(weight), dropped)
        for task, own, gain, weight, dropped in zip(
            tasks.names, models, gains, model.own_weight_, tasks.unlabelled, strict=True
        )
    ]
    public = tasks.names if asked.neighbours == "replace" else None
    return SharedResult.of(model, label=asked.label, features=names, tasks=public), parties


def _read(folder: Path, asked: ProtectOptions, reporter: Reporter) -> tuple[TaskFolder, Session | None]:
    """Read the tasks, and open a session if an account is charged. Say what was left out."""
    from apportion.data.task_files import read_task_folder, refuse_other_classes, task_files

    session = asked.session(len(task_files(folder)[0]))
    tasks = read_task_folder(
        folder, label=asked.label, features=asked.feature_names, progress=reporter.of(f"reading {folder.name}")
    )
    if asked.loss == "logistic":
        refuse_other_classes(tasks, asked.label)
    for remark in weak_epsilon(asked.epsilon):
        reporter.say(remark)
    if tasks.ignored:
        reporter.say(f"Files of other kinds were ignored: {', '.join(tasks.ignored)}.")
    if tasks.texts:
        reporter.say(f"Columns without numbers were left out: {', '.join(tasks.texts)}.")
    if any(tasks.unlabelled):
        reporter.say(f"Rows without a label were left out: {sum(tasks.unlabelled)} in all files together.")
    return tasks, session


def estimator_of(asked: ProtectOptions, tasks: TaskFolder, names: list[str]) -> ProtectedMultiTask:
    """Return the estimator for these tasks, with named features."""
    import numpy as np

    from apportion.parties import ProtectedMultiTask

    lacking = np.pad(tasks.has, ((0, 0), (0, len(names) - len(tasks.features))), constant_values=True)
    return ProtectedMultiTask(
        asked.epsilon,
        asked.delta,
        structure=asked.structure,
        loss=asked.loss,
        fit_intercept=asked.loss == "squared",  # rows come already centred, and the estimator must know that
        neighbours=asked.relation,
        n_tasks=asked.n_tasks,
        rounds=asked.rounds,
        schedule=asked.schedule,
        clip_norm=asked.clip_norm,
        feature_mask=None if lacking.all() else lacking,
        instance_epsilon=asked.instance_epsilon,
        public=_public(asked),
        window=asked.window,
        tuning=asked.tuning,
        noise=noise_of(asked.seed, exact=False),
    )


def _public(asked: ProtectOptions) -> list[str]:
    """List what is assumed public beyond what the estimator says."""
    source = "as given" if asked.features else "taken from the files themselves, which reveals which ones occur"
    names = [f"the names of the features and of the label, {source}"]
    if asked.neighbours == "replace":
        names.append("the names of the tasks")
    return names


def _own_models(
    model: ProtectedMultiTask, units: Standardisation, tasks: TaskFolder, asked: ProtectOptions
) -> list[dict[str, Any]]:
    """Return each party's model by feature name, and what it would have learned alone."""
    together, alone = units.in_given_units(model.coef_), units.in_given_units(model.single_task_)

    def named(result: tuple[Any, Any], at: int) -> dict[str, Any]:
        has = zip(tasks.features, result[0][at].tolist(), tasks.has[at], strict=True)
        return {"coefficients": {name: value for name, value, held in has if held}, "intercept": float(result[1][at])}

    return [
        {
            "label": asked.label,
            "loss": asked.loss,
            **named(together, at),
            "alone": named(alone, at),
            "lacks": [name for name, held in zip(tasks.features, tasks.has[at], strict=True) if not held],
        }
        for at in range(len(tasks.names))
    ]


def _tell(shared: SharedResult, out: Path, as_json: bool) -> None:
    import json

    if as_json:
        statement = json.loads(shared.statement.to_json())
        print_json(as_document(shared) | {"out": out, "statement": statement})
        return
    kept = shared.last.kept
    alone = "No shared structure exceeds the noise: every party learns alone."
    result = f"Exceeds the noise: {kept} of {len(shared.last.values)}" if kept else alone
    click.echo(f"{result}\n\n{shared.statement.to_text(fold=True)}\n")
    click.echo(f"To share: {out / SHARED}\nFor each party only: {out / PARTIES}")
