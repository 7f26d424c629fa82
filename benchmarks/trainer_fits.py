"""Claim: the trainer takes what people of PyTorch have, each shown by a test with the real library.

The tests are run here in another process: datasets and loaders, dictionaries and tuples, a loss inside the module,
epochs and batch sizes, a noise multiplier, schedulers (also those that watch a loss), accumulation, callbacks, runs
that stop and go on with the same bits, dropout, autocast in bfloat16, and two processes of torch.distributed. What the
trainer does not take is listed, and the claim does not hold while anything is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.claim import Outcome, Rehearsal, print_table

ROOT = Path(__file__).parents[1]
TESTS = [
    f"tests/training/test_{name}.py"
    for name in ("what_trainers_take", "ordinary_mistakes", "earlier", "dropout", "autocast", "processes")
]
MISSING: tuple[str, ...] = ()


def measure(quick: bool) -> Outcome | Rehearsal:
    """Run the tests."""
    chosen = ["-k", "callbacks or ratchet"] if quick else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, *chosen]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    counts = {name: _count(done.stdout, name) for name in ("passed", "failed", "error")}
    print_table(["tests", "number"], list(counts.items()))
    print(f"not taken yet: {', '.join(MISSING) or 'nothing of the list'}\n")
    good = done.returncode == 0 and counts["passed"] > 0
    if quick:
        return Rehearsal(dict(counts), {"two of the tests pass": good})
    return Outcome(
        value={**counts, "missing": list(MISSING)},
        target={"failed": 0, "error": 0, "missing": []},
        holds=good and not MISSING,
        headline=f"{counts['passed']} tests of what the trainer takes pass, {counts['failed']} fail; missing: "
        + (", ".join(MISSING) or "nothing of the list"),
        settings={"tests": TESTS},
    )


def _count(text: str, name: str) -> int:
    found = re.search(rf"(\d+) {name}", text)
    return int(found.group(1)) if found else 0
