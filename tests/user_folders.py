"""Folders of users made from observations in memory, for tests that need many small ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from apportion.data.on_disk import UserFolder
from apportion.data.on_disk.manifest import ITEMS, MANIFEST, FolderManifest
from apportion.data.on_disk.shard_files import ITEM, KEPT, Shard, digest_of_tables, write_parquet
from apportion.data.user_keys import buckets_of, sampling_keys


def write_folder(data, path, bits=2, bucket_of_row=None):
    """Write a folder of users; rows go to the bucket of their user, unless another is given for each row."""
    path.mkdir()
    own = buckets_of(sampling_keys(data.user_ids), bits)[data.users]
    buckets = own if bucket_of_row is None else bucket_of_row(data, own)
    held = np.unique(data.tasks)
    items = pa.table(
        {ITEM: pa.array(data.task_ids.ids[held].tolist(), pa.string() if data.task_ids.holds_text else pa.int64())}
    )
    write_parquet(items, path / ITEMS)
    codes = np.searchsorted(held, data.tasks).astype(np.int32)
    entries = []
    for bucket in np.unique(buckets).tolist():
        rows = np.flatnonzero(buckets == bucket)
        ids = pa.array(data.user_ids.ids[data.users[rows]].tolist())
        shard = Shard.of_rows(ids, pa.table({ITEM: codes[rows], KEPT + "rating": data.values[rows].astype(float)}))
        entries.append(shard.entry(bucket))
        shard.write(entries[-1], path)
    digest = digest_of_tables([items])
    manifest = FolderManifest("user", "item", {"rating": "number"}, bits, len(held), digest, tuple(entries))
    (path / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return path


def folder_of(data, path, **settings):
    """The same data from a folder, on the same list of tasks."""
    made = UserFolder.open(write_folder(data, path, **settings))
    return made.recoded(data.task_ids.match(made.task_ids), data.task_ids)
