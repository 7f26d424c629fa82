"""The README's table of figures, generated from the stored results and never typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import source
from benchmarks.claim import RESULTS

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- figures: begin, written by `make table` -->", "<!-- figures: end -->"
EARLIER = ", measured on an earlier source"


def render() -> str:
    """Return the table in Markdown, one row per stored result."""
    rows = ["| claim | measured | holds | machine |", "|---|---|---|---|"]
    for path in sorted(RESULTS.glob("*.json")):
        stored = json.loads(path.read_text(encoding="utf-8"))
        holds = ("yes" if stored["holds"] else "**no**") + (EARLIER if is_older(stored) else "")
        rows.append(f"| `{stored['claim']}` | {stored['headline']} | {holds} | {stored['machine']} |")
    return "\n".join(rows)


def is_older(stored: dict[str, Any]) -> bool:
    """Whether the code that the claim reaches has changed since, or nobody knows what it was."""
    measured_on = stored.get("source")
    return not measured_on or measured_on != source.fingerprint(stored["claim"])


def rewrite() -> None:
    """Replace what stands between the markers in the README."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(f"{before}{BEGIN}\n{render()}\n{END}{after}", encoding="utf-8")


def is_current() -> bool:
    """Whether the README shows exactly the stored results."""
    return f"{BEGIN}\n{render()}\n{END}" in README.read_text(encoding="utf-8")
