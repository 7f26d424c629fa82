"""Claim: exact arithmetic leaves nothing in the last bits, gives one sum in all orders, and costs at most twice.

Four parts. (1) *Bits.* Two neighbouring sums, 0 and 1, at μ = 1. An attacker looks at nothing but the last bits of a
released number. On the plain floating-point sum of value and noise it asks whether the number has bits that 1 + noise
can never have: no false alarm is possible, and it is right as often as the table says, where δ = 1e-5 was promised. The
same attacker, and one trained on the last 16 bits, look at the float path (which rounds to a grid) and at the exact
one. (2) *Orders.* The same Gram matrix, summed in many orders. (3) *Distribution.* Whole numbers drawn at 3 steps
against their exact probabilities by chi-square, at a false-alarm rate of 1e-9; wrong samplers must be seen. (4) *Cost.*
A whole round with a Gram matrix per task on 136,677 x 20,108 with 10 million observations at d = 64: 4.2e7 numbers with
noise, float and exact in turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chisquare, norm

from apportion import linalg
from apportion.auditing.distinguisher import as_matrix, train
from apportion.auditing.likelihood import epsilon_from_statistics
from apportion.privacy import Budget, Rows, Session, SystemNoise
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.gaussian import epsilon_of
from benchmarks import round_vs_implicit, scale
from benchmarks.claim import Outcome, Rehearsal, print_table

MU, DELTA, CONFIDENCE = 1.0, 1e-5, 0.95
FALSE_ALARM = 1e-9
STEPS = 3.0
LOW_BITS = 16
GRID = 2.0**-20  # of a release with noise of standard deviation 1


def measure(quick: bool) -> Outcome | Rehearsal:
    """All four parts."""
    bits = bits_found(20_000 if quick else 400_000)
    orders = orders_found(5 if quick else 50, 20_000 if quick else 500_000)
    fits = distribution_found(200_000 if quick else 20_000_000)
    cost = cost_ratio(quick)
    print_table(
        ["last bits", "told apart", "epsilon of a trained attacker, at least"], [[k, *v] for k, v in bits.items()]
    )
    print_table(["orders tried", "different float sums", "different exact sums"], [orders])
    print_table(["sampler", "p-value"], list(fits.items()))
    print_table(["", "seconds"], [["float round", cost[0]], ["exact round", cost[1]]])
    claimed = epsilon_of(MU, DELTA)
    value = {
        "told apart by bits: plain sum": bits["plain floating-point sum"][0],
        "told apart by bits: exact": bits["exact"][0],
        "epsilon from low bits: exact": bits["exact"][1],
        "different exact sums": orders[2],
        "p-value": fits["ours"],
        "wrong samplers seen": sum(p < FALSE_ALARM for name, p in fits.items() if name != "ours"),
        "cost": round(cost[1] / cost[0], 3),
    }
    target = {
        "told apart by bits: plain sum": "above 0.05, so that the test is one that can fail",
        "told apart by bits: exact": 0.0,
        "epsilon from low bits: exact": f"at most {0.05 * claimed:.3g}, a twentieth of what was promised for all bits",
        "different exact sums": 1,
        "p-value": f"above {FALSE_ALARM:g}",
        "wrong samplers seen": len(fits) - 1,
        "cost": 2.0,
    }
    holds = {
        "bits of a plain sum tell": value["told apart by bits: plain sum"] > 0.05,
        "bits of an exact release do not": value["told apart by bits: exact"] == 0
        and value["epsilon from low bits: exact"] <= 0.05 * claimed,
        "one sum in all orders": value["different exact sums"] == 1,
        "the stated distribution": bool(value["p-value"] > FALSE_ALARM),
    }
    if quick:  # so few draws do not see a wrong sampler, and rounds of milliseconds say nothing of cost
        return Rehearsal(value, holds)
    holds["wrong samplers are seen"] = value["wrong samplers seen"] == len(fits) - 1
    holds["cost"] = value["cost"] <= 2.0
    return Outcome(
        value,
        target,
        all(holds.values()),
        f"an attack on last bits tells {100 * value['told apart by bits: plain sum']:.0f} % of plain floating-point "
        f"sums apart and no exact release; sums are equal in all orders; an exact round costs {value['cost']:.2f}x a "
        "float one",
        {"mu": MU, "delta": DELTA, "rows": {"bits": bits, "orders": orders, "fits": fits, "seconds": cost}},
    )


def bits_found(draws: int) -> dict[str, tuple[float, float]]:
    """Return how often an attacker is sure, and what a trained one proves, from the last bits of three formats."""
    kinds: dict[str, Callable[[float], NDArray[np.float64]]] = {
        "plain floating-point sum": lambda value: value + SystemNoise().normal((draws,), np.float64) / MU,
        "float path, on its grid": lambda value: _released(value, draws, exact=False),
        "exact": lambda value: _released(value, draws, exact=True),
    }
    found = {}
    for name, draw in kinds.items():
        zero, one = draw(0.0), draw(1.0)
        unit = 2.0**-56 if name.startswith("plain") else GRID
        found[name] = (float(np.mean(_impossible_after_one(zero))), _trained(zero, one, unit))
        if _impossible_after_one(one).any():
            raise AssertionError("1 + noise has bits that it cannot have.")
    return found


def _impossible_after_one(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether a number is no multiple of 2^-54, as 1 + noise is wherever it is not tiny, and between 2^-40 and 1/2."""
    within = (np.abs(numbers) > 2.0**-40) & (np.abs(numbers) < 0.5)
    return np.asarray(within & (np.remainder(numbers, 2.0**-54) != 0))


