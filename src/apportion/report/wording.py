"""Numbers and guarantees in words a reader can trust: how they are written, and what an ε of some size means.

The attacker here knows everything but one thing: whether one person's data was used, which a fair coin
decided. From a μ-GDP model the best guess is right with probability at most Φ(μ/2) (Dong, Roth and Su 2022,
section 2). The log of the factor by which the odds move is at worst normal with mean μ²/2 and deviation μ, so it
exceeds μ²/2 + μ Φ⁻¹(1 − δ) with probability δ only. (It exceeds ε more often than that: δ bounds how much of the
probability lies beyond e^ε, not how often the odds do.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from apportion.privacy import gaussian
from apportion.privacy.statement import Statement, rounded_up


@dataclass(frozen=True)
class Meaning:
    """What a guarantee is worth, in words and as the attacker's best chance.

    Attributes:
        headline: the guarantee in plain words, no stronger than it is.
        verdict: how far from a coin toss the attacker gets.
        best_guess: largest probability of guessing right whether one person took part.
        odds_factor: what the odds move by at most, except with probability δ.
    """

    headline: str
    verdict: str
    best_guess: float
    odds_factor: str


_GRADES: Final = (
    (
        0.60,
        "Whoever sees this model learns almost nothing about whether any one person’s data was used.",
        "little better than a coin toss",
    ),
    (
        0.75,
        "Whoever sees this model learns only a little about whether any one person’s data was used.",
        "better than a coin toss, and still wrong often",
    ),
    (
        0.90,
        "Whoever sees this model may learn something about whether a person’s data was used, within a limit.",
        "well above a coin toss: a limited protection",
    ),
    (
        1.01,
        "This model is weakly protected: an able attacker could often tell whether a person’s data was used.",
        "close to certainty in the worst case: a weak protection",
    ),
)


def meaning_of(statement: Statement) -> Meaning:
    """Grade a statement by the whole budget's μ, which bounds what was spent however it was spent."""
    mu = gaussian.mu_of(statement.epsilon, statement.delta)
    best_guess = best_guess_of(mu)
    headline, verdict = next((words, grade) for limit, words, grade in _GRADES if best_guess <= limit)
    log_odds = mu**2 / 2 - mu * NormalDist().inv_cdf(statement.delta)
    return Meaning(headline, verdict, best_guess, factor(log_odds))


def best_guess_of(mu: float) -> float:
    """The largest probability of guessing a fair coin right from a μ-GDP output: Φ(μ/2).

    >>> best_guess_of(0.0)
    0.5
    """
    return NormalDist().cdf(mu / 2)


def factor(epsilon: float) -> str:
    """e^ε, rounded up in its last digit so that it stays a bound.

    >>> factor(1.0), factor(8.0), factor(30.0)
    ('2.8', '2,990', '1.1e+13')
    """
    if epsilon > 20:
        exponent = math.floor(epsilon / math.log(10))
        leading = math.ceil(10 * math.exp(epsilon - exponent * math.log(10))) / 10
        return f"{leading:.1f}e+{exponent}"
    unit = 10.0 ** max(-1, math.floor(epsilon / math.log(10)) - 2)
    bound = math.ceil(math.exp(epsilon) / unit) * unit
    return f"{bound:.1f}" if bound < 100 else whole(bound)


def percent(fraction: float) -> str:
    """A fraction as a percentage of about three digits.

    >>> percent(0.5531), percent(0.034), percent(0.00021), percent(0), percent(1)
    ('55.3 %', '3.4 %', '0.021 %', '0 %', '100 %')
    """
    points = 100 * fraction
    if points == 0 or abs(points) >= 99.95:
        return f"{points:.0f} %"
    return f"{points:.1f} %" if abs(points) >= 1 else f"{points:.2g} %"


def number(value: float) -> str:
    """A number of four digits, without an exponent where that reads better.

    >>> number(0.893127), number(12345.6), number(0.0000123), number(3)
    ('0.8931', '12,346', '1.23e-05', '3')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-3 else f"{value:.3g}"


def whole(value: float) -> str:
    """A count with thousands set apart."""
    return f"{value:,.0f}"


def compact(value: float) -> str:
    """A tick label: short, no trailing zeros.

    >>> compact(0.25), compact(1000.0), compact(25000.0), compact(3e6), compact(0.0001)
    ('0.25', '1,000', '25k', '3M', '0.0001')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (10 * size if letter == "k" else size):
            return f"{value / size:g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.10g}" if abs(value) < 1e-4 else f"{value:.4g}"


def shape(dimensions: tuple[int, ...]) -> str:
    """The size of a release."""
    return " × ".join(whole(n) for n in dimensions) or "one number"


def exact(value: float) -> str:
    """A declared number, with all its digits and no others.

    >>> exact(1.0), exact(1e-6), exact(2.5e-5), exact(0.1234567891)
    ('1', '1e-6', '2.5e-5', '0.1234567891')
    """
    digits, mark, exponent = repr(float(value)).removesuffix(".0").partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}" if mark else digits


def bound(value: float) -> str:
    """A bound, rounded up to four digits.

    >>> bound(1.41421356), bound(0.99999), bound(2.0)
    ('1.415', '1', '2')
    """
    shown = rounded_up(value)
    return f"{shown:,.0f}" if shown >= 1000 else f"{shown:.4g}"


def percent_bound(fraction: float) -> str:
    """A bound as a percentage, rounded up to a tenth.

    >>> percent_bound(0.54706), percent_bound(0.5), percent_bound(0.99999)
    ('54.8 %', '50.0 %', '100.0 %')
    """
    return f"{math.ceil(1000 * fraction - 1e-9) / 10:.1f} %"
