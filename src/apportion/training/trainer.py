"""Training a module under a budget: full or Poisson batches, users or examples, and a statement at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau

from apportion.errors import InputError
from apportion.estimators.private import BY_HAND
from apportion.privacy import Budget, NoiseSource, Session, Statement, accounting
from apportion.privacy.charges import LedgerAccount
from apportion.privacy.noise import noise_source
from apportion.training.applied import refuse_surroundings
from apportion.training.arguments import (
    require_all_updated,
    require_calls,
    require_length,
    require_long_enough,
    require_optimizer,
    require_rules,
)
from apportion.training.checkpoints import RatchetNoise, Stored, TrainingCheckpoint, read
from apportion.training.clipping import Clip, FixedClip, ReleasedLoss, SecondMomentScales
from apportion.training.comparable import comparable, comparable_module
from apportion.training.earlier import Earlier, caution, hashes_of, remember, say, trained_before
from apportion.training.known_noise import AddedNoise
from apportion.training.machine import machine_of, require_repeatable
from apportion.training.per_unit import Loss
from apportion.training.plans import epsilon_for, length_of
from apportion.training.private_gradients import PrivateGradients
from apportion.training.processes import OneProcess, Processes, together
from apportion.training.runs import Run, StepDone
from apportion.training.table_rows import RowRule
from apportion.training.targets import refuse_targets
from apportion.training.told import optimizer_settings, scheduler_settings, tell
from apportion.training.units import Units, session_for
from apportion.training.watching import Seen, Watch

WATCHED = "declared: raw rows were looked at during training, and choices made after that are not covered"


class PrivateTrainer:
    """Trains a module in place under a budget.

    Args:
        module: the module to train; its initial parameters must not depend on the training rows.
        optimizer: one of `apportion.training` or of torch, made with all of the module's trained parameters; freeze
            the others by `requires_grad_(False)`.
        loss: takes outputs and targets of some rows and returns one number for each row; None if the module returns its
            own loss, as modules of Hugging Face do.
        epsilon: ε of the whole training.
        delta: δ of the whole training.
        noise_multiplier: noise over sensitivity at every step, in place of `epsilon`; needs `n_units`.
        steps: number of steps.
        epochs: how often a unit takes part on average, in place of `steps`.
        sampling: probability that a unit takes part in a step; None for full batches.
        batch_size: expected number of units in a step, in place of `sampling`; needs `n_units`.
        n_units: the number of users (or examples), declared public; None to release it with noise.
        clip: the rule for the norm to which a unit's whole gradient is clipped.
        scaling: released scales that define the metric of clipping, if any.
        mean_of_rows: whether a unit's gradient is the mean over its rows instead of the sum.
        rows_at_once: number of rows that go through the module at a time; a batch may be larger, and is then
            accumulated. With 1, every unit goes through alone, so nothing about it can depend on others, not even by
            rounding.
        scheduler: a learning-rate scheduler of torch, called after every step. One that watches a loss
            (`ReduceLROnPlateau`) gets the mean loss that `losses` releases.
        losses: releases the mean loss with every gradient; None for gradients alone.
        tables: trains only the rows of embedding tables that enough units look up, as `FrequentRows` or
            `TouchedRows`; None for all rows.
        autocast: torch.bfloat16 to compute passes under autocast; None for full precision. Parameters, lengths and
            sums stay in full precision.
        public: further sentences about public assumptions, for the statement.
        window: the time span of the data, for the statement.
        tuning: how settings were chosen, for the statement.
        noise: the noise source; None for the operating system's. Exact noise is refused: gradients are real numbers.

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
        loss: Loss | None = None,
        *,
        epsilon: float | None = None,
        delta: float,
        noise_multiplier: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        sampling: float | None = None,
        batch_size: float | None = None,
        n_units: int | None = None,
        clip: Clip = FixedClip(),  # noqa: B008 - frozen
        scaling: SecondMomentScales | None = None,
        mean_of_rows: bool = False,
        rows_at_once: int = 256,
        scheduler: Any | None = None,
        losses: ReleasedLoss | None = None,
        tables: RowRule | None = None,
        autocast: torch.dtype | None = None,
        public: Sequence[str] = (),
        window: str = "not declared",
        tuning: str | None = None,
        noise: NoiseSource | str | None = None,
    ) -> None:
        if getattr(noise_source(noise), "exact", False):
            raise InputError(
                "Expected noise that is not exact: gradients are real numbers, not on a lattice.", argument="noise"
            )
        if isinstance(scheduler, ReduceLROnPlateau) and losses is None:
            raise InputError(
                "Expected losses=ReleasedLoss(...) beside a scheduler that watches a loss, got ReduceLROnPlateau.",
                argument="losses",
            )
        self.module = module.module if isinstance(module, DistributedDataParallel) else module
        self.optimizer = optimizer
        self.loss = loss
        require_rules(clip, scaling, losses, tables)
        require_optimizer(optimizer, self.module, scheduler)
        length = length_of(steps, sampling, epochs, batch_size, n_units)
        require_length(length.steps, length.sampling, rows_at_once)
        require_long_enough(scheduler, length.steps)
        self.epsilon = epsilon_for(epsilon, noise_multiplier, delta, length, n_units)
        self.delta = delta
        self.steps = length.steps
        self.sampling = length.sampling
        self.n_units = n_units
        self.clip = clip
        self.scaling = scaling
        self.mean_of_rows = mean_of_rows
        self.rows_at_once = rows_at_once
        self.scheduler = scheduler
        self.losses = losses
        self.tables = tables
        self.autocast = autocast
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
        ledger: LedgerAccount | None = None,
        checkpoint: TrainingCheckpoint | None = None,
        processes: Processes | None = None,
        watch: Watch | None = None,
        progress: Callable[[int, int], None] | None = None,
        callbacks: Sequence[Callable[[StepDone], None]] = (),
    ) -> Self:
        """Take all steps, and keep the statement.

        Args:
            units: the training rows, as `UserRows` or `ExampleRows`.
            session: pays for everything; None for a new one with this budget.
            ledger: an account that the new session charges.
            checkpoint: a file to write to, and to go on from if it is there; not with a session of your own.
            processes: the processes that train together, such as `TorchProcesses()`; all of them call `fit` with the
                same rows and settings. The first charges, draws noise and writes the checkpoint.
            watch: raw rows to look at during training; what it records is not covered by ε.
            progress: called with the number of steps taken and the total; `ProgressBar()` draws a bar.
            callbacks: called after every step. They see what is released, and must not look at rows.

        A second fit is refused: it would start from what the first learned, and its statement would claim too little.
        A new trainer that starts from what another one learned in this process warns, and its statement says what it
        does not count.
        """
        require_calls(progress, callbacks, checkpoint)
        require_all_updated(self.optimizer, self.module)
        self._refuse(units, session, ledger, checkpoint, watch)
        refuse_surroundings(self.module, units)
        if self.loss is not None and units.layout is None:
            refuse_targets(self.module, self.loss, units.like, units._targets)
        start = hashes_of(self.module)
        run = self._begin(units, session, ledger, checkpoint, processes or OneProcess())
        before = self._cautioned(run, start)
        for sentence in (self.tuning or BY_HAND, *([] if watch is None else [WATCHED])):
            run.session.declare_tuning(sentence)
        self.noise_multiplier_ = run.gradients.noise_multiplier
        self.history_ = []
        self._trained = True
        try:
            self._train(run, watch, progress, callbacks)
        finally:
            remember(run.session.budget, self.module, start, before)
        self.statement_ = run.processes.tell(run.session.statement())
        return self

    def _cautioned(self, run: Run, start: dict[str, str]) -> Earlier | None:
        """Return a training that released parameters of this one's start; the statement says that it is not counted."""
        if run.resumed is not None:  # the module's own start is in the checkpoint
            for sentence in run.resumed.statement.unprotected:
                run.session.declare_unprotected(sentence)
            return None
        before = trained_before(start)
        if before is not None:
            sentence = caution(before, run.session.budget)
            run.session.declare_unprotected(sentence)
            say(sentence)
        return before

    def _train(
        self,
        run: Run,
        watch: Watch | None,
        progress: Callable[[int, int], None] | None,
        callbacks: Sequence[Callable[[StepDone], None]],
    ) -> None:
        """Take all steps that are left. A checkpoint is written before the first: that step may be repeated, too."""
        if run.resumed is None:
            run.keep(self._states(), 0, self.steps)
        while run.gradients.steps_left:
            step = self.steps - run.gradients.steps_left
            if watch is not None and step % watch.every == 0:
                self._look(watch, step, run)
            noise = self._step(run)
            run.keep(self._states(), step + 1, self.steps)
            if progress is not None:
                progress(step + 1, self.steps)
            done = StepDone(step + 1, self.steps, self.module, self.optimizer, noise)
            tell(callbacks, done, self.loss, self.scheduler, run.checkpoint is not None)
        if watch is not None:
            self._look(watch, self.steps, run)

    def _step(self, run: Run) -> AddedNoise:
        noise = run.gradients.fill(self.optimizer)
        self.optimizer.step()
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(run.gradients.released_loss)
        elif self.scheduler is not None:
            self.scheduler.step()
        return noise

    def _look(self, watch: Watch, step: int, run: Run) -> None:
        assert self.loss is not None
        self.history_.append(watch.look(self.module, self.loss, step, run.gradients.coming_step))

    def _refuse(
        self,
        units: Units,
        session: Session | None,
        ledger: LedgerAccount | None,
        checkpoint: TrainingCheckpoint | None,
        watch: Watch | None,
    ) -> None:
        if self._trained:
            raise InputError(
                "Expected an untrained module, got one that this trainer has already trained; create a "
                "new module and a new trainer.",
                argument="module",
            )
        if checkpoint is not None:
            require_repeatable(self.module)
        if session is not None and (checkpoint is not None or ledger is not None):
            raise InputError("Expected no session beside a checkpoint or a ledger.", argument="session")
        if watch is not None:
            several = self.loss is None or getattr(units, "layout", None) is not None
            if several or checkpoint is not None or self.tables is not None:
                raise InputError(
                    "Expected no watch with a loss inside the module, several input tensors, tables, or a checkpoint.",
                    argument="watch",
                )
            watch.check(units)

    def _begin(
        self,
        units: Units,
        session: Session | None,
        ledger: LedgerAccount | None,
        checkpoint: TrainingCheckpoint | None,
        processes: Processes,
    ) -> Run:
        """Open or restore the session and the private gradients."""
        identity = "" if checkpoint is None else self._identity(units, ledger, processes)
        stored = None if checkpoint is None else self._stored(checkpoint, identity, processes)
        noise: NoiseSource = noise_source(self.noise)
        if checkpoint is not None:
            noise = RatchetNoise(noise, None if stored is None else stored.noise)
        charged = stored is not None and self.sampling < 1  # sampled steps are charged together, before the first
        opened = session or session_for(units)(
            Budget(self.epsilon, self.delta), noise=noise, window=self.window,
            ledger=None if charged or processes.number > 0 else ledger,
        )  # fmt: skip
        for sentence in ("the module, its initial parameters and the loss", *self.public):
            opened.assume_public(sentence)
        gradients = PrivateGradients(
            self.module, self.loss, units, opened,
            steps=self.steps, sampling=self.sampling, n_units=self.n_units, clip=self.clip, scaling=self.scaling,
            mean_of_rows=self.mean_of_rows, rows_at_once=self.rows_at_once, losses=self.losses,
            tables=self.tables, autocast=self.autocast, processes=processes,
            state=None if stored is None else stored.gradients,
        )  # fmt: skip
        if stored is not None:
            opened.readmit(stored.statement.releases, stored.receipts)
            self._restore(stored.training)
        return Run(opened, gradients, checkpoint, identity, processes, stored)

    def _identity(self, units: Units, ledger: LedgerAccount | None, processes: Processes) -> str:
        account = None if ledger is None else str(getattr(ledger, "identity", type(ledger).__qualname__))
        machines = processes.exchange(machine_of(self.module))
        return units.identity({**self._settings(units), "account": account, "machines": machines})

    def _stored(self, checkpoint: TrainingCheckpoint, identity: str, processes: Processes) -> Stored | None:
        """Return what the first process finds in the checkpoint."""
        found = together(processes, lambda: None if processes.number > 0 else read(checkpoint, identity))
        stored: Stored | None = processes.tell(found)
        return stored

    def _states(self) -> dict[str, Any]:
        scheduler = None if self.scheduler is None else self.scheduler.state_dict()
        return {"module": self.module.state_dict(), "optimizer": self.optimizer.state_dict(), "scheduler": scheduler}

    def _restore(self, states: dict[str, Any]) -> None:
        self.module.load_state_dict(states["module"])
        self.optimizer.load_state_dict(states["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(states["scheduler"])

    def _settings(self, units: Units) -> dict[str, Any]:
        """Return what a checkpoint is bound to, beside the rows."""
        named = {name: [str(p.dtype), list(p.shape)] for name, p in self.module.named_parameters()}
        source = noise_source(self.noise)  # a chain that a seed began is not for release, whatever goes on with it
        return {
            "epsilon": self.epsilon, "delta": self.delta, "steps": self.steps, "sampling": self.sampling,
            "n_units": self.n_units, "clip": repr(self.clip), "scaling": repr(self.scaling),
            "mean_of_rows": self.mean_of_rows, "rows_at_once": self.rows_at_once, "module": repr(self.module),
            "parameters": named, "parts": comparable_module(self.module), "loss": comparable(self.loss),
            "optimizer": repr(self.optimizer.__class__), "units": units.name, "losses": repr(self.losses),
            "autocast": str(self.autocast), "tables": repr(self.tables),
            "groups": optimizer_settings(self.optimizer), "scheduler": scheduler_settings(self.scheduler),
            "noise": [source.description, source.releasable],
        }  # fmt: skip

    def epsilon_after(self, steps: int) -> float:
        """Return the ε of this many steps, at this budget's δ, without what was released before them."""
        if steps == 0:
            return 0.0
        z, q = self.noise_multiplier_, self.sampling
        event = accounting.Gaussian(z, steps) if q == 1 else accounting.SampledGaussian(z, q, steps)
        return accounting.epsilon_of([event], self.delta, accounting.interval_for(Budget(self.epsilon, self.delta)))
