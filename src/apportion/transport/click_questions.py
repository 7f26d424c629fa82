"""Contributions of the click recommender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apportion.allocation.weightings import SplitEqually, TaskFactors
from apportion.privacy.contributions import TaskMoments, Votes
from apportion.recommend.clicks import ClickTastes, ClickTotals
from apportion.recommend.clicks_votes import RankLosses
from apportion.transport.listed import (
    CLIP_NORM,
    VOTING,
    WEIGHTS,
    Listed,
    PublicFacts,
    held_out_of,
    regression,
    taken_held_out,
    taken_weights,
    weights_of,
)
from apportion.transport.rating_questions import fold_in_of, fold_ins_of, plain_of
from apportion.transport.schema import Array, Several, Table, Whole

Given = Mapping[str, Any]

_VOTES: Final = Table({"fold_ins": Several(regression("<f4"), 2, 32), "clip_norm": CLIP_NORM, **VOTING})


def _is_moments(contribution: Any, rows: type) -> bool:
    moments = type(contribution) is TaskMoments and type(contribution.weights) in (SplitEqually, TaskFactors)
    return moments and type(contribution.rows) is rows and contribution.labels is None


def _totals(given: Given, facts: PublicFacts) -> TaskMoments:
    return TaskMoments(weights_of(given), ClickTotals(given["vectors"]))


def _taken_totals(contribution: Any, facts: PublicFacts) -> Given | None:
    if not _is_moments(contribution, ClickTotals):
        return None
    vectors = contribution.rows.vectors
    return {"dimension": vectors.shape[1], "vectors": vectors, **taken_weights(contribution.weights)}


def _tastes(given: Given, facts: PublicFacts) -> TaskMoments:
    return TaskMoments(weights_of(given), ClickTastes(fold_in_of(given)))


def _taken_tastes(contribution: Any, facts: PublicFacts) -> Given | None:
    if not _is_moments(contribution, ClickTastes):
        return None
    return {**plain_of(contribution.rows.fold_in), **taken_weights(contribution.weights)}


def _votes(given: Given, facts: PublicFacts) -> Votes:
    losses = RankLosses(fold_ins_of(given["fold_ins"]))
    return Votes(losses, held_out_of(given), given["clip_norm"], "votes on how far vectors are trusted")


def _taken_votes(contribution: Any, facts: PublicFacts) -> Given | None:
    if type(contribution) is not Votes or type(contribution.losses) is not RankLosses:
        return None
    return {
        "fold_ins": [plain_of(each) for each in contribution.losses.fold_ins],
        "clip_norm": contribution.clip_norm,
        **taken_held_out(contribution.rows),
    }


CLICK_QUESTIONS: Final = (
    Listed(
        "click-totals",
        "the direction of the items that a person has, by item",
        Table({"dimension": Whole(1, 514), "vectors": Array(("items", "dimension")), **WEIGHTS}),
        lambda given, facts: facts.n_items * given["dimension"],
        _totals,
        _taken_totals,
    ),
    Listed(
        "click-tastes",
        "the direction of a person's taste, by item",
        Table({**regression("<f4").fields, **WEIGHTS}),
        lambda given, facts: facts.n_items * (given["dimension"] - 1),
        _tastes,
        _taken_tastes,
    ),
    Listed(
        "click-votes",
        "which settings rank a person's items best",
        _VOTES,
        lambda given, facts: len(given["fold_ins"]) - 1,
        _votes,
        _taken_votes,
    ),
)
