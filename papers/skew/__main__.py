"""Runs the paper's experiments: see README.md in this folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from apportion.errors import ApportionError
from apportion.evaluation import run_study
from apportion.report.comparison import comparison_csv, comparison_page, tables_to_print
from benchmarks import skew_ml1m
from benchmarks.__main__ import run as run_claim
from benchmarks.claim import PARTIAL, print_table
from benchmarks.movielens import EPSILONS
from papers.skew import exponents, movielens
from papers.skew.protocols import PROTOCOLS

CLAIMS = ("synthetic", "theory", "weights", "ml1m", "planted")


def main(words: list[str] | None = None) -> int:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="papers.skew", description=__doc__)
    parser.add_argument("name", choices=[*CLAIMS, "exponents", *PROTOCOLS])
    parser.add_argument("--quick", action="store_true", help="the short form of a study, on generated data")
    parser.add_argument("--data", type=Path, help="folder of the benchmark's download")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 5.0, 20.0])
    parser.add_argument("--seeds", type=int, default=5, help="number of noise seeds")
    parser.add_argument("--held-out", type=float, help="users (or fraction of rows) for validation and for test each")
    parser.add_argument("--out", type=Path, default=Path("skew-results"))
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args(words)
    if arguments.name in CLAIMS:
        return run_claim(f"skew-{arguments.name}", quick=arguments.quick)
    if arguments.name == "exponents":
        return _run_exponents(arguments.processes)
    if arguments.data is None:
        parser.error(f"{arguments.name} needs --data, the folder of your own download")
    try:
        return _run_benchmark(arguments)
    except ApportionError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


def _run_exponents(processes: int) -> int:
    """Curves over the exponent on MovieLens 1M, from what the claim skew-ml1m tuned."""
    for kind in ("ratings", "clicks"):
        data, found = skew_ml1m.tuned(kind)
        by_epsilon = exponents.run(found, data, PARTIAL / f"skew-exponents-{kind}", EPSILONS, processes)
        text = exponents.to_markdown(kind, by_epsilon)
        (skew_ml1m.RESULTS / f"exponents-{kind}.md").write_text(text, encoding="utf-8")
        print(text)
    return 0


def _run_benchmark(arguments: argparse.Namespace) -> int:
    """Ours, adaptive and tail-sampled rows with plain settings, and the limit without privacy."""
    protocol = PROTOCOLS[arguments.name]
    data = protocol.load(arguments.data)
    seeds = list(range(arguments.seeds))
    study = protocol.study(movielens.untuned_rows(), arguments.epsilon, seeds, held_out=arguments.held_out)
    results = run_study(study, data, arguments.out, processes=arguments.processes, say=print)
    for table in tables_to_print(results):
        print(table.title)
        print_table(table.header, table.text_rows)
    for fit, reason in results.failures:
        print(f"Failed: {fit}: {reason}")
    (arguments.out / "table.csv").write_text(comparison_csv(results), encoding="utf-8")
    (arguments.out / "comparison.html").write_text(comparison_page(results), encoding="utf-8")
    print(f"Written to {arguments.out}: table.csv, comparison.html (internal: computed from raw data).")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
