"""Bugs of model protection: noise whose support gives a task away, sums that are none, noise upside down, no clip."""

from __future__ import annotations

import math
from functools import cache, partial

import numpy as np

from apportion.linalg.packed import pack
from apportion.privacy import Budget, Rows, accounting
from apportion.privacy.bounded_sum import _KEY, BoundedSum, symmetric_scales
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK
from apportion.privacy.party_sums import PartForm
from apportion.privacy.task_sums import MomentWeights, SizedModels, TaskModels
from apportion.published.model_protection.wishart import WishartPart
from planted.cases import Case, judged, replayed_on
from planted.recommenders import forged

NORM, EPSILON, DELTA = 1.5, 1.0, 1e-3
BUDGET = Budget(EPSILON, 1e-5)

# -- E14: a Wishart matrix of d + 1 degrees of freedom, said to be pure --

WIDTH, SPARE = 3, 30


def wishart_sums(models, rng, draws, *, scale, degrees):
    """Sums of outer products with Wishart noise, one row of d x d numbers a draw."""
    normals = rng.standard_normal((draws, WIDTH, degrees))
    noisy = np.asarray(models).T @ np.asarray(models) + scale * normals @ normals.transpose(0, 2, 1)
    return noisy.reshape(draws, WIDTH * WIDTH)


def contradiction(others, model):
    """How far the model's outer product is from fitting into what the others leave of a released matrix."""
    known = np.asarray(others).T @ np.asarray(others) + np.outer(model, model)
    return lambda row: -float(np.linalg.eigvalsh(row.reshape(WIDTH, WIDTH) - known)[0])


@cache
def honest_scale():
    """The scale with which noise of many degrees of freedom has the budget of ε at δ."""
    budget = Budget(EPSILON, DELTA)
    return NORM**2 * accounting.calibrate(lambda z: [WishartPart(z, SPARE)], budget)


def wishart_case():
    """The published mechanism and ours, for the attacker who knows the other models."""
    others = np.array([[1.0, 0.2, -0.3], [0.1, 0.9, 0.4]])
    model = NORM * np.array([0.6, 0.0, 0.8])
    everybody = np.vstack([others, model])
    attack = contradiction(others, model)

    def wrong():
        published = partial(wishart_sums, scale=NORM**2 / (2 * EPSILON), degrees=WIDTH + 1)
        return judged(published, everybody, others, EPSILON, draws=6000, statistic=attack)

    def honest():
        ours = partial(wishart_sums, scale=honest_scale(), degrees=WIDTH + SPARE - 1)
        return judged(ours, everybody, others, EPSILON, DELTA, draws=6000, statistic=attack)

    return Case("Wishart noise said to be pure", "E14", "tester", wrong, honest)


# -- E14b: WᵀW taken for a sum over tasks --


def relations(models, session, *, honest):
    """Release the products of all pairs of models, with the sensitivity of the diagonal alone or of all entries."""
    held = Rows.clipped(np.asarray(models), NORM)._values
    products = pack(held @ held.T)
    bound = NORM**2 * (math.sqrt(2 * len(models) - 1) if honest else 1.0)
    total = BoundedSum(
        _KEY, products, bound, "products of models", symmetric_scales(products.size), neighbours=ADD_REMOVE_TASK
    )
    return {"relations": session.release("relations", total, session.plan(all=1.0).one("all"))}


# -- E15: the noise of a party for its own rows --

ROW_EPSILON = 0.5


def noisy_models(sign, rng, draws, *, upside_down):
    """A clipped model of length K, in one direction or the opposite, with a long vector of noise."""
    scale = ROW_EPSILON / (2 * NORM) if upside_down else 2 * NORM / ROW_EPSILON
    directions = rng.standard_normal((draws, 2))
    lengths = rng.gamma(2.0, scale, draws)
    noise = directions / np.linalg.norm(directions, axis=1, keepdims=True) * lengths[:, None]
    return np.array([sign * NORM, 0.0]) + noise


def covariance_of_noisy(models, session, *, honest):
    """Release the sum of outer products of models that got noise after they were clipped; clip again, or do not."""
    held = Rows.clipped(np.asarray(models), NORM)._values
    noise = 5 * np.stack([np.random.default_rng(int(1e6 * abs(row[0]))).standard_normal(held.shape[1]) for row in held])
    noisy = held + noise
    rows = TaskModels.clipped(noisy, NORM) if honest else forged(TaskModels, _values=noisy, _norm=NORM)
    total = PartForm(held.shape[1], NORM, ADD_REMOVE_TASK).of(rows)
    return {"sum": session.release("sum", total, session.plan(all=1.0).one("all"))}


# -- the mean beside the second moment --

MOMENTS = MomentWeights(1.0, 0.2)


def moments_of(held):
    return PartForm(held._values.shape[1], NORM, REPLACE_TASK, weights=MOMENTS, equal_lengths=True).of(held)


def moments(models, session, *, honest):
    """Release directions, sizes and outer products, with their bound or that of outer products alone."""
    held = SizedModels.of(np.asarray(models), np.ones(len(models)), NORM, scaled=True)
    right = moments_of(held)
    bound = right.l2_sensitivity if honest else math.sqrt(2) * NORM**2
    total = BoundedSum(_KEY, right._open(), bound, "moments", right._scales, neighbours=REPLACE_TASK, step=right.step)
    return {"moments": session.release("moments", total, session.plan(all=1.0).one("all"))}


def sizes_beyond(models, session, *, honest):
    """Release sizes as parties compute them, cut off at 1 or not."""
    lengths = np.linalg.norm(np.asarray(models), axis=1)
    held = SizedModels.of(np.asarray(models), lengths, NORM, scaled=True)
    if not honest:
        held = forged(SizedModels, _values=held._values, _norm=NORM, _sizes=lengths, _equal_lengths=True)
    total = moments_of(held)
    return {"moments": session.release("moments", total, session.plan(all=1.0).one("all"))}


def moment_cases(models):
    """One task is replaced by its opposite, or by one of another size."""
    opposite = np.vstack([-models[:1] + models[1:2], models[1:]])
    longer = np.vstack([50 * models[:1], models[1:]])
    for name, fit, neighbour in (
        ("a mean beside outer products at their bound", moments, opposite),
        ("sizes of models without a bound", sizes_beyond, longer),
    ):
        wrong, honest = (
            partial(replayed_on, partial(fit, honest=right), models, neighbour, BUDGET, REPLACE_TASK)
            for right in (False, True)
        )
        yield Case(name, "habit", "replay", wrong, honest)


def cases():
    """Every bug of this file."""
    yield wishart_case()
    yield from moment_cases(np.random.default_rng(4).standard_normal((12, 4)) * 5)
    models = np.random.default_rng(3).standard_normal((12, 4)) * 5
    alike = np.tile(models[:1], (12, 1))
    for name, source, fit, data, neighbour in (
        (
            "products of pairs of models as a sum over tasks",
            "E14b",
            relations,
            alike,
            np.vstack([0 * alike[:1], alike[1:]]),
        ),
        ("no clip after noise for rows", "E15", covariance_of_noisy, models, models[1:]),
    ):
        wrong, honest = (
            partial(replayed_on, partial(fit, honest=right), data, neighbour, BUDGET, ADD_REMOVE_TASK)
            for right in (False, True)
        )
        yield Case(name, source, "replay", wrong, honest)
    wrong, honest = (
        partial(judged, partial(noisy_models, upside_down=value), 1.0, -1.0, ROW_EPSILON, draws=20_000)
        for value in (True, False)
    )
    yield Case("noise for rows upside down", "E15", "tester", wrong, honest)
