"""Each user's own gradient in an encoder's parameters, many users at a time. Private: it is clipped before it is added.

The loss of user j is ½ Σ_i w_ij (u_j · v_i − y_ij)², so its gradient is Σ_i c_ij J_iᵀ u_j with J_i the Jacobian of item
i and c_ij = w_ij (u_j · v_i − y_ij). All of a user's items see the same u_j. For a table of embeddings that is a
rank-one array, (Σ_i c_ij x_i) ⊗ u_j, and the same for a dense layer: one pass over the distinct items serves all users
(Algorithm 6), and nothing per observation is stored. Other modules go through Opacus, or through one backward pass per
user; their forward pass is over all items, which are public, so that a module that mixes rows mixes no users.
"""

from __future__ import annotations

import copy
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apportion.data.sparse_rows import SparseRows
from apportion.errors import InputError
from apportion.recommend.features.encoders import FeatureBatch, IdEncoder, LinearEncoder, TwoLayerEncoder
from apportion.recommend.features.training import CommonEncoder

Floats = NDArray[np.floating[Any]]


class DenseEncoder(nn.Module):  # type: ignore[misc,unused-ignore]
    """A module of one's own over dense features: any whose last axis is features in, and d numbers out.

    Its gradients per user are taken by Opacus where every layer is known to treat each row by itself; others are run on
    all items at once, with one backward pass for each user.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: FeatureBatch) -> Any:
        """The module on the items' features, made dense."""
        return self.module(batch.to_sparse().to_dense())


class UserBatch:
    """Some users' residuals and vectors: what their gradients are made of.

    Args:
        coefficients: c, one per observation, in user-major order.
        owner: the position of each observation's user.
        tasks: the item of each observation.
        vectors: u, one row per user.
        n_items: how many items there are.
    """

    def __init__(
        self, coefficients: Floats, owner: NDArray[Any], tasks: NDArray[Any], vectors: Floats, n_items: int
    ) -> None:
        from scipy.sparse import csr_array

        self.vectors = np.asarray(vectors, np.float64)
        self.owner = owner
        self.tasks = tasks
        self.coefficients = np.asarray(coefficients, np.float64)
        self.matrix: Any = csr_array((self.coefficients, (owner, tasks)), shape=(len(self.vectors), n_items))

    def __len__(self) -> int:
        return len(self.vectors)

    def times(self, values: Any) -> Floats:
        """Σ_i c_ij x_i for every user, dense."""
        product = self.matrix @ values
        return np.asarray(product.toarray() if hasattr(product, "toarray") else product, np.float64)

    @property
    def sums(self) -> Floats:
        """Σ_i c_ij for every user."""
        return np.bincount(self.owner, self.coefficients, minlength=len(self)).astype(np.float64, copy=False)


def parameter_count(encoder: nn.Module) -> int:
    """How many numbers a gradient has."""
    return sum(parameter.numel() for parameter in encoder.parameters())


def user_gradients(encoder: nn.Module, rows: SparseRows, users: UserBatch) -> Floats:
    """Gradients of all users in the batch, one row each, in the order of the encoder's parameters."""
    by_name = _gradients(encoder, rows, users)
    parts = [by_name[name].reshape(len(users), -1) for name, _ in encoder.named_parameters()]
    return np.concatenate(parts, axis=1)


@singledispatch
def _gradients(encoder: nn.Module, rows: SparseRows, users: UserBatch) -> dict[str, Floats]:
    """Any module: one forward pass over the items, one backward pass per user."""
    apart = copy.deepcopy(encoder)  # what a pass leaves in it (buffers, counters) tells how many passes there were
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # what is dropped does not depend on who is there, and draws no numbers from outside
        vectors = apart(FeatureBatch.of(rows))
    named = dict(apart.named_parameters())
    found = {name: np.zeros((len(users), *parameter.shape)) for name, parameter in named.items()}
    order = np.argsort(users.owner, kind="stable")
    bounds = np.searchsorted(users.owner[order], np.arange(len(users) + 1))
    for user in range(len(users)):
        own = order[bounds[user] : bounds[user + 1]]
        pull = torch.zeros_like(vectors)
        outer = users.coefficients[own, None] * users.vectors[user]
        pull.index_add_(
            0, torch.as_tensor(users.tasks[own], dtype=torch.int64), torch.as_tensor(outer, dtype=vectors.dtype)
        )
        got = torch.autograd.grad(vectors, list(named.values()), pull, retain_graph=True, allow_unused=True)
        for name, gradient in zip(named, got, strict=True):
            if gradient is not None:
                found[name][user] = (gradient.to_dense() if gradient.is_sparse else gradient).double().numpy()
    return found


