"""Features and labels of a regression on a cluster: chosen there, and left there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from apportion.cli.feature_columns import Categories, Features
from apportion.cli.given_rows import cell_of, frame_on_cluster
from apportion.cli.progress import Reporter
from apportion.cli.statistics_options import StatisticsOptions

if TYPE_CHECKING:
    from apportion.engines import Engine


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows as regressions take them.

    Attributes:
        features: a matrix; where rows are not in memory, all columns.
        labels: one for each row, or the name of a column.
        users: the same.
        engine: of the cluster or the disk; None in memory.
    """

    features: Any
    labels: Any
    users: Any
    engine: Engine | None = None


@contextmanager
def labelled_on_spark(
    table: str,
    options: StatisticsOptions,
    names: Sequence[str],
    categories: Categories,
    label: str,
    reporter: Reporter,
    *,
    yes: str | None = None,
    features_are_public: bool,
) -> Iterator[tuple[Features, LabelledRows]]:
    """Choose the columns of a regression on a cluster.

    Args:
        table: name of a table, or a file that the cluster reads.
        options: whose rows they are, and where they are read.
        names: the feature columns.
        categories: of columns of text.
        label: the column of labels.
        reporter: says remarks.
        yes: the value of the label that means 1; None if labels are numbers.
        features_are_public: whether categories may be taken from the data.
    """
    from apportion.cli.spark_features import LABEL, FrameColumns

    with frame_on_cluster(table, options, reporter) as (frame, untyped, engine):
        read = FrameColumns(frame, untyped, features_are_public)
        columns, features = read.features(names, categories)
        chosen = frame.select(cell_of(frame, options.user), *columns, read.label(label, yes))
        yield features, LabelledRows(chosen, LABEL, options.user, engine)
