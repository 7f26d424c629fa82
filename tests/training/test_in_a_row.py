"""Known layers one behind another: seen without hooks or copies, and everything else is not taken for such a module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.auditing import audit_neighbour
from apportion.privacy import SeededNoise, Session, SystemNoise
from apportion.privacy.budget import Budget
from apportion.training import DPSGD, FixedClip, PrivateGradients, UserRows
from apportion.training.in_a_row import layers_in_a_row
from apportion.training.layers import LayerFactors
from training.small_models import cross_entropy


def words(vocabulary=11):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(vocabulary, 6), nn.Sequential(nn.Flatten(), nn.Linear(30, 8)), nn.Tanh(), nn.Linear(8, 5)
    )


class Same(nn.Sequential):
    """Behaves like its class, but may do anything."""


def test_layers_are_found_in_the_order_of_their_calls():
    module = words()
    kinds = [type(layer) for layer in layers_in_a_row(module)]
    assert kinds == [nn.Embedding, nn.Flatten, nn.Linear, nn.Tanh, nn.Linear]
    assert layers_in_a_row(module[3]) == [module[3]]


def hooked(module):
    module[1][1].register_forward_hook(lambda layer, given, output: None)


def hooked_before(module):
    module.register_forward_pre_hook(lambda layer, given: None)


def with_its_own_forward(module):
    module[2].forward = torch.tanh


def writing(module):
    module[2] = nn.ReLU(inplace=True)


def dropping(module):
    module[2] = nn.Dropout(0.5)


def rescaling(module):
    module[0] = nn.Embedding(11, 6, max_norm=1.0)


def parametrized(module):
    nn.utils.parametrizations.weight_norm(module[3])


@pytest.mark.parametrize(
    "change", [hooked, hooked_before, with_its_own_forward, writing, dropping, rescaling, parametrized]
)
def test_layers_that_might_do_something_else_are_no_such_row(change):
    module = words()
    change(module)
    assert layers_in_a_row(module) is None


def test_a_layer_that_is_called_twice_is_trained_in_the_general_way():
    torch.manual_seed(0)
    again = nn.Linear(6, 6)
    module, users = nn.Sequential(again, nn.Tanh(), again, nn.Linear(6, 5)), np.repeat(np.arange(8), 2)
    assert layers_in_a_row(module) is None
    x, y = torch.randn(16, 6), torch.randint(5, (16,))
    for one, wanted in zip(summed(module, x, y, users), clipped_by_hand(module, x, y, users), strict=True):
        assert torch.allclose(one, wanted, atol=1e-4)


def test_other_modules_and_hooks_for_all_modules_are_no_such_row():
    assert layers_in_a_row(Same(nn.Linear(2, 2))) is None
    assert layers_in_a_row(nn.GRU(2, 2)) is None
    hook = nn.modules.module.register_module_forward_hook(lambda layer, given, output: None)
    try:
        assert layers_in_a_row(nn.Linear(2, 2)) is None
    finally:
        hook.remove()
    assert layers_in_a_row(nn.Linear(2, 2)) is not None


@pytest.mark.parametrize("sizes", [[1] * 12, [3, 3, 3, 3], [1, 4, 0, 2, 5]])
def test_gradients_are_those_that_hooks_see(sizes):
    module, generator = words(), torch.Generator().manual_seed(1)
    x = torch.randint(11, (12, 5), generator=generator)
    y, offsets = torch.randint(5, (12,), generator=generator), torch.tensor([0, *np.cumsum(sizes)])
    plain = LayerFactors(module, cross_entropy).blocks(x, y, offsets)
    hooked(module)
    assert layers_in_a_row(module) is None
    other = LayerFactors(module, cross_entropy).blocks(x, y, offsets)
    for one, two in zip(plain, other, strict=True):
        assert torch.equal(one.each(), two.each())


def test_rows_are_as_they_were_after_a_step_and_a_hook_set_later_is_seen():
    module, x = nn.Linear(4, 3), torch.randn(32, 4)
    units = UserRows(x, torch.randint(3, (32,)), np.arange(32) // 2)
    before = x.clone()
    gradients = PrivateGradients(module, cross_entropy, units, Session(Budget(4.0, 1e-5)), steps=3, n_units=16)
    gradients.fill(DPSGD(module.parameters(), 0.1))
    assert torch.equal(x, before)
    module.register_forward_pre_hook(lambda layer, given: (given[0].zero_(),))
    gradients.fill(DPSGD(module.parameters(), 0.1))
    assert torch.equal(x, before)


@pytest.mark.parametrize("settings", [{}, {"sampling": 0.5}, {"rows_at_once": 16}])
@pytest.mark.parametrize("kind", ["a large table", "one layer"])
def test_no_release_moves_by_more_than_it_states_when_any_user_leaves(kind, settings):
    """In float32, where a table is summed row by row, and one layer in one pass."""
    users, generator = np.repeat(np.arange(8), 3), torch.Generator().manual_seed(3)
    y, words_ = torch.randint(5, (24,), generator=generator), torch.randint(8000, (24, 5), generator=generator)
    x = words_ if kind == "a large table" else torch.randn(24, 30, generator=generator)

    def fit(rows, session):
        torch.manual_seed(1)
        module = words(vocabulary=8000) if kind == "a large table" else nn.Linear(30, 5)
        optimizer = DPSGD(module.parameters(), lr=0.5)
        gradients = PrivateGradients(
            module, cross_entropy, UserRows(*rows), session, steps=4, n_units=8, clip=FixedClip(0.3), **settings
        )
        for _ in range(4):
            gradients.fill(optimizer)
            optimizer.step()
        return {name: p.detach().numpy().tobytes() for name, p in module.named_parameters()}

    worst = 0.0
    for user in range(8):
        kept, seed = users != user, {"budget": Budget(20.0, 1e-5), "noise": SeededNoise(user)}
        ratios = audit_neighbour(fit, (x, y, users), (x[kept], y[kept], users[kept]), seed)
        assert max(ratios.values()) <= 1 + 1e-9, ratios
        worst = max(worst, *ratios.values())
    assert worst > 0.9


class Silent(SystemNoise):
    """Adds nothing."""

    releasable = False

    def normal(self, shape, dtype):
        return np.zeros(shape, dtype)


def summed(module, x, y, users, **settings):
    """What a step releases without noise, on float32 parameters."""
    session = Session(Budget(1e6, 1e-5), noise=Silent())
    gradients = PrivateGradients(module, cross_entropy, UserRows(x, y, users), session, steps=1, n_units=1, **settings)
    gradients.fill()
    return [p.grad.double() for p in module.parameters()]


def clipped_by_hand(module, x, y, users, clip=1.0):
    total = [torch.zeros_like(p).double() for p in module.parameters()]
    for user in np.unique(users):
        own = torch.as_tensor(np.flatnonzero(users == user))
        found = torch.autograd.grad(cross_entropy(module(x[own]), y[own]).sum(), list(module.parameters()))
        length = torch.sqrt(sum(g.double().square().sum() for g in found))
        for part, g in zip(total, found, strict=True):
            part += g.double() * (clip / max(clip, float(length)))
    return total


@pytest.mark.parametrize("rows_at_once", [16, 64, 1024])
@pytest.mark.parametrize("mean", [False, True])
def test_a_step_on_a_large_table_is_the_sum_of_clipped_gradients(rows_at_once, mean):
    module = words(vocabulary=8000)
    generator, users = torch.Generator().manual_seed(2), np.repeat(np.arange(40), 4)
    x = torch.randint(60, (160, 5), generator=generator) * 130  # users share rows, and look some up twice
    y = torch.randint(5, (160,), generator=generator)
    found = summed(module, x, y, users, rows_at_once=rows_at_once, mean_of_rows=mean)
    if not mean:
        for one, wanted in zip(found, clipped_by_hand(module, x, y, users), strict=True):
            assert torch.allclose(one, wanted, atol=3e-5)
    narrow = summed(module, x.int(), y, users, rows_at_once=rows_at_once, mean_of_rows=mean)
    assert all(torch.equal(one, other) for one, other in zip(found, narrow, strict=True))
    touched = found[0].abs().sum(1) > 0
    assert torch.equal(touched.nonzero()[:, 0], x.unique())


@pytest.mark.parametrize("bias", [True, False])
def test_a_step_of_one_layer_is_the_sum_of_clipped_gradients(bias):
    torch.manual_seed(0)
    module, x, users = nn.Linear(40, 6, bias=bias), torch.randn(96, 40), np.repeat(np.arange(32), 3)
    y = torch.randint(6, (96,))
    x[:3] = 0.0  # without a gradient of the weight
    for one, wanted in zip(summed(module, x, y, users), clipped_by_hand(module, x, y, users), strict=True):
        assert torch.allclose(one, wanted, atol=1e-4)


def test_a_user_whose_gradient_is_not_finite_counts_as_zero_in_one_pass_too():
    torch.manual_seed(0)
    module, x, users = nn.Linear(40, 6), torch.randn(96, 40), np.repeat(np.arange(32), 3)
    y = torch.randint(6, (96,))
    rest = clipped_by_hand(module, x[3:], y[3:], users[3:])
    x[1, 7] = float("inf")
    for one, wanted in zip(summed(module, x, y, users), rest, strict=True):
        assert torch.allclose(one, wanted, atol=1e-4)
