"""Inside Opacus: its noise is read as it was added, its path and ours take the same steps on the same noise."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise
from apportion.training import DPSGD, DPAdam, DPAdamBC, ExampleRows, ExampleSession, FixedClip, PrivateGradients
from training.small_models import Chain, cross_entropy, images

from statistics_helpers import assert_scale

opacus = pytest.importorskip("opacus")

from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping  # noqa: E402

from apportion.training.for_opacus import KnownNoisePrivacyEngine, added_by, follow  # noqa: E402

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
    again = DPAdamBC(inner.param_groups[0]["params"], 0.01)
    follow(type(optimizer)(again, noise_multiplier=1.1, max_grad_norm=CLIP, expected_batch_size=10)).load_state_dict(
        optimizer.state_dict()
    )
    for parameter, state in inner.state.items():
        assert state.keys() == again.state[parameter].keys() == {"step", "exp_avg", "exp_avg_sq", "noise_sq"}
        assert all(torch.equal(value, again.state[parameter][name]) for name, value in state.items())
    assert float(inner.state[inner.param_groups[0]["params"][0]]["exp_avg_sq"].sum()) > 0


class Overheard:
    """What the optimizer inside is told of the noise, and the gradients that it steps with."""

    def __init__(self, inner):
        self.told, self.gradients = [], []
        self.carry, self.step, self.parameters = inner.gradients_carry, inner.step, inner.param_groups[0]["params"]
        inner.gradients_carry, inner.step = self.hear, self.look

    def hear(self, noise):
        self.told.append(noise)
        self.carry(noise)

    def look(self, *args, **kwargs):
        self.gradients.append(self.parameters[0].grad.detach().numpy().ravel().copy())
        return self.step(*args, **kwargs)

    def assert_told(self, **settings):
        """Rows without slopes leave noise alone, of the variance that was told."""
        standard = [g / np.sqrt(n.variance) for g, n in zip(self.gradients, self.told, strict=True)]
        assert_scale(np.concatenate(standard), stddev=1.0, **settings)


ENGINES = {
    "hooks": (KnownNoisePrivacyEngine, {}, 1.0),
    "ghost": (KnownNoisePrivacyEngine, {"grad_sample_mode": "ghost", "criterion": nn.CrossEntropyLoss()}, 1.0),
    "per layer": (KnownNoisePrivacyEngine, {"clipping": "per_layer", "max_grad_norm": [CLIP]}, 1.0),
    "adaptive": (
        KnownNoisePrivacyEngine,
        {
            "clipping": "adaptive", "target_unclipped_quantile": 0.5, "clipbound_learning_rate": 0.2,
            "max_clipbound": 10.0, "min_clipbound": 0.01, "unclipped_num_std": 1.2,
        },
        (0.25 - 1 / 2.4**2) ** -0.5 / 2,
    ),
    "adaptive ghost": (
        PrivacyEngineAdaptiveClipping,
        {
            "grad_sample_mode": "ghost", "criterion": nn.CrossEntropyLoss(), "target_unclipped_quantile": 0.5,
            "min_clipbound": 0.01, "max_clipbound": 10.0, "clipbound_learning_rate": 0.2,
        },
        (0.25 - 1 / 2.4**2) ** -0.5 / 2,  # counts of 24 rows have a standard deviation of 24 / 20
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "settings", "raised"), ENGINES.values(), ids=ENGINES)
def test_what_opacus_adds_is_what_is_told_for_every_kind_of_clipping(kind, settings, raised):
    """Adaptive kinds raise the noise by a factor of 1.8 and move the clip norm at every step."""
    inputs, targets = torch.zeros(240, 80), torch.zeros(240, dtype=torch.int64)
    module = nn.Linear(80, 50, bias=False)
    torch.manual_seed(0)
    made = kind().make_private(
        module=module, optimizer=DPAdamBC(module.parameters(), 0.0), noise_multiplier=2.0, poisson_sampling=False,
        data_loader=DataLoader(TensorDataset(inputs, targets), batch_size=24), **{"max_grad_norm": CLIP, **settings},
    )  # fmt: skip
    module, optimizer, *criterion, loader = made
    loss = criterion[0] if criterion else nn.CrossEntropyLoss()
    if kind is PrivacyEngineAdaptiveClipping:
        follow(optimizer)
    overheard, norms = Overheard(optimizer.original_optimizer), []
    for x, y in loader:
        optimizer.zero_grad()
        losses = loss(module(x), y)
        norms.append(float(optimizer.max_grad_norm))
        losses.backward()
        if "ghost" in settings.get("grad_sample_mode", ""):
            norms[-1] = float(optimizer.max_grad_norm)  # moved before it is used
        optimizer.step()
    assert len(overheard.told) == 10
    assert [n.stddev for n in overheard.told] == pytest.approx([2.0 * raised * norm for norm in norms])
    assert (len(set(norms)) > 5) == (raised > 1)
    assert {n.divisor for n in overheard.told} == {24.0}
    overheard.assert_told(detect=1.05)


def test_several_passes_before_a_step_are_divided_by_their_number_and_told_so():
    module = opacus.GradSampleModule(nn.Linear(200, 50, bias=False))
    inner = DPAdamBC(module.parameters(), 0.0)
    outer = opacus_optimizer(inner, 1.0, 8)
    overheard = Overheard(inner)
    torch.manual_seed(1)
    for passes in (1, 2, 4):
        outer.zero_grad()
        for _ in range(passes):
            nn.functional.cross_entropy(module(torch.zeros(8, 200)), torch.zeros(8, dtype=torch.int64)).backward()
        outer.step()
    assert [noise.divisor for noise in overheard.told] == [8.0, 16.0, 32.0]
    overheard.assert_told(detect=1.06)


def test_an_optimizer_whose_noise_is_not_known_is_refused():
    from opacus.optimizers import DPOptimizer

    class Louder(DPOptimizer):
        def add_noise(self):
            super().add_noise()
            super().add_noise()

    class Averaging(DPOptimizer):
        def reduce_gradients(self):
            pass

    for kind in (Louder, Averaging):
        inner = DPAdamBC([nn.Parameter(torch.zeros(1))])
        outer = kind(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=1)
        for read in (follow, added_by):
            with pytest.raises(InputError, match=f"whose noise is known here, got {kind.__name__}"):
                read(outer)


def test_other_optimizers_need_no_following():
    p = nn.Parameter(torch.zeros(1))
    with pytest.raises(InputError, match="got SGD"):
        opacus_optimizer(torch.optim.SGD([p], 0.1), 1.0, 1)
