"""All inputs are copied to one place at every step, where nothing in a pass writes to them; else to a new one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.privacy import Budget, SeededNoise, Session
from apportion.training import DPSGD, FixedClip, PrivateGradients, UserRows
from apportion.training.copied_rows import CopiedRows
from apportion.training.held_passes import HeldPasses
from apportion.training.padding import PaddedPass
from training.small_models import cross_entropy

ROWS, WIDTH, CLASSES, STEPS = 48, 7, 3, 3


def users(rows=ROWS):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, WIDTH, generator=generator)
    return UserRows(inputs, torch.arange(rows) % CLASSES, np.arange(rows) // 3)


def linear():
    torch.manual_seed(0)
    return nn.Linear(WIDTH, CLASSES)


def training(module, units, **settings):
    session = Session(Budget(4.0, 1e-5), noise=SeededNoise(1))
    settings = {"rows_at_once": ROWS, "loss": cross_entropy, **settings}
    loss = settings.pop("loss")
    return PrivateGradients(module, loss, units, session, steps=STEPS, n_units=len(units), **settings)


def times_unseen(rows, factor):
    """Multiply rows by a factor; torch does not count what NumPy writes."""
    held = rows.numpy()
    held *= factor


def gradient_after(module, units, change=lambda step: None, **settings):
    """The gradient of the last step, with something done before every step."""
    private, optimizer = training(module, units, **settings), DPSGD(module.parameters(), 0.5)
    for step in range(STEPS):
        change(step)
        private.fill(optimizer)
        optimizer.step()
    return torch.cat([p.grad.flatten() for p in module.parameters()])


def inputs_of_steps(module, units, monkeypatch, **settings):
    """The inputs that the first layer gets in each pass; held, so that no address is used twice."""
    private, seen, forward = training(module, units, **settings), [], nn.Linear.forward

    def watched(layer, rows):
        seen.append(rows)
        return forward(layer, rows)

    monkeypatch.setattr(nn.Linear, "forward", watched)
    for _ in range(STEPS):
        private.fill()
    return seen


def test_a_full_batch_in_one_pass_is_copied_to_one_place(monkeypatch):
    units = users()
    seen = inputs_of_steps(linear(), units, monkeypatch)
    assert len(seen) == STEPS
    assert len({rows.data_ptr() for rows in seen}) == 1
    assert seen[0].data_ptr() != units._inputs.data_ptr()
    assert seen[0].data_ptr() % 64 == 0


class Writing(nn.Module):
    """Writes into its inputs."""

    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, rows):
        return self.layer(rows.relu_())


class WritingUnseen(Writing):
    """Writes without a trace in what torch counts."""

    def forward(self, rows):
        rows.data.relu_()
        return self.layer(rows)


@pytest.mark.parametrize("module", [Writing(), WritingUnseen(), nn.Sequential(nn.ReLU(inplace=True), linear())])
def test_a_module_that_writes_into_its_inputs_gets_a_new_copy_at_every_step(module, monkeypatch):
    units = users()
    before = units._inputs.clone()
    seen = inputs_of_steps(module, units, monkeypatch)
    assert len({rows.data_ptr() for rows in seen}) == STEPS
    assert torch.equal(units._inputs, before)
    assert all(torch.equal(rows, seen[0]) for rows in seen)


@pytest.mark.parametrize("settings", [{"rows_at_once": 16}, {"sampling": 0.9}])
def test_parts_and_samples_are_copied_at_every_step(settings, monkeypatch):
    seen = inputs_of_steps(linear(), users(), monkeypatch, **settings)
    assert len(seen) >= STEPS
    assert len({rows.data_ptr() for rows in seen}) == len(seen)


@pytest.mark.parametrize("rows", [ROWS, ROWS - 3])
def test_steps_on_the_kept_copy_are_those_on_new_ones_to_the_last_bit(rows, monkeypatch):
    kept = gradient_after(linear(), users(rows))
    monkeypatch.setattr(CopiedRows, "_memory_of", lambda self, alone: None)
    assert torch.equal(gradient_after(linear(), users(rows)), kept)


@pytest.mark.parametrize("write", [torch.Tensor.mul_, lambda rows, factor: rows.data.mul_(factor), times_unseen])
@pytest.mark.parametrize("count", [ROWS, ROWS - 3])
def test_rows_that_are_written_to_between_steps_count_from_then_on(count, write):
    """Also where torch does not count it: targets are read again, too, and belong to the same rows."""
    units, again = users(count), users(count)

    def halve(rows):
        return lambda step: write(rows, 0.5) if step == STEPS - 1 else None

    changed = gradient_after(linear(), units, halve(units._inputs))
    assert not torch.equal(changed, gradient_after(linear(), users(count)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CopiedRows, "_memory_of", lambda self, alone: None)
        assert torch.equal(changed, gradient_after(linear(), again, halve(again._inputs)))


def test_what_a_layer_writes_unseen_does_not_reach_the_next_step(monkeypatch):
    """Changed after the module was looked at, and nobody counts it."""
    forward = nn.Linear.forward

    def writing(layer, rows):
        outputs = forward(layer, rows)
        rows.data.zero_()
        return outputs

    def change(step):
        monkeypatch.setattr(nn.Linear, "forward", writing)

    kept = gradient_after(linear(), users(), change)
    monkeypatch.undo()
    monkeypatch.setattr(CopiedRows, "_memory_of", lambda self, alone: None)
    assert torch.equal(gradient_after(linear(), users(), change), kept)


def test_rows_that_need_gradients_get_new_memory(monkeypatch):
    units = users()
    units._inputs.requires_grad_()
    assert len({rows.data_ptr() for rows in inputs_of_steps(linear(), units, monkeypatch)}) == STEPS


def test_a_hook_that_is_set_later_writes_into_a_copy_of_its_own():
    module, seen = linear(), []

    def meddle(layer, given):
        seen.append(given[0].clone())
        given[0].zero_()

    hooks = []

    def set_and_remove(step):
        if step == 1:
            hooks.append(module.register_forward_pre_hook(meddle))
        if step == 2:
            hooks.pop().remove()

    units = users()
    before = units._inputs.clone()
    gradient_after(module, units, set_and_remove)
    assert len(seen) == 1
    assert torch.equal(seen[0], before)
    assert torch.equal(units._inputs, before)


def test_a_loss_that_writes_into_its_targets_does_not_reach_the_next_step():
    def forgetful(outputs, targets):
        losses = cross_entropy(outputs, targets.clone())
        targets.zero_()
        return losses

    assert torch.equal(gradient_after(linear(), users(), loss=forgetful), gradient_after(linear(), users()))


@pytest.mark.parametrize("places", [None, torch.tensor([2, 0, 0])])
def test_a_copy_that_was_written_to_is_copied_again(places):
    units = users()
    rows, offsets = next(units.pieces(np.arange(len(units)), ROWS))
    filled = PaddedPass(places, offsets, None)
    alone, copied = HeldPasses(np.arange(len(units)), 0, [(rows, filled)]), CopiedRows(units)
    first = copied.of(rows, filled, alone)[0]
    expected = first.clone()
    first.zero_()
    second = copied.of(rows, filled, alone)[0]
    assert second is first
    assert torch.equal(second, expected)
    assert torch.equal(expected, units._inputs if places is None else units._inputs[places])
    assert copied.of(rows, filled, None)[0] is not second
    assert copied.of(rows, filled, alone)[0] is not second


def test_rows_in_another_order_move_the_sum_by_one_clip_norm_for_one_user_more():
    """Order is changed through NumPy, which torch does not count, between steps of users with a row each."""
    generator, count = np.random.default_rng(1), 40
    inputs, targets = generator.normal(size=(count, 5)).astype(np.float32), generator.normal(size=count)
    inputs[3:5] *= 50.0
    order, sums = generator.permutation(count), []
    for kept in (np.arange(count), np.delete(np.arange(count), 3)):
        held, beside = inputs[kept], targets[kept]
        torch.manual_seed(0)
        module = nn.Linear(5, 1)
        units = UserRows(torch.from_numpy(held), torch.from_numpy(beside), kept)
        private = PrivateGradients(
            module, lambda outputs, values: (outputs[:, 0] - values).abs(), units,
            Session(Budget(1e6, 1e-5), noise=SeededNoise(1)), steps=2, n_units=count, clip=FixedClip(1.0),
        )  # fmt: skip
        private.fill()
        places = [int(np.flatnonzero(kept == user)[0]) for user in order if user in kept]
        held[:], beside[:] = held[places], beside[places]
        private.fill()
        sums.append(count * torch.cat([p.grad.flatten().double() for p in module.parameters()]))
    assert 0.5 < float((sums[0] - sums[1]).norm()) <= 1.0 + 1e-3
