"""`recommend` and `similar` read a saved model and answer for people, files and machines."""

from __future__ import annotations

import csv

import pyarrow.parquet as parquet
import pytest

from apportion.recommend.rating_settings import CHOICE_SHARE


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_every_user_gets_k_items_that_they_do_not_have(run, fitted, ratings, rows, kind):
    answer = run("recommend", fitted / kind, ratings, "-k", 4, "--json").json
    assert answer["users"] == 300
    owned = {(user, item) for user, item, _ in rows}
    for each in answer["recommendations"]:
        assert len(each["items"]) == min(4, 40 - sum(user == each["user"] for user, _ in owned))
        assert not {(each["user"], entry["item"]) for entry in each["items"]} & owned
        scores = [entry["score"] for entry in each["items"]]
        assert scores == sorted(scores, reverse=True)


def test_a_file_holds_the_same_as_the_json(run, fitted, ratings, folder):
    model = fitted / "ratings"
    listed = run("recommend", model, ratings, "-k", 3, "--json").json["recommendations"]
    expected = [(each["user"], entry["item"], rank + 1) for each in listed for rank, entry in enumerate(each["items"])]
    assert "300 users" in run("recommend", model, ratings, "-k", 3, "--out", "r.parquet").stdout
    frame = parquet.read_table(folder / "r.parquet")
    assert list(zip(*(frame[name].to_pylist() for name in ("user", "item", "rank")), strict=True)) == expected
    run("recommend", model, ratings, "-k", 3, "--out", "r.csv")
    with (folder / "r.csv").open(newline="") as stream:
        assert [(int(r["user"]), int(r["item"]), int(r["rank"])) for r in csv.DictReader(stream)] == expected


def test_one_user_can_be_asked_for_and_is_served_from_their_own_rows_alone(run, fitted, ratings, write, rows):
    model = fitted / "ratings"
    asked = run("recommend", model, ratings, "--user", 7, "--json").json["recommendations"]
    alone = write("alone.csv", "user,item,rating", [row for row in rows if row[0] == 7])
    assert run("recommend", model, alone, "--json").json["recommendations"] == asked


def test_rows_of_unknown_items_are_left_out_with_a_remark(run, fitted, write, rows):
    own = [row for row in rows if row[0] == 7]
    known = write("known.csv", "user,item,rating", own)
    more = write("more.csv", "user,item,rating", [*own, (7, 4444, 5.0)])
    model = fitted / "ratings"
    result = run("recommend", model, more, "--json")
    assert f"1 of {len(own) + 1} rows" in result.stderr
    assert result.json == run("recommend", model, known, "--json").json


def test_no_option_is_named_that_the_command_lacks(run, fitted, write):
    untidy = write("untidy.csv", "user,item,rating", [(1, 3, 4), (1, 3, 5), (1, 4, "")])
    said = run("recommend", fitted / "ratings", untidy).stderr
    assert "1 row repeated a user and an item; rule: last.\n" in said
    assert "1 row had an empty user, item, value or time; they were left out.\n" in said
    two = write("two.csv", "user,item,rating", [(1, 3, 4), (1, 3, 5), (2, 3, 4)])
    fit = run("fit", two, "--epsilon", 1, "--items", "from-data", "--out", "m")
    assert "1 row repeated a user and an item; rule: last (--repeats changes it)." in fit.stderr


def test_values_outside_the_scale_of_the_model_are_said(run, fitted, write):
    history = write("history.csv", "user,item,rating", [(1, 1, -3.0), (1, 2, 4.0), (2, 1, 9.0)])
    said = run("recommend", fitted / "ratings", history, "--json").stderr
    assert "2 of 3 values are outside the model's scale, 1 to 5; each counts as the nearest end of the scale." in said


def test_a_table_shows_some_users_and_says_where_the_others_are(run, fitted, ratings):
    result = run("recommend", fitted / "ratings", ratings, "-k", 2)
    assert result.stdout.count("user ") == 5
    assert "295 more users" in result.stderr


def test_more_items_than_there_are_is_all_of_them(run, fitted, ratings):
    (each,) = run("recommend", fitted / "clicks", ratings, "-k", 500, "--user", 7, "--json").json["recommendations"]
    assert len({entry["item"] for entry in each["items"]}) == len(each["items"]) < 40


