"""`apportion plan`: what error to expect at which ε, from sizes alone, before anything is spent."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.option_types import PAGE, Delta, PositiveNumber
from apportion.cli.options import json_option, open_option
from apportion.cli.outputs import print_json, refuse_folder, refuse_to_open_nothing, say_page, table, write_text

if TYPE_CHECKING:
    from apportion.evaluation.planning import Forecast


@click.command(short_help="What error to expect at which epsilon, before anything is spent.")
@click.option("--users", type=PositiveNumber(), required=True, metavar="N", help="About how many users.")
@click.option("--items", type=PositiveNumber(), required=True, metavar="N", help="About how many items.")
@click.option("--rows-per-user", type=PositiveNumber(), required=True, metavar="N", help="Mean rows of a user.")
@click.option("--ratings/--clicks", default=True, show_default=True, help="What rows are.")
@click.option(
    "--epsilon",
    type=PositiveNumber(),
    multiple=True,
    metavar="E",
    help="May be given several times; default 0.5 to 20.",
)
@click.option("--delta", type=Delta(), default=1e-6, show_default=True, help="Delta of the fits.")
@click.option(
    "--without-privacy",
    type=PositiveNumber(),
    metavar="ERROR",
    help="RMSE (or Recall@20 of clicks) of a good recommender without privacy; default that of MovieLens 1M.",
)
@click.option("--page", type=PAGE, metavar="PLAN.html", help="Also write an HTML page.")
@open_option
@json_option
def plan(
    users: float,
    items: float,
    rows_per_user: float,
    ratings: bool,
    epsilon: tuple[float, ...],
    delta: float,
    without_privacy: float | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Say what error to expect at which epsilon.

    No data are read and nothing is spent. The forecast comes from a law that was fitted on generated data and parts of
    MovieLens 1M. It knows sizes alone; nine of ten fits of data that it had not seen were inside the interval.
    """
    from apportion.evaluation.planning import EPSILONS, Size, forecast
    from apportion.report.plan_page import plan_page

    refuse_to_open_nothing(page)
    if page is not None:
        refuse_folder(page)
    size = Size(users, items, rows_per_user)
    asked = tuple(sorted(set(epsilon))) or EPSILONS
    found = forecast(size, asked, delta=delta, clicks=not ratings, without_privacy=without_privacy)
    if page is not None:
        write_text(page, plan_page(found))
    if as_json:
        print_json(_record(found))
    else:
        click.echo(_in_words(found))
    if page is not None:
        say_page(page, quiet=as_json)


def _record(found: Forecast) -> dict[str, Any]:
    return {**asdict(found), "metric": found.metric}


def _in_words(found: Forecast) -> str:
    from apportion.report.plan_page import remarks

    lost = "recall lost" if found.clicks else "above no privacy"
    rows = [
        [
            f"{one.epsilon:g}",
            f"{one.error:.3f}",
            f"{min(one.interval):.3f} to {max(one.interval):.3f}",
            f"{100 * one.loss:.1f} %",
        ]
        for one in found.expected
    ]
    return "\n".join([table(["epsilon", found.metric, "9 of 10 between", lost], rows), "", *remarks(found)])