def _trained(zero: NDArray[np.float64], one: NDArray[np.float64], unit: float) -> float:
    """Return a lower bound on ε that a trained distinguisher proves from the last bits alone, from `unit` up."""
    here, there = (as_matrix(_low_bits(numbers, unit)) for numbers in (zero, one))
    half = len(here) // 2
    score = train(here[:half], there[:half], DELTA)
    first, second = score(here[half:]), score(there[half:])
    ways = (
        epsilon_from_statistics(first, second, 1 - CONFIDENCE, DELTA),
        epsilon_from_statistics(-second, -first, 1 - CONFIDENCE, DELTA),
    )
    return float(max(*ways, 0.0))


def _low_bits(numbers: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
    """Return the last bits of numbers, counted in a unit that is a power of two. Larger numbers wrap around."""
    whole = np.floor(np.remainder(numbers, unit * 2.0**LOW_BITS) / unit).astype(np.int64)
    return np.stack([(whole >> k) & 1 for k in range(LOW_BITS)], axis=1).astype(np.float64)


def _released(value: float, draws: int, *, exact: bool) -> NDArray[Any]:
    """Return this many releases of one number. Each coordinate of a sum is drawn by itself."""
    rows = Rows(np.array([[1.0]]), 1.0)
    step = linalg.step_below(1.0)
    counts = np.full(draws, int(value / step), np.int64)
    session = Session(Budget(50.0, DELTA), noise="exact" if exact else "secure")
    statistic = BoundedSum.user_total(counts, rows, step)
    return np.asarray(session.release("numbers", statistic, session.plan(all=(MU / session.budget.mu) ** 2).one("all")))


def orders_found(tries: int, n: int) -> list[int]:
    """Return how many different sums this many orders give: of floating-point numbers, and of whole numbers."""
    rng = np.random.default_rng(0)
    features = (rng.standard_normal((1000, 16)) * 0.1).clip(-1, 1).astype(np.float32)
    indices, weights = rng.integers(0, 1000, n).astype(np.int32), rng.random(n)
    floats, exact = set(), set()
    for _ in range(tries):
        order = rng.permutation(n)
        given = ([0, n], indices[order], features)
        floats.add(linalg.segment_gram(*given, weights=weights[order], dtype=np.float64).tobytes())
        exact.add(linalg.lattice_gram(*given, weights=weights[order], step=2.0**-17).tobytes())
    return [tries, len(floats), len(exact)]


def distribution_found(draws: int) -> dict[str, float]:
    """Return p-values of whole numbers at a standard deviation of 3 steps: for ours, and for three wrong samplers."""
    rng = np.random.default_rng(0)
    support = np.arange(-60, 61)
    masses = np.exp(-(support**2) / (2 * STEPS**2))
    few = min(draws, 4_000_000)
    samplers = {
        "ours": linalg.add_rounded_normals(np.zeros(draws, np.int64), 0, np.array([STEPS]), os.urandom(32)),
        "a discrete Gaussian": rng.choice(support, few, p=masses / masses.sum()),
        "cut off, not rounded": np.trunc(rng.normal(0, STEPS, few)).astype(np.int64),
        "half a per cent too wide": np.rint(rng.normal(0, 1.005 * STEPS, few)).astype(np.int64),
    }
    return {name: _p_value(numbers) for name, numbers in samplers.items()}


def _p_value(numbers: NDArray[np.int64]) -> float:
    reach = 10
    cumulated = np.concatenate([[0.0], norm.cdf((np.arange(-reach, reach) + 0.5) / STEPS), [1.0]])
    counts = np.bincount(numbers.clip(-reach, reach) + reach, minlength=2 * reach + 1)
    return float(chisquare(counts, np.diff(cumulated) * len(numbers)).pvalue)


def cost_ratio(quick: bool) -> tuple[float, float]:
    """Return the seconds of a float round and of an exact one, the fastest of a few, measured in turns."""
    data = scale.clicks(3_000, 500, 60_000) if quick else scale.clicks()
    dimension, repeats = (16, 1) if quick else (round_vs_implicit.DIMENSION, 3)
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repeats):
        for exact in times:
            times[exact].append(round_vs_implicit.gram_round_seconds(data, dimension, exact=exact))
    return min(times[False]), min(times[True])
