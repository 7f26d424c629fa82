"""What a trainer takes: datasets, loaders, dictionaries, losses inside, epochs, stops; and what it refuses."""

from __future__ import annotations

import io
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from apportion.errors import BudgetError, InputError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.ledger import Ledger
from apportion.training import (
    DPSGD,
    DPAdamBC,
    ExampleRows,
    PrivateTrainer,
    ProgressBar,
    QuantileClip,
    ReleasedLoss,
    SecondMomentScales,
    TrainingCheckpoint,
    UserRows,
)
from apportion.training.checkpoints import RatchetNoise

N_ROWS, N_USERS = 60, 20
RNG = np.random.default_rng(0)
X = torch.as_tensor(RNG.standard_normal((N_ROWS, 4)), dtype=torch.float32)
WORDS = torch.as_tensor(RNG.integers(0, 7, (N_ROWS, 3)))
Y = torch.as_tensor(RNG.integers(0, 2, N_ROWS))
USERS = np.arange(N_ROWS) % N_USERS


def cross_entropy(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class TwoTensors(nn.Module):
    """Takes numbers and words, by position or by name."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.linear = nn.Linear(8, 2)

    def forward(self, numbers, words):
        return self.linear(torch.cat([numbers, self.embedding(words).mean(1)], dim=1))


class WithLoss(nn.Module):
    """In the manner of Hugging Face: forward(**batch), with a mean loss in the result."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.linear = nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask, labels=None):
        weights = attention_mask / attention_mask.sum(1, keepdim=True)
        logits = self.linear((self.embedding(input_ids) * weights.unsqueeze(2)).sum(1))
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


class Rows(Dataset):
    """Rows of dictionaries with a column of users."""

    def __len__(self):
        return N_ROWS

    def __getitem__(self, k):
        return {"numbers": X[k], "words": WORDS[k], "label": Y[k], "user": f"user {USERS[k]}"}


class Stream(IterableDataset):
    """The same as tuples, one after the other, without a length."""

    def __iter__(self):
        return iter([(X[k], Y[k], int(USERS[k])) for k in range(N_ROWS)])


def made(module=None, loss=cross_entropy, optimizer=None, **settings):
    torch.manual_seed(0)
    module = module() if module is not None else nn.Linear(4, 2)
    chosen = {"epsilon": 5.0, "delta": 1e-4, "steps": 4, "n_units": N_USERS, "noise": SeededNoise(1), **settings}
    return PrivateTrainer(module, (optimizer or DPSGD)(module.parameters(), 0.1), loss, **chosen)


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.module.parameters()])


# -- inputs --


def test_dictionaries_and_tuples_give_the_gradients_of_the_module_itself():
    """Against a module that takes one tensor and has the same parameters."""

    class Alone(TwoTensors):
        def forward(self, rows):
            return super().forward(rows[:, :4].float(), rows[:, 4:].long())

    together = torch.cat([X.double(), WORDS.double()], dim=1)
    expected = weights(made(Alone).fit(UserRows(together, Y, USERS)))
    for inputs in ({"numbers": X, "words": WORDS}, (X, WORDS)):
        found = weights(made(TwoTensors).fit(UserRows(inputs, Y, USERS)))
        assert found == pytest.approx(expected, abs=1e-6)


def test_a_dataset_a_loader_and_a_stream_are_read_with_their_users():
    direct = weights(made(TwoTensors).fit(UserRows({"numbers": X, "words": WORDS}, Y, [f"user {u}" for u in USERS])))
    read = weights(made(TwoTensors).fit(UserRows.of(Rows(), user="user", target="label")))
    loader = DataLoader(Rows(), batch_size=7)
    loaded = weights(made(TwoTensors).fit(UserRows.of(loader, user="user", target="label")))
    assert torch.equal(direct, read)
    assert torch.equal(direct, loaded)
    plain = weights(made().fit(UserRows(X, Y, USERS)))
    streamed = weights(made().fit(UserRows.of(Stream(), user=-1, target=1)))
    assert torch.equal(plain, streamed)


