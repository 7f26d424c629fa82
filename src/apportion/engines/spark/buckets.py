"""Buckets: users of one part of a frame, with all of their rows, as bytes that a cluster keeps between passes.

The bucket of a user follows from the user's id alone. So all rows of a user are in one bucket, however the frame was
partitioned, and a worker can check it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary, as_text
from apportion.errors import InputError
from apportion.linalg import keyed_words

Keys = NDArray[np.uint64]

_SEED = b"apportion: the bucket of a user "  # 32 bytes, public
_ALIGNED = 64  # bytes


def bucket_of(routes: Keys, buckets: int) -> NDArray[np.int32]:
    """Return the bucket of each user, from two numbers that follow from the user's id alone.

    >>> sorted(set(bucket_of(np.array([[k, 0] for k in range(100)], np.uint64), 4).tolist()))
    [0, 1, 2, 3]
    """
    return (keyed_words(_SEED, routes) % np.uint64(buckets)).astype(np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class Bucket:
    """Some users with all of their rows.

    Attributes:
        users: the users, in ascending order of their routes.
        routes: two numbers of each user, which say whose rows these are.
        items: what the column "tasks" counts, while there is no list of tasks yet; None where there is one.
    """

    users: Users
    routes: Keys
    items: Vocabulary | None = None

    def check(self, number: int, buckets: int) -> None:
        """Refuse users of another bucket, and a user who is there twice."""
        if (bucket_of(self.routes, buckets) != number).any():
            raise InputError(
                f"Bucket {number} holds rows of a user of another bucket; nothing was added up.", argument=None
            )
        high, low = self.routes[:, 1], self.routes[:, 0]
        ascending = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
        if not ascending.all():
            raise InputError(
                f"Bucket {number} holds the rows of a user in two places; nothing was added up.", argument=None
            )

    def to_bytes(self) -> bytes:
        """Return everything as bytes; the same users give the same bytes."""
        users, ids = self.users, None if self.items is None else self.items.ids
        of_items: dict[str, Any] = {} if ids is None or self.items is None or self.items.holds_text else {"": ids}
        groups = {
            "own": {"indptr": users.indptr, "routes": self.routes},
            "rows": users._columns,
            "users": users._user_columns,
            "items": of_items,
        }
        header: dict[str, Any] = {"n_tasks": users.n_tasks, "named": users._keys is not None}
        header["texts"] = ids.tolist() if ids is not None and not of_items else None
        return _written(header, groups)

    @classmethod
    def from_bytes(cls, body: bytes) -> Bucket:
        """Read back what `to_bytes` wrote."""
        header, groups = _read(body)
        texts, numbers = header["texts"], groups["items"].get("")
        ids = numbers if texts is None else as_text(texts, "item")
        routes = groups["own"]["routes"]
        users = Users(
            groups["own"]["indptr"],
            groups["rows"],
            user_columns=groups["users"],
            n_tasks=header["n_tasks"],
            keys=routes if header["named"] else None,
        )
        return cls(users, routes, None if ids is None else Vocabulary(ids, name="item"))

    def __repr__(self) -> str:
        return "Bucket(values hidden)"


def digest_of(body: bytes) -> str:
    """Return a checksum of a bucket, by which two copies are told apart."""
    return blake2b(body, digest_size=8).hexdigest()


def in_order(routes: Keys, *before: NDArray[Any]) -> NDArray[np.int64]:
    """Return the order by the given columns (the last one first), then by route."""
    return np.lexsort((routes[:, 0], routes[:, 1], *before))


def buckets_in_memory(users: Users, buckets: int) -> dict[int, bytes]:
    """Divide users in memory into buckets. Users without ids are told apart by their position."""
    places = np.arange(users.n_users, dtype=np.uint64)
    named = users._keys is not None
    routes = users.keys if named else np.stack([places, np.full_like(places, 2**63)], axis=1)
    owner = bucket_of(routes, buckets)
    order = in_order(routes, owner)
    return {
        number: _chosen(users, routes, order[owner[order] == number], named=named).to_bytes()
        for number in range(buckets)
    }


def _chosen(users: Users, routes: Keys, chosen: NDArray[np.int64], *, named: bool) -> Bucket:
    """The chosen users, in this order."""
    sizes = users.sizes[chosen]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.arange(indptr[-1]) + np.repeat(users.indptr[chosen] - indptr[:-1], sizes)
    own = Users(
        indptr,
        {name: column[rows] for name, column in users._columns.items()},
        user_columns={name: column[chosen] for name, column in users._user_columns.items()},
        n_tasks=users.n_tasks,
        keys=routes[chosen] if named else None,
    )
    return Bucket(own, routes[chosen])


def _written(header: dict[str, Any], groups: Mapping[str, Mapping[str, NDArray[Any]]]) -> bytes:
    held = [(group, name, np.ascontiguousarray(array)) for group, of in groups.items() for name, array in of.items()]
    header["arrays"] = [[group, name, array.dtype.str, array.shape] for group, name, array in held]
    text = json.dumps(header).encode()
    parts = [len(text).to_bytes(8, "little"), text]
    written = 8 + len(text)
    for *_, array in held:
        parts += [bytes(-written % _ALIGNED), array.tobytes()]
        written += -written % _ALIGNED + array.nbytes
    return b"".join(parts)


def _read(body: bytes) -> tuple[dict[str, Any], dict[str, dict[str, NDArray[Any]]]]:
    length = 8 + int.from_bytes(body[:8], "little")
    header = json.loads(body[8:length])
    groups: dict[str, dict[str, NDArray[Any]]] = {"own": {}, "rows": {}, "users": {}, "items": {}}
    for group, name, kind, shape in header["arrays"]:
        length += -length % _ALIGNED
        dtype = np.dtype(kind)
        numbers = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(body, dtype, numbers, length).reshape(shape)
        groups[group][name] = np.require(array, requirements=["A", "C"])
        length += array.nbytes
    return header, groups
