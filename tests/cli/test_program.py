"""The program as a whole: it starts fast, explains itself, shows progress, and the demo goes all the way."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from apportion.cli.main import NOBODY_READS
from apportion.cli.progress import Reporter
from apportion.recommend import load
from apportion.recommend.rating_settings import CHOICE_SHARE

HEAVY = ("numpy", "scipy", "pyarrow", "jinja2", "rich", "sklearn", "dp_accounting", "safetensors", "torch")


def test_help_needs_nothing_heavy():
    code = (
        "import sys\nfrom apportion.cli.main import program\n"
        "program(['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_package_runs_as_the_program():
    shown = [
        subprocess.run([sys.executable, *start, "--help"], capture_output=True, text=True, check=True).stdout
        for start in (["-m", "apportion"], ["-c", "from apportion.cli.main import main; main()"])
    ]
    assert shown[0].startswith("Usage: apportion [OPTIONS]")
    assert shown[0] == shown[1]


RECOMMENDERS = [
    "plan",
    "fit",
    "evaluate",
    "recommend",
    "similar",
    "explore",
    "export",
    "account",
    "compare",
    "card",
    "tune",
    "demo",
]


ANALYSTS = ["mean", "quantile", "regress", "logistic", "protect", "ledger", "audit"]


@pytest.mark.parametrize("command", [*RECOMMENDERS, *ANALYSTS])
def test_every_command_explains_itself(run, command):
    assert command in run("--help").stdout
    assert "Usage:" in run(command, "--help").stdout


def test_the_help_of_fit_names_the_share_that_choices_take(run):
    assert f"for {CHOICE_SHARE:.0%}".replace("%", " %") in " ".join(run("fit", "--help").stdout.split())


def test_the_installed_program_fits_and_ends_with_its_codes(ratings, folder):
    def call(*arguments):
        command = [sys.executable, "-c", "from apportion.cli.main import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)

    fine = call("fit", ratings, "--epsilon", "2", "--dimension", "2", "--rounds", "2", "--json")
    assert fine.returncode == 0
    assert json.loads(fine.stdout)["statement"]["epsilon"] == 2.0
    bad = call("fit", "missing.csv", "--epsilon", "2")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "Traceback" not in bad.stderr


def test_output_that_nobody_reads_ends_the_program_with_a_code_of_its_own(tmp_path):
    """1 would say that an audit found a violation."""
    (tmp_path / "rows.csv").write_text("user,value\n" + "".join(f"u{k},{k % 5}\n" for k in range(200)))
    asked = ["mean", "rows.csv", "--user", "user", "--value", "value", "--range", "0", "5", "--epsilon", "1"]
    started = subprocess.Popen(
        [sys.executable, "-m", "apportion", *asked], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with started as running:
        running.stdout.close()
        said = running.stderr.read().decode()
    assert running.returncode == NOBODY_READS
    assert "Traceback" not in said
    assert "Exception" not in said


def test_a_terminal_gets_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Reporter() as reporter:
        reporter.say("a [remark]")
        for done in range(4):
            reporter.of("private model")("round", done, 3)
    assert "a [remark]" in terminal.getvalue()
    assert "private model: round 3 of 3 done" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()


def test_elsewhere_long_jobs_get_at_most_about_ten_lines(capsys):
    with Reporter() as reporter:
        for done in range(1001):
            reporter.of("job")("step", done, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "job: 1000 steps left"
    assert lines[-1] == "job: step 1000 of 1000 done"
    assert len(lines) == 11


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_the_demo_leaves_data_a_model_and_its_pages(run, folder, kind):
    options = ("--users", 400, "--items", 60, "--rows", 6000, *(("--clicks",) if kind == "clicks" else ()))
    answer = run("demo", *options, "--epsilon", 4, "--json").json
    assert (folder / answer["data"]).read_text().splitlines()[0].startswith('"user","item"')
    assert load(folder / "demo/model").kind == kind
    assert "may be shared" in (folder / answer["report"]).read_text(encoding="utf-8")
    assert "INTERNAL" in (folder / answer["evaluation"]).read_text(encoding="utf-8")
    assert "published, ε = 4" in answer["models"]
    assert "explorer" in (folder / answer["explorer"]).read_text(encoding="utf-8").lower()
    files = {"evaluation.html", "explorer.html", "items.csv", f"{kind}.csv", "model"}
    assert {path.name for path in (folder / "demo").iterdir()} == files


def test_the_demo_can_be_run_again(run, folder):
    for _ in range(2):
        result = run("demo", "--users", 100, "--items", 30, "--rows", 1500)
    assert "Page that may be shared: demo/model/report.html" in result.stdout