def test_a_module_with_its_loss_inside_learns_as_with_the_loss_outside():
    class Outside(WithLoss):
        def forward(self, input_ids, attention_mask):
            return super().forward(input_ids, attention_mask, Y[:1].expand(len(input_ids))).logits

    mask = torch.ones((N_ROWS, 3), dtype=torch.long)
    mask[::2, 2] = 0
    batch = {"input_ids": WORDS, "attention_mask": mask}
    expected = weights(made(Outside).fit(UserRows(batch, Y, USERS)))
    found = weights(made(WithLoss, None).fit(UserRows({**batch, "labels": Y}, None, USERS)))
    assert found == pytest.approx(expected, abs=1e-6)


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is to go
        module = torch.jit.script(nn.Linear(X.shape[1], 2))
    optimizer = DPSGD(module.parameters(), 0.1)
    return PrivateTrainer(module, optimizer, cross_entropy, epsilon=1.0, delta=1e-5, steps=1, n_units=20)


def test_refusals_name_their_argument():
    cases = {
        "units": lambda: made().fit(DataLoader(Rows())),
        "noise": lambda: made(noise="exact"),
        "user": lambda: UserRows.of(Rows(), user="who"),
        "source": lambda: UserRows.of("rows.csv", user="user"),
        "collate": lambda: UserRows.of(DataLoader(Rows()), user="user", collate=list),
        "inputs": lambda: UserRows({"a": X, "b": WORDS[:5]}, Y, USERS),
        "loss": lambda: made(loss=None).fit(UserRows(X, None, USERS)),
        "epsilon": lambda: made(noise_multiplier=1.0),
        "steps": lambda: made(epochs=3),
        "batch_size": lambda: made(batch_size=5, n_units=None),
        "n_units": lambda: made(epsilon=None, noise_multiplier=1.0, n_units=None),
        "noise_multiplier": lambda: made(epsilon=None, noise_multiplier=0.01),
        "epochs": lambda: made(steps=None, epochs=-1, batch_size=5),
        "sampling": lambda: made(steps=None, epochs=1, sampling=2.0),
        "rows_at_once": lambda: made(rows_at_once=0),
        "clip": lambda: made(clip=1.0),
        "scaling": lambda: made(scaling=True),
        "losses": lambda: made(losses=3.0),
        "tables": lambda: made(tables=5),
        "scheduler": lambda: made(scheduler="cosine"),
        "optimizer": lambda: PrivateTrainer(
            nn.Linear(2, 2), DPSGD(nn.Linear(2, 2).parameters(), 0.1), epsilon=1.0, delta=1e-5, steps=1
        ),
        "optimizer ": lambda: PrivateTrainer(
            (layer := nn.Linear(2, 2)), torch.optim.LBFGS(layer.parameters()), epsilon=1.0, delta=1e-5, steps=1
        ),
        "module": lambda: scripted().fit(UserRows(X, Y, USERS)),
        "every": lambda: TrainingCheckpoint("x", 0),
        "session": lambda: made().fit(
            UserRows(X, Y, USERS), session=Session(Budget(1.0, 1e-5)), checkpoint=TrainingCheckpoint("x")
        ),
    }
    for argument, refused in cases.items():
        with pytest.raises(InputError) as error:
            refused()
        assert error.value.argument == argument.strip(), (argument, str(error.value))


@pytest.mark.parametrize(
    ("argument", "given"), [("progress", 3), ("callbacks", print), ("callbacks", [3]), ("checkpoint", "file.pt")]
)
def test_what_would_fail_after_a_paid_step_is_refused_before_it(argument, given):
    session = Session(Budget(1.0, 1e-5))
    with pytest.raises(InputError) as error:
        made().fit(UserRows(X, Y, USERS), session=session, **{argument: given})
    assert error.value.argument == argument
    assert session.spent == 0


def test_an_optimizer_that_lacks_a_trained_parameter_is_refused_by_its_name_before_a_step_is_paid_for():
    module, session = nn.Sequential(nn.Linear(X.shape[1], 3), nn.Linear(3, 2)), Session(Budget(1.0, 1e-5))

    def head_only(epsilon):
        optimizer = DPSGD(module[1].parameters(), 0.1)
        return PrivateTrainer(module, optimizer, cross_entropy, epsilon=epsilon, delta=1e-5, steps=2, n_units=20)

    with pytest.raises(InputError, match=r"without '0.weight' and 1 more.*requires_grad_\(False\)") as error:
        head_only(1.0).fit(UserRows(X, Y, USERS), session=session)
    assert error.value.argument == "optimizer"
    assert session.spent == 0
    module[0].requires_grad_(False)
    kept = module[0].weight.clone()
    head_only(1.0).fit(UserRows(X, Y, USERS))
    assert torch.equal(module[0].weight, kept)


