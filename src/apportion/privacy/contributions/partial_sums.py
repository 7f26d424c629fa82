"""Partial sums that cross process boundaries: whole numbers, sealed for one engine's own reducer.

A partial sum names its contribution, the number of users it covers and a checksum. It is sent as bytes under a
`Channel`, which an engine makes for one pass and shares with its workers. Bytes from another pass, or changed on the
way, are refused. Adding whole numbers commutes, so retries and any grouping give the same total.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import itertools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Hidden
from apportion.privacy.contributions.base import Contribution, Kernels, Sums, UserRun

Layout = tuple[tuple[tuple[int, ...], ...], ...]
"""The shapes of the sums of each contribution; public."""
_LARGEST_STEPS = 2**62  # limit of a total, so that adding two never wraps around


class Channel:
    """A secret of one pass, by which an engine's reducer recognises messages from its own workers."""

    def __init__(self, secret: bytes | None = None) -> None:
        self.secret = os.urandom(32) if secret is None else secret

    def sealed(self, body: bytes) -> bytes:
        """Return the bytes with their authentication code in front."""
        return hmac.digest(self.secret, body, "sha256") + body

    def opened(self, message: bytes) -> bytes:
        """Return the bytes if they were sealed under this channel; refuse others."""
        code, body = message[:32], message[32:]
        if not hmac.compare_digest(code, hmac.digest(self.secret, body, "sha256")):
            raise InputError(
                "Expected partial sums of this pass, got bytes that none of its workers sent.", argument="message"
            )
        return body


