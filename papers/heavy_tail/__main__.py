"""Runs the paper's experiments: see README.md in this folder."""

from __future__ import annotations

import argparse
import sys

from benchmarks.__main__ import run as run_claim

CLAIMS = ("synthetic", "pairs", "mnist", "text")


def main(words: list[str] | None = None) -> int:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="papers.heavy_tail", description=__doc__)
    parser.add_argument("name", choices=[*CLAIMS, "gradients", "figures"])
    parser.add_argument("--quick", action="store_true", help="the short form of a study, on small data")
    arguments = parser.parse_args(words)
    if arguments.name in CLAIMS:
        return run_claim(f"heavytail-{arguments.name}", quick=arguments.quick)
    if arguments.name == "gradients":
        return _gradients()
    from papers.heavy_tail import figures, tables

    for path in [*figures.draw_all(), tables.write_all()]:
        print(path)
    return 0


def _gradients() -> int:
    from papers.heavy_tail import alignment, gradients, synthetic

    looks = gradients.looked()
    text = gradients.table(looks)
    synthetic.RESULTS.mkdir(exist_ok=True)
    (synthetic.RESULTS / "gradients.md").write_text(text, encoding="utf-8")
    (synthetic.RESULTS / "alignment.svg").write_text(alignment.picture(looks), encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
