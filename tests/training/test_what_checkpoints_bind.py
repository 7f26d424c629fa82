"""What a checkpoint of a training is bound to: all that changes a sum, since a repeated step has the same noise."""

from __future__ import annotations

import json
from functools import partial
from operator import attrgetter

import numpy as np
import pytest
import torch
from torch import nn

from apportion.errors import InputError
from apportion.privacy import SeededNoise
from apportion.training import PrivateTrainer, TrainingCheckpoint, UserRows, machine
from apportion.training.comparable import comparable, comparable_module
from apportion.training.machine import machine_of, require_repeatable
from apportion.training.processes import OneProcess

X = torch.as_tensor(np.random.default_rng(0).standard_normal((60, 4)), dtype=torch.float32)
Y = torch.arange(60) % 2
USERS = np.arange(60) % 20
WEIGHTS = {"of rows": [1.0]}


def cross_entropy(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def weighing(outputs):
    return next(each * WEIGHTS["of rows"][0] for each in (outputs,))


def weighed(outputs, targets):
    return weighing(cross_entropy(outputs, targets))


class Scaled(nn.Module):
    """A module with a number that neither its name nor a checkpoint has."""

    def __init__(self, held="an attribute", by=1.0):
        super().__init__()
        self.inner = nn.Linear(4, 2)
        if held == "a buffer that is not stored":
            self.register_buffer("by", torch.tensor(by), persistent=False)
        else:
            self.by = [None, by] if held == "a list" else by

    def forward(self, rows):
        return self.scaled(self.inner(rows))

    def scaled(self, outputs):
        return outputs * (self.by[1] if isinstance(self.by, list) else self.by)


def with_method(by):
    """A module of a class whose forward pass is the same, and a method that it calls is not."""

    class Base(Scaled):
        def scaled(self, outputs):
            return by * outputs

    return type("Inherits", (Base,), {"__module__": __name__, "__qualname__": "Inherits"})()


def hooked():
    module = Scaled()
    module.inner.register_forward_hook(lambda part, inputs, output: 2 * output)
    return module


def half_trained():
    module = Scaled()
    module.inner.bias.requires_grad_(False)
    return module


def dropping():
    return nn.Sequential(nn.Dropout(), Scaled())


def two_of(held):
    return partial(Scaled, held, 1.0), partial(Scaled, held, 1.5)


CHANGES = {
    "an attribute": two_of("an attribute"),
    "a list": two_of("a list"),
    "a buffer that is not stored": two_of("a buffer that is not stored"),
    "a method": (partial(with_method, 1.0), partial(with_method, 1.5)),
    "a hook": (Scaled, hooked),
    "which parameters are trained": (Scaled, half_trained),
    "dropout that is off": (dropping, lambda: dropping().eval()),
}


def trained(module, file, loss=cross_entropy, noise=None, processes=None):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    trainer = PrivateTrainer(module, optimizer, loss, epsilon=1.0, delta=1e-5, steps=2, noise=noise or SeededNoise(0))
    return trainer.fit(UserRows(X, Y, USERS), checkpoint=TrainingCheckpoint(file, 2), processes=processes)


@pytest.mark.parametrize("name", CHANGES)
def test_a_checkpoint_is_refused_for_another_module_of_the_same_name(name, tmp_path):
    one, other = CHANGES[name]
    trained(one(), tmp_path / "run")
    trained(one(), tmp_path / "run")
    with pytest.raises(InputError, match="same rows and settings"):
        trained(other(), tmp_path / "run")


@pytest.mark.parametrize("other", ["secure", SeededNoise(1)], ids=["the operating system", "another seed"])
def test_a_chain_of_keys_that_a_seed_began_is_not_gone_on_with_by_another_source(other, tmp_path):
    """Else the rest of a chain that anybody can compute would be said to come from the operating system."""
    first = trained(Scaled(), tmp_path / "run", noise=SeededNoise(0))
    assert not first.statement_.releasable
    assert not trained(Scaled(), tmp_path / "run", noise=SeededNoise(0)).statement_.releasable
    with pytest.raises(InputError, match="same rows and settings"):
        trained(Scaled(), tmp_path / "run", noise=other)


def test_a_checkpoint_that_does_not_say_where_its_noise_came_from_is_refused(tmp_path):
    trained(Scaled(), tmp_path / "run")
    held = torch.load(tmp_path / "run", weights_only=True)
    torch.save({**held, "format": 2}, tmp_path / "run")
    with pytest.raises(InputError, match="checkpoint of this version"):
        trained(Scaled(), tmp_path / "run")


def test_a_checkpoint_is_refused_with_another_number_that_a_function_of_the_file_reads(tmp_path, monkeypatch):
    trained(Scaled(), tmp_path / "run", weighed)
    trained(Scaled(), tmp_path / "run", weighed)
    monkeypatch.setitem(WEIGHTS, "of rows", [1.5])
    with pytest.raises(InputError, match="same rows and settings"):
        trained(Scaled(), tmp_path / "run", weighed)


def test_a_checkpoint_is_refused_where_passes_round_otherwise(tmp_path):
    trained(Scaled(), tmp_path / "run")
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.raises(InputError, match="same rows and settings"):
            trained(Scaled(), tmp_path / "run")
    finally:
        torch.set_num_threads(threads)


def test_a_checkpoint_is_refused_with_another_precision_of_products(tmp_path):
    trained(Scaled(), tmp_path / "run")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(InputError, match="same rows and settings"):
            trained(Scaled(), tmp_path / "run")
    finally:
        torch.set_float32_matmul_precision(before)


SWITCHES = {
    "mkldnn": (torch.backends.mkldnn, "enabled"),
    "tf32": (torch.backends.cudnn, "allow_tf32"),
    "deterministic": (torch.backends.cudnn, "deterministic"),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_checkpoint_is_refused_with_another_switch_that_changes_rounding(name, tmp_path, monkeypatch):
    where, switch = SWITCHES[name]
    trained(Scaled(), tmp_path / "run")
    monkeypatch.setattr(where, switch, not getattr(where, switch))
    with pytest.raises(InputError, match="same rows and settings"):
        trained(Scaled(), tmp_path / "run")


def of_the_default_dtype(monkeypatch):
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)


def of_the_order_of_products(monkeypatch):
    monkeypatch.setattr(torch.backends.opt_einsum, "enabled", not torch.backends.opt_einsum.enabled)


def of_attention(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "flash_sdp_enabled", lambda: "another")


def of_a_library(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")


def of_the_processor(monkeypatch):
    monkeypatch.setattr(machine, "_processor", lambda: "another")


def of_this_library(monkeypatch):
    monkeypatch.setattr(machine, "__version__", "0.0.1")


@pytest.mark.parametrize(
    "change",
    [of_this_library, of_the_default_dtype, of_the_order_of_products, of_attention, of_a_library, of_the_processor],
)
def test_a_checkpoint_is_bound_to_all_that_chooses_kernels(change, monkeypatch):
    """Measured on one processor: the default dtype, the order of products and MKL_CBWR change bits of gradients."""
    before = machine_of(Scaled())
    change(monkeypatch)
    assert machine_of(Scaled()) != before


def test_a_checkpoint_is_refused_if_another_process_rounds_otherwise(tmp_path):
    class WithThreads(OneOfTwo):
        threads = "2"

        def exchange(self, value):
            return (
                [value, [*value[:4], self.threads, *value[5:]]] if isinstance(value, list) else super().exchange(value)
            )

    trained(Scaled(), tmp_path / "run", processes=WithThreads())
    trained(Scaled(), tmp_path / "run", processes=WithThreads())
    other = WithThreads()
    other.threads = "4"
    with pytest.raises(InputError, match="same rows and settings"):
        trained(Scaled(), tmp_path / "run", processes=other)


def test_a_checkpoint_on_a_gpu_needs_deterministic_algorithms(monkeypatch):
    module = Scaled()
    require_repeatable(module)
    monkeypatch.setattr(machine, "_on_gpu", lambda module: True)
    with pytest.raises(InputError, match="use_deterministic_algorithms") as caught:
        require_repeatable(module)
    assert caught.value.argument == "checkpoint"
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    require_repeatable(module)


@pytest.mark.parametrize("switch", ["mkldnn.matmul", "cuda.matmul", "cudnn.conv"])
def test_switches_of_precision_count_and_none_of_them_is_an_error(switch):
    """Some make PyTorch refuse to say how precise all products are."""
    of, before = attrgetter(switch)(torch.backends), machine_of(Scaled())
    usual = of.fp32_precision
    of.fp32_precision = "ieee" if usual == "tf32" else "tf32"
    try:
        assert machine_of(Scaled()) != before
    finally:
        of.fp32_precision = usual
    assert machine_of(Scaled()) == before


class OneOfTwo(OneProcess):
    """The first of two processes, of which the other has no units."""

    size = 2

    def exchange(self, value):
        return [value, value if isinstance(value, str) else None]


def test_a_checkpoint_is_refused_in_another_number_of_processes(tmp_path):
    """Their passes take other units together, which rounds otherwise, and the noise would be the same."""
    trained(Scaled(), tmp_path / "run")
    with pytest.raises(InputError, match="same rows and settings"):
        trained(Scaled(), tmp_path / "run", processes=OneOfTwo())


MODULES = (
    partial(nn.LSTM, 4, 3),
    partial(nn.TransformerEncoderLayer, 8, 2),
    lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)),
    Scaled,
)


@pytest.mark.parametrize("made", MODULES)
def test_weights_at_the_start_do_not_count_because_a_checkpoint_replaces_them(made):
    one, other = comparable_module(made()), comparable_module(made())
    assert json.dumps(one) == json.dumps(other)


def test_numbers_of_any_shape_can_be_compared():
    values = [torch.tensor(2.0), np.float64(3.0), np.array("a"), np.array([None, 1], object), torch.eye(2).to_sparse()]
    forms = [json.dumps(comparable(each)) for each in values]
    assert len(set(forms)) == len(forms)
    assert comparable(torch.tensor(2.0)) != comparable(torch.tensor(2.5))
    assert comparable([values, values]) == comparable([values, list(values)])


def test_objects_that_hold_each_other_can_be_compared():
    one, other = Scaled(), Scaled()
    one.owner, other.owner = one, other
    one.logs = [one, {"of": one}]
    assert json.dumps(comparable(one)) != json.dumps(comparable(other))
