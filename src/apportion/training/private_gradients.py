"""The private step of training: gradients of units, clipped and added in a hidden sum, released by a session.

Everything is planned before the first step: the number of steps, the probability that a unit takes part, and so the
noise multiplier. The optimizer gets the released gradients together with their noise (`known_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.errors import BudgetError, InputError
from apportion.linalg import device_copies
from apportion.privacy import BoundedSum, Purpose, Session, Share
from apportion.privacy.clipped_gradients import GradientTotal, RowCounts, number_of_units
from apportion.privacy.sampling import Sample
from apportion.training.applied import applied, dropout_rates, modes, refuse_surroundings
from apportion.training.arguments import require_length, require_rules
from apportion.training.clipping import Clip, ComingStep, FixedClip, ReleasedLoss, SecondMomentScales, noise_of
from apportion.training.copied_rows import CopiedRows
from apportion.training.held_passes import HeldPasses
from apportion.training.known_noise import AddedNoise, KnownNoiseOptimizer
from apportion.training.layers import LayerFactors
from apportion.training.machine import coarse_products
from apportion.training.module_state import forget_gradients, parts_of, unchanged
from apportion.training.padding import PaddedPass, padded, row_alignment
from apportion.training.per_unit import (
    GradientWay,
    Loss,
    gradient_way,
    losses_of_units,
    means_of_units,
    trainable,
    warn_if_row_by_row,
)
from apportion.training.processes import OneProcess, Processes, start_alike, together
from apportion.training.step_releases import Form, StepReleases, StepShare, plan_steps
from apportion.training.table_rows import RowRule
from apportion.training.units import Units


class PrivateGradients:
    """Fills the gradients of a module from releases, and tells the optimizer their noise.

    Args:
        module: the module to train; parameters that need no gradient are not changed.
        loss: takes outputs and targets of some rows and returns one number for each row; None if the module returns
            its own loss.
        units: the training rows, as users or as examples.
        session: pays for everything; its neighbours must be those of the units.
        steps: number of gradients to release.
        sampling: probability that a unit takes part in a step; 1 for full batches.
        n_units: the number of units, declared public; None to release it with noise.
        clip: the rule for the norm to which a unit's whole gradient is clipped.
        scaling: released scales that define the metric of clipping, if any.
        mean_of_rows: whether a unit's gradient is the mean over its rows instead of the sum.
        rows_at_once: number of rows that go through the module at a time; a batch may be larger. With 1, every unit
            goes through alone, so nothing about it can depend on others, not even by rounding.
        units_share: share of the budget for the number of units, if it is not declared.
        losses: releases the mean loss too; None for gradients alone.
        tables: trains only the rows of embedding tables that enough units look up, as `FrequentRows` or
            `TouchedRows`; None for all rows.
        autocast: torch.bfloat16 to compute passes under autocast; None for full precision. Lengths and sums are
            float64 in either case.
        processes: the processes that train together; None for this one alone. Only the first uses its session.
        way: how units' gradients are computed; None for the cheapest way that the module allows.
        state: of a run that was stopped, from `state`; its releases must have been readmitted to the session.

    Attributes:
        clip_norm: the norm to which the next step clips.
        released_loss: the mean loss that was released last, if any is.

    A check on made-up rows refuses a module or loss that mixes rows, draws random numbers other than for dropout, or
    trains parameters below float32. Masks of dropout are keyed by unit (`dropout`). Labels and ids must be in the range
    that the module and the loss accept: any other raises an error, which reveals it. What a pass writes into the
    module's buffers is undone.

    Privacy: each fill is one Gaussian release of the sum of clipped gradients, on all units or on a fresh Poisson
    sample, for adding or removing one unit. Batches may be empty: the release is then only noise.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | None,
        units: Units,
        session: Session,
        *,
        steps: int,
        sampling: float = 1.0,
        n_units: int | None = None,
        clip: Clip = FixedClip(),  # noqa: B008 - frozen
        scaling: SecondMomentScales | None = None,
        mean_of_rows: bool = False,
        rows_at_once: int = 256,
        units_share: float = 0.003,
        losses: ReleasedLoss | None = None,
        tables: RowRule | None = None,
        autocast: torch.dtype | None = None,
        processes: Processes | None = None,
        way: GradientWay | None = None,
        state: dict[str, Any] | None = None,
    ) -> None:
        refuse_surroundings(module, units)
        if session.neighbours != units.neighbours:
            raise InputError(
                f"The neighbours of the session are {session.neighbours.relation!r}, those of the units "
                f"{units.neighbours.relation!r}; open a session for the same neighbours.",
                argument="session",
            )
        require_length(steps, sampling, rows_at_once)
        require_rules(clip, scaling, losses, tables)
        if n_units is not None and n_units < 1:
            raise InputError(
                f"Expected a declared number of {units.name} of at least 1, got {n_units}.", argument="n_units"
            )
        self._parameters = list(trainable(module).values())
        if not self._parameters:
            raise InputError("Expected a module with trainable parameters, got one without any.", argument="module")
        coarse = {p.dtype for p in self._parameters} - {torch.float32, torch.float64}
        if coarse:
            raise InputError(
                f"Expected trainable parameters of float32 or float64, got {coarse.pop()}.", argument="module"
            )
        self._processes = OneProcess() if processes is None else processes
        start_alike(module, units, repr((clip, scaling, losses, tables, mean_of_rows)), self._processes)
        self._applied = applied(module, loss, units, autocast)
        self._module, self._loss, self._units = self._applied.module, self._applied.loss, self._applied.units
        self._device = self._units.like[0].device
        self._given = way
        self._trained = list(map(id, self._parameters))
        self._whole = [tuple(p.shape) for p in self._parameters]
        self._alike = len({(p.device, p.dtype) for p in self._parameters}) == 1
        self._modes, self._rates = modes(parts := parts_of(self._module)), dropout_rates(parts)
        self._rows_at_once = rows_at_once
        own = self._units.of_process(self._processes.number, self._processes.size)
        self._everybody: NDArray[np.int64] = np.flatnonzero(own)
        self._held: HeldPasses | None = None
        self._copied = CopiedRows(self._units)
        self._apart = 0
        self._sent: NDArray[Any] | None = None  # the last released vector, which may be on its way to a GPU
        self._way = self._checked_way()
        warn_if_row_by_row(self._way)
        first = self._processes.number == 0
        self._session = session if first else Session(session.budget, neighbours=session.neighbours)
        self._clip = clip
        self._losses = losses
        self._tables = None if tables is None else tables.of(self._module, self._way, scaling)
        self.released_loss: float | None = None
        self._scaling = None if scaling is None else scaling.begin()
        self._mean_of_rows = mean_of_rows
        narrow = all(p.dtype == torch.float32 for p in self._parameters)
        alone = scaling is None and losses is None and not clip.counted  # what else is released stays in float64
        self._dtype = np.dtype(np.float32) if narrow and alone else None
        self._sampling = sampling
        self._made = 0
        self._expected = math.nan
        self.clip_norm = clip.start
        self._shares = together(self._processes, lambda: self._plan(steps, n_units, units_share, state))
        self._expected = self._processes.tell(self._expected)
        for sentence in (clip.sentence, *([] if losses is None else [losses.sentence])):
            self._session.assume_public(sentence)
        if state is not None:
            self._made, self.clip_norm = int(state["made"]), float(state["clip_norm"])
            if self._scaling is not None:
                self._scaling.restore(state["scaling"])

    @property
    def state(self) -> dict[str, Any]:
        """All that is needed to go on after a stop, beside the session: released and public values only."""
        scaling = None if self._scaling is None else self._scaling.state
        held = {"made": self._made, "clip_norm": self.clip_norm, "expected": self._expected, "scaling": scaling}
        return held if self._tables is None else {**held, "tables": self._tables.selected}

    @property
    def steps_left(self) -> int:
        """The number of planned releases that are left."""
        return len(self._shares) - self._made

    @property
    def noise_multiplier(self) -> float:
        """Noise divided by sensitivity, the same at every step; of all that a step releases together."""
        return 1 / self._shares[0].mu

    @property
    def coming_step(self) -> ComingStep:
        """Return how the next release treats units: its clip norm and relative scales."""
        widened = self.clip_norm / math.sqrt(1 - self._clip.counted - (self._losses.share if self._losses else 0.0))
        scales = None if self._scaling is None else self._scaling.scales()
        noise = self._noise(widened / self._shares[0].gradient.mu, scales)
        return ComingStep(self.clip_norm, noise, self._mean_of_rows)

    def fill(self, optimizer: torch.optim.Optimizer | None = None) -> AddedNoise:
        """Release one gradient, put it into the parameters' `grad`, and tell the optimizer its noise.

        Returns:
            The noise in the gradients, as the optimizer is told.
        """
        if not self.steps_left:
            raise BudgetError(f"All {len(self._shares)} planned steps have been made.")
        self._check_module()
        share = self._shares[self._made]
        self._made += 1
        scales = None if self._scaling is None else self._scaling.scales()
        formed: list[BoundedSum] = []
        if self._applied.dropout is not None:
            self._applied.dropout.step = self._made

        def form(sample: Sample | None) -> BoundedSum:
            formed.append(self._sum(self._taking_part(sample), scales))
            return formed[-1]

        released = self._released(form, share)
        noise = self._noise(formed[0].l2_sensitivity / share.gradient.mu, scales)
        forget_gradients(self._module, optimizer)
        self._place(released, noise)
        if isinstance(optimizer, KnownNoiseOptimizer):
            optimizer.gradients_carry(noise)
        return noise

    def _checked_way(self) -> GradientWay:
        """Return the given way or the cheapest. Refuse a module that mixes rows in either case.

        Rows are looked at in full precision; what 16 bits do to a row at one place or another is looked at below.
        """
        cast = self._applied.autocast
        if cast is not None:
            cast.on = False
        result = gradient_way(self._module, self._loss, *self._units.like)
        if cast is not None:
            cast.on = True
        if isinstance(self._given, LayerFactors) and not isinstance(result, LayerFactors):
            raise InputError(
                "Expected a module whose layers have one row for each row of data, which LayerFactors needs.",
                argument="module",
            )
        way = self._given or result
        if self._rows_at_once > 1:
            self._apart = row_alignment(way, self._module, self._loss, *self._units.like)
        return way

    def _check_module(self) -> None:
        """Refuse other trained parameters than at the start; check the module again if its modes changed."""
        parts = parts_of(self._module)
        held = {id(p): p for part in parts for p in part._parameters.values() if p is not None}
        if [key for key, p in held.items() if p.requires_grad] != self._trained:
            raise InputError(
                "Expected the same trained parameters at every step, got others than at the start.", argument="module"
            )
        if self._rates != dropout_rates(parts):
            raise InputError(
                "Expected the same dropout rates at every step, got others than at the start.", argument="module"
            )
        if self._modes != modes(parts):
            self._way = self._checked_way()
            self._modes = modes(parts_of(self._module))

    def _plan(
        self, steps: int, n_units: int | None, units_share: float, state: dict[str, Any] | None
    ) -> list[StepShare]:
        """Fix the cost of every step. Release the number of units first if it is neither declared nor known."""
        session, rule = self._session, None if self._tables is None else self._tables.rule
        others = {} if n_units is not None else {"units": units_share}
        others |= {} if rule is None or rule.every_step else {"rows": rule.share}
        touched = rule.share if rule is not None and rule.every_step else None
        plan, shares = plan_steps(session, steps, self._sampling, others, touched)
        if state is not None:
            known = float(state["expected"]) / self._sampling
        elif n_units is None and self._processes.number > 0:
            known = math.nan  # the first process tells it
        elif n_units is None:
            counted = number_of_units(len(self._units), self._units.neighbours)
            known = max(1.0, float(session.release(self._units.counted, counted, plan.one("units"))[0]))
        else:
            known = float(n_units)
        if n_units is not None:
            session.declare_users(n_units, self._units.name)
        self._expected = known * self._sampling if state is None else float(state["expected"])
        if self._tables is not None and state is not None:
            self._tables.select(state["tables"])
        elif self._tables is not None:
            self._tables.select(self._tables.selected if touched is not None else self._counted_rows(plan.one("rows")))
        return shares

    def _counted_rows(self, share: Share) -> Tensor:
        """Release how many units look up each row of the tables, and return the rows that enough of them do."""
        assert self._tables is not None
        counts, chosen = self._row_counts(None), None
        if self._processes.number == 0:
            chosen = self._tables.enough(self._session.release(Purpose.TABLE_ROWS, counts, share), 1.0 / share.mu)
        rows: Tensor = self._processes.tell(chosen)
        return rows

    def _row_counts(self, sample: Sample | None) -> BoundedSum:
        """Return how many units of the sample look up each row of the tables, hidden."""
        assert self._tables is not None
        counts = RowCounts(self._tables.n_rows, self._units.neighbours)
        for inputs, _, bounds, real in self._passes(self._taking_part(sample)):
            counts.add(*self._tables.looked_up(inputs, bounds, real))
        if self._processes.size > 1:
            counts.add_up_over(self._processes.add_up)
        return counts.sealed()

    def _noise(self, stddev: float, scales: list[Tensor] | None) -> AddedNoise:
        noise = noise_of(stddev, self._expected, self._parameters, scales)
        return noise if self._tables is None else self._tables.only_there(noise)

    def _released(self, form: Form, share: StepShare) -> NDArray[Any]:
        """Release the sum of a step; with counts of table rows before it, if rows are chosen at every step."""
        releases, tables = StepReleases(self._session, self._processes), self._tables
        if share.rows is None:
            return releases.gradient(self._made, form, share)
        assert tables is not None
        stddev = 1.0 / share.rows.mu

        def choose(seen: Any) -> Tensor:
            tables.select(tables.enough(seen, stddev) if self._processes.number == 0 else seen)
            return tables.selected

        return releases.gradient_at_rows(self._made, self._row_counts, choose, form, share)

    def _taking_part(self, sample: Sample | None) -> NDArray[np.int64]:
        """Return which units of this process are in the sample; without a sample, all of them."""
        if sample is None:
            return self._everybody
        return self._everybody[sample.members(self._units.keys)[self._everybody]]

    def _sum(self, units: NDArray[np.int64], scales: list[Tensor] | None) -> BoundedSum:
        """Return the hidden sum of these units' clipped gradients, with that of the other processes."""
        placed = None if scales is None else [s.to(p.device) for s, p in zip(scales, self._parameters, strict=True)]
        make = partial(
            GradientTotal, self.clip_norm, self._shapes, scales=placed, counted=self._clip.counted, dtype=self._dtype,
            losses=None if self._losses is None else (self._losses.largest, self._losses.share),
            neighbours=self._units.neighbours,
        )  # fmt: skip
        total = together(self._processes, lambda: self._formed(make, units))
        if self._processes.size > 1:
            total.add_up_over(self._processes.add_up)
        return total.sealed()

    def _formed(self, make: Callable[[], GradientTotal], units: NDArray[np.int64]) -> GradientTotal:
        """Return the sum of these units' clipped gradients in this process."""
        if self._replayable(units):
            ((inputs, targets, bounds, real),) = self._passes(units)
            assert isinstance(self._way, LayerFactors)
            assert self._held is not None
            with unchanged(self._module):
                passed = self._way.passed(inputs, targets)
            return self._held.sum_of(make, self._way, passed, inputs, bounds, real)
        total = make()
        self._add(total, units)
        return total

    def _replayable(self, units: NDArray[np.int64]) -> bool:
        """Whether a step is one pass over everybody on one GPU, of which nothing but clipped gradients is added up."""
        on_gpu = device_copies.asynchronous(self._device) and isinstance(self._way, LayerFactors)
        if not on_gpu or units is not self._everybody or self._processes.size > 1:
            return False
        if torch.are_deterministic_algorithms_enabled():  # a checkpoint goes on launch by launch
            return False
        if self._tables is not None or self._losses is not None or self._scaling is not None:
            return False
        on_one = all(p.device == self._device for p in self._parameters)
        return on_one and not self._clip.counted and not self._mean_of_rows and len(self._pieces(units)) == 1

    def _add(self, total: GradientTotal, units: NDArray[np.int64]) -> None:
        """Add the clipped gradients of these units."""
        for inputs, targets, bounds, real in self._passes(units):
            with unchanged(self._module):
                blocks = self._way.blocks(inputs, targets, bounds)
            if self._tables is not None:
                blocks = self._tables.without_others(blocks)
            losses = None
            if self._losses is not None:
                losses = losses_of_units(self._module, self._loss, inputs, targets, bounds)
            total.add(means_of_units(blocks, bounds) if self._mean_of_rows else blocks, real, losses)

    def _passes(self, units: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """Yield inputs, targets, offsets and real units (None: all); always as many rows if products are coarse."""
        pieces, way = self._pieces(units), self._way
        only = units is self._everybody and len(pieces) == 1 and not device_copies.asynchronous(self._device)
        alone = self._held if only and isinstance(way, LayerFactors) and way.only_reads else None
        for rows, filled in pieces:
            yield *self._copied.of(rows, filled, alone), filled.offsets, filled.real

    def _pieces(self, units: NDArray[np.int64]) -> list[tuple[Any, PaddedPass]]:
        """Return which rows each pass takes, and its padding; for full batches the same every time."""
        held, key = self._held, (self._apart, self._units.version)
        if held is not None and held.units is units and held.key == key:
            return held.pieces
        coarse = self._applied.autocast is not None or coarse_products(self._module, self._device)
        full = {"full": 16 * -(-self._rows_at_once // 16)} if coarse else {}
        found = self._units.pieces(units, self._rows_at_once)
        pieces = [(rows, padded(offsets, self._apart, **full).at(self._device)) for rows, offsets in found]
        if units is self._everybody:
            self._held = HeldPasses(units, key, pieces)
        return pieces

    def _place(self, released: NDArray[Any], noise: AddedNoise) -> None:
        """Put the mean gradient into `grad`, its square into the scaling, and the count into the clip rule."""
        for parameter, gradient in zip(self._parameters, self._means(released), strict=True):
            parameter.grad = gradient
        if self._scaling is not None:
            variances = [noise.variance_of(p) for p in self._parameters]
            mean = [part / self._expected for part in self._parts(released)]
            self._scaling.observe(mean, [v.double().cpu() if isinstance(v, Tensor) else v for v in variances])
        if self._clip.counted:
            within = float(released[sum(map(math.prod, self._shapes))]) / self._expected + 0.5
            self.clip_norm = self._clip.following(self.clip_norm, within)
        if self._losses is not None:
            self.released_loss = float(released[-1]) / self._expected + self._losses.largest / 2

    def _means(self, released: NDArray[Any]) -> list[Tensor]:
        """Return the gradient of each parameter; as views of one tensor where all parameters are alike."""
        if self._tables is None and self._alike:
            like = self._parameters[0]
            if self._dtype is not None and self._processes.size == 1 and like.device.type == "cpu":
                released /= released.dtype.type(self._expected)  # nobody else needs what is changed here
                return self._parts(released)
            self._sent, beside = released, device_copies.asynchronous(like.device)
            held = torch.from_numpy(released).to(like.device, like.dtype, copy=True, non_blocking=beside)
            sizes = list(map(math.prod, self._shapes))
            parts = held.div_(self._expected)[: sum(sizes)].split_with_sizes(sizes)
            return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        parts = self._parts(released)
        placed = parts if self._tables is None else self._tables.spread_out(parts)
        return [
            part.to(parameter.device, parameter.dtype, copy=True).div_(self._expected)
            for parameter, part in zip(self._parameters, placed, strict=True)
        ]

    def _parts(self, released: NDArray[Any]) -> list[Tensor]:
        """Return what was released of each parameter, as views."""
        ends = [0, *accumulate(map(math.prod, self._shapes))]
        places = zip(ends, ends[1:], self._shapes, strict=False)
        return [torch.from_numpy(released[first:last].reshape(shape)) for first, last, shape in places]

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Of what is released of each parameter."""
        return self._whole if self._tables is None else self._tables.shapes
