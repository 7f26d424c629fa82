"""`protect`: what may be shared holds released numbers only, a party gets its own alone, refusals are one sentence."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from safetensors.numpy import load_file

from apportion.auditing import RecordingSession
from apportion.auditing.replay import ReplayingSession
from apportion.cli.progress import Reporter
from apportion.cli.protect import estimator_of, learn
from apportion.cli.protect_options import ProtectOptions
from apportion.cli.protect_outputs import write_results
from apportion.data.task_files import read_task_folder
from apportion.parties import ProtectedMultiTask
from apportion.privacy import ADD_REMOVE_TASK, REPLACE_TASK, Budget, Ledger, SeededNoise
from apportion.privacy.statement import NOT_FOR_RELEASE

FEATURES = ("age", "income", "hours", "rooms")
N_TASKS = 16
PROTECT = ("protect", "schools", "--label", "score", "--epsilon", 3, "--out", "results")
ELSEWHERE = (*PROTECT[:-1], "elsewhere")
SHARED = ("privacy-card.json", "released.json", "released.safetensors", "report.html", "statement.json")


def made(rng, *, classes=False, n_rows=None):
    """Rows of one school: features in their own units, labels near one common direction."""
    rows = rng.standard_normal((rng.integers(5, 15) if n_rows is None else n_rows, 4))
    score = rows @ np.array([3.0, 2.0, 0.1, 0.0]) * rng.choice([-1, 1]) + 0.3 * rng.standard_normal(len(rows))
    label = (score > 0).astype(float) if classes else 20 + score
    columns = dict(zip(FEATURES, (rows * [10, 1000, 5, 1] + [40, 3000, 30, 3]).T, strict=True))
    return {"score": label, **columns}


def write_csv(columns, path):
    path.parent.mkdir(exist_ok=True)
    pyarrow.csv.write_csv(pa.table(columns), path)


@pytest.fixture
def tables():
    rng = np.random.default_rng(3)
    return {f"school-{k:02d}": made(rng) for k in range(N_TASKS)}


@pytest.fixture(autouse=True)
def schools(folder, tables):
    for name, columns in tables.items():
        write_csv(columns, folder / "schools" / f"{name}.csv")
    return folder / "schools"


def by_hand(tables, **settings):
    """The library's own fit, features standardised task by task."""
    matrices = [np.column_stack([columns[name] for name in FEATURES]) for columns in tables.values()]
    labels = [columns["score"] for columns in tables.values()]
    inside = [(x - x.mean(0)) / x.std(0) for x in matrices]
    squared = settings.get("loss") != "logistic"
    model = ProtectedMultiTask(3.0, noise=SeededNoise(5), fit_intercept=squared, **settings)
    if model.loss == "logistic":
        model.fit([np.column_stack([x, np.ones(len(x))]) for x in inside], labels)
        slopes, starts = model.coef_[:, :-1], model.coef_[:, -1]
    else:
        model.fit(inside, labels)
        slopes, starts = model.coef_, model.intercept_
    coefficients = slopes / np.array([x.std(0) for x in matrices])
    intercepts = starts - (coefficients * np.array([x.mean(0) for x in matrices])).sum(1)
    return model, coefficients, intercepts


def of_party(name, file="model.json", folder="results"):
    return json.loads(Path(folder, "parties", name, file).read_text(encoding="utf-8"))


def shared_bytes(folder="results"):
    return {file.name: file.read_bytes() for file in sorted(Path(folder, "shared").iterdir())}


