"""Runs the paper's experiments: see README.md in this folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.__main__ import run as run_claim
from benchmarks.claim import print_table
from papers.public_features import cast, cost, figures, tables

CLAIMS = ("scaling", "convex", "time", "sparse", "ml1m", "cold")


def main(words: list[str] | None = None) -> int:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="papers.public_features", description=__doc__)
    parser.add_argument("name", choices=[*CLAIMS, "cast", "cost", "tables", "figures"])
    parser.add_argument("--quick", action="store_true", help="the short form of a study, on generated data")
    parser.add_argument("--folder", type=Path, default=tables.HERE, help="where tables and figures go")
    arguments = parser.parse_args(words)
    if arguments.name == "cast":
        return cast.main(["--quick"] if arguments.quick else [])
    if arguments.name == "cost":
        print_table(["encoder", "batch size", "1 epoch", "10", "100", "1000"], cost.table_of_ratios())
        return 0
    if arguments.name in ("tables", "figures"):
        for path in (tables if arguments.name == "tables" else figures).write(arguments.folder):
            print(path)
        return 0
    return run_claim(f"features-{arguments.name}", quick=arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
