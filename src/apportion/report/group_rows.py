"""Numbers of groups as pages and tables show them. They are made from released values alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from apportion.data.time_bins import NO_DATE
from apportion.postprocessing.class_counts import hidden_users
from apportion.postprocessing.norm_caps import SLOPE
from apportion.privacy.purposes import Purpose
from apportion.report.estimates import Estimate
from apportion.report.wording import number

if TYPE_CHECKING:
    from apportion.statistics import UserGroupBy

WHOLE: Final = "all rows"
EMPTY: Final = "(empty)"
_COUNTS: Final = {"count", "users", "sum"}
_TOTALS: Final = {*_COUNTS, "histogram"}
_TITLES: Final = {
    "count": "number of rows",
    "users": "number of users",
    "sum": "sum of {value}",
    "mean": "mean of {value}",
    "variance": "variance of {value}",
    "histogram": "number of {of} by {value}",
    "quantile": "quantiles of {value}",
}


def group_rows(fitted: UserGroupBy, statistics: Sequence[str], value: str | None) -> tuple[Estimate, ...]:
    """Return one row for each number: by group, and by statistic, bin or rank within a group."""
    found = [each for each in statistics if each in fitted.estimates_]
    several = len(statistics) > 1
    rows = [_rows(fitted, each, _told(each, value, fitted.of) if several else "") for each in found]
    return tuple(row for of_group in zip(*rows, strict=True) for each in of_group for row in each)


def _rows(fitted: UserGroupBy, statistic: str, title: str) -> list[list[Estimate]]:
    """Return the numbers of every group."""
    within, n_groups = _within(fitted, statistic), len(fitted.groups_)
    held = (fitted.estimates_, fitted.noise_stddev_)
    values, noise = (np.asarray(each[statistic]).reshape(n_groups, len(within)) for each in held)
    ends, together = (
        np.asarray(each[statistic]).reshape(n_groups, len(within), 2)
        for each in (fitted.intervals_, fitted.simultaneous_)
    )
    parts = [", ".join(filter(None, (title, part))) for part in within]
    return [
        [
            Estimate(
                f"{_named(group)}{': ' if part else ''}{part}",
                float(values[g, k]),
                _pair(ends[g, k]),
                None if np.isnan(noise[g, k]) else float(noise[g, k]),
                together=_pair(together[g, k]),
                group=_parts(group),
                part=part or None,
            )
            for k, part in enumerate(parts)
        ]
        for g, group in enumerate(fitted.groups_)
    ]


def title_of(statistics: Sequence[str], value: str | None, by: Sequence[str], of: str) -> str:
    """Return what is estimated, in words.

    >>> title_of(["mean"], "cost", ["ward", "year"], "rows")
    'mean of cost by ward and year'
    """
    told = ", ".join(_told(each, value, of) for each in statistics)
    weighed = ", each user counting one in a group" if of == "users" and not set(statistics) <= _COUNTS else ""
    divided = f" by {' and '.join(by)}" if by else ""
    return f"{told}{divided}{weighed}"


def _told(statistic: str, value: str | None, of: str) -> str:
    return _TITLES[statistic].format(value=value, of=of)


def words_on_hidden(fitted: UserGroupBy) -> tuple[str, ...]:
    """Return how many users with many rows noise may hide, and what that does.

    The noise is that of the release of norms, which says where users are bounded.
    """
    released = [each for each in fitted.statement_.releases if each.purpose in (Purpose.NORMS, Purpose.GROUPS_OF_USERS)]
    found = set(fitted.estimates_)
    if not released or not fitted.groups_ or (found == {"users"} and _is_undivided(fitted)):  # all count one there
        return ()
    most = hidden_users(released[-1].stddev, laplace=fitted.law == "laplace")
    who = "who are in far more groups than" if found == {"users"} else "with far more rows than"
    if found & _TOTALS:
        return (
            f"Totals may be too low: noise would hide up to about {most:,} users {who} the others, and what each of "
            "them has beyond the bound on all users is in no total and in no interval.",
        )
    return (
        f"Noise would hide up to about {most:,} users {who} the others; if their values differ, too, the numbers are "
        "off by more than the intervals say.",
    )


def words_on_dates(fitted: UserGroupBy, bins: Sequence[bool]) -> tuple[str, ...]:
    """Say that hardly any row had a date, if most of what was released is in the group of those without.

    Args:
        fitted: released numbers.
        bins: for each part of a group whether it is a bin of time.
    """
    undated = np.array([(NO_DATE, True) in zip(_parts(group), bins, strict=True) for group in fitted.groups_], bool)
    numbers = next((fitted.estimates_[each] for each in ("count", "users") if each in fitted.estimates_), None)
    sizes = undated.astype(float) if numbers is None else np.maximum(np.ravel(numbers), 0.0)
    if not undated.any() or (numbers is None and not undated.all()) or sizes[undated].sum() <= sizes.sum() / 2:
        return ()
    return (
        f"Most of it is in the group {NO_DATE!r}: hardly any row had a date that could be read. Write dates as "
        "2025-11-30 or as Unix seconds.",
    )


def _is_undivided(fitted: UserGroupBy) -> bool:
    """Whether all rows are one group."""
    return [_parts(group) for group in fitted.groups_] == [()]


def words_on_noise(fitted: UserGroupBy, rows: Sequence[Estimate]) -> tuple[str, ...]:
    """Return how many totals may be nothing but noise: those whose interval reaches 0, where none is below 0."""
    signed = fitted.value_range is not None and fitted.value_range[0] < 0
    if not set(fitted.estimates_) <= (_TOTALS - {"sum"} if signed else _TOTALS):
        return ()
    lost = [row for row in rows if row.interval is not None and row.interval[0] <= 0 <= row.interval[1]]
    if not lost:
        return ()
    if len(rows) > 1:
        subject = f"{len(lost):,} of {len(rows):,} numbers cannot be told from 0"
        return (f"{subject}: the noise in them is about as large as they are, or larger.",)
    noise = "" if lost[0].noise is None else f", which has a standard deviation of {number(lost[0].noise)}"
    return (
        f"This number cannot be told from 0: it is drowned by the noise{noise}. There are too few users for this "
        "epsilon.",
    )


def words_on_groups(fitted: UserGroupBy) -> tuple[str, ...]:
    """Return what the intervals assume, and which groups the threshold of a private list is expected to leave out."""
    cuts = "as far as released numbers show whom it cuts."
    if _is_undivided(fitted):
        several = sum(len(_within(fitted, each)) for each in fitted.estimates_) > 1
        whose = "Every interval holds for its number; the wider ones hold for all together. They account"
        they = whose if several else "The interval accounts"
        told = [f"{they} for the noise that privacy added, and for the bound on each user, {cuts}"]
        return (*told, *_words_on_means(fitted))
    whose = (
        "Groups borrow from one another, except for histograms and quantiles, and intervals hold on average over groups"
        if fitted.shrink
        else "Every interval holds for its group"
    )
    told = [
        f"{whose}; the wider ones hold for all groups together. They account for the noise that privacy added, and "
        f"for the bound on each user over all of its groups, {cuts}"
    ]
    told += _words_on_means(fitted)
    if fitted.threshold_ is not None:
        told.append(_words_on_threshold(fitted))
    return tuple(told)


def _words_on_means(fitted: UserGroupBy) -> list[str]:
    """What intervals of means assume of values that go with users' numbers of rows."""
    if "mean" not in fitted.estimates_:
        return []
    return [
        f"Intervals of means allow for values that rise or fall by {100 * SLOPE:g} % of the range where users have "
        "twice as many rows, not by more."
    ]


