"""Options of `protect`: what is promised, and how tasks learn together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from apportion.cli.options import Command, PositiveNumber, charged_session, noise_of
from apportion.cli.statistics_options import split_names
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.privacy import Neighbours, Session

_STRUCTURES = ("em", "low-rank", "group-sparse", "low-rank+sparse", "relations")


class Schedule(click.ParamType[Any]):
    """How a budget is divided over rounds: `uniform`, `power:0.4` or `geometric:0.9`."""

    name = "schedule"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Turn text into a schedule."""
        from apportion.allocation.rounds import Geometric, Power, Uniform

        if not isinstance(value, str):
            return value
        kind, colon, written = value.partition(":")
        try:
            if kind == "uniform" and not colon:
                return Uniform()
            if kind in ("power", "geometric"):
                return (Power if kind == "power" else Geometric)(float(written))
        except (ValueError, InputError):
            pass
        self.fail(f"expected uniform, power:ALPHA or geometric:Q, got {value!r}", param, ctx)


@dataclass(frozen=True)
class ProtectOptions:
    """What is promised, and how tasks learn together."""

    label: str
    epsilon: float
    out: Path
    delta: float | None = None
    features: str | None = None
    structure: str = "em"
    loss: str = "squared"
    neighbours: Literal["replace", "add-remove"] = "replace"
    n_tasks: int | None = None
    rounds: int | None = None
    schedule: Any = None
    clip_norm: float | None = None
    instance_epsilon: float | None = None
    units: Literal["own", "as-given"] = "own"
    window: str = "not declared"
    tuning: str | None = None
    seed: int | None = None
    ledger: str | None = None
    account: str | None = None

    def __post_init__(self) -> None:
        if self.delta is None and self.neighbours == "add-remove" and self.n_tasks is None:
            raise click.UsageError("Give --delta, or --n-tasks for a delta of one over its square.")
        if self.neighbours == "add-remove" and not self.features:
            raise click.UsageError(
                "--neighbours add-remove needs --features: names found in files tell who takes part."
            )

    @property
    def relation(self) -> Neighbours:
        """Which two sets of tasks are to be indistinguishable."""
        from apportion.privacy import ADD_REMOVE_TASK, REPLACE_TASK

        return REPLACE_TASK if self.neighbours == "replace" else ADD_REMOVE_TASK

    @property
    def feature_names(self) -> list[str] | None:
        """The features, if they are named."""
        return None if self.features is None else split_names(self.features)

    def session(self, n_files: int) -> Session | None:
        """The session that charges the account, if one was named; refuses a budget that makes no sense."""
        from apportion.parties.estimator import default_delta
        from apportion.privacy import Budget

        number = n_files if self.n_tasks is None else self.n_tasks
        delta = default_delta(number) if self.delta is None else self.delta
        Budget(self.epsilon, delta)
        noise = noise_of(self.seed, exact=False)
        session = charged_session(self.ledger, self.account, Budget(self.epsilon, delta), self.window, noise)
        if session is not None and session.neighbours != self.relation:
            raise InputError(
                f"Expected an account whose neighbours differ thus: {self.relation.relation}; got one for: "
                f"{session.neighbours.relation}."
            )
        return session


def protect_options(command: Command) -> Command:
    """Add the options of `protect`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: Final = (
    click.option("--label", required=True, metavar="COLUMN", help="The column to predict; every file has it."),
    click.option("--epsilon", type=PositiveNumber(), required=True, help="The privacy loss to allow for a whole task."),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        required=True,
        metavar="FOLDER",
        help="Where the folders of results go.",
    ),
    click.option(
        "--delta", type=PositiveNumber(), help="Slack of the guarantee; else one over the squared number of tasks."
    ),
    click.option(
        "--features", metavar="A,B,...", help="The columns to predict from; else all others that hold numbers."
    ),
    click.option(
        "--structure",
        type=click.Choice(_STRUCTURES),
        default="em",
        show_default=True,
        help="What tasks are assumed to share.",
    ),
    click.option(
        "--loss",
        type=click.Choice(["squared", "logistic"]),
        default="squared",
        show_default=True,
        help="Of the models; logistic for labels 1, and 0 or -1.",
    ),
    click.option(
        "--neighbours",
        type=click.Choice(["replace", "add-remove"]),
        default="replace",
        show_default=True,
        help="What is hidden: what a task's rows hold, or also whether the task is there at all.",
    ),
    click.option("--n-tasks", type=click.IntRange(min=1), metavar="N", help="Number of tasks, declared public."),
    click.option("--rounds", type=click.IntRange(min=1), help="Number of releases; else 1 for em, 10 for the others."),
    click.option(
        "--schedule",
        type=Schedule(),
        metavar="uniform|power:A|geometric:Q",
        help="How the budget is divided over rounds; else as theory recommends.",
    ),
    click.option(
        "--clip-norm",
        type=PositiveNumber(),
        metavar="K",
        help="Clip models to this public norm when they are sent; else they are scaled to length 1.",
    ),
    click.option(
        "--instance-epsilon",
        type=PositiveNumber(),
        metavar="E",
        help="By which every party also protects its single rows against the curator.",
    ),
    click.option(
        "--units",
        type=click.Choice(["own", "as-given"]),
        default="own",
        show_default=True,
        help="Whether every party divides features by its own deviations, or takes them as they are.",
    ),
    click.option("--window", default="not declared", metavar="TEXT", help="Time span of the data, for the statement."),
    click.option("--tuning", metavar="TEXT", help="How settings were chosen, for the statement, if any was given."),
    click.option("--seed", type=click.IntRange(min=0), help="Reproducible noise: marks everything NOT FOR RELEASE."),
)
