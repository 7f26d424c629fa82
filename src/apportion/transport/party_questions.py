"""Parts of parties that learn together: the contribution of `parties.elsewhere`.

A party gets settings and the answers of all rounds so far. It replays them with its own rows, and contributes what it
would send next. Its list of items is the list of features. The relation of neighbours is that a party's part is zero in
one of them; it is never sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apportion.parties.common import Common
from apportion.parties.curator import Answer
from apportion.parties.side import PartySide, SentAfter
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.privacy.party_sums import PartForm, PartyParts
from apportion.privacy.task_sums import MomentWeights
from apportion.transport.listed import CLIP_NORM, Listed, PublicFacts
from apportion.transport.schema import Array, Flag, Maybe, Real, Several, Table, Word

Given = Mapping[str, Any]

_MOST_ROUNDS: Final = 64
_COMMON: Final = Table(
    {
        "direction": Array(("items",)),
        "share": Real(0.0, 1.0),
        "size": Real(0.0, 1.0),
        "size_stddev": Real(0.0, 1e6),
        "doubt": Real(0.0, 1e6),
    }
)
_GIVEN: Final = Table(
    {
        "loss": Word(("squared", "logistic")),
        "structure": Word(("em", "low-rank", "low-rank+sparse", "group-sparse", "relations")),
        "clip_norm": Maybe(CLIP_NORM),
        "weights": Maybe(Table({"mean": Real(1e-6, 2.0), "size": Real(1e-6, 2.0)})),
        "fit_intercept": Flag(),
        "accelerated": Flag(),
        "condition": Maybe(Real(1.0 + 1e-9, 1e12)),
        "sparse_penalty": Maybe(Real(0.0, 1e6)),
        "whole_posterior": Flag(),
        "answers": Several(
            Table({"shared": Array(("items", "items")), "common": Maybe(_COMMON)}), 0, _MOST_ROUNDS
        ),
    }
)  # fmt: skip
_OF_SIDE: Final = (
    "loss",
    "structure",
    "clip_norm",
    "fit_intercept",
    "accelerated",
    "condition",
    "sparse_penalty",
    "whole_posterior",
)
_OF_COMMON: Final = ("direction", "share", "size", "size_stddev", "doubt")


def _side(given: Given) -> PartySide:
    weights = None if given["weights"] is None else MomentWeights(**given["weights"])
    return PartySide(weights=weights, **{name: given[name] for name in _OF_SIDE})


def _form(given: Given, facts: PublicFacts) -> PartForm:
    return _side(given).form(facts.n_items, ADD_REMOVE_TASK)


def _made(given: Given, facts: PublicFacts) -> PartyParts:
    answers = tuple(
        Answer(each["shared"], None if each["common"] is None else Common(**each["common"]))
        for each in given["answers"]
    )
    return _side(given).parts(answers, _form(given, facts))


def _taken(contribution: Any, facts: PublicFacts) -> Given | None:
    if type(contribution) is not PartyParts or type(contribution.sent_by) is not SentAfter:
        return None
    side, answers = contribution.sent_by.side, contribution.sent_by.answers
    weights = None if side.weights is None else {"mean": side.weights.mean, "size": side.weights.size}
    return {
        **{name: getattr(side, name) for name in _OF_SIDE},
        "weights": weights,
        "answers": [{"shared": each.shared, "common": _of_common(each.common)} for each in answers],
    }


def _of_common(common: Common | None) -> Given | None:
    return None if common is None else {name: getattr(common, name) for name in _OF_COMMON}


PARTY_QUESTIONS: Final = (
    Listed(
        "party-models",
        "the direction of the model that your rows give, and products of its entries",
        _GIVEN,
        lambda given, facts: _form(given, facts).length,
        _made,
        _taken,
    ),
)
