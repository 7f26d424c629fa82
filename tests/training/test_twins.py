"""Without noise and clipping each optimizer takes the steps of its twin in torch.optim, or of a plain reference."""

from __future__ import annotations

import copy

import pytest
import torch

from apportion.errors import InputError
from apportion.training import DPSGD, AddedNoise, DPAdam, DPAdamBC, ExampleRows, PlainGradients
from apportion.training.known_noise import NO_NOISE
from training.small_models import Chain, cross_entropy, images


class ReferenceAdamBC:
    """The update of Algorithm 2, written out, with a constant variance to subtract and both floors."""

    def __init__(self, parameters, lr, betas=(0.9, 0.999), variance=0.0, noise_floor=1.0, floor=1e-16, decay=0.0):
        self.parameters, self.lr, self.betas = list(parameters), lr, betas
        self.variance, self.least, self.decay = variance, max(noise_floor * variance, floor), decay
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for k, p in enumerate(self.parameters):
            p *= 1 - self.lr * self.decay
            self.m[k] = b1 * self.m[k] + (1 - b1) * p.grad
            self.v[k] = b2 * self.v[k] + (1 - b2) * p.grad**2
            m, v = self.m[k] / (1 - b1**self.t), self.v[k] / (1 - b2**self.t)
            p -= self.lr * m / torch.sqrt(torch.clamp(v - self.variance, min=self.least))


class ReferenceAdam:
    """Adam with a floor under the second moment, written out."""

    def __init__(self, parameters, lr, eps, floor):
        self.parameters, self.lr, self.eps, self.floor = list(parameters), lr, eps, floor
        self.grads = [[] for _ in self.parameters]

    @torch.no_grad()
    def step(self):
        for kept, p in zip(self.grads, self.parameters, strict=True):
            kept.append(p.grad.clone())
            ages = torch.arange(len(kept) - 1, -1, -1, dtype=p.dtype)
            every = torch.stack(kept)
            m, v = (
                torch.tensordot(beta**ages / (beta**ages).sum(), part, 1)
                for beta, part in ((0.9, every), (0.999, every**2))
            )
            p -= self.lr * m / (torch.sqrt(torch.clamp(v, min=self.floor)) + self.eps)


