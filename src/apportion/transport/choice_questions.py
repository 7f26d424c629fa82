"""Contributions of the rounds of a ratings fit that learn what users choose; the scale is one of the public facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from apportion.allocation.weightings import OnTasks, SplitByValue
from apportion.privacy.contributions import TaskMoments, Weighting
from apportion.recommend.choice_rounds import ChoiceTastes, weights_by_value
from apportion.recommend.clicks import ClickTotals
from apportion.transport.listed import Listed, PublicFacts, regression
from apportion.transport.rating_questions import fold_in_of, plain_of
from apportion.transport.schema import Array, Maybe, Table, Whole

Given = Mapping[str, Any]


_AMONG: Final[Mapping[str, Any]] = {"among": Maybe(Array(("items",), 0.0))}
"""Above 0 for the items that a round is about; nothing for all of them."""


def _is_by_value(contribution: Any, rows: type) -> bool:
    if type(contribution) is not TaskMoments:
        return False
    held = contribution.weights.before if type(contribution.weights) is OnTasks else contribution.weights
    return type(held) is SplitByValue and type(contribution.rows) is rows and contribution.labels is None


def _weights(given: Given, facts: PublicFacts) -> Weighting:
    by_value, among = SplitByValue(facts.value_range), given["among"]
    return by_value if among is None else weights_by_value(by_value, among > 0)


def _among(contribution: TaskMoments) -> Given:
    weights: Any = contribution.weights
    return {"among": weights.tasks.astype(np.float64) if type(weights) is OnTasks else None}


def _totals(given: Given, facts: PublicFacts) -> TaskMoments:
    return TaskMoments(_weights(given, facts), ClickTotals(given["vectors"]))


def _taken_totals(contribution: Any, facts: PublicFacts) -> Given | None:
    if not _is_by_value(contribution, ClickTotals):
        return None
    vectors = contribution.rows.vectors
    return {"dimension": vectors.shape[1], "vectors": vectors, **_among(contribution)}


def _tastes(given: Given, facts: PublicFacts) -> TaskMoments:
    return TaskMoments(_weights(given, facts), ChoiceTastes(fold_in_of(given), facts.value_range))


def _taken_tastes(contribution: Any, facts: PublicFacts) -> Given | None:
    if not _is_by_value(contribution, ChoiceTastes):
        return None
    return {**plain_of(contribution.rows.fold_in), **_among(contribution)}


CHOICE_QUESTIONS: Final = (
    Listed(
        "choice-totals",
        "the direction of the items that a person has, by item, more of it for items that the person likes",
        Table({"dimension": Whole(1, 514), "vectors": Array(("items", "dimension")), **_AMONG}),
        lambda given, facts: facts.n_items * given["dimension"],
        _totals,
        _taken_totals,
    ),
    Listed(
        "choice-tastes",
        "the direction of a person's taste, by item, more of it for items that the person likes",
        Table({**regression("<f4").fields, **_AMONG}),
        lambda given, facts: facts.n_items * (given["dimension"] - 1),
        _tastes,
        _taken_tastes,
    ),
)
