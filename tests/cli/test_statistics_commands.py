"""`mean`, `quantile`, `regress` and `logistic`: what the library says, printed; bad input in one sentence."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from apportion.allocation.users import SampleLimit, Smooth
from apportion.cli.progress import Reporter
from apportion.cli.regress import _in_turns
from apportion.privacy import SeededNoise
from apportion.privacy.statement import NOT_FOR_RELEASE
from apportion.regression.label_private import LabelPrivateRegression
from apportion.regression.user_erm import UserERM
from apportion.statistics import UserMean, UserQuantile

MEAN = ("mean", "visits.csv", "--user", "who", "--value", "cost", "--range", 0, 100)
QUANTILE = ("quantile", "visits.csv", "--user", "who", "--value", "cost", "--range", 0, 100)
REGRESS = ("regress", "visits.csv", "--user", "who", "--label", "cost", "--label-range", 0, 100)
LOGISTIC = ("logistic", "visits.csv", "--user", "who", "--feature-norm", 2, "--delta", 1e-6)
LINEAR = (*REGRESS, "--features", "age,ward")
ODDS = (*LOGISTIC, "--label", "back", "--features", "age,stay")
PAPER = (*MEAN, "--weights", "paper", "--sizes", "public")
EVERY = {"mean": MEAN, "quantile": QUANTILE, "regress": LINEAR, "logistic": ODDS}
WARDS = ("east", "north", "west")


@pytest.fixture(scope="session")
def columns():
    """Visits of 300 people, some with many: cost rises with age and in the north, and so do the odds of coming back."""
    rng = np.random.default_rng(7)
    sizes = np.minimum(rng.zipf(1.8, 300), 40)
    who = rng.permutation(np.repeat([f"person-{k:03d}" for k in range(300)], sizes))
    n = len(who)
    age, stay, ward = rng.random(n), rng.random(n), rng.integers(0, 3, n)
    cost = 30 + 20 * age + 15 * (ward == 1) + 10 * rng.standard_normal(n)
    back = (rng.random(n) < 1 / (1 + np.exp(1 - 2 * age))).astype(int)
    answers = np.where(back == 1, "yes", "never")
    return {
        "who": who,
        "cost": cost,
        "age": age,
        "stay": stay,
        "ward": np.array(WARDS)[ward],
        "back": back,
        "again": answers,
    }


@pytest.fixture(autouse=True)
def visits(folder, columns):
    """The same rows as text and as Parquet."""
    pyarrow.csv.write_csv(pa.table(columns), folder / "visits.csv")
    pyarrow.parquet.write_table(pa.table(columns), folder / "visits.parquet")


def of_json(answer, key="estimate"):
    return [row[key] for row in answer.json["estimates"]]


# -- what is printed is what the library says --


@pytest.mark.parametrize("delta", [0, 1e-7])
def test_means_are_those_of_the_estimator(run, columns, delta):
    options = ("--value", "age", "--range", 0, 2, "--epsilon", 2, "--delta", delta, "--seed", 5)
    answer = run(*MEAN, *options, "--level", 0.9, "--json")
    matrix = np.column_stack([columns["cost"], columns["age"]])
    ends = ([0.0, 0.0], [100.0, 2.0])
    rules = ("that rows with an empty cell were left out",)
    fitted = UserMean(2.0, delta, value_range=ends, level=0.9, rules=rules, noise=SeededNoise(5))
    fitted.fit(matrix, users=columns["who"])
    assert of_json(answer) == fitted.mean_.tolist()
    assert of_json(answer, "interval") == fitted.interval_.tolist()
    assert of_json(answer, "noise_stddev") == fitted.noise_stddev_.tolist()
    assert of_json(answer, "name") == ["cost", "age"]
    assert answer.json["threshold"] == fitted.threshold_
    assert answer.json["of"] == "rows"
    assert answer.json["statement"] == json.loads(fitted.statement_.to_json())


def test_the_page_of_a_mean_over_rows_says_how_many_large_users_noise_may_hide(run, folder):
    run(*MEAN, "--epsilon", 1, "--seed", 5, "--max-size", 64, "--page", "rows.html")
    run(*MEAN, "--epsilon", 1, "--seed", 5, "--of", "users", "--page", "users.html")
    rows, users = ((folder / name).read_text(encoding="utf-8") for name in ("rows.html", "users.html"))
    # two standard deviations of the sum of two Laplace variables of scale 1/0.2
    assert "up to about 21 users of one size are lost in the noise. Lower --max-size, now 64" in rows
    assert "A user with more than 64 rows counts as one with 64: if there are such users, the interval is not" in rows
    assert "One such user could move the mean by up to" in rows
    assert "lost in the noise" not in users


def test_who_counts_with_one_row_is_not_told_to_lower_that(run):
    said = run(*MEAN, "--epsilon", 1, "--seed", 5, "--max-size", 1).stdout
    assert "Lower --max-size" not in said
    assert "A user with more than 1 row counts as one with 1: if there are such users" in said


def test_quantiles_over_all_rows_have_no_exact_form_and_that_is_no_matter_of_budget(run):
    refused = run(*QUANTILE, "--at", 0.5, "--epsilon", 1, "--exact", code=2)
    assert (
        "--exact: Quantiles over all rows have no form in exact arithmetic; those by group have one." in refused.stderr
    )
    assert "Values outside" not in refused.stderr  # before anything is read


def test_the_page_of_several_means_says_that_their_intervals_hold_together(run, folder):
    run(*MEAN, "--value", "age", "--range", 0, 2, "--epsilon", 2, "--seed", 5, "--page", "two.html")
    run(*MEAN, "--epsilon", 2, "--seed", 5, "--page", "one.html")
    two, one = (" ".join((folder / name).read_text(encoding="utf-8").split()) for name in ("two.html", "one.html"))
    assert "contains the true mean with a probability of 95 %, for all means together." in two
    assert "contains the true mean with a probability of 95 %. The grey bar" in one


def test_how_far_one_user_could_move_each_of_several_means_is_said_by_name(run):
    rows = run(*MEAN, "--value", "age", "--range", 0, 2, "--epsilon", 2, "--seed", 5).stdout
    assert re.search(r"could move the mean of cost by up to [\d.]+, of age by up to [\d.]+\.", rows)


def test_values_of_any_rank_are_said_to_say_nothing(run, folder):
    words = "may have any rank, so nothing is known of the quantile"
    (folder / "few.csv").write_text("who,cost\nann,1\nbob,2\n")
    few = ("quantile", "few.csv", *QUANTILE[2:], "--epsilon", 0.1, "--seed", 5)
    assert f"This value {words}" in run(*few, "--at", 0.5, "--page", "page.html").stdout.partition("Guarantee")[0]
    run(*few[:-2], "--at", 0.5, "--page", "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert words in page
    assert "<h1>The 0.5 quantile of cost is not known</h1>" in page
    assert run(*few, "--at", 0.5, "--at", 0.9, "--json").json["notes"][0].startswith(f"2 of 2 values {words}")
    assert words not in run(*QUANTILE, "--at", 0.5, "--epsilon", 20, "--seed", 5).stdout
    assert "Give --max-size" in run(*few, "--at", 0.5).stdout
    assert "Give --max-size" not in run(*few, "--at", 0.5, "--of", "users").stdout
    assert "Give --max-size" not in run(*few, "--at", 0.5, "--max-size", 1).stdout


def test_a_quantile_without_a_step_says_that_ranks_assume_values_that_do_not_repeat(run, folder):
    pyarrow.csv.write_csv(pa.table({"who": np.arange(2000), "grade": [3] * 2000}), folder / "grades.csv")
    grades = ("quantile", "grades.csv", "--user", "who", "--value", "grade", "--range", 1, 6, "--epsilon", 9)
    said = "These ranks assume that no value is in many rows."
    assert said in run(*grades, "--page", "page.html").stdout.partition("Guarantee")[0]
    assert said in (folder / "page.html").read_text(encoding="utf-8")
    assert said not in run(*grades, "--step", 1).stdout


def test_terminal_and_page_say_whether_a_model_or_a_constant_is_published(run, folder):
    model = run(*ODDS, "--epsilon", 500, "--seed", 5)
    constant = run(*ODDS, "--epsilon", 0.1, "--seed", 5)
    whole = run(*ODDS, "--epsilon", 0.1, "--seed", 5, "--no-floor")
    assert "What is published is the model" in model.stdout.partition("Guarantee")[0]
    assert "What is published is a constant: features were not seen" in constant.stdout.partition("Guarantee")[0]
    assert "What is published" not in whole.stdout
    run(*ODDS, "--epsilon", 0.1, "--page", "page.html")
    assert "<h1>The odds of back, without any feature</h1>" in (folder / "page.html").read_text(encoding="utf-8")


def test_a_column_of_one_text_is_no_feature(run, folder):
    (folder / "one.csv").write_text("who,cost,ward\nann,1,east\nbob,2,east\n")
    refused = run("regress", "one.csv", *REGRESS[2:], "--features", "ward", "--epsilon", 1, code=2).stderr
    assert "Column 'ward' holds the text 'east' alone; expected 2 to 100 categories." in refused


def test_an_empty_cell_that_is_refused_comes_with_what_to_do(run, folder):
    (folder / "gaps.csv").write_text("who,cost,age\nann,1,2\nbob,,3\ncem,3,4\n")
    refused = run("regress", "gaps.csv", *REGRESS[2:], "--features", "age", "--epsilon", 1, code=2).stderr
    assert "'cost' is empty in row 2" in refused
    assert refused.strip().endswith("to leave out such rows, give drop to --missing.")


def test_quantiles_are_those_of_the_estimator(run, columns):
    answer = run(*QUANTILE, "--at", 0.9, "--at", 0.5, "--epsilon", 2, "--seed", 5, "--json")
    fitted = UserQuantile([0.9, 0.5], 2.0, value_range=(0.0, 100.0), noise=SeededNoise(5))
    fitted.fit(columns["cost"], users=columns["who"])
    assert of_json(answer) == fitted.quantiles_.tolist()
    assert of_json(answer, "rank") == [0.9, 0.5]
    for (low, high), rank, error in zip(of_json(answer, "rank_interval"), (0.9, 0.5), fitted.rank_error_, strict=True):
        assert (low, high) == (max(0.0, rank - error), min(1.0, rank + error))


def test_regressions_are_those_of_the_estimator(run, columns):
    answer = run(*LINEAR, "--epsilon", 5, "--seed", 5, "--json")
    ward = columns["ward"]
    matrix = np.column_stack([columns["age"], ward == "north", ward == "west"])
    fitted = LabelPrivateRegression(5.0, label_range=(0.0, 100.0), target="predictions", noise=SeededNoise(5))
    fitted.fit(matrix, columns["cost"], users=columns["who"])
    assert of_json(answer, "name") == ["age", "ward=north", "ward=west", "(intercept)"]
    assert of_json(answer) == [*fitted.coef_.tolist(), fitted.intercept_]
    assert of_json(answer, "interval") == [*fitted.coef_intervals_.tolist(), fitted.intercept_interval_.tolist()]
    assert answer.json["noise_variance"] == fitted.noise_variance_


@pytest.mark.parametrize("groups", [0, 4])
def test_logistic_regressions_are_those_of_the_estimator(run, columns, groups):
    asked = ("--intervals", groups, "--sizes", "public") if groups else ()
    answer = run(*ODDS, "--epsilon", 20, "--seed", 5, *asked, "--json")
    matrix = np.column_stack([columns["age"], columns["stay"]])
    sizes = "public" if groups else "private"
    fitted = UserERM("logistic", 20.0, 1e-6, feature_norm=2.0, sizes=sizes, interval_parts=groups, noise=SeededNoise(5))
    fitted.fit(matrix, columns["back"], users=columns["who"])
    assert of_json(answer) == [*fitted.coef_.tolist(), fitted.intercept_]
    given = fitted.coef_intervals_ is not None
    expected = [*fitted.coef_intervals_.tolist(), fitted.intercept_interval_.tolist()] if given else [None] * 3
    assert of_json(answer, "interval") == expected
    assert answer.json["about_intervals"] == fitted.about_intervals_
    assert answer.json["model_part"] == fitted.model_part_
    assert answer.json["steps"] == fitted.n_steps_


def test_a_mean_without_much_privacy_is_the_mean(run, columns):
    answer = run(*MEAN, "--epsilon", 1e6, "--json")
    assert of_json(answer)[0] == pytest.approx(columns["cost"].mean(), abs=1e-3)


@pytest.mark.parametrize("command", EVERY.values(), ids=EVERY)
def test_text_and_parquet_give_the_same(run, command):
    options = ("--epsilon", 3, "--seed", 1, "--json")
    from_text = run(*command, *options).json
    from_parquet = run(*("visits.parquet" if word == "visits.csv" else word for word in command), *options).json
    assert from_text["estimates"] == from_parquet["estimates"]


@pytest.mark.parametrize("command", EVERY.values(), ids=EVERY)
def test_a_table_is_followed_by_what_it_may_miss_and_the_statement(run, command):
    lines = run(*command, "--epsilon", 3, "--window", "spring of 2003").stdout.splitlines()
    lines = lines[2:] if "PUBLIC" in lines[0] else lines
    assert lines[1].startswith("----")
    missed = (
        "The interval does not account for",
        "What is published is ",
        "This value may have any rank",
        "These ranks assume",
    )
    assert lines[lines.index("") + 1].startswith(("Guarantee: ", *missed))
    statement = next(k for k, line in enumerate(lines) if line.startswith("Guarantee: "))
    assert lines[statement - 1] == ""
    assert any("spring of 2003" in line for line in lines)
    assert any(line.startswith("Unit: user: ") for line in lines)
    assert len(lines) < 30  # two hundred steps of a descent are one line


def test_public_numbers_of_rows_are_said_in_the_first_line_of_terminal_page_and_card(run, folder):
    said = run(*PAPER, "--epsilon", 1, "--page", "page.html", "--json")
    warning = "How many rows each user has is PUBLIC here"
    assert run(*PAPER, "--epsilon", 1).stdout.splitlines()[0].startswith(warning)
    page = (folder / "page.html").read_text()
    assert 0 < page.index(warning) < page.index("<h1>")
    (folder / "statement.json").write_text(json.dumps(said.json["statement"]))
    run("card", "statement.json", "--page", "card.html")
    card = (folder / "card.html").read_text()
    assert 0 < card.index(warning) < card.index("<h1>")
    assert "PUBLIC" not in run(*MEAN, "--epsilon", 1, "--page", "private.html").stdout
    assert "PUBLIC" not in (folder / "private.html").read_text()


def test_the_statement_says_what_is_public(run):
    assert "replace the contents of one user's rows" in run(*PAPER, "--epsilon", 1).stdout
    assert "add or remove one user" in run(*MEAN, "--epsilon", 1).stdout
    said = run(*LINEAR, "--epsilon", 1)
    assert "all features" in said.stdout
    assert "the categories of 'ward', taken from the data itself" in said.stdout
    assert "Features are assumed public, and so is how many rows each user has" in said.stderr
    declared = run(*LINEAR, "--epsilon", 1, "--categories", "ward=west,east,north")
    assert "the categories of 'ward', as declared: 'west', 'east', 'north'" in declared.stdout
    assert "ward=east" in declared.stdout
    assert "ward=west" not in declared.stdout


# -- options reach the estimators --


def test_bounding_is_what_was_asked_for(run, columns):
    for option, bounding in ((("--threshold", 2), Smooth(2.0)), (("--sample-limit", 2), SampleLimit(2))):
        answer = run(*PAPER, "--epsilon", 2, *option, "--seed", 3, "--json")
        fitted = UserMean(
            2.0, value_range=(0.0, 100.0), weights="paper", sizes="public", bounding=bounding, noise=SeededNoise(3)
        )
        fitted.fit(columns["cost"], users=columns["who"])
        assert of_json(answer) == [fitted.mean_]
        assert answer.json["threshold"] == 2.0


def test_public_variance_and_correlation_are_declared(run):
    said = run(*PAPER, "--epsilon", 2, "--variance", 150, "--correlation", 0.25).stdout
    assert "the variance of one value, declared as 150" in said
    assert "the correlation of two values of one user, declared as 0.25" in said
    assert "first moments" not in said
    assert "declared as 80" in run(*LINEAR, "--epsilon", 2, "--noise-variance", 80).stdout


def test_private_sizes_are_paid_for_and_say_nothing_of_ranks(run):
    answer = run(*QUANTILE, "--epsilon", 2, "--weights", "paper", "--json").json
    assert answer["estimates"][0]["rank_interval"] is None
    assert "sizes" in [release["name"] for release in answer["statement"]["releases"]]


def test_quantiles_on_a_scale_are_points_of_it(run, columns):
    answer = run(*QUANTILE, "--epsilon", 1e5, "--step", 10, "--at", 0.5, "--at", 0.9, "--json").json
    below = [np.floor(np.quantile(columns["cost"], q) / 10) * 10 for q in (0.5, 0.9)]
    for row, low in zip(answer["estimates"], below, strict=True):
        assert row["estimate"] in (low, low + 10)
    assert answer["step"] == 10


def test_an_intercept_can_be_left_out(run):
    for command in (LINEAR, ODDS):
        names = of_json(run(*command, "--epsilon", 3, "--no-intercept", "--json"), "name")
        assert "(intercept)" not in names


def test_any_value_of_the_label_may_mean_yes(run):
    options = (*LOGISTIC, "--features", "age", "--epsilon", 3, "--seed", 2, "--json")
    assert of_json(run(*options, "--label", "again", "--yes", "yes")) == of_json(run(*options, "--label", "back"))
    assert of_json(run(*options, "--label", "back", "--yes", 1)) == of_json(run(*options, "--label", "back"))
    parquet = ("visits.parquet" if word == "visits.csv" else word for word in options)
    assert of_json(run(*parquet, "--label", "back", "--yes", 1)) == of_json(run(*options, "--label", "back"))


def test_what_nobody_has_is_not_refused_where_it_is_private(run):
    """A refusal would tell that nobody said yes, or that somebody's category is not listed."""
    options = ("--features", "age,ward", "--epsilon", 1)
    nobody = run(*LOGISTIC, "--label", "again", "--yes", "ja", "--categories", "ward=north,west,east", *options)
    unlisted = run(*LOGISTIC, "--label", "again", "--yes", "yes", "--categories", "ward=west,east", *options)
    assert nobody.exit_code == unlisted.exit_code == 0
    assert "north" not in unlisted.output


