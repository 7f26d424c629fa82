"""Progress of long work: a bar on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import math
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import click

from apportion.cli.terminal import on_one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


_MOST_LINES: Final = 10  # seconds between lines of one job, if there is no terminal


class Reporter:
    """Shows steps of named jobs; `reporter.of(job)` is the callback that `fit` takes.

    Example:
        >>> with Reporter() as reporter:  # doctest: +SKIP
        ...     estimator.fit(data, progress=reporter.of("private model"))
    """

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, words: str) -> None:
        """Print a remark that stays on the screen."""
        words = on_one_line(words)
        if self._bars is not None:
            self._bars.console.print(words, markup=False, highlight=False)
        else:
            click.echo(words, err=True)

    def of(self, job: str) -> JobProgress:
        """Return the callback for one job."""
        return JobProgress(self, job)

    def show(self, job: str, step: str, done: int, total: int) -> None:
        """Show that `done` of `total` steps of a job are finished."""
        words = f"{job}: {step} {done} of {total} done" if done else f"{job}: {total} {step}{'s' * (total != 1)} left"
        if self._bars is None:
            if done == total or done % math.ceil(total / _MOST_LINES) == 0:
                click.echo(words, err=True)
            return
        if job not in self._tasks:
            self._tasks[job] = self._bars.add_task(words, total=total)
        self._bars.update(self._tasks[job], description=words, completed=done, total=total)


class JobProgress:
    """A callback `(step, done, total)` that knows which job it reports on."""

    def __init__(self, reporter: Reporter, job: str) -> None:
        self._reporter = reporter
        self._job = job

    def __call__(self, step: str, done: int, total: int) -> None:
        """Report one finished step."""
        self._reporter.show(self._job, step, done, total)


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))
