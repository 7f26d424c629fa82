"""Making a folder of users from tables of any size: staged, sorted by DuckDB, and cut into shards.

DuckDB sorts as many buckets at a time as its memory holds, so every row is sorted in memory, once, however many there
are. A bucket that is larger, because of one user's very many rows, is sorted with the help of the disk.

Work goes on in a folder beside the target, which is renamed to it at the end. After each source and each shard, a
journal is replaced. If the work is stopped, the next call with the same sources goes on from there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apportion.data.duckdb_package import arrow_reader, imported_duckdb
from apportion.data.on_disk.manifest import FORMAT, ITEMS, MANIFEST, FolderManifest, ShardEntry
from apportion.data.on_disk.shard_files import ITEM, KEPT, USER, Shard, digest_of_tables, read_parquet, write_parquet
from apportion.data.on_disk.sizes import bytes_in
from apportion.data.on_disk.staging import BITS, BUCKET, ROW, ShardColumns, Staged, stage
from apportion.data.sources import OpenTable
from apportion.errors import InputError
from apportion.linalg.threads import thread_count

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_OF_A_SHARD = 1_000_000
_BATCH_ROWS = 1 << 18
_OF_MEMORY = 4  # rows that are sorted at a time take one part of so many of DuckDB's memory
_LEAST_MEMORY = 1 << 26  # bytes; DuckDB sorts nothing with less
_JOURNAL = "journal.json"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class NamedSource:
    """One table to read.

    Attributes:
        name: of the file, for messages.
        mark: changes when its content does.
        table: the table.
        of_query: whether it is what a query returns; the folder says so, too.
    """

    name: str
    mark: str
    table: OpenTable
    of_query: bool = False


@dataclass
class _Journal:
    """What is done so far."""

    mark: str
    staged: list[list[Staged]]
    shards: list[ShardEntry]

    def write(self, folder: Path) -> None:
        write_durably(folder / _JOURNAL, json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path, mark: str) -> _Journal | None:
        """Return the journal of the same work; None if there is none."""
        try:
            held = json.loads((folder / _JOURNAL).read_text(encoding="utf-8"))
            staged = [[_as_staged(one) for one in each] for each in held["staged"]]
            shards = [ShardEntry(**each) for each in held["shards"]]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return cls(mark, staged, shards) if held["mark"] == mark else None


def _as_staged(held: dict[str, Any]) -> Staged:
    times = tuple((name, form) for name, form in held["times"])
    return Staged(**{**held, "texts": tuple(held["texts"]), "times": times})


def make_user_folder(
    sources: Sequence[NamedSource],
    columns: ShardColumns,
    target: Path,
    *,
    memory: str = "1GiB",
    rows_of_a_shard: int = ROWS_OF_A_SHARD,
    progress: Progress | None = None,
) -> FolderManifest:
    """Write the rows of all sources to a new folder, in shards of whole users.

    Args:
        sources: the tables.
        columns: which of their columns are kept, and as what.
        target: the folder; it must not exist.
        memory: how much memory DuckDB may take; it sorts as many rows at a time as fit.
        rows_of_a_shard: about how many rows a shard holds.
        progress: called after each source and each shard.
    """
    if target.exists():
        raise _exists(target)
    most = bytes_in(memory, least=_LEAST_MEMORY)
    work = target.with_name(f".{target.name}.partial")
    work.mkdir(parents=True, exist_ok=True)
    with _alone_in(work, target):
        return _resumed(sources, columns, work, target, most, rows_of_a_shard, progress or (lambda *_: None))


def _resumed(
    sources: Sequence[NamedSource],
    columns: ShardColumns,
    work: Path,
    target: Path,
    memory: int,
    rows_of_a_shard: int,
    shown: Progress,
) -> FolderManifest:
    """Go on from the journal of the same work, or start anew."""
    mark = _mark(sources, columns, rows_of_a_shard)
    journal = _Journal.read(work, mark)
    if journal is None:
        for path in work.iterdir():
            _remove(path)
        journal = _Journal(mark, [], [])
    try:
        manifest = _made(sources, columns, work, journal, memory, rows_of_a_shard, shown)
        return _finished(manifest, work, target)
    except InputError:  # nothing to go on with: the sources have to change, or the target
        shutil.rmtree(work)
        raise


@contextmanager
def _alone_in(work: Path, target: Path) -> Iterator[None]:
    """Keep out another process that makes the same folder; both would write the same files.

    Another process may finish between any two steps here: it renames the folder, or the lock is on the renamed one.
    """
    import fcntl

    try:
        handle = os.open(work, os.O_RDONLY)
    except FileNotFoundError:
        raise _exists(target) from None
    try:
        with suppress(OSError):  # on a disk without locks nobody is kept out
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"Another process is making {str(target)!r}.", argument="out") from None
        if target.exists():
            with suppress(OSError):
                work.rmdir()  # if it is a new one, and empty
            raise _exists(target)
        yield
    finally:
        os.close(handle)


def _exists(target: Path) -> InputError:
    return InputError(f"{str(target)!r} exists already; name a new folder.", argument="out")


def _made(
    sources: Sequence[NamedSource],
    columns: ShardColumns,
    work: Path,
    journal: _Journal,
    memory: int,
    rows_of_a_shard: int,
    shown: Progress,
) -> FolderManifest:
    """Do what the journal lacks."""
    for number in range(len(journal.staged), len(sources)):
        shown("source", number, len(sources))
        journal.staged.append(_staged(sources[number], number, columns, work))
        journal.write(work)
    shown("source", len(sources), len(sources))
    _refuse_mixed_ids(sources, journal.staged, columns)
    _refuse_mixed_times(sources, journal.staged)
    made = _Sorting(work, columns, journal, memory, rows_of_a_shard).run(shown)
    return replace(made, of_query=any(source.of_query for source in sources))


def _refuse_mixed_ids(
    sources: Sequence[NamedSource], staged: Sequence[Sequence[Staged]], columns: ShardColumns
) -> None:
    """Refuse ids that are text in one table with a schema and integers in another: one table would rename all users."""
    typed = [pair for pair in zip(sources, staged, strict=True) if not pair[0].table.untyped]
    for name, column in ((USER, columns.user), (ITEM, columns.item)):
        kinds = {name in each.texts: source.name for source, parts in typed for each in parts}
        if len(kinds) > 1:
            found = f"Column {column!r} holds text in {kinds[True]} and integers in {kinds[False]}"
            raise InputError(f"{found}; write it in one way in all files.", argument=None)


def _refuse_mixed_times(sources: Sequence[NamedSource], staged: Sequence[Sequence[Staged]]) -> None:
    """Refuse a column of times that tables with a schema hold in several forms: numbers say nothing of their unit."""
    found: dict[str, tuple[str, str]] = {}
    for source, parts in zip(sources, staged, strict=True):
        for name, form in parts[0].times if parts and not source.table.untyped else ():
            other, where = found.setdefault(name, (form, source.name))
            if form != other:
                problem = f"Column {name!r} holds {other} in {where} and {form} in {source.name}"
                raise InputError(f"{problem}; write it in one form in all files.", argument=None)


def write_durably(path: Path, text: str) -> None:
    """Replace a file as a whole; return once it is on disk."""
    aside = path.with_name(path.name + ".part")
    with open(aside, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(aside, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put the names of a folder's files on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mark(sources: Sequence[NamedSource], columns: ShardColumns, rows_of_a_shard: int) -> str:
    told = [FORMAT, [[each.name, each.mark] for each in sources], columns.user, columns.item, dict(columns.kept)]
    return hashlib.sha256(json.dumps([*told, rows_of_a_shard]).encode("utf-8", "surrogatepass")).hexdigest()


def _staged(source: NamedSource, number: int, columns: ShardColumns, work: Path) -> list[Staged]:
    try:
        return stage(source.table, number, columns, work)
    except InputError as error:
        raise error.inside(source.name) from None


def _finished(manifest: FolderManifest, work: Path, target: Path) -> FolderManifest:
    """Leave only the folder's own files, and move it into place."""
    for path in [*work.glob("source-*"), work / _JOURNAL, work / "spill"]:
        _remove(path)
    write_durably(work / MANIFEST, manifest.to_json())
    try:
        os.rename(work, target)
    except OSError:
        if not target.exists():
            raise
        raise _exists(target) from None  # somebody made it meanwhile
    sync_folder(target.parent)
    return manifest


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