@_gradients.register
def _of_id(encoder: IdEncoder, rows: SparseRows, users: UserBatch) -> dict[str, Floats]:
    return {"table.weight": _outer(users.times(np.eye(len(rows))), users.vectors)}


@_gradients.register
def _of_common(encoder: CommonEncoder, rows: SparseRows, users: UserBatch) -> dict[str, Floats]:
    return {"mean": users.sums[:, None] * users.vectors}


@_gradients.register
def _of_linear(encoder: LinearEncoder, rows: SparseRows, users: UserBatch) -> dict[str, Floats]:
    return {
        "table.weight": _outer(users.times(rows.to_scipy()), users.vectors),
        "bias": users.sums[:, None] * users.vectors,
    }


@_gradients.register
def _of_two_layers(encoder: TwoLayerEncoder, rows: SparseRows, users: UserBatch) -> dict[str, Floats]:
    bags = rows.averaged().to_scipy()
    table = encoder.table.weight.detach().double().numpy()
    dense = encoder.dense.weight.detach().double().numpy()
    width = table.shape[1]
    features = users.times(bags)
    tables, hidden = np.empty((len(users), *table.shape)), []
    for number, group in enumerate(encoder.groups):
        columns = slice(group.first, group.last)
        back = users.vectors @ dense[:, number * width : (number + 1) * width]
        tables[:, columns] = _outer(features[:, columns], back)
        hidden.append(features[:, columns] @ table[columns])
    return {
        "table.weight": tables,
        "dense.weight": _outer(users.vectors, np.concatenate(hidden, axis=1)),
        "dense.bias": users.sums[:, None] * users.vectors,
    }


@_gradients.register
def _of_dense(encoder: DenseEncoder, rows: SparseRows, users: UserBatch) -> dict[str, Floats]:
    """Through Opacus: a user is one sample, whose items lie along the middle axis, padded with items of factor 0."""
    if not _row_wise(encoder.module):
        return _gradients.dispatch(nn.Module)(encoder, rows, users)
    from opacus.grad_sample import GradSampleModule

    encoder = copy.deepcopy(encoder).double()
    counts = np.bincount(users.owner, minlength=len(users))
    order = np.argsort(users.owner, kind="stable")
    within = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (len(users), int(counts.max(initial=1)))
    tasks, factors = np.zeros(shape, np.int64), np.zeros(shape)
    tasks[users.owner[order], within] = users.tasks[order]
    factors[users.owner[order], within] = users.coefficients[order]
    dense = FeatureBatch.of(rows).to_sparse().to_dense().double()
    module = GradSampleModule(encoder.module, batch_first=True, loss_reduction="sum", strict=True)
    try:
        vectors = module(dense[torch.as_tensor(tasks)].requires_grad_())  # its hooks want a gradient to pass on
        pull = torch.as_tensor(factors[:, :, None] * users.vectors[:, None, :], dtype=vectors.dtype)
        (vectors * pull).sum().backward()
        named = encoder.named_parameters()
        return {name: _sample_of(name, parameter) for name, parameter in named}
    finally:
        module.zero_grad()
        module.to_standard_module()


_ROW_WISE = (
    nn.Sequential, nn.Linear, nn.LayerNorm, nn.Identity, nn.Tanh, nn.Sigmoid, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU,
    nn.SiLU, nn.Softplus,
)  # fmt: skip


def _row_wise(module: nn.Module) -> bool:
    """Whether every layer is known to treat each row (the last axis) by itself, so that users may lie side by side."""
    parts = list(module.modules())
    known = all(type(part) in _ROW_WISE and not part._forward_hooks and not part._forward_pre_hooks for part in parts)
    return known and all(len(part.normalized_shape) == 1 for part in parts if isinstance(part, nn.LayerNorm))


def _sample_of(name: str, parameter: Any) -> Floats:
    sample = getattr(parameter, "grad_sample", None)
    if sample is None:
        raise InputError(f"Opacus gives no gradient per user for the parameter {name!r}; give a module it supports.")
    return np.asarray(sample.detach().double().numpy())


def _outer(left: Floats, right: Floats) -> Floats:
    return np.asarray(left[:, :, None] * right[:, None, :])
