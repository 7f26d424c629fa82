"""Claim: `apportion serve` against a plain FastAPI service around `implicit`, and against bad requests.

Both serve the same 20,000 item vectors, d = 64, and get the same histories of 30 items, 20 items asked for. 64 clients
ask at once, each as soon as it is answered; clients and the service share the machine's cores, and the two services are
measured in turns. Their answers are compared, too: `implicit` weighs a click by c, ours by c - 1 beside every pair's
weight of 1, so that scores differ by one factor and ranks do not. Then generated bad requests are sent for ten minutes:
the service must not end, must not grow, must answer good requests in between, and must log nothing of any request. The
quick form takes 2,000 items and some seconds, and is no measure of speed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data import Vocabulary
from apportion.recommend import save
from apportion.recommend.model import ClickModel, FoldIn
from benchmarks import bad_requests
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table
from benchmarks.http_clients import Load, as_request, ask_at_once, ask_once

N_ITEMS, DIMENSION, K, CLIENTS = 20_000, 64, 20, 64
CONFIDENCE, REGULARIZATION = 10.0, 5.0
TURNS, SECONDS_A_TURN, SECONDS_OF_BAD = 5, 8.0, 600.0
MOST_GROWTH = 16e6
_PROGRAM = "apportion.cli.main"
_EXAMPLE = "Try it: "  # what the service prints at its start, with an item of the model
TARGET = {"requests_ratio": 1.0, "p99_ratio": 1.0, "same_items": 0.999, "crashes": 0, "growth_mb": MOST_GROWTH / 1e6}


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure speed, then send bad requests."""
    for needed in ("fastapi", "implicit", "uvicorn"):
        if importlib.util.find_spec(needed) is None:
            raise UnavailableError(f"the package `{needed}` is not installed")
    n_items = 2_000 if quick else N_ITEMS
    with tempfile.TemporaryDirectory() as folder:
        speed = against_peer(Path(folder), n_items, 1 if quick else TURNS, 0.4 if quick else SECONDS_A_TURN)
        bad = under_bad_requests(Path(folder), 1.0 if quick else SECONDS_OF_BAD)
    value = {**speed, **bad}
    survived = bool(value["crashes"] == 0 and value["history_in_logs"] == 0 and value["good_refused"] == 0)
    if quick:
        agrees = speed["same_items"] >= TARGET["same_items"] and not speed["failed"]
        return Rehearsal(value, {"both recommend the same items": agrees, "bad requests are survived": survived})
    fast = value["requests_ratio"] >= 1 and value["p99_ratio"] >= 1 and value["same_items"] >= TARGET["same_items"]
    holds = bool(fast and survived and not value["failed"] and value["growth_mb"] <= TARGET["growth_mb"])
    headline = (
        f"Serving {n_items:,} items to {CLIENTS} clients on {len(os.sched_getaffinity(0))} cores: "
        f"{value['requests_a_second']:,.0f} requests a second, {value['requests_ratio']:.1f}x of FastAPI + implicit, "
        f"p99 {1000 * value['p99_seconds']:.0f} ms, {value['p99_ratio']:.1f}x as short; "
        f"{value['bad_requests']:,} bad requests in {SECONDS_OF_BAD / 60:.0f} minutes: {value['crashes']} crashes, "
        f"{value['growth_mb']:.1f} MB of growth, nothing of any request in the log"
    )
    return Outcome(value, TARGET, holds, headline, {"items": n_items, "dimension": DIMENSION, "k": K, "turns": TURNS})


# -- speed --


def against_peer(folder: Path, n_items: int, turns: int, seconds: float) -> dict[str, Any]:
    """Requests a second and p99 of both, each the median over turns."""
    vectors = item_vectors(n_items)
    save(click_model(vectors, list(range(n_items))), folder / "model")
    np.savez(folder / "peer.npz", vectors=vectors, regularization=REGULARIZATION, confidence=CONFIDENCE)
    requests = [as_request({"history": row, "k": K}) for row in histories(n_items)]
    loads: dict[str, list[Load]] = {"ours": [], "peer": []}
    with ours(folder / "model", "--rate", "0") as mine, peer(folder / "peer.npz") as theirs:
        ports = {"ours": mine.port, "peer": theirs.port}
        same = same_items(ports, requests[:200])
        for port in ports.values():
            ask_at_once(port, requests, CLIENTS, min(2.0, seconds))
        for _ in range(turns):
            for name, port in ports.items():
                loads[name].append(ask_at_once(port, requests, CLIENTS, seconds))
    rate, p99 = ({name: median(each, what) for name, each in loads.items()} for what in ("rate", "p99"))
    print_table(["service", "requests/s", "p99 ms"], [[name, rate[name], 1000 * p99[name]] for name in loads])
    return {
        "requests_a_second": round(rate["ours"], 1),
        "requests_ratio": round(rate["ours"] / rate["peer"], 3),
        "p99_seconds": round(p99["ours"], 4),
        "p99_ratio": round(p99["peer"] / p99["ours"], 3),
        "same_items": round(same, 5),
        "failed": sum(load.failed for each in loads.values() for load in each),
    }


