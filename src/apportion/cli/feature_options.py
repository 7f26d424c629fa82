"""Options that name a file with public item features, and say how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from apportion.cli.option_types import FILE, Command


@dataclass(frozen=True)
class FeatureOptions:
    """The file with public item features, and how it is read."""

    features: Path | None = None
    feature_item: str | None = None
    feature_kinds: tuple[str, ...] = ()
    feature_crosses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.features is not None:
            return
        given = {"item": self.feature_item, "kind": self.feature_kinds, "cross": self.feature_crosses}
        for name in (name for name, value in given.items() if value):
            raise click.UsageError(f"--feature-{name} needs --features.")


def feature_options(command: Command) -> Command:
    """Add the options that name public features of items."""
    for option in reversed(_FEATURES):
        command = option(command)
    return command


_FEATURES: Final = (
    click.option("--features", type=FILE, help="File with public item features; one column holds the item ids."),
    click.option("--feature-item", metavar="COLUMN", help="With --features: the id column, if it has an unusual name."),
    click.option(
        "--feature-kind",
        "feature_kinds",
        multiple=True,
        metavar="COLUMN=KIND",
        help="With --features: categorical, multivalent, number, binned, text or ignore; guessed by default.",
    ),
    click.option(
        "--feature-cross",
        "feature_crosses",
        multiple=True,
        metavar="A,B",
        help="With --features: also use combinations of these columns within a row as a feature.",
    ),
)
