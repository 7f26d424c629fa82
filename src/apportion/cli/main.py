"""The program `apportion`: its commands, its exit codes, and its error messages.

Exit codes: 0 success; 1 some fits of a comparison failed, a ledger was altered or an audit found a violation; 2 bad
input or usage; 3 the privacy budget does not allow it; 130 interrupted; 141 nobody reads the output any more. An error
that the library raises on purpose is one sentence on stderr. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import click

from apportion import __version__
from apportion.cli.account import account
from apportion.cli.audit import audit
from apportion.cli.card import card
from apportion.cli.compare import compare
from apportion.cli.count import count
from apportion.cli.demo import demo
from apportion.cli.evaluate import evaluate
from apportion.cli.explore import explore
from apportion.cli.export import export
from apportion.cli.federate import federate
from apportion.cli.fit import fit
from apportion.cli.keys import keys
from apportion.cli.ledger import ledger
from apportion.cli.logistic import logistic
from apportion.cli.mean import mean
from apportion.cli.plan import plan
from apportion.cli.protect import protect
from apportion.cli.quantile import quantile
from apportion.cli.query import query
from apportion.cli.recommend import recommend
from apportion.cli.regress import regress
from apportion.cli.serve import serve
from apportion.cli.shard import shard
from apportion.cli.similar import similar
from apportion.cli.terminal import on_one_line
from apportion.cli.tune import tune
from apportion.cli.value_statistics import histogram, total, variance
from apportion.errors import ApportionError, BudgetError, InputError

BAD_INPUT: Final = 2
BUDGET_REFUSED: Final = 3
INTERRUPTED: Final = 130
NOBODY_READS: Final = 141

_OTHER_NAMES = {
    "fingerprints": ("ledger_fingerprints",),
    "head": ("ledger_head",),
    "interval_parts": ("parts",),
    "key": ("ledger_key",),
    "name": ("account",),
    "quantiles": ("at",),
    "task": ("item",),
    "user": ("user_column",),
    "value_range": ("scale", "ranges", "ends"),
    "y": ("label",),
}
"""Command-line names of library arguments, where they differ."""


class Program(click.Group):
    """A group of commands that turns the library's errors into one sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors raised on purpose end it with a message."""
        try:
            return super().invoke(ctx)
        except BudgetError as error:
            self._end(ctx, str(error), BUDGET_REFUSED)
        except InputError as error:
            self._end(ctx, in_options(error, self._asked(ctx)), BAD_INPUT)
        except ApportionError as error:
            self._end(ctx, str(error), BAD_INPUT)
        except ArithmeticError:
            self._end(ctx, "A numerical solution failed; nothing was written.", BAD_INPUT)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left of the output is dropped
            ctx.exit(NOBODY_READS)
        except OSError as error:
            self._end(ctx, _file_error(error), BAD_INPUT)
        except KeyboardInterrupt:
            self._end(ctx, "Interrupted.", INTERRUPTED)

    def _asked(self, ctx: click.Context) -> click.Command | None:
        return None if ctx.invoked_subcommand is None else self.get_command(ctx, ctx.invoked_subcommand)

    def _end(self, ctx: click.Context, message: str, code: int) -> None:
        click.echo(f"Error: {on_one_line(message)}", err=True)
        ctx.exit(code)


def in_options(error: InputError, command: click.Command | None) -> str:
    """Return the message with the argument named as the command's option, if it has one for it."""
    if error.argument is None or command is None:
        return str(error)
    options = {option.name: option for option in command.params if isinstance(option, click.Option)}
    for name in (*_OTHER_NAMES.get(error.argument, ()), error.argument):
        if name in options:
            return error.told(_called(options[name]))
    return str(error) if error.remedy is None else f"{error.problem}."  # a remedy of Python alone


def _called(option: click.Option) -> str:
    """Return `--scale LO HI` for an option with two values, `--item` for an option with one."""
    return f"{option.opts[-1]} {option.metavar}" if option.nargs > 1 and option.metavar else option.opts[-1]


def _file_error(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{reason}: {str(error.filename)!r}." if error.filename else f"{reason}."


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="apportion")
def program() -> None:
    """Train private recommenders and compute private statistics, each with an honest privacy statement.

    Start with `apportion demo`, or with your own file: `apportion fit ratings.csv --epsilon 1`, or
    `apportion mean visits.csv --user patient --value cost --range 0 500 --epsilon 1`.
    """


for command in (
    plan,
    fit,
    tune,
    evaluate,
    compare,
    audit,
    recommend,
    similar,
    explore,
    export,
    serve,
    mean,
    quantile,
    count,
    total,
    variance,
    histogram,
    query,
    keys,
    regress,
    logistic,
    protect,
    federate,
    account,
    ledger,
    card,
    shard,
    demo,
):
    program.add_command(command)


def main() -> None:
    """Entry point of the installed program, and of `python -m apportion`."""
    sys.exit(program(prog_name="apportion"))
