"""Bugs of training by private gradients: whose gradient is clipped, what a batch is divided by, where noise goes."""

from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np
import torch

from apportion.auditing.hidden_values import raw_copy
from apportion.privacy import clipped_gradients
from apportion.privacy.clipped_gradients import RowCounts
from apportion.training import ReleasedLoss, TouchedRows
from apportion.training.dropout import with_numbers
from apportion.training.private_gradients import PrivateGradients
from apportion.training.units import Units
from planted.cases import Case, patched, replayed_as_it_is
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
    for (name, source), (make, *place) in PLANTED.items():
        wrong = partial(patched, make, *place, epsilons=EPSILONS, audit=audit_trainer)
        yield Case(name, source, "replay", wrong, partial(replayed_as_it_is, make, EPSILONS, audit_trainer))
