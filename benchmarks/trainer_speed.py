"""Claim: private steps take ours no longer than Opacus, and steps for users at most half as long, in one run.

A step is the same everywhere: gradients clipped to 1, Gaussian noise, plain descent, on the same rows. Ours forms the
clipped sum in float64, seals it, charges a session and draws from the operating system's entropy; Opacus draws from
torch's generator. For rows it runs with hooks and with ghost (fast gradient) clipping. For users it gets what its parts
allow: gradients of rows from its hooks, summed by user before it clips, for every module; and ghost clipping with a
user's rows as one sequence, for modules of which it takes that (linear, embedding). A step without privacy is timed
beside them, and the same step with our draw of the noise and nothing else: what Opacus takes over these is the most
that any private step with the same pass can reach.

Repeats are interleaved, each behind a step of its own kind, and the ratio of medians counts. On a processor seconds are
of one core's own time, which a busy machine moves little; on a GPU they are of the clock. There NumPy and torch are all
that is needed (`PYTHONPATH=src python -m benchmarks trainer-speed`): without Opacus, only our own times and a plain
step's are shown.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from apportion.privacy import Budget, SystemNoise
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table

ROWS, OF_A_USER, THREADS, REPEATS = 256, 4, 1, 31
LEAST, LEAST_FOR_USERS = 1.0, 2.0
KINDS = ("linear", "CNN", "embedding of 100,000", "attention")
HOOKS, GHOST = "hooks", "ghost"
SUMMED, SEQUENCE = "hooks, summed by user", "ghost, a user as one sequence"
IN_SEQUENCES = (KINDS[0], KINDS[2])  # the modules of which Opacus' ghost clipping takes a user as one sequence
PLAIN, WITH_NOISE = "not private", "not private, with the draw of the noise"
_SLOW = 0.3  # seconds; steps that take longer are repeated three times

Step = Callable[[], None]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Time all steps of all kinds of modules."""
    try:
        import torch
    except ImportError as missing:
        raise UnavailableError("torch is not installed") from missing
    before = torch.get_num_threads()
    device = "cuda" if torch.cuda.is_available() and not quick else "cpu"
    torch.set_num_threads(THREADS)
    try:
        chosen, size = (KINDS[:1], (32, 2)) if quick else (KINDS, (ROWS, REPEATS))
        found = {kind: _medians(kind, *size, device) for kind in chosen}
    finally:
        torch.set_num_threads(before)
    _show(found)
    reason = _opacus_missing()
    if reason is not None:
        raise UnavailableError(f"{reason}: the table shows our own steps only")
    return _rehearsed(found) if quick else _outcome(found, torch.cuda.get_device_name() if device == "cuda" else None)


@cache
def _opacus_missing() -> str | None:
    """Why Opacus cannot be used; None if it can. It may be there without what it needs itself."""
    try:
        from opacus import PrivacyEngine
    except ImportError as missing:
        return f"opacus cannot be imported ({missing})"
    return None if callable(PrivacyEngine) else "opacus has no PrivacyEngine"


def _show(found: dict[str, dict[str, float]]) -> None:
    names = list(dict.fromkeys(name for one in found.values() for name in one))
    rows = [[kind, *(f"{1000 * one[n]:.2f}" if n in one else "" for n in names)] for kind, one in found.items()]
    print_table(["module", *(f"ms, {name}" for name in names)], rows)
    units = ("rows", "users")
    over = [[kind, *(f"{one[unit] / one[PLAIN]:.2f}" for unit in units)] for kind, one in found.items()]
    print_table(["over a step without privacy", *units], over)


def _rehearsed(found: dict[str, dict[str, float]]) -> Rehearsal:
    """A few small steps on a machine that may be busy."""
    one = found[KINDS[0]]
    return Rehearsal(dict(one), {"not twenty times slower": one["rows"] < 20 * one[HOOKS]})


def _outcome(found: dict[str, dict[str, float]], gpu: str | None) -> Outcome:
    value = {kind: _ratios(one) for kind, one in found.items()}
    rows = [one[_over("rows", mode)] for one in value.values() for mode in (HOOKS, GHOST)]
    users = {kind: min(one[_over("users", m)] for m in (SUMMED, SEQUENCE) if _over("users", m) in one)
             for kind, one in value.items()}  # fmt: skip
    each = ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in users.items())
    where = "one core" if gpu is None else gpu
    return Outcome(
        value=value,
        target={"rows": f"at least {LEAST:g}", "users": f"at least {LEAST_FOR_USERS:g}"},
        holds=min(rows) >= LEAST and min(users.values()) >= LEAST_FOR_USERS,
        headline=f"private steps on {where} over Opacus' best: at least {min(rows):.2f} for rows ({LEAST:g} asked); "
        f"for users {each} ({LEAST_FOR_USERS:g} asked)",
        settings={"rows": ROWS, "rows of a user": OF_A_USER, "threads": THREADS, "repeats": REPEATS,
                  "time": "of the CPU" if gpu is None else "of the clock", "gpu": gpu},
    )  # fmt: skip