@pytest.mark.parametrize("steps", [0, -1, 2.5])
def test_a_number_of_steps_that_is_none_is_refused_by_its_name(steps):
    with pytest.raises(InputError, match="whole number of at least 1") as error:
        made(steps=steps)
    assert error.value.argument == "steps"


def test_autocast_and_rows_on_another_device_are_refused_by_name():
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(InputError, match="autocast around training"):
        made().fit(UserRows(X, Y, USERS))
    with pytest.raises(InputError, match="device of the module, cpu, got meta"):
        made().fit(UserRows(X.to("meta"), Y.to("meta"), USERS))


# -- how long, and what it costs --


def test_epochs_a_batch_size_and_a_noise_multiplier_stand_for_steps_a_rate_and_an_epsilon():
    rows = ExampleRows(X, Y)
    trainer = made(epsilon=None, noise_multiplier=1.5, steps=None, epochs=3, batch_size=12, n_units=N_ROWS)
    assert (trainer.steps, trainer.sampling) == (15, 0.2)
    assert trainer.fit(rows).noise_multiplier_ == pytest.approx(1.5, rel=2e-3)
    assert trainer.statement_.spent_epsilon <= trainer.epsilon * (1 + 1e-9)
    full = made(epsilon=None, noise_multiplier=8.0, steps=9, n_units=N_ROWS).fit(rows)
    assert full.noise_multiplier_ == pytest.approx(8.0, rel=1e-6)


def test_callbacks_and_a_bar_are_told_of_every_step():
    told, stream = [], io.StringIO()
    made().fit(UserRows(X, Y, USERS), progress=ProgressBar(stream), callbacks=[lambda done: told.append(done)])
    assert [done.step for done in told] == [1, 2, 3, 4]
    assert all(done.noise.stddev > 0 for done in told)
    assert stream.getvalue().splitlines()[-1] == "step 4 of 4"


# -- stopping and going on --


class Stopped(Exception):
    """A run that ends in the middle."""


def stop_at(step):
    def stop(done):
        if done.step == step:
            raise Stopped

    return stop


class Account:
    """A ledger that counts charges."""

    def __init__(self):
        self.charges = []

    def charge(self, name, event):
        self.charges.append(name)


SETTINGS = {
    "sampled": {"sampling": 0.5, "steps": 7},
    "full, number released, norm that follows": {"steps": 7, "n_units": None, "clip": QuantileClip()},
    "scaled, sampled": {"steps": 7, "scaling": SecondMomentScales(after=2), "sampling": 0.5},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_that_stops_and_goes_on_ends_with_the_same_bits_as_one_that_does_not(name, tmp_path):
    """Killed after step 5, with a checkpoint at step 3: steps 4 and 5 are taken twice, with the same noise."""

    def run(file, account, callbacks=()):
        trainer = made(optimizer=DPAdamBC, **SETTINGS[name])
        trainer.scheduler = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 2)
        rows = UserRows(X, Y, USERS)
        return trainer.fit(rows, checkpoint=TrainingCheckpoint(file, 3), ledger=account, callbacks=callbacks)

    whole = run(tmp_path / "whole", Account())
    account = Account()
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", account, [stop_at(5)])
    before = len(account.charges)
    again = run(tmp_path / "stopped", account)
    assert torch.equal(weights(whole), weights(again))
    assert whole.statement_.to_json() == again.statement_.to_json()
    if "sampling" in SETTINGS[name]:
        assert len(account.charges) == before == 1  # the whole plan, once
    assert (tmp_path / "stopped").stat().st_mode & 0o077 == 0
    done = run(tmp_path / "stopped", account)
    assert torch.equal(weights(done), weights(again))


