"""Claim: private steps of a CNN take ours no longer than Opacus with hooks or with ghost clipping, in one run.

A step is the same everywhere: gradients of each of 512 rows clipped to 1, Gaussian noise, DP-Adam (for Opacus: torch's
Adam inside its optimizer). Ours forms the clipped sum in float64, seals it, charges a session and draws from the
operating system's entropy; Opacus draws from torch's generator. Repeats of all are interleaved, and the ratio of
medians counts. On a GPU ours is timed alone; its figures are kept beside those of the study, and reported here.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from apportion.privacy import Budget
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table
from benchmarks.heavytail_synthetic import need_torch

BATCH, CLASSES, THREADS = 512, 330, 1
OURS, HOOKS, GHOST = "ours", "Opacus, hooks", "Opacus, ghost clipping"
ON_GPU = Path(__file__).parents[1] / "papers" / "heavy_tail" / "results" / "speed-on-gpu.json"
LEAST = 1.0  # times Opacus' samples a second


def measure(quick: bool) -> Outcome | Rehearsal:
    """Time one step of each, again and again."""
    torch = need_torch()
    if not quick and torch.cuda.is_available():
        return _on_gpu(torch)
    batch, repeats = (64, 2) if quick else (BATCH, 15)
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        seconds = _timed(_steps(batch, repeats + 2), repeats)
    finally:
        torch.set_num_threads(before)
    rates = {name: batch / statistics.median(found) for name, found in seconds.items()}
    ratios = {f"ours over {name}": rates[OURS] / rate for name, rate in rates.items() if name != OURS}
    print_table(["path", "samples a second"], list(rates.items()))
    if quick:  # a few small steps on a machine that may be busy
        return Rehearsal(ratios, {"not ten times slower than Opacus": min(ratios.values()) > 0.1})
    on_gpu = json.loads(ON_GPU.read_text(encoding="utf-8")) if ON_GPU.exists() else {}
    return Outcome(
        value={**{k: round(v, 3) for k, v in ratios.items()}, **{k: round(v, 1) for k, v in rates.items()}, **on_gpu},
        target=dict.fromkeys(ratios, f"at least {LEAST:g}"),
        holds=min(ratios.values()) >= LEAST,
        headline="Private steps of a CNN on one core, samples a second over Opacus': "
        + ", ".join(f"{ratio:.2f} ({name.split(', ')[1]})" for name, ratio in ratios.items()),
        settings={"batch": batch, "classes": CLASSES, "repeats": repeats, "threads": THREADS},
    )


def _timed(steps: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn:  # the first warms up
                found[name].append(time.perf_counter() - start)
    return found


def _rows(batch: int, device: str = "cpu") -> Any:
    import torch

    rng = np.random.default_rng(0)
    inputs = torch.as_tensor(rng.standard_normal((batch, 1, 28, 28)), dtype=torch.float32)
    return inputs.to(device), torch.as_tensor(rng.integers(0, CLASSES, batch)).to(device)


def _steps(batch: int, most: int) -> dict[str, Callable[[], None]]:
    return {OURS: _ours(batch, most, "cpu"), HOOKS: _opacus(batch, "hooks"), GHOST: _opacus(batch, "ghost")}


def _ours(batch: int, most: int, device: str) -> Callable[[], None]:
    from apportion.training import DPAdam, ExampleRows, ExampleSession, PrivateGradients
    from papers.heavy_tail.models import SmallCnn, loss_per_row

    module = SmallCnn(CLASSES).to(device)
    gradients = PrivateGradients(
        module, loss_per_row, ExampleRows(*_rows(batch, device)), ExampleSession(Budget(8.0, 1e-5)),
        steps=most, n_units=batch, rows_at_once=batch,
    )  # fmt: skip
    optimizer = DPAdam(module.parameters(), 1e-3)

    def step() -> None:
        gradients.fill(optimizer)
        optimizer.step()

    return step


def _opacus(batch: int, mode: str) -> Callable[[], None]:
    try:
        from opacus import PrivacyEngine
    except ImportError as missing:
        raise UnavailableError("opacus is not installed") from missing
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from papers.heavy_tail.models import SmallCnn

    inputs, targets = _rows(batch)
    module = SmallCnn(CLASSES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, optimizer, *rest = PrivacyEngine().make_private(
            module=module, optimizer=torch.optim.Adam(module.parameters(), 1e-3),
            data_loader=DataLoader(TensorDataset(inputs, targets), batch_size=batch),
            criterion=torch.nn.CrossEntropyLoss(),
            noise_multiplier=1.0, max_grad_norm=1.0, grad_sample_mode=mode, poisson_sampling=False,
        )  # fmt: skip
    loss = rest[0] if mode == "ghost" else torch.nn.CrossEntropyLoss()

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.zero_grad()
            loss(module(inputs), targets).backward()
            optimizer.step()

    return step


def _on_gpu(torch: Any) -> Outcome:
    """Ours alone."""
    rates, name = {}, torch.cuda.get_device_name()
    for batch in (512, 4096, 16384):
        seconds = _timed({OURS: _synchronised(_ours(batch, 22, "cuda"), torch)}, 20)[OURS]
        rates[f"ours on {name}, batch of {batch}"] = round(batch / statistics.median(seconds), 1)
    ON_GPU.parent.mkdir(exist_ok=True)
    ON_GPU.write_text(json.dumps(rates) + "\n", encoding="utf-8")
    print_table(["batch", "samples a second"], list(rates.items()))
    return Outcome(
        value=rates,
        target={"largest": "reported"},
        holds=True,
        headline=f"Private steps of a CNN on one GPU: up to {max(rates.values()):,.0f} samples a second",
        settings={"device": name, "classes": CLASSES, "repeats": 20},
    )


def _synchronised(step: Callable[[], None], torch: Any) -> Callable[[], None]:
    def both() -> None:
        step()
        torch.cuda.synchronize()

    return both