# -- what is written is what the library says --


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ((), {}),
        (("--structure", "low-rank", "--rounds", 3), {"structure": "low-rank", "rounds": 3}),
        (("--structure", "group-sparse", "--clip-norm", 2), {"structure": "group-sparse", "clip_norm": 2.0}),
    ],
    ids=["em", "low-rank", "group-sparse"],
)
def test_models_and_releases_are_those_of_the_estimator(run, tables, arguments, settings):
    run(*PROTECT, "--seed", 5, *arguments)
    model, coefficients, intercepts = by_hand(tables, **settings)
    tensors = load_file("results/shared/released.safetensors")
    assert len(tensors) == 2 * len(model.released_)
    for k, released in enumerate(model.released_, 1):
        assert tensors[f"round_{k}.matrix"] == pytest.approx(released.matrix, rel=1e-9, abs=1e-9)
        assert tensors[f"round_{k}.shared"] == pytest.approx(released.shared, rel=1e-6, abs=1e-9)
    for name, own, start in zip(tables, coefficients, intercepts, strict=True):
        stored = of_party(name)
        assert list(stored["coefficients"]) == list(FEATURES)
        assert list(stored["coefficients"].values()) == pytest.approx(own.tolist(), rel=1e-6)
        assert stored["intercept"] == pytest.approx(start, rel=1e-6)


def test_features_as_given_are_what_the_estimator_does_with_an_intercept(run, tables):
    run(*PROTECT, "--seed", 5, "--units", "as-given")
    matrices = [np.column_stack([columns[name] for name in FEATURES]) for columns in tables.values()]
    labels = [columns["score"] for columns in tables.values()]
    model = ProtectedMultiTask(3.0, noise=SeededNoise(5), fit_intercept=True).fit(matrices, labels)
    for name, own, start in zip(tables, model.coef_, model.intercept_, strict=True):
        assert list(of_party(name)["coefficients"].values()) == pytest.approx(own.tolist(), rel=1e-6)
        assert of_party(name)["intercept"] == pytest.approx(start, rel=1e-6)


def test_logistic_models_have_a_constant_that_is_learned_with_the_rest(run, folder):
    rng = np.random.default_rng(3)
    tables = {f"school-{k:02d}": made(rng, classes=True) for k in range(N_TASKS)}
    for name, columns in tables.items():
        write_csv(columns, folder / "schools" / f"{name}.csv")
    answer = run(*PROTECT, "--loss", "logistic", "--seed", 5, "--json")
    _, coefficients, intercepts = by_hand(tables, loss="logistic")
    assert answer.json["features"] == [*FEATURES, "(intercept)"]
    for name, own, start in zip(tables, coefficients, intercepts, strict=True):
        assert list(of_party(name)["coefficients"].values()) == pytest.approx(own.tolist(), rel=1e-5, abs=1e-9)
        assert of_party(name)["intercept"] == pytest.approx(start, rel=1e-5)
    assert of_party("school-00", "gain.json")["loss"] == "log loss"


def test_parties_that_share_a_direction_gain_and_each_is_told_alone(run, tables):
    run(*PROTECT, "--epsilon", 10)
    gains = [of_party(name, "gain.json") for name in tables]
    assert sum(one["gain"] for one in gains) > 0
    for name, one in zip(tables, gains, strict=True):
        assert one["gain"] == pytest.approx(one["alone"] - one["together"])
        assert one["n_rows"] == len(tables[name]["score"])
        assert one["for"] == "For this party only; computed from its raw data."
        page = Path("results", "parties", name, "gain.html").read_text(encoding="utf-8")
        assert "FOR THIS PARTY ONLY" in page
        assert not [other for other in tables if other != name and other in page + json.dumps(of_party(name))]


def test_json_is_one_document_with_what_may_be_shared(run, tables):
    answer = run(*PROTECT, "--seed", 5, "--json")
    assert set(answer.json) == {
        "format", "document", "releasable", "structure", "loss", "label", "features", "tasks", "rounds",
        "instance_protection", "out", "statement",
    }  # fmt: skip
    assert answer.json["tasks"] == list(tables)
    assert answer.json["statement"] == json.loads(Path("results/shared/statement.json").read_text(encoding="utf-8"))
    assert "round 1 of 1 done" in answer.stderr