def test_similar_items_come_with_similarity_and_reliability(run, fitted):
    answer = run("similar", fitted / "ratings", 3, "-k", 5, "--json").json
    assert answer["item"] == 3
    values = [each["similarity"] for each in answer["similar"]]
    assert values == sorted(values, reverse=True)
    assert all(0 <= each["reliability"] <= 1 and each["item"] != 3 for each in answer["similar"])
    assert "similar item" in run("similar", fitted / "ratings", 3).stdout


def test_a_model_of_one_item_says_that_none_is_similar(refused, run, write):
    name = write("one.csv", "user,item,rating", [(user, 7, 1 + user % 5) for user in range(300)])
    run("fit", name, "--epsilon", 8, "--out", "one")
    assert "This model has a single item, so none is similar to it." in refused("similar", "one", 7)


def test_lists_in_the_order_of_choices_say_what_the_score_is(run, fitted, ratings):
    run("fit", ratings, "--epsilon", 20, "--rank-by", "choice", "--rounds", 3, "--out", "choosing")
    said = "Items are in the order of likely choices; the score is the predicted value."
    assert said in run("recommend", "choosing", ratings, "-k", 3, "--user", 7).stderr
    assert said not in run("recommend", fitted / "ratings", ratings, "-k", 3, "--user", 7).stderr


def test_the_help_names_the_share_of_the_budget_that_choices_take(run):
    said = " ".join(run("fit", "--help").stdout.split())
    assert f"will choose and value, for {100 * CHOICE_SHARE:g} % of the budget" in said


