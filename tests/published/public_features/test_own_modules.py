"""Modules of one's own as encoders: dropout, running averages, precision, frozen parts, tables, plain tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.data import Interactions
from apportion.data.sparse_rows import SparseRows
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.published.public_features import (
    DenseEncoder,
    EncoderGradient,
    EncoderStatistics,
    FeatureBatch,
    TwoLayerEncoder,
)
from apportion.published.public_features.convex import ConvexMinimisation, EncoderConvex
from apportion.published.public_features.joint import JointGradient
from apportion.published.public_features.training import Training, encode
from apportion.published.public_features.user_gradients import UserBatch, user_gradients

from encoder_cases import GROUPS, estimator, feature_driven_ratings, features_of, linear, two_layers
from strategies import random_interactions

FEW = Training(epochs=3, batch_size=4)
UPDATES = {
    "statistics": lambda encoder: EncoderStatistics(encoder, FEW, own=False),
    "gradient": lambda encoder: EncoderGradient(encoder, steps=2),
}
BOTH = pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)


class Own(nn.Module):
    """A module over dense features, with a layer in between."""

    def __init__(self, between=None, width=3):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between, self.last = nn.Linear(9, 8), between or nn.Identity(), nn.Linear(8, width)

    def forward(self, batch):
        return self.last(self.between(self.first(batch.to_sparse().to_dense())))


def fitted(update, **arguments):
    made = estimator(update, features=features_of(9), epsilon=50.0, noise=SeededNoise(0), engine=LocalEngine())
    return made.set_params(**arguments).fit(random_interactions(4))


@BOTH
@pytest.mark.parametrize("layer", [lambda: nn.Dropout(0.5), lambda: nn.BatchNorm1d(8)], ids=["dropout", "batch norm"])
def test_what_is_published_is_what_the_encoder_says_when_it_is_not_training(update, layer):
    fit = fitted(update(Own(layer())))
    assert not fit.encoder_.training
    batch = FeatureBatch.of(features_of(9))
    with torch.no_grad():
        said = fit.encoder_(batch).numpy()
    np.testing.assert_allclose(fit.model_.vectors, said[:, 1:], atol=1e-6)
    np.testing.assert_array_equal(encode(fit.encoder_, batch), encode(fit.encoder_, batch))


def test_encoding_leaves_every_layer_in_the_mode_it_was_in():
    encoder = Own(nn.Dropout(0.5))
    encoder.between.eval()
    encode(encoder, FeatureBatch.of(features_of(9)))
    assert (encoder.training, encoder.between.training, encoder.last.training) == (True, False, True)


def test_running_averages_follow_the_items_under_gradients_too():
    encoder = Own(nn.BatchNorm1d(8))
    fit = fitted(EncoderGradient(encoder, steps=3))
    assert int(fit.encoder_.between.num_batches_tracked) == 6  # two rounds of three steps
    assert not torch.equal(fit.encoder_.between.running_mean, torch.zeros(8))


@BOTH
@pytest.mark.parametrize("make", [lambda: Own().double(), lambda: linear(3).double(), lambda: two_layers(3).double()])
def test_modules_in_double_precision_are_trained_as_such(update, make):
    fit = fitted(update(make().double()))
    assert {held.dtype for held in fit.encoder_.parameters()} == {torch.float64}
    assert np.isfinite(fit.model_.vectors).all()


@BOTH
def test_frozen_parameters_stay_and_the_others_move(update):
    encoder = Own()
    encoder.first.requires_grad_(False)
    fit = fitted(update(encoder))
    assert torch.equal(fit.encoder_.first.weight, encoder.first.weight)
    assert not torch.equal(fit.encoder_.last.weight, encoder.last.weight)


@pytest.mark.parametrize("part", ["table", "dense"])
def test_gradients_of_the_librarys_encoders_leave_out_what_is_frozen(part):
    from test_gradient import N_ITEMS, some_users

    whole, frozen = two_layers(3, sparse=False), two_layers(3, sparse=False)
    getattr(frozen, part).requires_grad_(False)
    rows, users = features_of(N_ITEMS), some_users()
    both = user_gradients(whole, rows, users)
    size = whole.table.weight.numel()
    kept = both[:, size:] if part == "table" else both[:, :size]
    np.testing.assert_array_equal(user_gradients(frozen, rows, users), kept)


def test_an_encoder_that_is_made_of_a_known_one_has_gradients_of_its_own():
    from test_gradient import N_ITEMS, some_users

    class Squashed(TwoLayerEncoder):
        def forward(self, batch):
            return torch.tanh(super().forward(batch))

    torch.manual_seed(0)
    encoder, rows, users = Squashed(GROUPS, 3, sparse=False), features_of(N_ITEMS), some_users()
    found = user_gradients(encoder, rows, users)
    mine = users.owner == 0
    vectors = encoder(FeatureBatch.of(rows))[torch.tensor(users.tasks[mine].astype(np.int64))]
    (vectors * torch.tensor(users.coefficients[mine, None] * users.vectors[0], dtype=torch.float32)).sum().backward()
    expected = torch.cat([held.grad.reshape(-1) for held in encoder.parameters()]).numpy()
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-6)


class Table(nn.Module):
    """A table that is not one of torch's modules, with a sparse gradient."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.held, self.shift = nn.Parameter(0.1 * torch.randn(9, 3)), nn.Parameter(torch.zeros(3))

    def forward(self, batch):
        summed = nn.functional.embedding_bag(
            batch.indices, self.held, batch.offsets, mode="sum", per_sample_weights=batch.values, sparse=True
        )
        return summed + self.shift


