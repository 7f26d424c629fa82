"""Bugs of statistics by group: a budget for every group, and what a list of groups may tell of one user alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
from scipy.stats import norm

from apportion.data.groups import rows_by_group
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.contributions import GroupBoxes, GroupMoments, GroupSums, KeyCounts
from apportion.privacy.mechanisms import Box
from apportion.statistics import UserGroupBy
from apportion.statistics.groups import fitting, keys
from apportion.statistics.groups.moments import row_counts
from planted.cases import Case, exactly, replayed_on

BUDGET = Budget(8.0, 1e-3, 5e-4)
ENGINE = LocalEngine(np.float64, exact=True)


def crowd(*own, users=60):
    """(values, users, groups): everybody in three groups, and one more user who may be in some of its own."""
    rows = [(f"u{k}", group, k % 5) for k in range(users) for group in ("m", "p", "r")]
    rows += [("loner", group, 4) for group in own]
    who, groups, values = zip(*rows, strict=True)
    return np.array(values, float), np.array(who), np.array(groups)


def counts(rows, session, *, of_cells):
    """Counts by group with noise for one user; planted: every cell counts as a user, so the budget is spent on each."""
    _, users, groups = rows
    data = rows_by_group(users, [groups], len(users)).on_list(["m", "p", "r"])
    held = data.users
    if of_cells:
        tasks = held.column("tasks")
        first = np.concatenate([[True], (np.diff(held.owner) != 0) | (np.diff(tasks) != 0)])
        held = Users(np.append(np.flatnonzero(first), len(tasks)), {"tasks": tasks}, n_tasks=3)
    total = add_up_one(ENGINE, held, GroupSums((GroupMoments(row_counts, 1, 1.0),)))
    return {"counts": session.release("counts", total, session.plan(counts=1.0).one("counts"))}


def laplace_counts(rows, session, *, euclidean):
    """Counts by group with Laplace noise; planted: the Euclidean bound on a user's vector is taken for an L1 bound."""
    _, users, groups = rows
    data = rows_by_group(users, [groups], len(users)).on_list(["m", "p", "r"])
    form = GroupSums((GroupMoments(row_counts, 1, 1.0),), taxicab=not euclidean)
    total = add_up_one(ENGINE, data.users, form)
    if euclidean:
        total._l1_bound = total.l2_sensitivity
    return {"counts": session.release_laplace("counts", total, session.plan(counts=1.0).one("counts"))}


def box_counts(rows, session, *, signed):
    """Counts by group with noise for a box; planted: a part that may be negative is taken for one that is not."""
    _, users, groups = rows
    data = rows_by_group(users, [groups], len(users)).on_list(["m", "p", "r"])
    form = GroupMoments(alternating if signed else row_counts, 1, 1.0)
    total = add_up_one(ENGINE, data.users, GroupSums((form,)) if signed else GroupBoxes(form))
    total._box_bound = 1.0
    return {"counts": session.release_with(Box(), "counts", total, session.plan(counts=1.0).one("counts"))}


def deep_counts(rows, session, *, weighed):
    """Counts with noise for a box; planted: a user of many rows in a group is not weighed down, as if it had one."""
    _, users, groups = rows
    data = rows_by_group(users, [groups], len(users)).on_list(["m", "p", "r"])
    form, boxed = GroupBoxes(GroupMoments(row_counts, 1, 1.0)), GroupBoxes._boxed
    as_they_are = boxed if weighed else lambda self, users, cells: self.statistic.moments(users, cells)
    with mock.patch.object(GroupBoxes, "_boxed", as_they_are):
        total = add_up_one(ENGINE, data.users, form)
    return {"counts": session.release_with(Box(), "counts", total, session.plan(counts=1.0).one("counts"))}


def box_from_true_norms(rows, session, *, looked):
    """Noise of a box or of Laplace's law, as released norms say; planted: as the data say, which nobody paid for."""
    _, users, groups = rows
    found = UserGroupBy("count", keys=["m", "p", "r"], law="laplace", shrink=False)
    most = np.unique(np.stack([users, groups]), axis=1, return_counts=True)[1].max()
    look = mock.patch.object(fitting, "_LIKELY", 2.0 if looked and most > 1 else 0.5)
    with look:
        found.fit(users=users, by=groups, session=session)
    return {"counts": found.estimates_["count"], "statement": found.statement_.to_json()}


