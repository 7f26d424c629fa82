"""Contributions of the rating recommender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from apportion.errors import InputError
from apportion.linalg import RatingRound
from apportion.linalg.checks import checked_symmetric
from apportion.privacy.contributions import ClippedParts, Contribution, RatingParts, Votes, step_of
from apportion.privacy.neighbours import ADD_REMOVE
from apportion.recommend.clip_norms import NORMS, ClippedAway
from apportion.recommend.model import FoldIn
from apportion.recommend.user_spread import PairProducts
from apportion.recommend.variance_votes import VarianceLosses
from apportion.transport.listed import (
    CLIP_NORM,
    DIMENSIONS,
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
from apportion.transport.schema import LARGEST, Array, Flag, Real, Several, Table, Whole

Given = Mapping[str, Any]

_CENTRE: Final = Real(-LARGEST, LARGEST)
_UNIT: Final = Real(1e-9, LARGEST)
_ROUND: Final = Table(
    {
        "dimension": DIMENSIONS,
        "coordinates": Whole(1, 513),
        "features": Array(("items", "dimension")),
        "trust": Array(("items",), 0.0),
        "base": Array(("dimension", "dimension")),
        "base_rhs": Array(("dimension",)),
        "scales": Array(("coordinates",), 1e-9),
        "centre": _CENTRE,
        "unit": _UNIT,
        "clip_norm": CLIP_NORM,
        "summary_clip": CLIP_NORM,
        "starting": Flag(),
        "start_norm": Real(0.0, LARGEST),
        "vector_weights": Array(("items",), 0.0, 1.0),
        **WEIGHTS,
    }
)
_VOTES: Final = Table(
    {"fold_ins": Several(regression("<f8"), 2, 32), "centre": _CENTRE, "unit": _UNIT, "clip_norm": CLIP_NORM, **VOTING}
)
_OF_ROUND: Final = (
    *("features", "trust", "base", "base_rhs", "scales", "vector_weights", "centre", "unit"),
    *("clip_norm", "summary_clip", "starting", "start_norm"),
)


def _norms(given: Given, facts: PublicFacts) -> ClippedParts:
    return ClippedAway(facts.value_range, given["centre"], given["unit"]).contribution(ADD_REMOVE)


def _taken_norms(contribution: Any, facts: PublicFacts) -> Given | None:
    if type(contribution) is not ClippedParts or type(contribution.part) is not ClippedAway:
        return None
    return {"centre": contribution.part.centre, "unit": contribution.part.unit}


def _spread(given: Given, facts: PublicFacts) -> ClippedParts:
    numbers = given["centre"], given["unit"], given["clip_norm"]
    return PairProducts(facts.value_range, *numbers).contribution(ADD_REMOVE)


def _taken_spread(contribution: Any, facts: PublicFacts) -> Given | None:
    if type(contribution) is not ClippedParts or type(contribution.part) is not PairProducts:
        return None
    return {name: getattr(contribution.part, name) for name in ("centre", "unit", "clip_norm")}


def _numbers_of_round(given: Given, facts: PublicFacts) -> int:
    latent: int = given["dimension"] - 2
    return facts.n_items * (latent + 1) + 5 + latent * (latent + 1) // 2


def _round(given: Given, facts: PublicFacts) -> Contribution:
    """Steps follow from clip norms, and the scale of values from what the client knows."""
    numbers = RatingRound(
        **{name: given[name] for name in _OF_ROUND},
        value_range=facts.value_range,
        step=step_of(given["clip_norm"]),
        summary_step=step_of(given["summary_clip"]),
    )
    return RatingParts(numbers, weights_of(given), "a round on ratings")


def _taken_round(contribution: Any, facts: PublicFacts) -> Given | None:
    if type(contribution) is not RatingParts:
        return None
    held = contribution.round
    return {
        **{name: getattr(held, name) for name in _OF_ROUND},
        "dimension": held.dim,
        "coordinates": held.width,
        **taken_weights(contribution.weights),
    }


def _votes(given: Given, facts: PublicFacts) -> Votes:
    losses = VarianceLosses(
        fold_ins_of(given["fold_ins"]),
        facts.value_range,
        given["centre"],
        given["unit"],
        given["clip_norm"],
    )
    return losses.contribution(held_out_of(given), ADD_REMOVE)


def _taken_votes(contribution: Any, facts: PublicFacts) -> Given | None:
    if type(contribution) is not Votes or type(contribution.losses) is not VarianceLosses:
        return None
    losses = contribution.losses
    return {
        "fold_ins": [plain_of(each) for each in losses.fold_ins],
        **{name: getattr(losses, name) for name in ("centre", "unit", "clip_norm")},
        **taken_held_out(contribution.rows),
    }


def fold_ins_of(given: Sequence[Given]) -> tuple[FoldIn, ...]:
    """Return regressions that are compared; all of them are of one dimension."""
    if len({each["dimension"] for each in given}) != 1:
        raise InputError("Expected regressions of one dimension, got several.", argument="fold_ins")
    return tuple(map(fold_in_of, given))


def fold_in_of(given: Given) -> FoldIn:
    """Return the regression that numbers describe; refuse one that no user could solve, before users are asked."""
    checked_symmetric("base", given["base"], given["dimension"], given["base"].dtype)
    return FoldIn(given["features"], given["observation_weights"], given["base"], given["base_rhs"])


def plain_of(fold_in: FoldIn) -> Given:
    """Return the numbers of a regression."""
    names = ("features", "observation_weights", "base", "base_rhs")
    return {"dimension": fold_in.features.shape[1], **{name: getattr(fold_in, name) for name in names}}


RATING_QUESTIONS: Final = (
    Listed(
        "clip-norms",
        "what limits would cut off a person's ratings",
        Table({"centre": _CENTRE, "unit": _UNIT}),
        lambda given, facts: 3 + 2 * len(NORMS),
        _norms,
        _taken_norms,
    ),
    Listed(
        "user-spread",
        "how alike a person's ratings are",
        Table({"centre": _CENTRE, "unit": _UNIT, "clip_norm": CLIP_NORM}),
        lambda given, facts: 3,
        _spread,
        _taken_spread,
    ),
    Listed(
        "rating-round",
        "by how much a person's ratings differ from a forecast, by item",
        _ROUND,
        _numbers_of_round,
        _round,
        _taken_round,
    ),
    Listed(
        "variance-votes",
        "which settings forecast a person's ratings best",
        _VOTES,
        lambda given, facts: len(given["fold_ins"]) - 1,
        _votes,
        _taken_votes,
    ),
)