def median(loads: list[Load], what: str) -> float:
    """The median of one figure over turns."""
    return float(np.median([getattr(load, what) for load in loads]))


def item_vectors(n_items: int) -> NDArray[np.float32]:
    """Vectors of all lengths up to 1."""
    rng = np.random.default_rng(2)
    directions = rng.standard_normal((n_items, DIMENSION)) / np.sqrt(DIMENSION)
    return np.asarray(directions * rng.uniform(0, 1, (n_items, 1)), np.float32)


def click_model(vectors: NDArray[np.float32], ids: list[Any]) -> ClickModel:
    """The regression of `implicit`: weight 1 for every pair, `CONFIDENCE` for a click."""
    exact = vectors.astype(np.float64)
    base = exact.T @ exact + REGULARIZATION * np.eye(DIMENSION)
    weights = np.full(len(vectors), CONFIDENCE - 1, np.float32)
    return ClickModel(
        fold_in=FoldIn(vectors, weights, base.astype(np.float32), np.zeros(DIMENSION, np.float32)),
        vectors=vectors,
        popularity=np.ones(len(vectors), np.float32),
        reliability=np.ones(len(vectors), np.float32),
        task_ids=Vocabulary(ids),
        statement=None,
    )


def histories(n_items: int) -> list[list[int]]:
    """Items of 500 users."""
    rng = np.random.default_rng(3)
    return [np.sort(rng.choice(n_items, 30, replace=False)).tolist() for _ in range(500)]


def same_items(ports: dict[str, int], requests: list[bytes]) -> float:
    """The part of the items that both recommend in the same place."""
    found = {
        name: [[each["item"] for each in json.loads(ask_once(port, request)[1])["items"]] for request in requests]
        for name, port in ports.items()
    }
    return float(np.mean(np.array(found["ours"]) == np.array(found["peer"])))


# -- bad requests --


def under_bad_requests(folder: Path, seconds: float) -> dict[str, Any]:
    """Send bad requests for so long; what became of the service."""
    ids = [f"{bad_requests.MARK}{k}" for k in range(2_000)]
    save(click_model(item_vectors(2_000), ids), folder / "marked")
    with ours(folder / "marked", "--rate", "0", "--timeout", "5" if seconds > 60 else "0.5") as running:
        counts = asyncio.run(bad_requests.send_for(running.port, seconds / 10, 8, 0))
        before = running.resident()
        counts += asyncio.run(bad_requests.send_for(running.port, seconds * 9 / 10, 8, 1))
        growth = running.resident() - before
        alive = running.process.poll() is None
    print_table(["kind and status", "requests"], sorted(counts.items()))
    return {
        "bad_requests": sum(count for kind, count in counts.items() if not kind.startswith("good")),
        "crashes": int(not alive) + sum(count for kind, count in counts.items() if kind.endswith(" 500")),
        "good_refused": sum(n for kind, n in counts.items() if kind.startswith("good") and kind != "good 200"),
        "growth_mb": round(growth / 1e6, 2),
        "history_in_logs": sum(
            bad_requests.MARK in line for line in running.said.splitlines() if not line.startswith(_EXAMPLE)
        ),
    }


# -- services --


@dataclass
class Running:
    """A service in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    said: str = ""

    def resident(self) -> int:
        """Bytes of memory that are resident."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@contextmanager
def ours(model: Path, *options: str) -> Iterator[Running]:
    """`apportion serve` of a saved model."""
    port = free_port()
    with _running(
        [
            sys.executable,
            "-c",
            f"from {_PROGRAM} import main; main()",
            "serve",
            str(model),
            "--port",
            str(port),
            *options,
        ],
        port,
    ) as found:
        yield found


@contextmanager
def peer(vectors: Path) -> Iterator[Running]:
    """The plain service; `implicit` asks for one thread of BLAS."""
    port, script = free_port(), Path(__file__).with_name("serve_peer.py")
    with _running([sys.executable, str(script), str(vectors), str(port)], port) as found:
        yield found


@contextmanager
def _running(command: list[str], port: int) -> Iterator[Running]:
    """Start a service, wait until it listens, and stop it; what it wrote is kept."""
    with tempfile.TemporaryFile("w+") as said:
        settings = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, text=True, env=settings)
        running = Running(process, port)
        try:
            _wait(running)
            yield running
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            said.seek(0)
            running.said = said.read()


def _wait(running: Running) -> None:
    for _ in range(600):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", running.port)) == 0:
                return
        if running.process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"The service did not start; it ended with {running.process.poll()}.")


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port
