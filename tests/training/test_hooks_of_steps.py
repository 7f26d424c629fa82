"""Steps of our optimizers tell hooks and profilers of PyTorch, like those of its own; each hook once."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from apportion.errors import InputError
from apportion.training import DPSGD, AddedNoise, DPAdamBC
from apportion.training import known_noise as module_of_steps


def ready(kind):
    torch.manual_seed(0)
    layer = nn.Linear(2, 1)
    optimizer = kind(layer.parameters(), lr=0.5)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    if isinstance(optimizer, DPSGD | DPAdamBC):
        optimizer.gradients_carry(AddedNoise(1e-3, 1.0))
    return layer, optimizer


class Counted(DPSGD):
    """Has a step of its own around that of its class."""

    def step(self, closure=None):
        return super().step(closure)


@pytest.mark.parametrize("kind", [DPSGD, DPAdamBC, Counted, torch.optim.SGD])
def test_hooks_of_one_optimizer_and_of_all_are_called_once_around_a_step(kind):
    layer, optimizer = ready(kind)
    before, told = layer.weight.detach().clone(), []

    def note(name):
        def hook(one, args, kwargs):
            told.append((name, one is optimizer, len(args), kwargs, torch.equal(layer.weight, before)))

        return hook

    hooks = [
        register_optimizer_step_pre_hook(note("all, before")), optimizer.register_step_pre_hook(note("one, before")),
        optimizer.register_step_post_hook(note("one, after")), register_optimizer_step_post_hook(note("all, after")),
    ]  # fmt: skip
    try:
        optimizer.step()
    finally:
        for hook in hooks:
            hook.remove()
    names = ["all, before", "one, before", "one, after", "all, after"]
    assert told == [(name, True, 1, {}, name.endswith("before")) for name in names]
    if isinstance(optimizer, DPAdamBC):
        optimizer.gradients_carry(AddedNoise(1e-3, 1.0))
    optimizer.step()
    assert len(told) == 4  # the hooks are gone


@pytest.mark.parametrize("kind", [DPSGD, DPAdamBC, torch.optim.SGD])
def test_a_profiler_sees_the_step_by_its_name(kind):
    _, optimizer = ready(kind)
    with torch.profiler.profile() as seen:
        optimizer.step()
    assert f"Optimizer.step#{kind.__name__}.step" in {event.key for event in seen.key_averages()}


def test_steps_are_the_same_whether_others_look_or_not():
    (alone, optimizer), (watched, other) = ready(DPSGD), ready(DPSGD)
    other.register_step_pre_hook(lambda *given: None)
    optimizer.step()
    other.step()
    assert torch.equal(alone.weight, watched.weight)
    assert not torch.equal(alone.weight, ready(DPSGD)[0].weight)


@pytest.mark.parametrize("look", [False, True])
def test_a_closure_is_refused_with_hooks_and_without(look):
    _, optimizer = ready(DPSGD)
    if look:
        optimizer.register_step_pre_hook(lambda *given: None)
    with pytest.raises(InputError, match="no closure"):
        optimizer.step(lambda: 0.0)


def test_where_torch_no_longer_tells_of_hooks_they_are_taken_to_be_there(monkeypatch):
    _, optimizer = ready(DPSGD)
    assert not module_of_steps._seen_by_others(optimizer)
    monkeypatch.delattr(module_of_steps.of_optimizers, "_global_optimizer_pre_hooks")
    assert module_of_steps._seen_by_others(optimizer)