def test_text_names_both_folders_and_says_the_statement(run):
    answer = run(*PROTECT)
    assert "To share: results/shared" in answer.stdout
    assert "Guarantee: (3.0, " in answer.stdout
    assert NOT_FOR_RELEASE not in answer.stdout


def test_noise_from_a_seed_marks_everything_not_for_release(run):
    answer = run(*PROTECT, "--seed", 5)
    assert NOT_FOR_RELEASE in answer.stdout
    page = Path("results/shared/report.html").read_text(encoding="utf-8")
    assert "NOT FOR RELEASE" in page
    assert "this page may be shared" not in page
    for file in ("released.json", "statement.json", "privacy-card.json"):
        assert json.loads(Path("results/shared", file).read_text(encoding="utf-8"))["releasable"] is False


def test_the_privacy_card_is_that_of_the_statement_beside_it(run):
    run(*PROTECT)
    stored = Path("results/shared/privacy-card.json").read_text(encoding="utf-8")
    assert json.loads(run("card", "results/shared").stdout) == json.loads(stored)


def test_only_the_owner_of_the_files_may_read_what_belongs_to_parties(run):
    run(*PROTECT)
    for path in Path("results/parties").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) in (0o700, 0o600)
    assert sorted(shared_bytes()) == sorted(SHARED)
    assert sorted(file.name for file in Path("results/parties/school-07").iterdir()) == [
        "gain.html",
        "gain.json",
        "model.json",
    ]


# -- how files are read --


def test_tsv_and_parquet_read_as_csv_does(run, folder, tables):
    run(*PROTECT, "--seed", 5)
    first = shared_bytes()
    table = pa.table(tables["school-00"])
    (folder / "schools" / "school-00.csv").unlink()
    pyarrow.csv.write_csv(table, folder / "schools" / "school-00.tsv", pyarrow.csv.WriteOptions(delimiter="\t"))
    (folder / "schools" / "school-01.csv").unlink()
    pyarrow.parquet.write_table(pa.table(tables["school-01"]), folder / "schools" / "school-01.parquet")
    run(*ELSEWHERE, "--seed", 5)
    assert shared_bytes("elsewhere") == first


def test_what_a_party_lacks_is_declared_and_is_not_in_its_model(run, folder, tables):
    for name in ("school-03", "school-04"):
        write_csv({k: v for k, v in tables[name].items() if k != "rooms"}, folder / "schools" / f"{name}.csv")
    answer = run(*PROTECT, "--json")
    assert answer.json["features"] == list(FEATURES)
    assert "which features each task has" in answer.json["statement"]["public"]
    assert list(of_party("school-03")["coefficients"]) == ["age", "income", "hours"]
    assert of_party("school-03")["lacks"] == ["rooms"]
    assert of_party("school-05")["lacks"] == []


def test_rows_without_a_label_are_left_out_and_that_is_said(run, folder, tables):
    run(*PROTECT, "--seed", 5)
    first = shared_bytes()
    path = folder / "schools" / "school-02.csv"
    path.write_text(path.read_text(encoding="utf-8") + ",1,2,3,4\n,,,,\n", encoding="utf-8")
    shutil.rmtree(folder / "results")
    answer = run(*PROTECT, "--seed", 5)
    assert shared_bytes() == first
    assert "Rows without a label were left out: 2 in all files together." in answer.stderr
    assert of_party("school-02", "gain.json")["rows_without_label"] == 2
    assert of_party("school-02", "gain.json")["n_rows"] == len(tables["school-02"]["score"])


