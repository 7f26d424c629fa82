"""Claim: on MovieLens 1M, genre and year help protected statistics, which beat DP-SGD; fewer draws are better.

Ratings (80/10/10 by rating, RMSE) and clicks (600 held-out users, Recall@20), δ = 1e-5, ε = 1, 5, 20, mean and standard
deviation over five noise seeds, overall and by popularity slice. What must hold: features beat no features under AM-SSP
at every ε, overall and on the two rarest slices; AM-SSP beats AM-DPSGD at every ε, each with features and each at the
settings chosen for it on the validation part; SSP-c is at least as good as SSP-i and quality falls as draws grow.
Whether features help DP-SGD, and who wins on the tail, is reported, and so are DP-CMF, encoders alone and the
library's own recommenders.

Slices of clicks are judged by Recall@20 *within* the slice: a user's targets there, ranked among the slice's movies
that the user has not seen. The measure was changed: over the whole catalogue Recall@20 of the rarest slice was 0 for
almost every row, with features or without, since the top 20 of 3706 movies are popular ones, and so it said nothing
either way. The new measure was fixed before any of its values was seen. The old one stays in the table, and what the
claim's statements would be by it is stored beside them. Statements whose lead is within two standard errors over the
noise seeds are named in the headline: these seeds do not settle them.

Fits that were made are kept in benchmarks/partial. The quick form runs two rows on generated data and asks that
features help.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from apportion.published.public_features.minimisation import rows_of_tasks
from benchmarks import movielens
from benchmarks.claim import PARTIAL, Outcome, Rehearsal, print_table
from benchmarks.features_movielens import ml1m_features
from papers.public_features import movielens as paper
from papers.public_features.stand_ins import feature_driven_ratings

KINDS = {"ratings": 1, "clicks": -1}  # 1 where less is better
RAREST = (1, 2)
STORE = "features-ml1m.jsonl"
Found = dict[str, dict[str, list[list[float]]]]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit what is missing, then compare."""
    torch.set_num_threads(1)
    if quick:
        return _quick()
    PARTIAL.mkdir(exist_ok=True)
    benches = {kind: _bench(kind) for kind in KINDS}
    found = {kind: _run(bench, PARTIAL / STORE) for kind, bench in benches.items()}
    for kind, rows in found.items():
        _print(kind, rows)
    checks = {kind: checked(rows, KINDS[kind], _decisive(kind)) for kind, rows in found.items()}
    value = {kind: paper.means(rows) for kind, rows in found.items()}
    failed = [f"{kind}: {name}" for kind, each in checks.items() for name, ok in each.items() if not ok]
    close = [f"{kind}: {name}" for kind in KINDS for name in narrow(found[kind], KINDS[kind], _decisive(kind))]
    return Outcome(
        value=value,
        target={"every check": True},
        holds=not failed,
        headline="; ".join(_in_words(kind, value[kind]) for kind in KINDS)
        + f" at ε = 1 / 5 / 20; {_on_the_tail(found['clicks'])}; not held: {', '.join(failed) or 'none'}; within two "
        f"standard errors over seeds: {', '.join(close) or 'none'}",
        settings={
            **_settings(found, checks),
            "users with targets by slice": {kind: bench.users_by_slice() for kind, bench in benches.items()},
        },
    )


def _settings(found: dict[str, Found], checks: dict[str, dict[str, bool]]) -> dict[str, Any]:
    clicks = found["clicks"]
    return {
        "delta": paper.DELTA,
        "noise_seeds": list(movielens.NOISE_SEEDS),
        "features": "genre, year in 16 bins",
        "tuning": "settings chosen on the validation part at ε = 5 with one seed, not covered by ε, in two searches; "
        "the second came after a first table of test figures, was larger for AM-DPSGD (about 90 settings on ratings, "
        "34 on clicks) than for AM-SSP with features (20, 26) and without (11, 14), and left out DP-CMF, encoders "
        "alone and joint DP-SGD; the library's recommenders have their defaults",
        "measure": "slices of clicks by Recall@20 within the slice; over the whole catalogue it is 0 in the rarest for "
        "almost all rows, which is why the measure was changed, before its values were seen",
        "checks": checks,
        "leads and standard errors": {kind: leads(rows, KINDS[kind], _decisive(kind)) for kind, rows in found.items()},
        "checks by the whole catalogue": checked(clicks, KINDS["clicks"], paper.BY_SLICE),
        "standard_deviations": {kind: paper.spreads(rows) for kind, rows in found.items()},
        "by_slice": {kind: _slices(rows, paper.BY_SLICE) for kind, rows in found.items()},
        "within_slices": {"clicks": _slices(clicks, paper.WITHIN_BY_SLICE)},
        "standard_deviations_by_slice": {
            kind: _slices(rows, _decisive(kind), spread=True) for kind, rows in found.items()
        },
        "settings": {kind: vars(chosen) for kind, chosen in paper.SETTINGS.items()},
        "settings of the first search": {kind: vars(chosen) for kind, chosen in paper.FIRST.items()},
    }


