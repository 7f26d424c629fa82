"""One name of the catalogue: what is given with it, and how the contribution is made from that."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from apportion.allocation.weightings import SplitEqually, TaskFactors
from apportion.errors import InputError
from apportion.privacy.contributions import Contribution, HeldOut, Weighting
from apportion.transport.schema import Array, Flag, Maybe, Real, Table, Whole

DIMENSIONS: Final = Whole(2, 514)


@dataclass(frozen=True)
class PublicFacts:
    """What server and clients know from their own files, so that it is never sent.

    Attributes:
        n_items: length of the public list of items.
        value_range: the scale of ratings; values outside are brought into it.
        listed: a hash of the list of items; empty if the number says enough.
    """

    n_items: int
    value_range: tuple[float, float] = (1.0, 5.0)
    listed: bytes = b""

    def __post_init__(self) -> None:
        low, high = self.value_range
        if not (-1e9 <= low < high <= 1e9 and 1 <= self.n_items <= 10**7):
            raise InputError(
                f"Expected at least 1 item and a scale (low, high), got {self.n_items} and {self.value_range}.",
                argument="value_range",
            )

    def digest_with(self, content: bytes) -> bytes:
        """Return a hash of a question and of all of this, so that clients with other files have other terms."""
        facts = repr((self.n_items, *map(float, self.value_range), self.listed.hex())).encode()
        return hashlib.sha256(b"apportion question 1|" + hashlib.sha256(facts).digest() + content).digest()

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Sizes that arrays are made of."""
        return {"items": self.n_items}


@dataclass(frozen=True)
class Listed:
    """One contribution of the closed list.

    Attributes:
        name: what a server calls it.
        words: what it is, for the owner of a client.
        given: the numbers that come with the name.
        numbers: returns how many numbers are in an answer, from sizes alone, before anything is made.
        make: makes the contribution from them; on the client.
        take: returns the numbers of a contribution of this kind, None for any other; on the server.
    """

    name: str
    words: str
    given: Table
    numbers: Callable[[Mapping[str, Any], PublicFacts], int]
    make: Callable[[Mapping[str, Any], PublicFacts], Contribution]
    take: Callable[[Any, PublicFacts], Mapping[str, Any] | None]


def regression(kind: Any, items: str | int = "items") -> Table:
    """Return the schema of a regression that a user solves on released item vectors."""
    return Table(
        {
            "dimension": DIMENSIONS,
            "features": Array((items, "dimension"), kind=kind),
            "observation_weights": Array((items,), 0.0, kind=kind),
            "base": Array(("dimension", "dimension"), kind=kind),
            "base_rhs": Array(("dimension",), kind=kind),
        }
    )


CLIP_NORM: Final = Real(1e-6, 1e6)

WEIGHTS: Final[Mapping[str, Any]] = {"factors": Maybe(Array(("items",), 0.0)), "normalised": Flag()}
"""How users divide their sensitivity over items: equally, or by factors of items."""


def weights_of(given: Mapping[str, Any]) -> Weighting:
    """Return the weights that numbers describe."""
    if given["factors"] is None:
        return SplitEqually()
    return TaskFactors(given["factors"], "factors of items", given["normalised"])


def taken_weights(weights: Any) -> Mapping[str, Any]:
    """Return the numbers of weights; those of an equal split for weights of another kind, which are then refused."""
    if type(weights) is not TaskFactors:
        return {"factors": None, "normalised": True}
    return {"factors": np.asarray(weights.factors, np.float64), "normalised": weights.normalised}


VOTING: Final[Mapping[str, Any]] = {"fraction": Real(1e-9, 0.5), "most": Whole(1, 1000), "voters": Real(1e-12, 1.0)}
"""Which rows users vote with."""


def held_out_of(given: Mapping[str, Any]) -> HeldOut:
    """Return the rows that numbers describe."""
    return HeldOut(given["fraction"], 0, given["most"], given["voters"])


def taken_held_out(rows: HeldOut) -> Mapping[str, Any]:
    """Return the numbers of the rows that users vote with."""
    return {name: getattr(rows, name) for name in VOTING}
