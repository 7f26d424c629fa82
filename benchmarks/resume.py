"""Claim: a fit that is killed at any instant goes on to the same model, and no release is drawn twice on one charge.

`apportion fit --checkpoint` runs in a process of its own, with a seeded source and a ledger, on users on disk and in
memory. The process is killed (kill -9) at a random instant; the same command is given again, and so on. At the end the
model must be that of a fit that nobody killed, byte for byte. Every draw is noted by the process itself before its
value is returned. For every release: draws <= charges. For every kill: at most one release is charged once more.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.privacy.checkpoints import VARIABLE
from apportion.privacy.ledger.keys import LedgerKey
from benchmarks.claim import Outcome, print_table

KILLS, QUICK_KILLS = 200, 4
KILLS_OF_A_FIT = 10  # before it is left alone
SHAPE = (500, 100, 8000)
QUICK_SHAPE = (200, 40, 3000)
MOST_RELEASES_ON, AFTER_IT_IS_BEGUN = 6, 0.003  # releases after those that are stored; seconds
SEED = 3


def measure(quick: bool) -> Outcome:
    """Kill fits until there are enough kills."""
    wanted, rng = QUICK_KILLS if quick else KILLS, np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as elsewhere:
        os.environ[VARIABLE] = LedgerKey.create(Path(elsewhere) / "key").place
        folder = Path(place)
        data = _data(folder, QUICK_SHAPE if quick else SHAPE)
        wholes = {path: _whole(folder, path) for path in data}
        found: list[dict[str, Any]] = []
        while sum(each["kills"] for each in found) < wanted:
            path = data[len(found) % len(data)]
            kills = min(KILLS_OF_A_FIT, wanted - sum(each["kills"] for each in found))
            found.append(_killed(folder, len(found), path, kills, wholes[path], rng))
    del os.environ[VARIABLE]
    rows = [[each[name] for name in ("data", "kills", "stored", "again", "same", "excess")] for each in found]
    print_table(["data", "kills", "releases stored at each", "charged again", "same model", "draws over charges"], rows)
    return _outcome(found, quick)


def _outcome(found: list[dict[str, Any]], quick: bool) -> Outcome:
    kills = sum(each["kills"] for each in found)
    value = {
        "kills": kills,
        "other_models": sum(not each["same"] for each in found),
        "most_charged_again_a_kill": max(each["again"] / each["kills"] for each in found),
        "draws_over_charges": sum(each["excess"] for each in found),
        "charged_again": sum(each["again"] for each in found),
    }
    holds = not value["other_models"] and not value["draws_over_charges"] and value["most_charged_again_a_kill"] <= 1
    return Outcome(
        value=value,
        target={"other_models": 0, "draws_over_charges": 0, "most_charged_again_a_kill": 1},
        holds=holds and kills >= (QUICK_KILLS if quick else KILLS),
        headline=f"{len(found)} fits killed {kills} times: {value['other_models']} other models, "
        f"{value['charged_again']} releases charged a second time, "
        f"{value['draws_over_charges']} draws without a charge",
        settings={"seed": SEED, "ratings": (QUICK_SHAPE if quick else SHAPE)[2], "engines": ["memory", "disk"]},
    )


def _data(folder: Path, shape: tuple[int, int, int]) -> list[Path]:
    """A file of ratings, and the same as a folder of users."""
    made, _ = long_tailed_ratings(*shape, rank=2, rng=np.random.default_rng(1), stars="whole")
    csv, users = folder / "ratings.csv", folder / "users"
    csv.write_text(_csv(made), encoding="utf-8")
    _run_program(["shard", str(csv), "--out", str(users), "--rows-per-shard", str(shape[2] // 3)], None, None)
    return [csv, users]


def _csv(data: Interactions) -> str:
    rows = zip(data.users.tolist(), data.tasks.tolist(), data.values.tolist(), strict=True)
    return "user,item,rating\n" + "".join(f"{user},{item},{value}\n" for user, item, value in rows)


def _whole(folder: Path, path: Path) -> tuple[float, bytes]:
    """How long a fit takes that nobody kills, and its model."""
    name = f"whole-{path.name}"
    start = time.perf_counter()
    assert _run_program(_fit(folder, name, path), folder / name, None) == 0
    return time.perf_counter() - start, (folder / name / "model.safetensors").read_bytes()


def _killed(
    folder: Path, number: int, path: Path, kills: int, whole: tuple[float, bytes], rng: np.random.Generator
) -> dict[str, Any]:
    """Kill one fit several times, then leave it alone; return what was seen."""
    name, stored, done = f"fit-{number}", [], 0
    while done < kills:
        until = _instant(folder / f"{name}-checkpoint", whole[0], rng)
        code = _run_program(_fit(folder, name, path), folder / name, until)
        if code == -signal.SIGKILL:
            done += 1
            stored.append(len(list((folder / f"{name}-checkpoint").glob("*.release"))))
        elif code:
            raise AssertionError(f"The program ended with exit code {code}.")
    assert _run_program(_fit(folder, name, path), folder / name, None) == 0
    charges, draws = _charges(folder / f"{name}.db"), _draws(folder / name)
    statement = json.loads((folder / name / "statement.json").read_text(encoding="utf-8"))
    return {
        "data": path.name,
        "kills": done,
        "stored": " ".join(map(str, stored)),
        "again": sum(charges.values()) - len(statement["releases"]),
        "same": (folder / name / "model.safetensors").read_bytes() == whole[1],
        "excess": sum(max(count - charges[release], 0) for release, count in draws.items()),
    }


def _instant(checkpoint: Path, seconds: float, rng: np.random.Generator) -> Callable[[], bool]:
    """A random instant: any time of a fit or, as often, just when some release is being drawn and stored."""
    start, within = time.perf_counter(), float(rng.uniform(0, seconds))
    if rng.random() < 0.5:
        return lambda: time.perf_counter() - start >= within
    begun = len(list(checkpoint.glob("*.begun"))) + int(rng.integers(1, MOST_RELEASES_ON))
    late = float(rng.uniform(0, AFTER_IT_IS_BEGUN))

    def reached() -> bool:
        if len(list(checkpoint.glob("*.begun"))) < begun:
            return False
        time.sleep(late)
        return True

    return reached


def _fit(folder: Path, name: str, path: Path) -> list[str]:
    from apportion.privacy import Budget, Ledger

    url = folder / f"{name}.db"
    if not url.exists():
        with Ledger.open(url) as ledger:
            ledger.create_account("ratings", Budget(100.0, 1e-3))
    return [
        "fit", str(path), "--epsilon", "5", "--seed", "1", "--rounds", "4", "--dimension", "2", "--items", "from-data",
        "--ledger", str(url), "--account", "ratings", "--checkpoint", str(folder / f"{name}-checkpoint"),
        "--out", str(folder / name),
    ]  # fmt: skip


def _charges(url: Path) -> Counter[str]:
    from apportion.privacy import Ledger

    with Ledger.open(url) as ledger:
        return Counter(entry.name for entry in ledger.account("ratings").history())


def _draws(target: Path) -> Counter[str]:
    return Counter(target.with_suffix(".draws").read_text(encoding="utf-8").splitlines())


def _run_program(arguments: list[str], target: Path | None, until: Callable[[], bool] | None) -> int:
    """Run the program in a child, which starts with all modules loaded; kill it when it is time."""
    import apportion.cli.main
    import apportion.recommend  # noqa: F401 - loaded before the fork, so that a child begins with its work

    child = os.fork()
    if not child:
        _become_program(arguments, target)
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while until is not None and os.waitid(os.P_PID, child, ended) is None:
        if until():
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.0005)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become_program(arguments: list[str], target: Path | None) -> None:
    """Be the program, and end with its exit code. Draws are noted."""
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if target is not None:
            _note_draws(target.with_suffix(".draws"))
        from apportion.cli.main import program

        program(arguments, standalone_mode=False)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    finally:
        os._exit(code)


def _note_draws(path: Path) -> None:
    """Write the name of every release to a file as it is drawn."""
    from apportion.privacy import Session
    from apportion.privacy.charges import Pending

    draw = Session._draw

    def noted(self: Session, pending: Pending) -> Any:
        drawn = draw(self, pending)
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(pending.release.name + "\n")
        return drawn

    Session._draw = noted  # type: ignore[method-assign]
