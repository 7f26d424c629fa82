"""The Python of the guide runs as it stands there: block after block, each with what the ones before it left."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from apportion.data.synthetic_features import ratings_with_features

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"
BLOCKS = [
    (GUIDE.read_text(encoding="utf-8")[: found.start()].count("\n") + 2, found.group(1))
    for found in re.finditer(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
]
GENRES = ("comedy", "drama", "horror", "western")


def write_movies(folder):
    """The two files that the guide reads: ratings of 300 users, and what is known of 60 movies."""
    rng = np.random.default_rng(0)
    data, _, _ = ratings_with_features(300, 60, 6000, rng=rng)
    rows = zip(data.users, data.tasks, np.clip(np.rint(data.values), 1, 5), strict=True)
    lines = ["user,item,rating", *(f"{user},{item},{value:.0f}" for user, item, value in rows)]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")
    known = [f"{item},{'|'.join(rng.choice(GENRES, 2, replace=False))},{1980 + item % 20}" for item in range(60)]
    (folder / "movies.csv").write_text("\n".join(["item,genres,year", *known]) + "\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the files, as the working folder while the guide runs, and the names that blocks leave."""
    folder, before = tmp_path_factory.mktemp("guide"), Path.cwd()
    write_movies(folder)
    os.chdir(folder)
    yield {"__name__": "guide"}
    os.chdir(before)


@pytest.mark.parametrize(("line", "text"), BLOCKS, ids=[f"line {line}" for line, _ in BLOCKS])
def test_a_block_of_the_guide_runs(place, line, text, capsys):
    if "torch" in text or "Encoder" in text:
        pytest.importorskip("torch")
    exec(compile(text, f"{GUIDE.name}, line {line}", "exec"), place)
    printed = capsys.readouterr().out
    assert bool(printed.strip()) == ("print(" in text)
    assert "nan" not in printed


def test_the_guide_has_blocks():
    assert len(BLOCKS) > 10