def test_text_columns_and_other_files_are_left_out_and_named_features_alone_are_used(run, folder, tables):
    (folder / "schools" / "notes.txt").write_text("nothing", encoding="utf-8")
    for name, columns in tables.items():
        write_csv({**columns, "town": ["x"] * len(columns["score"])}, folder / "schools" / f"{name}.csv")
    answer = run(*PROTECT, "--json")
    assert answer.json["features"] == list(FEATURES)
    assert "Columns without numbers were left out: town." in answer.stderr
    assert "Files of other kinds were ignored: notes.txt." in answer.stderr
    answer = run(*ELSEWHERE, "--features", "rooms,age", "--json")
    assert answer.json["features"] == ["rooms", "age"]
    assert "the names of the features and of the label, as given" in answer.json["statement"]["public"]


def test_a_party_without_a_row_takes_part_and_gets_nothing(run, folder):
    (folder / "schools" / "school-09.csv").write_text("score,age,income,hours,rooms\n", encoding="utf-8")
    answer = run(*PROTECT, "--json")
    assert len(answer.json["tasks"]) == N_TASKS
    assert set(of_party("school-09")["coefficients"].values()) == {0.0}
    assert of_party("school-09", "gain.json")["gain"] is None


# -- nothing computed from raw data is shared --


def learned(folder, target, asked, session):
    tasks = read_task_folder(folder, label="score", features=asked.feature_names)
    with Reporter() as reporter:
        write_results(*learn(tasks, asked, session, reporter), target)


def twice(folder, asked, change):
    """Write results, change the files, and write once more with the values that were released the first time."""
    arguments = {"budget": Budget(3.0, 1e-4), "noise": SeededNoise(1), "neighbours": asked.relation}
    first = RecordingSession(**arguments)
    learned(folder, Path("first"), asked, first)
    change()
    second = ReplayingSession(first, **arguments)
    learned(folder, Path("second"), asked, second)
    assert len(second.ratios) == len(first.records)
    assert max(second.ratios) <= 1 + 1e-9
    assert max(second.ratios) > 0.01  # the change was one that matters


def party_bytes(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in Path(folder, "parties").rglob("*.*")}


@pytest.mark.parametrize("structure", ["em", "low-rank", "group-sparse", "low-rank+sparse", "relations"])
@pytest.mark.parametrize("relation", ["replace", "add-remove"])
def test_only_the_party_itself_sees_that_its_data_are_others_while_releases_are_the_same(schools, structure, relation):
    asked = ProtectOptions(
        "score", 3.0, Path("x"), 1e-4, ",".join(FEATURES), structure, neighbours=relation, n_tasks=N_TASKS, rounds=2
    )
    changed = schools / "school-07.csv"

    def change():
        if relation == "replace":
            rng = np.random.default_rng(99)
            write_csv({k: v * 7 for k, v in made(rng, n_rows=23).items()}, changed)
        else:
            changed.unlink()

    twice(schools, asked, change)
    assert shared_bytes("first") == shared_bytes("second")
    before, after = party_bytes("first"), party_bytes("second")
    differing = {name.split("/")[1] for name in before if before[name] != after.get(name)}
    assert differing == {"school-07"}


def test_shared_files_hold_no_partys_name_where_who_takes_part_is_private(run, tables):
    run(*PROTECT, "--neighbours", "add-remove", "--delta", 1e-5, "--features", ",".join(FEATURES))
    everything = b"".join(shared_bytes().values()).decode("utf-8", errors="replace")
    assert not [name for name in tables if name in everything]
    run(*ELSEWHERE)
    assert all(name in shared_bytes("elsewhere")["report.html"].decode() for name in tables)


def test_shared_files_hold_no_number_of_a_party(run, tables):
    """Six digits may agree by chance, which fresh noise does not repeat: what leaks is found in both of two fits."""
    found = []
    for arguments in (PROTECT, ELSEWHERE):
        run(*arguments)
        everything = b"".join(shared_bytes(arguments[-1]).values()).decode("utf-8", errors="replace")
        found.append(
            {key for key, value in numbers_of_parties(tables, arguments[-1]).items() if shows(value, everything)}
        )
        total = sum(len(columns["score"]) for columns in tables.values())
        assert f" {total} " not in everything
    assert not found[0] & found[1]