@pytest.mark.parametrize(("sampling", "kind"), [(0.5, "renyi"), (1.0, "gaussian")])
def test_the_statement_of_a_run_that_went_on_refers_to_its_ledger(sampling, kind, tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.jsonl")
    account = ledger.create_account("users", Budget(50.0, 1e-2), kind=kind)
    settings = {"sampling": sampling, "steps": 4}
    first = {"checkpoint": TrainingCheckpoint(tmp_path / "run", 2), "ledger": account}
    with pytest.raises(Stopped):
        made(**settings).fit(UserRows(X, Y, USERS), **first, callbacks=[stop_at(2)])
    charged = len(account.history())
    stated = made(**settings).fit(UserRows(X, Y, USERS), **first).statement_.ledger
    assert stated is not None
    assert stated.account == "users"
    assert stated.entries == len(account.history()) == (1 if sampling < 1 else 4)
    assert charged == (1 if sampling < 1 else 2)


# -- schedulers that watch a loss --


def test_a_scheduler_that_watches_a_loss_gets_the_released_one():
    seen = []

    class Plateau(torch.optim.lr_scheduler.ReduceLROnPlateau):
        def step(self, metrics, epoch=None):
            seen.append(metrics)
            super().step(metrics, epoch)

    trainer = made(losses=ReleasedLoss(3.0), epsilon=500.0, steps=5)
    trainer.scheduler = Plateau(trainer.optimizer, patience=0, threshold=10.0)
    trainer.fit(UserRows(X, Y, USERS))
    losses = cross_entropy(made().module(X), Y).detach().numpy()
    users = np.array([losses[user == USERS].mean() for user in range(N_USERS)])
    assert seen[0] == pytest.approx(users.clip(0, 3).mean(), abs=0.05)
    assert len(seen) == 5
    assert trainer.optimizer.param_groups[0]["lr"] < 0.1


def test_a_checkpoint_is_refused_for_other_rows_or_settings(tmp_path):
    file = tmp_path / "run"
    rows = UserRows(X, Y, USERS)
    made(sampling=0.5, steps=7).fit(rows, checkpoint=TrainingCheckpoint(file))
    other = X.clone()
    other[7] += 1e-6
    for refused in (
        lambda: made(sampling=0.5, steps=7).fit(UserRows(other, Y, USERS), checkpoint=TrainingCheckpoint(file)),
        lambda: made(sampling=0.5, steps=8).fit(rows, checkpoint=TrainingCheckpoint(file)),
        lambda: made(sampling=0.5, steps=7).fit(rows, checkpoint=TrainingCheckpoint(file), ledger=Account()),
    ):
        with pytest.raises(InputError, match="same rows and settings"):
            refused()
    file.write_bytes(b"something else")
    with pytest.raises(InputError, match="Cannot read the checkpoint"):
        made(sampling=0.5, steps=7).fit(rows, checkpoint=TrainingCheckpoint(file))


def test_a_checkpoint_is_refused_with_another_learning_rate_or_scheduler(tmp_path):
    """Steps that are repeated have the same noise: other parameters would take it off."""
    file, rows = TrainingCheckpoint(tmp_path / "run", 2), UserRows(X, Y, USERS)

    def trainer(rate=0.1, scheduler=None):
        module = nn.Linear(4, 2)
        with torch.no_grad():
            module.weight.zero_()
        optimizer = torch.optim.SGD(module.parameters(), lr=rate)
        given = None if scheduler is None else scheduler(optimizer)
        settings = {"epsilon": 1.0, "delta": 1e-5, "steps": 4, "noise": SeededNoise(0), "scheduler": given}
        return PrivateTrainer(module, optimizer, cross_entropy, **settings)

    trainer(scheduler=lambda held: torch.optim.lr_scheduler.StepLR(held, 2)).fit(rows, checkpoint=file)
    for other in (
        trainer(),
        trainer(0.2, lambda held: torch.optim.lr_scheduler.StepLR(held, 2)),
        trainer(scheduler=lambda held: torch.optim.lr_scheduler.StepLR(held, 3)),
        trainer(scheduler=lambda held: torch.optim.lr_scheduler.ConstantLR(held, 0.5, 2)),
    ):
        with pytest.raises(InputError, match="same rows and settings"):
            other.fit(rows, checkpoint=file)


def halved(outputs, targets, weight=0.5):
    return weight * cross_entropy(outputs, targets)


class Penalised(nn.Module):
    """A module whose forward pass is not in its name."""

    def __init__(self, by=1.0):
        super().__init__()
        self.by = by

    def forward(self, outputs, targets):
        return self.by * cross_entropy(outputs, targets)


def closing_over(weight):
    return lambda outputs, targets: weight * cross_entropy(outputs, targets)


LOSSES = {
    "label smoothing": lambda k: nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1 * k),
    "class weights": lambda k: nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0 + k]), reduction="none"),
    "an argument": lambda k: partial(halved, weight=0.5 + k),
    "a value in a closure": lambda k: closing_over(0.5 + k),
    "an attribute": lambda k: Penalised(1.0 + k),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_checkpoint_is_refused_with_other_numbers_in_the_loss(name, tmp_path):
    """A step that is repeated has the same noise: the sum of another loss would take it off."""
    file, rows = TrainingCheckpoint(tmp_path / "run", 2), UserRows(X, Y, USERS)

    def trainer(loss):
        module = nn.Linear(4, 2)
        with torch.no_grad():
            module.weight.zero_()
            module.bias.zero_()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        return PrivateTrainer(module, optimizer, loss, epsilon=1.0, delta=1e-5, steps=2, noise=SeededNoise(0))

    trainer(LOSSES[name](0)).fit(rows, checkpoint=file)
    trainer(LOSSES[name](0)).fit(rows, checkpoint=file)
    with pytest.raises(InputError, match="same rows and settings"):
        trainer(LOSSES[name](1)).fit(rows, checkpoint=file)


