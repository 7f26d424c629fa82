"""The explorer: a page for looking into a model and trying it, made from released values alone.

It holds the item side of the model, rounded, and a script that solves a visitor's regression in the browser. A policy
in the page forbids all requests, so what visitors do stays with them. The page may be shared wherever the statement
may. With figures from raw data (`Inside`) it is internal.
"""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy import gaussian
from apportion.privacy.statement import SEEDED, Statement, rounded_up
from apportion.recommend.model import ClickModel, ItemModel, RatingModel
from apportion.report import explorer_packing as packing
from apportion.report import public_charts as charts
from apportion.report.bands import popularity_bands
from apportion.report.explorer_choice import choice_arrays, choice_header
from apportion.report.explorer_features import feature_words, features_chart, share_by_band
from apportion.report.explorer_internal import Inside, internal_parts, twin_arrays
from apportion.report.explorer_layout import GRID, item_map
from apportion.report.public import Titles, features_in_words, popularity_caption, popularity_words, settings_in_words
from apportion.report.releases import ReleaseRow, explain, families_of, popularity_noise, unspent
from apportion.report.rendering import render, source
from apportion.report.wording import exact, meaning_of, secret_of, shape

_FOLDER: Final = "explorer"
_SCRIPTS: Final = (
    "words",
    "data",
    "fold_in",
    "choosing",
    "normal",
    "map",
    "gestures",
    "search",
    "item",
    "taste",
    "budget",
    "attacker",
    "page",
)
_CURVES: Final = {
    "gaussian": "All noise here adds up to Gaussian noise, so the curve is exact: no test can do better, "
    "and one test does as well.",
    "pure": "Only the ε of the releases is known. The curve shows the best test that any such release allows.",
    "pair": "Only ε and δ of the releases together are known. The curve shows the best test that these allow.",
}


def explorer_page(model: ItemModel, *, titles: Titles | None = None, inside: Inside | None = None) -> str:
    """Return the explorer of a model as self-contained HTML.

    Args:
        model: a private model; nothing of a model without a statement may be shared.
        titles: names of items by their ids, shown instead of the ids.
        inside: figures from raw data, which make the page internal.
    """
    statement = model.statement
    if statement is None:
        raise InputError(
            "This model was fitted without privacy: it has no statement, so no page of it may be shared.",
            argument="model",
        )
    order = np.argsort(-np.asarray(model.popularity, np.float64), kind="stable")
    rounded = packing.round_features(model.fold_in, order, _score_scale(model))
    solvable = isinstance(model, RatingModel | ClickModel)
    script, style = _script(), source("style.css") + source(f"{_FOLDER}/explorer.css")
    return render(
        f"{_FOLDER}/explorer.html",
        script=_verbatim(script),
        script_hash=_hash(script),
        style=_verbatim(style),
        style_hash=_hash(style),
        block=_block(model, statement, order, rounded, titles or {}, inside),
        solvable=solvable,
        loss=_plain_digits(packing.rounding_loss(model, rounded, order)) if solvable else None,
        n_made_up=packing.N_HISTORIES,
        n_dimensions=model.vectors.shape[1],
        internal=inside and internal_parts(inside),
        **_words_and_charts(model, statement),
    )


def _words_and_charts(model: ItemModel, statement: Statement) -> dict[str, Any]:
    """Return the texts and charts of the page, as on the page of the statement."""
    rows = explain(statement)
    noise = popularity_noise(statement, model.n_tasks)
    bands = popularity_bands(model.popularity, model.reliability)
    shares = share_by_band(model, len(bands))
    return {
        "statement": statement,
        "meaning": meaning_of(statement),
        "secret": secret_of(statement),
        "curve_words": _CURVES[_form(statement)],
        "not_releasable": SEEDED,
        "kind": "values" if model.kind == "convex" else model.kind,
        "n_tasks": model.n_tasks,
        "by_choice": model.choice is not None,
        "rows": rows,
        "families": families_of(rows),
        "unspent": unspent(rows),
        "bands": bands,
        "settings": settings_in_words(model.settings),
        "features": features_in_words(model),
        "popularity_words": popularity_words(model, noise),
        "popularity_caption": popularity_caption(noise),
        "feature_words": feature_words(model, shares),
        "draw_popularity": partial(charts.popularity_chart, model.popularity, noise),
        "draw_reliability": partial(charts.reliability_chart, bands),
        "draw_features": shares and partial(features_chart, bands, shares),
    }


