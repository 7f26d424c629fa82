"""Recommenders by description: a table of plain values from a study file becomes an estimator.

    {method = "ours"}                      the recommender of this kind, with its own `settings`
    {method = "non-private"}               its limit without privacy

Other packages register their own methods (`registry`); `apportion.published` registers "statistics" and "gradient".
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, get_type_hints

from apportion import registry
from apportion.errors import InputError
from apportion.privacy import NoiseSource
from apportion.recommend.als import ClickRecommender, RatingRecommender
from apportion.recommend.clicks import ClickSettings, PrivateClickRecommender
from apportion.recommend.rating_settings import RatingSettings
from apportion.recommend.ratings import PrivateRatingRecommender

__all__ = ["build", "methods"]

_TYPES = {
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "text"),
}


def methods() -> tuple[str, ...]:
    """Return the names of all methods: the library's own first, then registered ones."""
    return ("ours", "non-private", *registry.registered(registry.METHODS))


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

    >>> build({"method": "ours", "dimension": 4}, "clicks", epsilon=1.0, delta=1e-6).dimension
    4
    """
    if kind not in ("ratings", "clicks"):
        raise InputError(f"Expected kind to be 'ratings' or 'clicks', got {kind!r}.", argument="kind")
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
        return made(f"method {method!r}", twin, given)
    maker = registry.lookup(registry.METHODS, method)
    if maker is None:
        raise InputError(f"Expected one of the methods {', '.join(methods())}, got {method!r}.", argument="method")
    return maker(settings, kind, common)


def _ours(kind: str, settings: dict[str, Any], common: dict[str, Any]) -> Any:
    given = settings.pop("settings", {})
    common = {"items": "from-data", **common}  # a comparison needs one list for all of its methods
    if kind == "ratings":
        chosen = made("settings", RatingSettings, given) if given else None
        return made("method 'ours'", PrivateRatingRecommender, {**settings, **common, "settings": chosen})
    clicks = made("settings", ClickSettings, given) if given else None
    return made("method 'ours'", PrivateClickRecommender, {**settings, **common, "settings": clicks})


def made(what: str, make: Callable[..., Any], given: Any) -> Any:
    """Call with these arguments, or say which of them is unknown or has the wrong type."""
    types = get_type_hints(make.__init__ if isinstance(make, type) else make)  # type: ignore[misc]
    known = {name: types[name] for name in inspect.signature(make).parameters}
    known.pop("releases", None)  # a property of the policy, not a setting
    for name, value in table(what, given).items():
        if name not in known:
            raise InputError(f"Expected only {', '.join(known)} for the {what}, got {name!r}.", argument=None)
        _refuse_wrong_type(f"{name} of the {what}", value, known[name])
    return make(**given)


def _refuse_wrong_type(what: str, value: Any, declared: Any) -> None:
    """Refuse a plain value of another type than declared; True is not a number here, and 2.0 is not a whole number."""
    for plain, (accepted, words) in _TYPES.items():
        is_wrong = not isinstance(value, accepted) or (isinstance(value, bool) and plain is not bool)
        if is_wrong and (declared == plain or (declared == plain | None and value is not None)):
            raise InputError(f"Expected {what} to be {words}, got {value!r}.", argument=None)


def table(what: str, given: Any) -> Mapping[str, Any]:
    """Return what was given if it is a table; otherwise refuse."""
    if not isinstance(given, Mapping):
        raise InputError(f"Expected a table for the {what}, got {given!r}.", argument=None)
    return given
