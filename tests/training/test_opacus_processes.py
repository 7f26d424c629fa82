"""Opacus in two processes: one adds the noise, both divide by their number, and both optimizers are told just that."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

from statistics_helpers import assert_scale

pytest.importorskip("opacus")
pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="torch was built without torch.distributed")
CLIP, STEPS = 0.5, 5


def work(rank, folder):
    """Train on rows without slopes in each kind of gradients; keep the gradients, and what was told of them."""
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel

    from apportion.training import DPAdamBC
    from apportion.training.for_opacus import KnownNoisePrivacyEngine

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    kept = {}
    for mode in ("hooks", "ghost"):
        torch.manual_seed(rank)
        module = DifferentiallyPrivateDistributedDataParallel(nn.Linear(100, 50, bias=False))
        rows = TensorDataset(torch.zeros(400, 100), torch.zeros(400, dtype=torch.int64))
        module, optimizer, *criterion, loader = KnownNoisePrivacyEngine().make_private(
            module=module, optimizer=DPAdamBC(module.parameters(), 0.0), data_loader=DataLoader(rows, batch_size=40),
            noise_multiplier=1.0, max_grad_norm=CLIP, grad_sample_mode=mode, criterion=nn.CrossEntropyLoss(),
        )  # fmt: skip
        loss = criterion[0] if criterion else nn.CrossEntropyLoss()
        inner, gradients, told = optimizer.original_optimizer, [], []
        carry, step = inner.gradients_carry, inner.step
        inner.gradients_carry = lambda noise, told=told, carry=carry: (told.append(noise), carry(noise))
        parameter = inner.param_groups[0]["params"][0]

        def look(gradients=gradients, parameter=parameter, step=step):
            gradients.append(parameter.grad.detach().numpy().ravel().copy())
            step()

        inner.step = look
        for _, (x, y) in zip(range(STEPS), loader, strict=False):
            optimizer.zero_grad()
            loss(module(x), y).backward()
            optimizer.step()
        kept[mode] = np.stack(gradients)
        kept[f"{mode} told"] = np.array([[noise.stddev, noise.divisor] for noise in told])
    np.savez(f"{folder}/rank{rank}.npz", **kept)
    distributed.destroy_process_group()


def test_in_two_processes_the_noise_that_is_told_is_the_noise_that_was_added(tmp_path):
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=2)
    ranks = [np.load(tmp_path / f"rank{rank}.npz") for rank in range(2)]
    for mode in ("hooks", "ghost"):
        assert np.array_equal(ranks[0][mode], ranks[1][mode])
        for rank in ranks:
            assert rank[f"{mode} told"].tolist() == [[CLIP, 40.0]] * STEPS  # 20 rows expected in each process
            assert_scale(rank[mode] / (CLIP / 40), stddev=1.0, detect=1.07)
