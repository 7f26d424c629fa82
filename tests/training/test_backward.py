"""A backward pass by PyTorch's engine itself: what `torch.autograd.grad` returns, and that where the engine differs."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import get_gradient_edge

from apportion.training import backward


@pytest.fixture(params=["engine", "grad"])
def way(request, monkeypatch):
    if request.param == "grad":
        monkeypatch.setattr(backward, "_engine", lambda: None)
    return request.param


def chain():
    start = torch.arange(1.0, 5.0, requires_grad=True)
    middle = 3.0 * start
    edge = get_gradient_edge(middle)
    middle = middle.mul_(2.0)  # in place, behind the edge
    return start, edge, middle.square().reshape(2, 2)


def test_gradients_are_those_of_the_sum_of_all_losses(way):
    start, edge, losses = chain()
    found = backward.gradients_at(losses, [edge, get_gradient_edge(start)])
    again, other, same = chain()
    expected = torch.autograd.grad(same.sum(), [other, get_gradient_edge(again)])
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    assert start.grad is None


def test_losses_without_a_history_are_refused(way):
    with pytest.raises(RuntimeError, match="does not require grad"):
        backward.gradients_at(torch.ones(2), [get_gradient_edge(torch.ones(2, requires_grad=True).exp())])


def test_what_the_losses_do_not_depend_on_is_refused(way):
    _, _, losses = chain()
    with pytest.raises(RuntimeError, match="not have been used"):
        backward.gradients_at(losses, [get_gradient_edge(torch.ones(2, requires_grad=True).exp())])


def test_this_version_of_torch_has_the_engine():
    backward._engine.cache_clear()
    assert backward._engine() is not None


class Other:
    """An engine with other arguments, or other results."""

    def __init__(self, result):
        self._result = result

    def run_backward(self, tensors, *args, **kwargs):
        if self._result is None:
            raise TypeError("run_backward() got an unexpected argument")
        return self._result


@pytest.mark.parametrize("result", [None, (), (torch.ones(2), torch.ones(2)), "nothing like it"])
def test_an_engine_that_does_something_else_is_not_used(result, monkeypatch):
    monkeypatch.setattr(torch.autograd.Variable, "_execution_engine", Other(result))
    backward._engine.cache_clear()
    try:
        assert backward._engine() is None
    finally:
        backward._engine.cache_clear()