def _bench(kind: str) -> paper.Bench:
    data = movielens.ratings() if kind == "ratings" else movielens.clicks()
    features = ml1m_features()
    return paper.Bench.split(kind, data, rows_of_tasks(features, data), features=features)


def _run(bench: paper.Bench, store: Path) -> Found:
    rows = [*paper.main_rows(), *paper.reported_rows(bench.kind)]
    return paper.run(bench, rows, movielens.EPSILONS, list(movielens.NOISE_SEEDS), store)


def _decisive(kind: str) -> int:
    """Where the slices' figures begin that decide."""
    return paper.BY_SLICE if kind == "ratings" else paper.WITHIN_BY_SLICE


def checked(found: Found, sign: int, slices: int = paper.BY_SLICE) -> dict[str, bool]:
    """Every statement of the claim, by name; `slices` is where the slices' figures begin."""
    return {name: lead > 0 for name, (lead, _) in leads(found, sign, slices).items()}


def leads(found: Found, sign: int, slices: int = paper.BY_SLICE) -> dict[str, tuple[float, float]]:
    """By how much the one that every statement has ahead is ahead, and the standard error of that."""
    pairs = {"features help": (paper.FEATURES, paper.ID_ONLY, paper.OVERALL)}
    for number in RAREST:
        pairs[f"features help in slice {number}"] = (paper.FEATURES, paper.ID_ONLY, slices + number - 1)
    pairs["SSP beats DP-SGD"] = (paper.FEATURES, paper.GRADIENT, paper.OVERALL)
    for few, many in zip(paper.RESAMPLES, paper.RESAMPLES[1:], strict=False):
        pairs[f"{few} draws beat {many}"] = (paper.resampled(few), paper.resampled(many), paper.OVERALL)
    found_leads = {}
    for what, (one, other, place) in pairs.items():
        for e in found[one]:
            ours, theirs = (np.array([figures[place] for figures in found[name][e]]) for name in (one, other))
            error = np.sqrt((ours.var() + theirs.var()) / max(len(ours) - 1, 1))
            found_leads[f"{what} at ε = {e}"] = (sign * float(theirs.mean() - ours.mean()), float(error))
    return found_leads


def narrow(found: Found, sign: int, slices: int) -> list[str]:
    """Statements whose lead is within two standard errors, so that these seeds do not settle them."""
    return [name for name, (lead, error) in leads(found, sign, slices).items() if abs(lead) < 2 * error]


def _slices(found: Found, first: int, *, spread: bool = False) -> dict[str, dict[str, dict[str, float]]]:
    figure = paper.spreads if spread else paper.means
    return {f"slice {number}": figure(found, first + number - 1) for number in range(1, paper.SLICES + 1)}


def _print(kind: str, found: Found) -> None:
    rows: list[list[Any]] = []
    overall, spread = paper.means(found), paper.spreads(found)
    by_slice = list(_slices(found, _decisive(kind)).values())
    for name in found:
        for e in overall[name]:
            slices = [f"{held[name][e]:.4f}" for held in by_slice]
            rows.append([name, e, f"{overall[name][e]:.4f}", f"{spread[name][e]:.4f}", *slices])
    print_table([kind, "epsilon", "overall", "st. dev.", "rarest", "20-40 %", "40-60 %", "60-80 %", "popular"], rows)


def _in_words(kind: str, value: dict[str, dict[str, float]]) -> str:
    def row(name: str) -> str:
        return _row(value[name])

    metric = "RMSE" if kind == "ratings" else "Recall@20"
    return (
        f"MovieLens 1M {kind}, {metric}: AM-SSP with genre and year {row(paper.FEATURES)} (without "
        f"{row(paper.ID_ONLY)}), AM-DPSGD with {row(paper.GRADIENT)} (without {row(paper.GRADIENT_ID)})"
    )


def _on_the_tail(clicks: Found) -> str:
    both = (paper.FEATURES, paper.ID_ONLY)
    ours, without = (_row(paper.means(clicks, paper.WITHIN_BY_SLICE)[name]) for name in both)
    most = max(figure for name in both for figure in paper.means(clicks, paper.BY_SLICE)[name].values())
    return (
        f"clicks on the rarest fifth of the movies, ranked among themselves: Recall@20 {ours} (without {without}; over "
        f"the whole catalogue at most {most:.4f} for both)"
    )


def _row(figures: dict[str, float]) -> str:
    return " / ".join(f"{figure:.4f}" for figure in figures.values())


def _quick() -> Rehearsal:
    data, rows = feature_driven_ratings(600, 80, 20)
    bench = paper.Bench.split("ratings", data, rows)
    found = paper.run(bench, [paper.ID_ONLY, paper.FEATURES], [3.0], [0, 1])
    value = paper.means(found)
    print_table(["row", "RMSE"], [[name, by["3"]] for name, by in value.items()])
    ours, plain = value[paper.FEATURES]["3"], value[paper.ID_ONLY]["3"]
    return Rehearsal(value, {"features help on generated ratings": ours < plain})
