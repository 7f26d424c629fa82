"""What the documentation shows of stored results: the page of claims and the six figures of the README, never typed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import source
from benchmarks.claim import RESULTS
from benchmarks.rows import OTHER, THEMES, row_of, theme_of

ROOT = Path(__file__).parents[1]
README, PAGE = ROOT / "README.md", ROOT / "docs" / "claims.md"
BEGIN, END = "<!-- figures: begin, written by `make table` -->", "<!-- figures: end -->"
FIRST = ("ml1m-ratings", "ml1m-clicks", "planted-bugs", "audit-published", "protected-em", "round-vs-implicit")
"""The figures that the README shows."""
DRAWN = "skew-ml1m"
"""The claim in its picture."""

NOW, EARLIER = "this source", "an earlier source"
_INTRODUCTION = """# Claims

Every figure that we state is measured by a script in `benchmarks/`. Run one with `make claim NAME=...`; with
`QUICK=1` it takes seconds, on less data. `make table` writes this page from the stored results. In each group, claims
that do not hold come first.

"Measured on" compares the code that a claim reaches with the code in this tree. *An earlier source* means that some of
this code has changed and that the claim was not measured again: the figure may still be right, but nobody has checked.
A claim's name leads to its stored result, with all figures, targets, settings and seeds."""


def stored_results() -> list[dict[str, Any]]:
    """All stored results, ordered by name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]


def is_older(stored: dict[str, Any]) -> bool:
    """Whether the code that the claim reaches has changed since, or nobody knows what it was."""
    measured_on = stored.get("source")
    return not measured_on or measured_on != source.fingerprint(stored["claim"])


def page(claims: Sequence[str]) -> str:
    """Return the page of claims in Markdown, one table for each theme; `claims` are all that there are."""
    results = stored_results()
    usual = Counter(stored["machine"] for stored in results).most_common(1)[0][0]
    failing = sum(not stored["holds"] for stored in results)
    parts = [
        _INTRODUCTION,
        f"{len(results)} claims have a stored result; {failing} of them do not hold. "
        f"The machine was {usual}, unless a row says otherwise.",
    ]
    for theme in (*THEMES, OTHER):
        group = [stored for stored in results if theme_of(stored["claim"]) == theme]
        parts += [f"## {theme}", _group(group, usual)] if group else []
    return "\n\n".join([*parts, *_without_result(claims, results)]) + "\n"


def figures() -> str:
    """Return the README's table: the first figures, and how many claims fail."""
    results = {stored["claim"]: stored for stored in stored_results()}
    failing = sum(not stored["holds"] for stored in results.values())
    lines = ["| measured | ours | compared with | on |", "|---|---|---|---|"]
    for name in FIRST:
        stored = results[name]
        what = f"[{row_of(name).measures}](benchmarks/results/{name}.json){'' if stored['holds'] else ' (**fails**)'}"
        lines.append(_line(what, *_cells(stored), _source(stored)))
    said = (
        f"{len(results)} claims are stored; {failing} do not hold. [The page of claims](docs/claims.md) lists them. "
        f"The picture shows [`{DRAWN}`](benchmarks/results/{DRAWN}.json), measured on {_source(results[DRAWN])}, "
        "with the simple baselines of the first two rows."
    )
    return "\n".join([*lines, "", said])


def rewrite(claims: Sequence[str]) -> None:
    """Write the page, and what stands between the markers in the README."""
    PAGE.write_text(page(claims), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(f"{before}{BEGIN}\n{figures()}\n{END}{after}", encoding="utf-8")


def is_current(claims: Sequence[str]) -> bool:
    """Whether the page and the README show exactly the stored results."""
    shown = f"{BEGIN}\n{figures()}\n{END}" in README.read_text(encoding="utf-8")
    return shown and PAGE.read_text(encoding="utf-8") == page(claims)


def _group(group: list[dict[str, Any]], usual_machine: str) -> str:
    """One theme's table, failures first."""
    lines = [_line("claim", "what is measured", "ours", "reference", "holds", "measured on"), "|---" * 6 + "|"]
    for stored in sorted(group, key=lambda stored: (stored["holds"], stored["claim"])):
        name = f"[`{stored['claim']}`](../benchmarks/results/{stored['claim']}.json)"
        holds = "yes" if stored["holds"] else "**no**"
        where = "" if stored["machine"] == usual_machine else f"; {stored['machine']}"
        lines.append(_line(name, row_of(stored["claim"]).measures, *_cells(stored), holds, _source(stored) + where))
    return "\n".join(lines)


def _source(stored: dict[str, Any]) -> str:
    return EARLIER if is_older(stored) else NOW


def _cells(stored: dict[str, Any]) -> tuple[str, str]:
    """Our figure and the reference, from what is stored."""
    row = row_of(stored["claim"])
    try:
        return row.ours(stored), row.reference(stored)
    except (KeyError, IndexError, TypeError) as wrong:
        raise ValueError(
            f"The row of {stored['claim']} in benchmarks/rows.py does not fit its result: {wrong!r}."
        ) from wrong


def _without_result(claims: Sequence[str], results: list[dict[str, Any]]) -> list[str]:
    """A list of claims that nobody has measured in full."""
    missing = sorted(set(claims) - {stored["claim"] for stored in results})
    listed = "\n".join(f"- `{name}`: {row_of(name).measures or 'see its script'}" for name in missing)
    return ["## Without a stored result", listed] if missing else []


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
