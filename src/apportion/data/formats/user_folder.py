"""Folders of users, as `apportion shard` makes them: a format that is a folder, recognised by its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from apportion.data.on_disk.manifest import is_user_folder
from apportion.data.sources import Opening, rows_of

if TYPE_CHECKING:
    from apportion.data.on_disk.folder_table import FolderTable


class _UserFolder:
    """The format."""

    name: Final = "folder of users"
    endings: Final[tuple[str, ...]] = ()
    may_be_compressed: Final = False
    has_tables: Final = False
    fallback: Final = False

    def recognises(self, file: Path, beginning: bytes) -> bool:
        return is_user_folder(file)

    def open(self, file: Path, how: Opening) -> FolderTable:
        from apportion.data.on_disk.folder_table import FolderTable

        return FolderTable(file)

    def rows_as_text(self, file: Path) -> list[list[str]]:
        return rows_of(self.open(file, Opening()).read_all(""))


FORMAT: Final = _UserFolder()
