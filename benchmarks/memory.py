"""Claim: what fits take of memory: a CSV of 25M ratings, 10M clicks at d = 64, and 100M ratings in memory.

The first runs `apportion fit` in a process of its own on a generated file: its peak is at most 8 GiB. The second
compares the peak during a fit of 10 million clicks with what the loaded data alone take: at most 1 GiB more. The third
is the peak of a whole process during a fit with the defaults: at most 1.5 times the 12 bytes a rating of the data.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.claim import Outcome, Rehearsal, print_table

ROWS, GIB = 25_000_000, 2**30
LIMITS = {"csv_fit_gib": 8.0, "over_data_gib": 1.0, "over_12_bytes_a_rating": 1.5}
TIMES = 10  # 10M ratings, for the third

_FIT = """
import json, sys
from benchmarks.process_memory import peak_bytes
from apportion.cli.main import main
code = 0
try:
    options = ["--epsilon", "1", "--items", "from-data", "--json"]
    sys.argv = ["apportion", "fit", sys.argv[1], "--out", sys.argv[2], *options]
    main()
except SystemExit as stop:
    code = stop.code or 0
print(json.dumps({"peak": peak_bytes(), "code": code}))
"""

_OVER_DATA = """
import json, sys
from benchmarks import scale
from benchmarks.process_memory import forget_peak, peak_bytes, resident_bytes
from apportion.recommend import ClickSettings, PrivateClickRecommender
shape = [int(n) for n in sys.argv[1:4]]
data = scale.clicks(*shape)
data.by_user, data.by_task
forget_peak()
before = resident_bytes()
PrivateClickRecommender(epsilon=5.0, settings=ClickSettings(dimension=int(sys.argv[4]))).fit(data)
print(json.dumps({"over": peak_bytes() - before}))
"""

_RATINGS = """
import json, sys
from benchmarks import scale
from benchmarks.process_memory import forget_peak, peak_bytes
from apportion.recommend import PrivateRatingRecommender
shape = [int(n) for n in sys.argv[1:4]]
data = scale.repeated(scale.ratings(*shape), int(sys.argv[4]))
data.by_user
forget_peak()
PrivateRatingRecommender(epsilon=1.0).fit(data)
print(json.dumps({"peak": peak_bytes(), "bytes": 12 * data.n_observations}))
"""


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure both peaks."""
    rows = 100_000 if quick else ROWS
    shape = ("2000", "500", "60000", "16") if quick else ("136677", "20108", "10000000", "64")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        write_csv(path, rows)
        size = path.stat().st_size / GIB
        fitted = _run(_FIT, str(path), str(Path(folder) / "model"))
    over = _run(_OVER_DATA, *shape)["over"] / GIB
    ratings = _run(_RATINGS, *shape[:3], "2" if quick else str(TIMES))
    value = {
        "csv_fit_gib": round(fitted["peak"] / GIB, 3),
        "over_data_gib": round(over, 3),
        "over_12_bytes_a_rating": round(ratings["peak"] / ratings["bytes"], 3),
    }
    print_table(
        ["what", "GiB", "limit"],
        [
            [f"peak of `apportion fit` on a CSV of {rows:,} rows ({size:.2f} GiB)", value["csv_fit_gib"], 8.0],
            [f"peak over the data, {shape[2]} observations, d = {shape[3]}", value["over_data_gib"], 1.0],
        ],
    )
    print(f"a fit of {ratings['bytes'] / 12:,.0f} ratings peaks at {value['over_12_bytes_a_rating']} of 12 bytes each")
    holds = fitted["code"] == 0 and all(value[name] <= limit for name, limit in LIMITS.items())
    if quick:
        return Rehearsal(
            value,
            {"a fit from a small CSV ends": fitted["code"] == 0, "and takes below 1 GiB": value["csv_fit_gib"] < 1,
             "and a small fit below 0.1 GiB over its data": value["over_data_gib"] < 0.1},
        )  # fmt: skip
    return Outcome(
        value,
        LIMITS,
        holds,
        f"`apportion fit` on a CSV of {rows:,} ratings peaks at {value['csv_fit_gib']:.2f} GiB; a fit of 10M clicks at "
        f"d = 64 takes {value['over_data_gib']:.2f} GiB over its data; one of 100M ratings peaks at "
        f"{value['over_12_bytes_a_rating']:.2f} times their 12 bytes each",
        {"rows": rows, "shape": shape, "times": TIMES},
    )


def write_csv(path: Path, rows: int, block: int = 1_000_000) -> None:
    """Ratings in the layout of MovieLens, 150 rows a user, whole stars; memory does not depend on their skew."""
    rng = np.random.default_rng(5)
    n_users, n_tasks = max(rows // 150, 20), 20_000
    with path.open("w", encoding="ascii") as out:
        out.write("userId,movieId,rating,timestamp\n")
        for start in range(0, rows, block):
            index = np.arange(start, min(start + block, rows))
            users = index % n_users
            tasks = (users * 31 + index // n_users * 127) % n_tasks  # no pair occurs twice
            stars = 1 + rng.binomial(4, 0.65, len(index))
            times = 1_000_000_000 + index
            lines = np.stack([users, tasks, stars, times], axis=1)
            np.savetxt(out, lines, fmt="%d", delimiter=",")


def _run(code: str, *arguments: str) -> dict[str, float]:
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, cwd=root
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer
