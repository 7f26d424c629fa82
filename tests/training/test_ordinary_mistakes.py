"""What people of PyTorch hand in by mistake: each is refused by the name of its argument, before anything is paid."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import data
from torch.utils.checkpoint import checkpoint

from apportion.errors import InputError
from apportion.privacy import Budget, Purpose, SeededNoise, Session
from apportion.privacy.clipped_gradients import GradientTotal
from apportion.training import DPSGD, PrivateTrainer, ReleasedLoss, UserRows
from training.small_models import cross_entropy

N = 24
USERS = np.arange(N) // 3


def numbers():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N, 6, generator=generator), torch.randint(3, (N,), generator=generator)


def fitted(module=None, optimizer=DPSGD, units=None, **settings):
    module = nn.Linear(6, 3) if module is None else module
    made = optimizer(module.parameters(), 0.1) if isinstance(optimizer, type) else optimizer
    given = {"epsilon": 4.0, "delta": 1e-5, "steps": 2, "n_units": 8, **settings}
    return PrivateTrainer(module, made, cross_entropy, **given).fit(units or UserRows(*numbers(), USERS))


class Old(nn.Module):
    """Forgets activations in the old way, which hides gradients from `torch.autograd.grad`."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.two(checkpoint(self.one, x.clone().requires_grad_(), use_reentrant=True))


class New(Old):
    """Forgets activations in the new way."""

    def forward(self, x):
        return self.two(checkpoint(self.one, x, use_reentrant=False))


OTHER = nn.Linear(6, 3)
OF_OTHER = torch.optim.SGD(OTHER.parameters(), 0.1)


def too_short(module):
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=1)


def rows_of(inputs=None, targets=None, users=USERS):
    x, y = numbers()
    return UserRows(x if inputs is None else inputs(x), y if targets is None else targets(y), users)


MISTAKES = {
    "a class of optimizers": ("optimizer", lambda: fitted(optimizer=torch.optim.SGD.step)),
    "no optimizer": ("optimizer", lambda: PrivateTrainer(OTHER, None, cross_entropy, epsilon=1, delta=1e-5, steps=1)),
    "sparse gradients": ("optimizer", lambda: fitted(optimizer=torch.optim.SparseAdam)),
    "another optimizer's scheduler": (
        "scheduler",
        lambda: fitted(scheduler=torch.optim.lr_scheduler.StepLR(OF_OTHER, 1)),
    ),
    "neither epsilon nor multiplier": ("epsilon", lambda: fitted(epsilon=None)),
    "double inputs": ("inputs", lambda: fitted(units=rows_of(inputs=lambda x: x.double()))),
    "whole inputs": ("inputs", lambda: fitted(units=rows_of(inputs=lambda x: x.long()))),
    "float targets": ("targets", lambda: fitted(units=rows_of(targets=lambda y: y.float()))),
    "sparse inputs": ("inputs", lambda: rows_of(inputs=lambda x: x.to_sparse())),
    "one number": ("inputs", lambda: rows_of(inputs=lambda x: x[0, 0])),
    "a list of tensors": ("inputs", lambda: rows_of(inputs=lambda x: [x, x])),
    "no rows": ("users", lambda: UserRows(torch.zeros(0, 2), torch.zeros(0), [])),
    "a missing user": ("users", lambda: rows_of(users=[None, *map(str, USERS[1:])])),
    "parameters without numbers": ("module", lambda: fitted(nn.Linear(6, 3, device="meta"))),
    "old activation checkpoints": ("module", lambda: fitted(Old())),
    "a text as data": ("source", lambda: UserRows.of("rows.csv", user="user")),
}


@pytest.mark.parametrize(("argument", "mistake"), MISTAKES.values(), ids=MISTAKES)
def test_it_is_refused_by_the_name_of_its_argument(argument, mistake):
    with pytest.raises(InputError, match=r"Expected|empty") as caught:
        mistake()
    assert caught.value.argument == argument


def test_a_scheduler_that_ends_too_early_is_refused_before_a_step_is_paid_for():
    module = nn.Linear(6, 3)
    optimizer, scheduler = too_short(module)
    with pytest.raises(InputError, match="for 2 steps, got OneCycleLR with total_steps=1") as caught:
        fitted(module, optimizer, scheduler=scheduler)
    assert caught.value.argument == "scheduler"
    assert fitted(module, optimizer, scheduler=scheduler, steps=1).statement_.epsilon == 4.0


@pytest.mark.parametrize("own", [3, 7, -1])
@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_a_class_that_the_module_does_not_have_is_refused_before_a_step_is_paid_for(own, sampling):
    """One user of eight has it, so that most samples would not meet it in the first step."""
    session = Session(Budget(4.0, 1e-5), noise=SeededNoise(0))
    module = nn.Linear(6, 3)
    trainer = PrivateTrainer(module, DPSGD(module.parameters(), 0.1), cross_entropy, epsilon=4.0, delta=1e-5, steps=9,
                             n_units=8, sampling=sampling)  # fmt: skip
    with pytest.raises(InputError, match=rf"targets that the loss takes, got {own} \(IndexError: .*\(3,\)") as caught:
        trainer.fit(rows_of(targets=lambda y: torch.where(torch.arange(N) == N - 1, own, y)), session=session)
    assert caught.value.argument == "targets"
    assert session.spent == 0


