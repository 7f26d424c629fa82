"""Statistics by group under user-level differential privacy: a user in many groups has one budget over all of them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from apportion.data.encoding import EncodedIds
from apportion.data.grouping import one_of, refuse_name
from apportion.data.groups import ALL, parts_of, rows_by_group, text_of
from apportion.data.numbers import finite_rows
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.contributions import one_of_words
from apportion.estimators.frames import cluster_of, is_frame, numbers_beside
from apportion.estimators.private import EngineEstimator, check_value_range
from apportion.privacy import ADD_REMOVE, Session
from apportion.privacy.keys import Law
from apportion.privacy.statement import STATISTICS_DEFAULTS
from apportion.statistics.groups.asked import Asked, Count, Histogram, Mean, NumberOfUsers, Quantiles, Sum, Variance
from apportion.statistics.groups.columns import columns_of_groups
from apportion.statistics.groups.fitting import GroupFit
from apportion.statistics.groups.found import Found
from apportion.statistics.groups.keys import (
    FROM_DATA,
    LIST,
    OWN_GROUPS,
    PRIVATE,
    GroupList,
    GroupRows,
    group_budget,
    release_list,
)
from apportion.statistics.groups.on_spark import GroupsOnSpark
from apportion.statistics.user_parts import Target

COUNTS = ("count", "users")
OF_VALUES = ("sum", "mean", "variance", "histogram", "quantile")
_CELLS = 32  # bins of the range for quantiles where no step is given
_MOST_BINS = 4096


@with_constructor
class UserGroupBy(EngineEstimator):
    """Counts, users, sums, means, variances, histograms or quantiles by group, under user-level differential privacy.

    Args:
        statistics: which: "count" (of rows), "users", "sum", "mean", "variance", "histogram", "quantile". Each takes a
            part of the noise's bound.
        delta: δ. With Laplace noise it is for a private list alone, and 0 otherwise.
        value_range: (low, high), public; values beyond are clipped. Counts of rows and of users need none.
        keys: the groups: a public list, in which rows of other groups are left out; "private" for a list that is
            released and holds the groups with enough users; "from-data" for the groups that occur, which does not
            protect a user who is alone in a group.
        of: "rows", where a user counts in a group by its rows there; "users", where it counts one.
        quantiles: ranks of "quantile".
        step: public: values lie at low, low + step, ...; for "quantile".
        bins: of "histogram": how many, or their ends.
        shrink: whether groups borrow from one another by empirical Bayes. Intervals then hold for the level's share of
            groups; otherwise for each group.
        law: "gaussian", or "laplace", which bounds users in L1 norm; its guarantee is pure, except for a private list.
            Laplace noise is better if users are in few groups, up to about eight for one statistic. A count alone, in
            at most 20 groups, gets the smaller noise of a box if no user seems to have two rows in a group.
        level: coverage of the intervals.

    Attributes:
        groups_: the groups, in text order, or in the order of a list that was given. A text each; a tuple where several
            columns make a group.
        estimates_: by statistic, one row for each group.
        intervals_: by statistic, (low, high) of each number.
        simultaneous_: the same, for all numbers of all statistics together.
        noise_stddev_: by statistic, standard deviation of what privacy added.
        threshold_: number of users that a group had to reach, with noise, to be listed; None for other lists.
        bins_: ends of the histogram's bins.
        statement_: the privacy statement.

    Privacy: adding or removing one user with all rows. Which groups a user is in, and how many rows it has, is private.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, wards = rng.integers(0, 3000, 20_000), rng.choice(["east", "west"], 20_000)
        >>> hours = rng.uniform(0, 8, 20_000)
        >>> found = UserGroupBy("mean", epsilon=1.0, value_range=(0, 24)).fit(hours, users=users, by=wards)
        >>> found.groups_, [round(float(mean)) for mean in found.estimates_["mean"]]
        (('east', 'west'), [4, 4])
    """

    statistics: str | Sequence[str] = "mean"
    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    value_range: tuple[float, float] | None = None
    keys: str | Sequence[Any] = PRIVATE
    of: Target = "rows"
    quantiles: Sequence[float] = (0.5,)
    step: float | None = None
    bins: int | Sequence[float] = 10
    shrink: bool = True
    law: Law = "gaussian"
    level: float = 0.95

    groups_: tuple[Any, ...] = field(init=False)
    estimates_: dict[str, Any] = field(init=False)
    intervals_: dict[str, Any] = field(init=False)
    simultaneous_: dict[str, Any] = field(init=False)
    noise_stddev_: dict[str, Any] = field(init=False)
    threshold_: float | None = field(init=False)
    bins_: tuple[float, ...] = field(init=False)

    def fit(
        self,
        X: Any = None,  # noqa: N803
        y: object = None,
        *,
        users: ArrayLike | EncodedIds | None = None,
        by: ArrayLike | EncodedIds | Sequence[ArrayLike | EncodedIds] | Mapping[str, ArrayLike] = (),
        groups: ArrayLike | None = None,
        session: Session | None = None,
    ) -> Self:
        """Spend the budget on the data; afterwards everything that ends in _ may be released.

        Args:
            X: values, one per row; None where only rows or users are counted. With `engine=SparkEngine(spark)`, a frame
                of that session, `users` and `by` being names of its columns; its one other column has the values.
            y: ignored, for compatibility.
            users: whose row it is, integers or text.
            by: the group of each row; several columns as a list or mapping of columns. Without one, all rows are one
                group.
            groups: the same as `users`, for tools of scikit-learn that pass this word; give one of the two.
            session: brings its own budget, noise and window; those of the estimator are then not used.
        """
        if is_frame(X):
            return self._fit_frame(X, users if groups is None else groups, _names(by), session)
        asked, columns = self._asked(), columns_of_groups(by)
        owners = users if isinstance(users, EncodedIds) else one_of(users, groups)
        refuse_name(owners, "users")
        n_rows = len(owners.codes) if isinstance(owners, EncodedIds) else len(np.asarray(owners))
        values = self._numbers(X, n_rows)
        given = self._given(len(columns))
        opened = self._opened(session, given, len(columns))
        data = rows_by_group(owners, columns, n_rows, **values)
        self._publish(*self._found(data, opened, self._adder, asked, given), len(columns), given)
        self.statement_ = opened.statement()
        return self

    def _fit_frame(self, frame: Any, users: Any, by: list[Any], session: Session | None) -> Self:
        """Fit to rows on a cluster; columns are given by name."""
        engine, asked, given = cluster_of(self.engine, users, *by), self._asked(), self._given(len(by))
        values: dict[str, Any] = {}
        if set(asked) & set(OF_VALUES):
            names = numbers_beside(frame, users, *by)
            if len(names) > 1:
                raise InputError(f"Expected one column of values beside users and groups, got {names}.", argument="X")
            values = {"values": names[0]}
        opened = self._opened(session, given, len(by))
        with engine.read_numbers(frame, users, values, by) as rows:
            data = GroupsOnSpark.of(rows)
            if given is None and self.keys == FROM_DATA:
                data = data.on_own_list()
            self._publish(*self._found(data, opened, engine, asked, given), len(by), given)
        self.statement_ = opened.statement()
        return self

    def top(self, most: int, statistic: str | None = None) -> Self:
        """Return the groups with the largest estimates, heavy hitters, as a fit of these groups alone.

        Its intervals are those that hold for all groups together, so choosing the largest does not harm them. Nothing
        is spent: this is a function of what was released.

        Args:
            most: how many groups at most.
            statistic: by which; the first that has one number for each group, if None.
        """
        single = [name for name, held in self.estimates_.items() if np.ndim(held) == 1]
        if not self.groups_:  # a private list may be empty, and has no larger groups
            return copy(self)
        if not single or (statistic or single[0]) not in single:
            raise InputError(f"Expected one of {single}, with one number a group, got {statistic!r}.", argument=None)
        if most < 1:
            raise InputError(f"Expected at least one group, got {most}.", argument=None)
        places = np.argsort(-self.estimates_[statistic or single[0]], kind="stable")[:most]
        chosen = copy(self)
        chosen.groups_ = tuple(self.groups_[k] for k in places)
        for name in ("estimates_", "noise_stddev_", "simultaneous_"):
            setattr(chosen, name, {key: held[places] for key, held in getattr(self, name).items()})
        chosen.intervals_ = chosen.simultaneous_
        return chosen

    def _found(
        self,
        data: GroupRows,
        session: Session,
        engine: Engine,
        asked: dict[str, Asked],
        given: tuple[str, ...] | None,
    ) -> tuple[GroupRows, dict[str, Found], GroupList | None]:
        """All steps: the list of groups, where it is private, then the statistics of the listed ones."""
        listed = None
        if given is not None:
            data = data.on_list(sorted(given))
        elif self.keys == PRIVATE:
            fraction = 1.0 if tuple(asked) == ("users",) else LIST
            listed = release_list(data, session, engine, fraction)
            data = listed.data
        rest = {name: each for name, each in asked.items() if listed is None or name != "users"}
        left = 1.0 - (0.0 if listed is None else listed.taken)
        found: dict[str, Found] = {}
        if rest and data.texts:
            box = (0.0, 1.0) if self.value_range is None else self.value_range
            found = GroupFit(data.users, session, engine, rest, box, left, self.shrink).found()
        if listed is not None and "users" in asked:
            found["users"] = listed.users
        return data, found, listed

    def _asked(self) -> dict[str, Asked]:
        """What is asked for, checked."""
        names = (self.statistics,) if isinstance(self.statistics, str) else tuple(self.statistics)
        one_of_words("of", self.of, ("rows", "users"))
        if not names or len(set(names)) < len(names):
            raise InputError(f"Expected different statistics, at least one, got {names}.", argument="statistics")
        for name in names:
            one_of_words("statistics", name, (*COUNTS, *OF_VALUES))
        if not 0 < self.level < 1:
            raise InputError(f"Expected a level between 0 and 1, got {self.level:g}.", argument="level")
        one_of_words("law", self.law, ("gaussian", "laplace"))
        return {name: self._one(name) for name in names}

    def _one(self, name: str) -> Asked:
        if name in COUNTS:
            return Count() if name == "count" else NumberOfUsers()
        if self.value_range is None:
            raise InputError(f"Expected a public value range for {name!r}, got none.", argument="value_range")
        low, high = (float(end) for end in self.value_range)
        check_value_range((low, high))
        if name == "sum":
            return Sum(low, high)
        if name in ("mean", "variance"):
            return (Mean if name == "mean" else Variance)(low, high, self.of)
        if name == "histogram":
            return Histogram(tuple(self._ends(low, high)[1:-1]), self.of)
        return Quantiles(*self._grid(low, high), tuple(self._ranks()), self.of)

    def _ends(self, low: float, high: float) -> list[float]:
        """Ends of the histogram's bins."""
        if isinstance(self.bins, int):
            if not 2 <= self.bins <= _MOST_BINS:
                raise InputError(f"Expected from 2 to {_MOST_BINS} bins, got {self.bins}.", argument="bins")
            return [low + (high - low) * k / self.bins for k in range(self.bins)] + [high]
        ends = [float(end) for end in self.bins]
        if len(ends) < 3 or any(not a < b for a, b in itertools.pairwise(ends)):
            raise InputError(f"Expected at least three ends of bins, ascending, got {ends}.", argument="bins")
        return ends

    def _grid(self, low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Where bins for quantiles begin and end."""
        if self.step is None:
            ends = [low + (high - low) * k / _CELLS for k in range(_CELLS)] + [high]
            return tuple(ends[:-1]), tuple(ends[1:])
        if not 0 < self.step <= (high - low) or (high - low) / self.step > _MOST_BINS:
            raise InputError(
                f"Expected a step that divides the range into 1 to {_MOST_BINS}, got {self.step:g}.", argument="step"
            )
        points = tuple(low + self.step * k for k in range(math.floor((high - low) / self.step + 1e-9) + 1))
        return points, points

    def _ranks(self) -> list[float]:
        ranks = [float(rank) for rank in np.atleast_1d(np.asarray(self.quantiles, np.float64))]
        if not ranks or any(not 0 < rank < 1 for rank in ranks):
            raise InputError(f"Expected ranks between 0 and 1, got {ranks}.", argument="quantiles")
        return ranks

    def _numbers(self, X: ArrayLike | None, n_rows: int) -> dict[str, Any]:  # noqa: N803
        names = (self.statistics,) if isinstance(self.statistics, str) else tuple(self.statistics)
        if not set(names) & set(OF_VALUES):
            return {}
        if X is None:
            raise InputError(f"Expected values for {', '.join(names)}, got none.", argument="X")
        values = finite_rows(X, "X")
        if values.shape != (n_rows, 1):
            raise InputError(f"Expected one value for each of {n_rows} rows, got shape {values.shape}.", argument="X")
        return {"values": values[:, 0]}

    def _given(self, n_columns: int) -> tuple[str, ...] | None:
        """Texts of the groups of a public list, in its order; None where there is none."""
        if not n_columns:
            return (ALL,)
        if isinstance(self.keys, str):
            one_of_words("keys", self.keys, (PRIVATE, FROM_DATA))
            return None
        several = (list, tuple, np.ndarray)
        if n_columns > 1 and any(not isinstance(key, several) or len(key) != n_columns for key in self.keys):
            raise InputError(
                f"Expected groups of {n_columns} values each, one for every column of 'by'; at least one key differs.",
                argument="keys",
            )
        if n_columns == 1 and any(isinstance(key, several) for key in self.keys):
            raise InputError("Expected groups of one value each, because 'by' is one column.", argument="keys")
        texts = tuple(text_of([key] if n_columns == 1 else list(key)) for key in self.keys)
        if not texts:
            raise InputError("Expected a list of at least one group, got none.", argument="keys")
        again = next((text for text, number in Counter(texts).items() if number > 1), None)
        if again is not None:
            key = self.keys[texts.index(again)]
            raise InputError(f"The list has the group {key!r} more than once; expected each once.", argument="keys")
        return texts

    def _opened(self, given: Session | None, listed: tuple[str, ...] | None, n_columns: int) -> Session:
        """The session of this fit, with what it says about groups."""
        private = listed is None and self.keys == PRIVATE
        budget = group_budget(self.epsilon, self.delta, private_keys=private, law=self.law)
        public = [] if self.value_range is None else [f"the range of values, {_words(self.value_range)}"]
        if listed is not None and n_columns:
            public.append(f"the list of {len(listed)} groups, as given; rows of other groups are left out")
        session = self._open(given, budget, ADD_REMOVE, public)
        if private and not session.budget.keys_delta:
            raise InputError(
                "A private list of groups takes a part of delta, and this session keeps none for it; open it with "
                "Budget(epsilon, delta, keys_delta), or declare the list public",
                argument="keys",
                remedy="give it with",
            )
        if listed is None and not private:
            session.assume_public("the list of groups, taken from the data itself, which reveals which groups occur")
            session.declare_unprotected(OWN_GROUPS)
        return session

    def _words_on_defaults(self) -> str:
        return STATISTICS_DEFAULTS

    def _publish(
        self,
        data: GroupRows,
        found: dict[str, Found],
        listed: GroupList | None,
        n_columns: int,
        given: tuple[str, ...] | None,
    ) -> None:
        order = range(len(data.texts)) if given is None else [data.texts.index(text) for text in given]
        places = np.asarray(order, np.int64)
        names = [parts_of(data.texts[k], n_columns) for k in order]
        self.groups_ = tuple(name[0] if n_columns == 1 else name for name in names)
        self.threshold_ = None if listed is None else listed.threshold
        self.estimates_ = {name: each.values[places] for name, each in found.items()}
        self.noise_stddev_ = {name: each.noise[places] for name, each in found.items()}
        self.intervals_ = {name: each.ends(self.level)[places] for name, each in found.items()}
        of_one = 1 - (1 - self.level) / max(len(found), 1)
        self.simultaneous_ = {name: each.simultaneous(of_one)[places] for name, each in found.items()}
        if "histogram" in found and self.value_range is not None:
            self.bins_ = tuple(self._ends(*self.value_range))


def _names(by: Any) -> list[Any]:
    """The names of the columns of a Spark frame that make groups: one, or several."""
    return [by] if isinstance(by, str) else list(by)


def _words(value_range: tuple[float, float]) -> str:
    return f"{value_range[0]:.12g} to {value_range[1]:.12g}"
