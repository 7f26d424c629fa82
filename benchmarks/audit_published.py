"""Claim: pointed at the published recipe for private ratings, the auditor reports the violation, with its size.

The recipe (tests/planted/published.py, made again from its description, with settings as for MovieLens 10M) prints
ε = 1, 5 and 20 at δ = 1e-5. Its vectors get noise for labels of at most 1 while centred ratings reach 3, and its mean
rating gets 10 and 100 times less noise than is charged. The data here are generated: users of 100 ratings about a mean
of 3.5, and one of 100 ratings of half a star who is there or not.

Two audits: replay says how far every release moves in declared sensitivities, and what ε the noise supports for that
user; and the likelihood-ratio test of whole fits gives an ε that the recipe is not below, whatever its code says. The
latter cannot show more than the number of fits allows, so at ε = 20 it stops long before the truth. The twin with the
right sensitivities passes the replay.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from apportion.auditing import audit_likelihood
from apportion.privacy import SeededNoise
from benchmarks.claim import Outcome, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

CONFIDENCE = 0.9997  # of each of three bounds, so that all hold with 0.999
DRAWS, QUICK_DRAWS = 1500, 130


def measure(quick: bool) -> Outcome:
    """Audit the recipe at its three budgets; in the quick form, by replay alone but for ε = 5."""
    published = importlib.import_module("planted.published")
    data, neighbour = published.neighbours(n_users=400 if quick else 1000)
    draws = QUICK_DRAWS if quick else DRAWS
    found: dict[str, dict[str, float]] = {}
    for epsilon, recipe in published.PUBLISHED.items():
        with_fits = not quick or epsilon == 5.0
        found[f"{epsilon:g}"] = _audited(published, recipe, data, neighbour, draws if with_fits else 0)
    columns = ["supported", "worst_case", "shown", "twin_supported"]
    print_table(
        ["printed epsilon", "noise supports (this user)", "worst case", "shown by fits", "the twin's noise supports"],
        [[epsilon, *(row.get(column, "not tried") for column in columns)] for epsilon, row in found.items()],
    )
    violated = all(row["supported"] > float(e) for e, row in found.items())
    shown = all(row["shown"] > float(e) for e, row in found.items() if "shown" in row)
    twin = all(row["twin_supported"] <= float(e) for e, row in found.items())
    return Outcome(
        value={e: {k: round(v, 3) for k, v in row.items()} for e, row in found.items()},
        target={"supported and shown": "above the printed epsilon", "twin_supported": "at most the printed epsilon"},
        holds=violated and shown and twin,
        headline="the published recipe prints ε = "
        + " / ".join(found)
        + "; replay finds that its noise supports "
        + " / ".join(f"{row['supported']:.3g}" for row in found.values())
        + ", and fits alone show at least "
        + " / ".join(f"{row['shown']:.3g}" if "shown" in row else "?" for row in found.values()),
        settings={"fits_on_each_data_set": draws, "confidence_of_each": CONFIDENCE, "delta": published.DELTA},
    )


def _audited(published: Any, recipe: Any, data: Any, neighbour: Any, draws: int) -> dict[str, float]:
    ratios, supported = published.moved(recipe, data, neighbour)
    print(
        f"epsilon {recipe.epsilon:g}: "
        + ", ".join(f"{name} moved {ratio:.3g}" for name, ratio in ratios.items())
        + " declared sensitivities"
    )
    _, twin = published.moved(replace(recipe, honest=True), data, neighbour)
    row = {"supported": supported, "worst_case": published.worst_case_epsilon(recipe), "twin_supported": twin}
    if draws:
        row["shown"] = audit_likelihood(
            recipe.fit, data, neighbour, {"budget": recipe.budget},
            noise=SeededNoise, draws=draws, confidence=CONFIDENCE,
        ).lower_bound  # fmt: skip
    return row
