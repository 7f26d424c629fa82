"""Which tests must notice a mutant: those of its package, and some that look at whole fits, for twenty seconds.

A test that is still running after twenty seconds of one core has not noticed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
SECONDS = 20.0

EVERYWHERE = [
    "engines/conformance/test_sums_over_users.py",
    "recommend/test_replay.py::test_a_user_at_the_bound_moves_every_release_by_nine_tenths_of_it",
    "auditing/test_noise_independence.py::test_no_key_is_used_for_two_draws",
]
"""What looks at whole fits and at every kind of contribution."""

OF_PACKAGE = {
    "privacy": ["privacy/contributions", "privacy/test_session.py", "privacy/test_budget.py",
                "privacy/test_gaussian.py", "privacy/test_mechanisms.py", "privacy/test_sampling.py",
                "privacy/test_keys.py", "privacy/test_ranks.py", "privacy/test_noise_shares.py",
                "privacy/test_task_sums.py"],
    "engines": ["engines/test_processors.py", "privacy/contributions"],
    "allocation": ["allocation"],
    "estimators": ["privacy/test_session.py", "regression/test_replay.py", "statistics/test_mean.py"],
    "recommend": ["recommend/test_replay.py"],
    "statistics": ["statistics/test_covariance.py", "statistics/groups", "statistics/test_mean.py",
                   "statistics/test_quantile.py"],
    "regression": ["regression/test_replay.py", "regression/test_user_erm.py", "regression/test_label_private.py"],
    "parties": ["parties/test_replay.py", "parties/test_channel.py"],
    "training": ["training/test_private_gradients.py", "training/test_rounding.py", "training/test_likelihood.py"],
    "federated": ["federated"],
    "transport": ["transport/test_account.py", "transport/test_desk.py", "transport/test_hostile_questions.py",
                  "transport/test_conditions.py", "transport/test_schema.py", "transport/test_plain.py"],
}  # fmt: skip


_NO_ANSWER = {"noticed": None, "audits": 0, "of": 0, "seconds": 0.0}
"""Of a process that ended or was ended: nobody noticed, to be on the safe side."""


def arguments(names: list[str]) -> list[str]:
    """Of pytest."""
    quiet = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--no-header", "-s"]
    return [*quiet, *dict.fromkeys(str(TESTS / name) for name in names)]


def audit(serve: Callable[[Callable[[str], dict[str, Any]]], None]) -> None:
    """Collect the audits once, and let `serve` have what audits a mutant.

    Args:
        serve: is given a function from the name of a mutant, or of a package as it is, to an answer.
    """
    from mutation.worker import imported

    every = [name for held in OF_PACKAGE.values() for name in held] + EVERYWHERE
    pytest.main(arguments(every), plugins=[_Served(serve, imported())])


class _Served:
    """A plug-in that answers questions in the place of running the tests."""

    def __init__(self, serve: Any, at_import: Any) -> None:
        self._serve, self._at_import = serve, at_import

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer until nobody asks."""
        from mutation.worker import Places

        places = Places(self._at_import, {})
        self._serve(lambda text: _answer(text, session.items, places))
        return True


def _answer(text: str, items: list[Any], places: Any) -> dict[str, Any]:
    """Which test notices a mutant, in a copy of this process; which fails on a package as it is."""
    from mutation import forks
    from mutation.sources import Mutant

    if text in OF_PACKAGE:
        chosen = selected(items, text)
        return forks.in_copy(lambda: first_failing(chosen), SECONDS + 40) or {**_NO_ANSWER, "noticed": "no answer"}
    mutant = Mutant.parse(text)
    codes = places.codes(mutant)
    if codes is None:
        return _answer_alone(text)

    def changed_and_run() -> dict[str, Any]:
        from mutation.worker import changed

        changed(mutant, codes)
        return first_failing(selected(items, mutant.package))

    return forks.in_copy(changed_and_run, SECONDS + 40) or _NO_ANSWER


def selected(items: list[Any], package: str) -> list[Any]:
    """Tests for a mutant of this package, its own first."""
    starts = [f"tests/{name}" for name in (*OF_PACKAGE[package], *EVERYWHERE)]
    by_start = [[item for item in items if item.nodeid.startswith(start)] for start in starts]
    return list(dict.fromkeys(item for held in by_start for item in held))


def first_failing(items: list[Any]) -> dict[str, Any]:
    """Run tests until one fails, or time is up."""
    began = time.process_time()
    for at, item in enumerate(items):
        fails = _fails(item)
        spent = time.process_time() - began
        if fails or spent > SECONDS:
            noticed = item.nodeid if fails and spent <= SECONDS else None
            return {"noticed": noticed, "audits": at + 1, "of": len(items), "seconds": round(spent, 1)}
    return {"noticed": None, "audits": len(items), "of": len(items), "seconds": round(time.process_time() - began, 1)}


def _fails(item: Any) -> bool:
    """Run one test and end all its fixtures."""
    from _pytest.runner import runtestprotocol

    return any(report.failed for report in runtestprotocol(item, nextitem=None, log=False))


def _answer_alone(text: str) -> dict[str, Any]:
    """The same in a process of its own, where modules are imported with the change."""
    command = [sys.executable, "-m", "mutation.audits", text]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return _NO_ANSWER
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"noticed"')]
    return json.loads(lines[-1]) if lines else _NO_ANSWER


class _Alone:
    """A plug-in that stops at the first failure, or after twenty seconds."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.found: dict[str, Any] = {"noticed": "tests cannot be imported", "audits": 0}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run in order."""
        if not session.testsfailed:
            self.found = first_failing(selected(session.items, self._package))
        return True


def main() -> int:
    """Audit one mutant in this process."""
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    from mutation.sources import Mutant, install

    mutant = Mutant.parse(sys.argv[1])
    install(mutant)
    alone = _Alone(mutant.package)
    pytest.main(arguments([*OF_PACKAGE[mutant.package], *EVERYWHERE]), plugins=[alone])
    print("\n" + json.dumps(alone.found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
