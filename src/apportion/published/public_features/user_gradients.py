"""Each user's own gradient in an encoder's parameters, many users at a time. Private: it is clipped before it is added.

The loss of user j is ½ Σ_i w_ij (u_j · v_i − y_ij)², so its gradient is Σ_i c_ij J_iᵀ u_j with J_i the Jacobian of item
i and c_ij = w_ij (u_j · v_i − y_ij). All of a user's items see the same u_j. For a table of embeddings that is a
rank-one array, (Σ_i c_ij x_i) ⊗ u_j, and the same for a dense layer: one pass over the distinct items serves all users
(Algorithm 6), and nothing per observation is stored. Other modules use Opacus, or one backward pass per user. Their
forward pass is over all items, which are public, so a module that mixes rows never mixes users.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apportion.data.sparse_rows import SparseRows
from apportion.errors import InputError
from apportion.linalg.fixed_order import row_products
from apportion.published.public_features.encoders import FeatureBatch, IdEncoder, LinearEncoder, TwoLayerEncoder
from apportion.published.public_features.training import CommonEncoder

Floats = NDArray[np.floating[Any]]

_ITEMS_OF_A_SAMPLE = 64
_FULL = 16  # the number of items in a sample is a multiple of this: its width must not reveal any user's
_NUMBERS_AT_ONCE = 1 << 23  # features of the samples that go through Opacus together


class DenseEncoder(nn.Module):  # type: ignore[misc,unused-ignore]
    """A custom module over dense features: the last axis has features in, and d numbers out.

    Opacus computes its gradients per user if every layer is known to treat each row by itself. Other modules are run on
    all items at once, with one backward pass for each user.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: FeatureBatch) -> Any:
        """Apply the module to the items' features, made dense."""
        return self.module(batch.to_sparse().to_dense())


class UserBatch:
    """Some users' residuals and vectors, from which their gradients are computed.

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
        """Return Σ_i c_ij x_i for every user, dense."""
        product = self.matrix @ values
        return np.asarray(product.toarray() if hasattr(product, "toarray") else product, np.float64)

    @property
    def sums(self) -> Floats:
        """Return Σ_i c_ij for every user."""
        return np.bincount(self.owner, self.coefficients, minlength=len(self)).astype(np.float64, copy=False)


def trained(encoder: nn.Module) -> dict[str, Any]:
    """Return the parameters that are not frozen, by name, in the encoder's order."""
    return {name: parameter for name, parameter in encoder.named_parameters() if parameter.requires_grad}


def parameter_count(encoder: nn.Module) -> int:
    """Return the length of a gradient."""
    return sum(parameter.numel() for parameter in trained(encoder).values())


def user_gradients(encoder: nn.Module, rows: SparseRows, users: UserBatch) -> Floats:
    """Return gradients of all users in the batch, one row each, in the order of the encoder's parameters."""
    known = _gradients.dispatch(object) if _changed(encoder) else _gradients.registry.get(type(encoder))
    route = known or _gradients.dispatch(object)  # also for subclasses of a known encoder
    by_name = route(encoder, rows, users)
    parts = [by_name[name].reshape(len(users), -1) for name in trained(encoder)]
    return np.concatenate(parts, axis=1)


@singledispatch
def _gradients(encoder: nn.Module, rows: SparseRows, users: UserBatch) -> dict[str, Floats]:
    """Compute gradients of any module: one forward pass over the items, one backward pass per user.

    Layers are in evaluation mode, as for the residuals.
    """
    apart = copy.deepcopy(encoder).eval()  # a pass leaves traces in the module that reveal the number of passes
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # no randomness may depend on the users, or use the global generator
        vectors = apart(FeatureBatch.for_encoder(apart, rows))
    named = trained(apart)
    result = {name: np.zeros((len(users), *parameter.shape)) for name, parameter in named.items()}
    order = np.argsort(users.owner, kind="stable")
    bounds = np.searchsorted(users.owner[order], np.arange(len(users) + 1))
    for user in range(len(users)):
        own = order[bounds[user] : bounds[user + 1]]
        pull = torch.zeros_like(vectors)
        outer = users.coefficients[own, None] * users.vectors[user]
        where = torch.as_tensor(users.tasks[own], dtype=torch.int64, device=pull.device)
        pull.index_add_(0, where, torch.as_tensor(outer, dtype=pull.dtype, device=pull.device))
        got = torch.autograd.grad(vectors, list(named.values()), pull, retain_graph=True, allow_unused=True)
        for name, gradient in zip(named, got, strict=True):
            if gradient is not None:
                result[name][user] = (gradient.to_dense() if gradient.is_sparse else gradient).double().cpu().numpy()
    return result


