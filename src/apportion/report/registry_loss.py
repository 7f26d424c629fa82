"""The privacy loss of a card for a registry: μ, the whole trade-off curve, and the releases as one DpEvent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any, Final

from apportion.privacy import gaussian
from apportion.privacy.budget import Budget
from apportion.privacy.ledger import GaussianRelease, PureRelease, SelectionRun
from apportion.privacy.ledger.events import Event, ListedRelease, as_dp_event, pair_as_dp_event
from apportion.privacy.statement import rounded_up

_FALSE_ALARMS: Final = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)
_STEPS: Final = (0.25, 0.5, 1.0, 1.5, 2.0)


def loss_in_words(card: Mapping[str, Any]) -> str:
    """Return μ, then ε and δ, then the curve: what an attacker can detect at each rate of false alarms."""
    guarantee = card["guarantee"]
    epsilon, delta = guarantee["epsilon"], guarantee["delta"]
    mu = _mu(card)
    pair = f"(ε, δ) = ({epsilon:g}, {delta:g})" if delta else f"ε = {epsilon:g}, pure: δ is 0"
    lines = [f"{_first(card, mu)} {pair}; spent: ε = {rounded_up(card['spent']['epsilon']):g}.", ""]
    if mu is not None and not _pure(card):
        lines += ["| ε | δ at most |", "|---|---|"]
        points = [(step * epsilon, _delta(step * epsilon, mu, guarantee)) for step in _STEPS]
        lines += [f"| {at:g} | {rounded_up(most, 3):g} |" for at, most in points]
        lines.append("")
    lines += ["| false alarms | detections at most |", "|---|---|"]
    power = _power(card, mu)
    return "\n".join([*lines, *(f"| {at:g} | {min(1.0, rounded_up(power(at), 3)):g} |" for at in _FALSE_ALARMS)])


def dp_event(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that was released as one event, in dp_accounting's terms.

    Releases that are composed numerically become the worst case of all (ε, δ)-DP releases, because the card has their
    sampling rate only in words.
    """
    selection, spent = card["tuning"]["selection"], card["spent"]
    if selection is not None:
        tries = selection["tries"]
        return as_dp_event(SelectionRun(selection["one_try"]["mu"], tries["mean"], tries["law"]))
    if spent["mu"] is None and not _pure(card):
        return pair_as_dp_event(spent["epsilon"], card["guarantee"]["delta"])
    return {"class_name": "ComposedDpEvent", "events": [as_dp_event(_event(each)) for each in card["releases"]]}


def _event(release: Mapping[str, Any]) -> Event:
    pure = release["epsilon"] is not None
    noisy = PureRelease(release["epsilon"]) if pure else GaussianRelease(release["mu"])
    return ListedRelease(noisy, release["keys_delta"]) if release["keys_delta"] else noisy


def _mu(card: Mapping[str, Any]) -> float | None:
    """Return the μ of the whole budget; None if only its (ε, δ) is known."""
    guarantee = card["guarantee"]
    if _pure(card):
        return gaussian.mu_of_pure(guarantee["epsilon"])
    if card["spent"]["mu"] is None:
        return None
    return Budget(guarantee["epsilon"], guarantee["delta"], guarantee["keys_delta"]).mu


def _first(card: Mapping[str, Any], mu: float | None) -> str:
    if mu is None:
        return "No single Gaussian-DP μ describes this composition; what holds is"
    kept = card["guarantee"]["keys_delta"]
    beside = f" beside δ = {kept:.3g} for lists of private keys" if kept else ""
    follows = "which follows from" if _pure(card) else "which is the same as"
    return f"Gaussian-DP μ = {rounded_up(mu):g}{beside}, {follows}"


def _pure(card: Mapping[str, Any]) -> bool:
    """Whether noise uses no part of δ."""
    return bool(card["guarantee"]["delta"] == card["guarantee"]["keys_delta"])


def _delta(epsilon: float, mu: float, guarantee: Mapping[str, Any]) -> float:
    return min(1.0, gaussian.delta_of(epsilon, mu) + float(guarantee["keys_delta"]))


def _power(card: Mapping[str, Any], mu: float | None) -> Callable[[float], float]:
    """Return the most that an attacker can detect, as a function of the rate of false alarms."""
    epsilon, delta = card["guarantee"]["epsilon"], card["guarantee"]["delta"]
    if mu is None or _pure(card):
        odds = math.exp(min(epsilon, 700.0))
        return lambda at: min(1.0, odds * at + delta, 1 - (1 - delta - at) / odds)
    normal, kept = NormalDist(), card["guarantee"]["keys_delta"]
    return lambda at: min(1.0, normal.cdf(normal.inv_cdf(at) + mu) + kept)
