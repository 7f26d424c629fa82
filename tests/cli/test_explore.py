"""`apportion explore`: one page from a model folder, and its internal twin from raw data too."""

from __future__ import annotations

import webbrowser

import pytest

from apportion.recommend import load
from apportion.report.explorer import explorer_page


def test_the_page_is_made_from_the_model_alone_and_the_program_says_how_to_open_it(run, fitted, folder):
    result = run("explore", fitted / "ratings", "--out", "a/page.html")
    page = (folder / "a/page.html").read_text(encoding="utf-8")
    assert page == explorer_page(load(fitted / "ratings"))
    assert result.stdout == f"Page: a/page.html\nOpen it in a browser: {(folder / 'a/page.html').as_uri()}\n"
    assert "NOT FOR RELEASE" in page  # the model was fitted with seeded noise


def test_titles_come_from_a_file(run, fitted, write, folder):
    write("titles.csv", "item,title", [(0, "The First"), (1, "The Second")])
    run("explore", fitted / "clicks", "--titles", "titles.csv")
    named = explorer_page(load(fitted / "clicks"), titles={0: "The First", 1: "The Second"})
    assert (folder / "explorer.html").read_text(encoding="utf-8") == named


def test_with_evaluation_the_page_is_internal(run, fitted, folder):
    result = run("explore", fitted / "ratings", "--evaluation", fitted / "ratings.csv", "--json")
    page = (folder / "explorer-internal.html").read_text(encoding="utf-8")
    assert result.json == {
        "page": "explorer-internal.html",
        "may_be_shared": False,
        "bytes": len(page.encode()),
    }
    assert "<strong>INTERNAL</strong>" in page
    assert "Quality on raw data" in page
    assert "Neighbours shared with the non-private model" in page
    assert "If these rows were in its training data" in page


def test_where_all_values_are_equal_the_internal_page_says_that_there_is_nothing_to_compare(run, fitted, write, folder):
    equal = write("equal.csv", "user,item,rating", [(user, item, 4) for user in range(60) for item in range(5)])
    run("explore", fitted / "ratings", "--evaluation", equal)
    page = (folder / "explorer-internal.html").read_text(encoding="utf-8")
    assert "so it has no neighbours to compare with" in page
    assert "twinNear" not in page.replace("this.data.twinNear", "")


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_without_evaluation_nothing_internal_is_in_the_page(run, fitted, folder, kind):
    run("explore", fitted / kind)
    page = (folder / "explorer.html").read_text(encoding="utf-8")
    for word in ("INTERNAL", "twinNear", "Quality on raw data"):
        assert word not in page.replace("this.data.twinNear", "")


def test_open_opens_the_page_and_says_if_it_cannot(run, fitted, folder, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)))
    result = run("explore", fitted / "clicks", "--open")
    assert opened == [(folder / "explorer.html").as_uri()]
    assert "No browser could be opened" in result.stderr


def test_what_is_no_model_is_refused(refused, write, folder):
    (folder / "empty").mkdir()
    assert "no saved model" in refused("explore", "empty")


def test_a_folder_is_no_place_for_the_page(refused, fitted, folder):
    (folder / "page.html").mkdir()
    assert "it is a folder" in refused("explore", fitted / "clicks", "--out", "page.html")