class PartialSums(Hidden):
    """Sums of some contributions over some users: hidden, and in whole numbers wherever there are several runs."""

    __slots__ = ("_n_users", "_sums")

    def __init__(self, sums: Sequence[Sums], n_users: int) -> None:
        self._sums = tuple(sums)
        self._n_users = n_users

    @classmethod
    def over(cls, users: UserRun, contributions: Sequence[Contribution], kernels: Kernels) -> PartialSums:
        """Evaluate every contribution on these users."""
        return cls([each.partial(users, kernels) for each in contributions], users.n_users)

    def __add__(self, other: PartialSums) -> PartialSums:
        if not all(_are_whole(sums) for sums in (*self._sums, *other._sums)):
            raise InputError(
                "Expected whole numbers in sums over several runs of users; make the engine exact=True.", argument=None
            )
        sums = [tuple(map(_added, one, two)) for one, two in zip(self._sums, other._sums, strict=True)]
        return PartialSums(sums, self._n_users + other._n_users)

    def sealed(self, contributions: Sequence[Contribution], caveats: tuple[str, ...] = ()) -> list[BoundedSum]:
        """Return one bounded sum for each output of each contribution, in order.

        Args:
            contributions: the contributions that were added up.
            caveats: what a statement must say is not protected, because of where the sums were formed.
        """
        return [
            total._formed_elsewhere(caveats)
            for each, sums in zip(contributions, self._sums, strict=True)
            for total in each.sealed(sums)
        ]

    @property
    def layout(self) -> Layout:
        """The shapes of the sums."""
        return tuple(tuple(array.shape for array in sums) for sums in self._sums)

    def blocks(self, numbers: int) -> list[PartialSums]:
        """Return the same whole numbers in blocks of this length, in order, for reducers that each add up one block."""
        self._require_whole()
        arrays = [np.zeros(0, np.int64), *(array.ravel() for sums in self._sums for array in sums)]
        flat = np.concatenate(arrays)
        firsts = range(0, max(len(flat), 1), numbers)
        return [PartialSums([(flat[first : first + numbers],)], self._n_users) for first in firsts]

    @classmethod
    def joined(cls, blocks: Sequence[PartialSums], layout: Layout) -> PartialSums:
        """Join blocks again, in order. All of them must cover the same number of users."""
        if len({each._n_users for each in blocks}) != 1:
            raise InputError("Expected blocks of the same users, got blocks of different numbers.", argument="blocks")
        flat = np.concatenate([each._sums[0][0] for each in blocks])
        shapes = [shape for shapes in layout for shape in shapes]
        ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)]).tolist()
        if ends[-1] != len(flat):
            raise InputError(f"Expected {ends[-1]} numbers in all blocks, got {len(flat)}.", argument="blocks")
        parts = (flat[a:b].reshape(shape) for (a, b), shape in zip(itertools.pairwise(ends), shapes, strict=True))
        return cls([tuple(itertools.islice(parts, len(shapes))) for shapes in layout], blocks[0]._n_users)

    @classmethod
    def overlaid(cls, parts: Sequence[PartialSums]) -> PartialSums:
        """Add up sums over the same users for different keys. Each sum has zeros at the places of the others."""
        total, *rest = parts
        for each in rest:
            if each._n_users != total._n_users:
                raise InputError("Expected sums over the same users, got different numbers of users.", argument="parts")
            total = PartialSums((total + each)._sums, total._n_users)
        return total

    def spread(self, places: NDArray[np.int64], length: int) -> PartialSums:
        """Return sums over keys with key k moved to places[k] of a longer list; the others are zero."""
        return PartialSums(
            [tuple(_spread(array, places, length) for array in sums) for sums in self._sums], self._n_users
        )

    def of_keys(self, chosen: NDArray[np.bool_]) -> PartialSums:
        """Return sums over keys for some of the keys."""
        return PartialSums([tuple(array[chosen] for array in sums) for sums in self._sums], self._n_users)

    def same_as(self, other: PartialSums) -> bool:
        """Whether both hold the same numbers. A reducer compares two answers for the same users by this."""
        mine, theirs = ([array for sums in each._sums for array in sums] for each in (self, other))
        return self._n_users == other._n_users and len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs))

    def _require_whole(self) -> None:
        if not all(_are_whole(sums) for sums in self._sums):
            raise InputError(
                "Expected whole numbers in sums that cross a process; make the engine exact=True.", argument=None
            )

    def to_wire(self, channel: Channel) -> bytes:
        """Return the sums as bytes that only the reducer of the same pass accepts."""
        self._require_whole()
        body = io.BytesIO()
        arrays = {f"{k}.{m}": array for k, sums in enumerate(self._sums) for m, array in enumerate(sums)}
        np.savez(body, n_users=np.int64(self._n_users), **arrays)  # type: ignore[arg-type]
        content = body.getvalue()
        return channel.sealed(hashlib.blake2b(content, digest_size=16).digest() + content)

    @classmethod
    def from_wire(cls, message: bytes, channel: Channel) -> PartialSums:
        """Read back what a worker of the same pass sent."""
        content = channel.opened(message)
        if hashlib.blake2b(content[16:], digest_size=16).digest() != content[:16]:
            raise InputError(
                "Expected partial sums as they were sent; the checksum of these does not match.", argument="message"
            )
        with np.load(io.BytesIO(content[16:]), allow_pickle=False) as held:
            names = sorted(tuple(map(int, name.split("."))) for name in held.files if name != "n_users")
            sums: list[list[Any]] = [[] for _ in range(1 + max((k for k, _ in names), default=-1))]
            for k, m in names:
                sums[k].append(held[f"{k}.{m}"])
            return cls([tuple(each) for each in sums], int(held["n_users"]))

    @property
    def n_numbers(self) -> int:
        """The number of numbers in all sums."""
        return sum(array.size for sums in self._sums for array in sums)

    def masked(self, mask: NDArray[np.uint64], n_clients: int) -> NDArray[np.uint64]:
        """Return all numbers in one vector with a mask added modulo 2^64, as a client of secure aggregation sends them.

        Args:
            mask: uniform and secret, one number for each number of the vector.
            n_clients: how many clients may add such vectors. The sum must not wrap around, because nobody could detect
                that.
        """
        flat = self._flat()
        if mask.shape != flat.shape or mask.dtype != np.uint64:
            raise InputError(
                f"Expected a mask of {len(flat)} numbers of 64 bits, got shape {mask.shape}.", argument="mask"
            )
        most = _LARGEST_STEPS // n_clients
        if flat.max(initial=0) >= most or flat.min(initial=0) <= -most:
            raise ArithmeticError(
                f"A sum has more steps than each of {n_clients} clients may add within 64 bits; use fewer users."
            )
        return np.asarray(flat.view(np.uint64) + mask)

    def unmasked(self, numbers: NDArray[np.uint64], masks: NDArray[np.uint64]) -> PartialSums:
        """Return sums of the same shapes as these, from the sum of masked vectors and the sum of their masks."""
        if numbers.shape != (self.n_numbers,) or masks.shape != numbers.shape:
            raise InputError(
                f"Expected {self.n_numbers} masked numbers and as many masks, got {numbers.shape} and {masks.shape}.",
                argument="numbers",
            )
        flat, first = np.asarray(numbers - masks).view(np.int64), 0
        sums: list[Sums] = []
        for like in self._sums:
            arrays = []
            for array in like:
                arrays.append(flat[first : first + array.size].reshape(array.shape))
                first += array.size
            sums.append(tuple(arrays))
        return PartialSums(sums, self._n_users)

    def possible(self, contributions: Sequence[Contribution], n_users: int) -> bool:
        """Whether this many users can add up to these numbers. Each user moves a sum by at most its sensitivity.

        Args:
            contributions: the contributions that were added up.
            n_users: the largest possible number of users.
        """
        arrays = [array for sums in self._sums for array in sums]
        bounds = [total for each, sums in zip(contributions, self._sums, strict=True) for total in each.sealed(sums)]
        return all(_length(array, total) <= n_users for array, total in zip(arrays, bounds, strict=True))

    def _flat(self) -> NDArray[np.int64]:
        arrays = [array.reshape(-1) for sums in self._sums for array in sums]
        if not all(_are_whole(sums) for sums in self._sums):
            raise InputError(
                "Expected whole numbers in sums that are masked; make the engine exact=True.", argument=None
            )
        return np.concatenate(arrays)

    def __repr__(self) -> str:
        return f"PartialSums({len(self._sums)} contributions, values hidden)"


def _length(array: NDArray[np.int64], total: BoundedSum) -> float:
    """Return the length of a sum of whole steps, in the metric and the unit of its sensitivity."""
    scales = 1.0 if total.scales is None else total.scales
    steps = array.astype(np.float64) / scales
    return float(np.linalg.norm(steps)) * (total.step or 1.0) / total.l2_sensitivity


def _are_whole(sums: Sums) -> bool:
    return all(array.dtype == np.int64 for array in sums)


def _spread(array: Any, places: NDArray[np.int64], length: int) -> Any:
    made = np.zeros((length, *array.shape[1:]), array.dtype)
    made[places] = array
    return made


def _added(one: Any, two: Any) -> Any:
    if one.shape != two.shape:
        raise InputError(f"Expected partial sums of one shape, got {one.shape} and {two.shape}.", argument=None)
    if any(each.max(initial=0) >= _LARGEST_STEPS or each.min(initial=0) <= -_LARGEST_STEPS for each in (one, two)):
        raise ArithmeticError("A sum has more steps than 64 bits hold; use fewer users in one fit.")
    return one + two
