"""Numbers and guarantees in words that a reader can trust: how they are written, and what an ε means.

The attacker here knows everything except one thing: whether one person's data was used, which a fair coin decided. From
a μ-GDP model, the best guess is right with probability at most Φ(μ/2) (Dong, Roth and Su 2022, section 2). The
logarithm of the factor by which the odds move is at worst normal with mean μ²/2 and standard deviation μ, so it exceeds
μ²/2 + μ Φ⁻¹(1 − δ) only with probability δ. (It exceeds ε more often: δ bounds how much probability lies beyond e^ε,
not how often the odds exceed it.)

If δ is 0, the odds never move by more than e^ε, and the best guess is right with probability at most e^ε/(1 + e^ε). If
neighbours replace the contents of one person's rows, the coin decides between two contents of those rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from apportion.privacy import gaussian
from apportion.privacy.neighbours import ADD_REMOVE, REPLACE_LABELS, REPLACE_VALUES, REPLACE_VALUES_PUBLIC_GRAPH
from apportion.privacy.statement import Statement, rounded_up


@dataclass(frozen=True)
class Meaning:
    """What a guarantee is worth, in words and as the attacker's best chance.

    Attributes:
        headline: the guarantee in plain words, no stronger than it is.
        verdict: how far from a coin toss the attacker gets.
        best_guess: the largest probability of guessing right whether one person took part, or which of two contents
            that person's rows have.
        odds_factor: the largest factor by which the odds move, except with probability δ.
    """

    headline: str
    verdict: str
    best_guess: float
    odds_factor: str


_GRADES: Final = (
    (0.60, "Whoever sees {seen} learns almost nothing about {secret}.", "little better than a coin toss"),
    (
        0.75,
        "Whoever sees {seen} learns only a little about {secret}.",
        "better than a coin toss, but still often wrong",
    ),
    (
        0.90,
        "Whoever sees {seen} may learn something about {secret}, within a limit.",
        "well above a coin toss: limited protection",
    ),
    (
        1.01,
        "People are weakly protected here: from {seen}, a capable attacker could often find out {secret}.",
        "close to certainty in the worst case: weak protection",
    ),
)
_SECRETS: Final = {
    REPLACE_VALUES: "the contents of {one} person’s rows",
    REPLACE_LABELS: "{one} person’s labels",
    REPLACE_VALUES_PUBLIC_GRAPH: "the values in {one} person’s rows",
}
_REPLACED: Final = {REPLACE_LABELS: "labels", REPLACE_VALUES_PUBLIC_GRAPH: "values"}
_TOOK_PART: Final = "whether {one} person’s data was used"


def begun(words: str) -> str:
    """Return words with a capital, as in a heading, unless the first letter is a symbol.

    >>> begun("rarest 20 %"), begun("ε = 1"), begun("20-40 %")
    ('Rarest 20 %', 'ε = 1', '20-40 %')
    """
    return words[:1].upper() + words[1:] if words[:1].isascii() else words


def meaning_of(statement: Statement, *, seen: str = "this model") -> Meaning:
    """Grade a statement by the whole budget, which bounds whatever was spent.

    Args:
        statement: the privacy statement.
        seen: what was released, for the headline.
    """
    if statement.delta == 0:
        best_guess, log_odds = best_guess_of_pure(statement.epsilon), statement.epsilon
    elif (
        statement.spent_mu is None
    ):  # only (ε, δ) is known, which is a weaker bound: odds by 2ε, except with slightly more than δ
        best_guess, log_odds = best_guess_of_pair(statement.epsilon, statement.delta), 2 * statement.epsilon
    else:
        mu = gaussian.mu_of(statement.epsilon, statement.noise_delta)
        best_guess = best_guess_of(mu, statement.keys_delta)
        log_odds = mu**2 / 2 - mu * NormalDist().inv_cdf(statement.noise_delta)
    limit, words, verdict = next(grade for grade in _GRADES if best_guess <= grade[0])
    one = "any one" if limit < 0.9 else "a"  # "almost nothing about any one person", "something about a person"
    exceptions = "".join(f" Not protected: {sentence}." for sentence in statement.unprotected)
    headline = words.format(seen=seen, secret=secret_of(statement, one)) + exceptions
    return Meaning(headline, verdict, best_guess, factor(log_odds))


def secret_of(statement: Statement, one: str = "one") -> str:
    """Return what an attacker wants to know: whether a person took part, or that person's rows or labels."""
    return _SECRETS.get(statement.neighbours, _TOOK_PART).format(one=one)


