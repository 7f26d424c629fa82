"""Trainings side by side take the steps of the library's optimizers on the same noise, for images and for text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from apportion.privacy import Budget, SeededNoise
from apportion.training import DPSGD, DPAdam, DPAdamBC, ExampleRows, ExampleSession, FixedClip, PrivateGradients
from apportion.training.diagnostics import scores_by_group
from papers.heavy_tail.many_trainings import ManyTrainings, Privacy, Task, cnn_scores, token_scores
from papers.heavy_tail.models import SmallCnn, SmallTransformer, loss_per_row, mean_over_positions
from papers.heavy_tail.updates import OPTIMIZERS, Setting, setting_for

torch.set_num_threads(1)
STEPS, SEED, N, CLIP = 6, 3, 20, 0.7


class GivenNoise(SeededNoise):
    """The normal numbers of a torch generator, as the study draws them."""

    def __init__(self):
        super().__init__(SEED)
        self._torch = torch.Generator().manual_seed(SEED)

    def normal(self, shape, dtype):
        return torch.randn(shape, generator=self._torch, dtype=torch.float64).numpy().astype(dtype)


def images():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand((N, 1, 28, 28), generator=generator, dtype=torch.float64)
    return SmallCnn(7).double(), cnn_scores, loss_per_row, inputs, torch.randint(7, (N,), generator=generator)


def sentences():
    generator = torch.Generator().manual_seed(0)
    module = SmallTransformer(13, width=8, heads=2, blocks=1, length=5).double()
    inputs, targets = (torch.randint(13, (N, 5), generator=generator) for _ in range(2))
    return module, token_scores(module), mean_over_positions, inputs, targets


def in_the_library(name, module, loss, inputs, targets, setting):
    session = ExampleSession(Budget(8.0, 1e-5), noise=GivenNoise())
    gradients = PrivateGradients(
        module, loss, ExampleRows(inputs, targets), session, steps=STEPS, n_units=N, clip=FixedClip(CLIP)
    )
    z = gradients.noise_multiplier
    made = setting(z * CLIP / N)
    parameters = list(module.parameters())
    optimizer = {
        "DP-GD": lambda: DPSGD(parameters, made.lr),
        "DP-GDM": lambda: DPSGD(parameters, made.lr, momentum=0.9),
        "DP-Adam": lambda: DPAdam(parameters, made.lr, eps=made.constant * z * CLIP / N),
        "DP-AdamBC": lambda: DPAdamBC(parameters, made.lr, noise_floor=made.constant),
    }[name]()
    for _ in range(STEPS):
        gradients.fill(optimizer)
        optimizer.step()
    return z, made


@pytest.mark.parametrize("case", [images, sentences])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_side_by_side_is_one_of_the_library(case, name):
    module, score, loss, inputs, targets = case()
    start = {key: p.detach().clone() for key, p in module.named_parameters()}
    z, made = in_the_library(name, module, loss, inputs, targets, lambda s: setting_for(name, 0.3, 0.5, s))
    groups = np.asarray(targets % 2)
    task = Task(score, start, inputs, targets, groups, 2)
    others = [Setting("DP-GD", 0.01), Setting(name, made.lr / 2, made.constant), made]
    runs = ManyTrainings(task, Privacy(CLIP, z, 1.0), others, SEED, "cpu", rows_at_once=7)
    curves = runs.run(STEPS, 3)
    ours = torch.cat([p.detach().flatten() for p in module.parameters()])
    before = torch.cat([p.flatten() for p in start.values()])
    assert (ours - before).abs().max() > 0.01
    assert (runs.weights[2] - ours).abs().max() < 5e-4 * (ours - before).abs().max()
    assert (runs.weights[1] - ours).abs().max() > 0.1 * (ours - before).abs().max()
    seen = scores_by_group(module, loss_per_row, inputs, targets, groups, 2)
    assert curves.steps.tolist() == [0, 3, 6]
    assert curves.loss[2, -1] == pytest.approx(seen.loss, rel=1e-3)
    assert np.allclose(curves.group_loss[2, -1], seen.group_loss, rtol=1e-3)
    assert np.allclose(curves.group_accuracy[2, -1], seen.group_accuracy)


def test_samples_are_poisson_samples_and_an_empty_one_is_a_step_of_noise():
    module, score, _, inputs, targets = images()
    start = {key: p.detach() for key, p in module.named_parameters()}
    task = Task(score, start, inputs, targets, np.zeros(N, np.int64), 1)
    runs = ManyTrainings(task, Privacy(1.0, 1.0, 1e-9), [Setting("DP-GD", 1.0)], 1, "cpu")
    runs.run(1, 1)
    before = torch.cat([p.flatten() for p in start.values()])
    moved = (runs.weights[0] - before) * (1e-9 * N)
    assert float(moved.std()) == pytest.approx(1.0, abs=0.03)  # 37,000 normal numbers: 8 standard errors
