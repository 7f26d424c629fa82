"""Claim: on the synthetic long-tailed set DP-AdamBC is the best on the rarest classes, and pays for it in the head.

The linear model of the heavy-tail paper's section 3 (8192 rows, 255 classes of 1024 to 8 rows, C = 1, noise multiplier
10, full batches up to ε = 28). Every optimizer is tuned by the same search, from coarse to fine, on three seeds; what
was chosen runs again on five others. Beside the claim, `front` says what each optimizer can reach however it is tuned.
The full form needs a GPU, and NumPy and torch are all it needs there (`PYTHONPATH=src python -m benchmarks
heavytail-synthetic`); on a machine without one it takes the runs that are stored. The quick form is a small set on the
processor.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table

GROUPS = {"head": 0, "middle": 3, "rarest": -1}
PAPER = {
    "DP-GD": {"head": 1.0, "middle": 0.0, "rarest": 0.005, "rarest loss": 6.7},
    "DP-GDM": {"head": 0.923, "middle": 0.41, "rarest": 0.025, "rarest loss": 4.9},
    "DP-Adam": {"head": 0.93, "middle": 0.36, "rarest": 0.015, "rarest loss": 5.1},
    "DP-AdamBC": {"head": 0.875, "middle": 0.47, "rarest": 0.095, "rarest loss": 4.8},
}
SEEDS = range(1, 6)
LOSSES = (2.6, 2.7, 2.8, 3.0, 3.5)  # at which the optimizers' reach is compared


def measure(quick: bool) -> Outcome | Rehearsal:
    """Tune, repeat, compare."""
    study = small_study(1.0) if quick else full_study(1.0, 10.0, "synthetic")
    print_study(study)
    checks = orders(study)
    value = {**figures(study), "orders": checks, "seeds with AdamBC ahead of GDM": seeds_ahead(study), **_reach(study)}
    if quick:  # on so small a set the optimizers with memory are alike; gradient descent is behind them
        return Rehearsal(value, {"rarest accuracy: AdamBC > GD": beats_descent(study)})
    rarest = {name: _of(study, name, "loss")["group accuracy"][-1] for name in study["optimizers"]}
    text = ", ".join(f"{name} {100 * accuracy:.1f} %" for name, accuracy in rarest.items())
    return Outcome(
        value=value,
        target={**dict.fromkeys(checks, True), "paper": PAPER},
        holds=all(checks.values()),
        headline=f"Accuracy on the rarest of 255 classes at the lowest training loss: {text}",
        settings=settings(study),
    )


def full_study(clip_norm: float, noise_multiplier: float, name: str, *, with_front: bool = True) -> dict[str, Any]:
    """The paper's set on a GPU, its curves stored; where there is none, what was stored."""
    torch = need_torch()
    from papers.heavy_tail import front, synthetic

    if not torch.cuda.is_available():
        return read_stored(name)
    torch.backends.cuda.matmul.allow_tf32 = True
    problem = synthetic.Problem(clip_norm, noise_multiplier, synthetic.steps_for(noise_multiplier))
    data = synthetic.full_set()
    found = {**synthetic.study(problem, data, "cuda", seeds=SEEDS), "device": torch.cuda.get_device_name()}
    synthetic.stored(found, name)
    if with_front:
        found["front"] = front.sweep(synthetic.Bench(problem, data, "cuda"), SEEDS)
        found["reach"] = front.reaches(found["front"], LOSSES)
        synthetic.stored(found, name)
    return found


def read_stored(name: str) -> dict[str, Any]:
    """A study that ran on a GPU elsewhere."""
    from papers.heavy_tail import synthetic

    path = synthetic.RESULTS / f"{name}.json"
    if not path.exists():
        raise UnavailableError(f"there is no GPU on this machine, and no stored runs at {path}")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def small_study(clip_norm: float) -> dict[str, Any]:
    """31 classes of 64 to 4 rows on the processor, three seeds."""
    torch = need_torch()
    from papers.heavy_tail import synthetic
    from papers.heavy_tail.long_tail import long_tail

    problem = synthetic.Problem(clip_norm, 2.0, 80)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = synthetic.study(problem, long_tail(5, 4), "cpu", seeds=range(1, 4), brief=True)
    finally:
        torch.set_num_threads(threads)
    return {**found, "device": "processor"}


