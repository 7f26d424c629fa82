"""Claim: noise in clients' shares follows the law that is charged for, also under the worst allowed collusion.

The server sees a sum over as few clients as terms allow, knows the noise of all colluding ones and that of the client
it attacks, and subtracts them. What is left must be normal with the stated deviation: its mean square is tested at
1e-9, with the power to see 5 %, and its distribution by Kolmogorov and Smirnov at 1e-9. Then the server guesses whether
the client's contribution was there: the ε that its success implies, at 99.9 % confidence, must not exceed the claim.
Shares that count everybody's noise, colluding clients' and the protected one's too, must be found out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.engines import Processors
from apportion.federated import Trust
from apportion.privacy import SystemNoise, gaussian
from apportion.privacy.contributions import ClippedParts, Output, PartialSums
from apportion.privacy.noise_shares import NoiseShare, with_share
from benchmarks.claim import Outcome, print_table

TRUST = Trust(12, colluding=3, dropping=3)
MU, DELTA, ALPHA = 1.0, 1e-5, 1e-9
DRAWS, QUICK_DRAWS = 200_000, 40_000
Floats = NDArray[np.float64]


def measure(quick: bool) -> Outcome:
    """Draw the noise that the worst allowed server is left with, honest and planted; test and audit both."""
    draws = QUICK_DRAWS if quick else DRAWS
    honest = NoiseShare(0, 0, 1 / MU, TRUST.counted)
    planted = replace(honest, counted=TRUST.n_clients)
    found = {name: _examined(share, draws) for name, share in (("counted", honest), ("everybody", planted))}
    print_table(["shares for", *next(iter(found.values()))], [[name, *held.values()] for name, held in found.items()])
    good, bad = found["counted"], found["everybody"]
    claimed = gaussian.epsilon_of(MU, DELTA)
    holds = good["mean_square"] and good["distribution"] and good["epsilon"] <= claimed
    caught = not bad["mean_square"] and bad["epsilon"] > claimed
    return Outcome(
        value={"counted": good, "everybody": bad, "claimed": claimed},
        target={"counted": f"both laws at {ALPHA:g}, epsilon at most {claimed:.4g}", "everybody": "caught"},
        holds=bool(holds and caught and _power(draws) > 0.999),
        headline=f"noise of {TRUST.counted} of {TRUST.n_clients} clients, {TRUST.colluding} colluding: the law holds "
        f"at {ALPHA:g} over {draws:,} draws, audited epsilon {good['epsilon']:.3g} of {claimed:.3g}; counting "
        f"everybody's noise is found out ({bad['epsilon']:.3g})",
        settings={"draws": draws, "mu": MU, "delta": DELTA, "confidence": 0.999, "clients": TRUST.n_clients},
    )


def _examined(share: NoiseShare, draws: int) -> dict[str, Any]:
    """Test what is left of the noise, and what an attacker makes of it."""
    left = _left(share, draws)
    present = _left(share, draws) + 1.0  # one sensitivity further
    return {"mean_square": _mean_square(left), "distribution": _distribution(left), "epsilon": _audited(left, present)}


def _left(share: NoiseShare, draws: int) -> Floats:
    """The noise of the honest clients who finish, without the protected one, in units of the sensitivity."""
    output = Output(draws, 1.0, False, "canary")
    part = ClippedParts(_zeros, (output,))
    users = Users([0], {"values": np.zeros(0)})
    kernels, source = Processors(exact=True), SystemNoise(exact=True)
    total = np.zeros(draws)
    for _ in range(TRUST.counted):
        sums = with_share(PartialSums.over(users, [part], kernels), [part], share, source)
        total += sums.masked(np.zeros(draws, np.uint64), 1).view(np.int64) * output.step
    return total


def _zeros(users: Any, weights: Any) -> tuple[Floats]:
    return (np.zeros((users.n_users, 1)),)


def _mean_square(left: Floats) -> bool:
    low, high = _limits(len(left))
    return bool(low < float(np.square(left * MU).sum()) < high)


def _limits(draws: int) -> tuple[float, float]:
    from scipy.stats import chi2

    low, high = chi2.isf([1 - ALPHA / 2, ALPHA / 2], draws)
    return float(low), float(high)


def _power(draws: int) -> float:
    """The probability that noise of 0.95 of the deviation is found."""
    from scipy.stats import chi2

    return float(chi2.cdf(_limits(draws)[0] / 0.95**2, draws))


def _distribution(left: Floats) -> bool:
    """Kolmogorov and Smirnov's distance, within what Massart's inequality allows."""
    ordered = np.sort(left * MU)
    law = np.array([NormalDist().cdf(each) for each in ordered])
    places = np.arange(len(ordered) + 1) / len(ordered)
    distance = max(np.abs(law - places[1:]).max(), np.abs(law - places[:-1]).max())
    return bool(distance < math.sqrt(math.log(2 / ALPHA) / (2 * len(ordered))))


def _audited(absent: Floats, present: Floats) -> float:
    """A lower bound on ε at δ, from the best threshold of a grid, at 99.9 % confidence."""
    best = max(_separation(absent, present, threshold) for threshold in np.linspace(-1, 2, 13))
    return gaussian.epsilon_of(best, DELTA) if best > 0 else 0.0


def _separation(absent: Floats, present: Floats, threshold: float) -> float:
    from scipy.stats import beta

    confidence = 0.001 / (2 * 13)
    alarms, hits, draws = int((absent > threshold).sum()), int((present > threshold).sum()), len(absent)
    false = float(beta.isf(confidence, alarms + 1, draws - alarms))
    true = float(beta.ppf(confidence, hits, draws - hits + 1))
    normal = NormalDist()
    return normal.inv_cdf(true) - normal.inv_cdf(false) if true > 0 and false < 1 else 0.0
