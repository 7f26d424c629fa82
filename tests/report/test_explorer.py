"""The explorer without a browser: what is in the page, how its numbers are rounded, and where items lie."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from apportion.data.synthetic import long_tailed_ratings
from apportion.errors import InputError
from apportion.privacy import SeededNoise
from apportion.recommend.clicks import ClickSettings
from apportion.recommend.clicks_fold_in import Trust
from apportion.recommend.model import ItemModel
from apportion.report import explorer_packing as packing
from apportion.report.explorer import explorer_page
from apportion.report.explorer_features import share_by_band
from apportion.report.explorer_layout import GRID, item_map

import feature_data


def unpacked(page: str) -> tuple[dict, dict]:
    """Header and arrays of a page's block, read independently of the page's own script."""
    text = re.search(r'<script type="text/plain" id="block">([^<]+)</script>', page).group(1)
    content = zlib.decompress(base64.b64decode(text), -15)
    length = int(np.frombuffer(content, "<u4", 1)[0])
    header = json.loads(content[4 : 4 + length])
    arrays = {
        name: np.frombuffer(content, about["type"], int(np.prod(about["shape"])), 4 + length + about["start"]).reshape(
            about["shape"]
        )
        for name, about in header["arrays"].items()
    }
    return header, arrays


def test_the_page_says_that_it_may_be_shared_and_holds_the_statement(model):
    page = explorer_page(model)
    assert "this page may be shared" in page
    assert "NOT FOR RELEASE" not in page
    assert "INTERNAL" not in page
    assert "spring of 2003" in page
    assert "weights &lt;= 1 &amp; so on" in page


def test_a_seeded_model_is_marked_and_not_called_shareable(build):
    page = explorer_page(build(releasable=False))
    assert "NOT FOR RELEASE" in page
    assert "The noise came from a seed" in page
    assert "may be shared" not in page


def test_a_model_without_a_statement_is_refused(build):
    with pytest.raises(InputError, match="without privacy"):
        explorer_page(build(None))


def test_the_policy_of_the_page_allows_its_own_script_and_nothing_else(model):
    page = explorer_page(model)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page).group(1)
    assert policy.startswith("default-src 'none';")
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL).group(1)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL).group(1)
    for text in (script, style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"sha256-{digest}" in policy
    assert "unsafe" not in policy
    assert " style=" not in page


def test_the_page_refers_to_nothing_outside_itself(model):
    page = explorer_page(model)
    assert set(re.findall(r"https?://[^\s\"')]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"(?:href|src)=\"([^\"#]+)", page)) == {"data:,"}


def test_the_block_holds_released_values_in_the_order_of_released_popularity(build):
    model = build(ids=np.array(["a", "<b>", "</script>", "d"] + [f"x{k}" for k in range(36)]))
    header, arrays = unpacked(explorer_page(model, titles={"a": "Alpha <i>"}))
    order = np.argsort(-model.popularity, kind="stable")
    assert header["ids"] == [model.task_ids.id_of(int(code)) for code in order]
    assert "Alpha <i>" in header["titles"]
    assert "item </script>" in header["titles"]
    np.testing.assert_array_equal(arrays["codes"], order)
    np.testing.assert_array_equal(arrays["popularity"], model.popularity[order])
    np.testing.assert_allclose(arrays["reliability"] / 65535, model.reliability[order], atol=1e-5)
    np.testing.assert_array_equal(arrays["base"], model.fold_in.base)
    assert header["budget"]["epsilon"] == model.statement.epsilon
    told = [(each["name"], each["mechanism"], each["stddev"]) for each in header["flow"]]
    assert told == [(each.name, each.mechanism_words, each.stddev) for each in model.statement.releases]


def test_titles_and_ids_never_become_markup(build):
    hostile = "</script><img src=x onerror=alert(1)>"
    page = explorer_page(build(), titles={100: hostile})
    assert hostile not in page
    assert page.count("</script>") == 2


def test_rounded_features_come_back_from_their_bytes(model):
    order = np.arange(model.n_tasks)
    rounded = packing.round_features(model.fold_in, order)
    folded = sum(plane.astype(np.int64) << (8 * k) for k, plane in enumerate(rounded.planes()))
    whole = (folded >> 1) ^ -(folded & 1)
    np.testing.assert_array_equal(whole, rounded.whole)
    assert np.abs(rounded.values - model.fold_in.features).max() <= rounded.steps.max() / 2 * (1 + 1e-9)


def test_rounding_moves_no_score_by_a_ten_thousandth(model):
    order = np.argsort(-model.popularity, kind="stable")
    rounded = packing.round_features(model.fold_in, order)
    assert 0 < packing.rounding_loss(model, rounded, order) < 1e-4


def test_the_measured_loss_grows_with_the_steps(model):
    order = np.argsort(-model.popularity, kind="stable")
    fine = packing.round_features(model.fold_in, order)
    steps = 100 * fine.steps
    coarse = packing.RoundedFeatures(np.round(model.fold_in.features[order] / steps).astype(np.int64), steps, 0.0)
    assert packing.rounding_loss(model, coarse, order) > 10 * packing.rounding_loss(model, fine, order)


def test_features_are_rounded_more_coarsely_where_the_page_would_be_too_large(model, monkeypatch):
    order = np.arange(model.n_tasks)
    fine = packing.round_features(model.fold_in, order)
    monkeypatch.setattr(packing, "_MOST_BYTES", len(zlib.compress(fine.planes().tobytes())) - 40)
    coarse = packing.round_features(model.fold_in, order)
    assert coarse.tolerance > fine.tolerance
    assert len(zlib.compress(coarse.planes().tobytes())) <= packing._MOST_BYTES


def test_a_model_whose_vectors_are_not_among_its_features_brings_them_along(model):
    other = np.random.default_rng(2).standard_normal(model.vectors.shape).astype(np.float32)
    model.vectors = other
    header, arrays = unpacked(explorer_page(model))
    assert header["vectorStart"] is None
    folded = sum(plane.astype(np.int64) << (8 * k) for k, plane in enumerate(arrays["vectorPlanes"]))
    vectors = ((folded >> 1) ^ -(folded & 1)) * np.array(header["vectorSteps"])
    np.testing.assert_allclose(vectors, other[arrays["codes"]], atol=1e-4)


def test_a_model_of_another_loss_has_a_map_and_no_recommendations(model):
    class Other(ItemModel):
        kind = "convex"

        def labels(self, history):
            return history.values

    given = {name: getattr(model, name) for name in ("fold_in", "vectors", "popularity", "reliability", "task_ids")}
    page = explorer_page(Other(statement=model.statement, **given))
    assert 'id="canvas"' in page
    assert 'id="taste"' not in page


@pytest.mark.parametrize(("delta", "form"), [(0.0, "pure"), (1e-6, "pair")])
def test_a_guarantee_that_is_not_gaussian_is_not_drawn_as_one(model, delta, form):
    model.statement = replace(model.statement, delta=delta, spent_mu=None)
    page = explorer_page(model)
    header, _ = unpacked(page)
    assert header["budget"]["form"] == form
    assert "so the curve is exact" not in page


def test_near_items_lie_near_on_the_map():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(5), 40)
    vectors = np.eye(5)[cluster] + 0.05 * rng.standard_normal((200, 5))
    places = item_map(vectors).astype(float)
    centres = np.stack([places[cluster == k].mean(axis=0) for k in range(5)])
    within = np.linalg.norm(places - centres[cluster], axis=1).mean()
    between = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    assert within < 0.5 * between[between > 0].min()


def test_the_map_is_the_same_for_the_same_vectors_and_fills_its_frame():
    vectors = np.random.default_rng(1).standard_normal((300, 6)).astype(np.float32)
    places = item_map(vectors)
    np.testing.assert_array_equal(places, item_map(vectors.copy()))
    assert places.max() == GRID
    assert places.min() == 0


def test_rounding_errors_of_a_processor_do_not_move_the_map():
    """Another order of additions moves products by a few units in the last place; the map must not follow."""
    vectors = np.random.default_rng(1).standard_normal((300, 6))
    shaken = vectors * (1 + 2.0**-51 * np.random.default_rng(2).integers(-4, 5, vectors.shape))
    assert not np.array_equal(vectors, shaken)
    np.testing.assert_array_equal(item_map(vectors), item_map(shaken))


@pytest.mark.parametrize("n_items", [1, 2, 3, 5])
def test_few_items_and_items_without_a_vector_have_places(n_items):
    vectors = np.random.default_rng(3).standard_normal((n_items, 4))
    vectors[0] = 0
    places = item_map(vectors)
    assert places.shape == (n_items, 2)
    assert places[0].tolist() == [GRID // 2, GRID // 2]


@pytest.mark.parametrize("kind", feature_data.RECOMMENDERS)
def test_what_features_added_is_told_by_popularity(kind):
    data, _ = long_tailed_ratings(200, 30, 2500, rank=2, rng=np.random.default_rng(0))
    trusting = {} if kind == "ratings" else {"settings": ClickSettings(choices=(Trust(0.2, 1, 0.7),))}
    make = feature_data.RECOMMENDERS[kind]
    model = make(feature_data.features_of(30), noise=SeededNoise(1), **trusting).fit(data).model_
    shares = share_by_band(model, 4)
    assert len(shares) == 4
    assert all(0 <= share < 1 for share in shares)
    assert max(shares) > 0
    assert "that public features explain" in explorer_page(model)


def test_features_account_for_what_follows_from_them_and_for_nothing_else(build):
    rng = np.random.default_rng(3)
    directions = rng.standard_normal((400, 2))
    learned = rng.standard_normal((400, 2))
    learned[200:] = directions[200:] @ np.array([[3.0, 0.0], [0.0, 3.0]])  # rare items follow their features
    model = build(n_tasks=400)
    model.vectors = np.concatenate([learned, 0.1 * directions], axis=1).astype(np.float32)
    model.settings = {"dimension": 2}
    model.feature_map = object()
    head, tail = share_by_band(model, 2)
    assert tail > 0.7
    assert head < 0.2


def test_without_features_the_page_says_so(model):
    assert share_by_band(model, 4) == []
    assert "fitted without item features" in explorer_page(model)


def test_tables_that_the_script_fills_keep_their_column_names_on_a_phone():
    page = (files("apportion.report") / "templates" / "explorer" / "explorer.html").read_text(encoding="utf-8")
    filled = re.findall(r'<table class="([^"]*)">(?:(?!</table>).)*<tbody id=', page, re.DOTALL)
    assert len(filled) == 3
    assert all("plain" in kinds.split() for kinds in filled)
