"""Which tests must notice a mutant: those that run the function it changes, the shortest first, for twenty seconds.

All audits run once on the library as it is: what each of them runs, how long it takes, and whether it passes. A test
that is still running after twenty seconds of one core has not noticed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mutation.reached import functions_noted

TESTS = Path(__file__).parents[1]
SECONDS = 20.0

AUDITS = [
    "privacy/contributions", "privacy/test_bounds.py", "privacy/test_budget.py", "privacy/test_exact_noise.py",
    "privacy/test_gaussian.py", "privacy/test_keys.py", "privacy/test_mechanisms.py", "privacy/test_noise_shares.py",
    "privacy/test_pure_sessions.py", "privacy/test_ranks.py", "privacy/test_sampling.py", "privacy/test_selection.py",
    "privacy/test_session.py", "privacy/test_task_sums.py", "allocation", "engines/conformance/test_sums_over_users.py",
    "engines/test_on_disk.py", "engines/test_processors.py", "recommend/features/test_replay_with_features.py",
    "recommend/test_click_votes.py", "recommend/test_exact.py", "recommend/test_private_items.py",
    "recommend/test_replay.py", "statistics/groups", "statistics/test_covariance.py", "statistics/test_mean.py",
    "statistics/test_quantile.py", "statistics/test_value_shares.py", "regression/test_replay.py",
    "regression/test_user_erm.py", "regression/test_label_private.py", "regression/test_floor.py",
    "regression/test_task_floor.py", "parties/test_replay.py", "parties/test_channel.py",
    "parties/test_estimator.py", "training/test_private_gradients.py", "training/test_rounding.py",
    "training/test_likelihood.py", "training/test_gradients.py", "training/test_padding.py",
    "training/test_scaling.py", "training/test_trainer.py", "federated", "transport/test_account.py",
    "transport/test_catalogue.py", "transport/test_conditions.py", "transport/test_desk.py",
    "transport/test_hostile_questions.py", "transport/test_plain.py", "transport/test_schema.py",
    "auditing/test_noise_independence.py", "auditing/test_absurd_pasts.py", "auditing/test_whole_fits.py",
    "auditing/test_replay_with_torch.py", "auditing/test_second_fits.py",
]  # fmt: skip
"""Tests of sensitivities, noise, budgets, masks and refusals, and replays of whole fits."""


_NO_ANSWER = {"noticed": None, "audits": 0, "of": 0, "seconds": 0.0}
"""Of a process that ended or was ended: nobody noticed, to be on the safe side."""

Traced = dict[str, dict[str, Any]]
"""By test: the functions it runs, the seconds it takes, and whether it fails on the library as it is."""


def arguments(names: list[str]) -> list[str]:
    """Of pytest."""
    quiet = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--no-header", "-s", "-m", "not slow"]
    return [*quiet, *dict.fromkeys(str(TESTS / name) for name in names)]


def audit(serve: Callable[[Callable[[str], dict[str, Any]]], None], kept: Path) -> None:
    """Collect the audits once, and let `serve` have what audits a mutant.

    Args:
        serve: is given a function from the name of a mutant to an answer; an empty name stands for the library as it
            is.
        kept: where is written down what every test runs.
    """
    from mutation.worker import imported

    pytest.main(arguments(AUDITS), plugins=[_Served(serve, imported(), kept)])


class _Served:
    """A plug-in that answers questions in the place of running the tests."""

    def __init__(self, serve: Any, at_import: Any, kept: Path) -> None:
        self._serve, self._at_import, self._kept = serve, at_import, kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer until nobody asks."""
        from mutation.worker import Places, settled

        settled()
        traced = all_traced(session.items, self._kept)
        places = Places(self._at_import, {name: held["functions"] for name, held in traced.items()})
        self._serve(lambda text: _answer(text, session.items, places, traced))
        return True


def _answer(text: str, items: list[Any], places: Any, traced: Traced) -> dict[str, Any]:
    """Which test notices a mutant, in a copy of this process; which fails on the library as it is."""
    from mutation import forks
    from mutation.sources import Mutant

    if not text:
        failing = [name for name, held in traced.items() if held["fails"]]
        seconds = round(sum(held["seconds"] for held in traced.values()), 1)
        return {"noticed": ", ".join(failing) or None, "audits": len(traced), "of": len(traced), "seconds": seconds}
    mutant = Mutant.parse(text)
    chosen = selected(places.running_function(mutant), traced)
    codes = places.codes(mutant)
    if codes is None:
        return _answer_alone(text, chosen)
    by_name = {item.nodeid: item for item in items}

    def changed_and_run() -> dict[str, Any]:
        from mutation.worker import changed

        changed(mutant, codes)
        return first_failing([by_name[name] for name in chosen])

    return forks.in_copy(changed_and_run, SECONDS + 40) or _NO_ANSWER


