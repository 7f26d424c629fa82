"""One fit gives one list of recommendations: on wide vectors and narrow ones, with one thread and with two.

Every case is a process of its own, because NumPy, OpenBLAS and torch choose their instructions when they are loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from narrow_vectors import environment

THREADS = ("APPORTION_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LEVELS = [level for level in ("avx2", "baseline") if environment(level)]
CASES = [(None, 2), *((level, threads) for level in LEVELS for threads in (1, 2))]
ESTIMATORS = ("private clicks", "private ratings", "clicks", "ratings")
SAME_BITS = ("private clicks", "ratings")  # others leave to BLAS or NumPy what rounding to float32 does not hide
ROUNDING = 1e-5  # far above what a fit in float32 loses, far below what tells two items apart
PROGRAM = Path(__file__).with_name("fit_and_recommend.py")


@cache
def answers(folder, level, threads):
    switches = environment(level) if level else {}
    switches |= dict.fromkeys(THREADS, str(threads))
    out = folder / f"{level}-{threads}.npz"
    subprocess.run([sys.executable, PROGRAM, out], check=True, env=os.environ | switches, timeout=300)
    with np.load(out) as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="module")
def wanted(folder):
    return answers(folder, None, 1)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0] or 'as it is'}, {case[1]} threads")
def found(folder, request):
    return answers(folder, *request.param)


def settled(scores):
    """Places whose score is further from both neighbours' than rounding can move it."""
    apart = scores[:, :-1] - scores[:, 1:] > ROUNDING
    return np.pad(apart[:, :-1], ((0, 0), (1, 0)), constant_values=True) & apart


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kind", ["recommended", "similar"])
def test_items_and_their_order_are_the_same(wanted, found, estimator, kind):
    name = f"{estimator} {kind}"
    places = settled(wanted[f"{name} scores"])
    assert places.mean() > 0.97
    np.testing.assert_array_equal(found[name][:, :-1][places], wanted[name][:, :-1][places])
    np.testing.assert_allclose(found[f"{name} scores"], wanted[f"{name} scores"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("estimator", SAME_BITS)
@pytest.mark.parametrize("kind", ["recommended", "similar"])
def test_private_clicks_and_plain_ratings_give_the_same_bits(wanted, found, estimator, kind):
    for name in (f"{estimator} {kind}", f"{estimator} {kind} scores"):
        np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize("kind", ["recommended", "similar"])
def test_items_with_equal_vectors_stand_in_the_order_of_the_list(wanted, found, kind):
    for answer in (wanted, found):
        scores, items = answer[f"ties {kind} scores"], answer[f"ties {kind}"]
        tied = scores[:, 1:] == scores[:, :-1]
        assert tied.mean() > 0.5
        assert (items[:, 1:] > items[:, :-1])[tied].all()


def test_the_switches_reach_the_process(folder):
    seen = {(level, threads): str(answers(folder, level, threads)["instructions"]) for level, threads in CASES}
    for (level, _), instructions in seen.items():
        assert level is None or instructions in (level, "none")
