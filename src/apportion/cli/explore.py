"""`apportion explore`: a page for looking into a model and trying it. It runs in the reader's browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.option_types import FILE, PAGE
from apportion.cli.options import DataOptions, collect, data_options, json_option, open_option
from apportion.cli.outputs import print_json, refuse_folder, say_page, write_text
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.report.explorer_internal import Inside

_SHARED: Final = Path("explorer.html")
_INTERNAL: Final = Path("explorer-internal.html")


@click.command(short_help="Write a page for looking into a model and trying it.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--titles", type=FILE, help="File with titles of items (id, title).")
@click.option(
    "--evaluation",
    "evaluated_on",
    type=FILE,
    metavar="DATA",
    help="Add quality on these raw data and the non-private model; the page is then INTERNAL.",
)
@data_options
@click.option(
    "--split-seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With --evaluation: seed of the split.",
)
@click.option(
    "--out",
    type=PAGE,
    help=f"Page to write; default: {_SHARED}, or {_INTERNAL} with --evaluation.",
)
@open_option
@json_option
def explore(
    model: Path,
    titles: Path | None,
    evaluated_on: Path | None,
    split_seed: int,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the explorer of a saved MODEL: one HTML file that needs no server and no network.

    The page has a map of the items, recommendations computed in the page from what the reader picks, and the budget.
    It holds only released values and the statement, so it may be shared, unless --evaluation adds figures from raw
    data.
    """
    from apportion.cli.item_files import titles_of
    from apportion.recommend import load
    from apportion.report.explorer import explorer_page

    target = out or (_SHARED if evaluated_on is None else _INTERNAL)
    refuse_folder(target)
    fitted = load(model)
    names = titles_of(fitted, titles)
    inside = None
    if evaluated_on is not None:
        inside = _inside(evaluated_on, collect(DataOptions, options), model, split_seed)
    write_text(target, explorer_page(fitted, titles=names, inside=inside))
    assert fitted.statement is not None
    may_be_shared = inside is None and fitted.statement.releasable
    if as_json:
        print_json({"page": target, "may_be_shared": may_be_shared, "bytes": target.stat().st_size})
    say_page(target, quiet=as_json)


def _inside(data: Path, data_as: DataOptions, model: Path, seed: int) -> Inside:
    """Return quality on a split of the data, and the neighbours in the non-private model."""
    from apportion.cli.evaluate import Splits, run_saved
    from apportion.report.explorer_internal import inside_of

    with Reporter() as reporter:
        result = run_saved(data, data_as, model, Splits(seed), reporter)
        reporter.say("comparing neighbours with those of the non-private model")
        return inside_of(result.model, result.twin, result.comparison, result.roles, result.slices, result.remarks)