def attack_on(statement: Statement) -> str:
    """Return what the attacker knows and wants, by the neighbour relation."""
    if statement.neighbours == ADD_REMOVE:
        return (
            "knows everybody else’s data, sees everything that was released, and wants to find out "
            "whether one particular person took part"
        )
    what = _REPLACED.get(statement.neighbours, "rows")
    return (
        "knows everybody else’s data and everything assumed public, sees everything that was "
        "released, and wants to find out which of two guesses about one particular person’s "
        f"{what} is right"
    )


def alike_without(statement: Statement) -> str:
    """Return what could have been different without much change in the numbers."""
    if statement.neighbours == ADD_REMOVE:
        return "if all rows of any one person had been missing"
    if statement.neighbours in _REPLACED:
        return f"if any one person’s {_REPLACED[statement.neighbours]} had been different"
    return "if the contents of all rows of any one person had been different"


def best_guess_of(mu: float, keys_delta: float = 0.0) -> float:
    """Return the largest probability of guessing a fair coin right from a μ-GDP output: Φ(μ/2).

    Keys that only one user has are listed with a probability of at most `keys_delta`, and would reveal that user.

    >>> best_guess_of(0.0)
    0.5
    """
    return min(1.0, NormalDist().cdf(mu / 2) + keys_delta)


def best_guess_of_pure(epsilon: float) -> float:
    """Return the same for an ε-DP output: e^ε/(1 + e^ε).

    >>> best_guess_of_pure(0.0)
    0.5
    """
    return 1 / (1 + math.exp(-epsilon))


def best_guess_of_pair(epsilon: float, delta: float) -> float:
    """Return the same for an output known only to be (ε, δ)-DP.

    >>> best_guess_of_pair(0.0, 0.5)
    0.75
    """
    return 1 - (1 - delta) * (1 - best_guess_of_pure(epsilon))


def factor(epsilon: float) -> str:
    """Return e^ε, rounded up in its last digit so that it stays a bound.

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
    """Format a fraction as a percentage of about three digits.

    >>> percent(0.5531), percent(0.034), percent(0.00021), percent(0), percent(1)
    ('55.3 %', '3.4 %', '0.021 %', '0 %', '100 %')
    """
    points = 100 * fraction
    if points == 0 or abs(points) >= 99.95:
        return f"{points:.0f} %"
    return f"{points:.1f} %" if abs(points) >= 1 else f"{points:.2g} %"


def number(value: float) -> str:
    """Format a number with four digits, without an exponent where that reads better.

    >>> number(0.893127), number(12345.6), number(0.0000123), number(3)
    ('0.8931', '12,346', '1.23e-05', '3')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-3 else f"{value:.3g}"


def precise(value: float, reach: float | None) -> str:
    """Format a number with enough decimals to show two digits of an error of this size.

    >>> precise(3.000142, 0.00057), precise(175.168, 4.1), precise(12345.6, 80.0), precise(0.893127, None)
    ('3.00014', '175.2', '12,346', '0.8931')
    """
    if reach is None or not 0 < reach < math.inf:
        return number(value)
    decimals = min(max(0, 1 - math.floor(math.log10(reach))), 12)
    return f"{value:,.{decimals}f}"


def whole(value: float) -> str:
    """Format a count with thousands separators."""
    return f"{value:,.0f}"


def compact(value: float) -> str:
    """Format a tick label: short, without trailing zeros.

    >>> compact(0.25), compact(1000.0), compact(25000.0), compact(3e6), compact(0.0001)
    ('0.25', '1,000', '25k', '3M', '0.0001')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (10 * size if letter == "k" else size):
            return f"{value / size:g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.10g}" if abs(value) < 1e-4 else f"{value:.4g}"


def shape(dimensions: tuple[int, ...]) -> str:
    """Format the size of a release."""
    return " × ".join(whole(n) for n in dimensions) or "one number"


def exact(value: float) -> str:
    """Format a declared number with all its digits.

    >>> exact(1.0), exact(1e-6), exact(2.5e-5), exact(0.1234567891)
    ('1', '1e-6', '2.5e-5', '0.1234567891')
    """
    digits, mark, exponent = repr(float(value)).removesuffix(".0").partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}" if mark else digits


def bound(value: float) -> str:
    """Format a bound, rounded up to four digits.

    >>> bound(1.41421356), bound(0.99999), bound(2.0)
    ('1.415', '1', '2')
    """
    shown = rounded_up(value)
    return f"{shown:,.0f}" if shown >= 1000 else f"{shown:.4g}"


def percent_bound(fraction: float) -> str:
    """Format a bound as a percentage, rounded up to a tenth.

    >>> percent_bound(0.54706), percent_bound(0.5), percent_bound(0.99999)
    ('54.8 %', '50.0 %', '100.0 %')
    """
    return f"{math.ceil(1000 * fraction - 1e-9) / 10:.1f} %"
