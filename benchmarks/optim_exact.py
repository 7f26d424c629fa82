"""Claim: without noise each optimizer is its twin in torch.optim, batches in pieces are batches, Opacus' path is ours.

A CNN of two convolutions in float64, over 100 steps. Without clipping and noise, each optimizer against torch.optim's
(DP-AdamBC: against a reference that has the floor in the same place), one half of the steps after a state_dict was
saved and loaded. With noise: batches in pieces of 7 rows against one piece, and Opacus' optimizer around ours against
our own path. Opacus is fed the noise that our path added, its rounding to a grid included, and where gradients are
clipped it gets the norm that ours clips to, C (1 - 1e-5); it adds 1e-6 to every gradient's length, which is left.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from apportion.auditing import RecordingSession
from apportion.privacy import ADD_REMOVE_EXAMPLE, Budget, SeededNoise
from benchmarks.claim import Outcome, UnavailableError, print_table
from benchmarks.heavytail_synthetic import need_torch

MOST = 1e-6
LARGEST = "largest difference"
INNER = 1 - 1e-5  # of the clip norm: what our path clips to, to be on the safe side of rounding
ROWS, CLASSES = 24, 6
CLIPPED, UNCLIPPED = (0.5, 8.0), (20.0, 20_000.0)  # a clip norm and an ε: most gradients are longer; none is


def measure(quick: bool) -> Outcome:
    """Measure every gap, as the largest difference of any parameter."""
    need_torch()
    steps = 4 if quick else 100
    gaps = {f"{name} and its twin": _twin_gap(ours, theirs, steps) for name, (ours, theirs) in twins().items()}
    gaps["pieces of a batch"] = _pieces_gap(steps)
    for about, case in (("", UNCLIPPED), (", clipped", CLIPPED)):
        gaps |= {f"{name} through Opacus{about}": _opacus_gap(make, steps, *case) for name, make in makers().items()}
    print_table(["what", "largest difference"], list(gaps.items()))
    worst = max(gaps.values())
    return Outcome(
        value={LARGEST: worst, **gaps},
        target={LARGEST: MOST},
        holds=worst <= MOST,
        headline=f"Over {steps} steps {len(twins())} optimizers without noise are their twins, and on the same noise "
        f"Opacus' path is ours, to {worst:.0e}",
        settings={"steps": steps, "rows": ROWS, "classes": CLASSES, "seed": 0},
    )


def twins() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Ours and theirs."""
    import torch

    from apportion.training import DPSGD, DPAdam, DPAdamBC

    return {
        "DP-GD": (lambda p: DPSGD(p, 0.05), lambda p: torch.optim.SGD(p, 0.05)),
        "DP-GDM": (lambda p: DPSGD(p, 0.05, momentum=0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
        "DP-GDM with decay": (
            lambda p: DPSGD(p, 0.05, momentum=0.9, weight_decay=0.1),
            lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1),
        ),
        "DP-Adam": (lambda p: DPAdam(p, 0.01), lambda p: torch.optim.Adam(p, 0.01)),
        "DP-AdamW": (
            lambda p: DPAdam(p, 0.01, weight_decay=0.1, decoupled_weight_decay=True),
            lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
        ),
        "DP-AdamBC": (lambda p: DPAdamBC(p, 0.01, floor=1e-6), lambda p: Reference(p, 0.01, 1e-6)),
    }


def makers() -> dict[str, Callable[..., Any]]:
    """Ours alone, at rates so small that a run does not blow up the last differences of the two clips."""
    from apportion.training import DPSGD, DPAdam, DPAdamBC

    return {
        "DP-GDM": lambda p: DPSGD(p, 0.002, momentum=0.9),
        "DP-Adam": lambda p: DPAdam(p, 0.001),
        "DP-AdamBC": lambda p: DPAdamBC(p, 0.001),
    }


class Reference:
    """Algorithm 2's DP-AdamBC without noise, written out."""

    def __init__(self, parameters: Any, lr: float, floor: float) -> None:
        self._parameters, self._lr, self._floor, self._steps = list(parameters), lr, floor, 0
        self._moments = [(0.0, 0.0) for _ in self._parameters]

    def step(self) -> None:
        """One step, in NumPy."""
        self._steps += 1
        for k, parameter in enumerate(self._parameters):
            g = parameter.grad.numpy()
            m, v = (0.9 * self._moments[k][0] + 0.1 * g, 0.999 * self._moments[k][1] + 0.001 * g**2)
            self._moments[k] = m, v
            root = np.sqrt(np.maximum(v / (1 - 0.999**self._steps), self._floor))
            parameter.data.numpy()[...] -= self._lr / (1 - 0.9**self._steps) * (m / root)


def _cnn() -> Any:
    from papers.heavy_tail.models import SmallCnn

    return SmallCnn(CLASSES).double()


def _rows() -> Any:
    import torch

    from apportion.training import ExampleRows

    rng = np.random.default_rng(0)
    inputs = torch.as_tensor(rng.standard_normal((ROWS, 1, 28, 28)))
    return ExampleRows(inputs, torch.as_tensor(rng.integers(0, CLASSES, ROWS)))


def _gap(one: Any, other: Any) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((p - q).detach().abs().max()) for p, q in pairs)


