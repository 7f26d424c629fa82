"""Whether a changed library breaks privacy: a judge with means of its own, written before any mutant was audited.

It uses nothing of `apportion.auditing`, and is frozen before the audits see a mutant: it changes only where a new room
of the library needs a scenario, and then before mutants of that room are drawn. Every scenario is fitted to raw arrays,
and again to arrays without one user, or with other values of one where numbers of rows are public, given what the first
fit released. From the hidden values, the scale of the noise as it was drawn, and the budget, it works out the loss of
all releases together by formulas of its own. A change breaks privacy if that loss exceeds the budget, or the loss of
one release what is charged for it, if the noise is not what was charged for, or if anything that is published differs.

Run it as `python -m mutation.judge MUTANT`; it prints one line of JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

BREAKS, HOLDS, FAILS = "breaks", "holds", "fails"
DELTA = 1e-5
CRASHES = 2  # scenarios that crash before a mutant is given up


class Broken(Exception):
    """Privacy is broken, and why."""


# -- what a fit releases --


class Watch:
    """Notes hidden and released values, or gives what another fit released."""

    def __init__(self, first=None):
        self.first, self.seen, self.scales, self.charged = first, [], [], []

    def draw(self, plain, session, pending):
        from apportion.privacy.bounded_sum import _KEY

        kind, opened = pending.mechanism.key, pending.statistic._reveal(_KEY)
        hidden, spread, given = seen_of(kind, opened), getattr(pending.statistic, "_scales", None), pending.scale
        spread = np.ones(1) if spread is None else np.asarray(spread, np.float64)
        released = plain(session, pending)
        noise = np.zeros(0) if kind in CHOICES else (np.asarray(released, np.float64) - hidden) / spread
        self.seen.append((str(pending.release.name), kind, hidden, spread, noise, released))
        self.charged.append((pending.release.mu, pending.release.epsilon))
        if self.first is None:
            given = drawn_scale(pending, session) if kind not in CHOICES else choice_scale(pending, opened, released)
            self.scales.append(given)
            return released
        if len(self.seen) > len(self.first.seen):
            raise Broken("a neighbour makes more releases")
        name, before_kind, before, _, _, given = self.first.seen[len(self.seen) - 1]
        if (name, before_kind, before.shape) != (self.seen[-1][0], kind, hidden.shape):
            raise Broken(f"a neighbour releases {self.seen[-1][0]} where {name} was released")
        return given if kind in CHOICES else np.array(given, copy=True)


CHOICES = ("gaussian-with-threshold", "laplace-with-threshold", "exponential-on-the-line", "exponential-on-a-list")
"""Mechanisms that do not add noise to an array."""


def seen_of(kind, opened):
    """What is hidden, as the judge compares it: an array, counts by key, or scores by cell."""
    if kind not in CHOICES:
        return np.array(opened, np.float64)
    if kind.startswith("exponential"):
        return Scores([(np.array(cell.edges), np.array(cell.deviations)) for cell in opened])
    return Counts(zip(opened.texts.tolist(), opened.counts.tolist(), strict=True))


class Scores(list):
    """Edges and deviations of each cell."""

    @property
    def shape(self):
        return (len(self),)


class Counts(dict):
    """By key."""

    shape = ()


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
    """The loss of each release against what is charged for it, and of all together against the budget."""
    squares, pure = 0.0, 0.0
    for one, other, scale, charged in zip(first.seen, second.seen, first.scales, first.charged, strict=True):
        lost, is_pure = release_loss(one, other, scale)
        paid = charged[1 if is_pure else 0]
        if paid is not None and lost > paid * (1 + 1e-6):
            raise Broken(f"{one[0]} loses {lost:.8g} where {paid:.8g} is charged")
        pure, squares = (pure + lost, squares) if is_pure else (pure, squares + lost**2)
    if pure > epsilon * (1 + 1e-6):
        raise Broken(f"the loss is {pure:.4g} where {epsilon} is the budget")
    if squares and math.sqrt(squares) > mu_of(epsilon, DELTA) * (1 + 1e-6):
        raise Broken(f"mu is {math.sqrt(squares):.8g} where {mu_of(epsilon, DELTA):.8g} is the budget")


def release_loss(one, other, scale):
    """The ε of one release, or its μ; whether it is an ε."""
    if one[1].startswith("exponential"):
        return sum(choice_loss(*cells, scale) for cells in zip(one[2], other[2], strict=True)), True
    moved = moved_counts(one, other, scale) if one[1] in CHOICES else (one[2] - other[2]) / one[3]
    if one[1].startswith("laplace"):
        return float(np.abs(moved).sum()) / scale, True
    return float(np.linalg.norm(moved)) / scale, False


def choice_loss(one, other, scale):
    """The largest log-ratio of two densities on the line, or of two probabilities on a list."""
    points = np.union1d(one[0], other[0])
    if len(one[0]) == len(one[1]):  # a list
        logs = [-cell[1] / scale - np.logaddexp.reduce(-cell[1] / scale) for cell in (one, other)]
        return float(np.abs(logs[0] - logs[1]).max())
    widths, logs = np.diff(points), []
    wide = widths > 0
    for edges, deviations in (one, other):
        at = deviations[(np.searchsorted(edges, points[:-1], side="right") - 1).clip(0, len(deviations) - 1)]
        scores = -at[wide] / scale
        logs.append(scores - np.logaddexp.reduce(scores + np.log(widths[wide])))
    return float(np.abs(logs[0] - logs[1]).max())


def moved_counts(one, other, scale):
    """How far counts of keys that both have moved; refuses a list that shows keys of one user too often."""
    listed, chance = one[5], 0.0
    alone = [count for key, count in one[2].items() if key not in other[2]]
    tail = (lambda x: 0.5 * math.erfc(x / math.sqrt(2))) if one[1].startswith("gaussian") else laplace_tail
    for count in alone:
        chance = 1 - (1 - chance) * (1 - tail((listed.threshold - count) / scale))
    if chance > DELTA:
        raise Broken(f"a user's own keys are listed with probability {chance:.3g}")
    keys = sorted({*one[2], *other[2]} - {key for key in one[2] if key not in other[2]})
    return np.array([one[2].get(key, 0.0) - other[2].get(key, 0.0) for key in keys])


def laplace_tail(x):
    """Above x, for scale 1."""
    return 0.5 * math.exp(-x) if x >= 0 else 1 - 0.5 * math.exp(x)


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


def judge_scenario(fit, arrays, neighbours, epsilon, honest=()):
    """Fit to data and to each neighbour, or to one if both fits are to the last bit those of the honest library."""
    published, first = watched(fit, arrays)
    if not first.seen:
        raise Broken("nothing was released")
    judge_noise(first)
    as_honest = bool(honest) and same_fit((published, first), honest[0])
    for neighbour in neighbours:
        there, second = watched(fit, neighbour, first)
        if as_honest and same_fit((there, second), honest[1]):
            return
        as_honest = False
        if len(second.seen) != len(first.seen):
            raise Broken("a neighbour makes fewer releases")
        judge_loss(first, second, epsilon)
        judge_published(published, there)


def fits_of(fit, arrays, neighbours, epsilon):
    """The fit to data and that to the first neighbour."""
    del epsilon
    published, first = watched(fit, arrays)
    return (published, first), watched(fit, neighbours[0], first)


def same_fit(one, other):
    """Whether two fits hid, released and published the same, with noise of the same scale."""
    return same((one[0], one[1].seen, one[1].scales), (other[0], other[1].seen, other[1].scales))


def same(one, other):
    """Whether two values are the same to the last bit; whether unknown kinds are is left open, and answered by no."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        plain = one.dtype != object and one.dtype == other.dtype and one.shape == other.shape
        return one.tobytes() == other.tobytes() if plain else same(one.tolist(), other.tolist())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(held, other[key]) for key, held in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__dict__") and not callable(one):
        return same(vars(one), vars(other))
    return bool(one == other)


