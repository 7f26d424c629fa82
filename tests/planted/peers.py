"""Mistakes that were reported for other libraries in 2026, made on our side: each must be caught here.

IBM/differential-privacy-library#110 (a sensitivity from the lower end of a range alone), opendp/smartnoise-sdk#624
(values are clipped, and the raw ones are used), opendp/opendp#2949 (groups are merged after users were bounded by
group), opendp/opendp#2950 (the last user is left out where their number is odd), google/differential-privacy#405 (NaN
passes a clamp), flwrlabs/flower#7522 (a long key is folded into a short seed).
"""

from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np

from apportion import linalg
from apportion.allocation import SplitEqually
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.privacy import ADD_REMOVE, REPLACE_VALUES, Budget, SystemNoise
from apportion.privacy.contributions import BoxedColumns, PublicRowWeights, RowTotal, TaskCounts, task_sums
from apportion.privacy.contributions.row_sums import BoxedValues
from noise_scenes import look, many_keys
from planted.cases import PURE, Case, Verdict, judged, replayed_on

BUDGET = Budget(2.0, 1e-5)
INDPTR = np.array([0, 2, 3])
WEIGHTS = np.array([0.25, 0.25, 0.5])
KEY_BITS = 24  # of the stand-in for a seed of 32: so many fewer keys show a repetition


# -- a sensitivity from the lower end alone --


def total(values, session, *, low, lower_end_only=False, raw=False):
    """A weighted total of values in [low, 1] with Laplace noise."""
    users = Users(INDPTR, {"values": values, "weights": WEIGHTS})
    weights = PublicRowWeights.from_rows(WEIGHTS, INDPTR, "fixed")
    column = RowTotal(BoxedColumns(low, 1.0), 1, weights)
    with mock.patch.object(BoxedValues, "clipped", unclipped(BoxedValues.clipped) if raw else BoxedValues.clipped):
        statistic = add_up_one(LocalEngine(), users, column)
    if lower_end_only:
        statistic._l1_bound = statistic.l1_sensitivity * abs(low) / (1 - low)
    return {"total": session.release_laplace("total", statistic, session.plan(total=1.0).one("total"))}


def unclipped(clipped):
    """Clips a copy, and goes on with the raw values."""

    def wrong(values, low, high):
        made = clipped(values, low, high)
        made._values = (np.asarray(values, float) - (low + high) / 2) / (high - low)
        return made

    return wrong


# -- groups merged after users were bounded by group --


class FormedByRow(SplitEqually):
    """The equal split, with a weight for each row; the kernel that forms weights itself refuses repeated groups."""

    def of_tasks(self, n_tasks):
        return None


def counts(rows, session, *, merged):
    """How many users each group has, weighted so that a user's weights have norm 1; merged into one group or not."""
    groups, owners = rows
    indptr = np.append(0, np.cumsum(np.bincount(owners)))
    users = Users(indptr, {"tasks": np.zeros_like(groups) if merged else groups}, n_tasks=8, keys=None)
    with mock.patch.object(task_sums, "require_distinct_tasks"):
        statistic = add_up_one(LocalEngine(), users, TaskCounts(FormedByRow()))
    return {"counts": session.release("counts", statistic, session.plan(counts=1.0).one("counts"))}


# -- the last user left out of an odd number --


def paired_total(values, rng, draws, *, even_only):
    """The total of pairs of users, of whom an odd one is left out, or paired with nobody."""
    kept = values[: len(values) // 2 * 2] if even_only else values
    return np.clip(kept, -1, 1).sum() + rng.laplace(scale=1.0, size=draws)


# -- NaN passes a clamp --


def clamped_total(values, rng, draws, *, compares):
    """A total of values clamped by comparisons, which NaN passes, or with NaN as the lower end."""
    low, high = 0.0, 1.0
    inside = np.where(values < low, low, np.where(values > high, high, values))
    kept = inside if compares else np.nan_to_num(inside, nan=low)
    return kept.sum() + rng.laplace(scale=1.0, size=draws)


def not_a_number(outputs):
    """1 where a result is none."""
    return np.isnan(outputs).astype(float)


# -- a long key folded into a short seed --


class FoldedKeys(SystemNoise):
    """Folds every key into a few bits."""

    def normal(self, shape, dtype):
        out, key = np.empty(shape, dtype), self.key()
        folded = int.from_bytes(key[:8], "little") ^ int.from_bytes(key[8:16], "little")
        linalg.fill_normals(out, (folded % (1 << KEY_BITS)).to_bytes(32, "little"))
        return out


def keys_judged(make):
    """Whether any of 2^14 keys was there before: with 24 bits about 8 are expected, none with probability 3e-4."""
    found = look(many_keys, make)
    return Verdict(found.runs > 0, f"{found.runs} of 2^14 draws were there before", 1e-9)


def cases():
    """Every mistake with its twin."""
    near, far, beyond = (np.array([one, one, 0.5]) for one in (0.2, 1.0, 40.0))
    yield Case(
        "a sensitivity from the lower end of a range", "IBM/differential-privacy-library#110", "replay",
        *(
            partial(replayed_on, partial(total, low=0.2, lower_end_only=wrong), near, far, PURE, REPLACE_VALUES)
            for wrong in (True, False)
        ),
    )  # fmt: skip
    yield Case(
        "clipped values made, raw ones used", "opendp/smartnoise-sdk#624", "replay",
        *(
            partial(replayed_on, partial(total, low=0.0, raw=wrong), near, beyond, PURE, REPLACE_VALUES)
            for wrong in (True, False)
        ),
    )  # fmt: skip
    owners = np.repeat(np.arange(3), [8, 2, 1])
    groups = np.concatenate([np.arange(8), [0, 3], [5]]).astype(np.int32)
    kept = owners > 0
    rows, fewer = (groups, owners), (groups[kept], owners[kept] - 1)
    yield Case(
        "groups merged after users were bounded by group", "opendp/opendp#2949", "replay",
        *(
            partial(replayed_on, partial(counts, merged=wrong), rows, fewer, BUDGET, ADD_REMOVE)
            for wrong in (True, False)
        ),
    )  # fmt: skip
    yield Case(
        "the last of an odd number of users left out", "opendp/opendp#2950", "tester",
        *(
            partial(judged, partial(paired_total, even_only=wrong), np.ones(5), np.ones(6), 1.0)
            for wrong in (True, False)
        ),
    )  # fmt: skip
    yield Case(
        "NaN passes a clamp", "google/differential-privacy#405", "tester",
        *(
            partial(
                judged, partial(clamped_total, compares=wrong), np.array([0.5, np.nan]), np.array([0.5]), 1.0,
                statistic=not_a_number,
            )
            for wrong in (True, False)
        ),
    )  # fmt: skip
    yield Case(
        "a long key folded into a short seed", "flwrlabs/flower#7522", "noise",
        partial(keys_judged, FoldedKeys), partial(keys_judged, SystemNoise),
    )  # fmt: skip