class Tempered(nn.Module):
    """A module with a number beside its parameters, and one that is stored."""

    def __init__(self):
        super().__init__()
        self.inner, self.by = nn.Linear(4, 2), 1.0
        self.register_buffer("heat", torch.ones(()))

    def forward(self, rows):
        return self.inner(rows) * self.by * self.heat


def halve(tensor):
    with torch.no_grad():
        tensor.mul_(0.5)


CHANGES = {
    "a rate": lambda done: done.optimizer.param_groups[0].update(lr=0.3),
    "weights": lambda done: halve(done.module.inner.weight),
    "weights, uncounted": lambda done: halve(done.module.inner.weight.data),
    "a buffer": lambda done: halve(done.module.heat),
    "an attribute": lambda done: setattr(done.module, "by", 0.5),
    "what the optimizer remembers": lambda done: done.optimizer.state.clear(),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_callbacks_of_a_training_with_a_checkpoint_change_nothing(tmp_path, changed):
    """Another run of the same steps could go without the change: then both would have the same noise."""
    rows, settings = UserRows(X, Y, USERS), {"sampling": 0.5, "steps": 3, "optimizer": DPAdamBC}
    made(Tempered, **settings).fit(rows, callbacks=[CHANGES[changed]])
    path = TrainingCheckpoint(tmp_path / "run")
    with pytest.raises(InputError, match="callbacks that change neither"):
        made(Tempered, **settings).fit(rows, checkpoint=path, callbacks=[CHANGES[changed]])


def test_steps_before_the_first_checkpoint_have_the_same_noise_when_they_are_repeated(tmp_path):
    """Callbacks have seen them, so drawn anew they would be a second release."""
    seen = []

    def look(done):
        seen.append(done.module.weight.detach().clone())

    path = TrainingCheckpoint(tmp_path / "run", every=100)
    with pytest.raises(Stopped):
        made(noise=None, n_units=None).fit(UserRows(X, Y, USERS), checkpoint=path, callbacks=[look, stop_at(2)])
    made(noise=None, n_units=None).fit(UserRows(X, Y, USERS), checkpoint=path, callbacks=[look])
    assert len(seen) == 6
    assert torch.equal(seen[2], seen[0])
    assert torch.equal(seen[3], seen[1])


def test_keys_of_a_ratchet_never_repeat_and_later_ones_follow_from_its_state():
    noise = RatchetNoise(SeededNoise(3))
    first = [noise.key() for _ in range(50)]
    state = noise.state
    later = noise.normal((4,), np.float64), noise.uniform(3)
    again = RatchetNoise(SeededNoise(9), state)
    assert np.array_equal(later[0], again.normal((4,), np.float64))
    assert np.array_equal(later[1], again.uniform(3))
    assert len({*first, state}) == 51
    assert not noise.releasable
    assert ((later[1] > 0) & (later[1] < 1)).all()


def test_releases_made_before_a_stop_count_against_the_budget():
    first = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    made(n_units=None).fit(UserRows(X, Y, USERS), session=first)
    second = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    second.readmit(first.statement().releases)
    assert second.spent == pytest.approx(first.spent)
    with pytest.raises(BudgetError, match="already made"):
        second.readmit(first.statement().releases[:1])
    with pytest.raises(BudgetError):
        second.plan(more=0.5)