def test_listed_categories_become_indicators_in_their_order(run, columns):
    options = ("--features", "age,ward", "--categories", "ward=north,west,east")
    answer = run(*LOGISTIC, "--label", "back", *options, "--epsilon", 9, "--seed", 4, "--json")
    assert of_json(answer, "name") == ["age", "ward=west", "ward=east", "(intercept)"]
    ward = columns["ward"]
    matrix = np.column_stack([columns["age"], ward == "west", ward == "east"])
    fitted = UserERM("logistic", 9.0, 1e-6, feature_norm=2.0, noise=SeededNoise(4))
    assert of_json(answer)[:3] == fitted.fit(matrix, columns["back"], users=columns["who"]).coef_.tolist()


def test_a_file_without_a_header_is_read_with_names(run, folder):
    text = (folder / "visits.csv").read_text().partition("\n")[2]
    (folder / "bare.csv").write_text(text)
    named = ("mean", "bare.csv", *MEAN[2:], "--columns", "who,cost,age,stay,ward,back,again")
    options = ("--epsilon", 2, "--seed", 1, "--json")
    assert of_json(run(*named, *options)) == of_json(run(*MEAN, *options))


# -- what must not be said --


def test_that_values_are_clipped_is_said_whether_or_not_any_was_and_never_how_many(run):
    inside, outside = run(*MEAN, "--epsilon", 2), run(*MEAN[:-1], 31, "--epsilon", 2)
    assert inside.stderr == outside.stderr == "Values outside the range are clipped to it.\n"


