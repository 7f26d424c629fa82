"""Bugs of training by private gradients: whose gradient is clipped, what a batch is divided by, where noise goes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import nn

from apportion.auditing.hidden_values import raw_copy
from apportion.errors import InputError
from apportion.privacy import clipped_gradients
from apportion.privacy.clipped_gradients import RowCounts
from apportion.training import PrivateTrainer, ReleasedLoss, TouchedRows, TrainingCheckpoint, UserRows
from apportion.training import trainer as trainer_module
from apportion.training.dropout import with_numbers
from apportion.training.private_gradients import PrivateGradients
from apportion.training.units import Units
from planted.cases import Case, Verdict, patched, replayed_as_it_is
from private_torch import Words, audit_trainer, trainer

EPSILONS = (5.0, 100.0)
summed = trainer()
followed = trainer(steps=4)
dropping = trainer(dropout=0.5, losses=ReleasedLoss(1e-4, 0.5))
touching = trainer(Words, tables=TouchedRows(0.3, least=1.0))


def each_row_a_unit(right):
    """Rows are clipped one by one; a user with many rows has as many times the clip norm."""

    def wrong(self, units, rows_at_once):
        for rows, offsets in right(self, units, rows_at_once):
            yield rows, torch.arange(int(offsets[-1]) + 1)

    return wrong


def each_piece_a_unit(right):
    """A user's rows fall into two pieces of the batch, which are clipped one by one."""

    def wrong(self, units, rows_at_once):
        for rows, offsets in right(self, units, rows_at_once):
            middles = (offsets[1:] + offsets[:-1]) // 2
            yield rows, torch.cat([offsets, middles]).unique()

    return wrong


def realised_batch(right):
    """The mean is over the units that are there, whose number nobody noised."""

    def wrong(self, units, scales):
        self._expected = max(1.0, float(len(units)))
        return right(self, units, scales)

    return wrong


def noise_on_the_first_piece(right):
    """Of a batch in two pieces only the first gets noise; the second is added as it is."""

    def wrong(self, form, share):
        beside = []

        def first_piece(sample):
            kept, rest = np.array_split(self._taking_part(sample), 2)
            beside.append(raw_copy(self._sum(rest, None)))
            with mock.patch.object(self, "_taking_part", return_value=kept):
                return form(sample)

        return right(self, first_piece, share) + beside[0]

    return wrong


def clip_by_the_sum(right):
    """The clip norm follows the length of the sum before its noise."""

    def wrong(self, units, scales):
        found = right(self, units, scales)
        self.clip_norm = max(0.1, float(np.linalg.norm(raw_copy(found))) / self._expected)
        return found

    return wrong


def masks_by_place(right):
    """A row's dropout mask follows from its place among all rows, which moves when another user leaves."""

    def wrong(self, inputs, rows):
        return inputs if self._numbers is None else with_numbers(inputs, torch.arange(len(inputs)))

    return wrong


def losses_without_limit(right):
    """Losses are added up as they are, though their limit sets the noise."""
    return lambda losses, largest, real: float(losses.double()[real].sum())


def every_lookup_counts(right):
    """A user adds one to the count of a row for every look-up, instead of a vector of length 1."""

    def wrong(self, units, rows):
        np.add.at(self._counts, rows[rows >= 0], 1.0)

    return wrong


def rows_by_hidden_counts(right):
    """The rows of a table that are trained follow from the counts before their noise."""

    def wrong(self, sample):
        counts = right(self, sample)
        seen = torch.as_tensor(np.flatnonzero(raw_copy(counts)))
        self._tables.enough = lambda released, stddev: seen
        return counts

    return wrong


class Times(nn.Module):
    """A linear map times a number that its name does not say."""

    def __init__(self, by):
        super().__init__()
        self.inner, self.by = nn.Linear(2, 1), by
        torch.nn.init.zeros_(self.inner.weight)
        torch.nn.init.zeros_(self.inner.bias)

    def forward(self, rows):
        return self.by * self.inner(rows)


def second_step(by, file, copied=None):
    """Train from a checkpoint if there is one, and return the last released gradient; copy the checkpoint of step 1."""
    module, seen = Times(by), []

    def see(done):
        seen.append(module.inner.weight.grad.double().flatten().numpy().copy())
        if copied is not None and done.step == 1:
            shutil.copy(file, copied)

    rows = UserRows(torch.eye(2).repeat(20, 1), torch.ones(40, 1), np.arange(40) // 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    trainer = PrivateTrainer(module, optimizer, squared, epsilon=1.0, delta=1e-5, steps=2, n_units=20)
    trainer.fit(rows, checkpoint=TrainingCheckpoint(file, 1), callbacks=[see])
    return seen[-1], trainer.noise_multiplier_ / 20


def squared(outputs, targets):
    return (outputs - targets).square().sum(1)


def resumed(*, bound):
    """A step again from its checkpoint, with another module; planted: modules are known by their names."""
    named = mock.patch.object(trainer_module, "comparable_module", repr)
    with tempfile.TemporaryDirectory() as folder, contextlib.nullcontext() if bound else named:
        first, copied = Path(folder) / "run", Path(folder) / "after-1"
        one, stddev = second_step(0.1, first, copied)
        try:
            other, _ = second_step(0.11, copied)
        except InputError as refused:
            return Verdict(False, str(refused)[:120])
    apart = float(np.abs(one - other).max())
    return Verdict(apart < stddev / 10, f"gradients differ by {apart:.2g} where their noise is {stddev:.2g}")


PLANTED = {
    ("every look-up of a table row counts", "habit"): (touching, RowCounts, "add", every_lookup_counts),
    ("table rows chosen by counts before their noise", "habit"): (
        touching,
        PrivateGradients,
        "_row_counts",
        rows_by_hidden_counts,
    ),
    ("rows clipped instead of users", "habit"): (summed, Units, "pieces", each_row_a_unit),
    ("a user's rows clipped piece by piece", "habit"): (summed, Units, "pieces", each_piece_a_unit),
    ("gradients divided by the realised batch", "habit"): (summed, PrivateGradients, "_sum", realised_batch),
    ("noise on the first piece of a batch alone", "habit"): (
        summed,
        PrivateGradients,
        "_released",
        noise_on_the_first_piece,
    ),
    ("dropout masks by place among all rows", "habit"): (dropping, Units, "_with_numbers", masks_by_place),
    ("a released loss without its limit", "habit"): (
        dropping,
        clipped_gradients,
        "_around_the_middle",
        losses_without_limit,
    ),
    ("clip norm from sums before their noise", "habit"): (followed, PrivateGradients, "_sum", clip_by_the_sum),
}


def cases():
    """Every bug, with the training as it is for a twin."""
    name = "a checkpoint that knows modules by their names"
    yield Case(name, "habit", "noise", partial(resumed, bound=False), partial(resumed, bound=True))
    for (name, source), (make, *place) in PLANTED.items():
        wrong = partial(patched, make, *place, epsilons=EPSILONS, audit=audit_trainer)
        yield Case(name, source, "replay", wrong, partial(replayed_as_it_is, make, EPSILONS, audit_trainer))
