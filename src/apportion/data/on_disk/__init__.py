"""Users on disk: a folder of Parquet shards with whole users. Its size is not limited by memory."""

from apportion.data.on_disk.folder_numbers import FolderNumbers
from apportion.data.on_disk.manifest import FolderManifest
from apportion.data.on_disk.user_folder import UserFolder

__all__ = ["FolderManifest", "FolderNumbers", "UserFolder"]
