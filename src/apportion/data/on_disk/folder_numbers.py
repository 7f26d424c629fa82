"""Columns of numbers of a folder of users: read shard by shard, for means, quantiles and regressions of users."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion.data.on_disk.manifest import FolderManifest
from apportion.data.on_disk.shard_files import KEPT
from apportion.data.on_disk.user_folder import AnyKeys, ShardedUsers, ShardReader
from apportion.data.users import Users
from apportion.errors import InputError

Columns = Mapping[str, str | Sequence[str]]
"""For each column of the users the columns of the folder that it is made of; one name makes a vector."""


class NumberReader(ShardReader):
    """Reads some columns of numbers of the shards of a folder."""

    def __init__(self, folder: Path, manifest: FolderManifest, columns: Columns) -> None:
        super().__init__(folder, manifest, None)
        self._columns = columns
        self._names = [name for of in columns.values() for name in ([of] if isinstance(of, str) else of)]

    def _kinds(self) -> Mapping[str, DTypeLike]:
        return {KEPT + name: np.float64 for name in self._names}

    def _users(self, offsets: NDArray[np.int64], rows: Mapping[str, NDArray[Any]], keys: AnyKeys) -> Users:
        held = {name: rows[KEPT + name] for name in self._names}
        for name, column in held.items():
            if not np.isfinite(column).all():
                raise InputError(f"Column {name!r} holds a value that is not a finite number.", argument=None)
        return Users(offsets, self._of(held), keys=keys)

    def _of(self, held: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[Any]]:
        return {
            name: held[of] if isinstance(of, str) else np.column_stack([held[each] for each in of])
            for name, of in self._columns.items()
        }


@dataclass(frozen=True, eq=False, repr=False)
class FolderNumbers:
    """A folder of users as statistics take it: some of its columns, which hold numbers.

    Attributes:
        folder: where it is.
        manifest: what it holds.
        columns: the user column and those of numbers.

    Example:
        >>> from apportion.engines import DiskEngine
        >>> from apportion.statistics import UserMean
        >>> hours = FolderNumbers.open("users/", ["hours"])  # doctest: +SKIP
        >>> mean = UserMean(value_range=(0, 24), engine=DiskEngine("1GiB"))  # doctest: +SKIP
        >>> mean.fit(hours, users=hours.manifest.user)  # doctest: +SKIP
    """

    folder: Path
    manifest: FolderManifest
    columns: tuple[str, ...]

    @classmethod
    def open(cls, path: str | os.PathLike[str], columns: Sequence[str]) -> FolderNumbers:
        """Open a folder that `apportion shard` made, with these columns of numbers."""
        folder = Path(path)
        manifest = FolderManifest.read(folder)
        for name in columns:
            if manifest.kept.get(name) != "number":
                known = [each for each, kind in manifest.kept.items() if kind == "number"]
                problem = f"{folder.name}: there is no column of numbers {name!r}; those kept are {known}."
                raise InputError(problem, argument=None)
        return cls(folder, manifest, (manifest.user, *columns))

    def users(self, columns: Columns) -> ShardedUsers:
        """Return the users with these columns, in shards."""
        return ShardedUsers(NumberReader(self.folder, self.manifest, columns))

    def __repr__(self) -> str:
        return f"FolderNumbers({self.folder.name!r}, {list(self.columns[1:])})"
