"""What a step does on a GPU, done on a processor: the same sums, nothing asked before the charge, and few launches.

The branches for a GPU are ordinary operations of torch. Here they are taken on a processor, and a recorded step is
played by running the work again into the tensors that it left the first time, which is what a CUDA graph does.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from apportion import linalg
from apportion.auditing.hidden_values import raw_value
from apportion.errors import ApportionError, InputError
from apportion.linalg import device_copies
from apportion.privacy import Budget, SeededNoise, Session, SystemNoise
from apportion.privacy.clipped_gradients import GradientTotal
from apportion.training import (
    DPSGD,
    ExampleRows,
    ExampleSession,
    PrivateGradients,
    QuantileClip,
    ReleasedLoss,
    TouchedRows,
    UserRows,
    replays,
)
from apportion.training.held_passes import HeldPasses
from apportion.training.layers import LayerFactors
from apportion.training.on_gpu import Joined
from apportion.training.per_unit import FunctionalGradients
from apportion.training.replays import Replays
from training import test_gradients as gradients
from training import test_rounding as rounding
from training.small_models import cross_entropy
from training.test_gradients import compare_with_gradients_one_by_one

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device on this machine")
ROWS, N = 24, 3000
ASKED = ("_local_scalar_dense", "nonzero", "equal", "_unique2", "item", "is_nonzero")
NO_LAUNCH = ("view", "detach", "expand", "slice", "split", "as_strided", "transpose", "unsqueeze", "squeeze", "alias",
             "empty", "diagonal", "unfold", "permute", "select", "record_function", "is_same_size", "lift")  # fmt: skip


class Counted(TorchDispatchMode):
    """Writes down which operations there are."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(operation._schema.name.split("::")[1])
        return operation(*args, **(kwargs or {}))

    @property
    def asked(self):
        return [name for name in self.names if name in ASKED]

    @property
    def launched(self):
        return [n for n in self.names if n not in ("t", "_unsafe_view") and not any(free in n for free in NO_LAUNCH)]


def played(values, work):
    """Like a CUDA graph: the work on copies, and its first result, which gets new numbers."""
    held = [torch.empty(value.shape, dtype=value.dtype, device=value.device) for value in values]
    replays.copy_all(held, values)
    result = work(held)

    def replay(values):
        replays.copy_all(held, values)
        again = work(held)
        if isinstance(result, torch.Tensor):
            return result.copy_(again)
        if result._total is not None:
            result._total.copy_(again._total)
        for k, table in result._tables.items():
            table.numbers.copy_(again._tables[k].numbers)
        return result

    return replay


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(device_copies, "asynchronous", lambda device: True)
    monkeypatch.setattr(replays, "recorded", played)


def small(kind, dtype, n_rows=ROWS):
    """A module of this kind and its rows; 24 are filled up to 32, and 32 are not."""
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    targets = torch.randint(4, (n_rows,), generator=generator)
    words = torch.randint(N, (n_rows, 3), generator=generator)
    images = torch.randn((n_rows, 1, 12, 12), generator=generator, dtype=torch.float64)
    if kind == "linear":
        return nn.Linear(30, 4).to(dtype), images.flatten(1)[:, :30].to(dtype), targets
    if kind == "layers":
        parts = nn.Linear(30, 20), nn.LayerNorm(20), nn.Tanh(), nn.Linear(20, 4, bias=False)
        return nn.Sequential(*parts).to(dtype), images.flatten(1)[:, :30].to(dtype), targets
    if kind == "convolution":
        parts = nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Conv2d(3, 4, 10), nn.Flatten(), nn.Linear(4, 4)
        return nn.Sequential(*parts).to(dtype), images.to(dtype), targets
    table = nn.Embedding(N, 16)
    return nn.Sequential(table, nn.Flatten(-2), nn.Linear(48, 4)).to(dtype), words, targets


KINDS = ("linear", "layers", "convolution", "embedding")
USERS = {
    "even": np.arange(ROWS) // 4,
    "uneven": np.sort(np.random.default_rng(0).integers(0, 9, ROWS)),
    "rows": None,
}


