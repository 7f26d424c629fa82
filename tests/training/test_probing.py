"""Modules that mix rows, draw numbers or write into themselves: refused, gone around or undone, on made-up rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.auditing.hidden_values import raw_value
from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise
from apportion.privacy.clipped_gradients import GradientTotal
from apportion.training import DPSGD, ExampleRows, ExampleSession, PrivateGradients, PrivateTrainer, Watch
from apportion.training.layers import LayerFactors
from apportion.training.module_state import parts_of, unchanged
from apportion.training.per_unit import FunctionalGradients, gradient_way
from training.odd_models import Applied, Encoded, Places, Recurrent, Remembering, Rescaling, Tied, Twice

ROWS = torch.randn((9, 4), generator=torch.Generator().manual_seed(0))
ONES = torch.ones((9, 1))


def squares(outputs, targets):
    return (outputs - targets).square().flatten(1).sum(1)


def ids(n, length=3, top=10):
    return torch.randint(top, (n, length), generator=torch.Generator().manual_seed(1))


def batch_norm(**settings):
    return nn.Sequential(nn.BatchNorm1d(4, affine=False, **settings), nn.Linear(4, 1))


MIXING = {
    "attention along the first axis": (Encoded(), torch.zeros((0, 3, 8))),
    "recurrence along the first axis": (Recurrent(), torch.zeros((0, 3, 8))),
    "sums over the rows before": (Applied(lambda x: x.cumsum(0)), ROWS),
    "a mean over rows": (Applied(lambda x: x - x.mean(0)), ROWS),
    "a mean over rows of ids": (Applied(lambda x: x - x.float().mean(0), 3), ids(9)),
    "a count of rows": (Applied(lambda x: x * len(x)), ROWS),
    "a scale that goes by the largest row": (Applied(lambda x: x / 255 if x.abs().max() > 20 else x), ROWS),
    "a mean over rows that is kept": (Remembering(use=True), ROWS),
    "batch norm without running means": (batch_norm(track_running_stats=False).eval(), ROWS),
    "batch norm in training": (batch_norm(), ROWS),
}


@pytest.mark.parametrize(("module", "inputs"), MIXING.values(), ids=MIXING)
def test_rows_that_mix_are_refused(module, inputs):
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(InputError, match=r"each row by itself|mixes rows"):
        gradient_way(module, squares, inputs, ONES)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_loss_must_be_one_number_for_each_row_and_go_by_that_row():
    module = nn.Linear(4, 1)
    with pytest.raises(InputError, match=r"loss for each of 4 rows, got losses of shape \(\)"):
        gradient_way(module, lambda out, _: out.sum(), ROWS, ONES)
    with pytest.raises(InputError, match="each row by itself"):
        gradient_way(module, lambda out, _: (out - out.mean()).square(), ROWS, ONES)


AROUND = {
    "as many positions as rows": (Places(3), ids(9)),
    "other positions": (Places(4), ids(9, 4)),
    "a weight used elsewhere": (Tied(), ids(9)),
    "a layer used twice": (Twice(), ROWS),
}


@pytest.mark.parametrize(("module", "inputs"), AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("zero", [False, True])
def test_where_factors_do_not_suffice_gradients_go_the_general_way_and_are_autograds(module, inputs, zero):
    if zero:
        for parameter in module.parameters():
            nn.init.zeros_(parameter)
    else:
        torch.manual_seed(0)
        for parameter in module.parameters():
            nn.init.normal_(parameter)
    way = gradient_way(module, squares, inputs, ONES)
    assert isinstance(way, FunctionalGradients)
    blocks = way.blocks(inputs, ONES, torch.arange(10))
    for row in range(9):
        loss = squares(module(inputs[row : row + 1]), ONES[row : row + 1]).sum()
        for block, expected in zip(blocks, torch.autograd.grad(loss, list(module.parameters())), strict=True):
            assert torch.allclose(block.each()[row], expected, atol=1e-4)
    with pytest.raises(InputError, match="which LayerFactors needs"):
        private(module, inputs, way=LayerFactors(module, squares))


def test_gradients_are_right_where_a_layer_works_in_place():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 1))
    way = gradient_way(module, squares, ROWS, ONES)
    assert isinstance(way, LayerFactors)
    blocks = way.blocks(ROWS, ONES, torch.arange(10))
    expected = torch.autograd.grad(squares(module(ROWS), ONES).sum(), list(module.parameters()))
    for block, gradient in zip(blocks, expected, strict=True):
        assert torch.allclose(block.each().sum(0).to(gradient.dtype), gradient, atol=1e-5)


@pytest.mark.parametrize("length", [3, 4, 9])
def test_a_row_that_changes_moves_the_sum_by_two_clip_norms_at_most_with_a_position_table(length):
    torch.manual_seed(0)
    module, inputs = Places(length), ids(9, length)
    way = gradient_way(module, squares, inputs, ONES)
    found = []
    for targets in (50 * ONES, torch.cat([-1e6 * ONES[:1], 50 * ONES[1:]])):
        total = GradientTotal(1.0, [tuple(p.shape) for p in module.parameters()])
        total.add(way.blocks(inputs, targets, torch.arange(10)))
        found.append(raw_value(total.sealed()))
    assert np.linalg.norm(found[0] - found[1]) <= 2


def private(module, inputs, *, loss=squares, targets=ONES, steps=3, **settings):
    session = ExampleSession(Budget(1.0, 1e-5), noise=SeededNoise(1))
    return PrivateGradients(module, loss, ExampleRows(inputs, targets), session, steps=steps, n_units=9, **settings)


def test_modes_are_looked_at_again_when_they_change():
    module = batch_norm().eval()
    gradients = private(module, ROWS)
    gradients.fill()
    module.train()
    with pytest.raises(InputError, match="BatchNorm1d"):
        gradients.fill()
    assert gradients.steps_left == 2


@pytest.mark.parametrize("functional", [False, True])
def test_random_numbers_other_than_dropout_are_refused_and_the_generator_is_left_alone(functional):
    last = nn.PReLU() if functional else nn.Identity()
    module = nn.Sequential(nn.Linear(4, 8), nn.AlphaDropout(0.5), nn.Linear(8, 1), last)
    state = torch.get_rng_state()
    with pytest.raises(InputError, match="draws no random numbers"):
        private(module, ROWS)
    assert torch.equal(state, torch.get_rng_state())
    private(module.eval(), ROWS).fill()


@pytest.mark.parametrize("trained", [False, True])
def test_embeddings_that_rescale_what_is_looked_up_are_refused(trained):
    embed = nn.Embedding(10, 4, max_norm=0.1).requires_grad_(trained)
    with pytest.raises(InputError, match="no Embedding with max_norm"):
        private(nn.Sequential(embed, nn.Flatten(), nn.Linear(12, 1)), ids(9))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_below_float32_are_refused(dtype):
    with pytest.raises(InputError, match=f"parameters of float32 or float64, got {dtype}"):
        private(nn.Linear(4, 1).to(dtype), ROWS.to(dtype), targets=ONES.to(dtype))


def instance_norm():
    return nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten(), nn.Linear(4, 1)
    )


@pytest.mark.parametrize("make", [instance_norm, Remembering, Rescaling])
@pytest.mark.parametrize("watched", [False, True])
def test_nothing_of_raw_rows_stays_in_the_module(make, watched):
    """With and without an outlier, all that is not trained ends as it began, also after looks at raw rows."""
    for inputs in (ROWS, 100 * ROWS):
        module = make()
        frozen = [name for name in module.state_dict() if "out." not in name and not name.startswith("3.")]
        before = {name: module.state_dict()[name].clone() for name in frozen}
        watch = Watch(inputs, torch.zeros(9, dtype=torch.int64), np.zeros(9, int), 1, every=1) if watched else None
        PrivateTrainer(
            module, DPSGD(module.parameters(), 0.1), lambda out, t: (out[:, 0] - t.flatten()).square(), epsilon=1.0,
            delta=1e-5, steps=2, n_units=9, noise=SeededNoise(1), rows_at_once=4,
        ).fit(ExampleRows(inputs, torch.zeros(9)), watch=watch)  # fmt: skip
        assert all(torch.equal(before[name], module.state_dict()[name]) for name in frozen)
        assert getattr(module, "top", 0.0) == 0.0


def test_a_module_is_put_back_also_when_something_fails():
    module = Remembering()
    buffers = dict(module.named_buffers())

    def fail():
        with unchanged(module):
            module(ROWS)
            module.extra = torch.ones(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert all(buffers[name] is value and not value.any() for name, value in module.named_buffers())
    assert not hasattr(module, "extra")


def test_gradients_of_parameters_that_are_not_trained_here_never_reach_the_optimizer():
    torch.manual_seed(0)
    module, apart = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), nn.Linear(4, 1)
    optimizer = DPSGD([*module.parameters(), *apart.parameters()], 0.1)
    (squares(module(ROWS), ONES).mean() + squares(apart(ROWS), ONES).mean()).backward()  # a look at raw losses
    module[0].requires_grad_(False)
    before = [p.detach().clone() for p in (*module[0].parameters(), *apart.parameters())]
    private(module, ROWS).fill(optimizer)
    optimizer.step()
    after = [*module[0].parameters(), *apart.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert all(p.grad is not None for p in module[2].parameters())


def test_other_trained_parameters_than_at_the_start_are_refused():
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    gradients = private(module, ROWS)
    module[0].requires_grad_(False)
    with pytest.raises(InputError, match="same trained parameters"):
        gradients.fill()


def test_plateau_schedulers_are_refused_without_a_released_loss():
    module = nn.Linear(4, 1)
    optimizer = DPSGD(module.parameters(), 0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(InputError, match="got ReduceLROnPlateau"):
        PrivateTrainer(module, optimizer, squares, epsilon=1.0, delta=1e-5, steps=2, scheduler=plateau)


def test_modules_that_no_way_can_take_are_refused_before_the_first_step():
    class Choosy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, rows):
            if not rows.detach().any():
                raise ValueError("no row")
            return (rows @ self.weight)[:, None]

    with pytest.raises(InputError, match=r"gives gradients row by row, got the error no row"):
        gradient_way(Choosy(), squares, ROWS, ONES)


def test_what_no_made_up_row_passes_is_refused_and_labels_from_0_and_1_are_enough():
    with pytest.raises(InputError, match="accept made-up rows"):
        gradient_way(nn.Linear(5, 1), squares, ROWS, ONES)
    classes = nn.CrossEntropyLoss(reduction="none")
    way = gradient_way(nn.Linear(4, 1), classes, ROWS, torch.zeros(9, dtype=torch.int64))  # one class: 1 is no label
    assert isinstance(way, LayerFactors)
    rates = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    assert isinstance(gradient_way(rates, nn.BCELoss(reduction="none"), ROWS, ONES), LayerFactors)


class ClippedInside(nn.Module):
    """Clips the gradient of the whole batch on its way back, where it is large."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, rows):
        hidden = self.first(rows)
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: gradient * (100 / gradient.norm()).clamp(max=1.0))
        return self.last(hidden)


def test_a_gradient_that_does_not_grow_with_the_loss_is_formed_row_by_row():
    assert isinstance(gradient_way(ClippedInside(), squares, ROWS, ONES), FunctionalGradients)


def test_modules_with_backward_hooks_do_not_share_a_backward_pass():
    module = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 1))
    assert isinstance(gradient_way(module, squares, ROWS, ONES), LayerFactors)
    module[0].register_full_backward_hook(lambda part, inward, outward: None)
    with pytest.raises(InputError, match=r"gives gradients row by row"):
        gradient_way(module, squares, ROWS, ONES)


def test_parts_come_in_the_order_of_modules_and_each_once():
    shared, again = nn.Linear(2, 2), nn.Sequential(nn.ReLU())
    module = nn.ModuleDict({
        "one": nn.Sequential(shared, again, nn.ModuleList([shared, nn.Tanh()])),
        "two": nn.Sequential(again, nn.Sequential(nn.Linear(2, 2), shared)),
    })  # fmt: skip
    module["one"].register_module("none", None)
    found = parts_of(module)
    assert len(found) == 10
    assert [id(part) for part in found] == [id(part) for part in module.modules()]
