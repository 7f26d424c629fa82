"""`apportion keys`: which keys enough users hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from apportion.cli.group_options import DELTA
from apportion.cli.option_types import DATA, Delta
from apportion.cli.options import collect, json_option
from apportion.cli.outputs import print_json, write_text
from apportion.cli.progress import Reporter
from apportion.cli.statistics_options import StatisticsOptions, privacy_options, read_columns, split_names

if TYPE_CHECKING:
    from apportion.privacy import Budget
    from apportion.statistics import UserKeys


@dataclass(frozen=True)
class KeyOptions(StatisticsOptions):
    """The guarantee, how the file is read, and which columns make a key."""

    sizes: Literal["public", "private"] = "private"
    by: str = ""

    @property
    def budget(self) -> Budget:
        """What is promised, a part of δ for the list."""
        from apportion.privacy import Budget
        from apportion.statistics.groups.user_keys import KEYS_PART

        return Budget(self.epsilon, self.delta, KEYS_PART * self.delta)


@click.command(short_help="A private list of keys: words, queries or places that enough users hold.")
@click.argument("file", type=DATA)
@click.option("--by", required=True, metavar="COLUMN[,COLUMN]", help="The columns that make a key.")
@click.option(
    "--delta",
    type=Delta(),
    default=DELTA,
    show_default=True,
    help="Slack of the guarantee, half of it for the list; choose it well below 1 / number of users.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the keys, one JSON text or list a line."
)
@privacy_options(delta="pure", engines=False, intervals=False)
@json_option
def keys(file: Path, out: Path | None, as_json: bool, **options: Any) -> None:
    """List the keys in a column of FILE (CSV, TSV or Parquet) that enough users hold, under user-level privacy.

    \b
    apportion keys searches.csv --user person --by query --epsilon 1

    The whole budget is for the list, in two rounds, so it has more keys than `count --users --by`, and no numbers. A
    key that one user alone holds is listed with a probability of at most half of delta.
    """  # noqa: D301
    privacy = collect(KeyOptions, options)
    privacy = privacy.checked(file)
    with Reporter() as reporter:
        columns = split_names(privacy.by)
        held = read_columns(file, privacy, dict.fromkeys(columns, "text"), reporter)
        fitted = _fitted(held, columns, privacy)
    lines = "".join(f"{json.dumps(key, ensure_ascii=False)}\n" for key in fitted.keys_)
    if as_json:
        statement = json.loads(fitted.statement_.to_json())
        print_json({"keys": list(fitted.keys_), "releasable": fitted.statement_.releasable, "statement": statement})
    else:
        found = lines or "No key was found that enough users hold for this budget.\n"
        click.echo(found if out is None else f"{len(fitted.keys_)} keys: {out}\n")
        click.echo(fitted.statement_.to_text(fold=True))
    if out is not None:
        write_text(out, lines)


def _fitted(held: Any, columns: list[str], options: KeyOptions) -> UserKeys:
    from apportion.statistics import UserKeys

    settings = {name: value for name, value in options.settings().items() if name != "level"}
    made = UserKeys(delta=options.delta, **settings)
    return made.fit(users=held.users, by=[held.texts[name] for name in columns], session=options.session())
