"""The best attacker against a whole training: near its ε on worst-case neighbours, and not beyond it."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from apportion.auditing import audit_likelihood
from apportion.privacy import ADD_REMOVE, Budget, SeededNoise
from apportion.training import DPAdamBC, PrivateGradients, UserRows


def test_an_attacker_who_knows_all_but_one_user_gets_near_epsilon_and_not_beyond_it():
    """One user whose clipped gradient points one way comes or goes; the bound is wrong once in a thousand times."""

    def fit(rows, session):
        module = nn.Linear(2, 1, bias=False).double()
        nn.init.zeros_(module.weight)
        optimizer = DPAdamBC(module.parameters(), 0.01)
        gradients = PrivateGradients(module, lambda out, _: out[:, 0], UserRows(*rows), session, steps=3, n_units=5)
        for _ in range(3):
            gradients.fill(optimizer)
            optimizer.step()
        return {"weights": module.weight.detach().numpy().copy()}

    inputs = torch.tensor([[30.0, 0.0], [40.0, 0.0], [0.1, 0.2], [0.0, 0.3], [0.2, 0.1]], dtype=torch.float64)
    groups = np.array([7, 7, 1, 2, 3])
    kept = groups != 7
    found = audit_likelihood(
        fit, (inputs, inputs, groups), (inputs[kept], inputs[kept], groups[kept]),
        {"budget": Budget(10.0, 1e-5), "neighbours": ADD_REMOVE}, noise=SeededNoise, draws=150, confidence=0.999,
    )  # fmt: skip
    assert 0.25 * found.claimed < found.lower_bound <= found.claimed
