"""Runs the scripts of the gallery and writes a page with a picture for each, and an index of all.

A script says in its docstring what it shows. It uses nothing but the library and the drawings of the papers, and leaves
its picture, an SVG document, in a variable called `picture`. It takes a second or two.
"""

from __future__ import annotations

import ast
import contextlib
import io
import runpy
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent
SCRIPTS = DOCS / "gallery_scripts"
GROUPS = {
    "What a guarantee says": ("tradeoff_curves", "one_mu_many_epsilons", "costs_add_up", "what_conversions_lose"),
    "Accounts and lists": ("sampling_amplifies", "ledger_over_a_year", "threshold_of_a_private_list"),
    "Broken guarantees, found": ("wishart_is_not_private", "printed_and_real", "audit_catches_a_bug"),
    "Recommenders": (
        "error_against_epsilon",
        "head_and_tail",
        "where_the_budget_goes",
        "popularity_with_noise",
        "features_help_rare_items",
        "movielens_and_the_papers",
    ),
    "Budgets over tasks": ("allocations_at_work", "exponent_of_weights"),
    "Statistics": ("interval_of_a_mean", "quantiles", "regression_intervals"),
    "Parties": ("parties_gain", "parties_directions"),
    "Deep learning": ("rare_classes", "second_moments_are_noise"),
}
PER_ROW = 3


@dataclass(frozen=True)
class Shown:
    """What a script left.

    Attributes:
        name: of the script.
        title: first line of its docstring.
        words: the rest of it.
        picture: SVG.
        printed: what it printed.
        seconds: that it took.
    """

    name: str
    title: str
    words: str
    picture: str
    printed: str
    seconds: float


def run(script: Path) -> Shown:
    """Run one script."""
    title, _, words = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").partition("\n")
    printed, started = io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(printed):
        left = runpy.run_path(str(script))
    seconds = time.perf_counter() - started
    name = script.stem.removeprefix("plot_")
    return Shown(name, title.rstrip("."), words.strip(), left["picture"], printed.getvalue(), seconds)


def page(shown: Shown) -> str:
    """Return the page of one script."""
    lines = [f"# {shown.title}", "", shown.words, "", f"![{shown.title}]({shown.name}.svg)", ""]
    if shown.printed:
        lines += ["It prints:", "", "```text", shown.printed.rstrip(), "```", ""]
    lines += [f"```{{literalinclude}} ../gallery_scripts/plot_{shown.name}.py", ":language: python", "```", ""]
    return "\n".join(lines)


def index(everything: list[Shown]) -> str:
    """Return the page that shows all pictures, by group."""
    by_name = {shown.name: shown for shown in everything}
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "More": tuple(name for name in by_name if name not in grouped)}
    lines = ["# Gallery", "", "Short scripts with a picture each. Every one is run when this site is built.", ""]
    for group, names in groups.items():
        if names:
            shown = _table([by_name[name] for name in names])
            lines += [f"## {group}", "", ":::{container} gallery", *shown, ":::", ""]
    listed = "\n".join(name for names in groups.values() for name in names)
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", listed, "```", ""])


def _table(shown: list[Shown]) -> list[str]:
    """A table of pictures that lead to their pages."""
    cells = [f"[![{each.title}]({each.name}.svg)]({each.name}.md)<br>[{each.title}]({each.name}.md)" for each in shown]
    cells += [" "] * (-len(cells) % PER_ROW)
    rows = ["| " + " | ".join(cells[k : k + PER_ROW]) + " |" for k in range(0, len(cells), PER_ROW)]
    return ["| " + " | ".join(" " * PER_ROW) + " |", "|" + "---|" * PER_ROW, *rows]


def write_gallery(folder: Path) -> None:
    """Run all scripts and write their pages."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    everything = [run(script) for script in sorted(SCRIPTS.glob("plot_*.py"))]
    for shown in everything:
        (folder / f"{shown.name}.svg").write_text(shown.picture, encoding="utf-8")
        (folder / f"{shown.name}.md").write_text(page(shown), encoding="utf-8")
        print(f"{shown.name}: {shown.seconds:.1f} s")
    (folder / "index.md").write_text(index(everything), encoding="utf-8")
