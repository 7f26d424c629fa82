"""Inside Opacus: its noise is read as it was added, its path and ours take the same steps on the same noise."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from apportion.errors import InputError
from apportion.optim import DPSGD, DPAdam, DPAdamBC, ExampleRows, ExampleSession, FixedClip, PrivateGradients
from apportion.privacy import Budget, SeededNoise
from optim.small_models import Chain, cross_entropy, images

opacus = pytest.importorskip("opacus")

from apportion.optim.for_opacus import KnownNoisePrivacyEngine, added_by, follow  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
CLIP = 0.5


class FixedNoise(SeededNoise):
    """The same normal numbers for both, drawn before; tests only."""

    def __init__(self, draws):
        super().__init__(0)
        self.draws = list(draws)

    def normal(self, shape, dtype):
        return self.draws.pop(0).astype(dtype).reshape(shape)


def opacus_optimizer(optimizer, multiplier, batch, **kwargs):
    from opacus.optimizers import DPOptimizer

    return follow(
        DPOptimizer(optimizer, noise_multiplier=multiplier, max_grad_norm=CLIP, expected_batch_size=batch, **kwargs)
    )


@pytest.mark.parametrize(
    "make", [lambda p: DPSGD(p, 0.1, momentum=0.9), lambda p: DPAdam(p, 0.01), lambda p: DPAdamBC(p, 0.01)]
)
def test_the_path_through_opacus_is_ours_on_the_same_noise(make, monkeypatch):
    steps, (inputs, targets) = 12, images(10)
    ours = Chain().double()
    sizes = [p.numel() for p in ours.parameters()]
    rng = np.random.default_rng(6)
    draws = [rng.standard_normal(sum(sizes)) for _ in range(steps)]

    session = ExampleSession(Budget(8.0, 1e-5), noise=FixedNoise(draws))
    gradients = PrivateGradients(
        ours, cross_entropy, ExampleRows(inputs, targets), session, steps=steps, n_units=10, clip=FixedClip(CLIP)
    )
    optimizer = make(ours.parameters())
    for _ in range(steps):
        told = gradients.fill(optimizer)
        optimizer.step()

    theirs = Chain().double()
    wrapped = opacus.GradSampleModule(theirs, loss_reduction="sum")
    outer = opacus_optimizer(make(theirs.parameters()), gradients.noise_multiplier, 10)
    pieces = iter([part for draw in draws for part in np.split(draw, np.cumsum(sizes)[:-1])])

    def same_noise(std, reference, **_kwargs):
        return std * torch.as_tensor(next(pieces)).reshape(reference.shape)

    monkeypatch.setattr("opacus.optimizers.optimizer._generate_noise", same_noise)
    for _ in range(steps):
        outer.zero_grad()
        nn.functional.cross_entropy(wrapped(inputs), targets, reduction="sum").backward()
        outer.step()
    assert added_by(outer).variance == pytest.approx(told.variance, rel=1e-12)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert float((p - q).detach().abs().max()) < 1e-5  # clip norms are kept 1e-5 and 1e-6 apart from C


def test_virtual_batches_and_reductions_are_read_as_they_were_used():
    module = opacus.GradSampleModule(Chain().double())
    inputs, targets = images(8)
    inner = DPAdamBC(module.parameters(), 0.01)
    outer = opacus_optimizer(inner, 1.5, 8)
    told = []
    inner.gradients_carry = told.append
    inner.step = lambda: None
    for part in (slice(0, 4), slice(4, 8)):
        outer.signal_skip_step(do_skip=part.start == 0)
        nn.functional.cross_entropy(module(inputs[part]), targets[part]).backward()
        outer.step()
        outer.zero_grad()
    assert [noise.divisor for noise in told] == [8.0]
    assert told[0].stddev == 1.5 * CLIP
    outer.noise_multiplier = 0.7  # as a scheduler of noise would
    outer.loss_reduction = "sum"
    nn.functional.cross_entropy(module(inputs), targets, reduction="sum").backward()
    outer.step()
    assert (told[1].stddev, told[1].divisor) == (0.7 * CLIP, 1.0)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_the_privacy_engine_makes_a_correction_that_knows_its_noise(mode):
    inputs, targets = images(40, dtype=torch.float32)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=10)
    module = Chain()
    engine = KnownNoisePrivacyEngine()
    made = engine.make_private(
        module=module, optimizer=DPAdamBC(module.parameters(), 0.01), data_loader=loader, noise_multiplier=1.1,
        max_grad_norm=CLIP, grad_sample_mode=mode, criterion=nn.CrossEntropyLoss(),
    )  # fmt: skip
    module, optimizer, *criterion, loader = made
    loss = criterion[0] if criterion else nn.CrossEntropyLoss()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in loader:
            optimizer.zero_grad()
            loss(module(x), y).backward()
            optimizer.step()
    inner = optimizer.original_optimizer
    first = next(iter(inner.state.values()))
    weight = 1 - 0.999 ** float(first["step"])
    assert float(first["step"]) >= 3
    assert float(first["noise_sq"]) / weight == pytest.approx((1.1 * CLIP / 10) ** 2, rel=1e-3)
    assert engine.get_epsilon(1e-5) > 0
    copied = optimizer.state_dict()
    optimizer.load_state_dict(copied)


def test_other_optimizers_need_no_following():
    p = nn.Parameter(torch.zeros(1))
    with pytest.raises(InputError, match="got SGD"):
        opacus_optimizer(torch.optim.SGD([p], 0.1), 1.0, 1)
