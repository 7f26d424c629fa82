"""Private estimators that need torch, each once in a small form: encoders of public features, and trained modules."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import nn

from apportion.auditing import audit
from apportion.data import Interactions
from apportion.losses import PseudoHuber
from apportion.privacy import Budget, SeededNoise
from apportion.published.public_features.cmf import CollectiveFactorisation
from apportion.published.public_features.convex import ConvexMinimisation, EncoderConvex
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.public_features.joint import JointGradient
from apportion.published.public_features.minimisation import EncoderMinimisation
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.training import Training
from apportion.training import DPSGD, DPAdamBC, PrivateTrainer, QuantileClip, ReleasedLoss, UserRows
from apportion.training.units import Units

from encoder_cases import estimator, features_of, linear, two_layers
from private_estimators import published, with_features

FEW = Training(epochs=2, batch_size=None)


def encoders(make_update, cls=EncoderMinimisation, width=3, **settings):
    """Estimators with such an update."""

    def make(**given):
        return estimator(make_update(width), cls, **{**settings, **given})

    return make


def statistics(width, **settings):
    return EncoderStatistics(two_layers(width), FEW, **settings)


def gradient(width, encoder=two_layers, **settings):
    return EncoderGradient(encoder(width, sparse=False), **{"steps": 2, "clip": 0.01, "own_clip": 0.05, **settings})


def huber(width):
    return EncoderConvex(two_layers(width), FEW, loss=PseudoHuber(0.5))


PRIVATE_ENCODERS = {
    "encoder, statistics": encoders(statistics),
    "encoder, statistics drawn twice": encoders(partial(statistics, resamples=2)),
    "encoder, statistics, clicks": encoders(partial(statistics, label_bound=1.0), width=2, kind="clicks"),
    "encoder, gradient": encoders(partial(gradient, own_step=1.0)),
    "encoder, gradient, clicks": encoders(partial(gradient, encoder=linear), width=2, kind="clicks"),
    "encoder, gradient of sampled users": encoders(partial(gradient, sampling=0.9, steps=1)),
    "encoder, convex loss": encoders(huber, ConvexMinimisation, value_range=(-1.0, 1.0)),
    "joint gradient": encoders(partial(gradient, steps=1), JointGradient),
    "collective factorisation": encoders(lambda width: CollectiveFactorisation()),
}


def audit_encoder(make, data, user, *, epsilon, seed):
    """Record and replay a fit; what it publishes includes the trained encoder."""

    def fit(some, session):
        made = make(features=features_of(some.n_tasks))
        fitted = made.fit(signed(some) if isinstance(made, ConvexMinimisation) else some, session=session)
        state = {} if fitted.encoder_ is None else fitted.encoder_.state_dict()
        return {**published(fitted.model_), **{name: held.numpy() for name, held in state.items()}}

    return audit(fit, data, user, {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed)})


def signed(data):
    """Values above 3 as 1, all others as -1."""
    values = np.where(data.values > 3, 1.0, -1.0).astype(np.float32)
    return Interactions.from_codes(data.users, data.tasks, values, user_ids=data.user_ids, task_ids=data.task_ids)


# -- modules trained by private gradients --


def squared(outputs, targets):
    """The loss of every row."""
    return (outputs[:, 0] - targets).square()


class Words(nn.Module):
    """Looks two words up in a table, by the first two inputs of a row, and sums over them."""

    def __init__(self, dropout=0.0, n_words=8):
        super().__init__()
        self.n_words = n_words
        self.table, self.out = nn.Embedding(n_words, 4), nn.Linear(4, 1)

    def forward(self, rows):
        words = (rows[:, :2].detach() * 1000).long() % self.n_words
        return self.out(self.table(words)).sum(1)


def network(dropout=0.0):
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 1))


def trainer(network=network, optimizer=DPSGD, dropout=0.0, narrow=False, **settings):
    """Trainers of a small network."""

    def make(**given):
        torch.manual_seed(0)
        module = network(dropout) if narrow else network(dropout).double()
        chosen = optimizer(module.parameters(), lr=0.05)
        defaults = {"epsilon": 2.0, "delta": 1e-5, "steps": 3, "rows_at_once": 40}
        return PrivateTrainer(module, chosen, squared, **{**defaults, **settings, **given})

    return make


PRIVATE_TRAINERS = {
    "trained module, DP-SGD": trainer(),
    "trained module, DP-AdamBC, sampled users": trainer(optimizer=DPAdamBC, sampling=0.5),
    "trained module, clip by a quantile": trainer(clip=QuantileClip(0.2)),
    "trained module, means of rows, declared number": trainer(mean_of_rows=True, n_units=12),
    "trained module, dropout, released loss": trainer(dropout=0.5, losses=ReleasedLoss(2.0, 0.1)),
    "trained module, a large table in float32": trainer(partial(Words, n_words=9000), narrow=True),
}


def rows_of(data):
    """Inputs, targets and owners of the rows of some interactions, from their ids and values alone."""
    held = with_features(data, logistic=False)
    inputs, targets = (torch.as_tensor(np.asarray(values, np.float64)) for values in (held.features, held.labels))
    return inputs, targets, np.asarray(data.user_ids.ids_of(data.users))


def units_of(data):
    """The same as users' rows. Reading refuses nobody at all, as everywhere; a training must not."""
    inputs, targets, owners = rows_of(data)
    if len(inputs):
        return UserRows(inputs, targets, owners)
    nobody = object.__new__(UserRows)
    Units.__init__(nobody, inputs, targets, np.zeros(1, np.int64), np.zeros((0, 2), np.uint64))
    return nobody


def audit_trainer(make, data, user, *, epsilon, seed):
    """Record and replay a training; what it publishes is the module, its noise and the statement."""

    def fit(some, session):
        trained = make().fit(units_of(some), session=session)
        return published_module(trained)

    return audit(fit, data, user, {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed)})


def published_module(trained):
    """Everything of a training that leaves with it."""
    state = {name: held.numpy().copy() for name, held in trained.module.state_dict().items()}
    return {**state, "noise": trained.noise_multiplier_, "statement": trained.statement_}


AUDITS = {
    **{name: partial(audit_encoder, make) for name, make in PRIVATE_ENCODERS.items()},
    **{name: partial(audit_trainer, make) for name, make in PRIVATE_TRAINERS.items()},
}
