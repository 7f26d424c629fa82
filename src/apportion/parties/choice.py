"""How a party uses its own rows to choose between priors, and between learning alone and with the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apportion.parties.posterior import Learned, Local, normalised

Floats = NDArray[np.float64]

_FAR = 500.0  # log odds beyond this count as certain


def averaged(learned: Sequence[Learned]) -> Learned:
    """Average what is learned under several priors, equally likely at first, by each party's own evidence."""
    weights, evidence = normalised(np.stack([one.evidence for one in learned], axis=1))
    _, early = normalised(np.stack([one.early for one in learned], axis=1))
    model = np.zeros_like(learned[0].mean)
    for weight, one in zip(weights.T, learned, strict=True):
        model += weight[:, None] * one.mean
    alike = np.log(len(learned))
    return Learned(model, evidence - alike, early - alike, learned[0].ratio)


def learned_alone(local: Local, isotropic: Learned | None = None) -> Learned:
    """Return what each party learns by itself: under the identity, and with a prior that lets a few features stand out.

    Args:
        local: the rows of all parties.
        isotropic: what is learned under the identity, if it is already known.
    """
    own, few = local.learn(None) if isotropic is None else isotropic, local.few()
    return own if few is None else averaged([own, few])


def weight_of_own(alone: Learned, joint: Learned, chance: float) -> Floats:
    """Return each party's weight for learning alone, by how well either way predicts the later part of its own rows.

    The evidence of all rows would penalise a way of learning for what it did not know at first. What counts is what it
    knows now.

    Args:
        alone: what parties learned by themselves.
        joint: what they learned with the others.
        chance: the prior probability that learning alone is better.
    """
    lead = joint.foresight - alone.foresight + np.log((1 - chance) / chance)
    return np.asarray(1 / (1 + np.exp(np.clip(lead, -_FAR, _FAR))))
