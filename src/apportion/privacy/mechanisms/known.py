"""Mechanisms by their key, as a stored statement names them: those of this package and of others.

Another package registers its own mechanisms under the entry point group `apportion.mechanisms`.
"""

from __future__ import annotations

from typing import Any, Final

from apportion import registry
from apportion.errors import InputError
from apportion.privacy.mechanisms.box import Box
from apportion.privacy.mechanisms.exponential import Exponential
from apportion.privacy.mechanisms.gaussian import Gaussian
from apportion.privacy.mechanisms.laplace import Laplace
from apportion.privacy.mechanisms.listed import PointsOfList
from apportion.privacy.mechanisms.looks import FirstLook, SecondLook
from apportion.privacy.mechanisms.mechanism import Mechanism
from apportion.privacy.mechanisms.points import PointsOnLine
from apportion.privacy.mechanisms.sampled import SampledGaussian
from apportion.privacy.mechanisms.thresholded import ThresholdedGaussian, ThresholdedLaplace

_OWN: Final[tuple[type[Mechanism[Any]], ...]] = (
    Gaussian,
    Laplace,
    Box,
    Exponential,
    PointsOnLine,
    PointsOfList,
    SampledGaussian,
    ThresholdedGaussian,
    ThresholdedLaplace,
    FirstLook,
    SecondLook,
)


def mechanism_class(key: str) -> type[Mechanism[Any]]:
    """Return the class of a mechanism by its key. Refuse a key that no installed package has.

    >>> mechanism_class("laplace").__name__
    'Laplace'
    """
    for own in _OWN:
        if own.key == key:
            return own
    result: type[Mechanism[Any]] | None = registry.lookup(registry.MECHANISMS, key)
    if result is None:
        known = ", ".join((*(own.key for own in _OWN), *registry.registered(registry.MECHANISMS)))
        raise InputError(
            f"No installed package has the mechanism {key!r} of this statement; known mechanisms: {known}.",
            argument=None,
        )
    return result