def trained(kind, users, dtype=torch.float64, *, steps=6, spoiled=None, **further):
    """The parameters after some steps with noise that is always the same, and what trained them."""
    module, inputs, targets = small(kind, dtype)
    if spoiled is not None:
        inputs[5].view(-1)[2:4] = spoiled
    units = ExampleRows(inputs, targets) if users is None else UserRows(inputs, targets, users)
    session = (ExampleSession if users is None else Session)(Budget(1e6, 1e-5), noise=SeededNoise(5))
    private = PrivateGradients(module, cross_entropy, units, session, steps=steps, n_units=len(units), **further)
    optimizer = DPSGD(module.parameters(), 0.2)
    for _ in range(steps):
        private.fill(optimizer)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in module.parameters()]).double(), private


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("users", USERS.values(), ids=USERS)
@pytest.mark.parametrize("spoiled", [None, float("nan"), float("inf"), 1e300])
def test_steps_on_a_gpu_are_those_on_a_processor(kind, users, spoiled, on_gpu, monkeypatch):
    if kind == "embedding" and spoiled is not None:
        pytest.skip("ids are whole numbers")
    found, private = trained(kind, users, spoiled=spoiled)
    assert private._held.replays._recorded is not None
    monkeypatch.setattr(device_copies, "asynchronous", lambda device: False)
    expected, other = trained(kind, users, spoiled=spoiled)
    assert other._held.replays._seen == 0
    assert torch.isfinite(expected).all()
    assert (expected - trained(kind, users, spoiled=spoiled, steps=1)[0]).abs().max() > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["layers", "embedding"])
