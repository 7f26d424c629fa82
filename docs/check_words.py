"""Checks the prose of all pages against our list of words, docs/words.txt. Code and quotations of code are left out."""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
GENERATED = {DOCS / name for name in ("_build", "reference", "gallery")}


def rules() -> list[tuple[re.Pattern[str], str]]:
    """Patterns of words, each with what to write instead."""
    lines = [
        line for line in (DOCS / "words.txt").read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")
    ]
    pairs = [line.split(" = ") for line in lines]
    return [(re.compile(rf"(?<!\w)(?:{word})(?!\w)", re.IGNORECASE), instead) for word, instead in pairs]


def pages() -> list[Path]:
    """Every page that somebody wrote."""
    found = [*ROOT.glob("*.md"), *(ROOT / "papers").glob("*/README.md"), *DOCS.rglob("*.md")]
    return sorted(page for page in found if not GENERATED & set(page.parents))


def prose(text: str) -> str:
    """The text with code, links' targets and formulas blanked; lines stay where they are."""
    kept = re.sub(r"^```.*?^```$", lambda block: "\n" * block.group().count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|\]\([^)\n]*\)|\$[^$\n]*\$", " ", kept)


def problems(text: str) -> list[str]:
    """What is wrong with a text, line by line."""
    return [
        f"{number}: {found.group()!r}: {instead}"
        for number, line in enumerate(prose(text).splitlines(), 1)
        for pattern, instead in rules()
        for found in pattern.finditer(line)
    ]


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    found = [
        f"{page.relative_to(ROOT)}:{problem}"
        for page in pages()
        for problem in problems(page.read_text(encoding="utf-8"))
    ]
    print("\n".join(found) or "No word of docs/words.txt is used.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
