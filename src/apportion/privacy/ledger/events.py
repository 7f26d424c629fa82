"""What a ledger is charged for: one noisy release, one run on samples of the users, or one selection among tries.

Events are plain data with a JSON form. So are notes, which cost nothing: that an amount is set aside for a run, or
given back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from apportion.errors import InputError


@dataclass(frozen=True)
class GaussianRelease:
    """A Gaussian release whose noise is 1/μ times its L2 sensitivity."""

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", _positive("mu", self.mu))


@dataclass(frozen=True)
class PureRelease:
    """A release that is ε-DP: Laplace noise or the exponential mechanism."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _positive("epsilon", self.epsilon))


@dataclass(frozen=True)
class ListedRelease:
    """A release of private keys: a release of their counts with noise, and a part of δ for keys that only one user has.

    Attributes:
        noisy: the release of their counts.
        delta: the part of δ.
    """

    noisy: GaussianRelease | PureRelease
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", _positive("delta", self.delta))


@dataclass(frozen=True)
class SampledRun:
    """A run whose releases were all fixed in advance: some on all users, the others on Poisson samples of them.

    Attributes:
        mus: the μ of each Gaussian release on all users.
        noise_multiplier: noise of a release on a sample, divided by its sensitivity.
        probability: the probability that a user is in a sample.
        steps: number of releases on samples.
    """

    mus: tuple[float, ...]
    noise_multiplier: float
    probability: float
    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "mus", tuple(_positive("mu", mu) for mu in self.mus))
        object.__setattr__(self, "noise_multiplier", _positive("noise multiplier", self.noise_multiplier))
        object.__setattr__(self, "probability", float(self.probability))
        if not 0 < self.probability <= 1 or self.steps < 1:
            asked = f"{self.probability} and {self.steps}"
            raise InputError(
                f"Expected a sampling probability in (0, 1] and at least 1 step, got {asked}.", argument=None
            )


@dataclass(frozen=True)
class SelectionRun:
    """A random number of similar tries, of which only the best is published (`privacy.selection`).

    Attributes:
        mu: the μ of one try.
        mean: the mean number of tries.
        law: the distribution of their number: geometric or logarithmic.
    """

    mu: float
    mean: float
    law: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", _positive("mu", self.mu))
        object.__setattr__(self, "mean", _positive("mean number of tries", self.mean))
        if self.law not in ("geometric", "logarithmic"):
            raise InputError(f"Expected a law among geometric, logarithmic, got {self.law!r}.", argument="law")


@dataclass(frozen=True)
class Reserved:
    """Amounts set aside for a run, exactly.

    Attributes:
        amounts: of each amount that the account adds up; none negative.
        epsilon: what they are worth at the account's δ, for readers.
    """

    amounts: tuple[Fraction, ...]
    epsilon: float

    def __post_init__(self) -> None:
        if not self.amounts or min(self.amounts) < 0 or not any(self.amounts):
            listed = ", ".join(map(str, self.amounts))
            raise InputError(f"Expected amounts of at least 0, not all 0, got {listed or 'none'}.", argument=None)
        object.__setattr__(self, "epsilon", float(self.epsilon))


@dataclass(frozen=True)
class GivenBack:
    """What is left of a reservation is free again.

    Attributes:
        reservation: the number of its entry.
    """

    reservation: int


Event = GaussianRelease | PureRelease | ListedRelease | SampledRun | SelectionRun
Note = Reserved | GivenBack


@dataclass(frozen=True)
class Receipt:
    """What a charge leaves behind: the entry that records it.

    Attributes:
        account: the account's name.
        run: who charged: a text that identifies one handle on the account.
        number: the number of the entry, from 1.
        hash: the hash of the entry, and so of everything before it.
    """

    account: str
    run: str
    number: int
    hash: str


def to_json(event: Event | Note) -> dict[str, Any]:
    """Return the event in JSON form; numbers are preserved exactly."""
    match event:
        case GaussianRelease():
            kind = "gaussian"
        case PureRelease():
            kind = "pure"
        case ListedRelease(noisy, delta):
            return {"kind": "listed", "noisy": to_json(noisy), "delta": delta}
        case SampledRun():
            kind = "sampled"
        case SelectionRun():
            kind = "selection"
        case Reserved(amounts, epsilon):
            return {"kind": "reserved", "amounts": list(map(str, amounts)), "epsilon": epsilon}
        case GivenBack():
            kind = "given back"
    return {"kind": kind, **asdict(event)}


