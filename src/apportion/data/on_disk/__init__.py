"""Users on disk: a folder of Parquet shards, each of whole users, that is written and read without holding it."""

from apportion.data.on_disk.manifest import FolderManifest
from apportion.data.on_disk.user_folder import UserFolder

__all__ = ["FolderManifest", "UserFolder"]