@pytest.mark.parametrize("command", EVERY.values(), ids=EVERY)
def test_nothing_of_the_data_is_printed_or_on_the_page(run, folder, columns, command):
    said = run(*command, "--epsilon", 3, "--seed", 1, "--page", "page.html")  # a seed: digits by chance could be these
    page = (folder / "page.html").read_text(encoding="utf-8")
    for text in (said.stdout, page):
        assert "person-" not in text
        assert not re.search(rf"\b{len(columns['who'])}\b", text.replace(",", ""))
        assert f"{columns['cost'][0]:.3f}" not in text


def test_a_delta_too_large_for_the_users_is_pointed_out_where_their_number_is_public(run):
    said = "a delta of 0.01 is not below 1 / 300 users"
    assert said in run(*PAPER, "--epsilon", 1, "--delta", 0.01).stderr
    assert said not in run(*MEAN, "--epsilon", 1, "--delta", 0.01).stderr
    assert said not in run(*PAPER, "--epsilon", 1, "--delta", 1e-6).stderr


@pytest.mark.parametrize("command", EVERY.values(), ids=EVERY)
def test_an_epsilon_that_protects_nobody_is_pointed_out(run, command):
    assert "an epsilon of 11 gives no protection" in run(*command, "--epsilon", 11).stderr


