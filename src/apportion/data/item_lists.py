"""Data on another list of tasks than their own. Tasks match by text, and rows of unlisted tasks are left out.

If the list of tasks is private, a task that is not listed must not affect anything else. But a code depends on the
number of tasks before it, and all ids are text if a single one is. So tasks are first put in the order of their texts,
and the ids of a list follow from the listed texts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from apportion.data.user_data import UserData
from apportion.data.user_keys import pair_keys
from apportion.data.users import UserParts, Users
from apportion.data.vocabulary import Vocabulary, as_text, ids_of_texts

_PRIORITY_SEED = 0  # public; no secret is needed to choose among the tasks of a user with very many

Data = TypeVar("Data", bound=UserData)


def texts_of(task_ids: Vocabulary) -> list[str]:
    """Return the ids as text, by code."""
    return [str(each) for each in task_ids]


def in_text_order(data: Data) -> Data:
    """Return the same rows, with tasks identified by text and coded in the order of their texts."""
    texts = texts_of(data.task_ids)
    order = sorted(range(len(texts)), key=texts.__getitem__)
    if data.task_ids.holds_text and order == list(range(len(texts))):
        return data
    rank = np.empty(len(texts), np.int32)
    rank[order] = np.arange(len(texts), dtype=np.int32)
    ids = Vocabulary(as_text([texts[k] for k in order], "item"), name=data.task_ids.name)
    return data.recoded(rank, ids)


def on_list(data: Data, texts: Sequence[str]) -> Data:
    """Return the rows of listed tasks, coded in the order of the list. Nothing else of the data's own list is kept."""
    listed = Vocabulary(ids_of_texts(texts), name=data.task_ids.name, declared=True)
    place = {text: code for code, text in enumerate(texts)}
    codes = np.array([place.get(text, -1) for text in texts_of(data.task_ids)] or [-1], np.int32)
    return data.recoded(codes, listed)


def with_priorities(data: UserData) -> UserParts:
    """Return the users with a priority for each of their tasks: a function of the user's id and the task's text."""
    return data.as_users.mapped(Priorities.of(texts_of(data.task_ids)))


@dataclass(frozen=True, eq=False)
class Priorities:
    """Adds the column "priority" to a part of the users. `hashed` holds a number for each task."""

    hashed: NDArray[np.uint64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Priorities:
        """Make it from the texts of the tasks, by code."""
        digests = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts)
        return cls(np.frombuffer(digests or bytes(8), "<u8").astype(np.uint64))

    def __call__(self, users: Users) -> Users:
        """Return the users with the column."""
        tasks = self.hashed[users.column("tasks")]
        return users.with_columns(priority=pair_keys(users.keys, users.owner, tasks, _PRIORITY_SEED))