def test_similar_items_of_many_items_are_written_as_rows(run, fitted, write, folder):
    """Each row is what the same question about one item answers; without items, all of them are asked about."""
    titles = write("titles.csv", "item,title", [(item, f"Film {item}") for item in range(40)])
    run("similar", fitted / "ratings", 3, "Film 7", "-k", 2, "--titles", titles, "--out", "near.csv")
    rows = list(csv.DictReader((folder / "near.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["item"], row["rank"]) for row in rows] == [("3", "1"), ("3", "2"), ("7", "1"), ("7", "2")]
    for item, found in (("3", rows[:2]), ("7", rows[2:])):
        alone = run("similar", fitted / "ratings", item, "-k", 2, "--json").json["similar"]
        assert [(row["similar"], float(row["similarity"])) for row in found] == [
            (str(each["item"]), each["similarity"]) for each in alone
        ]
        assert found[0]["title"] == f"Film {found[0]['similar']}"
    run("similar", fitted / "ratings", "-k", 1, "--out", "all.csv")
    assert len((folder / "all.csv").read_text(encoding="utf-8").splitlines()) == 41
    assert "give --out FILE.csv for many" in run("similar", fitted / "ratings", 3, 4, code=2).stderr
    assert "cannot be combined" in run("similar", fitted / "ratings", 3, "--out", "x.csv", "--json", code=2).stderr


def test_similar_items_of_several_models_stand_side_by_side(run, fitted, write):
    both = (fitted / "ratings", "--beside", fitted / "clicks")
    answer = run("similar", both[0], 3, *both[1:], "-k", 4, "--json").json
    assert list(answer["models"]) == [str(fitted / "ratings"), str(fitted / "clicks")]
    for folder, found in answer["models"].items():
        alone = run("similar", folder, 3, "-k", 4, "--json").json["similar"]
        assert [each["item"] for each in found] == [each["item"] for each in alone]
    titles = write("titles.csv", "id,title", [[k, f"Film {k}"] for k in range(40)])
    table = run("similar", both[0], 3, *both[1:], "--titles", titles).stdout
    assert table.splitlines()[0] == "Film 3"
    assert len(table.splitlines()) == 4 + 10


def test_items_can_be_found_by_their_titles(run, fitted, write):
    titles = write("titles.csv", "id,title", [[k, f"The {name}"] for k, name in enumerate(["Bird", "Birds", "Cat"])])
    history = write("history.csv", "user,item,rating", [[1, 5, 5]])
    model = fitted / "ratings"
    assert run("similar", model, "cat", "--titles", titles, "--json").json["item"] == 2
    assert run("similar", model, "the bird", "--titles", titles, "--json").json["title"] == "The Bird"
    said = run("similar", model, "bird", "--titles", titles, code=2).stderr
    assert "matches 2 titles: The Bird (0); The Birds (1)" in said
    assert "'dog'" in run("similar", model, "dog", "--titles", titles, code=2).stderr
    assert "The Bird" in run("recommend", model, history, "-k", 39, "--titles", titles).stdout


def test_items_can_be_limited_to_a_list_and_kept_from_everybody(run, fitted, ratings, write):
    few = write("few.csv", "item", [[k] for k in (3, 5, 7, 9, 4444)])
    none = write("none.csv", "item", [[5], [7]])
    result = run("recommend", fitted / "clicks", ratings, "--only", few, "--exclude", none, "--json")
    assert "few.csv: 1 of its items are unknown to the model" in result.stderr
    found = {entry["item"] for each in result.json["recommendations"] for entry in each["items"]}
    assert found == {3, 9}
    strange = write("strange.csv", "item", [[4444]])
    said = run("recommend", fitted / "clicks", ratings, "--only", strange, code=2).stderr
    assert "strange.csv: the model knows none of its items (the model's first item is 0)" in said


def test_a_list_is_mixed_by_caps_on_categories(run, fitted, ratings, write):
    words = write("genres.csv", "item,genre,label", [[k, f"genre{k % 3}", f"label{k}"] for k in range(40)])
    asked = ("recommend", fitted / "ratings", ratings, "-k", 6, "--json", "--categories", words)
    mixed = run(*asked, "--cap", "genre=2").json["recommendations"]
    for each in mixed:
        kinds = [entry["item"] % 3 for entry in each["items"]]
        assert max((kinds.count(kind) for kind in kinds), default=0) <= 2
    assert mixed != run(*asked).json["recommendations"]
    for wrong in ("genre", "genre=0", "=3", "genre=x"):
        said = run("recommend", fitted / "ratings", ratings, "--categories", words, "--cap", wrong, code=2).stderr
        assert f"Expected --cap COLUMN=N with N of at least 1, got '{wrong}'." in said
    said = run("recommend", fitted / "ratings", ratings, "--cap", "genre=2", code=2).stderr
    assert "has no categories" in said


def test_a_file_is_written_part_by_part_and_says_how_far_it_is(run, fitted, ratings, folder, monkeypatch):
    run("recommend", fitted / "ratings", ratings, "--out", "whole.parquet")
    monkeypatch.setattr("apportion.recommend.model.USERS_IN_A_PART", 70)
    result = run("recommend", fitted / "ratings", ratings, "--out", "parts.parquet")
    assert "recommendations: part 5 of 5 done" in result.stderr
    whole, parts = (parquet.ParquetFile(folder / f"{name}.parquet") for name in ("whole", "parts"))
    assert (whole.num_row_groups, parts.num_row_groups) == (1, 5)
    assert whole.read() == parts.read()
    run("recommend", fitted / "ratings", "whole.parquet", "--value", "score", "--item", "item", "--out", "x.csv")


def test_a_file_that_fails_half_way_is_not_left(refused, run, fitted, ratings, folder, monkeypatch):
    monkeypatch.setattr("apportion.recommend.model.USERS_IN_A_PART", 70)

    def no_space_left(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet.ParquetWriter, "write_table", no_space_left)
    assert "No space left on device" in refused("recommend", fitted / "ratings", ratings, "--out", "r.parquet")


def test_titles_given_to_a_fit_are_kept_in_the_model_and_shown_without_the_file(run, ratings, rows, write):
    items = sorted({item for _, item, _ in rows})
    titles = write("titles.csv", "id,title", [(item, f"Film {item}") for item in items])
    options = ("--epsilon", "5", "--items", "from-data", "--dimension", "2", "--rounds", "2", "--tuning", "by hand")
    fit = run("fit", ratings, *options, "--titles", titles, "--out", "model")
    assert "titles of the items" in fit.stdout
    recommended = run("recommend", "model", ratings, "-k", 1, "--json").json["recommendations"][0]["items"][0]
    assert recommended["title"] == f"Film {recommended['item']}"
    assert run("similar", "model", "Film 3", "--json").json["title"] == "Film 3"
    run("explore", "model", "--out", "page.html")


def test_a_list_of_items_with_a_column_of_titles_gives_the_titles(run, ratings, rows, write):
    listed = write("items.csv", "item,year,title", [(item, 1999, f"Film {item}") for item in range(40)])
    options = ("--epsilon", "5", "--dimension", "2", "--rounds", "2", "--tuning", "by hand")
    run("fit", ratings, *options, "--items", listed, "--out", "model")
    assert run("similar", "model", "7", "--json").json["title"] == "Film 7"


def test_lists_that_leave_no_item_are_refused(run, fitted, ratings, write):
    listed = write("some.csv", "item", [(3,), (4,)])
    answer = run("recommend", fitted / "ratings", ratings, "--only", listed, "--exclude", listed, code=2)
    assert "leave no item to recommend" in answer.stderr