# -- the page --


@pytest.mark.parametrize("command", EVERY.values(), ids=EVERY)
def test_the_page_may_be_shared_and_is_the_only_file(run, folder, command):
    before = {path.name for path in folder.iterdir()}
    said = run(*command, "--epsilon", 3, "--page", "out/page.html")
    assert said.stdout.splitlines()[-2] == "Page: out/page.html"
    assert {path.name for path in folder.iterdir()} - before == {"out"}
    assert [path.name for path in (folder / "out").iterdir()] == ["page.html"]
    page = (folder / "out/page.html").read_text(encoding="utf-8")
    assert "this page may be shared" in page
    assert "<svg" in page
    assert "<script" not in page


def test_a_seed_marks_everything(run, folder):
    said = run(*MEAN, "--epsilon", 1, "--seed", 1, "--page", "page.html")
    assert NOT_FOR_RELEASE in said.stdout
    assert "NOT FOR RELEASE" in (folder / "page.html").read_text(encoding="utf-8")
    assert run(*MEAN, "--epsilon", 1, "--seed", 1, "--json").json["releasable"] is False


def test_a_page_that_cannot_be_written_does_not_cost_the_answer(run, folder, monkeypatch):
    def fail(*_arguments, **_options):
        raise OSError(28, "No space left on device", "page.html")

    monkeypatch.setattr("apportion.cli.statistics_outputs.write_text", fail)
    said = run(*MEAN, "--epsilon", 1, "--page", "page.html", code=2)
    assert "No space left" in said.stderr
    assert "Guarantee: 1.0-differential privacy" in said.stdout


