"""DP-SGD on an encoder: per-user gradients by every route, their clip, the guarantee, and sampled users."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apportion.auditing import audit
from apportion.data import Interactions
from apportion.data.sparse_rows import ColumnRange, SparseRows
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.evaluation import GlobalMean, rmse
from apportion.privacy import Budget, SampledGaussian, SeededNoise, Session
from apportion.published.public_features import IdEncoder
from apportion.published.public_features.encoders import FeatureBatch
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.public_features.minimisation import EncoderMinimisation
from apportion.published.public_features.training import CommonEncoder
from apportion.published.public_features.user_gradients import DenseEncoder, UserBatch, user_gradients
from apportion.published.skew import AlternatingMinimisation

from encoder_cases import (
    assert_audited,
    best_ratios,
    estimator,
    feature_driven_ratings,
    features_of,
    linear,
    two_layers,
)
from private_estimators import at_the_bound
from strategies import interactions, random_interactions

N_ITEMS = 20


class Bent(nn.Module):
    """An encoder that no closed form is known for."""

    def __init__(self, width):
        super().__init__()
        self.inner = two_layers(width, seed=3)

    def forward(self, batch):
        return torch.tanh(self.inner(batch))


def own_module(width):
    torch.manual_seed(5)
    return DenseEncoder(nn.Sequential(nn.Linear(9, 6), nn.Tanh(), nn.Linear(6, width)))


def ids(width):
    torch.manual_seed(2)
    return IdEncoder(N_ITEMS, width)


ENCODERS = {
    "id": ids,
    "linear": linear,
    "two layers": two_layers,
    "common": CommonEncoder,
    "own, by Opacus": own_module,
    "own, by a pass per user": Bent,
}


def some_users(seed=0, n_users=7):
    data = random_interactions(seed, n_users=n_users, n_tasks=N_ITEMS)
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n_users, 3))
    return UserBatch(rng.standard_normal(data.n_observations), data.users, data.tasks, vectors, N_ITEMS)


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_every_route_gives_the_gradient_that_autograd_finds_for_each_user_alone(make):
    encoder, rows, users = make(3), features_of(N_ITEMS), some_users()
    found = user_gradients(encoder, rows, users)
    assert found.shape == (7, sum(p.numel() for p in encoder.parameters()))
    for user in range(7):
        encoder.zero_grad()
        mine = users.owner == user
        vectors = encoder(FeatureBatch.of(rows))[torch.tensor(users.tasks[mine].astype(np.int64))]
        pull = torch.tensor(users.coefficients[mine, None] * users.vectors[user], dtype=torch.float32)
        (vectors * pull).sum().backward()
        grads = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in encoder.parameters()]
        expected = torch.cat([g.reshape(-1) for g in grads]).numpy()
        np.testing.assert_allclose(found[user], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def make(encoder=two_layers, kind="ratings", **arguments):
    def made(**given):
        width = 3 if kind == "ratings" else 2
        chosen = {"steps": 2, "clip": 0.01, **arguments}
        return estimator(EncoderGradient(encoder(width, sparse=False), **chosen), kind=kind, **given)

    return made


def opaque(width, sparse):
    return own_module(width)


CASES = {
    "all users": make(),
    "with vectors of their own": make(own_step=1.0, own_clip=0.05),
    "clicks": make(linear, "clicks"),
    "through Opacus": make(opaque),
    "the head alone": make(head=0.4, own_step=1.0, own_clip=0.05),
}


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
@settings(max_examples=5)
@given(data=interactions(), user=st.integers(0, 11), epsilon=st.sampled_from([0.5, 50.0]))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(made, data, user, epsilon):
    assert_audited(made, data, user, epsilon=epsilon, seed=user, least=5)


@settings(max_examples=3)
@given(data=interactions(), user=st.integers(0, 11))
def test_gradients_of_a_sample_of_users_do_not_move_by_more_than_their_sensitivity_either(data, user):
    assert_audited(make(sampling=0.7, own_step=1.0), data, user, epsilon=50.0, seed=user, least=10)


@pytest.mark.parametrize("name", ["with vectors of their own", "clicks"])
def test_a_user_at_the_bound_moves_every_gradient_by_nine_tenths_of_it(name):
    data, extreme = at_the_bound()
    best = best_ratios(CASES[name], data, extreme, [0])
    assert max(best.values()) <= 1 + 1e-9
    gradients = {release: ratio for release, ratio in best.items() if "gradient" in release}
    assert len(gradients) >= 4
    assert min(gradients.values()) > 0.9


@pytest.mark.slow
def test_samples_of_users_are_accounted_as_such_and_spend_the_budget():
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(1))
    data = random_interactions(5)
    make(sampling=0.7, own_step=1.0)(features=features_of(data.n_tasks)).fit(data, session=session)
    sampled = [release for release in session.statement().releases if release.mechanism == SampledGaussian.key]
    assert len(sampled) == 8  # two rounds of two steps, each for the encoder and for the items' own vectors
    assert 1 - 1e-9 <= session.spent <= 1.0


def test_where_privacy_is_cheap_the_encoder_learns():
    data, rows = feature_driven_ratings(600, 60)
    train, test = data.split_by_value(np.random.default_rng(0), (0.8, 0.2))
    update = EncoderGradient(two_layers(4, sparse=False), steps=15, clip=2.0, rate=0.05)
    fitted = estimator(
        update,
        features=rows,
        epsilon=300.0,
        dimension=3,
        rounds=3,
        user_norm=1.5,
        noise=SeededNoise(0),
        engine=LocalEngine(np.float64),
    ).fit(train)
    plain = rmse(GlobalMean().fit(train).predict(train, test), test).overall
    assert rmse(fitted.model_.predict(train, test), test).overall < 0.85 * plain


@pytest.mark.parametrize(("decay", "expected"), [(0.0, [0.1] * 4), (0.5, [0.1, 0.1 / 2**0.5, 0.1 / 3**0.5, 0.05])])
def test_steps_of_the_encoder_shrink_with_all_that_were_taken_in_the_fit(decay, expected):
    """A first step of Adam moves every number that has a gradient by its learning rate."""
    seen = []

    class Noting(EncoderGradient):
        def __call__(self, *given):
            before = self.encoder.mean.detach().clone()
            found = super().__call__(*given)
            seen.append(float((self.encoder.mean.detach() - before).abs().max()))
            return found

    update = Noting(CommonEncoder(3), steps=1, rate=0.1, decay=decay)
    estimator(update, features=features_of(9), rounds=4, noise=SeededNoise(0)).fit(random_interactions(0))
    np.testing.assert_allclose(seen, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "at least 1 gradient step per round, got 0"),
        ({"sampling": 1.5}, r"sampling probability in \(0, 1\], got 1.5"),
        ({"rate": 0.0}, r"learning rate > 0 and a decay >= 0, got 0.0 and 0.0"),
        ({"decay": -1.0}, r"learning rate > 0 and a decay >= 0, got 0.02 and -1.0"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(InputError, match=message):
        estimator(EncoderGradient(linear(3, sparse=False), **arguments), features=features_of(9)).fit(
            random_interactions(0)
        )


def test_an_encoder_too_wide_for_gradients_per_user_is_refused():
    wide = nn.Linear(3000, 3000)
    with pytest.raises(InputError, match="at most 4194304 parameters for gradients per user, got"):
        estimator(EncoderGradient(Wide(wide)), features=features_of(9)).fit(random_interactions(0))


class Wide(nn.Module):
    """More parameters than a gradient per user may have."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.small = layer, linear(3)

    def forward(self, batch):
        return self.small(batch)


