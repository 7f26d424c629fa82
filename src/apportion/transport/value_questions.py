"""Contributions about values alone: how many users there are, users' means, and the shares of values between cuts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from apportion.allocation.weightings import SplitEqually, TaskFactors
from apportion.errors import InputError
from apportion.estimators.counts import ScaledMeans, one_each
from apportion.privacy.contributions import ClippedParts, Output, TaskCounts
from apportion.statistics.value_shares import SharesBetween
from apportion.transport.listed import Listed, PublicFacts
from apportion.transport.schema import Array, Table, Whole

Given = Mapping[str, Any]


def _is_parts(contribution: Any, part: Any) -> bool:
    return type(contribution) is ClippedParts and (contribution.part is part or type(contribution.part) is part)


def _users(given: Given, facts: PublicFacts) -> ClippedParts:
    return ClippedParts(one_each, (Output(1, 1.0, False, "one for each user"),))


def _means(given: Given, facts: PublicFacts) -> ClippedParts:
    low, high = facts.value_range
    means = ScaledMeans((low + high) / 2, (high - low) / 2)
    return ClippedParts(means, (Output(2, float(np.sqrt(2)), False, "one, and the scaled mean of a user"),))


def _popularity(given: Given, facts: PublicFacts) -> TaskCounts:
    return TaskCounts(SplitEqually())


def _leading(given: Given, facts: PublicFacts) -> TaskCounts:
    return TaskCounts(TaskFactors(given["factors"], "factors of items"))


def _taken_leading(contribution: Any, facts: PublicFacts) -> Given | None:
    weights = contribution.weights if type(contribution) is TaskCounts else None
    return {"factors": weights.factors} if type(weights) is TaskFactors else None


def _shares(given: Given, facts: PublicFacts) -> ClippedParts:
    cuts = given["cuts"]
    if (np.diff(cuts) <= 0).any():
        raise InputError("Expected cuts in ascending order, got others.", argument="cuts")
    return SharesBetween(tuple(cuts.tolist())).contribution()


def _taken_shares(contribution: Any, facts: PublicFacts) -> Given | None:
    if not _is_parts(contribution, SharesBetween):
        return None
    cuts = contribution.part.cuts
    return {"number": len(cuts), "cuts": np.array(cuts, np.float64)}


def _nothing(kind: Any) -> Any:
    return lambda contribution, facts: {} if _is_parts(contribution, kind) else None


VALUE_QUESTIONS: Final = (
    Listed("number-of-users", "a one for each person", Table({}), lambda given, facts: 1, _users, _nothing(one_each)),
    Listed(
        "user-means",
        "a one for each person, and the person's mean",
        Table({}),
        lambda given, facts: 2,
        _means,
        _nothing(ScaledMeans),
    ),
    Listed(
        "leading-popularity",
        "which of the items that may be among the most popular a person has, each counting less if there are more",
        Table({"factors": Array(("items",), 0.0)}),
        lambda given, facts: facts.n_items,
        _leading,
        _taken_leading,
    ),
    Listed(
        "popularity",
        "which items a person has, each counting less if there are more",
        Table({}),
        lambda given, facts: facts.n_items,
        _popularity,
        lambda contribution, facts: {} if type(contribution) is TaskCounts else None,
    ),
    Listed(
        "value-shares",
        "which share of a person's values lies between public cuts",
        Table({"number": Whole(1, 4096), "cuts": Array(("number",))}),
        lambda given, facts: given["number"] + 1,
        _shares,
        _taken_shares,
    ),
)
