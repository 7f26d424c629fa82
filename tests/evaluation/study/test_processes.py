"""Several processes: the same figures as with one, no more threads than processors, and Ctrl-C ends them all."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apportion.evaluation import run_study
from apportion.evaluation.study.processes import processors, threads_for
from small_studies import OURS, Counting, figures, study, unit_files


def test_two_processes_give_the_same_figures_as_one(ratings, tmp_path):
    one = run_study(study(), ratings, tmp_path / "one")
    two = run_study(study(), ratings, tmp_path / "two", processes=2)
    assert figures(one) == figures(two)
    assert [file.name for file in unit_files(tmp_path / "one")] == [file.name for file in unit_files(tmp_path / "two")]


INTERRUPTED = """
import sys, numpy as np
from apportion.data import synthetic
from apportion.evaluation import Study, run_study
data, _ = synthetic.long_tailed_ratings(200, 30, 2500, rank=2, rng=np.random.default_rng(1), stars="whole")
table = {"data": {"kind": "ratings"}, "budgets": {"epsilon": [8], "seeds": list(range(200))},
         "methods": [{"method": "ours", "dimension": 2, "rounds": 2}, {"method": "non-private", "epochs": 10**9}]}
run_study(Study.from_table(table), data, sys.argv[1], processes=2)
"""


def test_ctrl_c_ends_all_processes_and_leaves_whole_files(ratings, tmp_path):
    """One of the fits would take days: it has to be ended, not waited for."""
    folder = tmp_path / "s"
    command = [sys.executable, "-c", INTERRUPTED, str(folder)]
    running = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    give_up = time.monotonic() + 60
    while len(unit_files(folder)) < 3 and running.poll() is None and time.monotonic() < give_up:
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    try:
        assert running.wait(timeout=120) != 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    finished = unit_files(folder)
    assert 3 <= len(finished) < 200
    assert all("evaluation" in json.loads(file.read_text()) for file in finished)
    time.sleep(0.2)
    assert unit_files(folder) == finished  # nobody works on
    counting = Counting()
    asked = study(budgets={"epsilon": [8], "seeds": list(range(len(finished) + 5))}, methods=[OURS])
    run_study(asked, ratings, folder, build=counting)
    seeds = {json.loads(file.read_text())["unit"]["seed"] for file in finished}
    assert {seed for _, _, seed in counting.fits} == set(range(len(finished) + 5)) - seeds


def workers_of(process):
    """The processes that it started, but for the one with which Python keeps track of resources."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [child for child in children if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found as on Linux")
def test_workers_leave_ctrl_c_to_their_parent_from_the_beginning(tmp_path):
    """One that is interrupted while it imports prints a traceback, and others wait for ever."""
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "s")]
    running = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    give_up = time.monotonic() + 60
    try:
        while len(workers_of(running)) < 2 and time.monotonic() < give_up:
            time.sleep(0.01)
        statuses = [Path(f"/proc/{worker}/status").read_text() for worker in workers_of(running)]
        os.killpg(running.pid, signal.SIGINT)
        said = running.communicate(timeout=60)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    masks = [int(line.split()[1], 16) for each in statuses for line in each.splitlines() if line.startswith("SigBlk")]
    assert len(masks) == 2
    assert all(mask & 1 << (signal.SIGINT - 1) for mask in masks)
    assert "KeyboardInterrupt" in said
    assert "spawn_main" not in said


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found as on Linux")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    folder = tmp_path / "s"
    running = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(folder)], start_new_session=True)
    give_up = time.monotonic() + 60
    try:
        while not unit_files(folder) and time.monotonic() < give_up:
            time.sleep(0.01)
        workers = [Path(f"/proc/{worker}/status") for worker in workers_of(running)]
        running.kill()
        running.wait()
        give_up = time.monotonic() + 15
        while any(map(is_at_work, workers)) and time.monotonic() < give_up:
            time.sleep(0.01)
        assert len(workers) == 2
        assert not any(map(is_at_work, workers))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


def is_at_work(status):
    try:
        return "State:\tZ" not in status.read_text()
    except OSError:
        return False


def test_processes_together_use_no_more_threads_than_there_are_processors():
    before = dict(os.environ)
    for processes in range(1, processors() + 1):
        with threads_for(processes):
            assert 1 <= int(os.environ["APPORTION_THREADS"]) * processes <= processors()
    assert dict(os.environ) == before