@pytest.mark.parametrize(
    "further",
    [
        {"sampling": 0.5}, {"mean_of_rows": True}, {"rows_at_once": 7}, {"clip": QuantileClip(0.5)},
        {"losses": ReleasedLoss(3.0)}, {"tables": TouchedRows(least=0.0)}, {"way": "functional"},
    ],
    ids=lambda further: next(iter(further)),
)  # fmt: skip
def test_other_steps_are_the_same_too(kind, further, on_gpu, monkeypatch):
    if "tables" in further and kind != "embedding":
        pytest.skip("there is no table")
    if "way" in further:
        if kind == "embedding":
            pytest.skip("its table is too large for gradients of every row")
        way = "apportion.training.private_gradients.gradient_way"
        monkeypatch.setattr(way, lambda module, *_: FunctionalGradients(module, cross_entropy))
        further = {}
    found = trained(kind, USERS["uneven"], **further)[0]
    monkeypatch.setattr(device_copies, "asynchronous", lambda device: False)
    torch.testing.assert_close(found, trained(kind, USERS["uneven"], **further)[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_asks_a_gpu_nothing_before_the_sum_is_copied(kind, on_gpu):
    module, inputs, targets = small(kind, torch.float32, 32)
    units = UserRows(inputs, targets, np.arange(32) // 4)
    private = PrivateGradients(module, cross_entropy, units, Session(Budget(8.0, 1e-5)), steps=4, n_units=6)
    optimizer, asked = DPSGD(module.parameters(), 0.1), []
    for _ in range(4):
        with Counted() as counted:
            private.fill(optimizer)
            optimizer.step()
        asked.append(counted.asked)
    assert asked[0].count("_unique2") == (kind == "embedding")  # once: which rows were looked up
    assert asked[1:] == [[], [], []]


def test_a_linear_step_for_users_takes_thirty_launches_and_no_more(on_gpu, monkeypatch):
    monkeypatch.setattr(replays, "recorded", lambda *_: (_ for _ in ()).throw(RuntimeError("not here")))
    module, targets = nn.Linear(200, 10), small("linear", torch.float32, 32)[2]
    units = UserRows(rounding.others(200, 1, n=32)[0], targets, np.arange(32) // 4)
    private = PrivateGradients(module, cross_entropy, units, Session(Budget(8.0, 1e-5)), steps=4, n_units=6)
    optimizer = DPSGD(module.parameters(), 0.1)
    private._apart = 1  # nothing to fill up, wherever this runs
    for _ in range(3):
        private.fill(optimizer)
        optimizer.step()
    with Counted() as counted:
        private.fill(optimizer)
        optimizer.step()
    assert private._held.replays.refused == "not here"
    assert 15 < len(counted.launched) <= 30, counted.launched


def test_the_charge_comes_before_the_wait_and_the_wait_before_the_draw(on_gpu, monkeypatch):
    order, begun = [], device_copies.begun

    def told(values):
        order.append("copy begun")
        arrived = begun(values)
        return lambda: (order.append("waited"), arrived())[1]

    class Noise(SystemNoise):
        def key(self):
            order.append("drawn")
            return super().key()

    class Charging(Session):
        def _admit(self, *arguments, **further):
            order.append("charged")
            return super()._admit(*arguments, **further)

    monkeypatch.setattr(device_copies, "begun", told)
    module, inputs, targets = small("linear", torch.float32)
    session = Charging(Budget(8.0, 1e-5), noise=Noise())
    units = UserRows(inputs, targets, USERS["even"])
    PrivateGradients(module, cross_entropy, units, session, steps=1, n_units=6).fill()
    assert order == ["copy begun", "charged", "waited", "drawn"]


def total_of(blocks, shapes, clip=1.0):
    total = GradientTotal(clip, shapes)
    total.add(blocks)
    return raw_value(total.sealed())


@pytest.mark.parametrize("offsets", [(0, 4, 8, 12), (0, 1, 1, 7, 12), tuple(range(13))], ids=["even", "uneven", "rows"])
@pytest.mark.parametrize(("width", "out"), [(40, 10), (6, 5)], ids=["products", "formed"])
@pytest.mark.parametrize("size", [1e-18, 1.0, 1e18])
def test_weight_and_bias_as_one_have_lengths_of_both_and_just_above(offsets, width, out, size, on_gpu):
    generator = torch.Generator().manual_seed(2)
    module, offsets = nn.Linear(width, out), torch.tensor(offsets)
    a, b = (torch.randn((12, n), generator=generator) for n in (width, out))
    a *= size
    blocks = LayerFactors(module, cross_entropy).blocks_of([(module, a, b)], offsets)
    assert all(isinstance(block, Joined) for block in blocks)
    assert blocks[1].joint_squares() is None
    pairs = [(a[first:last].double(), b[first:last].double()) for first, last in itertools.pairwise(offsets)]
    formed = [torch.cat([(v.T @ u).flatten(), v.sum(0)]) for u, v in pairs]
    exact = torch.stack([each.norm() for each in formed])
    terms = torch.stack([((u.square().sum(1) + 1).sqrt() * v.norm(dim=1)).sum() for u, v in pairs])
    lengths = blocks[0].joint_squares().sqrt()
    assert (lengths >= exact * (1 - 1e-13)).all()
    assert (lengths >= 0.999e-4 * terms).all()
    torch.testing.assert_close(lengths, torch.hypot(exact, 1e-4 * terms), rtol=1e-9, atol=0)
    clipped = sum(g / max(1.0, float(n) / (1 - 1e-5)) for g, n in zip(formed, lengths, strict=True))
    found = total_of(blocks, [(out, width), (out,)])
    np.testing.assert_allclose(found, clipped.numpy(), rtol=1e-9, atol=1e-9 * float(clipped.abs().max()))
    alone = sum(block.squared_norms(None) for block in blocks).sqrt()
    torch.testing.assert_close(alone, lengths, rtol=1e-6, atol=0)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["inputs", "slopes"])
@pytest.mark.parametrize("way", [LayerFactors, FunctionalGradients])
def test_a_unit_that_is_not_finite_adds_nothing_to_a_sum_on_a_gpu(number, where, way, on_gpu):
    inputs, targets, names = rounding.others(9, 7)
    held = {"inputs": inputs, "slopes": targets}[where]
    kept = torch.arange(20) != 6
    expected = rounding.total(nn.Linear(9, 7), (inputs[kept], targets[kept], np.array(names)[kept.numpy()]), way)
    held[6, 3] = number
    found = rounding.total(nn.Linear(9, 7), (inputs, targets, names), way)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_rows", [30, 5000], ids=["whole table", "few rows"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_look_up_that_is_not_finite_adds_nothing(n_rows, number, on_gpu):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(n_rows, (20, 3), generator=generator)
    slopes, names = torch.randn((20, 3, 8), generator=generator), np.arange(20) // 2
    kept = names != 3
    module = nn.Embedding(n_rows, 8)
    expected = rounding.total(module, (ids[kept], slopes[kept], names[kept]), LayerFactors)
    slopes[6, 1, 2] = number
    found = rounding.total(module, (ids, slopes, names), LayerFactors)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_a_recorded_sum_is_for_its_clip_norm_alone(on_gpu):
    module, inputs, targets = small("linear", torch.float32)
    way, offsets = LayerFactors(module, cross_entropy), torch.arange(0, ROWS + 1, 4)
    held = HeldPasses(np.arange(6), None, [])
    shapes = [tuple(p.shape) for p in module.parameters()]
    found = []
    for clip in (1e-3, 1e-3, 1e-3, 1e-3, 2e-3):
        passed = way.passed(inputs, targets)
        total = held.sum_of(lambda c=clip: GradientTotal(c, shapes), way, passed, inputs, offsets, None)
        assert (held.replays._recorded is not None) == (held.replays._seen >= 3)
        found.append(np.linalg.norm(raw_value(total.sealed())))
    np.testing.assert_allclose(found, [found[0]] * 4 + [2 * found[0]], rtol=1e-9)


class TestRoundingOnGpu:
    """What holds for rounding on a processor holds on a GPU: the same tests, on the other branches."""

    @pytest.fixture(autouse=True)
    def _on_gpu(self, on_gpu):
        pass

    @rounding.WAYS
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("size", [1e4, 1e30])
    @pytest.mark.parametrize(("width", "out"), [(64, 64), (3, 40)])
    @pytest.mark.parametrize("bias", [False, True])
    def test_a_user_whose_rows_cancel(self, way, dtype, size, width, out, bias):
        module = nn.Linear(width, out, bias=bias).to(dtype)
        rows = rounding.others(width, out, dtype=dtype)
        x = size * rows[0][:2] * torch.pi
        inputs, targets = torch.stack([x[0], x[1], -(x[0] + x[1])]), rows[1][:1].repeat(3, 1)
        both = rounding.with_user(rows, inputs, targets)
        moved = rounding.total(module, both, way) - rounding.total(module, rows, way)
        assert np.linalg.norm(moved) <= 1 + 1e-9

    @rounding.WAYS
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("count", [1, 2])
    def test_sizes_at_the_ends_of_the_range(self, way, dtype, count):
        found = rounding.norms_at_the_ends_of_the_range(way, count, dtype, mean=False)
        assert {power: norm for power, norm in found.items() if not norm <= 1e-3} == {}

    @rounding.WAYS
    @pytest.mark.parametrize("kind", ["weight", "bias", "normed"])
    def test_a_long_user_where_all_others_cancel(self, way, kind):
        assert rounding.moved_by_a_long_user(way, kind, scaled=False) < 1e-5

    @pytest.mark.parametrize("offsets", [gradients.OFFSETS, torch.arange(10)], ids=["users", "examples"])
    @gradients.EACH
    def test_blocks_against_gradients_formed_one_by_one(self, model, data, offsets):
        compare_with_gradients_one_by_one(model, data, LayerFactors, offsets)


def test_whether_other_users_are_as_long_moves_a_length_by_rounding_alone(on_gpu):
    """Which way lengths are computed depends on the longest user; what is added for rounding must not."""
    generator = torch.Generator().manual_seed(2)
    module = nn.Linear(30, 20)
    a, b = (torch.randn((60, n), generator=generator) for n in (30, 20))
    ways = LayerFactors(module, cross_entropy)
    short, longest = torch.tensor([0, 2, 4, 6]), torch.tensor([0, 2, 4, 6, 60])
    one = ways.blocks_of([(module, a[:6], b[:6])], short)[0].joint_squares()
    other = ways.blocks_of([(module, a, b)], longest)[0].joint_squares()[:3]
    torch.testing.assert_close(one, other, rtol=1e-14, atol=0)


def test_work_is_recorded_the_third_time_and_anew_when_anything_else_changes():
    recordings = []

    def record(values, work):
        recordings.append(len(values[0]))
        return played(values, work)

    again = Replays(record)
    for _ in range(2):
        for key in ("a", "b"):
            for _ in range(2):
                again(key, [torch.ones(3)], lambda values: values[0] * 2)
    assert recordings == []
    for k in range(5):
        found = again("c", [torch.full((3,), float(k))], lambda values: values[0] * 2)
        assert found.tolist() == [2.0 * k] * 3
    assert recordings == [3]
    for _ in range(3):
        again("c", [torch.ones(4)], lambda values: values[0] * 2)
    assert recordings == [3, 4]


def test_work_that_cannot_be_recorded_goes_on_launch_by_launch():
    def refuse(values, work):
        raise RuntimeError("operation not permitted when stream is capturing")

    again = Replays(refuse)
    found = [float(again("a", [torch.tensor(float(k))], lambda values: values[0] + 1)) for k in range(5)]
    assert found == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert "not permitted" in again.refused


def test_rows_that_were_written_to_are_looked_up_anew(on_gpu):
    module, inputs, targets = small("embedding", torch.float64)
    units = UserRows(inputs, targets, USERS["even"])
    private = PrivateGradients(module, cross_entropy, units, Session(Budget(8.0, 1e-5)), steps=3, n_units=6)
    private.fill()
    before = private._held
    units._inputs.add_(1).remainder_(N)
    private.fill()
    assert private._held is not before
    assert not np.array_equal(*(next(iter(held.found.values())).different for held in (before, private._held)))


def test_units_that_look_up_other_rows_than_are_held_are_left_out(on_gpu):
    """A module may write to its inputs past the counter of PyTorch. Then lengths would be of other rows than sums."""
    n_units, n_words, width = 12, 6, 4

    class Writing(nn.Module):
        moved = False

        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(40_000, width)

        def forward(self, words):
            if self.moved:
                words.data[:8].copy_(7 + torch.arange(n_words).expand(8, n_words))
            return self.table(words)

    torch.manual_seed(0)
    module, words = Writing(), torch.full((n_units, n_words), 7)
    units = UserRows(words, torch.full((n_units,), 5.0), np.arange(n_units))
    private = PrivateGradients(
        module, lambda out, t: out.sum((1, 2)) * t, units, Session(Budget(8.0, 1e-5)), steps=6, n_units=n_units
    )
    for step, left in enumerate((12, 4, 4, 4)):
        total = private._sum(private._everybody, None)
        assert np.linalg.norm(raw_value(total)) == pytest.approx(left * total.l2_sensitivity, rel=1e-4), step
        Writing.moved = True


def test_noise_is_written_where_there_is_room_for_it_with_the_same_bits():
    values = np.random.default_rng(0).standard_normal(5000)
    for dtype in (np.float32, np.float64):
        out = device_copies.page_locked(5000, dtype)
        found = linalg.add_normals(values, 2.0, 2.0**-20, bytes(32), dtype, out=out)
        assert found is out
        assert np.array_equal(found, linalg.add_normals(values, 2.0, 2.0**-20, bytes(32), dtype))
    for wrong in (np.empty(4999), np.empty(5000, np.float32), np.empty(10000)[::2]):
        with pytest.raises(InputError, match="out"):
            linalg.add_normals(values, 2.0, 2.0**-20, bytes(32), out=wrong)


def test_a_release_that_is_refused_never_waits_for_the_sum(on_gpu, monkeypatch):
    waited = []
    monkeypatch.setattr(device_copies, "begun", lambda values: lambda: waited.append(1))
    module, inputs, targets = small("linear", torch.float32)

    class Refusing(Session):
        def _admit(self, *arguments, **further):
            raise ApportionError("no more")

    units = UserRows(inputs, targets, USERS["even"])
    private = PrivateGradients(module, cross_entropy, units, Refusing(Budget(8.0, 1e-5)), steps=1, n_units=6)
    with pytest.raises(ApportionError, match="no more"):
        private.fill()
    assert waited == []


@CUDA
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("users", USERS.values(), ids=USERS)
def test_a_gpu_takes_the_steps_of_a_processor(kind, users, monkeypatch):
    expected = trained(kind, users)[0]
    plain = small
    monkeypatch.setattr(f"{__name__}.small", lambda *a: tuple(part.cuda() for part in plain(*a)))
    found, private = trained(kind, users)
    assert private._held.replays.refused is None
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-9, atol=1e-9)