def alternating(users, cells):
    """Numbers of both signs: their range with 0 is up to √2 where their norm is 1."""
    return np.where(cells.tasks % 2, -1.0, 1.0)[:, None]


def listed(rows, session, *, order=None):
    """Means of a private list of groups."""
    values, users, groups = rows
    found = UserGroupBy("mean", value_range=(0, 4)).fit(values, users=users, by=groups, session=session)
    names = found.groups_ if order is None else order(found.groups_, groups)
    return {"groups": tuple(names), "means": found.estimates_["mean"], "statement": found.statement_.to_json()}


def as_they_came(listed_groups, groups):
    """Places among all groups that occur, in text order, those that are not listed among them."""
    return [sorted(set(groups.tolist())).index(name) for name in listed_groups]


def list_with_groups_counted(rows, session):
    """The weights of a list from how many groups there are, which nobody paid for."""
    with mock.patch.object(keys, "_TYPICAL", 30 * len(set(rows[2].tolist()))):
        return listed(rows, session)


def mean_of_unlisted(rows, session):
    """A centre from all rows, those of groups that are not listed among them, without a release."""
    found = listed(rows, session)
    return {**found, "means": found["means"] + rows[0].mean() - np.floor(rows[0].mean())}


def chance(most):
    """The true δ of a released list of groups at a user of 300, whose threshold is for users of so many."""
    values, users, groups = crowd()
    sealed = KeyCounts.sealed

    def forgetful(form, sums):
        (counted,) = sealed(form, sums)
        counted._own = replace(counted._own, most=most)
        return (counted,)

    session = Session(BUDGET, noise=SeededNoise(0))
    with mock.patch.object(KeyCounts, "sealed", forgetful):
        UserGroupBy("users").fit(values, users=users, by=groups, session=session)
    release = next(each for each in session.statement().releases if each.threshold is not None)
    passed = 1 - float(norm.cdf((release.threshold - 300**-0.5) / release.stddev)) ** 300
    return exactly(np.array([1 - passed, passed]), np.array([1.0, 0.0]), 0.0, BUDGET.keys_delta)


def cases():
    """Every bug of this file."""
    one, other = crowd("m", "p", "r"), crowd()
    wrong, honest = (
        partial(replayed_on, partial(counts, of_cells=bad), one, other, Budget(4.0, 1e-5)) for bad in (True, False)
    )
    yield Case("a budget for every group of a user", "habit", "replay", wrong, honest)
    wrong, honest = (
        partial(replayed_on, partial(laplace_counts, euclidean=bad), one, other, Budget(4.0, 0.0))
        for bad in (True, False)
    )
    yield Case("Laplace noise by group for a Euclidean bound", "habit", "replay", wrong, honest)
    wrong, honest = (
        partial(replayed_on, partial(box_counts, signed=bad), one, other, Budget(4.0, 0.0)) for bad in (True, False)
    )
    yield Case("noise for a box where parts have both signs", "habit", "replay", wrong, honest)
    deep = crowd("m", "m", "m", "p")
    audit = partial(replayed_on, data=deep, neighbour=other, budget=Budget(4.0, 0.0))
    wrong, honest = (partial(audit, partial(deep_counts, weighed=good)) for good in (False, True))
    yield Case("cells of a box that are not weighed down", "habit", "replay", wrong, honest)
    wrong, honest = (partial(audit, partial(box_from_true_norms, looked=bad)) for bad in (True, False))
    yield Case("noise for a box where nobody's true cells are large", "habit", "replay", wrong, honest)
    audit = partial(replayed_on, data=crowd("a", "n", "z"), neighbour=crowd(), budget=BUDGET)
    honest = partial(audit, listed)
    for name, wrong in (
        ("groups by their place in the data", partial(listed, order=as_they_came)),
        ("weights of a list from how many groups there are", list_with_groups_counted),
        ("a centre from rows of groups that are not listed", mean_of_unlisted),
    ):
        yield Case(name, "habit", "replay", partial(audit, wrong), honest)
    yield Case(
        "list of groups whose threshold forgets users of many", "habit", "tester",
        partial(chance, 1), partial(chance, keys.MOST_GROUPS),
    )  # fmt: skip
