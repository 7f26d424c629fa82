"""How a party uses its own rows to choose between priors, and between learning alone and with the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.parties.posterior import Learned, Local, SquaredLocal, normalised
from apportion.parties.tasks import FOLDS, TaskRows

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_FAR = 500.0  # log odds beyond this count as certain
_MOSTLY = 0.5  # from this weight on, the prior with few features decides what a party learns alone
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class LearnedAlone(Learned):
    """What all parties learned by themselves.

    Attributes:
        few: each party's weight of the prior that lets a few features stand out.
    """

    few: Floats


def averaged(learned: Sequence[Learned], logs: Sequence[float] | None = None) -> Learned:
    """Average what is learned under several priors by each party's own evidence.

    Args:
        learned: what is learned under each prior.
        logs: log probabilities of the priors beforehand, up to a constant; None if all are equally likely.
    """
    before = np.zeros(len(learned)) if logs is None else np.asarray(logs, np.float64)
    weights, evidence = normalised(np.stack([one.evidence for one in learned], axis=1) + before)
    _, early = normalised(np.stack([one.early for one in learned], axis=1) + before)
    model = np.zeros_like(learned[0].mean)
    for weight, one in zip(weights.T, learned, strict=True):
        model += weight[:, None] * one.mean
    total = np.logaddexp.reduce(before)
    return Learned(model, evidence - total, early - total, learned[0].ratio, learned[0].size)


def learned_alone(local: Local, isotropic: Learned | None = None) -> LearnedAlone:
    """Return what each party learns by itself, under the identity and with a prior that lets a few features stand out.

    Args:
        local: the rows of all parties.
        isotropic: what is learned under the identity, if it is already known.
    """
    own, few = local.learn(None) if isotropic is None else isotropic, local.few()
    if few is None:
        return LearnedAlone(own.mean, own.evidence, own.early, own.ratio, own.size, np.zeros(local.n_tasks))
    both = averaged([own, few])
    share = 1 / (1 + np.exp(np.clip(own.evidence - few.evidence, -_FAR, _FAR)))
    return LearnedAlone(both.mean, both.evidence, both.early, both.ratio, own.size, share)


def weight_of_own(alone: Learned, joint: Learned, chance: float | Floats, lead: Floats | None = None) -> Floats:
    """Return each party's weight for learning alone, by how well each way predicts the later part of its own rows.

    The evidence of all rows would penalise a way of learning for what it did not know at the start. What matters is
    what it knows in the end.

    Args:
        alone: what parties learned by themselves.
        joint: what they learned with the others.
        chance: the prior probability that learning alone is better.
        lead: log odds for the joint model from the rows; None to compute them from `foresight`.
    """
    shown = joint.foresight - alone.foresight if lead is None else lead
    return np.asarray(1 / (1 + np.exp(np.clip(shown + np.log((1 - chance) / chance), -_FAR, _FAR))))


def chance_for_each(alone: LearnedAlone, chance: float) -> Floats:
    """Return the probability that learning alone is better for each party: at least 1/2 if few features stand out.

    In that case, the directions of others add little to what the party's own rows say about its features.

    Args:
        alone: what parties learned by themselves.
        chance: the probability for all others.
    """
    return np.where(alone.few > _MOSTLY, max(chance, 0.5), chance)


def lead_of_joint(local: Local, alone: LearnedAlone, joint: Learned, again: Callable[[Local], Learned]) -> Floats:
    """Return log odds for the joint model, from each party's own rows.

    The evidence of a prior with few features is only a lower bound, and a difference of two bounds may mislead. A party
    that learns mostly under it leaves out folds of its rows instead, and compares how well both ways predict them.

    Args:
        local: the rows of all parties.
        alone: what they learned by themselves.
        joint: what they learned with the others.
        again: learns with the others from other rows.
    """
    lead = joint.foresight - alone.foresight
    chosen = np.flatnonzero(alone.few > _MOSTLY)
    if isinstance(local, SquaredLocal) and len(chosen):
        lead[chosen] = _held_out_lead(local.data.of_tasks(chosen), again)
    return np.asarray(lead)


def _held_out_lead(data: TaskRows, again: Callable[[Local], Learned]) -> Floats:
    """Return ½ n log of the ratio of squared errors on rows that were left out."""
    errors = np.zeros((2, data.n_tasks))
    for fold in range(FOLDS):
        kept, left = data.parted(fold)
        local = SquaredLocal(kept)
        errors += [_squared_errors(left, one.mean) for one in (learned_alone(local), again(local))]
    apart, together = np.maximum(errors, _TINY)
    return np.asarray(0.5 * np.diff(data.indptr) * (np.log(apart) - np.log(together)))


def _squared_errors(data: TaskRows, models: Floats) -> Floats:
    whose = np.repeat(np.arange(data.n_tasks), np.diff(data.indptr))
    left = data.labels - np.einsum("nd,nd->n", data.features, models[whose])
    return np.asarray(np.bincount(whose, np.square(np.clip(left, -1e100, 1e100)), data.n_tasks), np.float64)
