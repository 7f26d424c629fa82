"""How a party chooses between priors, and between learning alone and with the others, by its own rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apportion.parties.posterior import Learned, Local, normalised

Floats = NDArray[np.float64]

_FAR = 500.0  # a log of odds beyond which they are certain


def averaged(learned: Sequence[Learned]) -> Learned:
    """What is learned under several priors that are alike beforehand, by each party's own evidence."""
    weights, evidence = normalised(np.stack([one.evidence for one in learned], axis=1))
    _, early = normalised(np.stack([one.early for one in learned], axis=1))
    model = np.zeros_like(learned[0].mean)
    for weight, one in zip(weights.T, learned, strict=True):
        model += weight[:, None] * one.mean
    alike = np.log(len(learned))
    return Learned(model, evidence - alike, early - alike, learned[0].ratio)


def learned_alone(local: Local, isotropic: Learned | None = None) -> Learned:
    """What each party learns by itself: under the identity, and as if a few features might stand out.

    Args:
        local: everybody's rows.
        isotropic: what is learned under the identity, if it is known already.
    """
    own, few = local.learn(None) if isotropic is None else isotropic, local.few()
    return own if few is None else averaged([own, few])


def weight_of_own(alone: Learned, joint: Learned, chance: float) -> Floats:
    """The weight of learning alone, for each party: by how well either way foretells the later part of its own rows.

    The evidence of all rows would charge a way of learning for what it did not know at first; what counts is what it
    knows by now.

    Args:
        alone: what parties learned by themselves.
        joint: what they learned with the others.
        chance: how likely learning alone is to be the better one beforehand.
    """
    lead = joint.foresight - alone.foresight + np.log((1 - chance) / chance)
    return np.asarray(1 / (1 + np.exp(np.clip(lead, -_FAR, _FAR))))