def drawn_scale(pending, session):
    """The scale of the noise, or what 4,000 draws of it show, if that is something else."""
    from apportion.privacy import SeededNoise
    from apportion.privacy.mechanisms.mechanism import Opened

    zeros = np.zeros(4000, np.int64 if session.exact else np.float64)
    opened = Opened(zeros, None, pending.statistic.step) if session.exact else Opened(zeros)
    noise = pending.mechanism.draw(opened, pending.scale, SeededNoise(99, exact=session.exact))
    found = float(np.abs(noise).mean() if pending.mechanism.key == "laplace" else np.std(noise))
    return pending.scale if abs(found / pending.scale - 1) < 0.1 else found  # eight standard errors of 4,000 draws


def choice_scale(pending, opened, released):
    """The scale with which keys are listed or points are chosen, from draws where they show another."""
    from apportion.privacy import SeededNoise
    from apportion.privacy.mechanisms.mechanism import Opened

    noise = SeededNoise(98)
    if pending.mechanism.key.startswith("exponential"):
        for cell in opened:
            drawn = [pending.mechanism.draw(Opened([cell]), pending.scale, noise) for _ in range(600)]
            points = np.array([each[0] if np.ndim(each) else each for each in drawn], float)
            if furthest_from_law(points, cell, pending.scale) > 0.1:  # 600 draws of the law exceed it once in 1e5
                raise Broken("points are not drawn as was charged for")
        return pending.scale
    if any(
        count < released.threshold for count, known in zip(released.counts, released.known, strict=True) if not known
    ):
        raise Broken("a key below the threshold is listed")
    texts = np.array([f"{k:04}" for k in range(4000)], object)
    zeros = replace(opened, texts=texts, counts=np.zeros(4000), known=np.ones(4000, bool))
    drawn = pending.mechanism.draw(Opened(zeros), pending.scale, noise).counts
    found = float(np.abs(drawn).mean() if pending.mechanism.key.startswith("laplace") else np.std(drawn))
    return pending.scale if abs(found / pending.scale - 1) < 0.1 else found