def _twin_gap(ours: Callable[..., Any], theirs: Callable[..., Any], steps: int) -> float:
    from apportion.training import PlainGradients
    from papers.heavy_tail.models import loss_per_row

    one, other = _cnn(), _cnn()
    first, second = ours(one.parameters()), theirs(other.parameters())
    here, there = (PlainGradients(m, loss_per_row, _rows()) for m in (one, other))
    for step in range(steps):
        if step == steps // 2:
            kept = first.state_dict()
            first = ours(one.parameters())
            first.load_state_dict(kept)
        here.fill(first)
        first.step()
        there.fill()
        second.step()
    return _gap(one, other)


def _private(
    module: Any, make: Callable[..., Any], steps: int, seed: int, rows_at_once: int, clip: float, epsilon: float
) -> tuple[float, list[Any]]:
    """Train by our own path; returns the noise multiplier and the noise of every step."""
    from apportion.training import FixedClip, PrivateGradients
    from papers.heavy_tail.models import loss_per_row

    session = RecordingSession(Budget(epsilon, 1e-5), noise=SeededNoise(seed), neighbours=ADD_REMOVE_EXAMPLE)
    gradients = PrivateGradients(
        module, loss_per_row, _rows(), session,
        steps=steps, n_units=ROWS, clip=FixedClip(clip), rows_at_once=rows_at_once,
    )  # fmt: skip
    optimizer = make(module.parameters())
    for _ in range(steps):
        gradients.fill(optimizer)
        optimizer.step()
    return gradients.noise_multiplier, [record.released - record.hidden for record in session.records]


def _pieces_gap(steps: int) -> float:
    from apportion.training import DPAdamBC

    one, other = _cnn(), _cnn()
    for module, rows in ((one, 7), (other, 100)):
        _private(module, lambda p: DPAdamBC(p, 0.01), steps, 1, rows, *CLIPPED)
    return _gap(one, other)


def _opacus_gap(make: Callable[..., Any], steps: int, clip: float, epsilon: float) -> float:
    try:
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer, optimizer
    except ImportError as missing:
        raise UnavailableError("opacus is not installed") from missing
    import torch

    from apportion.training.for_opacus import follow
    from papers.heavy_tail.models import loss_per_row

    ours, theirs = _cnn(), _cnn()
    multiplier, noise = _private(ours, make, steps, 2, 100, clip, epsilon)
    sizes = [p.numel() for p in theirs.parameters()]
    pieces = iter([part for added in noise for part in np.split(added, np.cumsum(sizes)[:-1])])

    def same(std: float, reference: Any, **_: Any) -> Any:
        return torch.as_tensor(next(pieces)).reshape(reference.shape)

    wrapped = GradSampleModule(theirs, loss_reduction="sum")
    outer = follow(
        DPOptimizer(
            make(theirs.parameters()),
            noise_multiplier=multiplier / INNER,
            max_grad_norm=clip * INNER,
            expected_batch_size=ROWS,
        )
    )
    inputs, targets, _ = next(iter(_rows().batches(np.arange(ROWS), ROWS)))
    with mock.patch.object(optimizer, "_generate_noise", same), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            outer.zero_grad()
            loss_per_row(wrapped(inputs), targets).sum().backward()
            outer.step()
    return _gap(ours, theirs)
