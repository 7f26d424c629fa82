"""Claim: Barcode MNIST by frequency group: a table of four optimizers, whatever it says.

330 classes of 1,177 to 10 images, a CNN of two convolutions, 1,500 steps on Poisson batches of 1,188 expected, C = 1
and noise multiplier 1.2. Every optimizer is tuned by the search of the synthetic study in small, on one seed, and runs
again on five. The claim is the table; what is to hold is that every optimizer learned something within its ε. The
trainings need a GPU; on a machine without one the claim takes those that are stored, and accounts for them. The quick
form trains a few steps on drawn digits, through the library's own sessions. From MNIST where it is at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.claim import PARTIAL, Outcome, UnavailableError, data_folder, print_table
from benchmarks.heavytail_synthetic import need_torch, read_stored

QUICK_RATES: dict[str, tuple[float, ...]] = {
    "DP-GD": (1.0,),
    "DP-GDM": (0.1,),
    "DP-Adam": (1e-3,),
    "DP-AdamBC": (1e-3,),
}
DELTA = 1e-5
PAPER = {  # training accuracy in the head and in the rarest group
    "DP-GD": (0.976, 0.066), "DP-GDM": (0.917, 0.041), "DP-Adam": (0.974, 0.063), "DP-AdamBC": (0.965, 0.115),
}  # fmt: skip


def measure(quick: bool) -> Outcome:
    """Train all, and print the table."""
    torch = need_torch()
    if quick:
        return _quick(torch)
    from papers.heavy_tail import synthetic

    if torch.cuda.is_available():
        synthetic.stored(trained_on_gpu(), "mnist")
    return deep_outcome(stored_study("mnist"), "Barcode MNIST", PAPER)


def trained_on_gpu() -> dict[str, Any]:
    """All trainings, without what they cost: that needs no GPU."""
    import torch

    from papers.heavy_tail import barcode, deep
    from papers.heavy_tail.many_trainings import Task, cnn_scores
    from papers.heavy_tail.models import SmallCnn

    torch.backends.cuda.matmul.allow_tf32 = True
    data = barcode.barcode_digits(data_folder() / "mnist")
    start = {name: p.detach() for name, p in SmallCnn(data.n_classes).named_parameters()}
    inputs, targets = torch.as_tensor(data.pixels), torch.as_tensor(data.labels)
    task = Task(cnn_scores, start, inputs, targets, data.groups, len(barcode.SIZES))
    plan = deep.Plan(1.0, 1.2, 0.05, 1500, start_constants=(0,), rows_at_once=1300)
    return {
        **deep.study(task, plan, "cuda"),
        "group names": [f"classes of {size}" for _, size in barcode.SIZES],
        "source": data.source,
        "device": torch.cuda.get_device_name(),
    }


def stored_study(name: str) -> dict[str, Any]:
    """A study that ran on a GPU, with the ε of its looks; none is computed where dp_accounting is missing."""
    from apportion.privacy import accounting
    from papers.heavy_tail import synthetic

    found = read_stored(name)
    if "epsilon" not in found:
        plan = found["plan"]
        try:
            found["epsilon"] = [
                round(accounting.epsilon_of([_event(plan, steps)], DELTA, 1e-3), 4) if steps else 0.0
                for steps in found["steps"]
            ]
        except ImportError as missing:
            raise UnavailableError(f"trainings are stored, and cannot be accounted for here: {missing}") from missing
        synthetic.stored(found, name)
    return found


def _event(plan: dict[str, Any], steps: int) -> Any:
    from apportion.privacy import accounting

    return accounting.SampledGaussian(plan["noise_multiplier"], plan["sampling"], steps)


def deep_outcome(found: dict[str, Any], title: str, paper: Any) -> Outcome:
    """The table of a study on a GPU as a claim: every optimizer learned something, within the ε that is stated."""
    from papers.heavy_tail import deep

    value: dict[str, Any] = {"epsilon": found["epsilon"][-1]}
    rows = []
    for name, optimizer in found["optimizers"].items():
        for criterion in deep.CRITERIA:
            held = {
                "loss": deep.at_the_end(found, name, criterion, "loss"),
                "accuracy by group": deep.at_the_end(found, name, criterion, "group accuracy"),
                "its deviation over seeds": deep.spread_at_the_end(found, name, criterion, "group accuracy"),
                "rarest by seed": deep.by_seed_at_the_end(found, name, criterion),
                "loss by group": deep.at_the_end(found, name, criterion, "group loss"),
                **{key: optimizer[criterion][key] for key in ("effective rate", "lr", "constant")},
            }
            value[f"{name}, by {criterion}"] = held
            rows.append([f"{name}, by {criterion}", held["effective rate"], held["loss"], *held["accuracy by group"]])
    print(f"{title}: accuracy by frequency group, most frequent first; epsilon = {found['epsilon'][-1]:g}")
    print_table(["optimizer", "effective rate", "loss", *found["group names"]], rows)
    starts = {name: optimizer["loss"]["runs"][0]["loss"][0] for name, optimizer in found["optimizers"].items()}
    rarest = {name: value[f"{name}, by loss"]["accuracy by group"][-1] for name in starts}
    return Outcome(
        value=value,
        target={"loss": "below its start, for every optimizer", "paper, head and rarest": paper},
        holds=all(starts[name] > value[f"{name}, by loss"]["loss"] for name in starts),
        headline=f"{title} at ε = {found['epsilon'][-1]:.2g}, accuracy in the rarest group: "
        + ", ".join(f"{name} {100 * accuracy:.1f} %" for name, accuracy in rarest.items()),
        settings={
            **found["plan"],
            "delta": DELTA,
            "rows": found["n rows"],
            "tuning": "on the training data, not covered by epsilon",
            "settings tried": {name: len(optimizer["tried"]) for name, optimizer in found["optimizers"].items()},
            "best is inside what was tried": {n: optimizer["resolved"] for n, optimizer in found["optimizers"].items()},
            "source": found["source"],
            "device": found["device"],
        },
    )


def _quick(torch: Any) -> Outcome:
    from papers.heavy_tail import trainings

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = _a_few_steps(torch)
    finally:
        torch.set_num_threads(before)
    return outcome(found, "Barcode MNIST", PAPER, {"source": found["source"]}, trainings.at_the_end)


def _a_few_steps(torch: Any) -> dict[str, Any]:
    from apportion.training import ExampleRows, Watch
    from papers.heavy_tail import barcode, trainings
    from papers.heavy_tail.models import SmallCnn, loss_per_row

    sizes = ((10, 20), (4, 5), (10, 2))
    data = barcode.barcode_digits(data_folder() / "drawn", sizes)
    inputs, targets = torch.as_tensor(data.pixels), torch.as_tensor(data.labels)
    regime = trainings.Regime(1.0, 0.7, 1.0, 3, len(targets), QUICK_RATES, 1)
    found = trainings.compare(
        lambda: SmallCnn(data.n_classes), loss_per_row, ExampleRows(inputs, targets),
        Watch(inputs, targets, data.groups, len(sizes)), regime, seeds=range(1),
    )  # fmt: skip
    return {**found, "source": data.source}


def kept(name: str, quick: bool) -> Path | None:
    """Where the runs of a long claim are kept as they end."""
    return None if quick else PARTIAL / f"heavytail-{name}.jsonl"


def outcome(found: dict[str, Any], title: str, paper: Any, further: dict[str, Any], at_the_end: Any) -> Outcome:
    """The table as a claim: every optimizer learned something, within the ε that is stated."""
    optimizers = found["optimizers"]
    accuracy = {name: at_the_end(found, name, "group accuracy") for name in optimizers}
    losses = {name: at_the_end(found, name, "group loss") for name in optimizers}
    overall = {name: at_the_end(found, name, "loss") for name in optimizers}
    rows = [[name, found["optimizers"][name]["rate"], overall[name], *accuracy[name]] for name in optimizers]
    print(f"{title}: accuracy by frequency group, most frequent first; epsilon = {found['epsilon'][-1]:g}")
    print_table(["optimizer", "rate", "loss", *(f"group {k}" for k in range(len(rows[0]) - 3))], rows)
    learned = {name: found["optimizers"][name]["runs"][0]["loss"][0] - overall[name] for name in optimizers}
    return Outcome(
        value={
            "accuracy by group": accuracy,
            "loss by group": losses,
            "loss": overall,
            "best rarest accuracy of any rate": {
                name: run["best rarest accuracy of any rate"] for name, run in optimizers.items()
            },
            "epsilon": found["epsilon"][-1],
        },
        target={"loss": "below its start, for every optimizer", "paper, head and rarest": paper},
        holds=min(learned.values()) > 0,
        headline=f"{title} at ε = {found['epsilon'][-1]:.2g}, accuracy in the rarest group: "
        + ", ".join(f"{name} {100 * accuracy[name][-1]:.1f} %" for name in optimizers),
        settings={**found["regime"], "delta": 1e-5, **further},
    )
