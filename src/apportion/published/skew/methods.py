"""Alternating minimisation from a description in a study file.

    {method = "statistics", ...}           by sufficient statistics (DPALS)
    {method = "gradient", ...}             by gradients (DPSGD)

Both take `allocation = {policy = "adaptive", exponent = 0.25}`, `update = {ridge = 4.0}` and any argument of
`AlternatingMinimisation`. Entry points of the package register both (`apportion.registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from apportion import allocation
from apportion.errors import InputError
from apportion.published.skew.alternating import AlternatingMinimisation
from apportion.published.skew.joint import Joint
from apportion.published.skew.updates import GradientDescent, SufficientStatistics
from apportion.recommend.methods import made, table

POLICIES: Mapping[str, Callable[..., Any]] = {
    "equal split": allocation.EqualSplit,
    "adaptive": allocation.Adaptive,
    "closed form": allocation.ClosedForm,
    "joint": Joint,
    "uniform sample": allocation.UniformSample,
    "tail sample": allocation.TailSample,
}


def by_statistics(settings: Mapping[str, Any], kind: str, common: Mapping[str, Any]) -> AlternatingMinimisation:
    """Return the estimator whose items are updated by sufficient statistics."""
    return _made("statistics", SufficientStatistics, settings, kind, common)


def by_gradient(settings: Mapping[str, Any], kind: str, common: Mapping[str, Any]) -> AlternatingMinimisation:
    """Return the estimator whose items are updated by gradients.

    >>> spec = {"allocation": {"policy": "tail sample", "limit": 20}}
    >>> by_gradient(spec, "clicks", {"epsilon": 1.0, "delta": 1e-6}).allocation
    TailSample(limit=20, releases=1)
    """
    return _made("gradient", GradientDescent, settings, kind, common)


def _made(
    method: str, update: Callable[..., Any], settings: Mapping[str, Any], kind: str, common: Mapping[str, Any]
) -> AlternatingMinimisation:
    given = dict(settings)
    parts = {
        "update": made(f"update of {method!r}", update, given.pop("update", {})),
        "allocation": _policy(given.pop("allocation", {})),
    }
    arguments = {**given, **parts, **common, "kind": kind}
    estimator: AlternatingMinimisation = made(f"method {method!r}", AlternatingMinimisation, arguments)
    return estimator


def _policy(spec: Any) -> Any:
    given = dict(table("allocation", spec))
    name = given.pop("policy", "adaptive")
    if name not in POLICIES:
        raise InputError(
            f"Expected one of the allocation policies {', '.join(POLICIES)}, got {name!r}.", argument="allocation"
        )
    return made(f"policy {name!r}", POLICIES[name], given)
