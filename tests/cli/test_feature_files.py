"""`fit --features` and `recommend --new-items`: public features in, items that training never met ranked."""

from __future__ import annotations

import json

import pytest

from apportion.recommend import load

SMALL = ("--dimension", "2", "--rounds", "2")


@pytest.fixture
def items(write):
    """Features of the 40 items of the ratings file."""
    return write("items.csv", "item,words,year", [(i, f"w{i % 3}|w{i % 5}", 1980 + i % 7) for i in range(40)])


@pytest.fixture
def new_items(write):
    return write("new.csv", "item,words,year", [(100, "w1|w2", 1983), (101, "w0", 1985)])


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_a_model_fitted_with_features_ranks_items_it_has_never_met(run, request, items, new_items, kind):
    data = request.getfixturevalue(kind)
    fitted = run(
        "fit", data, "--epsilon", 5, *SMALL, "--features", items, "--feature-kind", "year=binned", "--out", "m"
    )
    assert "the features of items: words, year" in fitted.stdout
    assert "words (multivalent), year (binned)" in fitted.stderr
    assert load("m").feature_map is not None
    answer = run("recommend", "m", data, "-k", 42, "--user", 7, "--new-items", new_items, "--json").json
    (each,) = answer["recommendations"]
    listed = [entry["item"] for entry in each["items"]]
    assert {100, 101} <= set(listed)
    assert len(set(listed)) == len(listed)


def test_new_items_are_written_to_files_and_found_among_titles(run, ratings, items, new_items, write, folder):
    run("fit", ratings, "--epsilon", 5, *SMALL, "--features", items, "--out", "m")
    titles = write("titles.csv", "item,title", [(100, "A new one"), (3, "An old one")])
    run("recommend", "m", ratings, "-k", 42, "--new-items", new_items, "--titles", titles, "--out", "r.csv")
    text = (folder / "r.csv").read_text()
    assert "A new one" in text
    assert "An old one" in text


def test_what_does_not_fit_together_gets_one_sentence(run, ratings, items, new_items, write):
    run("fit", ratings, "--epsilon", 5, *SMALL, "--out", "alone")
    for arguments, message in [
        (("recommend", "alone", ratings, "--new-items", new_items), "fitted without features"),
        (("fit", ratings, "--epsilon", 5, "--feature-kind", "year=binned"), "needs --features"),
        (("fit", ratings, "--epsilon", 5, "--features", items, "--feature-kind", "year"), "COLUMN=KIND, got 'year'"),
        (("fit", ratings, "--epsilon", 5, "--features", items, "--feature-kind", "year=odd"), "'odd'"),
        (
            ("fit", ratings, "--epsilon", 5, "--features", write("far.csv", "item,word", [(900, "a")])),
            "No item with features",
        ),
    ]:
        result = run(*arguments, code=2)
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_a_column_can_be_ignored_and_fine_features_are_remarked_on(run, ratings, write):
    items = write("items.csv", "item,serial,word", [(i, f"s{i}", f"w{i % 4}") for i in range(40)])
    first = run("fit", ratings, "--epsilon", 5, *SMALL, "--features", items, "--out", "a")
    assert "'serial' is very specific" in first.stderr
    second = run(
        "fit", ratings, "--epsilon", 5, *SMALL, "--features", items, "--feature-kind", "serial=ignore", "--json"
    )
    assert "very specific" not in second.stderr
    assert "the features of items: word" in json.dumps(second.json)
