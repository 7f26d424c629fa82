"""A folder of users as data: read shard by shard, never as a whole.

`UserFolder` offers what estimators ask of `Interactions`: a list of tasks, and users in parts. Each part is one shard
with whole users. Changes to rows, such as leaving out items that are not listed, are made to each part as it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion.data.columns import ColumnChoice, choose_columns
from apportion.data.on_disk.manifest import ITEMS, FolderManifest, ShardEntry
from apportion.data.on_disk.shard_files import (
    ITEM,
    KEPT,
    KEYS,
    SIZE,
    USER,
    Shard,
    digest_of_tables,
    read_keys,
    read_offsets,
    read_parquet,
    read_rows,
    read_shard,
    signature,
    vocabulary_of,
)
from apportion.data.user_keys import Keys
from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError

Change = Callable[[Users], Users]
AnyKeys = Keys | Callable[[], Keys]


class ShardReader:
    """Reads the shards of one folder. Each is checked as a whole when first read, and again if its files change."""

    def __init__(self, folder: Path, manifest: FolderManifest, value: str | None) -> None:
        self.folder, self.manifest, self.value = folder, manifest, value
        self._checked: dict[int, tuple[int, ...]] = {}
        self._notes: dict[Any, dict[Any, NDArray[Any]]] = {}

    def read(self, entry: ShardEntry) -> Users:
        """Return the users of a shard; keys of users are read when they are asked for."""
        if self._is_as_checked(entry):
            rows = read_rows(entry, self.folder, self._kinds())
            offsets = read_offsets(entry, self.folder)
            if self._is_as_checked(entry):  # nobody wrote to it meanwhile
                return self._users(offsets, rows, partial(self._keys, entry))
        shard = self.read_checked(entry)
        return self._users(shard.offsets, shard.columns(self._kinds()), shard.keys)

    def read_checked(self, entry: ShardEntry) -> Shard:
        """Return a whole shard. Refuse one that is not what was written."""
        found = signature(entry, self.folder)
        columns = [*([] if self.manifest.item is None else [ITEM]), *(KEPT + name for name in self.manifest.kept)]
        shard = read_shard(entry, self.folder, columns, [USER, SIZE, *KEYS])
        shard.check(entry, self.manifest.bits, self.manifest.items)
        self._checked[entry.bucket] = found
        return shard

    def notes(self, entry: ShardEntry, changes: tuple[Change, ...]) -> dict[Any, NDArray[Any]]:
        """Return the place for notes on a shard after these changes: every reading finds the same rows."""
        return self._notes.setdefault((entry.bucket, changes), {})

    def nobody(self) -> Users:
        """Return a part without users."""
        rows = {name: np.zeros(0, kind) for name, kind in self._kinds().items()}
        return self._users(np.zeros(1, np.int64), rows, np.zeros((0, 2), np.uint64))

    def _is_as_checked(self, entry: ShardEntry) -> bool:
        return self._checked.get(entry.bucket) == signature(entry, self.folder)

    def _keys(self, entry: ShardEntry) -> Keys:
        keys = read_keys(entry, self.folder)
        return keys if self._is_as_checked(entry) else self.read_checked(entry).keys

    def _kinds(self) -> Mapping[str, DTypeLike]:
        """The columns that a pass reads, and as what."""
        return {ITEM: np.int32, **({} if self.value is None else {KEPT + self.value: np.float32})}

    def _users(self, offsets: NDArray[np.int64], rows: Mapping[str, NDArray[Any]], keys: AnyKeys) -> Users:
        """Return users as engines take them."""
        tasks = rows[ITEM]
        values = np.ones(len(tasks), np.float32) if self.value is None else rows[KEPT + self.value]
        return Users(offsets, {"tasks": tasks, "values": values}, n_tasks=self.manifest.items, keys=keys)


@dataclass(frozen=True, eq=False)
class ShardedUsers:
    """Users in shards, with changes that are made to each shard as it is read.

    Attributes:
        reader: reads shards.
        changes: in order.
    """

    reader: ShardReader
    changes: tuple[Change, ...] = ()

    @cached_property
    def n_tasks(self) -> int:
        """Length of the list of tasks."""
        return self.nobody().n_tasks

    def parts(self) -> Iterator[Users]:
        """Yield the users of each shard; the next one is read while a shard is in use."""
        if not self.reader.manifest.shards:
            yield self.nobody()
            return
        with ThreadPoolExecutor(1) as ahead:
            entries = self.reader.manifest.shards
            waiting = ahead.submit(self.reader.read, entries[0])
            for entry, following in zip(entries, (*entries[1:], None), strict=True):
                read = waiting.result()
                if following is not None:
                    waiting = ahead.submit(self.reader.read, following)
                yield self._changed(read, entry)

    def nobody(self) -> Users:
        """Return a part without users."""
        return self._changed(self.reader.nobody(), None)

    def mapped(self, change: Change) -> ShardedUsers:
        """Return the users with one more change."""
        return replace(self, changes=(*self.changes, change))

    def _changed(self, users: Users, entry: ShardEntry | None) -> Users:
        for k, change in enumerate(self.changes):
            if entry is not None:
                users.take_notes(self.reader.notes(entry, self.changes[:k]))
            users = change(users)
        return users


@dataclass(frozen=True, eq=False, repr=False)
class UserFolder:
    """Users on disk; open one with `UserFolder.open`.

    Attributes:
        as_users: the users, for engines.
        task_ids: what task codes stand for.
        manifest: what the folder holds.
        changes: what is done to rows as they are read, in words.

    Example:
        >>> from apportion import PrivateClickRecommender
        >>> clicks = UserFolder.open("users/")  # doctest: +SKIP
        >>> model = PrivateClickRecommender(epsilon=1.0).fit(clicks).model_  # doctest: +SKIP
    """

    as_users: ShardedUsers
    task_ids: Vocabulary
    manifest: FolderManifest
    changes: tuple[str, ...] = ()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, value: ColumnChoice = None) -> UserFolder:
        """Open a folder that `apportion shard` made.

        Args:
            path: the folder.
            value: name of the value column, or `IGNORE`; without one every value is 1.
        """
        folder = Path(path)
        manifest = FolderManifest.read(folder)
        if manifest.item is None:
            raise InputError(f"{folder.name}: the folder was made without an item column.", argument="path")
        roles = {"user": manifest.user, "task": manifest.item, "value": value, "timestamp": None}
        chosen = choose_columns(manifest.names, roles).value
        if chosen is not None and manifest.kept[chosen] != "number":
            raise InputError(f"{folder.name}: column {chosen!r} does not hold numbers.", argument="value")
        return cls(ShardedUsers(ShardReader(folder, manifest, chosen)), read_items(folder, manifest), manifest)

    @property
    def n_tasks(self) -> int:
        """Length of the list of tasks."""
        return len(self.task_ids)

    def recoded(self, codes: NDArray[np.int32], task_ids: Vocabulary) -> UserFolder:
        """Return the rows on another list of tasks; codes[i] is the new code of task i, -1 if the list lacks it."""
        words = f"on a list of {len(task_ids)}: {hashlib.sha256(np.ascontiguousarray(codes, '<i4').data).hexdigest()}"
        changed = self.mapped(partial(Users.recoded, codes=codes, n_tasks=len(task_ids)), words)
        return replace(changed, task_ids=task_ids)

    def mapped(self, change: Change, words: str) -> UserFolder:
        """Return the folder with a change to each part of the users, made as it is read.

        Args:
            change: the change.
            words: all that it depends on; by these a checkpoint knows whether the data are the same.
        """
        return replace(self, as_users=self.as_users.mapped(change), changes=(*self.changes, words))

    def first_task(self, among: NDArray[np.bool_]) -> int | None:
        """Return the first task among these: the list of a folder holds tasks that some user has."""
        return int(np.argmax(among)) if among.any() else None

    def with_public_tasks(self) -> UserFolder:
        """The same data, with their list of tasks declared public: which tasks occur is then not protected."""
        return replace(self, task_ids=Vocabulary(self.task_ids.ids, name=self.task_ids.name, declared=True))

    @property
    def digest(self) -> str:
        """A digest of what the folder holds and how it is read; private, as the data are."""
        told = json.dumps([self.as_users.reader.value, self.changes, self.manifest.to_json()])
        return hashlib.sha256(told.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"UserFolder({self.as_users.reader.folder.name!r}, n_tasks={self.n_tasks})"


def read_items(folder: Path, manifest: FolderManifest) -> Vocabulary:
    """Return the list of items. Refuse one that is not what was written."""
    listed = read_parquet(folder / ITEMS)
    if listed.num_rows != manifest.items or digest_of_tables([listed]) != manifest.items_digest:
        raise InputError(
            f"{folder.name}: the list of items is not what was written: its digest differs.", argument=None
        )
    return vocabulary_of(listed[ITEM].combine_chunks(), "item")
