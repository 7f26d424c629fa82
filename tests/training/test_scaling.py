"""Scale, then privatise: scales from released gradients, clips in their metric, and the noise that goes with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.training import (
    DPSGD,
    DPAdamBC,
    FixedClip,
    PrivateGradients,
    PrivateTrainer,
    SecondMomentScales,
    UserRows,
)
from training.small_models import Chain, cross_entropy, images

from statistics_helpers import assert_scale

OWNERS = np.array([3, 3, 1, 2, 2, 2, 0, 4, 5, 5, 6, 7])


def test_scales_are_roots_of_second_moments_without_the_noise_over_their_mean():
    """Written out as weighted sums over all steps, with noise that differs by step and coordinate."""
    beta, floor, steps = 0.8, 0.2, 6
    rng = np.random.default_rng(0)
    released = [rng.standard_normal((steps, 3, 2)) * 2, rng.standard_normal((steps, 40))]
    variances = [rng.uniform(0.1, 2, (steps, 3, 2)), rng.uniform(0.1, 2, (steps, 1)) * np.ones(40)]
    moving = SecondMomentScales(beta, floor, after=4).begin()
    for step in range(steps):
        assert (moving.scales() is None) == (step < 4)
        moving.observe([torch.as_tensor(g[step]) for g in released], [torch.as_tensor(v[step]) for v in variances])
    weights = beta ** np.arange(steps)[::-1]
    weights /= weights.sum()
    moments = [np.tensordot(weights, g**2, 1) for g in released]
    noise = [np.tensordot(weights, v, 1) for v in variances]
    least = floor * np.concatenate([n.ravel() for n in noise]).mean()
    roots = [np.sqrt(np.maximum(v - n, least)) for v, n in zip(moments, noise, strict=True)]
    mean = np.concatenate([r.ravel() for r in roots]).mean()
    assert 0.1 < np.mean(roots[1] == np.sqrt(least)) < 0.9  # some coordinates are at the floor
    for found, root in zip(moving.scales(), roots, strict=True):
        assert np.allclose(found, root / mean)


@pytest.mark.parametrize("size", [3e19, 1e20, 1e25])
def test_a_convolution_of_huge_numbers_is_left_out_with_scales_too(size):
    """What is added is formed in float32, where it may be infinite although its factors are not."""
    torch.manual_seed(0)
    x = torch.randn(32, 1, 8, 8)
    x[5] *= size
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 1))
    gradients = PrivateGradients(
        module, lambda out, t: (out.flatten(1).sum(1) - t) ** 2, UserRows(x, torch.zeros(32), np.arange(32) // 2),
        Session(Budget(8.0, 1e-5), noise=SeededNoise(0)), steps=4, n_units=16, scaling=SecondMomentScales(after=1),
    )  # fmt: skip
    optimizer = DPSGD(module.parameters(), 1e-6)
    for _ in range(4):
        gradients.fill(optimizer)
        assert all(bool(p.grad.isfinite().all()) for p in module.parameters())
        optimizer.step()


def test_noise_is_taken_out_of_the_moments_so_that_signal_alone_makes_scales():
    """Two halves with the same squares, one of which is noise: it ends at the floor."""
    moving = SecondMomentScales(0.9, 1e-4, after=1).begin()
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        noise = torch.randn(500, generator=generator, dtype=torch.float64)
        moving.observe([torch.ones(500, dtype=torch.float64), noise], [0.0, 1.0])
    signal, noisy = moving.scales()
    assert float(noisy.mean()) < 0.35 * float(signal.mean())


def scaled_run(steps, budget, loss, seed=2, **settings):
    """A training of which every release is told: the scales it was made with, its gradients, its noise."""
    module = Chain().double()
    session = Session(Budget(budget, 1e-5), noise=SeededNoise(seed))
    gradients = PrivateGradients(
        module, loss, UserRows(*images(12), OWNERS), session, steps=steps, n_units=8, clip=FixedClip(0.7), **settings
    )
    optimizer = DPSGD(module.parameters(), 0.05)
    return module, gradients, optimizer


def test_units_are_clipped_in_the_metric_of_the_scales_and_come_back_in_their_own():
    """With next to no noise, the released gradient is the sum of g_u min(1, C / |g_u / s|)."""
    module, gradients, optimizer = scaled_run(6, 1e12, cross_entropy, scaling=SecondMomentScales(after=2))
    inputs, targets = images(12)
    apart = []
    for step in range(6):
        by_user = []
        for user in np.unique(OWNERS):
            own = user == OWNERS
            loss = cross_entropy(module(inputs[own]), targets[own]).sum()
            by_user.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]))
        whole = torch.stack(by_user)
        noise = gradients.fill(optimizer)
        assert bool(noise.scales) == (step >= 2)
        found = torch.cat([p.grad.flatten() for p in module.parameters()])
        scales = torch.ones_like(found)
        if noise.scales:
            scales = torch.cat([noise.scales[p].flatten() for p in module.parameters()])
        clipped = [g * min(1, 0.7 / float((g / s).norm())) for s in (scales, torch.ones_like(scales)) for g in whole]
        expected, plain = torch.stack(clipped[:8]).sum(0) / 8, torch.stack(clipped[8:]).sum(0) / 8
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
        apart.append(float((plain - expected).norm() / expected.norm()))
        optimizer.step()
    assert max(apart[:2]) == 0
    assert min(apart[2:]) > 0.05


def test_every_coordinate_gets_the_noise_that_the_optimizer_is_told():
    """Slopes are known and no unit is clipped, so what is left is noise; small and large scales are judged alone."""
    slopes = torch.cat([torch.full((1000,), 0.2), torch.full((1000,), 0.002)]).double()
    module = nn.Linear(2000, 1, bias=False).double()
    session = Session(Budget(2000.0, 1e-5), noise=SeededNoise(4))
    rows = slopes.repeat(50, 1)
    gradients = PrivateGradients(
        module, lambda out, _: out[:, 0], UserRows(rows, rows, np.arange(50)), session, steps=20, n_units=50,
        clip=FixedClip(20.0), scaling=SecondMomentScales(noise_floor=0.02, after=2),
    )  # fmt: skip
    drawn = []
    for step in range(20):
        noise = gradients.fill()
        if step >= 2:
            stddev = noise.variance_of(module.weight)[0].sqrt()
            assert float(stddev[:1000].mean()) > 2 * float(stddev[1000:].mean())
            drawn.append(((module.weight.grad[0] - slopes) / stddev).numpy())
    for half in np.split(np.stack(drawn), 2, axis=1):
        assert_scale(half, stddev=1.0, detect=1.08)


def test_a_bias_correction_takes_out_each_coordinates_own_noise():
    module, gradients, _ = scaled_run(6, 2.0, cross_entropy, scaling=SecondMomentScales(after=2))
    optimizer = DPAdamBC(module.parameters(), 0.01, betas=(0.9, 0.5))
    expected = [torch.zeros_like(p) for p in module.parameters()]
    for _ in range(6):
        noise = gradients.fill(optimizer)
        for k, p in enumerate(module.parameters()):
            scales = noise.scales.get(p, torch.ones_like(p))
            expected[k] = 0.5 * expected[k] + 0.5 * (p.grad**2 - (noise.stddev / noise.divisor * scales) ** 2)
        optimizer.step()
    assert noise.scales
    for moment, p in zip(expected, module.parameters(), strict=True):
        assert torch.allclose(optimizer.second_moment(p), moment / (1 - 0.5**6), atol=1e-12)


def test_one_rule_serves_several_trainings_and_none_sees_the_scales_of_another():
    rule, (inputs, targets) = SecondMomentScales(after=2), images(12)

    def trained(module, scaling):
        PrivateTrainer(
            module, DPSGD(module.parameters(), 0.1), cross_entropy, epsilon=8.0, delta=1e-5, steps=5, n_units=8,
            scaling=scaling, noise=SeededNoise(3),
        ).fit(UserRows(inputs, targets, OWNERS))  # fmt: skip
        return [p.detach().clone() for p in module.parameters()]

    first = trained(Chain().double(), rule)
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 5)).double()
    trained(other, rule)
    again = trained(Chain().double(), rule)
    assert all(torch.equal(p, q) for p, q in zip(first, again, strict=True))
    without = trained(Chain().double(), None)
    assert not all(torch.equal(p, q) for p, q in zip(first, without, strict=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta": 1.0}, "beta from 0 below 1, got 1.0"),
        ({"noise_floor": 0.0}, "noise_floor above 0 and after of at least 1, got 0.0 and 10"),
        ({"after": 0}, "got 0.1 and 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        SecondMomentScales(**settings)