def _words_on_threshold(fitted: UserGroupBy) -> str:
    listing = next(each for each in fitted.statement_.releases if each.threshold is not None)
    assert fitted.threshold_ is not None
    assert listing.threshold is not None
    unit = fitted.threshold_ / listing.threshold
    usual = fitted.threshold_ + NormalDist().inv_cdf(0.95) * listing.stddev * unit
    return (
        f"Groups with few users are not listed: a group of about {fitted.threshold_:,.0f} users is listed half of the "
        f"time, and a group of {usual:,.0f} users in 95 of 100 cases."
    )


def _within(fitted: UserGroupBy, statistic: str) -> list[str]:
    """Return the names of the numbers of one group."""
    if statistic == "histogram":
        return [f"{low:g} to {high:g}" for low, high in zip(fitted.bins_, fitted.bins_[1:], strict=False)]
    if statistic == "quantile":
        return [f"{rank:g}" for rank in np.atleast_1d(np.asarray(fitted.quantiles, np.float64))]
    return [""]


def _named(group: Any) -> str:
    """Return the name of a group. A cell may hold an empty text, and rows without columns are one group.

    >>> _named(("east", "")), _named(""), _named(())
    ('east, (empty)', '(empty)', 'all rows')
    """
    return ", ".join(part or EMPTY for part in _parts(group)) or WHOLE


def _parts(group: Any) -> tuple[str, ...]:
    return (group,) if isinstance(group, str) else tuple(group)


def _pair(ends: Any) -> tuple[float, float]:
    return float(ends[0]), float(ends[1])
