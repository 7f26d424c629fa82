"""The study's runs side by side take the steps of the library's optimizers on the same noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from apportion.privacy import Budget, SeededNoise, gaussian
from apportion.training import DPSGD, DPAdam, DPAdamBC, ExampleRows, ExampleSession, FixedClip, PrivateGradients
from papers.heavy_tail import synthetic
from papers.heavy_tail.long_tail import long_tail
from papers.heavy_tail.many_runs import ManyRuns
from papers.heavy_tail.updates import Setting
from training.small_models import cross_entropy

STEPS, SEED, CLIP = 15, 4, 0.8
DATA = long_tail(3, 2)
N, WIDTH = DATA.inputs.shape


class GivenNoise(SeededNoise):
    """The normal numbers of a torch generator, as the study draws them."""

    def __init__(self):
        super().__init__(SEED)
        self._torch = torch.Generator().manual_seed(SEED)

    def normal(self, shape, dtype):
        drawn = torch.randn((WIDTH, 1, DATA.n_classes), generator=self._torch, dtype=torch.float64)
        return drawn[:, 0].T.reshape(shape).numpy().astype(dtype)


CASES = {
    "DP-GD": ("DP-GD", 0.0, lambda p, lr, _s: DPSGD(p, lr)),
    "DP-GDM": ("DP-GDM", 0.0, lambda p, lr, _s: DPSGD(p, lr, momentum=0.9)),
    "DP-Adam": ("DP-Adam", 0.5, lambda p, lr, s: DPAdam(p, lr, eps=0.5 * s)),
    "DP-AdamBC": ("DP-AdamBC", 0.3, lambda p, lr, _s: DPAdamBC(p, lr, noise_floor=0.3)),
}


@pytest.mark.parametrize(("name", "constant", "make"), CASES.values(), ids=CASES)
def test_a_run_of_the_study_is_a_run_of_the_library(name, constant, make):
    module = nn.Linear(WIDTH, DATA.n_classes, bias=False).double()
    nn.init.zeros_(module.weight)
    session = ExampleSession(Budget(6.0, 1e-5), noise=GivenNoise())
    units = ExampleRows(torch.as_tensor(DATA.inputs).double(), DATA.labels)
    gradients = PrivateGradients(module, cross_entropy, units, session, steps=STEPS, n_units=N, clip=FixedClip(CLIP))
    z, rates = gradients.noise_multiplier, (0.02, 0.05)
    stddev = z * CLIP / N
    optimizer = make(module.parameters(), rates[1], stddev)
    for _ in range(STEPS):
        gradients.fill(optimizer)
        optimizer.step()
    settings = [Setting(name, rate, constant) for rate in rates]
    runs = ManyRuns(DATA, settings, CLIP, z, (SEED + 1, SEED), "cpu", torch.float64)
    curves = runs.run(STEPS, 5)
    ours, study = module.weight.detach().numpy(), runs.weights[:, 3].T.numpy()
    assert np.abs(ours).max() > 0.05
    assert np.abs(ours - study).max() < 2e-4 * np.abs(ours).max()
    scores = module(torch.as_tensor(DATA.inputs).double())
    losses = cross_entropy(scores, torch.as_tensor(DATA.labels)).detach().numpy()
    assert curves.steps.tolist() == [0, 5, 10, 15]
    assert curves.loss[3, -1] == pytest.approx(losses.mean(), rel=1e-3)
    assert curves.loss[3, 0] == pytest.approx(np.log(7))
    rarest = DATA.groups == 2
    assert curves.group_loss[3, -1, 2] == pytest.approx(losses[rarest].mean(), rel=1e-3)
    right = scores.argmax(1).numpy() == DATA.labels
    assert curves.group_accuracy[3, -1, 2] == pytest.approx(right[rarest].mean())


def test_the_set_is_that_of_the_papers_figures():
    data = long_tail(8, 8)
    assert data.inputs.shape == (8192, 9216)
    assert data.n_classes == 255
    assert data.sizes == (1024, 512, 256, 128, 64, 32, 16, 8)
    assert np.bincount(data.groups).tolist() == [1024] * 8
    assert np.bincount(np.bincount(data.labels))[[1024, 128, 8]].tolist() == [1, 8, 128]


def test_the_number_of_steps_is_the_most_that_epsilon_allows():
    steps = synthetic.steps_for(10.0)
    assert gaussian.epsilon_of(np.sqrt(steps) / 10, 1e-5) <= 28 < gaussian.epsilon_of(np.sqrt(steps + 1) / 10, 1e-5)


def test_the_best_by_loss_and_by_rarest_accuracy_are_found_on_the_way():
    problem = synthetic.Problem(1.0, 2.0, 20)
    found = synthetic.study(problem, long_tail(3, 2), "cpu", seeds=range(1, 3), brief=True)
    for by_criterion in found["optimizers"].values():
        assert by_criterion["resolved"]
        loss, rarest = by_criterion["loss"], by_criterion["rarest"]
        assert max(loss["loss"]) < np.log(7)  # each learned something before its best look
        curve = np.array(rarest["curve group accuracy"])[:, -1]
        assert rarest["group accuracy"][-1] >= curve.max() - 1e-3
