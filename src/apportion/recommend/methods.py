"""Recommenders by description: a table of plain values, as a study file holds it, becomes an estimator.

    {method = "ours"}                      the recommender of this kind, with its own `settings`
    {method = "non-private"}               its limit without privacy
    {method = "statistics", ...}           alternating minimisation by sufficient statistics
    {method = "gradient", ...}             alternating minimisation by gradients

The last two take `allocation = {policy = "adaptive", exponent = 0.25}`, `update = {ridge = 4.0}` and any argument of
`AlternatingMinimisation`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from apportion import allocation
from apportion.errors import InputError
from apportion.privacy import NoiseSource
from apportion.recommend.als import ClickRecommender, RatingRecommender
from apportion.recommend.alternating import AlternatingMinimisation
from apportion.recommend.clicks import ClickSettings, PrivateClickRecommender
from apportion.recommend.ratings import PrivateRatingRecommender, RatingSettings
from apportion.recommend.updates import GradientDescent, SufficientStatistics

POLICIES: Mapping[str, Callable[..., Any]] = {
    "equal split": allocation.EqualSplit,
    "adaptive": allocation.Adaptive,
    "closed form": allocation.ClosedForm,
    "joint": allocation.Joint,
    "uniform sample": allocation.UniformSample,
    "tail sample": allocation.TailSample,
}
UPDATES: Mapping[str, Callable[..., Any]] = {"statistics": SufficientStatistics, "gradient": GradientDescent}
METHODS = ("ours", "non-private", *UPDATES)
_TYPES = {
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "text"),
}


def build(
    spec: Mapping[str, Any],
    kind: str,
    *,
    epsilon: float,
    delta: float,
    noise: NoiseSource | None = None,
    value_range: tuple[float, float] = (1.0, 5.0),
) -> Any:
    """Make the estimator that a table describes.

    Args:
        spec: the table; `method` names the method, the rest are its settings.
        kind: "ratings" or "clicks".
        epsilon: ε of a fit; not used without privacy.
        delta: δ of a fit.
        noise: the noise source; None for the operating system's.
        value_range: the public scale of the values.

    >>> build({"method": "gradient", "allocation": {"policy": "tail sample", "limit": 20}}, "clicks",
    ...       epsilon=1.0, delta=1e-6).allocation
    TailSample(limit=20, releases=1)
    """
    if kind not in ("ratings", "clicks"):
        raise InputError(f"Expected a kind of 'ratings' or 'clicks', got {kind!r}.")
    settings = dict(spec)
    method = settings.pop("method", None)
    common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "noise": noise}
    if kind == "ratings":
        common["value_range"] = value_range
    if method == "ours":
        return _ours(kind, settings, common)
    if method == "non-private":
        twin = RatingRecommender if kind == "ratings" else ClickRecommender
        given = {"value_range": value_range, **settings} if kind == "ratings" else settings
        return _made(f"method {method!r}", twin, given)
    if method in UPDATES:
        parts = {
            "update": _made(f"update of {method!r}", UPDATES[method], settings.pop("update", {})),
            "allocation": _policy(settings.pop("allocation", {})),
        }
        return _made(f"method {method!r}", AlternatingMinimisation, {**settings, **parts, **common, "kind": kind})
    raise InputError(f"Expected a method among {', '.join(METHODS)}, got {method!r}.")


def _ours(kind: str, settings: dict[str, Any], common: dict[str, Any]) -> Any:
    given = settings.pop("settings", {})
    if kind == "ratings":
        chosen = _made("settings", RatingSettings, given) if given else None
        return _made("method 'ours'", PrivateRatingRecommender, {**settings, **common, "settings": chosen})
    clicks = _made("settings", ClickSettings, given) if given else None
    return _made("method 'ours'", PrivateClickRecommender, {**settings, **common, "settings": clicks})


def _policy(spec: Any) -> Any:
    given = dict(_table("allocation", spec))
    name = given.pop("policy", "adaptive")
    if name not in POLICIES:
        raise InputError(f"Expected an allocation policy among {', '.join(POLICIES)}, got {name!r}.")
    return _made(f"policy {name!r}", POLICIES[name], given)


def _made(what: str, make: Callable[..., Any], given: Any) -> Any:
    """Call with these arguments, or say which of them it does not have or what type it wants."""
    known = {name: each.annotation for name, each in inspect.signature(make, eval_str=True).parameters.items()}
    known.pop("releases", None)  # a property of the policy, not a setting
    for name, value in _table(what, given).items():
        if name not in known:
            raise InputError(f"Expected for the {what} only {', '.join(known)}, got {name!r}.")
        _refuse_wrong_type(f"{name} of the {what}", value, known[name])
    return make(**given)


def _refuse_wrong_type(what: str, value: Any, declared: Any) -> None:
    """Refuse a plain value of another type than declared; True is not a number here, and 2.0 is not a whole one."""
    for plain, (accepted, words) in _TYPES.items():
        is_wrong = not isinstance(value, accepted) or (isinstance(value, bool) and plain is not bool)
        if is_wrong and (declared == plain or (declared == plain | None and value is not None)):
            raise InputError(f"Expected {what} to be {words}, got {value!r}.")


def _table(what: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"Expected a table for the {what}, got {given!r}.")
    return given
