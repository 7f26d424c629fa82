"""Claim: two ids are one user if and only if Python's own dictionary says so, on a million generated lists of ids.

A list holds two to twelve ids made to be confused: they share their beginnings, and differ in a NUL, a normal form,
case, whitespace, the last character of many, or by one in a large integer. Each list goes through one way into the
library (lists and arrays of several kinds, frames, `users=`, vocabularies, the keys of samples), some also through
files. Two different ids with one code are a merge, two codes for one id a split; an id that comes back changed counts
too. A list that must be refused (types mixed, floats that integers merge in, half a surrogate pair) and is taken counts
as a merge. The same check on NumPy's own `unique`, which merges, shows that it can fail.
"""

from __future__ import annotations

import csv
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from apportion.data import Interactions, Vocabulary
from apportion.data.encoding import encode_ids
from apportion.data.grouping import group_rows
from apportion.data.tables import read_table
from apportion.data.user_keys import sampling_keys
from apportion.errors import InputError
from benchmarks.claim import Outcome, print_table

LISTS, QUICK_LISTS = 1_000_000, 3_000
FILES_EVERY = 500  # one list in so many is written to files and read back
PIECES: Final = ("\0", "a", "b", "A", "é", "e\u0301", "\u212b", "å", " ", "\t", "7", "0", "x" * 33, "😀", "\ufeff", "ß")
WHOLE: Final = (0, 7, 2**11, 2**24, 2**31, 2**53, 2**63 - 2, -(2**63) + 1)
TEXT: Final = np.dtypes.StringDType(coerce=False)

Ids = list[Any]
Seen = Sequence[Any]
"""What a way in takes each id for: its name, or a code."""


def measure(quick: bool) -> Outcome:
    """Send every list through a way in, and compare."""
    n_lists = QUICK_LISTS if quick else LISTS
    start, rng, found = time.monotonic(), random.Random(0), Counter[str]()
    rows: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {"Parquet": _parquet(Path(folder)), "CSV": _text_file(Path(folder))}
        for number in range(n_lists):
            for name, way, ids in _tried(number, rng, files):
                rows.setdefault(name, Counter()).update(_compared(way, ids))
        for number in range(n_lists // 10):
            rows.setdefault("lists to be refused", Counter()).update(_refused(_unfit(number, rng)))
    planted = sum((_compared(_by_numpy, _texts(rng)) for _ in range(min(n_lists, 20_000))), Counter())
    for counts in rows.values():
        found.update(counts)
    names = ("lists", "ids", "merged", "split", "changed")
    print_table(["way in", *names], [[way, *(counts[name] for name in names)] for way, counts in sorted(rows.items())])
    wrong = found["merged"] + found["split"] + found["changed"]
    return Outcome(
        value={name: found[name] for name in names} | {"merged by numpy.unique": planted["merged"]},
        target={"lists": n_lists, "merged": 0, "split": 0, "changed": 0, "merged by numpy.unique": "> 0"},
        holds=wrong == 0 and found["lists"] >= n_lists and planted["merged"] > 0,
        headline=f"{found['lists']:,} generated lists of ids against Python's dictionary, through {len(rows)} ways in: "
        f"{found['merged']} ids merged, {found['split']} split, {found['changed']} changed",
        settings={
            "seed": 0,
            "lists": n_lists,
            "in files": f"one in {FILES_EVERY}",
            "seconds": round(time.monotonic() - start),
        },
    )


def _tried(number: int, rng: random.Random, files: dict[str, Any]) -> list[tuple[str, Callable[[Ids], Seen], Ids]]:
    """Return the ways that one list takes into the library."""
    whole = number % 5 == 0
    ids = _whole_numbers(rng) if whole else _texts(rng)
    ways = _WAYS_OF_NUMBERS if whole else _WAYS_OF_TEXT
    name = rng.choice(tuple(ways))
    tried = [(name, ways[name], ids)]
    if number % FILES_EVERY == 1:
        tried += [(name, way, [each for each in ids if each]) for name, way in files.items() if any(ids)]
    return tried


def _compared(way: Callable[[Ids], Seen], ids: Ids) -> Counter[str]:
    """Count where a way in and Python's dictionary disagree."""
    seen = way(ids)
    pairs = set(zip(ids, seen, strict=True))
    return Counter(
        lists=1,
        ids=len(ids),
        merged=len(pairs) - len(set(seen)),
        split=len(pairs) - len(set(ids)),
        changed=sum(isinstance(one, str) and isinstance(two, str) and one != two for one, two in pairs),
    )


def _refused(ids: Any) -> Counter[str]:
    """Count a list that should not have been taken as a merge."""
    try:
        encode_ids(ids, "users", name="user")
    except InputError:
        return Counter(lists=1, ids=len(ids))
    return Counter(lists=1, ids=len(ids), merged=1)


# -- lists --


def _texts(rng: random.Random) -> Ids:
    """Return text that is easily confused: a common beginning, followed by one of few pieces."""
    stem = "".join(rng.choices(PIECES, k=rng.randrange(3)))
    return [stem + "".join(rng.choices(PIECES, k=rng.randrange(3))) for _ in range(rng.randint(2, 12))]


def _whole_numbers(rng: random.Random) -> Ids:
    """Return integers around those at which narrower types round or wrap."""
    middle = rng.choice(WHOLE)
    return [middle + rng.randint(-1, 1) for _ in range(rng.randint(2, 12))]


def _unfit(number: int, rng: random.Random) -> Any:
    """Return a list in which nobody can tell users apart."""
    text, whole = _texts(rng), _whole_numbers(rng)
    small = [1, 2, *(abs(each) % 1000 for each in whole)]
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: [*text, whole[0]],
        lambda: [*whole, text[0]],
        lambda: [*text, text[0].encode()],
        lambda: [*text, text[0] + "\ud800"],
        lambda: [*small, True],
        lambda: [*small, 2.0],
        lambda: [*text, None],
        lambda: np.array([*small, 2**11 + rng.randrange(9)], np.float16),
        lambda: np.array([*small, 2**24 + rng.randrange(9)], np.float32),
        lambda: np.array([*small, 2**53 + rng.randrange(9)], np.float64),
        lambda: np.array([*small, 2**63 + rng.randrange(9)], np.uint64),
        lambda: [*whole, 2**63 + rng.randrange(9)],
        lambda: [*small, rng.random() + 0.001],
    )
    return kinds[number % len(kinds)]()


