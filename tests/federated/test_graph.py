"""The graph of neighbours: symmetric, of the planned degree, and connected without those who may be missing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import hypergeom

from apportion.errors import InputError
from apportion.federated.graph import CORRECTNESS_BITS, SECURITY_BITS, Graph, everybody, planned


@pytest.mark.parametrize(("n_clients", "degree"), [(6, 5), (7, 2), (40, 8)])
def test_neighbours_are_mutual_distinct_and_as_many_as_declared(n_clients, degree):
    graph = Graph(n_clients, degree, bytes(32))
    beside = [set(graph.neighbours(each)) for each in range(n_clients)]
    assert all(len(found) == degree and each not in found for each, found in enumerate(beside))
    assert all(each in beside[other] for each, found in enumerate(beside) for other in found)


def test_another_seed_orders_the_ring_differently():
    one, two = (Graph(40, 4, bytes([k]) * 32) for k in (1, 2))
    assert [one.neighbours(k) for k in range(40)] != [two.neighbours(k) for k in range(40)]


@pytest.mark.parametrize(
    ("n_clients", "colluding", "dropping"), [(500, 50, 50), (1000, 200, 300), (10_000, 1000, 1000)]
)
def test_the_planned_degree_keeps_the_three_bounds(n_clients, colluding, dropping):
    found = planned(n_clients, colluding, dropping)
    captured = hypergeom.sf(found.threshold - 1, n_clients - 1, colluding, found.neighbours)
    lost = hypergeom.sf(found.neighbours - found.threshold, n_clients - 1, dropping, found.neighbours)
    run = found.neighbours // 2
    cut = n_clients * math.comb(colluding + dropping, run) / math.comb(n_clients, run)
    assert n_clients * captured <= 2.0 ** -(SECURITY_BITS + 2) * (1 + 1e-6)
    assert n_clients * lost <= 2.0**-CORRECTNESS_BITS * (1 + 1e-6)
    assert cut <= 2.0 ** -(SECURITY_BITS + 2) * (1 + 1e-6)


def test_the_honest_who_stay_are_connected():
    graph, rng = Graph(500, planned(500, 50, 50).neighbours, bytes(32)), np.random.default_rng(3)
    for _ in range(5):
        staying = set(rng.permutation(500)[100:].tolist())
        reached = frontier = {next(iter(staying))}
        while frontier:
            frontier = {n for each in frontier for n in graph.neighbours(each) if n in staying} - reached
            reached = reached | frontier
        assert reached == staying


def test_few_clients_are_all_joined_and_need_more_shares_than_colluding_ones_hold():
    assert planned(9, 2, 2) == everybody(9, 2, 2)
    assert everybody(9, 2, 2).threshold == 3


@pytest.mark.parametrize(
    ("n_clients", "colluding", "dropping", "problem"),
    [
        (4, 2, 1, "at least 2 honest clients"),
        (5, -1, 1, "at least 2 honest clients"),
        (9, 4, 4, "at least 2 honest clients"),
    ],
)
def test_impossible_numbers_are_refused(n_clients, colluding, dropping, problem):
    for plan in (planned, everybody):
        with pytest.raises(InputError, match=problem):
            plan(n_clients, colluding, dropping)


@pytest.mark.parametrize("degree", [0, 3, 8])
def test_an_odd_ring_is_refused(degree):
    with pytest.raises(InputError, match="Expected an even number of neighbours"):
        Graph(8, degree, bytes(32))