def need_torch() -> Any:
    """Torch, or the reason why there is nothing to measure."""
    try:
        import torch
    except ImportError as missing:
        raise UnavailableError("torch is not installed") from missing
    return torch


def orders(study: dict[str, Any]) -> dict[str, bool]:
    """Which of the paper's orders hold, each optimizer at its lowest training loss."""
    at = {name: _of(study, name, "loss") for name in study["optimizers"]}
    middle = min(GROUPS["middle"], len(study["class sizes"]) - 2)
    bc, gdm, gd = (at[name] for name in ("DP-AdamBC", "DP-GDM", "DP-GD"))
    return {
        "rarest accuracy: AdamBC > GDM > GD": _falling(*(run["group accuracy"][-1] for run in (bc, gdm, gd))),
        "rarest loss: AdamBC < GDM < GD": _falling(*(run["group loss"][-1] for run in (gd, gdm, bc))),
        "middle accuracy: AdamBC > GDM > GD": _falling(*(run["group accuracy"][middle] for run in (bc, gdm, gd))),
        "head accuracy: GD > GDM > AdamBC": _falling(*(run["group accuracy"][0] for run in (gd, gdm, bc))),
    }


def beats_descent(study: dict[str, Any]) -> bool:
    """Whether DP-AdamBC is better on the rarest classes than DP-GD, each at its lowest training loss."""
    bc, gd = (_of(study, name, "loss")["group accuracy"][-1] for name in ("DP-AdamBC", "DP-GD"))
    return bool(bc > gd)


def seeds_ahead(study: dict[str, Any]) -> str:
    """On how many seeds DP-AdamBC is ahead of DP-GDM in the rarest group, each at its lowest training loss."""
    both = zip(*(_of(study, name, "loss")["rarest accuracy by seed"] for name in ("DP-AdamBC", "DP-GDM")), strict=True)
    ahead = [bc > gdm for bc, gdm in both]
    return f"{sum(ahead)} of {len(ahead)}"


def figures(study: dict[str, Any]) -> dict[str, Any]:
    """Means over seeds, by optimizer and criterion, for the stored result."""
    middle = min(GROUPS["middle"], len(study["class sizes"]) - 2)
    return {
        f"{name}, by {criterion}": {
            "loss": round(sum(run["loss"]) / len(run["loss"]), 4),
            "head": run["group accuracy"][0],
            "middle": run["group accuracy"][middle],
            "rarest": run["group accuracy"][-1],
            "rarest by seed": run["rarest accuracy by seed"],
            "rarest loss": run["group loss"][-1],
            "effective rate": run["effective rate"],
            "lr": run["lr"],
            "constant": run["constant"],
        }
        for name in study["optimizers"]
        for criterion in ("loss", "rarest")
        for run in [_of(study, name, criterion)]
    }


def settings(study: dict[str, Any]) -> dict[str, Any]:
    """Everything needed to repeat it."""
    optimizers = study["optimizers"]
    return {
        "problem": study["problem"],
        "steps": study["steps"][-1],
        "epsilon at the end, delta = 1e-5": study["epsilon"][-1],
        "tuning": f"on the training data, not covered by epsilon; seeds {study['tuning seeds']}, coarse to fine",
        "settings tried": {name: len(found["tried"]) for name, found in optimizers.items()},
        "best is inside what was tried": {name: found["resolved"] for name, found in optimizers.items()},
        "seeds": f"{study['seeds'][0]} to {study['seeds'][-1]}",
        "device": study["device"],
        "arithmetic": "float32, products in TF32 on a GPU",
    }


def _reach(study: dict[str, Any]) -> dict[str, Any]:
    """Rarest accuracy that each optimizer can reach at a training loss, by seed; measured in full only."""
    return {"rarest accuracy in reach at a loss, by seed": study["reach"]} if "reach" in study else {}


def print_study(study: dict[str, Any]) -> None:
    """One line for each optimizer and criterion."""
    rows = [
        [name, *(f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in run.items() if k != "rarest by seed")]
        for name, run in figures(study).items()
    ]
    print(study["problem"])
    header = ["optimizer", "loss", "head", "middle", "rarest", "rarest loss", "effective rate", "lr", "constant"]
    print_table(header, rows)


def _of(study: dict[str, Any], optimizer: str, criterion: str) -> dict[str, Any]:
    found: dict[str, Any] = study["optimizers"][optimizer][criterion]
    return found


def _falling(*values: float) -> bool:
    return all(one > other for one, other in itertools.pairwise(values))