def from_json(fields: Mapping[str, Any]) -> Event | Note:
    """Read back what `to_json` wrote."""
    match fields:
        case {"kind": "gaussian", "mu": mu, **rest} if not rest:
            return GaussianRelease(mu)
        case {"kind": "pure", "epsilon": epsilon, **rest} if not rest:
            return PureRelease(epsilon)
        case {"kind": "listed", "noisy": noisy, "delta": delta, **rest} if not rest:
            noisy = from_json(noisy)
            if isinstance(noisy, GaussianRelease | PureRelease):
                return ListedRelease(noisy, delta)
        case {"kind": "sampled", "mus": mus, **rest}:
            return SampledRun(tuple(mus), **rest)
        case {"kind": "selection", "mu": mu, "mean": mean, "law": law, **rest} if not rest:
            return SelectionRun(mu, mean, law)
        case {"kind": "reserved", "amounts": amounts, "epsilon": epsilon, **rest} if not rest:
            return Reserved(tuple(map(Fraction, amounts)), epsilon)
        case {"kind": "given back", "reservation": int(number), **rest} if not rest:
            return GivenBack(number)
    raise InputError(f"Expected an event of a known kind, got {fields}.", argument=None)


def in_words(event: Event | Note) -> str:
    """Describe the event for a message."""
    match event:
        case GaussianRelease(mu):
            return f"mu {mu:.6g}"
        case PureRelease(epsilon):
            return f"epsilon {epsilon:.6g}"
        case ListedRelease(noisy, delta):
            return f"{in_words(noisy)} and {delta:.6g} of delta for a list of private keys"
        case SampledRun(mus, noise, probability, steps):
            beside = f" beside {len(mus)} on all users" if mus else ""
            return f"{steps} releases on samples at {probability:g} with noise {noise:.6g}{beside}"
        case SelectionRun(mu, mean, law):
            return f"a selection among tries of mu {mu:.6g}, {mean:g} on average ({law})"
        case Reserved(_, epsilon):
            return f"nothing; epsilon {epsilon:.6g} is set aside"
        case GivenBack(number):
            return f"nothing; what is left of entry {number} is given back"


def as_dp_event(event: Event | Note) -> dict[str, Any]:
    """Return the event in dp_accounting's terms: its class under "class_name", its fields under their names there.

    A pure release becomes randomised response between two answers, the worst case of all ε-DP releases. A part of δ
    becomes no privacy at all with that probability, the worst case too. Numbers are rounded towards less noise.
    """
    match event:
        case GaussianRelease(mu):
            return _gaussian(math.nextafter(1 / mu, 0.0))
        case PureRelease(epsilon):
            at_random = 2 / (1 + math.exp(min(epsilon, 700.0))) * (1 - 1e-15)
            return {"class_name": "RandomizedResponseDpEvent", "noise_parameter": at_random, "num_buckets": 2}
        case ListedRelease(noisy, delta):
            return {"class_name": "ComposedDpEvent", "events": [as_dp_event(noisy), _failing(delta)]}
        case SampledRun(mus, noise, probability, steps):
            one = {
                "class_name": "PoissonSampledDpEvent",
                "sampling_probability": probability,
                "event": _gaussian(noise),
            }
            several = {"class_name": "SelfComposedDpEvent", "event": one, "count": steps}
            fixed = [as_dp_event(GaussianRelease(mu)) for mu in mus]
            return {"class_name": "ComposedDpEvent", "events": [*fixed, several]}
        case SelectionRun(mu, mean, law):
            one = _gaussian(math.nextafter(1 / mu, 0.0))
            shape = 1.0 if law == "geometric" else 0.0
            return {"class_name": "RepeatAndSelectDpEvent", "event": one, "mean": mean, "shape": shape}
        case Reserved() | GivenBack():
            return {"class_name": "NoOpDpEvent"}


def pair_as_dp_event(epsilon: float, delta: float) -> dict[str, Any]:
    """Return the worst case of all (ε, δ)-DP releases in dp_accounting's terms."""
    return {"class_name": "ComposedDpEvent", "events": [as_dp_event(PureRelease(epsilon)), _failing(delta)]}


def _failing(delta: float) -> dict[str, Any]:
    nothing = {"class_name": "NonPrivateDpEvent"}
    return {"class_name": "PoissonSampledDpEvent", "sampling_probability": delta, "event": nothing}


def _gaussian(noise_multiplier: float) -> dict[str, Any]:
    return {"class_name": "GaussianDpEvent", "noise_multiplier": noise_multiplier}


def _positive(what: str, value: float) -> float:
    """Return a plain float, so that its JSON form is exact."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"Expected a finite {what} above 0, got {value}.", argument=what.replace(" ", "_"))
    return float(value)