# -- bad input --


BAD_OPTIONS = {
    "epsilon 0": ((*MEAN, "--epsilon", 0), "above 0, got 0"),
    "no epsilon": (MEAN, "--epsilon"),
    "no range": ((*MEAN[:6], "--epsilon", 1), "--range"),
    "range turned round": ((*MEAN[:-2], 5, 1, "--epsilon", 1), "Expected --range LO HI with LO below HI, got 5 1."),
    "range without end": ((*MEAN[:-1], "inf", "--epsilon", 1), "got 0 inf"),
    "range that is none": ((*MEAN[:-1], "many", "--epsilon", 1), "'many'"),
    "delta 1": ((*MEAN, "--epsilon", 1, "--delta", 1), "--delta"),
    "delta 0 for a descent": ((*ODDS, "--epsilon", 1, "--delta", 0), "below 1, got 0"),
    "level 1": ((*MEAN, "--epsilon", 1, "--level", 1), "--level"),
    "unknown user": (("mean", "visits.csv", "--user", "whom", *MEAN[4:], "--epsilon", 1),
                     "Error: visits.csv: There is no column 'whom'; the columns are 'who', 'cost', 'age'"),
    "unknown value": ((*MEAN[:4], "--value", "price", *MEAN[6:], "--epsilon", 1), "no column 'price'; the columns are"),
    "user as value": ((*MEAN[:4], "--value", "who", *MEAN[6:], "--epsilon", 1), "cannot be both user and something"),
    "twice the same": ((*MEAN, "--value", "cost", "--epsilon", 1), "Column 'cost' is named 2 times"),
    "too many ranges": ((*MEAN, "--range", 0, 1, "--epsilon", 1), "once for each of 1 columns, got it 2 times"),
    "text as value": ((*MEAN[:4], "--value", "ward", *MEAN[6:], "--epsilon", 1), "in row 1 (counting"),
    "two bounds": ((*MEAN, "--epsilon", 1, "--threshold", 2, "--sample-limit", 2), "Give either --threshold or"),
    "limit with private sizes": ((*PAPER, "--epsilon", 1, "--sizes", "private", "--sample-limit", 2), "SampleLimit"),
    "limit without the paper": ((*MEAN, "--epsilon", 1, "--sample-limit", 2),
                                "Error: --sample-limit needs --weights paper."),
    "threshold without the paper": ((*QUANTILE, "--at", 0.5, "--epsilon", 1, "--threshold", 2),
                                    "Error: --threshold needs --weights paper."),
    "rank 1": ((*QUANTILE, "--at", 1, "--epsilon", 1), "--at"),
    "same rank twice": ((*QUANTILE, "--at", 0.5, "--at", 0.5, "--epsilon", 1), "different ranks, got 0.5, 0.5"),
    "labels turned round": ((*LINEAR[:7], 9, 1, *LINEAR[9:], "--epsilon", 1), "--label-range LO HI with LO below HI"),
    "label as feature": ((*REGRESS, "--features", "age,cost", "--epsilon", 1), "cannot be both label and feature"),
    "no feature": ((*REGRESS, "--features", "age,,stay", "--epsilon", 1), "got 'age,,stay'"),
    "unknown feature": ((*REGRESS, "--features", "age,size", "--epsilon", 1), "There is no column 'size'"),
    "dependent features": ((*REGRESS, "--features", "age,back", "--categories", "back=0,1,2", "--epsilon", 1),
                           "rank, got columns that depend on each other, such as a constant beside the intercept"),
    "private categories": ((*LOGISTIC, "--label", "back", "--features", "ward", "--epsilon", 1),
                           "Column 'ward' holds text, such as"),
    "unlisted category": ((*LINEAR, "--categories", "ward=east,west", "--epsilon", 1), "'north'"),
    "one category": ((*LINEAR, "--categories", "ward=east", "--epsilon", 1), "at least two different categories"),
    "categories of another": ((*LINEAR, "--categories", "stay=1,2", "--epsilon", 1), "--categories for one of"),
    "label of words": ((*LOGISTIC, "--label", "again", "--features", "age", "--epsilon", 1), "means yes with --yes"),
    "label of numbers": ((*LOGISTIC, "--label", "stay", "--features", "age", "--epsilon", 1), "means yes with --yes"),
    "label as private feature": ((*LOGISTIC, "--label", "back", "--features", "back", "--epsilon", 1), "both label"),
    "no file": (("mean", "nowhere.csv", *MEAN[2:], "--epsilon", 1), "nowhere.csv"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "words"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(refused, command, words):
    assert words in refused(*command, "--page", "page.html")


BAD_ROWS = {
    "not a number": (["a,1", "b,high"], "Column 'cost' holds 'high' in row 2 (counting data rows from 1); expected a"),
    "no number": (["a,1", "b,"], "Column 'cost' is empty in row 2"),
    "no user": (["a,1", ",2"], "Column 'who' is empty in row 2"),
    "one user": (["a,1", "a,2"], "at least two users"),
    "no rows": ([], "There are no rows"),
}


@pytest.mark.parametrize(("lines", "words"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_rows_that_cannot_be_used_are_named(refused, folder, lines, words):
    (folder / "bad.csv").write_text("\n".join(["who,cost", *lines]) + "\n")
    said = refused("mean", "bad.csv", *PAPER[2:], "--epsilon", 1, "--page", "page.html")
    assert said.startswith("Error: bad.csv: ")
    assert words in said


def test_an_empty_file_is_refused(refused, folder):
    (folder / "empty.csv").write_text("")
    assert "The file is empty" in refused("mean", "empty.csv", *MEAN[2:], "--epsilon", 1)


def test_a_page_that_can_never_be_written_is_found_before_the_data_are_read(refused, folder):
    (folder / "taken").mkdir()
    (folder / "visits.csv").write_text("not a table at all")
    assert "it is a folder" in refused(*MEAN, "--epsilon", 1, "--page", "taken")
    assert "is not writable" in refused(*MEAN, "--epsilon", 1, "--page", "visits.csv/page.html")


def test_text_of_too_many_kinds_is_no_category(refused):
    assert "300 different values" in refused(
        "regress", "visits.csv", "--user", "ward", *REGRESS[4:], "--features", "who", "--epsilon", 1
    )


# -- manners --


def test_help_needs_nothing_heavy_and_explains_every_command(run):
    code = (
        "import sys\nfrom apportion.cli.main import program\n"
        "for name in ('mean', 'quantile', 'regress', 'logistic'):\n"
        "    program([name, '--help'], standalone_mode=False)\n"
        "print([name for name in ('numpy', 'pyarrow', 'jinja2', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "FEATURES ARE PUBLIC" in run("regress", "--help").stdout
    for name in EVERY:
        assert name in run("--help").stdout


def test_the_solver_of_a_regression_shows_how_far_it_is_and_never_goes_back(capsys):
    with Reporter() as reporter:
        show = _in_turns(reporter)
        for done in (0, 0, 30, 20, 100, 0, 40, 100):
            show("weights", done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "weights: 100 parts left",
        "weights: part 30 of 100 done",
        "weights: part 100 of 100 done",
        "weights, turn 2: 100 parts left",
        "weights, turn 2: part 40 of 100 done",
        "weights, turn 2: part 100 of 100 done",
    ]
