"""Claim: next tokens by frequency group: tables of four optimizers on text, whatever they say.

Three tables. A small transformer trained from scratch on Penn Treebank, 500 steps on Poisson batches of 800 expected,
tuned by the search of the synthetic study in small and run on three seeds: on a GPU, or as stored where there is none.
A linear head on the frozen features of a transformer that was trained on the public files without privacy; low-rank
updates of a small pretrained language model on E2E texts, where its weights are at hand (`stories15M/llama2.data` in
the data folder, see the README of the reproduction): these two are tuned over 3 and 2 learning rates on one seed. A
unit is a sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claim import Outcome, data_folder
from benchmarks.heavytail_mnist import QUICK_RATES, deep_outcome, kept, outcome, stored_study
from benchmarks.heavytail_synthetic import need_torch, read_stored

SCRATCH = "text-from-scratch"  # where its trainings are stored
HEAD: dict[str, tuple[float, ...]] = {
    "DP-GD": (1.0, 5.0, 10.0), "DP-GDM": (0.1, 0.5, 1.0), "DP-Adam": (5e-3, 1e-2, 5e-2),
    "DP-AdamBC": (5e-3, 1e-2, 5e-2),
}  # fmt: skip
LOW_RANK: dict[str, tuple[float, ...]] = {
    "DP-GD": (0.05, 0.1), "DP-GDM": (0.005, 0.01), "DP-Adam": (1e-3, 5e-3), "DP-AdamBC": (1e-3, 5e-3),
}  # fmt: skip
WATCHED = {"text-low-rank": 200}  # of the sequences trained on, as many are scored


def measure(quick: bool) -> Outcome:
    """Train all, and print the tables."""
    torch = need_torch()
    from papers.heavy_tail import synthetic, trainings

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {name: study(quick) for name, study in _studies(quick).items()}
    finally:
        torch.set_num_threads(before)
    missing = {} if "low-rank" in found else {"low-rank": f"not measured: no weights at {_weights()}"}
    if not quick:
        synthetic.stored(found, "text")
    parts = {
        name: outcome(study, f"Text, {name}", {}, {"source": study["source"]}, trainings.at_the_end)
        for name, study in found.items()
    }
    if not quick:
        if torch.cuda.is_available():
            synthetic.stored(scratch_on_gpu(), SCRATCH)
        parts["from scratch"] = deep_outcome(stored_study(SCRATCH), "Text, from scratch", {})
    return Outcome(
        value={**{name: part.value for name, part in parts.items()}, **missing},
        target={"loss": "below its start, for every optimizer"},
        holds=all(part.holds for part in parts.values()),
        headline="; ".join(part.headline for part in parts.values()),
        settings={name: part.settings for name, part in parts.items()},
    )


def _weights() -> Path:
    return data_folder() / "stories15M" / "llama2.data"


def _studies(quick: bool) -> dict[str, Callable[[bool], dict[str, Any]]]:
    """Those that need no GPU; where the pretrained weights are not at hand, low-rank updates as they are stored."""
    if quick:
        return {"head": _head, "from scratch": _a_few_steps}
    if _weights().exists() and (data_folder() / "e2e" / "e2e-dataset.zip").exists():
        return {"head": _head, "low-rank": _low_rank}
    from papers.heavy_tail import synthetic

    stored = read_stored("text") if (synthetic.RESULTS / "text.json").exists() else {}
    return {"head": _head, **({"low-rank": lambda _: stored["low-rank"]} if "low-rank" in stored else {})}


def _sequences(quick: bool) -> Any:
    from papers.heavy_tail import text

    if quick:
        return text.generated(200, 8, 50, 0), text.generated(100, 8, 50, 1)
    return text.penn_treebank(data_folder() / "penn-treebank", 8000, vocabulary=1000)


def _compared(make: Any, inputs: Any, data: Any, regime: Any, name: str, quick: bool) -> dict[str, Any]:
    import torch

    from apportion.training import ExampleRows, Watch
    from papers.heavy_tail import trainings
    from papers.heavy_tail.models import loss_per_row, mean_over_positions

    targets = torch.as_tensor(data.targets)
    some = slice(WATCHED.get(name, 1000))
    watch = Watch(inputs[some], targets[some], data.groups[some], data.n_groups, scored_by=loss_per_row)
    found = trainings.compare(
        make, mean_over_positions, ExampleRows(inputs, targets), watch, regime, seeds=range(1), kept=kept(name, quick)
    )
    return {**found, "source": data.source}


def _regime(n: int, quick: bool, rates: dict[str, tuple[float, ...]], expected: int, steps: int) -> Any:
    from papers.heavy_tail.trainings import Regime

    if quick:
        rates, expected, steps = {name: some[:1] for name, some in rates.items()}, n, 4
    return Regime(1.0, 0.7, expected / n, steps, n, rates, looks=2)


def _a_few_steps(quick: bool) -> dict[str, Any]:
    """From scratch in short, through the library's own sessions; the full form is `scratch_on_gpu`."""
    import torch

    from papers.heavy_tail.models import SmallTransformer

    data, _ = _sequences(quick)
    regime = _regime(len(data.inputs), quick, QUICK_RATES, 96, 4)
    make = lambda: SmallTransformer(data.vocabulary, length=data.inputs.shape[1])  # noqa: E731
    return _compared(make, torch.as_tensor(data.inputs), data, regime, "text-scratch", quick)