def selected(names: list[str], traced: Traced) -> list[str]:
    """Of these tests so many as take twenty seconds, the shortest first."""
    order = sorted(names, key=lambda name: (traced[name]["seconds"], name))
    until = itertools.accumulate(traced[name]["seconds"] for name in order)
    return [name for name, after in zip(order, until, strict=True) if after <= SECONDS]


def first_failing(items: list[Any]) -> dict[str, Any]:
    """Run tests until one fails, or time is up."""
    began = time.process_time()
    for at, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
        fails = _fails(item, following)
        spent = time.process_time() - began
        if fails or spent > SECONDS:
            noticed = item.nodeid if fails and spent <= SECONDS else None
            return {"noticed": noticed, "audits": at + 1, "of": len(items), "seconds": round(spent, 1)}
    return {"noticed": None, "audits": len(items), "of": len(items), "seconds": round(time.process_time() - began, 1)}


def _fails(item: Any, following: Any) -> bool:
    """Run one test and end its fixtures, except those that the test after it uses as well."""
    from _pytest.runner import runtestprotocol

    return any(report.failed for report in runtestprotocol(item, nextitem=following, log=False))


# -- what every test runs --


def all_traced(items: list[Any], kept: Path) -> Traced:
    """What every test runs; files that have not changed are not run again."""
    held = _kept(kept)
    by_file: dict[Path, list[Any]] = defaultdict(list)
    for item in items:
        by_file[item.path].append(item)
    for path, inside in by_file.items():
        now = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        if any(held.get(item.nodeid, {}).get("file") != now for item in inside):
            held.update(_traced_file(inside, now, kept))
    return {item.nodeid: held[item.nodeid] for item in items}


def _kept(kept: Path) -> Traced:
    lines = kept.read_text().splitlines() if kept.exists() else []
    return {str(name): told for line in lines for name, told in json.loads(line).items()}


def _traced_file(items: list[Any], now: str, kept: Path) -> Traced:
    """Run the tests of a file in a copy of this process."""
    from mutation import forks

    missing = {"file": now, "functions": [], "seconds": 0.0, "fails": True}
    found: Traced = forks.in_copy(lambda: _traced_tests(items, now), 600) or {each.nodeid: missing for each in items}
    with kept.open("a") as file:
        file.write(json.dumps(found) + "\n")
    return found


def _traced_tests(items: list[Any], now: str) -> Traced:
    told: Traced = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        functions: set[str] = set()
        began = time.process_time()
        with functions_noted(functions):
            fails = _fails(item, following)
        seconds = round(time.process_time() - began, 3)
        told[item.nodeid] = {"file": now, "functions": sorted(functions), "seconds": seconds, "fails": fails}
    return told


# -- mutants of what runs while modules are imported --


def _answer_alone(text: str, chosen: list[str]) -> dict[str, Any]:
    """The same in a process of its own, where modules are imported with the change."""
    command = [sys.executable, "-m", "mutation.audits", text]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, input=json.dumps(chosen))
    except subprocess.TimeoutExpired:
        return _NO_ANSWER
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"noticed"')]
    return json.loads(lines[-1]) if lines else _NO_ANSWER


class _Alone:
    """A plug-in that stops at the first failure, or after twenty seconds."""

    def __init__(self, chosen: list[str]) -> None:
        self._chosen = chosen
        self.found: dict[str, Any] = {"noticed": "tests cannot be imported", "audits": 0}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run in order."""
        by_name = {item.nodeid: item for item in session.items}
        if not session.testsfailed:
            self.found = first_failing([by_name[name] for name in self._chosen if name in by_name])
        return True


def main() -> int:
    """Audit one mutant in this process, by the tests that are listed on standard input."""
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    from mutation.sources import Mutant, install

    chosen = json.load(sys.stdin)
    install(Mutant.parse(sys.argv[1]))
    alone = _Alone(chosen)
    files = dict.fromkeys(name.split("::")[0] for name in chosen)
    os.chdir(TESTS.parent)
    if files:
        pytest.main(arguments([name.removeprefix("tests/") for name in files]), plugins=[alone])
    else:
        alone.found = dict(_NO_ANSWER)
    print("\n" + json.dumps(alone.found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
