"""Runs the paper's experiments: see README.md in this folder."""

from __future__ import annotations

import argparse
import sys

from benchmarks.__main__ import run as run_claim

CLAIMS = ("examples", "linear", "logistic")


def main(words: list[str] | None = None) -> int:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="papers.user_contributions", description=__doc__)
    parser.add_argument("name", choices=CLAIMS)
    parser.add_argument("--quick", action="store_true", help="the short form of a study, on generated data")
    arguments = parser.parse_args(words)
    return run_claim(f"contributions-{arguments.name}", quick=arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
