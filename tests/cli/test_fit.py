"""`fit` writes a model and a page, prints the statement, and says what it decided."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile

import pytest
import safetensors.numpy
from safetensors import SafetensorError

from apportion.cli import outputs
from apportion.privacy.statement import Statement
from apportion.recommend import load
from apportion.report import public_page

SMALL = ("--dimension", "2", "--rounds", "2")


def test_a_fit_writes_a_model_and_a_page_and_prints_the_statement(run, ratings, folder):
    result = run("fit", ratings, "--epsilon", 2, *SMALL)
    model = load(folder / "ratings-model")
    assert result.stdout.startswith(model.statement.to_text(fold=True))
    assert len(model.statement.to_text(fold=True)) < len(model.statement.to_text())
    assert {file.name for file in (folder / "ratings-model").iterdir()} == {
        "model.json",
        "model.safetensors",
        "privacy-card.json",
        "report.html",
        "statement.json",
    }
    assert model.kind == "ratings"
    assert model.statement.epsilon == 2.0
    assert model.statement.releasable


def test_the_page_is_made_from_the_files_beside_it(run, ratings, folder):
    run("fit", ratings, "--epsilon", 2, "--out", "m", *SMALL)
    assert (folder / "m/report.html").read_text(encoding="utf-8") == public_page(load("m"))


def test_everything_that_was_written_can_be_read_by_others(run, ratings, folder):
    run("fit", ratings, "--epsilon", 2, "--out", "m", *SMALL)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (folder / "m").iterdir()}
    assert modes == {0o644}
    assert stat.S_IMODE((folder / "m").stat().st_mode) == 0o755


def test_json_is_all_there_is_on_stdout(run, ratings):
    answer = run("fit", ratings, "--epsilon", 2, "--json", *SMALL).json
    assert answer["model"] == "ratings-model"
    assert answer["kind"] == "ratings"
    assert Statement.from_json(json.dumps(answer["statement"])) == load("ratings-model").statement


def test_progress_goes_to_stderr_in_plain_lines(run, ratings):
    result = run("fit", ratings, "--epsilon", 2, *SMALL)
    assert "private model: round 1 of" in result.stderr
    assert "\x1b" not in result.stderr
    assert "private model" not in result.stdout


@pytest.mark.parametrize(
    ("options", "kind"),
    [((), "ratings"), (("--clicks",), "clicks"), (("--ratings",), "ratings"), (("--min-value", "4"), "clicks")],
)
def test_the_kind_is_found_or_given(run, ratings, options, kind):
    assert run("fit", ratings, "--epsilon", 2, "--json", *SMALL, *options).json["kind"] == kind


def test_a_guess_of_the_kind_is_said_and_a_given_one_is_not(run, ratings, clicks):
    assert "Treating the rows as ratings" in run("fit", ratings, "--epsilon", 2, *SMALL).stderr
    assert "Treating the rows as clicks" in run("fit", clicks, "--epsilon", 2, *SMALL).stderr
    assert "Treating the rows" not in run("fit", ratings, "--ratings", "--epsilon", 2, *SMALL).stderr


def test_items_found_in_the_data_are_declared_public_once(run, ratings, write):
    without = run("fit", ratings, "--epsilon", 2, "--json", *SMALL)
    assert without.stderr.count("declared public") == 1
    assert any("taken from the data" in words for words in without.json["statement"]["public"])
    items = write("items.csv", "item", [[k] for k in range(45)])
    with_list = run("fit", ratings, "--epsilon", 2, "--items", items, "--json", *SMALL)
    assert "declared public" not in with_list.stderr
    assert not any("taken from the data" in words for words in with_list.json["statement"]["public"])
    assert with_list.json["n_items"] == 45


def test_a_declared_number_of_users_is_in_the_statement(run, ratings):
    public = run("fit", ratings, "--epsilon", 2, "--n-users", 300, "--json", *SMALL).json["statement"]["public"]
    assert any("300" in words for words in public)


def test_a_seed_repeats_the_model_and_marks_everything(run, ratings, folder):
    for out in ("a", "b"):
        assert "NOT FOR RELEASE" in run("fit", ratings, "--epsilon", 2, "--seed", 7, "--out", out, *SMALL).stdout
        assert "NOT FOR RELEASE" in (folder / out / "report.html").read_text(encoding="utf-8")
        assert not load(out).statement.releasable
    first, second = (load(out).fold_in.features for out in ("a", "b"))
    assert (first == second).all()


def test_without_a_seed_no_two_fits_are_the_same(run, ratings):
    for out in ("a", "b"):
        run("fit", ratings, "--epsilon", 2, "--out", out, *SMALL)
    assert (load("a").popularity != load("b").popularity).any()


def test_settings_given_by_hand_are_declared(run, ratings):
    def tuning(*options):
        return run("fit", ratings, "--epsilon", 2, "--json", *options).json["statement"]["tuning"]

    assert "declared" in tuning("--dimension", "2")
    assert tuning("--dimension", "2", "--tuning", "on public data") == "on public data"
    assert "library defaults" in tuning()


def test_the_window_is_in_the_statement_and_on_the_page(run, ratings, folder):
    run("fit", ratings, "--epsilon", 2, "--window", "May 2001 <to> June 2002", "--out", "m", *SMALL)
    assert load("m").statement.window == "May 2001 <to> June 2002"
    assert "May 2001 &lt;to&gt; June 2002" in (folder / "m/report.html").read_text(encoding="utf-8")


def test_titles_are_on_the_page(run, ratings, write, folder):
    titles = write("titles.csv", "id,title", [[k, f"Title number {k}"] for k in range(40)])
    run("fit", ratings, "--epsilon", 2, "--titles", titles, "--out", "m", *SMALL)
    assert "Title number" in (folder / "m/report.html").read_text(encoding="utf-8")


def test_unusual_columns_and_files_without_a_header_can_be_named(run, write, rows):
    odd = write("odd.csv", "a,b,c", rows)
    assert run("fit", odd, "--epsilon", 2, "--user", "a", "--item", "b", "--value", "c", "--json", *SMALL).json
    bare = write("bare.csv", ",".join(str(cell) for cell in rows[0]), rows[1:])
    assert run("fit", bare, "--epsilon", 2, "--columns", "user,item,rating", "--json", *SMALL).json["n_items"] == 40


def test_a_time_column_that_nobody_asked_for_is_not_read(run, write, rows):
    dated = write("dated.csv", "user,item,rating,timestamp", [[*row, "last spring"] for row in rows])
    assert run("fit", dated, "--epsilon", 2, "--json", *SMALL).json["n_items"] == 40
    assert "last spring" in run("fit", dated, "--epsilon", 2, "--timestamp", "timestamp", code=2).stderr


def test_a_second_fit_replaces_the_model_and_says_that_it_costs_again(run, ratings):
    run("fit", ratings, "--epsilon", 2, "--out", "m", *SMALL)
    assert "spends their privacy again" in run("fit", ratings, "--epsilon", 3, "--out", "m", *SMALL).stderr
    assert load("m").statement.epsilon == 3.0


@pytest.mark.parametrize("kind", ["--ratings", "--clicks"])
def test_a_delta_too_large_for_the_released_number_of_users_is_said_too(run, ratings, kind):
    said = run("fit", ratings, "--epsilon", 8, "--delta", 0.1, kind, *SMALL).stderr
    assert "Warning: a delta of 0.1 is not below 1 / " in said  # 300 users; 10 are 29 deviations of the noise away
    assert "Warning" not in run("fit", ratings, "--epsilon", 8, "--out", "m", kind, *SMALL).stderr


def test_an_epsilon_that_protects_nobody_is_said(run, ratings):
    assert "an epsilon of 11 gives no protection" in run("fit", ratings, "--epsilon", 11, *SMALL).stderr
    assert "no protection" not in run("fit", ratings, "--epsilon", 10, "--out", "m", *SMALL).stderr


def test_a_delta_too_large_for_the_users_gets_a_word_of_caution(run, ratings):
    said = run("fit", ratings, "--epsilon", 2, "--delta", 0.01, "--n-users", 300, *SMALL).stderr
    assert "Choose a smaller --delta" in said
    assert "Choose a smaller" not in run("fit", ratings, "--epsilon", 2, "--n-users", 300, *SMALL).stderr


@pytest.mark.parametrize("kind", ["--ratings", "--clicks"])
def test_vectors_are_no_longer_than_there_are_items(run, ratings, folder, kind):
    said = run("fit", ratings, "--epsilon", 2, kind, "--dimension", 1000, "--rounds", 1, "--out", "m").stderr
    assert "Item vectors have length 40, not 1000: there are 40 items." in said
    assert load(folder / "m").vectors.shape == (40, 40)


@pytest.mark.filterwarnings("error")
def test_as_many_rounds_as_are_allowed_give_no_warning(run, write, rows):
    run("fit", write("few.csv", "user,item,rating", rows[:200]), "--epsilon", 2, "--dimension", 1, "--rounds", 200)


def test_long_text_ids_work_from_end_to_end(run, write, rows):
    def long(prefix, number):
        return f"{prefix}-{number:08d}-0000-4000-8000-000000000000"

    data = write("long.csv", "user,item,rating", [[long("u", u), long("i", i), v] for u, i, v in rows])
    run("fit", data, "--epsilon", 4, "--out", "m", *SMALL)
    found = run("recommend", "m", data, "-k", 3, "--user", long("u", 7), "--json").json["recommendations"]
    assert [each["user"] for each in found] == [long("u", 7)]
    assert len(run("similar", "m", long("i", 3), "-k", 4, "--json").json["similar"]) == 4


@pytest.fixture
def charged(run):
    """A ledger with one account, and what a fit must be told to charge it."""
    run("ledger", "init", "ledger.db", "--account", "a", "--epsilon", 9, "--delta", "1e-5")
    return ("--ledger", "ledger.db", "--account", "a", "--epsilon", 2, "--out", "m", *SMALL)


def spent(run):
    return run("ledger", "status", "ledger.db", "--json").json[0]["spent_epsilon"]


def test_a_full_disk_is_found_before_anything_is_spent(run, ratings, charged, monkeypatch, folder):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    said = run("fit", ratings, *charged, code=2).stderr
    assert "no room for the model at 'm'" in said
    assert "nothing was spent" in said
    assert spent(run) == 0
    assert not list(folder.glob("*m*/"))


@pytest.mark.parametrize(
    "problem", [SafetensorError("No space left on device"), OSError(errno.ENOSPC, "No space left")]
)
def test_a_model_that_cannot_be_written_is_kept_elsewhere_because_it_is_paid_for(
    run, ratings, charged, monkeypatch, folder, problem
):
    write, left = safetensors.numpy.save_file, [problem]

    def save_file(*arguments):
        if left:
            raise left.pop()
        write(*arguments)

    (folder / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "elsewhere"))
    monkeypatch.setattr(safetensors.numpy, "save_file", save_file)
    said = run("fit", ratings, *charged, code=2).stderr
    assert "No space left" in said
    assert "Traceback" not in said
    (kept,) = (folder / "elsewhere").glob("apportion-*/m")
    assert str(kept) in said
    assert load(kept).n_tasks == 40
    assert not (folder / "m").exists()
    assert not list(folder.glob(".m-*"))
    assert spent(run) > 0


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_a_model_that_another_run_wrote_meanwhile_is_kept(run, ratings, monkeypatch, folder, command):
    options = ("--epsilon", 20, "--dimension", 2, "--rounds", 1, "--out", "m")
    asked = {"fit": options, "tune": (*options[:2], "--try", "dimension=1,2", "--items", "from-data", *options[-2:])}
    (folder / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "elsewhere"))
    write, others = outputs.write_paid_model, []

    def late(model, target, titles, *further):
        outputs.write_model(model, target, titles)
        others.append((target / "model.json").stat().st_ino)
        return write(model, target, titles, *further)

    monkeypatch.setattr(f"apportion.cli.{command}.write_paid_model", late)
    said = run(command, ratings, *asked[command], code=2).stderr
    assert "another run wrote there meanwhile" in said
    assert (folder / "m" / "model.json").stat().st_ino == others[0]
    (kept,) = (folder / "elsewhere").glob("apportion-*/m")
    assert load(kept).n_tasks == 40
