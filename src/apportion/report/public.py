"""The page that may be shared: released values, what follows from them, and the statement, but nothing else.

It is a function of the model (as saved and loaded) and of titles, which belong to the public item list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from apportion.errors import InputError
from apportion.privacy.neighbours import ADD_REMOVE
from apportion.privacy.statement import SEEDED
from apportion.recommend.model import ItemModel
from apportion.report import public_charts as charts
from apportion.report.bands import popularity_bands
from apportion.report.releases import explain, families_of, mechanisms_of, popularity_noise, unspent
from apportion.report.rendering import render
from apportion.report.wording import alike_without, attack_on, meaning_of, number, whole

Titles = Mapping[int | str, str]

_N_NEAR = 5
_KINDS = {
    "categorical": "one of {} words",
    "multivalent": "any of {} words",
    "number": "a number",
    "binned": "a number, by {} knots",
    "text": "running text, hashed into {} columns",
    "cross": "{} combinations",
}
_PLACES = ((0.0, "The most popular"), (0.5, "In the middle"), (0.95, "Far down the tail"))


@dataclass(frozen=True)
class Near:
    """An item close to the one shown."""

    title: str
    similarity: float


@dataclass(frozen=True)
class Look:
    """One item and its nearest neighbours."""

    role: str
    title: str
    rank: int
    reliability: float
    near: list[Near]


def public_page(model: ItemModel, *, titles: Titles | None = None) -> str:
    """Return the page that may be shared, as self-contained HTML.

    Args:
        model: a private model; nothing of a model without a statement may be shared.
        titles: names of items by their ids, shown instead of the ids.
    """
    statement = model.statement
    if statement is None:
        raise InputError(
            "This model was fitted without privacy: it has no statement, so no page of it may be shared.",
            argument="model",
        )
    rows = explain(statement)
    noise = popularity_noise(statement, model.n_tasks)
    bands = popularity_bands(model.popularity, model.reliability)
    return render(
        "public.html",
        statement=statement,
        meaning=(meaning := meaning_of(statement)),
        added=statement.neighbours == ADD_REMOVE,
        attack=attack_on(statement),
        alike=alike_without(statement),
        not_releasable=SEEDED,
        kind="values" if model.kind == "convex" else model.kind,
        n_tasks=model.n_tasks,
        unit=statement.neighbours.one.capitalize(),
        one_in=f"one in {whole(1 / statement.delta)}",
        rows=rows,
        families=families_of(rows),
        mechanisms=mechanisms_of(rows),
        unspent=unspent(rows),
        bands=bands,
        neighbours=_looks(model, titles or {}),
        settings=settings_in_words(model.settings),
        features=features_in_words(model),
        popularity_words=popularity_words(model, noise),
        popularity_caption=popularity_caption(noise),
        draw_guess=partial(charts.guess_chart, meaning.best_guess),
        draw_budget=partial(charts.budget_chart, rows),
        draw_popularity=partial(charts.popularity_chart, model.popularity, noise),
        draw_reliability=partial(charts.reliability_chart, bands),
    )


def _looks(model: ItemModel, titles: Titles) -> list[Look]:
    """Return a popular, a middling and a rare item with their nearest items."""
    k = min(_N_NEAR, model.n_tasks - 1)
    if k < 1:
        return []
    order = np.argsort(-np.asarray(model.popularity, dtype=np.float64), kind="stable")
    ranks = sorted({int(part * (model.n_tasks - 1)) for part, _ in _PLACES})
    roles = [role for _, role in _PLACES][: len(ranks)]
    return [_look(model, titles, role, rank, int(order[rank]), k) for rank, role in zip(ranks, roles, strict=True)]


def _look(model: ItemModel, titles: Titles, role: str, rank: int, code: int, k: int) -> Look:
    task = model.task_ids.id_of(code)
    near = [Near(_title(each.task, titles), each.similarity) for each in model.similar(task, k)]
    return Look(role, _title(task, titles), rank + 1, float(model.reliability[code]), near)


def _title(task: int | str, titles: Titles) -> str:
    return titles.get(task, f"item {task}")


def settings_in_words(settings: Mapping[str, Any]) -> str:
    """Format the settings of a fit on one line; those without a value follow from released numbers.

    >>> settings_in_words({"rounds": 8, "growth": 1.15, "clip": None})
    'rounds = 8, growth = 1.15; by rule: clip'
    """
    given = {name: value for name, value in settings.items() if value is not None}
    by_rule = ", ".join(name for name in settings if name not in given)
    listed = (
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in given.items()
    )
    return ", ".join(listed) + (f"; by rule: {by_rule}" if by_rule else "")


def features_in_words(model: ItemModel) -> list[str]:
    """Describe the public features that the model was fitted with."""
    if model.feature_map is None:
        return []
    groups = model.feature_map.space.groups
    return [f"{group.name}: {_KINDS[group.kind].format(whole(group.size))}" for group in groups]


def popularity_words(model: ItemModel, noise: float | None) -> str:
    """Say how many items rest on data, and how many exceed the noise."""
    n_reliable = int((model.reliability >= 0.5).sum())
    who = f"{whole(n_reliable)} of the" if n_reliable else "None of the"
    known = model.feature_map is not None and model.settings.get("feature_prior", True)  # a setting, for clicks
    prior = "what the item’s public features say about it" if known else "what all items have in common"
    words = (
        "The noise is the same for all items, so popular items are hardly affected and rare ones "
        f"are dominated by it. {who} {whole(model.n_tasks)} items rest more on data than on the "
        f"prior, which is {prior}."
    )
    if noise is None:
        return words
    clear = int((model.popularity > 2 * noise).sum())
    return words + f" {whole(clear)} have a released popularity of more than twice its noise."


def popularity_caption(noise: float | None) -> str:
    """Describe the popularity chart."""
    words = (
        "Popularity as released and then smoothed, largest first; both axes are logarithmic. A "
        "person with n items counts 1/√n for each of them."
    )
    if noise is None:
        return words
    return words + (
        f" Each item’s value has noise of ± {number(noise)}: in the shaded zone the order of items is mostly chance."
    )
