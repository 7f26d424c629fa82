"""Bugs of learning with public features: users' gradients, item statistics, what private passes leave in an encoder."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
from torch import nn

from apportion.allocation import Expected
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.privacy import ADD_REMOVE, Budget, Session, bounds
from apportion.privacy.contributions import TaskGrams
from apportion.published.public_features import gradient as sending
from apportion.published.public_features import user_gradients as passes
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.public_features.statistics import release_statistics
from held_values import round_of
from planted.cases import Case, likelihood, patched, replayed, replayed_as_it_is
from planted.recommenders import unclipped_parts
from private_torch import audit_encoder, encoders, gradient, statistics

from encoder_cases import two_layers
from paper_errata import WrongSums, with_diagonal

EPSILONS = (5.0, 100.0)
by_gradient, by_statistics = encoders(gradient), encoders(statistics)

# -- E8: the penalty of an item's vector, once for each example --

PENALTY = 0.5


class PenaltyOfEveryExample(WrongSums):
    """Matrices of the items with λ I for every observation inside them."""

    kind = TaskGrams

    def changed(self, users, about, right):
        return with_diagonal(right, PENALTY * users.by_task.counts)


# -- E9: statistics drawn afresh for every batch of items, and paid for once --

BATCHES, NORM, LABEL = 16, 0.5, 0.7


def drawn_for_every_batch(right):
    """What was charged once is drawn for each of sixteen batches; their mean has all that an attacker can use."""
    return lambda self, pending: np.mean([right(self, pending) for _ in range(BATCHES)], axis=0)


def item_statistics(data, session):
    """The statistics of one round, of users whose vectors and labels are at their bounds."""
    vectors, labels = np.tile([NORM, 0.0], (data.n_users, 1)), np.full(data.n_observations, LABEL)
    items = np.zeros((data.n_tasks, 2))
    about = round_of(data, vectors, labels, Expected(np.ones(2), np.ones(2)), items, norm=NORM)
    plan = session.plan(matrices=0.5, vectors=0.5)
    found = release_statistics(
        about, session, LocalEngine(np.float64), (plan.one("matrices"), plan.one("vectors")), LABEL
    )
    return {"matrices": found.matrices, "vectors": found.vectors}


def audit_statistics(*, wrong):
    """With and without a user of one item, by what is drawn."""
    tasks = np.array([0, 1, 0, 1, 0])
    data, fewer = (
        Interactions.from_arrays(np.arange(n), tasks[:n], np.full(n, 4.0, np.float32), task_ids=np.arange(2))
        for n in (5, 4)
    )
    made = drawn_for_every_batch(Session._draw) if wrong else Session._draw
    with mock.patch.object(Session, "_draw", made):
        return likelihood(item_statistics, data, fewer, Budget(4.0, 1e-5), ADD_REMOVE, draws=300)


# -- what private passes leave behind --


class Counting(nn.Module):
    """An encoder that no closed form is known for, and that counts its passes."""

    def __init__(self, width):
        super().__init__()
        self.inner = two_layers(width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, batch):
        return self.norm(self.inner(batch))


def counting(width):
    return EncoderGradient(Counting(width), steps=1, clip=0.01)


def in_the_encoder_itself(_right):
    """Private passes run in the encoder that is published, as it is, not in a copy of it in evaluation mode."""
    return SimpleNamespace(deepcopy=lambda encoder: SimpleNamespace(eval=lambda: encoder))


PLANTED = {
    ("no clip of users' gradients in an encoder", "E2"): (by_gradient, bounds.Parts, "clipped", unclipped_parts),
}


def counted_passes():
    """What users are sent is the encoder itself, and they pass their gradients through it as it is."""
    sent = SimpleNamespace(deepcopy=lambda encoder: encoder)
    with mock.patch.object(sending, "copy", sent):
        return patched(
            encoders(counting), passes, "copy", in_the_encoder_itself, epsilons=EPSILONS, audit=audit_encoder
        )


def cases():
    """Every bug of this file."""
    twin = partial(replayed_as_it_is, encoders(counting), EPSILONS, audit_encoder)
    yield Case("private passes counted in the encoder", "habit", "replay", counted_passes, twin)
    for (name, source), (make, *place) in PLANTED.items():
        wrong = partial(patched, make, *place, epsilons=EPSILONS, audit=audit_encoder)
        yield Case(name, source, "replay", wrong, partial(replayed_as_it_is, make, EPSILONS, audit_encoder))
    penalised = encoders(statistics, engine=PenaltyOfEveryExample(np.float64, chunk=17))
    yield Case(
        "penalty of every example in the items' matrices", "E8", "replay",
        partial(replayed, penalised, EPSILONS, audit_encoder),
        partial(replayed_as_it_is, by_statistics, EPSILONS, audit_encoder),
    )  # fmt: skip
    wrong, honest = (partial(audit_statistics, wrong=value) for value in (True, False))
    yield Case("statistics drawn for every batch, paid for once", "E9", "likelihood", wrong, honest)
