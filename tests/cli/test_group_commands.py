"""`count`, `sum`, `mean`, `variance`, `histogram`, `quantile` by group, and `query`: what the library says, printed."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from apportion.privacy import Ledger, SeededNoise
from apportion.statistics import UserGroupBy

COMMON = ("--user", "who", "--epsilon", 2, "--seed", 5)
VALUES = ("--value", "cost", "--range", 0, 100)
ACCOUNT = ("--epsilon", 5, "--delta", "1e-5", "--keys-delta", "1e-6")
CHARGED = ("--ledger", "visits.db", "--account", "visits")
WARDS = ("east", "north", "west")


@pytest.fixture(scope="session")
def columns():
    """Visits of 600 people to three wards over two years, and one ward that a single person has been to."""
    rng = np.random.default_rng(7)
    who = np.repeat([f"person-{k:03d}" for k in range(600)], np.minimum(rng.zipf(1.8, 600), 20))
    ward = np.array(WARDS)[rng.integers(0, 3, len(who))]
    ward[who == "person-007"] = "attic"
    return {"who": who, "ward": ward, "year": rng.integers(2020, 2022, len(who)), "cost": rng.uniform(0, 90, len(who))}


@pytest.fixture(autouse=True)
def visits(folder, columns):
    """The rows as text, and lists of groups."""
    lines = zip(*(columns[name].tolist() for name in ("who", "ward", "year", "cost")), strict=True)
    (folder / "visits.csv").write_text("\n".join(["who,ward,year,cost", *(",".join(map(str, row)) for row in lines)]))
    (folder / "wards.csv").write_text("ward\nwest\neast\nmoon\n")
    (folder / "pairs.csv").write_text("ward,year\nwest,2021\neast,2020\n")


def charges():
    with Ledger.open("visits.db", create=False) as ledger:
        return sum(any(entry.cost) for entry in ledger.account("visits").history())


def library(columns, statistics, by=("ward",), values=None, **arguments):
    rules = ("that rows with an empty cell were left out",)
    made = UserGroupBy(statistics, 2.0, rules=rules, noise=SeededNoise(5), **arguments)
    return made.fit(values, users=columns["who"], by=[columns[name] for name in by])


@pytest.mark.parametrize("statistic", ["sum", "mean", "variance"])
@pytest.mark.parametrize(("keys", "listed"), [("wards.csv", ["west", "east", "moon"]), ("private", "private")])
def test_numbers_are_those_of_the_estimator(run, columns, statistic, keys, listed):
    answer = run(statistic, "visits.csv", *VALUES, "--by", "ward", "--keys", keys, *COMMON, "--json").json
    fitted = library(columns, statistic, values=columns["cost"], value_range=(0.0, 100.0), keys=listed)
    rows = answer["estimates"]
    assert [row["estimate"] for row in rows] == fitted.estimates_[statistic].tolist()
    assert [row["interval"] for row in rows] == fitted.intervals_[statistic].tolist()
    assert [row["simultaneous_interval"] for row in rows] == fitted.simultaneous_[statistic].tolist()
    assert [row["group"] for row in rows] == [[name] for name in fitted.groups_]
    assert answer["statement"] == json.loads(fitted.statement_.to_json())


def test_a_group_of_one_person_is_not_listed_and_nothing_written_names_it(run, folder):
    answer = run("count", "visits.csv", "--users", "--by", "ward", *COMMON, "--page", "p.html")
    page = (folder / "p.html").read_text()
    assert "north" in answer.stdout
    assert "north" in page
    assert "attic" not in answer.stdout
    assert "attic" not in page
    assert "is listed half of the time" in page


def test_groups_from_the_data_are_declared_in_the_headline(run, folder):
    answer = run("count", "visits.csv", "--by", "ward", "--keys", "from-data", *COMMON, "--page", "p.html")
    assert "Not protected: who is in a group that nobody else is in." in answer.stdout
    assert "attic" in answer.stdout
    assert answer.stdout.index("Not protected") < answer.stdout.index("Releases:")


def test_several_columns_make_groups_and_their_list_has_as_many(run, columns):
    answer = run("count", "visits.csv", "--by", "ward,year", "--keys", "pairs.csv", *COMMON, "--json").json
    assert [row["group"] for row in answer["estimates"]] == [["west", "2021"], ["east", "2020"]]
    assert [row["name"] for row in answer["estimates"]] == ["west, 2021", "east, 2020"]


def test_bins_and_ranks_are_named(run):
    bins = run("histogram", "visits.csv", *VALUES, "--bins", 2, *COMMON, "--json").json["estimates"]
    assert [row["part"] for row in bins] == ["0 to 50", "50 to 100"]
    ranks = run("quantile", "visits.csv", *VALUES, "--at", 0.25, "--at", 0.5, "--by", "ward", *COMMON, "--json").json
    assert [row["name"] for row in ranks["estimates"][:2]] == ["east: 0.25", "east: 0.5"]
    assert ranks["estimates"][0]["noise_stddev"] is None


@pytest.mark.parametrize("command", ["sum", "mean", "variance", "quantile", "histogram"])
def test_a_column_of_values_that_also_divides_rows_is_refused_in_one_sentence(refused, command):
    """It was a traceback."""
    said = refused(command, "visits.csv", "--value", "year", "--range", 0, 9, "--by", "ward,year", *COMMON)
    assert "Column 'year' cannot be both the values and what divides rows into groups" in said


@pytest.mark.parametrize(("statistic", "most"), [("mean", 50.0), ("variance", 1250.0)])
def test_a_plan_has_no_interval_wider_than_the_range(run, statistic, most):
    plan = run(statistic, "visits.csv", *VALUES, "--by", "ward", *COMMON, "--plan", "--json").json
    widths = [each["half_width"] for each in plan["widths"]]
    assert max(widths) == most
    assert min(widths) < most / 5


def test_a_list_without_groups_is_said_in_words_and_not_shown_as_an_empty_table(run, folder):
    (folder / "two.csv").write_text("who,ward\na,east\nb,west\n")
    out = run("count", "two.csv", "--by", "ward", *COMMON).output
    assert "No group is listed. Groups with few users are not listed: a group of about" in out
    assert "its rank" not in out


def test_a_plan_spends_nothing_and_reads_nothing(run, folder):
    (folder / "visits.csv").write_text("not,a,table\n")
    run("ledger", "init", "visits.db", "--account", "visits", *ACCOUNT)
    options = (*COMMON, *CHARGED, "--plan")
    answer = run("mean", "visits.csv", *VALUES, "--by", "ward", *options, "--json").json
    assert sum(answer["shares"].values()) == pytest.approx(1.0)
    assert answer["widths"][0]["statistic"] == "mean"
    said = run("count", "visits.csv", "--by", "ward", *options).stdout
    assert "Nothing was read and nothing was spent." in said
    assert charges() == 0


def test_a_plan_is_right_about_shares_and_noise(run, columns):
    plan = run("count", "visits.csv", "--by", "ward", "--keys", "wards.csv", *COMMON, "--plan", "--json").json
    fitted = library(columns, "count", keys=["west", "east", "moon"])
    shares = {each.name: each.share for each in fitted.statement_.releases}
    assert plan["shares"] == pytest.approx(shares)
    noise = next(each.stddev for each in fitted.statement_.releases if each.name == "sums by group")
    assert plan["widths"][0]["half_width"] == pytest.approx(1.959964 * noise, rel=1e-4)


def test_a_query_is_the_same_statistics(run, columns):
    sql = "SELECT ward, avg(cost), count(*), count(DISTINCT who), median(cost) FROM 'visits.csv' GROUP BY ward"
    answer = run("query", sql, "--range", 0, 100, *COMMON, "--json").json
    names = ("mean", "count", "users", "quantile")
    fitted = library(columns, names, values=columns["cost"], value_range=(0.0, 100.0))
    expected = [float(np.ravel(fitted.estimates_[name])[g]) for g in range(len(fitted.groups_)) for name in names]
    assert [row["estimate"] for row in answer["estimates"]] == expected
    assert answer["estimates"][2]["part"] == "number of users"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT ward, max(cost) FROM 'visits.csv' GROUP BY ward", "max: the aggregates are"),
        ("SELECT ward, avg(cost) FROM 'visits.csv' WHERE cost > 3 GROUP BY ward", "WHERE"),
        ("SELECT ward, avg(cost) FROM 'visits.csv' GROUP BY ward HAVING count(*) > 3", "HAVING"),
        ("SELECT ward, avg(cost) FROM 'visits.csv' GROUP BY ward LIMIT 3", "LIMIT"),
        ("SELECT ward, count(cost) FROM 'visits.csv' GROUP BY ward", r"write count\(\*\)"),
        ("SELECT ward, count(DISTINCT cost) FROM 'visits.csv' GROUP BY ward", "count.DISTINCT who"),
        ("SELECT avg(cost) FROM 'visits.csv' JOIN b USING (who)", "joins"),
        ("SELECT year, count(*) FROM 'visits.csv' GROUP BY ward", "not in GROUP BY"),
        ("SELECT avg(cost), sum(year) FROM 'visits.csv'", "several columns"),
        ("SELECT quantile_cont(cost, x) FROM 'visits.csv'", "rank"),
        ("SELECT ward FROM 'visits.csv' GROUP BY ward", "without an aggregate"),
        ("SELECT 1 UNION SELECT 2", "set operation"),
        ("SELECT FROM", "syntax error"),
        ("", "one query in SQL, got 0"),
        ("SELECT count(*) FROM 'visits.csv'; SELECT 1", "one query in SQL, got 2"),
        ("SELECT DISTINCT ward FROM 'visits.csv'", "DISTINCT: GROUP BY has each group once"),
        ("SELECT ward, count(*) FROM 'visits.csv' GROUP BY 3", "GROUP BY 3: 2 things are selected"),
        ("SELECT ward, count(*) FROM 'visits.csv' GROUP BY 2", "name of a column is expected"),
        ("SELECT b.ward, count(*) FROM 'visits.csv' a GROUP BY b.ward", "name of a column is expected"),
        ("SELECT date_trunc('decade', d), count(*) FROM 'visits.csv' GROUP BY 1", "date_trunc of anything but 'day'"),
        ("DROP TABLE visits", "Only SELECT"),
        ("SELECT count(*) FROM 'nowhere.csv'", "no file 'nowhere.csv'"),
        ("SELECT avg(cost) FROM 'visits.csv'", "public range of 'cost'"),
    ],
)
def test_other_queries_are_refused_with_the_reason(refused, sql, reason):
    assert re.search(reason, refused("query", sql, *COMMON))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mean", "visits.csv", *VALUES, "--keys", "private", *COMMON), "--keys needs --by"),
        (("mean", "visits.csv", *VALUES, "--plan", *COMMON), "--plan needs --by"),
        (("count", "visits.csv", "--keys", "private", *COMMON), "--keys needs groups: --by, or GROUP BY"),
        (("count", "visits.csv", "--top", 3, *COMMON), "--top needs groups: --by, or GROUP BY"),
        (("query", "SELECT count(*) FROM 'visits.csv'", "--top", 3, *COMMON), "--top needs groups: --by, or GROUP BY"),
        (("quantile", "visits.csv", *VALUES, "--delta", 1e-6, *COMMON), "--delta needs --by"),
        (
            ("mean", "visits.csv", *VALUES, "--by", "ward", "--weights", "paper", *COMMON),
            "--weights cannot be combined",
        ),
        (("mean", "visits.csv", *VALUES, "--by", "ward", "--delta", 0, *COMMON), "because Gaussian noise needs one"),
        (("mean", "visits.csv", *VALUES, "--value", "year", "--by", "ward", *COMMON), "one --value"),
        (("count", "visits.csv", "--by", "ward,year", "--keys", "wards.csv", *COMMON), "first 2 columns"),
        (("count", "visits.csv", "--by", "room", *COMMON), "no column 'room'"),
        (("sum", "visits.csv", "--value", "cost", "--range", 3, 3, *COMMON), "LO below HI"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(refused, arguments, message):
    assert message in refused(*arguments)


def test_a_ledger_is_charged_for_a_list_and_its_sums(run, folder):
    run("ledger", "init", "visits.db", "--account", "visits", *ACCOUNT)
    run("mean", "visits.csv", *VALUES, "--by", "ward", *COMMON, *CHARGED)
    assert charges() == 5


def test_keys_lists_what_many_users_hold_and_writes_it(run, folder):
    asked = ("keys", "visits.csv", "--by", "ward", *COMMON)
    found = run(*asked, "--json").json
    assert found["keys"] == sorted(WARDS)
    kinds = [each["mechanism"] for each in found["statement"]["releases"]]
    assert kinds == ["gaussian-first-look", "gaussian-second-look"]
    assert not found["releasable"]
    assert "3 keys" in run(*asked, "--out", "keys.jsonl").stdout
    assert (folder / "keys.jsonl").read_text() == '"east"\n"north"\n"west"\n'


def test_a_list_without_keys_is_said(run):
    said = run("keys", "visits.csv", "--by", "ward", *COMMON, "--epsilon", 1e-6).stdout
    assert said.startswith("No key was found that enough users hold for this budget.")


def test_dates_are_divided_into_weeks_under_one_budget_of_a_user(run, folder):
    days = ("2024-12-29", "2024-12-30T08:00", "2025-01-05", "soon")
    rows = [f"{user},{day}" for user in range(300) for day in days]
    (folder / "trend.csv").write_text("\n".join(["who,when", *rows]))
    found = run("count", "trend.csv", "--by", "when:week", "--keys", "from-data", *COMMON, "--json").json
    assert [each["group"] for each in found["estimates"]] == [["2024-W52"], ["2025-W01"], ["no date"]]
    assert found["estimates"][1]["estimate"] == pytest.approx(600, abs=120)
    (release,) = [each for each in found["statement"]["releases"] if each["purpose"] == "group-sums"]
    assert release["shape"] == [3, 1], "one release for all weeks"


def test_rows_without_a_date_are_counted_on_the_terminal(run, folder):
    days = ("2024-12-29", "29.12.2024", "1735430400")
    rows = [f"{user},{day}" for user in range(300) for day in days]
    (folder / "trend.csv").write_text("\n".join(["who,when", *rows]))
    asked = ("count", "trend.csv", "--by", "when:week", *COMMON)
    said = "300 of 900 rows hold no date in column 'when', such as '29.12.2024'; a date is written as 2025-11-30 or in "
    assert said in run(*asked).stderr
    assert "hold no date" not in run(*asked, "--where", "when = '2024-12-29'").stderr


def test_unix_time_as_text_is_the_same_dates(run, folder):
    iso = ("2024-12-29T23:59:59", "2025-01-01")
    forms = {"iso": iso, "unix": ("1735516799", "1735689600"), "milli": ("1735516799999", "1735689600000")}
    found = []
    for name, days in forms.items():
        (folder / f"{name}.csv").write_text("\n".join(["who,when", *[f"{u},{d}" for u in range(300) for d in days]]))
        found.append(run("count", f"{name}.csv", "--by", "when:year", *COMMON, "--json").json["estimates"])
    assert [each["group"] for each in found[0]] == [["2024"], ["2025"]]
    assert found[0] == found[1] == found[2]
    whole = pa.table({"who": [k // 2 for k in range(600)], "when": [1735516799, 1735689600] * 300})
    pq.write_table(whole, folder / "unix.parquet")
    assert run("count", "unix.parquet", "--by", "when:year", *COMMON, "--json").json["estimates"] == found[0]


@pytest.mark.parametrize("counted", ["count", "mean"])
def test_released_numbers_that_are_nearly_all_without_a_date_say_how_to_write_one(run, folder, counted):
    value = ("--value", "cost", "--range", 0, 9) if counted == "mean" else ()
    for days, told in ((("29.12.2024", "30.12.2024"), True), (("29.12.2024", *["2024-12-29"] * 3), False)):
        rows = [f"{user},{day},5" for user in range(300) for day in days]
        (folder / "trend.csv").write_text("\n".join(["who,when,cost", *rows]))
        answer = run(counted, "trend.csv", *value, "--by", "when:year", *COMMON, "--json").json
        assert any(note.startswith("Most of it is in the group 'no date'") for note in answer["notes"]) == told
    (folder / "trend.csv").write_text("\n".join(["who,when,cost", *[f"{user},no date,5" for user in range(300)]]))
    plain = run(counted, "trend.csv", *value, "--by", "when", *COMMON, "--json").json
    assert not any("Most of it" in note for note in plain["notes"])  # a name like any other


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("count",), "Totals may be too low: noise would hide up to about {} users with far more rows than the others"),
        (("sum", *VALUES), "Totals may be too low: noise would hide up to about {} users with far more rows than"),
        (
            ("count", "--users"),
            "Totals may be too low: noise would hide up to about {} users who are in far more groups",
        ),
        (("mean", *VALUES), "Noise would hide up to about {} users with far more rows than the others; if their"),
    ],
)
@pytest.mark.parametrize("keys", ["wards.csv", "private"])
def test_terminal_page_and_json_say_how_many_heavy_users_noise_may_hide(run, folder, asked, said, keys):
    command, *options = asked
    named = (command, "visits.csv", *options, "--by", "ward", "--keys", keys, *COMMON)
    notes = run(*named, "--json").json["notes"]
    releases = run(*named, "--json").json["statement"]["releases"]
    noise = [each["stddev"] for each in releases if each["name"] in ("norms", "groups of users")][-1]
    words = said.format(math.ceil(5 * noise))
    assert any(note.startswith(words) for note in notes)
    shown = run(*named, "--page", "page.html").stdout
    assert words in shown.partition("Guarantee:")[0]
    assert words in (folder / "page.html").read_text(encoding="utf-8")


def test_intervals_of_means_say_how_far_values_may_go_with_numbers_of_rows(run):
    said = "Intervals of means allow for values that rise or fall by 1.5 % of the range where users have twice as many"
    for command, *options in (("mean", *VALUES, "--by", "ward"), ("query", *VALUES[2:])):
        asked = ("visits.csv",) if command == "mean" else ("SELECT avg(cost) FROM 'visits.csv'",)
        assert any(note.startswith(said) for note in run(command, *asked, *options, *COMMON, "--json").json["notes"])
    counts = run("count", "visits.csv", "--by", "ward", *COMMON, "--json").json["notes"]
    assert not any(note.startswith(said) for note in counts)


def test_a_user_with_half_of_the_rows_makes_totals_too_low_and_the_terminal_says_that_it_may_be_so(run, write, columns):
    rows = [(f"person-{k}", "east", 1) for k in range(2000)] + [("heavy", "east", 1)] * 2000
    write("heavy.csv", "who,ward,cost", rows)
    answer = run("count", "heavy.csv", "--by", "ward", "--keys", "wards.csv", *COMMON, "--json").json
    east = next(row for row in answer["estimates"] if row["group"] == ["east"])
    assert east["interval"][1] < 2500
    assert any(note.startswith("Totals may be too low") for note in answer["notes"])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ward, avg(cost) FROM visits.csv GROUP BY 1",
        "SELECT a.ward, avg(a.cost) FROM 'visits.csv' AS a GROUP BY a.ward",
        "SELECT ward AS place, avg(cost) FROM 'visits.csv' GROUP BY place",
        "SELECT avg(cost), ward FROM 'visits.csv' GROUP BY ALL",
    ],
)
def test_a_query_may_name_its_groups_as_sql_does(run, sql):
    plain = run("query", "SELECT ward, avg(cost) FROM 'visits.csv' GROUP BY ward", "--range", 0, 100, *COMMON)
    assert run("query", sql, "--range", 0, 100, *COMMON).stdout == plain.stdout


@pytest.mark.parametrize("groups", ["1", "month", "date_trunc('month', d)", "ALL"])
def test_a_query_divides_dates_into_bins_as_by_does(run, write, groups):
    write("dated.csv", "who,d", [(k % 300, f"2024-0{1 + k % 4}-1{k % 7}") for k in range(2400)])
    plain = run("count", "dated.csv", "--by", "d:month", *COMMON)
    sql = f"SELECT date_trunc('month', d) AS month, count(*) FROM 'dated.csv' GROUP BY {groups}"
    assert run("query", sql, *COMMON).stdout == plain.stdout


def test_numbers_of_users_that_a_group_needs_are_whole(run, write):
    write("few.csv", "who,ward,cost", [("ann", "east", 3), ("bob", "west", 4)])
    said = run("count", "few.csv", "--by", "ward", *COMMON).stdout
    assert re.search(r"a group of about [\d,]+ users is listed half of the time, and a group of [\d,]+ users", said)
    assert "if users are in one group." in run("count", "few.csv", "--by", "ward", "--plan", *COMMON).stdout


def test_an_empty_text_is_a_group_of_its_own_and_not_all_rows(run, folder):
    table = pa.table({"who": [k % 300 for k in range(900)], "ward": [("east", "", None)[k % 3] for k in range(900)]})
    pq.write_table(table, folder / "wards.parquet")
    answer = run("count", "wards.parquet", "--by", "ward", *COMMON, "--json")
    assert [(row["name"], row["group"]) for row in answer.json["estimates"]] == [("(empty)", [""]), ("east", ["east"])]
    assert "300 rows had an empty cell" in answer.stderr


def test_a_headline_says_bins_of_time_in_words(run, write, folder):
    write("dated.csv", "who,d", [(k % 300, f"2024-0{1 + k % 4}-1{k % 7}") for k in range(2400)])
    assert (
        run("count", "dated.csv", "--by", "d:month", *COMMON, "--json").json["kind"] == "number of rows by month of d"
    )


@pytest.mark.parametrize("asked", [("count",), ("count", "--users"), ("sum", *VALUES), ("histogram", *VALUES)])
def test_totals_that_are_nothing_but_noise_are_said_to_be_so(run, folder, asked):
    (folder / "two.csv").write_text("who,cost\nann,3\nbob,4\nann,5\n")
    command, *options = asked
    settings = (*options, "--user", "who", "--epsilon", 0.1, "--seed", 1)
    rows = run(command, "two.csv", *settings, "--json").json
    words = "cannot be told from 0: "
    assert rows["estimates"][0]["interval"][0] <= 0 < rows["estimates"][0]["noise_stddev"]
    assert words in rows["notes"][0]
    assert words in run(command, "two.csv", *settings, "--page", "page.html").stdout.partition("Guarantee:")[0]
    assert words in (folder / "page.html").read_text(encoding="utf-8")
    if command != "histogram":  # whose last bin is empty
        assert not any(words in note for note in run(command, "visits.csv", *options, *COMMON, "--json").json["notes"])


def test_a_sum_near_zero_of_values_of_both_signs_is_not_called_noise(run, folder):
    rows = [f"{k},{sign}" for k in range(500) for sign in (-1, 1)]
    (folder / "signs.csv").write_text("\n".join(["who,cost", *rows]))
    found = run("sum", "signs.csv", "--value", "cost", "--range", -1, 1, *COMMON, "--json").json
    assert found["estimates"][0]["interval"][0] < 0 < found["estimates"][0]["interval"][1]
    assert not any("cannot be told" in note for note in found["notes"])


def test_a_number_of_users_without_groups_hides_nobody_in_many_groups(run, folder):
    alone = run("count", "visits.csv", "--users", *COMMON, "--page", "page.html")
    assert "Totals may be too low" not in alone.stdout
    page = " ".join((folder / "page.html").read_text(encoding="utf-8").split())
    assert "The interval accounts for the noise" in page
    assert "groups" not in alone.stdout.partition("Guarantee:")[0] + page.partition("What is guaranteed")[0]
    assert "Totals may be too low" in run("count", "visits.csv", "--users", "--by", "ward", *COMMON).stdout


def test_columns_stand_below_each_other_whatever_the_script(run, folder):
    rows = [f"{k},{ward}" for k in range(400) for ward in ("急诊", "Süd", "Su\u0308d")]
    (folder / "scripts.csv").write_text("\n".join(["who,ward", *rows]), encoding="utf-8")
    shown = run("count", "scripts.csv", "--by", "ward", *COMMON).stdout.splitlines()[:5]
    lines = [line.replace("急诊", "----").replace("u\u0308", "ü") for line in shown]
    assert len({len(line) for line in lines}) == 1
