"""The manifest of a folder of users: what its shards hold, and a digest of each.

A shard holds the users whose hash begins with the bits of its number, its bucket, and all of their rows. So a user
belongs to exactly one shard, and any reader can check that from the ids alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard

from apportion.errors import InputError, require_format

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
ITEMS: Final = "items.parquet"

KeptKind = Literal["number", "time", "text"]
"""What a further column holds: float64, whole seconds, or text."""


def is_user_folder(place: object) -> TypeGuard[Path]:
    """Whether a path is a folder of users, known by its manifest."""
    return isinstance(place, Path) and (place / MANIFEST).is_file()


@dataclass(frozen=True)
class ShardEntry:
    """One shard.

    Attributes:
        bucket: the first bits of the hash of its users.
        users: number of its users.
        rows: number of their rows.
        digest: of both files' contents.
    """

    bucket: int
    users: int
    rows: int
    digest: str

    def users_file(self, folder: Path) -> Path:
        """The file with the users, in the order of their ids, and how many rows each has."""
        return folder / f"shard-{self.bucket:05d}.users.parquet"

    def rows_file(self, folder: Path) -> Path:
        """The file with the rows, user by user."""
        return folder / f"shard-{self.bucket:05d}.rows.parquet"


@dataclass(frozen=True)
class FolderManifest:
    """What a folder holds.

    Attributes:
        user: name of the user column.
        item: name of the item column; None without one.
        kept: the further columns, by name.
        bits: how many bits of a user's hash are its bucket.
        items: number of distinct items.
        items_digest: of the list of items.
        shards: in the order of their buckets; a bucket without users has none.
        of_query: whether the rows came from a query, of which its maker declared that it treats each user by itself.
    """

    user: str
    item: str | None
    kept: dict[str, KeptKind]
    bits: int
    items: int
    items_digest: str
    shards: tuple[ShardEntry, ...]
    of_query: bool = False

    @property
    def n_users(self) -> int:
        """Number of users; private."""
        return sum(each.users for each in self.shards)

    @property
    def n_rows(self) -> int:
        """Number of rows; private."""
        return sum(each.rows for each in self.shards)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return (self.user, *(() if self.item is None else (self.item,)), *self.kept)

    def to_json(self) -> str:
        """Return the manifest as text."""
        held = {name: value for name, value in asdict(self).items() if name != "of_query" or value}
        return json.dumps({"format": FORMAT, **held}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, place: str) -> FolderManifest:
        """Read a manifest. Refuse one that is not of this format. `place` names it in messages."""
        try:
            fields: dict[str, Any] = json.loads(text)
            require_format(f"The folder of users {place}", fields.pop("format"), FORMAT)
            shards = tuple(ShardEntry(**each) for each in fields.pop("shards"))
            made = cls(**fields, shards=shards)
        except InputError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError(
                f"{place} is not a folder of users: its {MANIFEST} cannot be read.", argument=None
            ) from None
        made._check(place)
        return made

    @classmethod
    def read(cls, folder: Path) -> FolderManifest:
        """Read the manifest of a folder."""
        try:
            text = (folder / MANIFEST).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise InputError(
                f"{str(folder)!r} is not a folder of users: it has no {MANIFEST}. `apportion shard` makes one.",
                argument="path",
            ) from None
        return cls.from_json(text, repr(str(folder)))

    def _check(self, place: str) -> None:
        buckets = [each.bucket for each in self.shards]
        if buckets != sorted(set(buckets)) or (buckets and not 0 <= buckets[0] <= buckets[-1] < 1 << self.bits):
            raise InputError(f"The manifest of {place} names a bucket twice, or one that cannot be.", argument=None)
