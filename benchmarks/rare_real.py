"""Claim: on real sets, at an equal head, rare classes are learned at least 1.3 times as well as by the paper's ways.

A linear model, 78 full batches, C = 1, ε = 8, on two sets (`papers.heavy_tail.rare_sets`): Barcode MNIST in small
(1,160 images, 50 classes of 60 to 8) and conditions of drug reviews (1,304 reviews, 47 classes of 236 to 8). The eleven
methods of `rare-classes` with its search, the same for all: the best accuracy in the rarest group among settings with
enough in the head, on two seeds; what was chosen runs on five others. Enough is what DP-GDM has in the head at its
lowest loss, on those two seeds. What a method learns of frequencies or means is released with noise and paid for.

The sets are also shown at ε = 28 and 2, for DP-GD, DP-GDM and the last two methods; and without clipping or noise,
which is the most that this model can reach in as many steps. Where the paper's optimizers have more than 1 / 1.3 of
that, no method can have 1.3 times as much. It takes some six minutes of one core.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apportion.privacy import gaussian
from benchmarks.claim import Outcome, Rehearsal, data_folder, need, print_table
from benchmarks.heavytail_synthetic import need_torch
from benchmarks.rare_classes import LEAST, SEEDS, compared

STEPS, EPSILON, OTHER_EPSILONS = 78, 8.0, (28.0, 2.0)
BARCODE, DRUGS = "Barcode MNIST", "drug conditions"
_SHOWN = ("head", "middle", "rarest", "effective rate", "constant", "settings tried")


def measure(quick: bool) -> Outcome | Rehearsal:
    """Search all methods on both sets, repeat, compare."""
    need_torch()
    with _one_thread():
        if quick:
            return _rehearsed()
        sets = {name: _at_each_epsilon(data) for name, data in _loaded().items()}
    ratios = {name: one[f"{EPSILON:g}"]["ratio"] for name, one in sets.items()}
    each = ", ".join(f"{name} {ratio:.2f} times" for name, ratio in ratios.items())
    return Outcome(
        value={"ratios": ratios, "by ε": sets},
        target={"ratio": f"at least {LEAST:g}"},
        holds=min(ratios.values()) >= LEAST,
        headline=f"rarest classes at no less in the head, ε = {EPSILON:g}, over the best of the paper's: {each}",
        settings={"seeds": list(SEEDS), "steps": STEPS, "clip norm": 1.0},
    )


def _loaded() -> dict[str, Any]:
    from papers.heavy_tail import rare_sets

    folder = data_folder()
    return {
        BARCODE: rare_sets.small_barcode(need(folder / "mnist" / "train.parquet", "MNIST").parent),
        DRUGS: rare_sets.drug_conditions(need(folder / "drugs" / "drugLibTrain_raw.tsv", "The set of drug reviews")),
    }


def _at_each_epsilon(data: Any) -> dict[str, Any]:
    """One set at the ε of the claim and at the others, and without privacy."""
    from papers.heavy_tail.rare import BASELINES, METHODS

    few = (*BASELINES[:2], *METHODS[-2:])
    found = {f"{epsilon:g}": _at(data, epsilon, METHODS if epsilon == EPSILON else few)
             for epsilon in (EPSILON, *OTHER_EPSILONS)}  # fmt: skip
    return {**found, "rarest without clipping or noise": _without_privacy(data)}


def _at(data: Any, epsilon: float, chosen: Any) -> dict[str, Any]:
    """One set at one ε: the head that is asked for, then the methods."""
    from papers.heavy_tail import rare, synthetic

    noise = math.sqrt(STEPS) / gaussian.mu_of(epsilon, synthetic.DELTA)
    problem = synthetic.Problem(1.0, noise, STEPS)
    head = rare.RareBench(problem, data, "cpu").head_at_lowest_loss(rare.TUNING_SEEDS)
    methods = rare.study(problem, data, "cpu", SEEDS, chosen, head=head)
    title = f"ε = {epsilon:g}, head {head:.3f}"
    print_table([title, *_SHOWN], [[name, *(str(one[n]) for n in _SHOWN)] for name, one in methods.items()])
    base, best, ratio = compared(methods, head)
    return {"baseline": base, "best": best, "ratio": round(ratio, 3), "head": round(head, 4), "methods": methods}


def _without_privacy(data: Any) -> float:
    """The most in the rarest group over rates, by momentum without clipping and next to no noise."""
    from papers.heavy_tail import rare, synthetic
    from papers.heavy_tail.search import Place

    longest = 2.0 * float((data.inputs**2).sum(1).max()) ** 0.5  # of any gradient
    bench = rare.RareBench(synthetic.Problem(longest, 1e-9, STEPS), data, "cpu")
    places = [Place(rate) for rate in range(-48, 33, 8)]
    return round(float(bench.at_the_end(rare.BASELINES[1], places, [0])[:, 0, -1].max()), 4)


def _rehearsed() -> Rehearsal:
    """Drawn digits in place of MNIST, fewer of them, two methods."""
    from papers.heavy_tail import rare, rare_sets, synthetic

    data = rare_sets.small_barcode(Path("nowhere"), sizes=((10, 30), (10, 4)))
    chosen, problem = (rare.METHODS[1], rare.METHODS[-1]), synthetic.Problem(1.0, 1.0, 30)
    methods = rare.study(problem, data, "cpu", SEEDS[:1], chosen, brief=True, head=0.5)
    base, best, ratio = compared(methods, 0.5)
    shown = {"methods have an accuracy in every group": all(0 <= one["rarest"] <= 1 for one in methods.values())}
    return Rehearsal({"baseline": base, "best": best, "ratio": round(ratio, 3)}, shown)


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
