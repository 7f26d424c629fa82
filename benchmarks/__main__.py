"""Runs claims: `python -m benchmarks NAME [--quick]`, `--all`, or `--table` for what the documentation shows."""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks import claim, picture, table

CLAIMS = (
    "replay",
    "replay-at-size",
    "engines-agree",
    "spark-faults",
    "spark-vs-als",
    "ml1m-ratings",
    "ml1m-ratings-tuned",
    "ml1m-clicks",
    "topk-ratings",
    "items-private",
    "keys-recall",
    "adaptive-floor",
    "adaptive-floor-clicks",
    "adaptive-floor-features",
    "adaptive-gain",
    "price-of-privacy",
    "epoch-vs-peers",
    "round-vs-implicit",
    "recommend-speed",
    "ratings-fit-speed",
    "gpu-fit",
    "linear-growth",
    "read-speed",
    "memory",
    "disk-scale",
    "skew-synthetic",
    "skew-theory",
    "skew-weights",
    "skew-planted",
    "skew-ml1m",
    "contributions-examples",
    "contributions-linear",
    "contributions-logistic",
    "contributions-threshold",
    "contributions-coverage",
    "contributions-audit",
    "mean-vs-peers",
    "quantile-vs-peers",
    "coverage-real",
    "groupby-error",
    "groupby-scale",
    "regress-real",
    "erm-floor",
    "gwa-scale",
    "ledger-crash",
    "resume",
    "ids-fuzz",
    "first-hour",
    "planted-bugs",
    "noise-independence",
    "bytes-equal",
    "mutants",
    "canaries-on-engines",
    "audit-tight",
    "audit-published",
    "exact-mode",
    "wishart-broken",
    "wishart-profile",
    "protected-tradeoff",
    "protected-em",
    "protected-degrades",
    "protected-schedule",
    "protected-scale",
    "parties-floor",
    "features-ml1m",
    "features-prior",
    "features-scaling",
    "features-time",
    "features-sparse",
    "features-convex",
    "features-cold",
    "heavytail-synthetic",
    "heavytail-pairs",
    "heavytail-mnist",
    "heavytail-text",
    "rare-classes",
    "rare-real",
    "optim-exact",
    "optim-unbiased",
    "optim-accounting",
    "optim-speed",
    "trainer-fits",
    "trainer-speed",
    "house",
    "explorer-browser",
    "federated-agrees",
    "federated-masks",
    "federated-dropouts",
    "federated-liars",
    "federated-noise",
    "federated-scale",
    "exports",
    "serve-load",
    "registry",
    "docs-runs",
)


def run(name: str, *, quick: bool) -> int:
    """Run one claim by name."""
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    return claim.run(name, module.measure, quick=quick)


def main() -> int:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=CLAIMS)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--quick", action="store_true", help="at most ten seconds; nothing is stored")
    parser.add_argument(
        "--table", action="store_true", help="write docs/claims.md, and the figures and the picture of README.md"
    )
    arguments = parser.parse_args()
    if arguments.table:
        table.rewrite(CLAIMS)
        picture.rewrite()
        return 0
    names = CLAIMS if arguments.all else [arguments.name] if arguments.name else []
    if not names:
        parser.error(f"name a claim, one of {', '.join(CLAIMS)}")
    codes = [run(name, quick=arguments.quick) for name in names]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