class Lengths(nn.Module):
    """Divides by norms over an axis that depends on how many rows there are."""

    def forward(self, x):
        return nn.functional.normalize(x)


class Centred(nn.Module):
    """Takes the mean of all rows away."""

    def forward(self, x):
        return x - x.mean(dim=-2, keepdim=True)


MIXING = {
    "normalised": Lengths,
    "centred": Centred,
    "softmax over rows": lambda: nn.Softmax(dim=1),
    "batch normalisation": lambda: nn.BatchNorm1d(8, affine=False, track_running_stats=False),
}


@pytest.mark.parametrize("layer", MIXING.values(), ids=MIXING)
def test_layers_that_mix_rows_do_not_mix_users(layer):
    """Everybody but the first user has one row: where users lie side by side its leaving moves what the others add."""
    n_items, rng = 30, np.random.default_rng(0)
    x = rng.standard_normal((n_items, 4))
    x[0] *= 6  # which a shorter history would be filled up with
    places = np.repeat(np.arange(n_items), 4), np.tile(np.arange(4), n_items)
    features = SparseRows.from_entries(*places, x.ravel(), n_items, (ColumnRange("x", 0, 4),))
    rows = [(0, task, 5.0 if task % 2 else 1.0) for task in range(n_items)]
    rows += [(user, 1 + user % 5, float(1 + 4 * (user % 2))) for user in range(1, 300)]
    data = Interactions.from_arrays(*zip(*rows, strict=True), task_ids=np.arange(n_items))

    def fit(some, session):
        torch.manual_seed(0)
        encoder = DenseEncoder(nn.Sequential(nn.Linear(4, 8), layer(), nn.Linear(8, 3)))
        made = EncoderMinimisation(
            update=EncoderGradient(encoder, steps=1, clip=1e-4), features=features, dimension=2, rounds=1, user_norm=0.5
        )
        made.fit(some, session=session)
        return {}

    findings = audit(fit, data, 0, {"budget": Budget(50.0, 1e-5), "noise": SeededNoise(1)})
    assert max(finding.ratio for finding in findings) <= 1 + 1e-6


def test_private_passes_leave_nothing_in_what_is_published():
    """How many passes there were follows from how many rows there are: no counter and no random number may tell."""

    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = two_layers(3, seed=3)
            self.norm = nn.BatchNorm1d(3)
            self.drop = nn.Dropout(0.5)

        def forward(self, batch):
            return self.drop(self.norm(self.inner(batch)))

    encoder, rows = Remembering(), features_of(N_ITEMS)
    torch.manual_seed(7)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    generator = torch.random.get_rng_state()
    first = user_gradients(encoder, rows, some_users(0))
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    np.testing.assert_array_equal(first, user_gradients(encoder, rows, some_users(0)))


def test_gradients_of_encoders_have_no_exact_form():
    made = estimator(EncoderGradient(linear(3), steps=1), features=features_of(N_ITEMS), engine=None, noise="exact")
    with pytest.raises(InputError, match="no exact form"):
        made.fit(random_interactions(1, n_tasks=N_ITEMS))


def test_updates_with_an_encoder_are_for_encoder_minimisation():
    plain = AlternatingMinimisation(update=EncoderGradient(linear(3), steps=1), dimension=2, rounds=1)
    with pytest.raises(InputError, match="EncoderMinimisation"):
        plain.fit(random_interactions(1, n_tasks=N_ITEMS))
