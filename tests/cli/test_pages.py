"""Every command that writes a page says where it is and how to open it, and `--open` opens it."""

from __future__ import annotations

import webbrowser

import numpy as np
import pytest

from apportion.cli.main import program
from benchmarks.browser import browser
from benchmarks.claim import UnavailableError

SMALL = ("--dimension", 2, "--rounds", 1)
STUDY = """
[data]
path = "ratings.csv"
kind = "ratings"
[budgets]
epsilon = [2]
seeds = [0]
[[methods]]
method = "ours"
dimension = 2
rounds = 1
"""
COMMANDS = {
    "fit": (("fit", "ratings.csv", "--epsilon", 4, *SMALL, "--out", "m"), ["m/report.html"]),
    "tune": (
        ("tune", "ratings.csv", "--epsilon", 4, "--try", "dimension=1,2", "--tries", 1.5, "--out", "m"),
        ["m/report.html"],
    ),
    "evaluate": (("evaluate", "ratings.csv", "--epsilon", 4, *SMALL), ["ratings-evaluation.html"]),
    "compare": (("compare", "s.toml"), ["s-study/comparison.html"]),
    "audit": (("audit", "MODEL"), ["ratings-audit.html"]),
    "explore": (("explore", "MODEL"), ["explorer.html"]),
    "card": (("card", "MODEL", "--out", "card.json", "--page", "card.html"), ["card.html"]),
    "mean": (("mean", "ratings.csv", "--user", "user", "--value", "rating", "--range", 1, 5, "--epsilon", 1,
              "--page", "p.html"), ["p.html"]),
    "quantile": (("quantile", "ratings.csv", "--user", "user", "--value", "rating", "--range", 1, 5, "--epsilon", 1,
                  "--page", "p.html"), ["p.html"]),
    "regress": (("regress", "ratings.csv", "--user", "user", "--label", "rating", "--label-range", 1, 5, "--features",
                 "item", "--epsilon", 1, "--page", "p.html"), ["p.html"]),
    "logistic": (("logistic", "yes.csv", "--user", "user", "--label", "yes", "--features", "age", "--feature-norm", 2,
                  "--epsilon", 1, "--delta", 1e-6, "--page", "p.html"), ["p.html"]),
    "count": (("count", "ratings.csv", "--user", "user", "--by", "item", "--keys", "from-data", "--epsilon", 1,
               "--page", "p.html"), ["p.html"]),
    "sum": (("sum", "ratings.csv", "--user", "user", "--value", "rating", "--range", 1, 5, "--epsilon", 1, "--page",
             "p.html"), ["p.html"]),
    "variance": (("variance", "ratings.csv", "--user", "user", "--value", "rating", "--range", 1, 5, "--epsilon", 1,
                  "--page", "p.html"), ["p.html"]),
    "histogram": (("histogram", "ratings.csv", "--user", "user", "--value", "rating", "--range", 1, 5, "--by", "item",
                   "--epsilon", 0.01, "--page", "p.html"), ["p.html"]),
    "query": (("query", "SELECT count(*) FROM 'ratings.csv'", "--user", "user", "--epsilon", 1, "--page", "p.html"),
              ["p.html"]),
    "plan": (("plan", "--users", 1000, "--items", 100, "--rows-per-user", 20, "--page", "p.html"), ["p.html"]),
    "protect": (("protect", "schools", "--label", "score", "--epsilon", 2, "--out", "r"), ["r/shared/report.html"]),
    "demo": (("demo", "--users", 200, "--items", 30, "--rows", 2000),
             ["demo/model/report.html", "demo/evaluation.html", "demo/explorer.html"]),
}  # fmt: skip
"""A run of each command that writes pages, and these."""


@pytest.fixture
def inputs(folder, ratings):
    """What the commands read."""
    rng = np.random.default_rng(0)
    (folder / "s.toml").write_text(STUDY)
    lines = [f"{k % 60},{rng.random():.3f},{k % 2}" for k in range(300)]
    (folder / "yes.csv").write_text("\n".join(["user,age,yes", *lines]))
    (folder / "schools").mkdir()
    for school in range(6):
        rows = [f"{rng.random():.3f},{rng.random():.3f}" for _ in range(12)]
        (folder / "schools" / f"school{school}.csv").write_text("\n".join(["age,score", *rows]))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_is_named_with_its_address_and_opened_if_asked(command, run, fitted, inputs, folder, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    arguments, pages = COMMANDS[command]
    arguments = [fitted / "ratings" if each == "MODEL" else each for each in arguments]
    result = run(*arguments, "--open")
    addresses = [(folder / page).as_uri() for page in pages]
    assert opened == addresses
    for page, address in zip(pages, addresses, strict=True):
        assert f": {page}\nOpen it in a browser: {address}\n" in result.stdout
        assert (folder / page).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_no_command_with_a_page_was_forgotten():
    with_open = {name for name, each in program.commands.items() if any("--open" in p.opts for p in each.params)}
    assert with_open == set(COMMANDS)


@pytest.mark.parametrize("command", ["mean", "card"])
def test_open_without_a_page_is_refused(command, refused, fitted, inputs):
    arguments = [fitted / "ratings" if each == "MODEL" else each for each in COMMANDS[command][0]]
    without = arguments[: arguments.index("--page")]
    assert "--open opens the page that --page FILE.html names" in refused(*without, "--open")


OVERFLOWING = """() => Array.from(document.querySelectorAll("main *")).filter((each) => {
  if (each.getBoundingClientRect().right <= innerWidth + 1) return false;
  return !each.closest(".scroll, pre, .narrow svg, .wide");
}).map((each) => each.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def chromium():
    try:
        with browser() as running:
            yield running
    except UnavailableError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("command", ["compare", "mean", "protect", "audit"])
def test_a_page_fits_a_phone_and_an_accessibility_check_finds_nothing(command, run, fitted, inputs, folder, chromium):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    arguments, (file,) = COMMANDS[command]
    run(*[fitted / "ratings" if each == "MODEL" else each for each in arguments])
    for look in ("light", "dark"):
        context = chromium.new_context(viewport={"width": 375, "height": 800}, color_scheme=look)
        page = context.new_page()
        page.goto((folder / file).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        assert page.evaluate(OVERFLOWING) == []
        for row in page.locator("table.dense tbody tr").all():
            assert row.bounding_box()["width"] <= 375
            assert row.locator("td[data-label]").count() >= 3  # every figure of a release is in sight, by its name
        found = axe.Axe().run(page)
        assert found.response["violations"] == [], found.generate_report()
        context.close()


@pytest.mark.parametrize(
    "command",
    [
        ("explore", "{model}", "--out"),
        ("card", "{model}", "--page"),
        ("audit", "{model}", "--out"),
        ("plan", "--users", 400, "--items", 60, "--rows-per-user", 15, "--page"),
    ],
)
def test_the_name_of_a_page_gets_its_ending_or_a_browser_shows_source(command, run, fitted, folder):
    given = [str(word).format(model=fitted / "ratings") for word in command]
    said = run(*given, "page-2.5")
    assert [path.name for path in folder.glob("page*")] == ["page-2.5.html"]
    assert "page-2.5.html" in said.stdout + said.stderr
    run(*given, "other.htm")
    assert (folder / "other.htm").is_file()