def test_targets_that_a_loss_takes_are_taken_wherever_they_lie():
    def shares(outputs, targets):
        return nn.functional.binary_cross_entropy(outputs.sigmoid()[:, 0], targets, reduction="none")

    assert fitted(units=rows_of(targets=lambda y: torch.where(y == 2, -100, y))).statement_.epsilon == 4.0
    module = nn.Linear(6, 3)
    for least, most in ((0.0, 1.0), (-0.1, 1.0), (0.0, 1.1)):
        trainer = PrivateTrainer(module, DPSGD(module.parameters(), 0.1), shares, epsilon=4.0, delta=1e-5, steps=2,
                                 n_units=8)  # fmt: skip
        units = rows_of(targets=lambda y, ends=(least, most): torch.linspace(*ends, N))
        if (least, most) == (0.0, 1.0):
            assert trainer.fit(units).statement_.epsilon == 4.0
            continue
        with pytest.raises(InputError, match=f"got {least if least else most}"):
            trainer.fit(units)


def test_new_activation_checkpoints_are_taken():
    assert fitted(New()).statement_.epsilon == 4.0


class Told(data.Dataset):
    """Rows with their users, by number."""

    def __len__(self):
        return N

    def __getitem__(self, k):
        x, y = numbers()
        return {"x": x[k], "y": y[k], "user": int(USERS[k])}


@pytest.mark.parametrize(
    "settings",
    [
        {"drop_last": True},
        {"sampler": data.WeightedRandomSampler(torch.ones(N), 30)},
        {"sampler": data.RandomSampler(range(N), num_samples=10)},
        {"sampler": data.RandomSampler(range(N), replacement=True)},
        {"sampler": data.SubsetRandomSampler(range(10))},
        {"batch_sampler": [[0, 1], [4]], "batch_size": 1},
        {"batch_sampler": data.BatchSampler(data.SubsetRandomSampler(range(10)), 5, False), "batch_size": 1},
        {"sampler": data.SequentialSampler(range(4))},
        {"sampler": data.RandomSampler(range(4))},
        {"batch_sampler": data.BatchSampler(data.SequentialSampler(range(4)), 2, False), "batch_size": 1},
    ],
)
def test_a_loader_that_leaves_rows_out_or_repeats_them_is_refused(settings):
    """Which rows of others it leaves out would change with one user more."""
    with pytest.raises(InputError, match="every row once") as caught:
        UserRows.of(data.DataLoader(Told(), **{"batch_size": 5, **settings}), user="user", target="y")
    assert caught.value.argument == "source"


@pytest.mark.parametrize("settings", [{}, {"shuffle": True}, {"batch_size": None}, {"batch_size": 7}])
def test_loaders_that_give_every_row_once_are_read(settings):
    if settings.get("batch_size", 0) is None:
        with pytest.raises(InputError, match="give the loader a batch_size"):
            UserRows.of(data.DataLoader(Told(), **settings), user="user", target="y")
        return
    units = UserRows.of(data.DataLoader(Told(), **{"batch_size": 5, **settings}), user="user", target="y")
    assert len(units) == 8


def test_rows_of_any_list_are_read_and_rows_of_several_lengths_ask_for_padding():
    assert len(UserRows.of([Told()[k] for k in range(N)], user="user", target="y")) == 8
    ragged = [{"x": torch.zeros(1 + k % 2), "user": k} for k in range(6)]
    with pytest.raises(InputError, match="pad or leave out") as caught:
        UserRows.of(ragged, user="user")
    assert caught.value.argument == "collate"


class Pooled(nn.Module):
    """The mean over the words that a mask leaves, with its own loss, as tokenizers and their modules do."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(20, 4), nn.Linear(4, 3)

    def forward(self, ids, mask, labels):
        seen = (self.words(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return {"loss": nn.functional.cross_entropy(self.out(seen), labels)}


def test_a_mask_that_leaves_nothing_in_made_up_rows_is_no_reason_to_refuse():
    ids = torch.randint(20, (N, 5))
    rows = {"ids": ids, "mask": torch.ones_like(ids), "labels": numbers()[1]}
    module = Pooled()
    trainer = PrivateTrainer(module, DPSGD(module.parameters(), 0.1), epsilon=4.0, delta=1e-5, steps=2, n_units=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trainer.fit(UserRows(rows, None, USERS)).statement_.epsilon == 4.0


@pytest.mark.parametrize("largest", [0.0, 1e-320, 1e101, math.inf, math.nan])
def test_limits_of_losses_whose_squares_vanish_or_overflow_are_refused(largest):
    with pytest.raises(InputError, match="Expected largest from 1e-100 to 1e"):
        ReleasedLoss(largest)


@pytest.mark.parametrize(("largest", "norm"), [(1e-100, 1e100), (1e100, 1e-100)])
def test_a_loss_far_from_the_clip_norm_is_released_without_an_error(largest, norm):
    total = GradientTotal(norm, [(2,)], losses=(largest, 0.02))
    assert total.sealed().l2_sensitivity > 0
    session = Session(Budget(1.0, 1e-6), noise=SeededNoise(0))
    released = session.release(Purpose.GRADIENT, total.sealed(), session.plan(one=1.0).one("one"))
    assert np.isfinite(released).all()


class Labelled(nn.Module):
    """Takes numbers and an id, and returns its own loss."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(2, 4), nn.Linear(10, 3)

    def forward(self, x, ids, labels):
        return nn.functional.cross_entropy(self.out(torch.cat([x, self.table(ids)], 1)), labels)


def test_made_up_ids_beside_real_numbers_stay_in_a_small_table():
    inputs, labels = numbers()
    rows, module = {"x": inputs, "ids": labels % 2, "labels": labels}, Labelled()
    trainer = PrivateTrainer(module, DPSGD(module.parameters(), 0.1), epsilon=4.0, delta=1e-5, steps=2, n_units=8)
    assert trainer.fit(UserRows(rows, None, USERS)).statement_.epsilon == 4.0