def numbers_of_parties(tables, folder):
    """The numbers of every party by party and name."""
    found = {}
    for name in tables:
        own, gain = of_party(name, folder=folder), of_party(name, "gain.json", folder)
        numbers = {**own["coefficients"], "intercept": own["intercept"]}
        numbers |= {f"{each}, alone": value for each, value in own["alone"]["coefficients"].items()}
        numbers |= {each: gain[each] for each in ("together", "alone", "own_weight")}
        found |= {(name, each): value for each, value in numbers.items()}
    return found


def shows(value, text):
    """Whether a text has the first six digits of a number."""
    return abs(value) > 0.01 and f"{value:.6f}".lstrip("-")[:7] in text


def test_a_number_that_is_shown_is_found():
    assert shows(-0.0708343, '{"x": -0.070834}')
    assert not shows(0.0708343, '{"x": 0.0709}')


# -- refusals --


def test_a_ledger_is_charged_before_anything_is_written_and_refuses_more_than_it_has(run, refused):
    with Ledger.open("ledger.sqlite") as ledger:
        ledger.create_account("schools", Budget(3.5, 1e-3), neighbours=REPLACE_TASK)
    charged = ("--delta", 1e-3, "--ledger", "ledger.sqlite", "--account", "schools")
    answer = run(*PROTECT, *charged, "--json")
    assert answer.json["statement"]["ledger"]["entries"] == 1
    assert "does not fit in account 'schools'" in refused(*ELSEWHERE, *charged, code=3)


def test_an_account_for_other_neighbours_is_refused(run, folder):
    with Ledger.open("ledger.sqlite") as ledger:
        ledger.create_account("schools", Budget(5.0, 1e-3), neighbours=ADD_REMOVE_TASK)
    answer = run(*PROTECT, "--delta", 1e-3, "--ledger", "ledger.sqlite", "--account", "schools", code=2)
    assert "The neighbours of this command are 'replace one task" in answer.stderr
    assert "reading" not in answer.stderr
    assert not (folder / "results").exists()


BAD = {
    "a word among numbers": ("score,age\n1,2\n3,four\n", ("bad.csv", "'age'", "'four'", "row 2")),
    "an empty feature": ("score,age\n1,2\n3,\n", ("bad.csv", "'age'", "is empty in row 2")),
    "an infinite feature": ("score,age\n1,inf\n", ("bad.csv", "'age'", "inf in row 1")),
    "an infinite label": ("score,age\n-inf,1\n", ("bad.csv", "'score'", "-inf in row 1")),
    "no label": ("points,age\n1,2\n", ("bad.csv", "'score'", "'points', 'age'")),
    "a feature twice": ("score,age,age\n1,2,3\n", ("bad.csv", "'age'", "2 times")),
    "no header": ("1,2\n3,4\n", ("bad.csv", "numbers, not column names")),
    "text elsewhere numbers": ("score,age\n1,old\n", ("bad.csv", "'age'", "no numbers", "as in other files")),
    "no feature": ("score,town\n1,x\n", ("bad.csv", "no columns of numbers", "'town'")),
    "an empty file": ("", ("bad.csv", "empty")),
    "a short row": ("score,age\n1\n", ("bad.csv", "Row 1", "1 column ")),
}


@pytest.mark.parametrize(("text", "expected"), BAD.values(), ids=BAD)
def test_bad_files_are_one_sentence_that_names_file_and_column(refused, folder, text, expected):
    (folder / "schools" / "bad.csv").write_text(text, encoding="utf-8")
    sentence = refused(*PROTECT)
    assert all(words in sentence for words in expected), sentence
    assert "columns=" not in sentence


def test_labels_that_are_no_classes_are_refused(refused):
    sentence = refused(*PROTECT, "--loss", "logistic")
    assert "school-00" in sentence
    assert "'score'" in sentence


