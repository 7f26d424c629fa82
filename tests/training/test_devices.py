"""Parameters of several kinds of numbers and on several devices take the steps that one kind on one device takes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from apportion.privacy import Budget, SeededNoise, Session
from apportion.training import (
    DPSGD,
    DPAdam,
    DPAdamBC,
    ExampleRows,
    ExampleSession,
    PrivateGradients,
    QuantileClip,
    SecondMomentScales,
    UserRows,
)
from apportion.training.per_unit import FunctionalGradients
from training.small_models import cross_entropy

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device on this machine")
STEPS, ROWS = 12, 24
OPTIMIZERS = {
    "DP-SGD": lambda groups: DPSGD(groups, 0.2, momentum=0.9),
    "DP-Adam": lambda groups: DPAdam(groups, 0.02, eps=1e-3),
    "DP-AdamBC": lambda groups: DPAdamBC(groups, 0.02, noise_floor=0.5),
}
EACH = pytest.mark.parametrize("name", OPTIMIZERS)


class Split(nn.Module):
    """A convolution and two linear layers, each of which may be of its own kind and on its own device."""

    def __init__(self, placed):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 3, 3, stride=2).to(**placed[0])
        self.hidden = nn.Linear(27, 6).to(**placed[1])
        self.out = nn.Linear(6, 4).to(**placed[2])

    def forward(self, x):
        h = torch.tanh(self.conv(x.to(self.conv.weight)))
        h = torch.tanh(self.hidden(h.flatten(1).to(self.hidden.weight)))
        return self.out(h.to(self.out.weight)).to(x)


def placed(*devices, dtypes=(torch.float64,) * 3):
    return [{"device": device, "dtype": dtype} for device, dtype in zip(devices, dtypes, strict=True)]


CPU = placed("cpu", "cpu", "cpu")


def rows(device="cpu"):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn((ROWS, 1, 7, 7), generator=generator, dtype=torch.float64)
    return x.to(device), torch.randint(4, (ROWS,), generator=generator).to(device)


def groups_of(module):
    """Two groups with rates of their own, each of parameters of several layers."""
    weights = [p for name, p in module.named_parameters() if "weight" in name]
    biases = [p for name, p in module.named_parameters() if "bias" in name]
    return [{"params": weights}, {"params": biases, "lr": 0.01}]


def train(places, name, *, data="cpu", users=False, steps=STEPS, start=None, seed=5, functional=False, **further):
    """Private steps of a module placed like this, always with the same noise."""
    module = Split(places)
    optimizer = OPTIMIZERS[name](groups_of(module))
    if start is not None:
        module.load_state_dict(start[0])
        optimizer.load_state_dict(copy.deepcopy(start[1]))  # torch takes tensors over as they are
    units = UserRows(*rows(data), np.arange(ROWS) // 3) if users else ExampleRows(*rows(data))
    session = (Session if users else ExampleSession)(Budget(8.0, 1e-5), noise=SeededNoise(seed))
    gradients = PrivateGradients(
        module, cross_entropy, units, session, steps=steps, n_units=8 if users else ROWS,
        way=FunctionalGradients(module, cross_entropy) if functional else None, **further,
    )  # fmt: skip
    for _ in range(steps):
        gradients.fill(optimizer)
        optimizer.step()
    return module, optimizer


def gap(one, other):
    return max(
        float((p.double().cpu() - q.double().cpu()).detach().abs().max())
        for p, q in zip(one.parameters(), other.parameters(), strict=True)
    )


@EACH
def test_groups_of_float32_and_float64_take_the_steps_of_float64_alone(name):
    mixed = placed("cpu", "cpu", "cpu", dtypes=(torch.float32, torch.float64, torch.float32))
    one, optimizer = train(mixed, name)
    other, _ = train(CPU, name)
    assert gap(other, Split(CPU)) > 0.05
    assert gap(one, other) < 1e-4
    kinds = {p.dtype for p in one.parameters()}
    assert kinds == {torch.float32, torch.float64}
    for parameter, state in optimizer.state.items():
        held = [value.dtype for key, value in state.items() if key != "step"]
        assert held
        assert set(held) == {parameter.dtype}


@EACH
def test_a_state_of_one_kind_of_numbers_is_loaded_into_another(name):
    mixed = placed("cpu", "cpu", "cpu", dtypes=(torch.float32, torch.float64, torch.float32))
    module, optimizer = train(CPU, name)
    start = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
    one, loaded = train(mixed, name, start=start, seed=6)
    other, _ = train(CPU, name, start=start, seed=6)
    fresh, _ = train(CPU, name, start=(start[0], OPTIMIZERS[name](groups_of(Split(CPU))).state_dict()), seed=6)
    assert gap(one, other) < 1e-4
    assert gap(fresh, other) > 1e-3  # what was loaded matters
    assert all(value.dtype == p.dtype for p, s in loaded.state.items() for k, value in s.items() if k != "step")


@CUDA
@EACH
@pytest.mark.parametrize("devices", [("cpu", "cuda", "cpu"), ("cuda", "cpu", "cuda"), ("cuda", "cuda", "cuda")])
def test_layers_on_several_devices_take_the_steps_of_one(name, devices):
    other, _ = train(CPU, name)
    for data in set(devices):  # rows on a device where no layer is are refused
        one, optimizer = train(placed(*devices), name, data=data)
        assert {p.device.type for p in one.parameters()} == set(devices)
        assert gap(one, other) < 1e-9
        for parameter, state in optimizer.state.items():
            assert {value.device for key, value in state.items() if key != "step"} == {parameter.device}


@CUDA
@pytest.mark.parametrize("functional", [False, True])
def test_users_moving_clip_norms_and_scales_work_over_several_devices(functional):
    further = {
        "users": True, "mean_of_rows": True, "clip": QuantileClip(0.5), "sampling": 1.0, "rows_at_once": 7,
    }  # fmt: skip
    for name in OPTIMIZERS:
        runs = [
            train(places, name, scaling=SecondMomentScales(after=3), functional=functional and places is CPU, **further)
            for places in (CPU, placed("cpu", "cuda", "cuda"))
        ]
        assert gap(runs[0][0], Split(CPU)) > 0.01
        assert gap(runs[0][0], runs[1][0]) < 1e-7


@CUDA
@EACH
def test_a_state_saved_on_one_device_goes_on_on_another(name, tmp_path):
    cuda = placed("cuda", "cuda", "cuda")
    module, optimizer = train(cuda, name, data="cuda")
    torch.save((module.state_dict(), optimizer.state_dict()), tmp_path / "state.pt")
    start = torch.load(tmp_path / "state.pt", map_location="cpu")
    one, loaded = train(CPU, name, start=start, seed=6)
    other, _ = train(cuda, name, data="cuda", start=start, seed=6)
    assert gap(one, module) > 1e-3
    assert gap(one, other) < 1e-9
    assert {v.device.type for s in loaded.state.values() for k, v in s.items() if k != "step"} == {"cpu"}
