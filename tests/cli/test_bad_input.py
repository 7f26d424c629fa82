"""Bad input gets one sentence that quotes what is wrong, exit code 2, no traceback, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.recommend import load

SMALL = ("--dimension", "2", "--rounds", "2")


@pytest.fixture
def refused(run, folder):
    """Run a command that must be refused; returns its sentence and checks that the folder did not change."""

    def sentence(*arguments, code=2):
        before = sorted(path.name for path in folder.rglob("*"))
        result = run(*arguments, code=code)
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        assert sorted(path.name for path in folder.rglob("*")) == before
        return result.stderr

    return sentence


@pytest.mark.parametrize("command", ["fit", "evaluate"])
@pytest.mark.parametrize(
    ("header", "lines", "words"),
    [
        ("user,item,rating", [[1, 1, 5], [2, 1, 7], [2, 3, 4]], "7 of user 2 for item 1 is outside the scale 1 to 5"),
        ("user,song,plays", [[1, 1, 5], [2, 1, 70], [2, 3, 4]], "(rows that count plays or visits are clicks"),
        ("user,item,rating", [[1, 1, 5], [2, 1, "inf"], [2, 3, 4]], "holds inf in row 2"),
        ("user,item,rating", [[1, 1, 5], [2, 1, "good"], [2, 3, 4]], "'good'"),
        (
            "user,item,rating",
            [[1, 1, 5], [2, 1, ""], [3, 3, "?"], [2, 3, "good"]],
            "among the rows kept: Column 'rating'",
        ),
        ("user,item,rating", [[1, 1, ""], [2, 1, "nan"]], "No row is left: 2 had an empty cell (of 2)"),
        ("user,item,rating", [[1, 1, 5], [1, 2, 4]], "at least two users"),
        ("user,item,rating", [], "no rows"),
        ("who,item,rating", [[1, 1, 5], [2, 2, 4]], "name it with --user"),
        ("user,what,rating", [[1, 1, 5], [2, 2, 4]], "name it with --item"),
        ("user,item,movie", [[1, 1, 5], [2, 2, 4]], "say which with --item"),
    ],
)
def test_data_that_cannot_be_used_is_refused(refused, write, command, header, lines, words):
    name = write("bad.csv", header, lines)
    said = refused(command, name, "--epsilon", 1)
    assert words in said
    assert said.splitlines()[-1].startswith("Error: bad.csv")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--epsilon", "0"), "above 0, got 0"),
        (("--epsilon", "-1"), "above 0, got -1"),
        (("--epsilon", "inf"), "got inf"),
        (("--epsilon", "much"), "'much'"),
        (("--epsilon", "1", "--delta", "1.5"), "got 1.5"),
        (("--epsilon", "1", "--delta", "0"), "a number above 1e-300 and below 1, got 0"),
        (("--epsilon", "1", "--delta", "1"), "a number above 1e-300 and below 1, got 1"),
        (("--epsilon", "1", "--delta", "1e-300"), "a number above 1e-300 and below 1, got 1e-300"),
        (("--epsilon", "1", "--scale", "5", "1"), "got 5 1"),
        (("--epsilon", "1", "--ratings", "--clicks"), "--ratings and --clicks cannot be combined"),
        (("--epsilon", "1", "--clicks", "--ratings"), "--ratings and --clicks cannot be combined"),
        (("--epsilon", "1", "--rounds", "100000"), "at most 200, got 100000"),
        (("--epsilon", "1", "--dimension", "100000"), "at most 10000, got 100000"),
        (("--epsilon", "1", "--value", "stars"), "no column 'stars'"),
        (("--epsilon", "1", "--ratings", "--min-value", "3"), "cannot be combined with --ratings"),
        (("--epsilon", "1", "--min-value", "9"), "at least 9"),
        (("--epsilon", "1", "--n-users", "0"), "--n-users"),
        (("--epsilon", "1", "--rounds", "0"), "--rounds"),
        (("--epsilon", "1", "--titles", "missing.csv"), "missing.csv"),
        (("--epsilon", "1", "--columns", "a,b"), "Expected 2 columns"),
        ((), "--epsilon"),
    ],
)
def test_options_that_make_no_sense_are_refused(refused, ratings, options, words):
    assert words in refused("fit", ratings, *options)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_text_that_is_not_in_utf8_is_refused_before_it_is_read(refused, ratings, folder, encoding):
    text = (folder / ratings).read_text(encoding="utf-8")
    (folder / "odd.csv").write_text(text, encoding=encoding)
    for arguments in (["odd.csv"], [ratings, "--items", "odd.csv"], [ratings, "--titles", "odd.csv"]):
        said = refused("fit", *arguments, "--epsilon", 1)
        assert "Error: odd.csv: The file is not text in UTF-8" in said.splitlines()[-1]


def test_ratings_need_a_value_column(refused, clicks):
    assert "name it with --value" in refused("fit", clicks, "--ratings", "--epsilon", 1)


def test_recommend_says_how_its_own_columns_are_named(refused, write, fitted):
    odd = write("odd.csv", "who,item,rating", [[1, 1, 5], [2, 2, 4]])
    assert "name it with --user-column" in refused("recommend", fitted / "ratings", odd)


def test_an_item_that_is_not_on_the_public_list_is_named(refused, ratings, write):
    items = write("items.csv", "item", [[k] for k in range(39)])
    assert "39" in refused("fit", ratings, "--epsilon", 1, "--items", items)


def test_an_empty_history_is_named_once(refused, fitted, folder):
    (folder / "nothing.csv").write_text("")
    assert refused("recommend", fitted / "ratings", "nothing.csv").count("nothing.csv") == 1


def test_an_empty_item_list_is_refused(refused, ratings, write):
    assert "no item ids" in refused("fit", ratings, "--epsilon", 1, "--items", write("items.csv", "item", []))


def test_titles_of_other_items_are_refused(refused, ratings, write):
    titles = write("titles.csv", "id,title", [[1000, "Elsewhere"]])
    assert "none of its ids" in refused("fit", ratings, "--epsilon", 1, "--titles", titles)


def test_a_file_that_is_not_there_or_not_readable_is_named(refused, folder):
    assert "nowhere.csv" in refused("fit", "nowhere.csv", "--epsilon", 1)
    (folder / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    assert "broken.parquet" in refused("fit", "broken.parquet", "--epsilon", 1)


def test_a_folder_that_is_not_a_model_is_never_replaced(refused, ratings, folder):
    (folder / "mine").mkdir()
    (folder / "mine/notes.txt").write_text("keep me")
    assert "is not a saved model" in refused("fit", ratings, "--epsilon", 1, "--out", "mine")
    assert "it is a folder" in refused("evaluate", ratings, "--epsilon", 1, "--out", "mine")
    assert (folder / "mine/notes.txt").read_text() == "keep me"


def test_a_broken_model_is_refused(refused, ratings, folder):
    (folder / "mine").mkdir()
    assert "no saved model" in refused("recommend", "mine", ratings)
    assert "no saved model" in refused("similar", "mine", "1")
    assert "no saved model" in refused("evaluate", ratings, "--model", "mine")


def test_evaluate_wants_either_a_budget_or_a_model(refused, ratings, fitted):
    assert "Give --epsilon" in refused("evaluate", ratings)
    assert "Give --epsilon" in refused("evaluate", ratings, "--epsilon", 1, "--model", fitted / "ratings")


def test_what_recommend_and_similar_cannot_find_is_named(refused, ratings, write, fitted):
    model = fitted / "ratings"
    assert "9999" in refused("recommend", model, ratings, "--user", 9999)
    assert "'bob'" in refused("recommend", model, ratings, "--user", "bob")
    assert "end in .parquet or .csv" in refused("recommend", model, ratings, "--out", "x.txt")
    assert "the model knows none of its items, such as 900 (the model's first item is 0)" in refused(
        "recommend", model, write("other.csv", "user,item,rating", [[1, 900, 5], [2, 900, 4]])
    )
    assert "--value" in refused("recommend", model, write("clicks.csv", "user,item", [[1, 1], [2, 2]]))
    assert "'900'" in refused("similar", model, "900")


def test_a_budget_that_refuses_has_its_own_exit_code(refused):
    assert "No noise below" in refused("account", "--epsilon", "1e-9", "--delta", "1e-30", "--rounds", 10**9, code=3)


def test_an_interrupted_fit_leaves_nothing(refused, ratings, monkeypatch):
    from apportion.recommend import PrivateRatingRecommender

    def interrupt(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateRatingRecommender, "fit", interrupt)
    assert "Interrupted" in refused("fit", ratings, "--epsilon", 1, code=130)


@pytest.mark.parametrize("failing", ["apportion.report.public_page", "apportion.recommend.save"])
def test_a_failure_while_writing_keeps_the_old_model_and_leaves_no_scraps(run, ratings, folder, monkeypatch, failing):
    run("fit", ratings, "--epsilon", 2, "--out", "m", *SMALL)
    before = {file.name: file.read_bytes() for file in (folder / "m").iterdir()}

    def fail(*_arguments, **_options):
        raise OSError(28, "No space left on device", "m")

    monkeypatch.setattr(failing, fail)
    assert "No space left" in run("fit", ratings, "--epsilon", 3, "--out", "m", *SMALL, code=2).stderr
    assert {file.name: file.read_bytes() for file in (folder / "m").iterdir()} == before
    assert sorted(path.name for path in folder.iterdir()) == ["m", "ratings.csv"]


def test_if_the_new_model_cannot_be_moved_in_the_old_one_goes_back(run, ratings, folder, monkeypatch):
    run("fit", ratings, "--epsilon", 2, "--out", "m", *SMALL)
    rename = Path.rename

    def fail_at_the_last_step(self, target):
        if self.name == "new" and Path(target).name == "m":
            raise OSError(1, "Operation not permitted", str(target))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_at_the_last_step)
    assert "not permitted" in run("fit", ratings, "--epsilon", 3, "--out", "m", *SMALL, code=2).stderr
    assert load(folder / "m").statement.epsilon == 2.0
    assert sorted(path.name for path in folder.iterdir()) == ["m", "ratings.csv"]


def test_an_output_that_cannot_be_written_is_found_before_the_data_are_read(refused, folder, write):
    (folder / "file").write_text("not a folder")
    unusable = write("bad.csv", "user,item,rating", [[1, 1, "good"], [2, 2, 4]])
    assert "'good'" in refused("fit", unusable, "--epsilon", 1, "--out", "elsewhere")
    said = refused("fit", unusable, "--epsilon", 1, "--out", "file/model")
    assert "'file'" in said
    assert "good" not in said