def _over(unit: str, mode: str) -> str:
    return f"{unit}, over Opacus with {mode}"


def _ratios(seconds: dict[str, float]) -> dict[str, float]:
    """Milliseconds of every step, ratios of speeds, and the most that is in reach without privacy but for the noise."""
    pairs = [("rows", HOOKS), ("rows", GHOST), ("users", SUMMED), ("users", SEQUENCE)]
    ratios = {_over(unit, mode): seconds[mode] / seconds[unit] for unit, mode in pairs if mode in seconds}
    best = min(seconds[mode] for mode in (SUMMED, SEQUENCE) if mode in seconds)
    ratios["users, the most that any step could reach"] = best / seconds[PLAIN]
    ratios["users, the most that any step with this noise could reach"] = best / seconds[WITH_NOISE]
    return {k: round(v, 3) for k, v in (ratios | {f"ms, {n}": 1000 * v for n, v in seconds.items()}).items()}


def _medians(kind: str, rows: int, repeats: int, device: str) -> dict[str, float]:
    """Seconds of every step."""
    steps: dict[str, Step] = {unit: _ours(kind, rows, 2 * repeats + 4, unit, device) for unit in ("rows", "users")}
    steps |= {name: _plain(kind, rows, device, noise=name == WITH_NOISE) for name in (PLAIN, WITH_NOISE)}
    if _opacus_missing() is None:
        modes = [HOOKS, GHOST, SUMMED, *([SEQUENCE] if kind in IN_SEQUENCES else [])]
        steps |= {mode: _opacus(kind, rows, mode, device) for mode in modes}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    rng = np.random.default_rng(0)
    for turn in range(repeats + 1):
        for name in rng.permutation(list(steps)).tolist():
            slow = turn > 1 and seconds[name][-1] > _SLOW
            if slow and turn > 3:
                continue
            if not slow:
                steps[name]()  # as in training, a step follows one like it
            taken = _timed(steps[name], device)
            if turn:  # the first warms up
                seconds[name].append(taken)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _timed(step: Step, device: str) -> float:
    """Seconds of one core for a step on a processor, of the clock for one on a GPU."""
    if device == "cpu":
        start = time.process_time()
        step()
        return time.process_time() - start
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _problem(kind: str, rows: int, device: str) -> tuple[Any, Any, Any]:
    """A module, inputs and targets."""
    return tuple(part.to(device) for part in _made(kind, rows))


def _made(kind: str, rows: int) -> tuple[Any, Any, Any]:
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
        return nn.Sequential(nn.Embedding(100_000, 16), nn.Flatten(-2), nn.Linear(128, 10)), words, targets
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


def _ours(kind: str, rows: int, most: int, unit: str, device: str) -> Step:
    from torch import nn

    from apportion.privacy import Session
    from apportion.training import DPSGD, ExampleRows, ExampleSession, PrivateGradients, UserRows

    module, inputs, targets = _problem(kind, rows, device)
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


def _plain(kind: str, rows: int, device: str, *, noise: bool) -> Step:
    """A step without privacy: one pass, the mean gradient, and plain descent; and a draw that is thrown away."""
    import torch

    module, inputs, targets = _problem(kind, rows, device)
    optimizer = torch.optim.SGD(module.parameters(), 1e-3)
    source, size = SystemNoise(), sum(p.numel() for p in module.parameters())

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
        if noise:
            source.normal((size,), np.float64)

    return step


def _opacus(kind: str, rows: int, mode: str, device: str) -> Step:
    """A step of Opacus for rows, or for users in one of the ways that its parts allow."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    module, inputs, targets = _problem(kind, rows, device)
    if mode == SEQUENCE:
        inputs, targets = (x.reshape(-1, OF_A_USER, *x.shape[1:]) for x in (inputs, targets))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, optimizer, *rest = PrivacyEngine().make_private(
            module=module, optimizer=torch.optim.SGD(module.parameters(), 1e-3),
            data_loader=DataLoader(TensorDataset(inputs, targets), batch_size=len(inputs)),
            criterion=torch.nn.CrossEntropyLoss(),
            noise_multiplier=1.0, max_grad_norm=1.0, grad_sample_mode=mode.split(",")[0], poisson_sampling=False,
        )  # fmt: skip
    loss = rest[0] if mode in (GHOST, SEQUENCE) else torch.nn.CrossEntropyLoss()

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.zero_grad()
            outputs = module(inputs)
            shape = {"shape": outputs.shape} if mode == SEQUENCE else {}
            loss(outputs.flatten(0, -2), targets.flatten(), **shape).backward()
            if mode == SUMMED:
                for parameter in module.parameters():
                    by_user = parameter.grad_sample.reshape(-1, OF_A_USER, *parameter.shape)
                    parameter.grad_sample = by_user.sum(1)
            optimizer.step()

    return step
