"""A question as bytes: names of the catalogue with their numbers, and how much noise clients share.

The question does not say by how much one user moves a sum, whose noise counts, or how many numbers come out. The
client derives all of this itself, from the contribution that it made and from its own conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from apportion.data.users import Users
from apportion.engines import Processors
from apportion.errors import InputError
from apportion.federated import Question, RefusedError
from apportion.federated.elsewhere import no_users
from apportion.privacy.contributions import HeldOut, PartialSums
from apportion.privacy.noise import NoiseSource, SystemNoise
from apportion.privacy.noise_shares import NoiseShare, with_share
from apportion.transport.catalogue import CATALOGUE, checked, name_of, written
from apportion.transport.conditions import Conditions
from apportion.transport.listed import PublicFacts
from apportion.transport.plain import packed, unpacked
from apportion.transport.schema import Maybe, Real, Table, Whole, Word

_MOST_ASKED: Final = 8  # contributions in one question
_MOST_STEPS: Final = 2.0**35  # that one user may move a sum by
_MOST_NUMBERS: Final = 1 << 24  # in an answer
_NOISE: Final = Maybe(Table({"output": Whole(0, 7), "multiplier": Real(1e-3, 1e12)}))
_PRECISION: Final = Word(("float32", "float64"))
_FIELDS: Final = {"asked", "noise", "precision"}


@dataclass(frozen=True, eq=False)
class Asked:
    """A question that a client understood.

    Attributes:
        question: what it evaluates.
        names: of the contributions.
        length: numbers that leave it, masked.
        cost: μ² that the client counts; 0 where the server draws the noise.
        digest: the hash of the question and of what client and server know alike.
    """

    question: Question
    names: tuple[str, ...]
    length: int
    cost: float
    digest: bytes

    @property
    def words(self) -> str:
        """What is asked, for the owner of a client."""
        return "; ".join(CATALOGUE[name].words for name in self.names)

    def answered(self, users: Users, source: NoiseSource) -> PartialSums:
        """Return the client's answer before its mask. Whether there is one does not depend on rows.

        If something in the rows of a user makes the evaluation fail, that user alone adds nothing.
        """
        sums = sums_over(self.question, users)
        noise = self.question.noise
        return sums if noise is None else with_share(sums, self.question.contributions, noise, source)


def question_bytes(question: Question, facts: PublicFacts) -> bytes:
    """Write a question, for the server; only the sum that is wanted is asked for if clients draw its noise."""
    rows, contributions, noise = _left_out(question), question.contributions, None
    if question.noise is not None:
        contributions = (contributions[question.noise.contribution],)
        noise = {"output": question.noise.output, "multiplier": question.noise.multiplier}
    return packed(
        {
            "asked": [written(each, rows, facts) for each in contributions],
            "noise": _NOISE.written(noise, {}),
            "precision": _PRECISION.written(question.dtype.name, {}),
        }
    )


@dataclass(frozen=True, eq=False)
class Offer:
    """A question of which only the names and the cost were read: little work, whatever it holds.

    Attributes:
        asked: plain data of the contributions.
        names: of the contributions.
        precision: of the evaluation.
        share: the client's share of the noise.
        digest: the hash of the question and of what client and server know alike.
    """

    asked: list[Any]
    names: tuple[str, ...]
    precision: str
    share: NoiseShare | None
    digest: bytes

    @property
    def cost(self) -> float:
        """μ² that the client counts; 0 where the server draws the noise."""
        return 0.0 if self.share is None else self.share.multiplier**-2

    def understood(self, facts: PublicFacts) -> Asked:
        """Make the contributions, or refuse them: first what is too long to be answered. No rows are looked at."""
        asked = [checked(each, facts) for each in self.asked]
        n_numbers = sum(each.n_numbers for each in asked)
        if n_numbers > _MOST_NUMBERS:
            raise RefusedError(f"Expected at most {_MOST_NUMBERS} numbers in an answer, got {n_numbers}.")
        contributions = tuple(each.made() for each in asked)
        question = Question(contributions, np.dtype(self.precision), self.share)
        return Asked(question, self.names, _length(question, facts), self.cost, self.digest)


def offered(content: bytes, conditions: Conditions) -> Offer:
    """Read the names and the cost of a question within a client's conditions, or refuse it."""
    plain = unpacked(content)
    if type(plain) is not dict or set(plain) != _FIELDS or type(plain["asked"]) is not list:
        raise RefusedError("Expected a question, got something else.")
    if not 1 <= len(plain["asked"]) <= _MOST_ASKED:
        raise RefusedError(f"Expected from 1 to {_MOST_ASKED} contributions, got {len(plain['asked'])}.")
    names = tuple(map(name_of, plain["asked"]))
    if not set(names) <= conditions.allowed:
        raise RefusedError(f"Expected contributions that were agreed to, got {', '.join(names)}.")
    share = _share(_NOISE.read(plain["noise"], {}), len(names), conditions)
    precision = _PRECISION.read(plain["precision"], {})
    return Offer(plain["asked"], names, precision, share, conditions.facts.digest_with(content))


def understood(content: bytes, conditions: Conditions) -> Asked:
    """Read a question within a client's conditions, or refuse it. No rows are looked at."""
    return offered(content, conditions).understood(conditions.facts)


def _share(noise: Any, n_asked: int, conditions: Conditions) -> NoiseShare | None:
    """Return the client's share of the noise; how many clients' shares count follows from its own conditions."""
    if (noise is None) != (conditions.noise == "server"):
        raise RefusedError(f"Expected noise of the {conditions.noise}, got a question with other noise.")
    if noise is None:
        return None
    if n_asked != 1:
        raise RefusedError(f"Expected one contribution with its noise, got {n_asked}.")
    return NoiseShare(0, noise["output"], noise["multiplier"], conditions.trust.counted)


def _length(question: Question, facts: PublicFacts) -> int:
    """Return how many numbers come out, from an answer of nobody, with noise; refuse sums that could wrap around."""
    sums = _over(question, no_users(facts.n_items))
    for total in sums.sealed(question.contributions):
        if total.step is None or total.l2_sensitivity / total.step > _MOST_STEPS:
            raise RefusedError("Expected sums on a lattice that 64 bits hold, got others.")
    noise = question.noise
    if noise is None:
        return sums.n_numbers
    if noise.output >= len(sums.layout[0]):
        raise RefusedError("Expected noise for a sum that is there, got it for another.")
    return with_share(sums, question.contributions, noise, SystemNoise(exact=True)).n_numbers


def sums_over(question: Question, users: Users) -> PartialSums:
    """Return the sums over a client's users. A user whose rows make the evaluation fail adds nothing."""
    try:
        return _over(question, users)
    except Exception:  # whatever rows do, they must not decide whether there is an answer
        total = _over(question, users.nobody())
        for each in range(users.n_users):
            total = total + _alone(question, users.apart(each, each + 1))
        return total


def _alone(question: Question, user: Users) -> PartialSums:
    """Return what one user adds: nothing if it fails."""
    try:
        return _over(question, user)
    except Exception:
        return _over(question, user.nobody())


def _over(question: Question, users: Users) -> PartialSums:
    return PartialSums.over(users, question.contributions, Processors(question.dtype, exact=True))


def _left_out(question: Question) -> HeldOut | None:
    """Return which rows clients leave out before; refuse other changes of users."""
    if not question.changes:
        return None
    owner = getattr(question.changes[0], "__self__", None)
    if len(question.changes) > 1 or not isinstance(owner, HeldOut) or question.changes[0] != owner.kept:
        raise InputError("Expected users without held-out rows, got another change of them.", argument="users")
    return owner
