"""Scores by group, alignment of gradients, and the law of gradients and Hessians by class."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from apportion.training.diagnostics import (
    class_law,
    frequency_groups,
    gradient_alignment,
    law_of_head,
    scores_by_group,
)
from papers.heavy_tail.long_tail import long_tail
from training.small_models import Chain, Tokens, cross_entropy, images, sentences


def test_frequency_groups_go_by_how_often_a_class_occurs():
    labels = np.repeat([0, 1, 2, 3], [50, 10, 9, 1])
    assert frequency_groups(labels, [50, 10, 2])[[0, 50, 60, 69]].tolist() == [0, 1, 2, 3]


def test_scores_by_group_are_means_over_the_groups_rows():
    module, (inputs, targets) = Chain().double(), images(30)
    groups = np.arange(30) % 3
    found = scores_by_group(module, cross_entropy, inputs, targets, groups, 4)
    with torch.no_grad():
        losses = cross_entropy(module(inputs), targets).numpy()
        right = (module(inputs).argmax(1) == targets).numpy()
    assert found.loss == pytest.approx(losses.mean())
    assert found.group_loss[1] == pytest.approx(losses[1::3].mean())
    assert found.group_accuracy[2] == pytest.approx(right[2::3].mean())
    assert np.isnan(found.group_loss[3])


def test_gradients_of_one_class_are_aligned_in_the_linear_model():
    data = long_tail(3, 4)
    module = nn.Linear(data.inputs.shape[1], data.n_classes, bias=False)
    nn.init.zeros_(module.weight)
    rows = np.random.default_rng(0).permutation(len(data.labels))[:40]
    found = gradient_alignment(
        module, cross_entropy, torch.as_tensor(data.inputs[rows]), torch.as_tensor(data.labels[rows])
    )
    # at zero weights the cosine is cos(x, x') cos(p - y, p - y'): 3/4 within a class, near 0 or below across
    assert found.within == pytest.approx(0.75, abs=0.04)
    assert found.across < 0.1
    assert np.allclose(np.diag(found.cosines), 1)


def a_linear_model(n=300, classes=5, width=4, seed=0):
    """Weights, biases, inputs and long-tailed labels, one class of which has no row."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, n, p=[0.5, 0.3, 0.15, 0.05, 0.0])
    inputs = rng.standard_normal((n, width)) + np.eye(classes, width)[labels]
    return rng.standard_normal((classes, width)), rng.standard_normal(classes), inputs, labels


def test_gradients_and_hessians_by_class_are_those_of_autograd_and_the_law_is_its_formula():
    weights, bias, inputs, labels = a_linear_model()
    found = class_law(weights, inputs, labels, bias)
    x, y, b = (torch.as_tensor(a) for a in (inputs, labels, bias))

    def loss(w):
        return nn.functional.cross_entropy(x @ w.T + b, y)

    w = torch.as_tensor(weights)
    gradient = torch.autograd.functional.jacobian(loss, w)
    hessian = torch.autograd.functional.hessian(loss, w)
    probabilities = torch.softmax(x @ w.T + b, 1).numpy()
    for k in range(5):
        own = labels == k
        assert found.gradient[k] == pytest.approx(float(gradient[k].norm()))
        assert found.curvature[k] == pytest.approx(float(hessian[k, :, k].trace()))
        assert found.frequency[k] == own.mean()
        if not own.any():
            assert found.gradient_law[k] == found.curvature_law[k] == 0
            continue
        p, often = probabilities[own, k].mean(), own.mean()
        assert found.gradient_law[k] == pytest.approx((1 - p) * often * np.linalg.norm(inputs[own].mean(axis=0)))
        mean_trace = np.mean([row @ row for row in inputs[own]])
        assert found.curvature_law[k] == pytest.approx(p * (1 - p) * often * mean_trace)


def test_the_law_in_closed_form_where_every_class_has_an_input_of_its_own():
    """Inputs e_k, weights a times the identity: all classes have the same p, and every sum can be written down."""
    counts, a = np.array([40, 20, 10, 5]), 3.0
    labels = np.repeat(np.arange(4), counts)
    found = class_law(a * np.eye(4), np.eye(4)[labels], labels)
    often = counts / counts.sum()
    p = math.exp(a) / (math.exp(a) + 3)
    other = (1 - p) / 3
    assert np.allclose(found.gradient_law, (1 - p) * often)
    assert np.allclose(found.curvature_law, p * (1 - p) * often)
    others = np.square(often).sum() - often**2
    assert np.allclose(found.gradient, np.sqrt(((1 - p) * often) ** 2 + other**2 * others))
    assert np.allclose(found.curvature, p * (1 - p) * often + other * (1 - other) * (1 - often))
    assert 1 < found.gradient[0] / found.gradient_law[0] < 1.03  # frequent classes follow the law


def test_a_model_that_learned_follows_the_law_from_frequent_to_rare_classes():
    """At p near 1 a class has as much curvature from its own rows as from those that leak into it: twice the law."""
    data = long_tail(5, 4)
    module = nn.Linear(data.inputs.shape[1], data.n_classes, bias=False).double()
    nn.init.zeros_(module.weight)
    x, y = torch.as_tensor(data.inputs).double(), torch.as_tensor(data.labels)
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    for _ in range(400):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    found = class_law(module.weight.detach().numpy(), data.inputs, data.labels)
    assert np.allclose(found.curvature / found.curvature_law, 2, atol=0.15)
    assert found.frequency[0] / found.frequency[-1] == 16
    together = np.corrcoef(np.log(found.gradient), np.log(found.gradient_law))[0, 1]
    assert together > 0.98


def test_the_law_is_found_for_the_linear_head_of_a_deep_model_and_for_no_other():
    module, (inputs, targets) = Chain().double(), images(300)
    found = law_of_head(module, inputs, targets)
    with torch.no_grad():
        h = module.norm(torch.tanh(module.conv(inputs)).flatten(1))
        features = torch.tanh(module.hidden(h)).numpy()
    expected = class_law(module.out.weight.detach().numpy(), features, targets.numpy())
    for name in ("frequency", "gradient", "gradient_law", "curvature", "curvature_law"):
        assert np.allclose(getattr(found, name), getattr(expected, name)), name
    weights, bias, inputs, labels = a_linear_model()
    linear = nn.Linear(4, 5).double()
    with torch.no_grad():
        linear.weight.copy_(torch.as_tensor(weights))
        linear.bias.copy_(torch.as_tensor(bias))
    rows = torch.as_tensor(inputs), torch.as_tensor(labels)
    assert np.allclose(law_of_head(linear, *rows).curvature, class_law(weights, inputs, labels, bias).curvature)
    assert law_of_head(nn.Sequential(linear, nn.LogSoftmax(1)), *rows) is None
    assert law_of_head(Tokens(), *sentences(5)) is None
