"""The closed list of contributions that clients evaluate, by name.

A server sends a name of this list and numbers. The client checks the numbers against the schema of that name and makes
the contribution itself, so its bounds, its lattice and its sensitivity are those of the client's own library. Clip
norms are sent and become part of what the client derives; steps, sensitivities, relations of neighbours and scales of
values never are. No other name exists, and none is looked up anywhere but in this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

import numpy as np

from apportion.engines import Processors
from apportion.errors import InputError
from apportion.privacy.contributions import Contribution, HeldOut, WithoutHeldOut
from apportion.transport.choice_questions import CHOICE_QUESTIONS
from apportion.transport.click_questions import CLICK_QUESTIONS
from apportion.transport.encoder_questions import ENCODER_QUESTIONS
from apportion.transport.listed import Listed, PublicFacts
from apportion.transport.party_questions import PARTY_QUESTIONS
from apportion.transport.rating_questions import RATING_QUESTIONS
from apportion.transport.schema import Maybe, Real, Table, Whole, Word
from apportion.transport.value_questions import VALUE_QUESTIONS

CATALOGUE: Final[Mapping[str, Listed]] = {
    each.name: each
    for each in (
        *VALUE_QUESTIONS,
        *RATING_QUESTIONS,
        *CHOICE_QUESTIONS,
        *CLICK_QUESTIONS,
        *ENCODER_QUESTIONS,
        *PARTY_QUESTIONS,
    )
}
"""Every contribution that a client can be asked for."""

_HELD_OUT: Final = Table({"fraction": Real(1e-9, 0.5), "most": Whole(1, 1000), "voters": Real(1e-12, 1.0)})
_NAME: Final = Word(tuple(CATALOGUE))
_WORDS: Final = {"what", "description"}  # for statements, which the server makes


def written(contribution: Contribution, without: HeldOut | None, facts: PublicFacts) -> dict[str, Any]:
    """Return a contribution as plain data; refuse one that clients do not have, or would make otherwise.

    Args:
        contribution: what is asked for.
        without: rows that clients leave out before.
        facts: what server and clients know alike.
    """
    rows = without
    if isinstance(contribution, WithoutHeldOut) and rows is None:
        rows, contribution = contribution.rows, contribution.of
    for listed in CATALOGUE.values():
        found = listed.take(contribution, facts)
        if found is not None:
            plain = {"name": listed.name, "given": listed.given.written(found, facts.sizes), "without": _of_rows(rows)}
            made, wanted = read(plain, facts), contribution if rows is None else WithoutHeldOut(contribution, rows)
            _require_same(made, wanted)
            return plain
    raise InputError(
        f"Expected a contribution that clients know ({', '.join(CATALOGUE)}), got {type(contribution).__name__}.",
        argument="contributions",
    )


def name_of(plain: Any) -> str:
    """Return the name of the contribution that plain data ask for; refuse a name that is not in the list."""
    if type(plain) is not dict or set(plain) != {"name", "given", "without"}:
        raise InputError("Expected a name, what is given and what is left out, got something else.", argument=None)
    return _NAME.read(plain["name"], {})


@dataclass(frozen=True, eq=False)
class Checked:
    """A name of the list with numbers that fit it; nothing is made of them yet.

    Attributes:
        listed: what was asked for.
        given: the numbers.
        without: rows to leave out before.
        facts: what server and clients know alike.
    """

    listed: Listed
    given: Mapping[str, Any]
    without: HeldOut | None
    facts: PublicFacts

    @property
    def n_numbers(self) -> int:
        """How many numbers are in an answer."""
        return self.listed.numbers(self.given, self.facts)

    def made(self) -> Contribution:
        """Make the contribution."""
        made = self.listed.make(self.given, self.facts)
        return made if self.without is None else WithoutHeldOut(made, self.without)


def checked(plain: Any, facts: PublicFacts) -> Checked:
    """Read plain data that ask for a contribution; refuse what is not exactly a name and its numbers."""
    listed = CATALOGUE[name_of(plain)]
    given = listed.given.read(plain["given"], facts.sizes)
    rows = Maybe(_HELD_OUT).read(plain["without"], {})
    return Checked(listed, given, None if rows is None else HeldOut(**rows), facts)


def read(plain: Any, facts: PublicFacts) -> Contribution:
    """Make the contribution that plain data ask for; refuse what is not exactly a name and its numbers."""
    return checked(plain, facts).made()


def _of_rows(rows: HeldOut | None) -> Any:
    if rows is None:
        return None
    return _HELD_OUT.written({name: getattr(rows, name) for name in _HELD_OUT.fields}, {})


def _require_same(made: object, wanted: object) -> None:
    if not _same(made, wanted):
        raise InputError(
            "Expected a contribution with the settings that clients use, got one with others; they would answer "
            "another question.",
            argument="contributions",
        )


def _same(one: Any, two: Any) -> bool:
    """Whether two contributions are the same but for their words."""
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return np.array_equal(one, two)
    if type(one) is not type(two):
        return False
    if isinstance(one, Processors):
        return (one.dtype, one.exact) == (two.dtype, two.exact)
    if isinstance(one, tuple):
        return len(one) == len(two) and all(map(_same, one, two))
    if is_dataclass(one) and not isinstance(one, type):
        names = [each.name for each in fields(one) if each.name not in _WORDS]
        return all(_same(getattr(one, name), getattr(two, name)) for name in names)
    return bool(one == two)
