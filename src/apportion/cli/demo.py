"""`apportion demo`: the whole workflow on generated data, in under a minute. It ends with the explorer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.option_types import Delta, PositiveNumber
from apportion.cli.options import DataOptions, FitOptions, Kind, json_option, open_option
from apportion.cli.outputs import REPORT, print_json, refuse_unless_writable_model, say_page, write_bytes, write_text
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.data import Interactions


PUBLISHED: Final = {
    "method": "statistics",
    "dimension": 4,
    "rounds": 2,
    "allocation": {"policy": "adaptive", "exponent": 0.25},
}
"""The published method that the demo compares with: sufficient statistics with adaptive weights, repaired."""
_PUBLISHED_WORDS: Final = (
    "The published method is AdaDPALS of Krichene et al. (2023), repaired where its guarantee was false, with fixed "
    "settings that were not tuned."
)


@click.command(short_help="Generate long-tailed data, fit, evaluate, and write pages to look at.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, help="Folder to write to."
)
@click.option("--users", type=click.IntRange(min=50), default=50_000, show_default=True, help="Number of users.")
@click.option("--items", type=click.IntRange(min=20), default=3_000, show_default=True, help="Number of items.")
@click.option("--rows", type=click.IntRange(min=500), default=1_500_000, show_default=True, help="Number of rows.")
@click.option("--clicks", "kind", flag_value="clicks", help="Generate clicks instead of ratings.")
@click.option("--epsilon", type=PositiveNumber(), default=1.0, show_default=True, help="Privacy loss (epsilon).")
@click.option(
    "--delta",
    type=Delta(),
    default=1e-6,
    show_default=True,
    help="Slack of the guarantee; choose it well below 1 / number of users.",
)
@open_option
@json_option
def demo(
    out: Path,
    users: int,
    items: int,
    rows: int,
    kind: Kind | None,
    epsilon: float,
    delta: float,
    as_json: bool,
) -> None:
    """Show the whole workflow on generated data: a CSV file in, a private model and pages out.

    The private model stands beside a published method and beside the same model without privacy. The last page is the
    explorer, which may be shared.

    The data have a long tail of rare items and a known truth. Nobody's privacy is at stake.
    """
    from apportion.cli.evaluate import Splits, run_evaluation, write_page
    from apportion.cli.fit import run_fit
    from apportion.recommend import load
    from apportion.report.explorer import explorer_page
    from apportion.report.internal import summary

    kind = kind or "ratings"
    model, page, file, explorer = out / "model", out / "evaluation.html", out / f"{kind}.csv", out / "explorer.html"
    refuse_unless_writable_model(model)
    catalogue = out / "items.csv"
    data_as = DataOptions(kind=kind, items=catalogue)
    privacy = FitOptions(epsilon=epsilon, delta=delta, window="generated data, no time span")
    with Reporter() as reporter:
        reporter.say(f"Generating {rows:,} {kind} of {users:,} users and {items:,} items.")
        write_bytes(file, _as_csv(_generate(kind, users, items, rows), kind))
        write_bytes(catalogue, "\n".join(["item", *map(str, range(items))]).encode())
        fitted = run_fit(file, model, data_as, privacy, None, reporter)
        reporter.say("Fitting again on a training part, to measure quality on the rest.")
        result = run_evaluation(file, data_as, privacy, Splits(0), reporter, published=PUBLISHED)
        write_page(replace(result, remarks=(_PUBLISHED_WORDS, *result.remarks)), page)
        write_text(explorer, explorer_page(load(model)))
    assert fitted.statement is not None
    if as_json:
        print_json(
            {
                "data": file,
                "model": model,
                "report": model / REPORT,
                "evaluation": page,
                "explorer": explorer,
                "epsilon": fitted.statement.spent_epsilon,
                "models": result.comparison.to_dict(),
            }
        )
        _say_pages(model / REPORT, page, explorer, quiet=True)
        return
    click.echo(fitted.statement.to_text(fold=True))
    click.echo(f"\n{result.comparison.to_text()}\n\n{summary(result.comparison, result.roles)} {_PUBLISHED_WORDS}\n")
    click.echo(f"Data: {file}\nModel: {model}")
    _say_pages(model / REPORT, page, explorer)


def _say_pages(shared: Path, internal: Path, explorer: Path, *, quiet: bool = False) -> None:
    say_page(shared, what="Page that may be shared", quiet=quiet)
    say_page(internal, what="Internal page", quiet=quiet)
    say_page(explorer, what="Explorer, which may be shared too", quiet=quiet)


def _generate(kind: Kind, users: int, items: int, rows: int) -> Interactions:
    import numpy as np

    from apportion.data import synthetic

    rng = np.random.default_rng(20)
    if kind == "ratings":
        return synthetic.long_tailed_ratings(users, items, rows, rank=4, rng=rng, stars="half")[0]
    return synthetic.long_tailed_clicks(
        users, items, rows, rank=min(20, items), rng=rng, taste_strength=2.5, skew=0.6, concentration=0.1
    )[0]


def _as_csv(data: Interactions, kind: Kind) -> bytes:
    import pyarrow as pa
    import pyarrow.csv as csv

    columns: dict[str, Any] = {"user": data.user_ids.ids[data.users], "item": data.task_ids.ids[data.tasks]}
    if kind == "ratings":
        columns["rating"] = data.values
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.table(columns), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
