"""Claim: on rare classes the order of optimizers is the same for other clip norms and noise; less noise helps DP-Adam.

The study of `heavytail-synthetic` for (C, noise multiplier) = (10, 10), (1, 5) and (10, 5), each up to ε = 28. As noise
falls, DP-Adam's second moments are less noise and more signal, so it comes closer to DP-AdamBC: the two are to be
nearer to each other in the rarest accuracy at C = 10, noise 5 than at C = 10, noise 10. The full form needs a GPU, or
takes what is stored; the quick form is a small set.
"""

from __future__ import annotations

from typing import Any

from benchmarks.claim import Outcome, Rehearsal
from benchmarks.heavytail_synthetic import (
    beats_descent,
    figures,
    full_study,
    orders,
    print_study,
    seeds_ahead,
    settings,
    small_study,
)

PAIRS = ((10.0, 10.0), (1.0, 5.0), (10.0, 5.0))
SWEPT = PAIRS[1:]  # what optimizers can reach is swept where steps are few


def measure(quick: bool) -> Outcome | Rehearsal:
    """Study each pair."""
    if quick:
        study = small_study(10.0)
        print_study(study)
        return Rehearsal(figures(study), {"rarest accuracy: AdamBC > GD": beats_descent(study)})
    studies = [full_study(c, z, f"pair-{c:g}-{z:g}", with_front=(c, z) in SWEPT) for c, z in PAIRS]
    for study in studies:
        print_study(study)
    checks = {study["problem"]: orders(study) for study in studies}
    gaps = {study["problem"]: _gap(study) for study in studies}
    rarest = [found["rarest accuracy: AdamBC > GDM > GD"] for found in checks.values()]
    nearer = abs(gaps["C = 10, noise 5"]) < abs(gaps["C = 10, noise 10"])
    return Outcome(
        value={
            "orders": checks,
            "seeds with AdamBC ahead of GDM": {study["problem"]: seeds_ahead(study) for study in studies},
            "gap in rarest accuracy, AdamBC less Adam": gaps,
            "Adam nearer at less noise": nearer,
            "figures": {study["problem"]: figures(study) for study in studies},
            "rarest accuracy in reach at a loss, by seed": {
                study["problem"]: study["reach"] for study in studies if "reach" in study
            },
        },
        target={"rarest accuracy: AdamBC > GDM > GD": "for every pair", "Adam nearer at less noise": True},
        holds=all(rarest) and nearer,
        headline="Other clip norms and noise: the paper's order on the rarest classes in "
        f"{sum(rarest)} of {len(rarest)} pairs; DP-Adam {'' if nearer else 'not '}nearer to DP-AdamBC at less noise",
        settings={study["problem"]: settings(study) for study in studies},
    )


def _gap(study: dict[str, Any]) -> float:
    bc, adam = (study["optimizers"][name]["loss"]["group accuracy"][-1] for name in ("DP-AdamBC", "DP-Adam"))
    return round(float(bc - adam), 4)