TWINS = {
    "GD": (lambda p: DPSGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "GDM": (lambda p: DPSGD(p, 0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "dampened": (
        lambda p: DPSGD(p, 0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
    ),
    "Nesterov": (
        lambda p: DPSGD(p, 0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    ),
    "Adam": (lambda p: DPAdam(p, 0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "Adam with decay": (
        lambda p: DPAdam(p, 0.01, weight_decay=0.1, eps=1e-3),
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1, eps=1e-3),
    ),
    "AdamW": (
        lambda p: DPAdam(p, 0.01, weight_decay=0.1, decoupled_weight_decay=True),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    ),
    "Adam with a floor": (
        lambda p: DPAdam(p, 0.01, eps=1e-3, floor=1e-3),
        lambda p: ReferenceAdam(p, 0.01, eps=1e-3, floor=1e-3),
    ),
    "AdamBC": (lambda p: DPAdamBC(p, 0.01), lambda p: ReferenceAdamBC(p, 0.01)),
    "AdamBC with a floor and decay": (
        lambda p: DPAdamBC(p, 0.01, floor=1e-4, weight_decay=0.1, decoupled_weight_decay=True),
        lambda p: ReferenceAdamBC(p, 0.01, floor=1e-4, decay=0.1),
    ),
}
EACH = pytest.mark.parametrize(("ours", "theirs"), TWINS.values(), ids=TWINS)
UNITS = ExampleRows(*images(12))


def gap(one, other):
    return max(float((p - q).detach().abs().max()) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def train(module, optimizer, steps):
    source = PlainGradients(module, cross_entropy, UNITS)
    for _ in range(steps):
        source.fill(optimizer)
        optimizer.step()


def test_plain_gradients_are_those_of_the_mean_loss_also_in_pieces():
    module, (inputs, targets) = Chain().double(), images(12)
    expected = torch.autograd.grad(cross_entropy(module(inputs), targets).mean(), list(module.parameters()))
    PlainGradients(module, cross_entropy, UNITS, rows_at_once=5).fill()
    for p, gradient in zip(module.parameters(), expected, strict=True):
        assert torch.allclose(p.grad, gradient, atol=1e-15)


@EACH
def test_without_noise_a_hundred_steps_are_those_of_the_twin(ours, theirs):
    one, other = Chain().double(), Chain().double()
    train(one, ours(one.parameters()), 100)
    train(other, theirs(other.parameters()), 100)
    assert gap(one, Chain().double()) > 0.1
    assert gap(one, other) < 1e-9


@EACH
def test_a_state_dict_carries_a_run_on(ours, theirs):
    one = Chain().double()
    optimizer = ours(one.parameters())
    train(one, optimizer, 20)
    saved = copy.deepcopy((one.state_dict(), optimizer.state_dict()))
    train(one, optimizer, 20)
    other = Chain(seed=9).double()
    again = ours(other.parameters())
    other.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    train(other, again, 20)
    assert gap(one, other) == 0


def test_a_floor_under_the_second_moment_bounds_the_steps_of_small_gradients():
    """A gradient of 1e-3 takes a full step without a floor, and a hundredth of one above a floor of 0.1²."""
    for floor, expected in ((0.0, 0.01), (0.01, 1e-4)):
        p = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = DPAdam([p], 0.01, floor=floor)
        p.grad = torch.full((1,), 1e-3, dtype=torch.float64)
        optimizer.step()
        assert -p.item() == pytest.approx(expected, rel=1e-4)


def test_decoupled_decay_of_descent_shrinks_parameters_and_leaves_momentum_alone():
    """θ ← (1 − η λ) θ − η b, where coupled decay would add λ θ to what the momentum b takes in."""
    p = torch.nn.Parameter(torch.full((1,), 2.0, dtype=torch.float64))
    optimizer = DPSGD([p], 0.1, momentum=0.5, weight_decay=0.3, decoupled_weight_decay=True)
    value, momentum = 2.0, 0.0
    for gradient in (1.0, -2.0, 0.5):
        p.grad = torch.full((1,), gradient, dtype=torch.float64)
        optimizer.step()
        momentum = 0.5 * momentum + gradient
        value = (1 - 0.1 * 0.3) * value - 0.1 * momentum
        assert p.item() == pytest.approx(value)


def test_parameter_groups_and_schedulers_work_as_in_torch():
    one, other = Chain().double(), Chain().double()

    def groups(module):
        rest = [p for name, p in module.named_parameters() if not name.startswith("out")]
        return [{"params": module.out.parameters(), "lr": 0.05}, {"params": rest, "betas": (0.5, 0.9)}]

    ours, theirs = DPAdam(groups(one), 0.01), torch.optim.Adam(groups(other), 0.01)
    for module, optimizer in ((one, ours), (other, theirs)):
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
        source = PlainGradients(module, cross_entropy, UNITS)
        for _ in range(30):
            source.fill(optimizer)
            optimizer.step()
            scheduler.step()
    assert gap(one, other) < 1e-9


def test_known_noise_is_subtracted_also_where_it_changes_over_the_steps():
    """v̂ − n̂ with a variance that changes is the average of squared gradients minus the same average of variances."""
    p = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = DPAdamBC([p], 0.1, betas=(0.9, 0.8))
    generator = torch.Generator().manual_seed(3)
    expected, weight = torch.zeros(3, dtype=torch.float64), 0.0
    for step in range(1, 8):
        p.grad = torch.randn(3, generator=generator, dtype=torch.float64)
        noise = AddedNoise(0.3 * step, 2.0)
        optimizer.gradients_carry(noise)
        optimizer.step()
        expected = 0.8 * expected + 0.2 * (p.grad**2 - (0.15 * step) ** 2)
        weight = 0.8 * weight + 0.2
    assert torch.allclose(optimizer.second_moment(p), expected / weight, atol=1e-12)


def test_with_constant_noise_the_correction_is_the_papers():
    one = torch.nn.Parameter(torch.ones(50, dtype=torch.float64))
    other = torch.nn.Parameter(torch.ones(50, dtype=torch.float64))
    ours = DPAdamBC([one], 0.01, noise_floor=0.5)
    theirs = ReferenceAdamBC([other], 0.01, variance=(2.0 * 0.7 / 16) ** 2, noise_floor=0.5)
    generator = torch.Generator().manual_seed(4)
    for _ in range(100):
        one.grad = other.grad = 0.1 * torch.randn(50, generator=generator, dtype=torch.float64)
        ours.gradients_carry(AddedNoise(2.0 * 0.7, 16.0))
        ours.step()
        theirs.step()
    assert float((one - other).detach().abs().max()) < 1e-9
    assert float((one - 1).detach().abs().max()) > 0.01


def test_a_correction_that_does_not_know_the_noise_refuses_to_step():
    p = torch.nn.Parameter(torch.zeros(3))
    p.grad = torch.ones(3)
    optimizer = DPAdamBC([p])
    with pytest.raises(InputError, match="know the noise"):
        optimizer.step()
    optimizer.gradients_carry(NO_NOISE)
    optimizer.step()
    with pytest.raises(InputError, match="know the noise"):  # what was told was for one step
        optimizer.step()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: DPSGD(p, -1.0), "lr at least 0, got -1"),
        (lambda p: DPAdam(p, betas=(0.9, 1.0)), "each beta from 0 below 1, got 1.0"),
        (lambda p: DPAdamBC(p, floor=0.0), "floor at least"),
        (lambda p: DPSGD(p, 1.0, nesterov=True), "momentum above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make([torch.nn.Parameter(torch.zeros(1))])