def test_a_table_of_ones_own_with_sparse_gradients_is_trained():
    encoder = Table()
    fit = fitted(EncoderStatistics(encoder, FEW))
    assert not torch.equal(fit.encoder_.held, encoder.held)
    assert not torch.equal(fit.encoder_.shift, encoder.shift)


class Wants(nn.Module):
    """A module that takes a plain tensor."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(9, 3)

    def forward(self, x):
        return self.layer(x)


class Wide(nn.Module):
    """More parameters than a gradient per user may have."""

    def __init__(self):
        super().__init__()
        self.layer, self.small = nn.Linear(2100, 2000), linear(3)

    def forward(self, batch):
        return self.small(batch)


REFUSED = {
    "plain tensor": (EncoderStatistics(Wants()), r"maps a FeatureBatch to vectors; Wants raised .* in DenseEncoder"),
    "plain tensor, gradient": (EncoderGradient(Wants()), "maps a FeatureBatch to vectors; Wants raised"),
    "wrong width": (EncoderStatistics(Own(width=7)), "an encoder with 3 outputs for these settings, got 7"),
    "nothing to train": (EncoderStatistics(Own().requires_grad_(False)), "with parameters to train, got Own"),
    "head": (EncoderStatistics(linear(3), head=-1.0), "fraction of items above 0 and at most 1 for the head, got -1"),
    "head, gradient": (EncoderGradient(linear(3), head=0.0), "fraction of items above 0 and at most 1"),
    "too wide": (EncoderGradient(Wide()), "at most 4194304 parameters"),
    "resamples": (EncoderConvex(linear(3), resamples=2), "one release of the statistics per round"),
}


@pytest.mark.parametrize(("update", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_fitted_is_refused_before_anything_is_spent(update, message):
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    cls = {"cls": ConvexMinimisation} if isinstance(update, EncoderConvex) else {}
    with pytest.raises(InputError, match=message):
        estimator(update, **cls, features=features_of(9)).fit(random_interactions(0), session=session)
    assert session.spent == 0


def test_a_module_that_takes_a_plain_tensor_serves_when_it_is_wrapped():
    data, rows = feature_driven_ratings(200, 30)
    made = estimator(EncoderStatistics(DenseEncoder(Wants()), FEW), features=rows, noise=SeededNoise(0))
    assert np.isfinite(made.fit(data).model_.vectors).all()


def hooked_forward(part):
    part.register_forward_hook(lambda layer, given, output: output - output.mean(0, keepdim=True))


def hooked_backward(part):
    part.register_full_backward_hook(lambda layer, inward, outward: (inward[0] / (1e-9 + inward[0].norm()),))


def hooked_before_backward(part):
    part.register_full_backward_pre_hook(lambda layer, outward: (outward[0] / (1e-9 + outward[0].norm()),))


def replaced(part):
    part.forward = lambda rows: torch.tanh(rows) - torch.tanh(rows).mean(0, keepdim=True)


@pytest.mark.parametrize("change", [hooked_forward, hooked_backward, hooked_before_backward, replaced])
def test_a_user_has_the_same_gradient_alone_and_in_company_whatever_is_hooked_in(change):
    """Known layers let users lie side by side in one backward pass; a layer that was changed is not known any more."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3))
    change(module[1])
    rng = np.random.default_rng(0)
    owner, tasks, factors = np.repeat([0, 1, 2], 3), np.tile([0, 4, 7], 3), rng.standard_normal(9)
    vectors = rng.standard_normal((3, 3))
    rows, encoder = features_of(9), DenseEncoder(module)
    together = user_gradients(encoder, rows, UserBatch(factors, owner, tasks, vectors, 9))
    for user in range(3):
        mine = owner == user
        batch = UserBatch(factors[mine], owner[mine] - user, tasks[mine], vectors[[user]], 9)
        np.testing.assert_allclose(together[user], user_gradients(encoder, rows, batch)[0], rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_who_is_there_is_not_told_by_a_refusal_where_an_encoder_says_infinity():
    class Steep(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(9, 3)

        def forward(self, rows):
            return self.last(rows).where(rows[..., :1] <= 1.5, torch.inf)

    entries = np.repeat(np.arange(6), 2), np.tile([0, 5], 6), [*[1.0] * 10, 2.0, 1.0]
    rows = SparseRows.from_entries(*entries, 6, GROUPS)
    for item in (4, 5):  # the last item's vector is infinite, and only one user has it
        users, items = ["a"] * 3 + ["b"] * 3 + ["c"], [0, 1, 2, 1, 2, 3, item]
        data = Interactions.from_arrays(users, items, [1, 5, 3, 4, 2, 5, 3], task_ids=np.arange(6))
        update = EncoderGradient(DenseEncoder(Steep()), steps=1, own_step=1.0)
        fitted = estimator(update, JointGradient, features=rows, noise=SeededNoise(0)).fit(data)
        assert np.isfinite(fitted.model_.popularity).all()
