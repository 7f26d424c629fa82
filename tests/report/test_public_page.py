"""The page that may be shared says what the statement says, holds nothing else, and refers to nothing outside."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from apportion.data import Interactions, ItemFeatures
from apportion.data.synthetic_features import ratings_with_features
from apportion.errors import InputError
from apportion.privacy import Purpose
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender, load, save
from apportion.report import public_page
from apportion.report.releases import COLOURS

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Outline(HTMLParser):
    """Collects text and tags, and fails on tags that are not closed in order."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.words = [], [], []
        self.feed(page)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def test_the_page_contains_the_numbers_of_the_statement(model):
    text = Outline(public_page(model)).text
    statement = model.statement
    for words in ("0.9731", "1e-6", "spring of 2003", "add or remove one user", *statement.public, statement.noise):
        assert words in text
    for words in (statement.unit, statement.tuning, statement.arithmetic, "dimension = 3", "exponent = 0.25"):
        assert words in text
    for release in statement.releases:
        assert release.name in text
        assert f"{release.stddev:.4g}" in text
        assert release.derivation in text
        assert f"{100 * release.share:.1f} %" in text


def test_the_time_window_is_said_to_be_declared_only_if_it_was(model):
    assert "spring of 2003 as declared by the operator" in Outline(public_page(model)).text
    text = Outline(public_page(copy_with(model, replace(model.statement, window="not declared")))).text
    assert "not declared the operator gave none" in text
    assert "as declared by" not in text


def test_each_mechanism_is_named_once_and_as_it_is_called(model):
    listed = replace(model.statement.releases[0], mechanism_words="Gaussian, keys above a threshold")
    text = Outline(
        public_page(copy_with(model, replace(model.statement, releases=(*model.statement.releases, listed))))
    )
    assert "Mechanism: Gaussian; Gaussian, keys above a threshold." in text.text


def test_the_page_is_in_words_and_not_in_those_of_python(model):
    text = Outline(public_page(model)).text
    said = text.split("The statement for machines")[0]
    assert "Neighbouring data sets add or remove one user" in said
    assert "which is ε" in said
    assert not re.search(r"\bNone\b|\w+\(key=|'\w+':", said)


def test_the_rules_for_rows_are_on_the_page(model):
    ruled = replace(model.statement, rules=("that only rows with rating > 0 were kept",))
    said = Outline(public_page(copy_with(model, ruled))).text.split("The statement for machines")[0]
    assert "that only rows with rating > 0 were kept" in said


def copy_with(model, statement):
    """Return the model with another statement."""
    other = copy(model)
    other.statement = statement
    return other


def test_the_statement_is_on_the_page_word_for_word_as_json(model):
    assert " ".join(model.statement.to_json().split()) in Outline(public_page(model)).text


def test_the_page_refers_to_nothing_outside_itself(model):
    page = public_page(model)
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|<iframe|<img", page.replace("</", "<"))
    assert not [tag for tag, attributes in Outline(page).tags if {"src", "href"} & set(attributes)]


def test_titles_cannot_smuggle_markup_into_the_page(model):
    titles = {task: f"<script>alert({task})</script> & 'co' \"x\"" for task in model.task_ids}
    page = public_page(model, titles=titles)
    assert "<script" not in page
    assert "<script>alert(100)</script> & 'co' \"x\"" in Outline(page).text


def test_ids_and_statements_cannot_smuggle_markup_either(build):
    page = public_page(build(ids=[f"<b x>{k}</b>" for k in range(40)]))
    assert "<b x" not in page
    assert "<1 to 5>" not in page


def test_items_have_their_titles_or_their_ids(model):
    assert "Casablanca" in public_page(model, titles={100: "Casablanca"})
    assert "item 100" in public_page(model)


def test_a_page_from_the_saved_files_is_the_same_page(model, tmp_path):
    save(model, tmp_path / "model")
    assert public_page(load(tmp_path / "model")) == public_page(model)


def test_no_user_of_the_data_is_on_the_page():
    rng = np.random.default_rng(2)
    users = [f"person-{k:03d}" for k in rng.integers(0, 60, 900)]
    pairs = sorted(set(zip(users, rng.integers(0, 25, 900).tolist(), strict=True)))
    data = Interactions.from_arrays(*zip(*pairs, strict=True), rng.integers(1, 6, len(pairs)))
    fitted = PrivateRatingRecommender(2.0, 1e-5, dimension=2, rounds=2, items="from-data").fit(data)
    page = public_page(fitted.model_)
    assert "person-" not in page
    assert f">{data.n_observations}<" not in page
    assert f" {data.n_observations} " not in page


def test_a_model_with_seeded_noise_is_marked_and_promises_nothing(build):
    page = public_page(build(releasable=False))
    assert '<div class="banner red"' in page
    assert "NOT FOR RELEASE" in page
    assert "may be shared" not in page
    assert "learns almost nothing" not in page


def test_a_model_that_may_be_released_is_not_marked(model):
    page = public_page(model)
    assert "NOT FOR RELEASE" not in page
    assert "this page may be shared" in page


def test_a_model_without_a_statement_gets_no_page(build):
    with pytest.raises(InputError, match="without privacy"):
        public_page(build(None))


@pytest.mark.parametrize(("epsilon", "words"), [(0.5, "almost nothing"), (4.0, "only a little"), (30.0, "weakly")])
def test_the_headline_is_no_stronger_than_the_guarantee(build, epsilon, words):
    assert words in public_page(build(epsilon=epsilon))


def test_what_was_not_spent_is_shown(build):
    assert "not spent" in public_page(build(shares=(0.01, 0.09, 0.3, 0.05, 0.35)))
    assert "not spent" not in public_page(build(shares=(0.01, 0.09, 0.3, 0.1, 0.5)))


@pytest.mark.parametrize("n_tasks", [1, 2, 3, 12])
def test_a_handful_of_items_still_makes_a_page(build, n_tasks):
    Outline(public_page(build(n_tasks=n_tasks)))


def test_popularity_without_noise_of_its_own_or_above_zero_still_makes_a_page(build):
    model = build()
    model.popularity = -model.popularity
    Outline(public_page(model))
    renamed = [r for r in model.statement.releases if r.name != "popularity"]
    object.__setattr__(model.statement, "releases", tuple(renamed))
    assert "has noise" not in Outline(public_page(model)).text


@pytest.mark.parametrize(("kind", "prior"), [("ratings", "say about it"), ("clicks", "all items have in common")])
def test_public_features_are_named_with_what_they_hold(kind, prior):
    data, described, _ = ratings_with_features(60, 30, 900, rng=np.random.default_rng(0))
    frame = pa.table({"item": np.arange(30), "note": ["a b <c>"] * 30, "length": np.arange(30.0)})
    features = described.beside(ItemFeatures.from_frame(frame, kinds={"note": "text"}, buckets=2048))
    make = PrivateRatingRecommender if kind == "ratings" else PrivateClickRecommender
    model = make(2.0, features=features, dimension=2, rounds=1).fit(data).model_
    page = public_page(model)
    for words in (
        "the features of items: words, year, note, length",
        "words: any of 12 words",
        "year: a number, by 6 knots",
        "note: running text, hashed into 2,048 columns",
        "length: a number<",
        prior,
    ):
        assert words in page, words


def test_a_model_without_features_says_nothing_of_them(model):
    assert "features" not in public_page(model)


def test_every_purpose_of_a_release_has_a_colour():
    assert set(Purpose) == set(COLOURS)