@_gradients.register
def _of_id(encoder: IdEncoder, rows: SparseRows, users: UserBatch) -> dict[str, Floats]:
    return {"table.weight": _outer(users.matrix.toarray(), users.vectors)}


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
    table = encoder.table.weight.detach().double().cpu().numpy()
    dense = encoder.dense.weight.detach().double().cpu().numpy()
    width = table.shape[1]
    features = users.times(bags)
    tables, hidden = np.empty((len(users), *table.shape)), []
    for number, group in enumerate(encoder.groups):
        columns = slice(group.first, group.last)
        back = row_products(users.vectors, dense[:, number * width : (number + 1) * width].T)
        tables[:, columns] = _outer(features[:, columns], back)
        hidden.append(row_products(features[:, columns], table[columns].T))
    return {
        "table.weight": tables,
        "dense.weight": _outer(users.vectors, np.concatenate(hidden, axis=1)),
        "dense.bias": users.sums[:, None] * users.vectors,
    }


@_gradients.register
def _of_dense(encoder: DenseEncoder, rows: SparseRows, users: UserBatch) -> dict[str, Floats]:
    """Compute gradients with Opacus: a user is one sample or several; items lie along the middle axis."""
    if not _row_wise(encoder.module):
        return _gradients.dispatch(object)(encoder, rows, users)
    encoder = copy.deepcopy(encoder).double().cpu().train()  # the hooks of Opacus do nothing in evaluation mode
    named = trained(encoder)
    result = {name: np.zeros((len(users), *parameter.shape)) for name, parameter in named.items()}
    dense = FeatureBatch.of(rows).to_sparse().to_dense().double()
    samples = _Samples.of(users, _ITEMS_OF_A_SAMPLE)
    at_once = max(_NUMBERS_AT_ONCE // (samples.tasks.shape[1] * max(dense.shape[1], 1)), 1)
    for first in range(0, len(samples.owner), at_once):
        part = slice(first, first + at_once)
        owner = samples.owner[part]
        pull = samples.factors[part, :, None] * users.vectors[owner, None, :]
        for name, rows_of_samples in _by_opacus(encoder, dense, samples.tasks[part], pull).items():
            np.add.at(result[name], owner, rows_of_samples)
    return result


def _by_opacus(encoder: DenseEncoder, dense: Any, tasks: NDArray[np.int64], pull: Floats) -> dict[str, Floats]:
    """Return the gradients of every sample."""
    from opacus.grad_sample import GradSampleModule

    module = GradSampleModule(encoder.module, batch_first=True, loss_reduction="sum", strict=True)
    try:
        # the hooks of Opacus need a gradient to pass on
        vectors = module(dense[torch.as_tensor(tasks)].requires_grad_())
        (vectors * torch.as_tensor(pull, dtype=vectors.dtype)).sum().backward()
        return {name: _sample_of(name, parameter) for name, parameter in trained(encoder).items()}
    finally:
        module.zero_grad()
        module.to_standard_module()


@dataclass(frozen=True)
class _Samples:
    """Users' items in rows of equal length, padded with items of factor 0; private.

    Attributes:
        owner: the user of each row.
        tasks: its items.
        factors: the factor of each item.
    """

    owner: NDArray[np.int64]
    tasks: NDArray[np.int64]
    factors: Floats

    @classmethod
    def of(cls, users: UserBatch, longest: int) -> _Samples:
        """Return rows of at most this many items; a user with more has several rows."""
        counts = np.bincount(users.owner, minlength=len(users))
        order = np.argsort(users.owner, kind="stable")
        within = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows_of_users = -(-counts // longest)
        first = np.cumsum(rows_of_users) - rows_of_users
        place = first[users.owner[order]] + within // longest
        shape = (int(rows_of_users.sum()), min(-(-int(counts.max(initial=1)) // _FULL) * _FULL, longest))
        tasks, factors = np.zeros(shape, np.int64), np.zeros(shape)
        tasks[place, within % longest] = users.tasks[order]
        factors[place, within % longest] = users.coefficients[order]
        return cls(np.repeat(np.arange(len(users)), rows_of_users), tasks, factors)


_ROW_WISE = (
    nn.Sequential, nn.Linear, nn.LayerNorm, nn.Identity, nn.Tanh, nn.Sigmoid, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU,
    nn.SiLU, nn.Softplus,
)  # fmt: skip


def _row_wise(module: nn.Module) -> bool:
    """Whether every layer is known to treat each row (the last axis) by itself, so that users may lie side by side."""
    parts = list(module.modules())
    known = all(type(part) in _ROW_WISE and not _changed(part) for part in parts)
    return known and all(len(part.normalized_shape) == 1 for part in parts if isinstance(part, nn.LayerNorm))


def _changed(part: nn.Module) -> bool:
    """Whether a layer has hooks or replaced methods."""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    return any(hooks) or any(callable(getattr(type(part), name, None)) for name in vars(part))


def _sample_of(name: str, parameter: Any) -> Floats:
    sample = getattr(parameter, "grad_sample", None)
    if sample is None:
        raise InputError(
            f"Opacus gives no gradient per user for the parameter {name!r}; use a module that it supports.",
            argument="encoder",
        )
    return np.asarray(sample.detach().double().numpy())


def _outer(left: Floats, right: Floats) -> Floats:
    return np.asarray(left[:, :, None] * right[:, None, :])
