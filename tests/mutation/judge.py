"""Whether a changed library breaks privacy: a judge with means of its own, written before any mutant was audited.

It uses nothing of `apportion.auditing`. Every scenario is fitted to raw arrays, and again to arrays without one user,
or with other values of one where numbers of rows are public, given what the first fit released. From the hidden values,
the scale of the noise as it was drawn, and the budget, it works out the loss of all releases together by formulas of
its own. A change breaks privacy if that loss exceeds the budget, if the noise is not what was charged for, or if
anything that is published differs.

Run it as `python -m mutation.judge MUTANT`; it prints one line of JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from pathlib import Path

import numpy as np

BREAKS, HOLDS, FAILS = "breaks", "holds", "fails"
DELTA = 1e-5


class Broken(Exception):
    """Privacy is broken, and why."""


# -- what a fit releases --


class Watch:
    """Notes hidden and released values, or gives what another fit released."""

    def __init__(self, first=None):
        self.first, self.seen, self.scales = first, [], []

    def draw(self, plain, session, pending):
        from apportion.privacy.bounded_sum import _KEY

        hidden = np.array(pending.statistic._reveal(_KEY), np.float64)
        spread = getattr(pending.statistic, "_scales", None)
        spread = np.ones(1) if spread is None else np.asarray(spread, np.float64)
        released = plain(session, pending)
        noise = (np.asarray(released, np.float64) - hidden) / spread
        self.seen.append((str(pending.release.name), pending.mechanism.key, hidden, spread, noise, released))
        if self.first is None:
            self.scales.append(drawn_scale(pending, session))
            return released
        if len(self.seen) > len(self.first.seen):
            raise Broken("a neighbour makes more releases")
        name, kind, before, _, _, given = self.first.seen[len(self.seen) - 1]
        if (name, kind, before.shape) != (self.seen[-1][0], self.seen[-1][1], hidden.shape):
            raise Broken(f"a neighbour releases {self.seen[-1][0]} where {name} was released")
        return np.array(given, copy=True)


def watched(fit, arrays, first=None):
    """Run a fit; returns what it publishes, and the watch."""
    from unittest import mock

    from apportion.privacy.session import Session

    watch, plain = Watch(first), Session._draw
    with mock.patch.object(Session, "_draw", lambda session, pending: watch.draw(plain, session, pending)):
        published = fit(arrays)
    return published, watch


# -- what it costs --


def mu_of(epsilon, delta):
    """The μ of Gaussian differential privacy that has this ε and δ, by bisection."""

    def slack(mu):
        tail = [0.5 * math.erfc(x / math.sqrt(2)) for x in (epsilon / mu - mu / 2, epsilon / mu + mu / 2)]
        return tail[0] - math.exp(epsilon) * tail[1]

    low, high = 1e-6, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slack(middle) <= delta else (low, middle)
    return low


def stddev_of(noise):
    """Of the noise as it was drawn; None where there are too few numbers to tell."""
    return float(np.sqrt(np.mean(np.square(noise)))) if noise.size >= 200 else None


def judge_loss(first, second, epsilon):
    """The loss of all releases together, against the budget."""
    squares, pure = 0.0, 0.0
    for one, other, scale in zip(first.seen, second.seen, first.scales, strict=True):
        moved = (one[2] - other[2]) / one[3]
        if one[1] == "laplace":
            pure += float(np.abs(moved).sum()) / scale
        else:
            squares += float(np.square(moved).sum()) / scale**2
    if pure > epsilon * (1 + 1e-6):
        raise Broken(f"the loss is {pure:.4g} where {epsilon} is the budget")
    if squares and math.sqrt(squares) > mu_of(epsilon, DELTA) * (1 + 1e-6):
        raise Broken(f"mu is {math.sqrt(squares):.4g} where {mu_of(epsilon, DELTA):.4g} is the budget")


def judge_noise(watch):
    """Noise has the scale that was charged for, and no two releases share theirs."""
    for at, (name, kind, _, _, noise, _) in enumerate(watch.seen):
        drawn = stddev_of(noise) if kind == "gaussian" else None
        if drawn is not None and drawn < 0.75 * watch.scales[at]:
            raise Broken(f"the noise of {name} has deviation {drawn:.4g} where {watch.scales[at]:.4g} is charged for")
        for other in watch.seen[:at]:
            if noise.shape == other[4].shape and noise.size >= 8 and kind == other[1] == "gaussian":
                a, b = noise.ravel(), other[4].ravel()
                if abs(a @ b) > 0.999 * np.linalg.norm(a) * np.linalg.norm(b) > 0:
                    raise Broken(f"{name} has the noise of {other[0]}")


def judge_published(one, other):
    """What leaves is the same."""
    for name in one:
        same = np.array_equal(one[name], other[name]) if isinstance(one[name], np.ndarray) else one[name] == other[name]
        if not same:
            raise Broken(f"{name} differs between neighbours")


def judge_scenario(fit, arrays, neighbours, epsilon):
    """Fit to data and to each neighbour."""
    published, first = watched(fit, arrays)
    if not first.seen:
        raise Broken("nothing was released")
    judge_noise(first)
    for neighbour in neighbours:
        there, second = watched(fit, neighbour, first)
        if len(second.seen) != len(first.seen):
            raise Broken("a neighbour makes fewer releases")
        judge_loss(first, second, epsilon)
        judge_published(published, there)


def drawn_scale(pending, session):
    """The scale of the noise, or what 4,000 draws of it show, if that is something else."""
    from apportion.privacy import SeededNoise
    from apportion.privacy.mechanisms.mechanism import Opened

    zeros = np.zeros(4000, np.int64 if session.exact else np.float64)
    opened = Opened(zeros, None, pending.statistic.step) if session.exact else Opened(zeros)
    noise = pending.mechanism.draw(opened, pending.scale, SeededNoise(99, exact=session.exact))
    found = float(np.abs(noise).mean() if pending.mechanism.key == "laplace" else np.std(noise))
    return pending.scale if abs(found / pending.scale - 1) < 0.1 else found  # eight standard errors of 4,000 draws


# -- scenarios --


def raw_ratings():
    """Sixty users of forty items; user 0 has all items with contrary values, user 1 the highest value everywhere."""
    rng = np.random.default_rng(8)
    rows = [(0, item, 5.0 if item % 2 else 1.0) for item in range(40)] + [(1, item, 5.0) for item in range(30)]
    for user in range(2, 60):
        chosen = rng.choice(40, size=int(rng.integers(1, 12)), replace=False)
        rows += [(user, int(item), float(rng.integers(1, 6))) for item in chosen]
    users, items, values = (np.array(column) for column in zip(*rows, strict=True))
    return users, items, values


def without(arrays, user):
    """The rows of all other users."""
    kept = arrays[0] != user
    return tuple(column[kept] for column in arrays)


def scenarios(package):
    """(fit, data, neighbours, ε) of every estimator that a package may matter to."""
    from mutation import judged_fits

    return judged_fits.every(package)


def verdict(package):
    """What the judge says of the library as it is imported here."""
    try:
        cases = scenarios(package)
    except Exception:
        return FAILS, traceback.format_exc(limit=1).splitlines()[-1]
    crashed = ""
    for name, fit, arrays, neighbours, epsilon in cases:
        try:
            judge_scenario(fit, arrays, neighbours, epsilon)
        except Broken as why:
            return BREAKS, f"{name}: {why}"
        except Exception as error:
            crashed = f"{name}: {type(error).__name__}"
    return (FAILS, crashed) if crashed else (HOLDS, "")


def main():
    """Judge one mutant, or the library as it is."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from mutation.sources import Mutant, install

    np.seterr(all="ignore")
    mutant = Mutant.parse(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1] else None
    if mutant is not None:
        install(mutant)
    found, why = verdict(mutant.package if mutant else "privacy")
    print(json.dumps({"verdict": found, "why": why[:200]}))


if __name__ == "__main__":
    main()