def _block(
    model: ItemModel,
    statement: Statement,
    order: NDArray[np.int64],
    rounded: packing.RoundedFeatures,
    titles: Titles,
    inside: Inside | None,
) -> str:
    """Return all numbers of the page, with items in order of released popularity."""
    ids = [model.task_ids.id_of(int(code)) for code in order]
    start, own = _compared_by(model, order)
    header = {
        "kind": model.kind,
        "solvable": isinstance(model, RatingModel | ClickModel),
        "ids": ids,
        "titles": [titles.get(each, f"item {each}") for each in ids],
        "offset": float(model.offset),
        "range": [float(bound) for bound in model.value_range],
        "steps": rounded.steps.tolist(),
        "vectorStart": start,
        "vectorSteps": None if own is None else own.steps.tolist(),
        "choice": choice_header(model, order),
        "grid": GRID,
        "budget": _budget(statement),
        "flow": [_flow(row) for row in explain(statement)],
        "families": [vars(family) for family in families_of(explain(statement))],
        "twinWidth": None if inside is None else inside.n_near,
    }
    fold_in = model.fold_in
    arrays: dict[str, NDArray[Any]] = {
        "planes": rounded.planes(),
        "places": item_map(model.vectors)[order],
        "popularity": np.asarray(model.popularity, np.float32)[order],
        "reliability": np.round(np.clip(model.reliability, 0, 1)[order] * 65535).astype(np.uint16),
        "weights": np.asarray(fold_in.observation_weights, np.float32)[order],
        "base": np.asarray(fold_in.base, np.float32),
        "right": np.asarray(fold_in.base_rhs, np.float32),
        "codes": order.astype(np.uint32),
        **choice_arrays(model, order),
        **({} if own is None else {"vectorPlanes": own.planes()}),
        **({} if inside is None else twin_arrays(inside, order)),
    }
    return packing.pack(header, arrays)


def _flow(row: ReleaseRow) -> dict[str, Any]:
    """Return a release as the flow chart of the budget shows it."""
    release = row.release
    return {
        "name": release.name,
        "family": row.family,
        "purpose": row.purpose,
        "share": release.share,
        "mu": release.mu,
        "stddev": release.stddev,
        "mechanism": release.mechanism_words,
        "sensitivity": release.sensitivity,
        "derivation": release.derivation,
        "shape": shape(release.shape),
    }


def _budget(statement: Statement) -> dict[str, Any]:
    form = _form(statement)
    mu = gaussian.mu_of(statement.epsilon, statement.noise_delta) if form == "gaussian" else None
    return {
        "epsilon": statement.epsilon,
        "delta": statement.delta,
        "deltaWords": exact(statement.delta),
        "form": form,
        "mu": mu,
    }


def _form(statement: Statement) -> str:
    """Return what is known about the releases together; the cases are those of `meaning_of`."""
    if statement.delta == 0:
        return "pure"
    return "pair" if statement.spent_mu is None else "gaussian"


def _compared_by(model: ItemModel, order: NDArray[np.int64]) -> tuple[int | None, packing.RoundedFeatures | None]:
    """Return the first column of the vectors by which items are compared; if the features lack them, the vectors."""
    start = model.fold_in.features.shape[1] - model.vectors.shape[1]
    if start >= 0 and _same_directions(model.fold_in.features[:, start:], model.vectors):
        return start, None
    return None, packing.round_vectors(model.vectors[order])


def _same_directions(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]) -> bool:
    """Whether one array is a multiple of the other, up to the rounding of float32."""
    lengths = [float(np.sqrt(np.square(array, dtype=np.float64).sum())) for array in (one, other)]
    if min(lengths) == 0:
        return lengths[0] == lengths[1]
    return bool(np.allclose(one / lengths[0], other / lengths[1], rtol=1e-5, atol=1e-9))


def _score_scale(model: ItemModel) -> float:
    low, high = model.value_range
    return (high - low) / 4 if isinstance(model, RatingModel) else 1.0


def _plain_digits(loss: float) -> str:
    """Round a small number up to one digit, without an exponent."""
    return np.format_float_positional(rounded_up(loss, 1), trim="-")


def _script() -> str:
    parts = [source(f"{_FOLDER}/{name}.js") for name in _SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _verbatim(text: str) -> Any:
    from markupsafe import Markup

    if "</" in text:
        raise ValueError("Expected a script or style sheet that does not close its own element.")
    return Markup(text)
