"""Claim: an encoder over a million features trains on 100,000 items without a dense gradient ever being made.

Generated items with 20 of p = 1,000,000 features each, generated ratings; a private fit by protected statistics with a
linear encoder of 16 outputs, in a process of its own. Every gradient that reaches the optimiser is looked at: it must
be sparse, with at most 20 rows per item of its batch. Then training goes on alone, and what it takes over the memory
that is already in use must stay below one dense gradient of p x 16 numbers, which has memory pages of its own and
would be seen.
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.claim import Outcome, print_table

MIB = 2**20
FULL = {"features": 1_000_000, "items": 100_000, "active": 20, "users": 40_000, "per_user": 50, "width": 16}
QUICK = {"features": 1_000_000, "items": 2_000, "active": 20, "users": 500, "per_user": 20, "width": 16}

_FIT = """
import json, sys, time
import numpy as np, torch
from apportion.data import Interactions
from apportion.data.sparse_rows import ColumnRange, SparseRows
from apportion.privacy import SeededNoise
from apportion.published.public_features.encoders import LinearEncoder
from apportion.published.public_features.minimisation import EncoderMinimisation
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.statistics import Surrogate
from apportion.published.public_features.training import EncoderTrainer, Training
from benchmarks.process_memory import forget_peak, peak_bytes, resident_bytes
size = json.loads(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(0)
rng = np.random.default_rng(0)
m, p, k = size["items"], size["features"], size["active"]
rows = SparseRows.from_entries(
    np.repeat(np.arange(m), k), rng.integers(0, p, m * k), np.ones(m * k), m, (ColumnRange("word", 0, p),)
)
users = np.repeat(np.arange(size["users"]), size["per_user"])
tasks = (m * rng.random(len(users)) ** 2).astype(np.int64)
pairs = np.unique(users * m + tasks)
values = rng.integers(1, 6, len(pairs)).astype(np.float32)
data = Interactions.from_arrays(pairs // m, pairs % m, values, task_ids=np.arange(m))
seen = {"steps": 0, "dense": 0, "entries": 0}
taken = torch.optim.SparseAdam.step
def watched(optimiser, *arguments):
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            seen["steps"] += 1
            seen["dense"] += not parameter.grad.is_sparse
            seen["entries"] = max(seen["entries"], parameter.grad._nnz() if parameter.grad.is_sparse else 0)
    return taken(optimiser, *arguments)
torch.optim.SparseAdam.step = watched
training = Training(epochs=3, batch_size=1024)
encoder = LinearEncoder(p, size["width"], sparse=True)
start = time.perf_counter()
EncoderMinimisation(
    5.0, 1e-6, features=rows, update=EncoderStatistics(encoder, training), dimension=size["width"] - 1, rounds=2,
    noise=SeededNoise(0),
).fit(data)
fitted = time.perf_counter() - start
peak = peak_bytes()
trainer = EncoderTrainer(encoder, rows, training)
width = size["width"]
surrogate = Surrogate(np.tile(np.eye(width), (m, 1, 1)), np.ones((m, width)))
trainer.descend(surrogate, 2)
forget_peak()
before = resident_bytes()
start = time.perf_counter()
trainer.descend(surrogate, training.steps(m))
seconds = (time.perf_counter() - start) / training.epochs
print(json.dumps({**seen, "peak": peak, "over": peak_bytes() - before, "fit_s": fitted, "epoch_s": seconds}))
"""


def measure(quick: bool) -> Outcome:
    """Fit, look at the gradients, and measure memory."""
    size = QUICK if quick else FULL
    found = _run(size)
    dense = 4 * size["features"] * size["width"]
    most = size["active"] * 1024
    print_table(
        ["features", "items", "steps", "dense gradients", "most rows", "peak MiB", "training over MiB", "dense MiB"],
        [[size["features"], size["items"], found["steps"], found["dense"], found["entries"], found["peak"] / MIB,
          found["over"] / MIB, dense / MIB]],
    )  # fmt: skip
    clean = found["dense"] == 0 and found["steps"] > 0 and 0 < found["entries"] <= most
    return Outcome(
        value={
            "dense_gradients": found["dense"],
            "rows_of_a_gradient": found["entries"],
            "peak_mib": round(found["peak"] / MIB),
            "training_over_mib": round(found["over"] / MIB, 1),
        },
        target={
            "dense_gradients": 0,
            "rows_of_a_gradient": f"at most {most}",
            "training_over_mib": f"below one dense gradient, {dense / MIB:.0f}",
        },
        holds=clean and found["over"] < dense,
        headline=f"{size['features']:,} features, {size['active']} active in each of {size['items']:,} items, "
        f"{size['width']} outputs: {found['steps']} steps without a dense gradient (each has at most "
        f"{found['entries']:,} of {size['features']:,} rows); peak of the whole fit {found['peak'] / MIB:.0f} MiB; "
        f"training on takes {max(found['over'] / MIB, 0.1):.1f} MiB more at most, where one dense gradient has "
        f"{dense / MIB:.0f}",
        settings={**size, "epsilon": 5.0, "batch_size": 1024, "fit_s": found["fit_s"], "epoch_s": found["epoch_s"]},
    )


def _run(size: dict[str, int]) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", _FIT, json.dumps(size)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"The fit failed: {done.stderr.strip()[-500:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