def scratch_on_gpu() -> dict[str, Any]:
    """The transformer from scratch, tuned by the search of the synthetic study in small; three seeds."""
    import torch

    from papers.heavy_tail import deep, text
    from papers.heavy_tail.many_trainings import Task, token_scores
    from papers.heavy_tail.models import SmallTransformer

    torch.backends.cuda.matmul.allow_tf32 = True
    data, _ = _sequences(quick=False)
    module = SmallTransformer(data.vocabulary, length=data.inputs.shape[1]).to("cuda")
    start = {name: p.detach() for name, p in module.named_parameters()}
    inputs, targets = torch.as_tensor(data.inputs), torch.as_tensor(data.targets)
    task = Task(token_scores(module), start, inputs, targets, data.groups, data.n_groups, 1000)
    plan = deep.Plan(1.0, 1.34, 0.1, 500, seeds=(1, 2, 3), start_constants=(0,), distances=(8, 4), rows_at_once=900)
    names = [f"≥ {edge:,}" for edge in text.EDGES] + ["rarer"]
    return {
        **deep.study(task, plan, "cuda"),
        "group names": names[: data.n_groups],
        "source": data.source,
        "device": torch.cuda.get_device_name(),
    }


def _head(quick: bool) -> dict[str, Any]:
    """A linear head on features that a transformer learned from public text."""
    import torch
    from torch import nn

    from papers.heavy_tail.models import SmallTransformer, mean_over_positions

    data, public = _sequences(quick)
    body = SmallTransformer(data.vocabulary, length=data.inputs.shape[1])
    optimizer = torch.optim.Adam(body.parameters(), 3e-3)
    inputs, targets = torch.as_tensor(public.inputs), torch.as_tensor(public.targets)
    rng = np.random.default_rng(0)
    for _ in range(4 if quick else 300):
        rows = torch.as_tensor(rng.integers(0, len(inputs), 64))
        optimizer.zero_grad()
        mean_over_positions(body(inputs[rows]), targets[rows]).mean().backward()
        optimizer.step()
    with torch.no_grad():
        features = torch.cat([body.features(part) for part in torch.as_tensor(data.inputs).split(500)])

    def make() -> Any:
        head = nn.Sequential(nn.Linear(features.shape[2], data.vocabulary), _Turned())
        nn.init.zeros_(head[0].weight)
        nn.init.zeros_(head[0].bias)
        return head

    return _compared(make, features, data, _regime(len(features), quick, HEAD, 128, 100), "text-head", quick)


def _Turned() -> Any:  # noqa: N802 - makes a module
    from torch import nn

    class Turned(nn.Module):  # type: ignore[misc]
        def forward(self, scores: Any) -> Any:
            return scores.mT

    return Turned()


def _low_rank(quick: bool) -> dict[str, Any]:
    import torch

    from papers.heavy_tail import llama, text

    checkpoint = llama.read_checkpoint(_weights())
    rows = llama.restaurant_texts(data_folder() / "e2e" / "e2e-dataset.zip", llama.Tokenizer(checkpoint), 3000, 32)
    scored = np.unique(rows[:, 1:])  # the list of tokens counts as public
    data = text.grouped(rows, len(checkpoint.tokens), "E2E")
    places = np.searchsorted(scored, data.targets)
    known = text.Sequences(data.inputs, places, data.groups, data.n_groups, len(scored), data.source)
    make = lambda: llama.LowRankLlama(checkpoint, scored)  # noqa: E731
    regime = _regime(len(rows), quick, LOW_RANK, 24, 15)
    return _compared(make, torch.as_tensor(data.inputs), known, regime, "text-low-rank", quick)
