"""What a training holds while it runs, and what it tells after every step."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TextIO

import torch
from torch import nn

from apportion.privacy import Session
from apportion.training.checkpoints import RatchetNoise, Stored, TrainingCheckpoint, write
from apportion.training.known_noise import AddedNoise
from apportion.training.private_gradients import PrivateGradients
from apportion.training.processes import Processes

_WIDTH = 30


@dataclass(frozen=True, eq=False)
class StepDone:
    """What callbacks are told after a step. All of it is released, or public.

    Attributes:
        step: number of steps taken.
        steps: number of steps in all.
        module: as it is now.
        optimizer: as it is now; its learning rates may be changed by rules that do not look at rows.
        noise: the noise in the gradients of this step.
    """

    step: int
    steps: int
    module: nn.Module
    optimizer: torch.optim.Optimizer
    noise: AddedNoise


@dataclass(frozen=True, eq=False)
class Run:
    """A training that has begun.

    Attributes:
        session: pays for everything.
        gradients: releases them.
        checkpoint: where to write, if anywhere.
        identity: what a checkpoint is bound to.
        processes: that train together; the first writes the checkpoint.
        resumed: what the checkpoint held before; None for a new training.
    """

    session: Session
    gradients: PrivateGradients
    checkpoint: TrainingCheckpoint | None
    identity: str
    processes: Processes
    resumed: Stored | None = None

    def keep(self, training: dict[str, Any], made: int, steps: int) -> None:
        """Write the checkpoint, if it is time."""
        if self.checkpoint is None or self.processes.number > 0 or (made % self.checkpoint.every and made < steps):
            return
        noise = self.session.noise
        assert isinstance(noise, RatchetNoise)
        stored = Stored(
            made, noise.state, training, self.gradients.state, self.session.statement(),
            self.session.receipts,
        )  # fmt: skip
        write(self.checkpoint, stored, self.identity)


class ProgressBar:
    """Draws a bar on a terminal; elsewhere it prints one line for every tenth of the steps.

    Args:
        stream: where to; None for standard error.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream

    def __call__(self, step: int, steps: int) -> None:
        """Show how far training is."""
        done = _WIDTH * step // steps
        if self._stream.isatty():
            end = "\n" if step == steps else ""
            self._stream.write(f"\r[{'#' * done}{'.' * (_WIDTH - done)}] step {step} of {steps}{end}")
        elif 10 * step // steps > 10 * (step - 1) // steps:
            self._stream.write(f"step {step} of {steps}\n")
        self._stream.flush()
