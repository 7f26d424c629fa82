"""Training a module under a budget: full or Poisson batches, users or examples, and a statement at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import nn

from apportion.errors import InputError
from apportion.estimators.private import BY_HAND
from apportion.privacy import Budget, NoiseSource, Session, Statement, accounting
from apportion.training.clipping import Clip, FixedClip, SecondMomentScales
from apportion.training.per_unit import Loss
from apportion.training.private_gradients import PrivateGradients
from apportion.training.units import Units, session_for
from apportion.training.watching import Seen, Watch

WATCHED = "declared: raw rows were looked at during training, and choices made after that are not covered"


class PrivateTrainer:
    """Trains a module in place under a budget.

    Args:
        module: the module to train; its initial parameters must not depend on the training rows.
        optimizer: one of `apportion.training` or of torch, made with the module's parameters.
        loss: takes outputs and targets of some rows and returns one number for each row.
        epsilon: ε of the whole training.
        delta: δ of the whole training.
        steps: number of steps.
        sampling: probability that a unit takes part in a step; 1 for full batches.
        n_units: the number of users (or examples), declared public; None to release it with noise.
        clip: the rule for the norm to which a unit's whole gradient is clipped.
        scaling: released scales that define the metric of clipping, if any.
        mean_of_rows: whether a unit's gradient is the mean over its rows instead of the sum.
        rows_at_once: number of rows that go through the module at a time; a batch may be larger. With 1, every unit
            goes through alone, so nothing about it can depend on others, not even by rounding.
        scheduler: a learning-rate scheduler of torch, called after every step; it must not depend on losses.
        public: further sentences about public assumptions, for the statement.
        window: the time span of the data, for the statement.
        tuning: how settings were chosen, for the statement.
        noise: the noise source; None for the operating system's.

    Attributes:
        statement_: the privacy statement.
        noise_multiplier_: noise divided by sensitivity at every step.
        history_: what a `Watch` recorded from raw rows; NOT covered by ε, so do not publish it with the module.

    Privacy: (ε, δ)-DP for the module's parameters, for adding or removing one user (`UserRows`) or one row
    (`ExampleRows`); the unit is in the statement.

    Example:
        >>> from apportion.training import DPAdamBC, UserRows
        >>> x, users = torch.linspace(-1, 1, 200).reshape(-1, 1), torch.arange(200).numpy() // 2
        >>> module = nn.Linear(1, 2)
        >>> trainer = PrivateTrainer(
        ...     module,
        ...     DPAdamBC(module.parameters(), lr=0.1),
        ...     lambda outputs, wanted: nn.functional.cross_entropy(outputs, wanted, reduction="none"),
        ...     epsilon=4.0,
        ...     delta=1e-5,
        ...     steps=5,
        ...     n_units=100,
        ... )
        >>> trainer.fit(UserRows(x, (x[:, 0] > 0).long(), users)).statement_.epsilon
        4.0
    """

    statement_: Statement
    noise_multiplier_: float
    history_: list[Seen]

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        *,
        epsilon: float,
        delta: float,
        steps: int,
        sampling: float = 1.0,
        n_units: int | None = None,
        clip: Clip = FixedClip(),  # noqa: B008 - frozen
        scaling: SecondMomentScales | None = None,
        mean_of_rows: bool = False,
        rows_at_once: int = 256,
        scheduler: Any | None = None,
        public: Sequence[str] = (),
        window: str = "not declared",
        tuning: str | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise InputError(
                "Expected a scheduler that depends only on the number of steps, got ReduceLROnPlateau.",
                argument="scheduler",
            )
        self.module = module
        self.optimizer = optimizer
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.steps = steps
        self.sampling = sampling
        self.n_units = n_units
        self.clip = clip
        self.scaling = scaling
        self.mean_of_rows = mean_of_rows
        self.rows_at_once = rows_at_once
        self.scheduler = scheduler
        self.public = public
        self.window = window
        self.tuning = tuning
        self.noise = noise
        self._trained = False

    def fit(
        self,
        units: Units,
        *,
        session: Session | None = None,
        watch: Watch | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Take all steps, and keep the statement.

        Args:
            units: the training rows, as `UserRows` or `ExampleRows`.
            session: pays for everything; None for a new one with this budget.
            watch: raw rows to look at during training; what it records is not covered by ε.
            progress: called with the number of steps taken and the total.

        A second fit is refused: it would start from what the first learned, and its statement would claim too little.
        """
        if self._trained:
            raise InputError(
                "Expected an untrained module, got one that this trainer has already trained; create a "
                "new module and a new trainer.",
                argument="module",
            )
        if watch is not None:
            watch.check(units)
        session = session or session_for(units)(Budget(self.epsilon, self.delta), noise=self.noise, window=self.window)
        for sentence in ("the module, its initial parameters and the loss", *self.public):
            session.assume_public(sentence)
        for sentence in (self.tuning or BY_HAND, *([] if watch is None else [WATCHED])):
            session.declare_tuning(sentence)
        gradients = PrivateGradients(
            self.module, self.loss, units, session,
            steps=self.steps, sampling=self.sampling, n_units=self.n_units, clip=self.clip, scaling=self.scaling,
            mean_of_rows=self.mean_of_rows, rows_at_once=self.rows_at_once,
        )  # fmt: skip
        self.noise_multiplier_ = gradients.noise_multiplier
        self.history_ = []
        self._trained = True
        for step in range(self.steps):
            if watch is not None and step % watch.every == 0:
                self.history_.append(watch.look(self.module, self.loss, step, gradients.coming_step))
            gradients.fill(self.optimizer)
            self.optimizer.step()
            if self.scheduler is not None:
                self.scheduler.step()
            if progress is not None:
                progress(step + 1, self.steps)
        if watch is not None:
            self.history_.append(watch.look(self.module, self.loss, self.steps, gradients.coming_step))
        self.statement_ = session.statement()
        return self

    def epsilon_after(self, steps: int) -> float:
        """Return the ε of this many steps, at this budget's δ, without the release of the number of units."""
        if steps == 0:
            return 0.0
        z, q = self.noise_multiplier_, self.sampling
        event = accounting.Gaussian(z, steps) if q == 1 else accounting.SampledGaussian(z, q, steps)
        return accounting.epsilon_of([event], self.delta, accounting.interval_for(Budget(self.epsilon, self.delta)))
