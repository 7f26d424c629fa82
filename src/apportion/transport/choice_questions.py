"""Contributions of the rounds of a ratings fit that learn what users choose; the scale is one of the public facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apportion.allocation.weightings import SplitByValue
from apportion.privacy.contributions import TaskMoments
from apportion.recommend.choice_rounds import ChoiceTastes
from apportion.recommend.clicks import ClickTotals
from apportion.transport.listed import Listed, PublicFacts, regression
from apportion.transport.rating_questions import fold_in_of, plain_of
from apportion.transport.schema import Array, Table, Whole

Given = Mapping[str, Any]


def _is_by_value(contribution: Any, rows: type) -> bool:
    moments = type(contribution) is TaskMoments and type(contribution.weights) is SplitByValue
    return moments and type(contribution.rows) is rows and contribution.labels is None


def _totals(given: Given, facts: PublicFacts) -> TaskMoments:
    return TaskMoments(SplitByValue(facts.value_range), ClickTotals(given["vectors"]))


def _taken_totals(contribution: Any, facts: PublicFacts) -> Given | None:
    if not _is_by_value(contribution, ClickTotals):
        return None
    vectors = contribution.rows.vectors
    return {"dimension": vectors.shape[1], "vectors": vectors}


def _tastes(given: Given, facts: PublicFacts) -> TaskMoments:
    return TaskMoments(SplitByValue(facts.value_range), ChoiceTastes(fold_in_of(given), facts.value_range))


def _taken_tastes(contribution: Any, facts: PublicFacts) -> Given | None:
    return plain_of(contribution.rows.fold_in) if _is_by_value(contribution, ChoiceTastes) else None


CHOICE_QUESTIONS: Final = (
    Listed(
        "choice-totals",
        "the direction of the items that a person has, by item, more of it for items that the person likes",
        Table({"dimension": Whole(1, 514), "vectors": Array(("items", "dimension"))}),
        lambda given, facts: facts.n_items * given["dimension"],
        _totals,
        _taken_totals,
    ),
    Listed(
        "choice-tastes",
        "the direction of a person's taste, by item, more of it for items that the person likes",
        regression("<f4"),
        lambda given, facts: facts.n_items * (given["dimension"] - 1),
        _tastes,
        _taken_tastes,
    ),
)
