"""Claim: a new user's first hour. On seventy generated files, `apportion fit` ends well or in one sentence, every time.

Every file is fitted by the command, in an empty folder with a ledger of its own. The outcome must be the expected one:
exit code and words. No try may show a traceback, charge the ledger without a model, or leave half a model behind. The
full form runs the installed command for each file; the quick form runs it inside the process on a third of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from apportion.cli.main import program
from apportion.privacy import Budget, Ledger
from apportion.recommend import load
from benchmarks.claim import Outcome, UnavailableError, print_table
from benchmarks.first_hour_files import DATA, SCENES, Scene

LEDGER, MODEL = "ledger.db", "m"
COMMON = ("--epsilon", "4", "--delta", "1e-6", "--out", MODEL, "--ledger", LEDGER, "--account", "first")
SMALL = ("--dimension", "1", "--rounds", "1")
QUICK_EVERY = 3
LONGEST = 60  # seconds that a try may take
BUDGET = Budget(100.0, 1e-3)


@dataclass(frozen=True)
class Try:
    """What one try did: its exit code, what the terminal showed, its time, and what is wrong with it."""

    code: int
    shown: str
    seconds: float
    wrong: tuple[str, ...]


def measure(quick: bool) -> Outcome:
    """Play every scene."""
    scenes = SCENES[::QUICK_EVERY] if quick else SCENES
    played = [(scene, _play(scene, quick=quick)) for scene in scenes]
    print_table(
        ["file", "exit code", "seconds", "last line", "wrong"],
        [[scene.name, one.code, one.seconds, _last(one.shown), ", ".join(one.wrong)] for scene, one in played],
    )
    wrong = {scene.name: list(one.wrong) for scene, one in played if one.wrong}
    slowest = max(one.seconds for _, one in played)
    value = {
        "files": len(played),
        "taken": sum(one.code == 0 for _, one in played),
        "wrong": wrong,
        "slowest_seconds": round(slowest, 1),
    }
    return Outcome(
        value=value,
        target={"files": len(scenes), "wrong": {}},
        holds=not wrong,
        headline=f"{len(played)} files of a new user: {len(wrong)} with an outcome that should not be",
        settings={
            "command": "fit, inside the process" if quick else "fit, the installed command",
            "budget": COMMON[:4],
        },
    )


def _play(scene: Scene, *, quick: bool) -> Try:
    with tempfile.TemporaryDirectory(prefix="first-hour-") as name:
        folder = Path(name)
        scene.write(folder)
        with Ledger.open(str(folder / LEDGER)) as ledger:
            ledger.create_account("first", BUDGET)
        start = time.monotonic()
        arguments = ["fit", *_unless_given((*COMMON, *SMALL), scene), *scene.arguments]
        code, shown = (_inside if quick else _installed)(arguments, folder)
        return Try(code, shown, time.monotonic() - start, tuple(_wrong(scene, code, shown, folder)))


def _unless_given(options: tuple[str, ...], scene: Scene) -> list[str]:
    """Return options and their values without those that the scene gives itself."""
    pairs = zip(options[::2], options[1::2], strict=True)
    return [word for name, value in pairs if name not in scene.arguments for word in (name, value)]


def _wrong(scene: Scene, code: int, shown: str, folder: Path) -> Iterator[str]:
    """Say what should not be."""
    if code != scene.code:
        yield f"exit code {code}"
    if scene.words not in shown:
        yield f"does not say {scene.words!r}"
    if "Traceback" in shown or "Warning:" in shown.replace("Warning: an epsilon", ""):
        yield "a traceback or a warning of another library"
    spent, whole = _spent(folder), _is_whole(folder)
    if whole != (code == 0):
        yield "half a model" if (folder / MODEL).exists() else "no model"
    if (spent > 0) != (code == 0):
        yield f"epsilon {spent:g} spent"
    if any(each.name.startswith(f".{MODEL}-") for each in folder.iterdir()):
        yield "a temporary folder is left"


def _spent(folder: Path) -> float:
    with Ledger.open(str(folder / LEDGER), create=False) as ledger:
        return float(ledger.account("first").status().spent_epsilon)


def _is_whole(folder: Path) -> bool:
    with contextlib.suppress(Exception):
        return load(folder / MODEL).statement is not None and (folder / MODEL / "report.html").exists()
    return False


def _inside(arguments: list[str], folder: Path) -> tuple[int, str]:
    stdin = (folder / DATA).read_bytes() if "-" in arguments else None
    with contextlib.chdir(folder):
        done = CliRunner().invoke(program, arguments, input=stdin)
    crashed = done.exception is not None and not isinstance(done.exception, SystemExit)
    return done.exit_code, done.output + ("Traceback: " + repr(done.exception) if crashed else "")


def _installed(arguments: list[str], folder: Path) -> tuple[int, str]:
    command = shutil.which("apportion", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if command is None:
        raise UnavailableError("The command apportion is not installed: pip install .")
    stdin = (folder / DATA).read_bytes() if "-" in arguments else b""
    try:
        done = subprocess.run(
            [command, *arguments], cwd=folder, input=stdin, capture_output=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, f"Error: not done after {LONGEST} seconds"
    return done.returncode, (done.stdout + done.stderr).decode()


def _last(shown: str) -> str:
    lines = [line for line in shown.splitlines() if line.startswith("Error: ")] or ["a model"]
    return lines[-1][:90]
