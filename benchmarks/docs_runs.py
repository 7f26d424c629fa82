"""Claim: every code block of the documentation runs, and so does every script of the gallery.

Pages are docs/*.md and the folders below, but for what is generated, proofs and decisions. A page's blocks run from top
to bottom in a folder of its own that holds a file of ratings and one of movies: Python blocks with the names that the
ones before them left, and commands of `sh` blocks through the program itself. TOML and JSON blocks are parsed, and
commands that are only shown (`console` blocks) must have options that exist. Then the site is built, where every link
must resolve and every warning counts. The quick form runs two pages and a script, and checks all commands.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.data.synthetic_features import ratings_with_features
from benchmarks.claim import Outcome, Rehearsal, print_table

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GALLERY = DOCS / "gallery_scripts"
NOT_READ = ("_build", "reference", "gallery", "gallery_scripts", "proofs", "decisions")
QUICK = ("start/first-fit.md", "howto/item-lists.md")
GENRES = ("comedy", "drama", "horror", "western")


@dataclass(frozen=True)
class Block:
    """A block of code on a page.

    Attributes:
        page: its path below docs.
        line: where it begins.
        language: as the fence says.
        text: what it holds.
    """

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """The page and the line."""
        return f"{self.page}, line {self.line}"


def pages() -> list[Path]:
    """Return the pages whose blocks run."""
    found = sorted(DOCS.rglob("*.md"))
    return [page for page in found if page.relative_to(DOCS).parts[0] not in NOT_READ]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page that name a language, except those marked `<!-- not run: why -->`."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(DOCS).as_posix()
    return [
        Block(name, text[: found.start()].count("\n") + 2, found.group(1), found.group(2))
        for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if not re.search(r"<!-- not run: \S[^\n]*-->\n$", text[: found.start()])
    ]


def commands(block: Block) -> list[list[str]]:
    """Return the commands of our program in a block, split into words."""
    lines = [line.removeprefix("$ ") for line in block.text.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("apportion ")]


def unknown_options(words: list[str]) -> list[str]:
    """Return the options in a command that the program does not have."""
    command: Any = importlib.import_module("apportion.cli.main").program
    rest = words[1:]
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return [rest[0]]
        command, rest = command.commands[rest[0]], rest[1:]
    known = {"--help", "-h", "--version"} | {name for option in command.params for name in option.opts}
    return [word for word in rest if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]


def write_files(folder: Path) -> None:
    """Write the two files that pages read: ratings of 300 users, and facts about 60 movies."""
    rng = np.random.default_rng(0)
    data, _, _ = ratings_with_features(300, 60, 6000, rng=rng)
    rows = zip(data.users, data.tasks, np.clip(np.rint(data.values), 1, 5), strict=True)
    lines = ["user,item,rating", *(f"{user},{item},{value:.0f}" for user, item, value in rows)]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    known = [f"{item},{'|'.join(rng.choice(GENRES, 2, replace=False))},{1980 + item % 20}" for item in range(60)]
    (folder / "movies.csv").write_text("\n".join(["item,genres,year", *known]) + "\n", encoding="utf-8")


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """Work in a separate folder that holds the files."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def run_block(block: Block, names: dict[str, Any]) -> str:
    """Run or parse a block, with the names that earlier ones left; return what it prints."""
    printed = io.StringIO()
    if block.language == "python":
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, block.place, "exec"), names)
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "sh":
        printed.writelines(_answer(words, block.place) for words in commands(block))
    return printed.getvalue()


def _answer(words: list[str], place: str) -> str:
    """Return what the program prints. Raise an error if it fails."""
    testing: Any = importlib.import_module("click.testing")
    program: Any = importlib.import_module("apportion.cli.main").program
    result = testing.CliRunner().invoke(program, words[1:])
    if result.exit_code:
        raise RuntimeError(f"{place}: `{' '.join(words)}` ended with {result.exit_code}: {result.output[-300:]}")
    return str(result.output)


def run_page(page: Path) -> int:
    """Run all blocks of a page; return how many there were."""
    found = blocks(page)
    with working_folder():
        names: dict[str, Any] = {"__name__": "page"}
        for block in found:
            run_block(block, names)
    return len(found)


def run_script(script: Path) -> None:
    """Run a script of the gallery in a folder of its own."""
    with working_folder(), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(script))


def measure(quick: bool) -> Outcome | Rehearsal:
    """Run pages and scripts; in the quick form a few, and check every command."""
    checked = [words for page in pages() for block in blocks(page) for words in commands(block)]
    wrong = [" ".join(words) for words in checked if unknown_options(words)]
    todo = [DOCS / name for name in QUICK] if quick else pages()
    scripts = sorted(GALLERY.glob("plot_*.py"))[: 1 if quick else None]
    ran, table = 0, []
    for kind, paths, run in (("page", todo, run_page), ("script", scripts, run_script)):
        for path in paths:
            started = time.perf_counter()
            ran += run(path) or 1
            table.append([kind, path.relative_to(DOCS).as_posix(), time.perf_counter() - started])
    print_table(["kind", "what", "seconds"], table)
    value: dict[str, Any] = {"blocks_and_scripts": ran, "commands": len(checked), "wrong_commands": wrong}
    if quick:
        return Rehearsal(value, {"blocks of two pages and a script run": ran > 0, "commands have options": not wrong})
    value["warnings"] = warnings_of_build()
    return Outcome(
        value,
        {"wrong_commands": [], "warnings": 0},
        not wrong and value["warnings"] == 0,
        f"{ran} blocks of code and gallery scripts run; {len(checked)} commands have the options that they name; "
        f"the site builds with {value['warnings']} warnings",
        {"pages": len(todo), "scripts": len(scripts)},
    )


def warnings_of_build() -> int:
    """Build the site and count its warnings; a link that leads nowhere is one."""
    subprocess.run([sys.executable, DOCS / "generate.py"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(DOCS), folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stderr)
    return len(re.findall(r"WARNING|ERROR", done.stderr)) + (done.returncode != 0)
