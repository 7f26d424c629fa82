"""Claim: at equal accuracy in the head, rare classes are learned at least 1.3 times as well as by the paper's ways.

The linear model on a synthetic long-tailed set of the paper's kind (640 rows, 31 classes of 128 to 8 rows, C = 1, noise
5, ε = 28 in all). Eleven methods, one search (`papers.heavy_tail.rare`): the best accuracy in the rarest group among
settings with at least 88 % in the head, on two seeds; what was chosen runs on five others. What a method learns of
frequencies or means is released with noise and paid for. It takes some ten minutes of one core. The paper's own set,
Barcode MNIST and other sets are not part of it.
"""

from __future__ import annotations

from typing import Any

from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.heavytail_synthetic import need_torch

SEEDS = range(1, 6)
LEAST = 1.3


def measure(quick: bool) -> Outcome | Rehearsal:
    """Search all methods, repeat, compare."""
    found = _study(quick)
    methods: dict[str, Any] = found["methods"]
    names = ["head", "middle", "rarest", "effective rate", "constant", "settings tried"]
    print_table(["method", *names], [[name, *(str(one[n]) for n in names)] for name, one in methods.items()])
    base, best, ratio = compared(methods, found["head"])
    value = {"baseline": base, "best": best, "ratio": round(ratio, 3)}
    if quick:
        return Rehearsal(value, {"a method is ahead of the paper's optimizers in the rarest classes": ratio > 1})
    return Outcome(
        value={**value, "methods": methods},
        target={"ratio": f"at least {LEAST:g}"},
        holds=ratio >= LEAST,
        headline=f"rarest classes at no less in the head: {best} {100 * methods[best]['rarest']:.1f} %, {base} "
        f"{100 * methods[base]['rarest']:.1f} %: {ratio:.2f} times",
        settings={"seeds": list(SEEDS), "steps": found["steps"], "head": found["head"], "noise multiplier": 5.0},
    )


def compared(methods: dict[str, Any], head: float) -> tuple[str, str, float]:
    """The best of the paper's optimizers, the best other method with no less in the head than it, and their ratio.

    A method whose head fell below what was asked by more than a point on the fresh seeds does not count.
    """
    from papers.heavy_tail.rare import BASELINES

    papers = [method.name for method in BASELINES if method.name in methods]
    good = {name: one for name, one in methods.items() if one["head"] >= head - 0.01 or name in papers}
    base = max(papers, key=lambda name: float(methods[name]["rarest"]))
    rivals = [name for name in good if name not in papers and good[name]["head"] >= methods[base]["head"] - 0.01]
    best = max(rivals, key=lambda name: float(methods[name]["rarest"]), default=base)
    return base, best, float(methods[best]["rarest"]) / max(float(methods[base]["rarest"]), 1e-9)


def _study(quick: bool) -> dict[str, Any]:
    """All methods on one core; in the quick form a smaller set, one seed for tuning and a coarse search."""
    torch = need_torch()
    from papers.heavy_tail import rare, synthetic
    from papers.heavy_tail.long_tail import long_tail

    problem = synthetic.Problem(1.0, 2.0, 40) if quick else synthetic.Problem(1.0, 5.0, synthetic.steps_for(5.0))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seeds = SEEDS[:2] if quick else SEEDS
        chosen = (rare.METHODS[1], rare.METHODS[-1]) if quick else rare.METHODS
        methods = rare.study(problem, long_tail(5, 4 if quick else 8), "cpu", seeds, chosen, brief=quick)
    finally:
        torch.set_num_threads(threads)
    return {"methods": methods, "head": rare.HEAD, "steps": problem.steps}
