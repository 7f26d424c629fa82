"""Options of `protect`: the guarantee, and how tasks learn together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from apportion.cli.ledger_options import charged_session
from apportion.cli.option_types import Command, Delta, PositiveNumber
from apportion.cli.options import noise_of
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
    """The guarantee, and how tasks learn together."""

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
            raise click.UsageError("Give --delta, or give --n-tasks to get a delta of 1 / n_tasks^2.")
        if self.neighbours == "add-remove" and not self.features:
            raise click.UsageError(
                "--neighbours add-remove needs --features: names found in the files would reveal who takes part."
            )

    @property
    def relation(self) -> Neighbours:
        """The neighbour relation to protect."""
        from apportion.privacy import ADD_REMOVE_TASK, REPLACE_TASK

        return REPLACE_TASK if self.neighbours == "replace" else ADD_REMOVE_TASK

    @property
    def feature_names(self) -> list[str] | None:
        """The features, if they were named."""
        return None if self.features is None else split_names(self.features)

    def session(self, n_files: int) -> Session | None:
        """Return the session that charges the account, if one was named. Refuse an invalid budget."""
        from apportion.parties.estimator import default_delta
        from apportion.privacy import Budget

        number = n_files if self.n_tasks is None else self.n_tasks
        delta = default_delta(number) if self.delta is None else self.delta
        Budget(self.epsilon, delta)
        noise = noise_of(self.seed, exact=False)
        session = charged_session(self.ledger, self.account, Budget(self.epsilon, delta), self.window, noise)
        if session is not None and session.neighbours != self.relation:
            raise InputError(
                f"The neighbours of this command are {self.relation.relation!r}, those of the account "
                f"{session.neighbours.relation!r}; open an account for the same neighbours.",
                argument=None,
            )
        return session


def protect_options(command: Command) -> Command:
    """Add the options of `protect`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: Final = (
    click.option("--label", required=True, metavar="COLUMN", help="The column to predict; every file must have it."),
    click.option("--epsilon", type=PositiveNumber(), required=True, help="Privacy loss (epsilon) for a whole task."),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        required=True,
        metavar="FOLDER",
        help="Folder for the results.",
    ),
    click.option(
        "--delta",
        type=Delta(),
        help="Slack of the guarantee; default: 1 / squared number of tasks.",
    ),
    click.option(
        "--features", metavar="A,B,...", help="The columns to predict from; default: all other numeric columns."
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
        help="Loss of the models; use logistic for labels 1 and 0, or 1 and -1.",
    ),
    click.option(
        "--neighbours",
        type=click.Choice(["replace", "add-remove"]),
        default="replace",
        show_default=True,
        help="What is hidden: the contents of a task's rows, or also whether the task takes part.",
    ),
    click.option("--n-tasks", type=click.IntRange(min=1), metavar="N", help="Number of tasks, declared public."),
    click.option(
        "--rounds", type=click.IntRange(min=1), help="Number of releases; default: 1 for em, 10 for the others."
    ),
    click.option(
        "--schedule",
        type=Schedule(),
        metavar="uniform|power:A|geometric:Q",
        help="How the budget is divided over rounds; default: as theory recommends.",
    ),
    click.option(
        "--clip-norm",
        type=PositiveNumber(),
        metavar="K",
        help="Clip models to this public norm before they are sent; default: scale them to norm 1.",
    ),
    click.option(
        "--instance-epsilon",
        type=PositiveNumber(),
        metavar="E",
        help="Also protect each single row of a party against the curator, with this epsilon.",
    ),
    click.option(
        "--units",
        type=click.Choice(["own", "as-given"]),
        default="own",
        show_default=True,
        help="Whether each party divides features by its own standard deviations or leaves them unchanged.",
    ),
    click.option("--window", default="not declared", metavar="TEXT", help="Time span of the data, for the statement."),
    click.option("--tuning", metavar="TEXT", help="How settings were chosen, for the statement, if any were given."),
    click.option(
        "--seed", type=click.IntRange(min=0), help="Reproducible noise for tests: marks everything NOT FOR RELEASE."
    ),
)