class _Sorting:
    """Sorts staged rows by bucket, user and item, and writes the shards in that order."""

    def __init__(self, work: Path, columns: ShardColumns, journal: _Journal, memory: int, rows: int) -> None:
        self._work, self._columns, self._journal = work, columns, journal
        self._files = [one for each in journal.staged for one in each]
        n_rows = sum(one.rows for one in self._files)
        if not n_rows:
            raise InputError("There are no rows; expected at least two.", argument=None)
        self._bits = min(max(math.ceil(math.log2(n_rows / rows)), 0), BITS) if n_rows > rows else 0
        self._duck = _connected(memory, work / "spill")
        bytes_of_a_bucket = sum(one.bytes for one in self._files) / (1 << self._bits)
        fitting = int(memory / _OF_MEMORY / bytes_of_a_bucket)
        self._at_once = min(max(fitting, 1), 1 << self._bits)

    def run(self, shown: Progress) -> FolderManifest:
        """Write what is missing; return the manifest."""
        items, digest = self._items()
        done, n_buckets = self._journal.shards, 1 << self._bits
        for bucket, table in self._by_bucket(done[-1].bucket + 1 if done else 0):
            shown("shard", bucket, n_buckets)
            shard = self._shard(table)
            entry = shard.entry(bucket)
            shard.write(entry, self._work)
            done.append(entry)
            self._journal.write(self._work)
        shown("shard", n_buckets, n_buckets)
        self._duck.close()
        made = FolderManifest(
            self._columns.user, self._columns.item, dict(self._columns.kept), self._bits, items, digest, tuple(done)
        )
        if made.n_users < 2:
            raise InputError("All rows are of the same user; expected at least two users.", argument=None)
        return made

    def _items(self) -> tuple[int, str]:
        """Write the list of items in sorted order; return its length and digest."""
        if self._columns.item is None:
            return 0, ""
        if not (self._work / ITEMS).exists():
            ids = self._duck.sql(f"SELECT DISTINCT {ITEM} FROM ({self._rows()}) ORDER BY {ITEM}").to_arrow_table()
            write_parquet(ids, self._work / ITEMS)
        listed = read_parquet(self._work / ITEMS)
        return listed.num_rows, digest_of_tables([listed])

    def _rows(self) -> str:
        """The query for all staged rows, with ids of one kind."""
        ids = [USER, *([] if self._columns.item is None else [ITEM])]
        as_text = {name for each in self._files for name in each.texts}
        others = [BUCKET, *([ROW] if self._columns.item is None else []), *map(_quoted, self._kept)]
        chosen = ", ".join([*(f"{name}::VARCHAR AS {name}" if name in as_text else name for name in ids), *others])
        groups = {each.texts for each in self._files}
        return " UNION ALL ".join(f"SELECT {chosen} FROM read_parquet({self._listed(texts)})" for texts in groups)

    def _listed(self, texts: tuple[str, ...]) -> str:
        names = [str(self._work / each.file).replace("'", "''") for each in self._files if each.texts == texts]
        return "[" + ", ".join(f"'{name}'" for name in names) + "]"

    @property
    def _kept(self) -> list[str]:
        return [KEPT + name for name in self._columns.kept]

    def _sorted(self, first: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows from a bucket on, in order, sorting some buckets at a time."""
        rows, last = f"({self._rows()}) AS staged", ROW
        if self._columns.item is not None:
            self._number_items()
            rows, last = f"{rows} JOIN codes USING ({ITEM})", "code"
        shift = BITS - self._bits
        chosen = ", ".join([f"({BUCKET} >> {shift})::INTEGER AS place", USER, last, *map(_quoted, self._kept)])
        for start in range(first, 1 << self._bits, self._at_once):
            within = f"{BUCKET} >= {start << shift} AND {BUCKET} < {start + self._at_once << shift}"
            query = f"SELECT {chosen} FROM {rows} WHERE {within} ORDER BY place, {USER}, {last}"
            yield from arrow_reader(self._duck.sql(query), _BATCH_ROWS)

    def _number_items(self) -> None:
        """Give every item its place in the list."""
        listed = str(self._work / ITEMS).replace("'", "''")
        codes = f"SELECT {ITEM}, (row_number() OVER (ORDER BY {ITEM}) - 1)::INTEGER AS code"
        self._duck.execute(f"CREATE TEMP TABLE codes AS {codes} FROM read_parquet('{listed}')")

    def _by_bucket(self, first: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of one bucket after another."""
        import pyarrow as pa

        held: list[Any] = []
        for batch in self._sorted(first):
            places = batch.column("place").to_numpy()
            ends = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), batch.num_rows]
            for start, end in itertools.pairwise(ends):
                if held and held[0].column("place")[0].as_py() != int(places[start]):
                    yield held[0].column("place")[0].as_py(), pa.Table.from_batches(held)
                    held = []
                held.append(batch.slice(start, end - start))
        if held:
            yield held[0].column("place")[0].as_py(), pa.Table.from_batches(held)

    def _shard(self, table: pa.Table) -> Shard:
        import pyarrow as pa

        ids = table.column(USER).combine_chunks()
        columns: dict[str, Any] = {} if self._columns.item is None else {ITEM: table.column("code")}
        columns |= {name: table.column(name) for name in self._kept}
        shard = Shard.of_rows(ids if isinstance(ids, pa.Array) else pa.concat_arrays(ids.chunks), pa.table(columns))
        if self._columns.item is not None:
            self._refuse_repeated(ids, table.column("code").to_numpy())
        return shard

    def _refuse_repeated(self, ids: Any, codes: Any) -> None:
        import pyarrow.compute as pc

        same = pc.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False).astype(bool) & (codes[1:] == codes[:-1])
        if same.any():
            at = int(np.argmax(same))
            item = read_parquet(self._work / ITEMS)[ITEM][int(codes[at])].as_py()
            raise InputError(
                f"User {ids[at].as_py()!r} has item {item!r} in more than one row; expected each pair once. Make one "
                "row of them beforehand, for example by --query with GROUP BY and avg(value ORDER BY value).",
                argument=None,
            )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _connected(memory: int, spill: Path) -> Any:
    duckdb = imported_duckdb("Making a folder of users needs", extra="disk", oldest=(1, 4))
    spill.mkdir(exist_ok=True)
    settings: dict[str, Any] = {
        "memory_limit": f"{memory >> 10}KiB",
        "temp_directory": str(spill),
        "threads": thread_count(None),
    }
    return duckdb.connect(config={**settings, "preserve_insertion_order": False})
