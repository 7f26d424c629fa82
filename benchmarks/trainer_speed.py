"""Claim: private steps take ours no longer than Opacus, and steps for users at most half as long, in one run.

A step is the same everywhere: gradients clipped to 1, Gaussian noise, plain descent, on the same rows. Ours forms the
clipped sum in float64, seals it, charges a session and draws from the operating system's entropy; Opacus draws from
torch's generator, with hooks or with ghost (fast gradient) clipping. Opacus has no units of several rows: for users
ours is compared with its steps for rows. A step without privacy is timed beside them: no private step with the same
pass can take less, so where Opacus takes less than twice as long, twice its speed is out of reach. Repeats are
interleaved; seconds are of one core's own time, which a busy machine moves little, and the ratio of medians counts.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from apportion.privacy import Budget
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table
from benchmarks.heavytail_synthetic import need_torch

ROWS, OF_A_USER, THREADS, REPEATS = 256, 4, 1, 15
LEAST, LEAST_FOR_USERS = 1.0, 2.0
KINDS = ("linear", "CNN", "embedding of 100,000", "attention")
MODES = ("hooks", "ghost")
PLAIN = "not private"


def measure(quick: bool) -> Outcome | Rehearsal:
    """Time all steps of all kinds of modules."""
    torch = need_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        found = {
            kind: _ratios(kind, *((32, 2) if quick else (ROWS, REPEATS))) for kind in (KINDS[:1] if quick else KINDS)
        }
    finally:
        torch.set_num_threads(before)
    names = list(next(iter(found.values())))
    print_table(["module", *names], [[kind, *values.values()] for kind, values in found.items()])
    if quick:  # a few small steps on a machine that may be busy
        return Rehearsal(
            dict(found), {"not twenty times slower": min(found["linear"][_over("rows", "hooks")], 1) > 0.05}
        )
    rows = [one[_over("rows", mode)] for one in found.values() for mode in MODES]
    users = [one[_over("users", mode)] for one in found.values() for mode in MODES]
    return Outcome(
        value={kind: {name: round(value, 3) for name, value in one.items()} for kind, one in found.items()},
        target={"rows": f"at least {LEAST:g}", "users": f"at least {LEAST_FOR_USERS:g}"},
        holds=min(rows) >= LEAST and min(users) >= LEAST_FOR_USERS,
        headline=f"private steps on one core over Opacus: {min(rows):.2f} to {max(rows):.2f} for rows "
        f"({LEAST:g} asked), {min(users):.2f} to {max(users):.2f} for users ({LEAST_FOR_USERS:g} asked)",
        settings={
            "rows": ROWS,
            "rows of a user": OF_A_USER,
            "threads": THREADS,
            "repeats": REPEATS,
            "time": "of the CPU",
        },
    )


def _over(unit: str, mode: str) -> str:
    return f"{unit}, over Opacus with {mode}"


def _ratios(kind: str, rows: int, repeats: int) -> dict[str, float]:
    """Milliseconds of every step, and ratios of speeds."""
    steps = {unit: _ours(kind, rows, repeats + 2, unit) for unit in ("rows", "users")}
    steps |= {mode: _opacus(kind, rows, mode) for mode in MODES}
    steps |= {PLAIN: _plain(kind, rows)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 1):
        for name, step in steps.items():
            start = time.process_time()
            step()
            if turn:  # the first warms up
                seconds[name].append(time.process_time() - start)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {_over(unit, mode): medians[mode] / medians[unit] for unit in ("rows", "users") for mode in MODES}
    return {**ratios, **{f"ms, {name}": 1000 * value for name, value in medians.items()}}


def _problem(kind: str, rows: int) -> tuple[Any, Any, Any]:
    """A module, inputs and targets."""
    import torch
    from torch import nn

    from papers.heavy_tail.models import SmallCnn

    rng = np.random.default_rng(0)
    targets = torch.as_tensor(rng.integers(0, 10, rows))
    words = torch.as_tensor(rng.integers(0, 100_000, (rows, 8)))
    if kind == "linear":
        return nn.Linear(784, 10), torch.as_tensor(rng.standard_normal((rows, 784)), dtype=torch.float32), targets
    if kind == "CNN":
        return SmallCnn(10), torch.as_tensor(rng.standard_normal((rows, 1, 28, 28)), dtype=torch.float32), targets
    if kind == KINDS[2]:
        return nn.Sequential(nn.Embedding(100_000, 16), nn.Flatten(), nn.Linear(128, 10)), words, targets
    return _attention(), words % 1000, targets


def _attention() -> Any:
    import torch
    from torch import nn

    class Attention(nn.Module):  # type: ignore[misc]
        """One layer of attention over eight words."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(1000, 32)
            self.query, self.key, self.value = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
            self.norm, self.out = nn.LayerNorm(32), nn.Linear(32, 10)

        def forward(self, words: Any) -> Any:
            seen = self.embedding(words)
            weights = torch.softmax(self.query(seen) @ self.key(seen).mT / 32**0.5, dim=-1)
            return self.out(self.norm(seen + weights @ self.value(seen)).mean(1))

    return Attention()


def _ours(kind: str, rows: int, most: int, unit: str) -> Callable[[], None]:
    from torch import nn

    from apportion.privacy import Session
    from apportion.training import DPSGD, ExampleRows, ExampleSession, PrivateGradients, UserRows

    module, inputs, targets = _problem(kind, rows)
    users = np.arange(rows) // OF_A_USER
    units: Any = ExampleRows(inputs, targets) if unit == "rows" else UserRows(inputs, targets, users)
    session = (ExampleSession if unit == "rows" else Session)(Budget(8.0, 1e-5))

    def loss(outputs: Any, wanted: Any) -> Any:
        return nn.functional.cross_entropy(outputs, wanted, reduction="none")

    gradients = PrivateGradients(module, loss, units, session, steps=most, n_units=len(units), rows_at_once=rows)
    optimizer = DPSGD(module.parameters(), 1e-3)

    def step() -> None:
        gradients.fill(optimizer)
        optimizer.step()

    return step


def _plain(kind: str, rows: int) -> Callable[[], None]:
    """A step without privacy: one pass, the mean gradient, and plain descent."""
    import torch

    module, inputs, targets = _problem(kind, rows)
    optimizer = torch.optim.SGD(module.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()

    return step


def _opacus(kind: str, rows: int, mode: str) -> Callable[[], None]:
    try:
        from opacus import PrivacyEngine
    except ImportError as missing:
        raise UnavailableError("opacus is not installed") from missing
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    module, inputs, targets = _problem(kind, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, optimizer, *rest = PrivacyEngine().make_private(
            module=module, optimizer=torch.optim.SGD(module.parameters(), 1e-3),
            data_loader=DataLoader(TensorDataset(inputs, targets), batch_size=rows),
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
