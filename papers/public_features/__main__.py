"""Runs the paper's experiments: see README.md in this folder."""

from __future__ import annotations

import argparse
import sys

from benchmarks.__main__ import run as run_claim
from benchmarks.claim import print_table
from papers.public_features import cost

CLAIMS = ("scaling", "convex", "time", "sparse", "ml1m")


def main(words: list[str] | None = None) -> int:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="papers.public_features", description=__doc__)
    parser.add_argument("name", choices=[*CLAIMS, "cost"])
    parser.add_argument("--quick", action="store_true", help="the short form of a study, on generated data")
    arguments = parser.parse_args(words)
    if arguments.name == "cost":
        print_table(["encoder", "batch size", "1 epoch", "10", "100", "1000"], cost.table_of_ratios())
        return 0
    return run_claim(f"features-{arguments.name}", quick=arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