def furthest_from_law(points, cell, scale):
    """The largest distance of two distribution functions: of points, and by the law on the line or the list."""
    edges, deviations = np.asarray(cell.edges, float), np.asarray(cell.deviations, float)
    if len(edges) == len(deviations):
        masses = np.exp(-(deviations - deviations.min()) / scale)
        theirs = np.array([(points <= edge).mean() for edge in edges])
        return float(np.abs(np.cumsum(masses) / masses.sum() - theirs).max())
    masses = np.diff(edges) * np.exp(-(deviations - deviations.min()) / scale)
    law = np.concatenate([[0.0], np.cumsum(masses)]) / masses.sum()
    theirs = np.array([(points <= edge).mean() for edge in edges])
    return float(np.abs(law - theirs).max())


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


def fitted_scenarios():
    """What is judged by fits, by name: fit, data, neighbours, ε."""
    from mutation import judged_fits, judged_variants

    return {name: rest for name, *rest in (*judged_fits.every(), *judged_variants.every())}


def scenarios(honest=None):
    """What to judge, by name: each is called, and raises `Broken` where privacy is broken.

    Args:
        honest: what `remembered` gave before the library was changed.
    """
    from mutation import judged_federations

    known = honest or {}
    fits = {n: partial(judge_scenario, *rest, known.get(n, ())) for n, rest in fitted_scenarios().items()}
    return {**fits, **judged_federations.every()}


def remembered():
    """Two fits of every scenario by the library as it is."""
    return {name: fits_of(*rest) for name, rest in fitted_scenarios().items()}


def verdict(names=None, honest=None):
    """What the judge says of the library as it is imported here, by all scenarios or by those that are named."""
    try:
        cases = scenarios(honest)
    except Exception:
        return FAILS, traceback.format_exc(limit=1).splitlines()[-1]
    crashed = []
    for name in cases if names is None else names:
        try:
            cases[name]()
        except Broken as why:
            return BREAKS, f"{name}: {why}"
        except Exception as error:
            crashed.append(f"{name}: {type(error).__name__}")
        if len(crashed) == CRASHES:
            break
    return (FAILS, crashed[0]) if crashed else (HOLDS, "")


def main():
    """Judge one mutant, or the library as it is, by all scenarios or by those that are named."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from mutation.sources import Mutant, install

    np.seterr(all="ignore")
    mutant = Mutant.parse(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1] else None
    if mutant is not None:
        install(mutant)
    found, why = verdict(sys.argv[2:] or None)
    print(json.dumps({"verdict": found, "why": why[:200]}))


if __name__ == "__main__":
    main()
