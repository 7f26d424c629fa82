"""The ranking by choice of `recommend.choosing` as ONNX operators.

Items are first sorted by their scores and get the keys 0, −1, −2, ... An exploring place p then gives the item that it
shows a key between those of the items at p − 1 and p. The k largest keys are the list. Exploring places beyond the
fifth are left out, so a list equals the model's own up to place 119.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from apportion.exports.onnx_graph import Graph, Names
from apportion.recommend import choosing
from apportion.recommend.model import ItemModel

_PLACES: Final = 5


def ranked_by_choice(graph: Graph, model: ItemModel, of_items: Names) -> tuple[str, str]:
    """Return the codes of the k best items in order, and the number shown for every item: its value, or −∞."""
    n_items = model.n_tasks
    values, choices = (_of_known(graph, name, n_items) for name in (of_items.values, of_items.choices))
    weighed = graph.node("Mul", values, graph.constant(choosing.value_weight(model.value_range), np.float64))
    chosen = graph.node("Mul", choices, graph.constant(choosing.discounts(model.popularity), np.float64))
    held = _marked(graph, of_items.codes, n_items)
    keys = _keys(graph, _unless(graph, held, graph.node("Add", chosen, weighed)), n_items)
    doubts = graph.constant(choosing.doubts_of(model.reliability, model.value_range), np.float64)
    hoped = graph.node("Add", values, doubts)
    seed = _seed(graph, of_items.codes, n_items)
    for number in range(1, _PLACES + 1):
        place = number * choosing.EXPLORING_PLACE - 1
        if place < n_items:
            keys = _explored(graph, keys, place, held, hoped, _drawn(graph, seed, place, n_items))
    count = graph.node("Min", "k", graph.constant([n_items], np.int64))
    graph.node("TopK", keys, count, outputs=("best_keys", "best_items"))
    low, high = (graph.constant(bound, np.float64) for bound in model.value_range)
    shown = _unless(graph, held, graph.node("Clip", values, low, high))
    return "best_items", graph.node("Cast", shown, to=graph.float32)


def _of_known(graph: Graph, name: str, n_items: int) -> str:
    return graph.node("Slice", name, graph.constant([0], np.int64), graph.constant([n_items], np.int64))


def _marked(graph: Graph, codes: str, n_items: int) -> str:
    """Return which items are among these codes."""
    ones = graph.node("Expand", graph.constant(1.0, np.float64), graph.node("Shape", codes))
    marks = graph.node("ScatterElements", graph.constant(np.zeros(n_items + 1)), codes, ones, axis=0)
    return graph.node("Greater", _of_known(graph, marks, n_items), graph.constant(0.5, np.float64))


def _unless(graph: Graph, barred: str, values: str) -> str:
    return graph.node("Where", barred, graph.constant(-np.inf, np.float64), values)


def _keys(graph: Graph, scores: str, n_items: int) -> str:
    """Return 0 for the best item, −1 for the next, and so on."""
    graph.node("TopK", scores, graph.constant([n_items], np.int64), outputs=("sorted_scores", "sorted_items"))
    steps = graph.constant(-np.arange(n_items, dtype=np.float64))
    return graph.node("ScatterElements", graph.constant(np.zeros(n_items)), "sorted_items", steps, axis=0)


def _mixed(graph: Graph, numbers: str) -> str:
    prime = graph.constant(choosing.PRIME, np.int64)
    for added in choosing.ADDED:
        square = graph.node("Add", graph.node("Mul", numbers, numbers), graph.constant(added, np.int64))
        numbers = graph.node("Mod", square, prime)
    return numbers


def _seed(graph: Graph, codes: str, n_items: int) -> str:
    """Return the sum of a hash of the known items of the history."""
    known = graph.node("Less", codes, graph.constant(n_items, np.int64))
    hashes = graph.node("Where", known, _mixed(graph, codes), graph.constant(0, np.int64))
    return graph.node("ReduceSum", hashes, keepdims=0)


def _drawn(graph: Graph, seed: str, place: int, n_items: int) -> str:
    numbers = choosing.STRIDE * (place * choosing.DRAWN + np.arange(choosing.DRAWN, dtype=np.int64))
    prime = graph.constant(choosing.PRIME, np.int64)
    start = graph.node("Mod", graph.node("Add", seed, graph.constant(numbers)), prime)
    return graph.node("Mod", _mixed(graph, start), graph.constant(n_items, np.int64))


def _explored(graph: Graph, keys: str, place: int, held: str, hoped: str, drawn: str) -> str:
    """Return the keys with another one for the item that this place shows."""
    n_before = graph.constant([place + 1], np.int64)
    first, items = f"first_{place}", f"first_items_{place}"
    graph.node("TopK", keys, n_before, outputs=(first, items))
    last = graph.node("Gather", first, graph.constant(place - 1, np.int64))
    between = graph.node("Sub", last, graph.constant(0.25, np.float64))
    listed = graph.node("GreaterOrEqual", graph.node("Gather", keys, drawn), last)
    barred = graph.node("Or", listed, graph.node("Gather", held, drawn))
    allowed = graph.node("Cast", graph.node("Not", barred), to=graph.float64)
    among = graph.node("CumSum", allowed, graph.constant(0, np.int64))
    beyond = graph.node("Greater", among, graph.constant(float(choosing.COMPARED), np.float64))
    worth = _unless(graph, graph.node("Or", barred, beyond), graph.node("Gather", hoped, drawn))
    best = graph.node("Gather", drawn, graph.node("ArgMax", worth, axis=0, keepdims=1))
    any_left = graph.node("Greater", graph.node("ReduceMax", allowed), graph.constant(0.5, np.float64))
    new = graph.node("Where", any_left, between, graph.node("Gather", keys, best))
    return graph.node("ScatterElements", keys, best, new, axis=0)