def test_two_files_of_one_task_and_a_folder_without_any_are_refused(refused, folder, tables):
    (folder / "empty").mkdir()
    assert "no .arrow, .csv, .ddb, " in refused("protect", "empty", *PROTECT[2:])
    pyarrow.parquet.write_table(pa.table(tables["school-01"]), folder / "schools" / "school-01.parquet")
    assert "'school-01' has two files" in refused(*PROTECT)


def test_features_that_no_file_has_are_refused(refused):
    assert "No file has a column 'height'" in refused(*PROTECT, "--features", "age,height")


def test_options_that_do_not_go_together_are_refused(refused):
    assert "--n-tasks" in refused(*PROTECT, "--neighbours", "add-remove")
    assert "reveal who takes part" in refused(*PROTECT, "--neighbours", "add-remove", "--delta", 1e-5)
    assert "power:ALPHA" in refused(*PROTECT, "--schedule", "power")
    assert "power:ALPHA" in refused(*PROTECT, "--schedule", "geometric:-1")


def test_nothing_that_exists_is_replaced_not_even_an_older_result(run, refused, folder):
    (folder / "results").mkdir()
    (folder / "results" / "thesis.tex").write_text("years of work", encoding="utf-8")
    assert "Refusing to replace 'results': it already exists" in refused(*PROTECT)
    assert "Refusing to replace 'schools'" in refused(*PROTECT[:-1], "schools")
    run(*PROTECT[:-1], "other")
    kept = party_bytes("other") | shared_bytes("other")
    assert "Refusing to replace 'other'" in refused(*PROTECT[:-1], "other")
    assert party_bytes("other") | shared_bytes("other") == kept


def test_a_failure_on_the_way_leaves_nothing_behind(folder, schools):
    before, asked = sorted(folder.iterdir()), ProtectOptions("score", 3.0, Path("results"))
    with Reporter() as reporter:
        shared, parties = learn(read_task_folder(schools, label="score"), asked, None, reporter)

    def interrupted():
        yield parties[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_results(shared, interrupted(), Path("results"))
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("--instance-epsilon", 20, "--rounds", 2, "--schedule", "geometric:0.9"),
        ("--structure", "relations", "--rounds", 2, "--schedule", "power:0.4", "--units", "as-given"),
    ],
    ids=["instance", "schedule"],
)
def test_rounds_and_their_schedule_reach_the_statement(run, arguments):
    answer = run(*PROTECT, *arguments, "--json")
    first, second = (one["share"] for one in answer.json["statement"]["releases"])
    assert second / first == pytest.approx(2**0.8 if "relations" in arguments else 0.9**-2)
    assert answer.json["statement"]["tuning"].startswith("declared")


def test_protection_of_single_rows_is_said_on_the_shared_page(run):
    answer = run(*PROTECT, "--instance-epsilon", 20, "--json")
    assert answer.json["instance_protection"]["epsilon"] == 20
    assert "protects each of its rows with ε = 20, δ = 0" in Path("results/shared/report.html").read_text("utf-8")


def test_every_option_reaches_the_estimator(schools):
    asked = ProtectOptions(
        "score", 2.0, Path("x"), 1e-5, ",".join(FEATURES), "low-rank", "logistic", "add-remove", 25, 4, None,
        2.0, 7.0, window="2026", tuning="by thought", seed=3,
    )  # fmt: skip
    model = estimator_of(asked, read_task_folder(schools, label="score"), [*FEATURES, "(intercept)"])
    found = model.get_params()
    expected = {
        "epsilon": 2.0, "delta": 1e-5, "structure": "low-rank", "loss": "logistic", "neighbours": ADD_REMOVE_TASK,
        "n_tasks": 25, "rounds": 4, "schedule": None, "clip_norm": 2.0, "instance_epsilon": 7.0,
        "window": "2026", "tuning": "by thought", "feature_mask": None,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["noise"].seed == 3