# -- ways in --


def _encoded(form: Callable[[Ids], Any]) -> Callable[[Ids], Seen]:
    def way(ids: Ids) -> Seen:
        found = encode_ids(form(ids), "users", name="user")
        return list(found.vocabulary.ids_of(found.codes).tolist())

    return way


def _from_arrays(ids: Ids) -> Seen:
    rows = np.arange(len(ids))
    data = Interactions.from_arrays(ids, rows, task_ids=rows, single_user=True)
    seen = np.empty(len(ids), object)
    seen[data.tasks] = data.user_ids.ids_of(data.users).tolist()
    return list(seen)


def _from_frame(form: Callable[[Ids], Any]) -> Callable[[Ids], Seen]:
    def way(ids: Ids) -> Seen:
        import pyarrow as pa

        data = Interactions.from_frame(pa.table({"user": form(ids), "item": np.arange(len(ids))}), single_user=True)
        seen = np.empty(len(ids), object)
        seen[data.tasks] = data.user_ids.ids_of(data.users).tolist()
        return list(seen)

    return way


def _users(ids: Ids) -> Seen:
    grouping = group_rows(ids, len(ids), single_user=True)
    owners = np.empty(len(ids), np.int64)
    order = np.arange(len(ids)) if grouping.order is None else grouping.order
    owners[order] = np.repeat(np.arange(len(grouping.sizes)), grouping.sizes)
    return list(owners.tolist())


def _vocabulary(ids: Ids) -> Seen:
    names = Vocabulary(list(dict.fromkeys(ids)))
    return [names.id_of(code) for code in names.codes_of(ids).tolist()]


def _sampling_keys(ids: Ids) -> Seen:
    names = Vocabulary(list(dict.fromkeys(ids)))
    return [tuple(pair) for pair in sampling_keys(names)[names.codes_of(ids)].tolist()]


def _by_numpy(ids: Ids) -> Seen:
    """How ids were encoded once: NumPy compares text up to its first NUL."""
    found: Seen = np.unique(np.array(ids, TEXT), return_inverse=True)[1].tolist()
    return found


def _arrow(ids: Ids) -> Any:
    import pyarrow as pa

    return pa.array(ids)


def _parquet(folder: Path) -> Callable[[Ids], Seen]:
    def way(ids: Ids) -> Seen:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        parquet.write_table(pa.table({"user": ids, "v": np.ones(len(ids))}), folder / "rows.parquet")
        users = read_table(folder / "rows.parquet", user="user", columns={"v": "number"}, single_user=True).users
        return list(users.vocabulary.ids_of(users.codes).tolist())

    return way


def _text_file(folder: Path) -> Callable[[Ids], Seen]:
    """A file of text, in which the ids get a letter in front: a bare number is that number however it is written."""

    def way(ids: Ids) -> Seen:
        with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
            writer.writerows([["user", "v"], *([f"u{each}", 1] for each in ids)])
        users = read_table(folder / "rows.csv", user="user", columns={"v": "number"}, single_user=True).users
        names = users.vocabulary.ids_of(users.codes).tolist()
        return [int(name[1:]) if isinstance(each, int) else name[1:] for each, name in zip(ids, names, strict=True)]

    return way


_WAYS: dict[str, Callable[[Ids], Seen]] = {
    "list": _encoded(list),
    "array of objects": _encoded(lambda ids: np.array(ids, object)),
    "Arrow array": _encoded(_arrow),
    "Interactions.from_arrays": _from_arrays,
    "Interactions.from_frame": _from_frame(_arrow),
    "frame with a dictionary": _from_frame(lambda ids: _arrow(ids).dictionary_encode()),
    "users=": _users,
    "Vocabulary": _vocabulary,
    "keys of samples": _sampling_keys,
}
_WAYS_OF_TEXT = _WAYS | {
    "array of text": _encoded(lambda ids: np.array(ids, TEXT)),
    "list of NumPy's text": _encoded(lambda ids: list(map(np.str_, ids))),
}
_WAYS_OF_NUMBERS = _WAYS | {
    "array of integers": _encoded(np.array),
    "list of NumPy's integers": _encoded(lambda ids: list(map(np.int64, ids))),
}
