"""Encoders: what they compute, and that wide ones keep sparse gradients."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from apportion.data.sparse_rows import ColumnRange, SparseRows
from apportion.errors import InputError

torch = pytest.importorskip("torch")

from apportion.published.public_features import FeatureBatch, IdEncoder, LinearEncoder, TwoLayerEncoder  # noqa: E402

GROUPS = (ColumnRange("genres", 0, 4), ColumnRange("people", 4, 12))


def rows():
    """Five items; the fourth has no features, the second lacks one group."""
    entries = [(0, 0, 1), (0, 5, 2), (0, 7, 1), (1, 3, 1), (2, 1, 1), (2, 2, 1), (2, 11, 3), (4, 4, 1), (4, 5, 1)]
    row, column, value = zip(*entries, strict=True)
    return SparseRows.from_entries(row, column, value, 5, GROUPS)


def test_a_linear_encoder_is_a_matrix_product():
    encoder, features = LinearEncoder(12, 3, bias=True), rows()
    found = encoder(FeatureBatch.of(features)).detach().numpy()
    table = encoder.table.weight.detach().numpy()
    np.testing.assert_allclose(found, features.to_scipy().toarray() @ table, atol=1e-6)


def test_the_two_layer_encoder_averages_bags_with_multiplicities_before_its_dense_layer():
    torch.manual_seed(0)
    encoder, features = TwoLayerEncoder(GROUPS, 3, hidden=2), rows()
    table, matrix = encoder.table.weight.detach().numpy(), features.to_scipy().toarray()
    bags = []
    for group in GROUPS:
        part = matrix[:, group.first : group.last]
        bags.append(part @ table[group.first : group.last] / np.maximum(part.sum(axis=1, keepdims=True), 1))
    weight, bias = encoder.dense.weight.detach().numpy(), encoder.dense.bias.detach().numpy()
    expected = np.concatenate(bags, axis=1) @ weight.T + bias
    np.testing.assert_allclose(encoder(FeatureBatch.of(features)).detach().numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    "make", [lambda: IdEncoder(5, 3), lambda: LinearEncoder(12, 3), lambda: TwoLayerEncoder(GROUPS, 3)]
)
def test_a_batch_of_some_items_has_their_vectors_and_touches_their_features_alone(make):
    encoder, features = make(), rows()
    whole = encoder(FeatureBatch.of(features))
    for batch in (FeatureBatch.of(features, [2, 0]), FeatureBatch.of(features).take(torch.tensor([2, 0]))):
        torch.testing.assert_close(encoder(batch), whole[[2, 0]])
    encoder.zero_grad()
    encoder(FeatureBatch.of(features, [2, 1])).square().sum().backward()
    gradient = encoder.table.weight.grad
    assert gradient.is_sparse
    touched = set(gradient.coalesce().indices()[0].tolist())
    assert touched == ({1, 2} if isinstance(encoder, IdEncoder) else {1, 2, 3, 11})


def test_a_module_of_ones_own_can_take_the_features_as_a_sparse_matrix():
    features = rows()
    dense = FeatureBatch.of(features).to_sparse().to_dense().numpy()
    np.testing.assert_array_equal(dense, features.to_scipy().toarray())


def test_an_encoder_of_nothing_is_refused():
    with pytest.raises(InputError, match="at least one feature"):
        LinearEncoder(0, 3)


def test_the_package_does_not_load_torch_before_an_encoder_is_asked_for():
    program = "import sys, apportion.recommend, apportion.published.public_features; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
