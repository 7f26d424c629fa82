"""The whole fold-in as one ONNX graph: a history of ids and values in, the best ids and their scores out.

ONNX has no operator that solves equations, so the elimination is unrolled: for k = 1 to d,

    M ← M − (M[:, k] − e_k) M[k, :] / M[k, k],        M = [base + Σ c f fᵀ | right side + Σ c y f] at the start

which is Gauss-Jordan without pivots (the matrix is positive definite) and leaves u in the last column. It runs in
float64. Unknown ids are left out, and items in the history are not recommended. A model that ranks by choice has two
regressions, and the exploring places of `onnx_choice`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.exports.needed import library, refuse_unless_solvable, statement_of
from apportion.exports.onnx_choice import ranked_by_choice
from apportion.exports.onnx_graph import Graph, Names
from apportion.recommend.model import FoldIn, ItemModel, RatingModel

_OPSETS: Final = {"": 17, "ai.onnx.ml": 3}
_IR_VERSION: Final = 8


def write_onnx(model: ItemModel, path: Path) -> None:
    """Write the graph, with the statement in its metadata.

    Inputs: items (ids, [n]), values ([n]; not used for clicks), k ([1]). Outputs: ids ([k]), scores ([k]). If fewer
    than k items are left, the last scores are −∞.
    """
    refuse_unless_solvable(model)
    statement = statement_of(model)
    onnx = library("onnx", "onnx")
    graph = Graph(onnx)
    _fold_in_graph(graph, model)
    text = model.task_ids.holds_text
    kind = onnx.TensorProto.STRING if text else onnx.TensorProto.INT64
    made = onnx.helper.make_model(
        graph.finished("fold_in", kind),
        opset_imports=[onnx.helper.make_opsetid(*each) for each in _OPSETS.items()],
        producer_name="apportion",
        ir_version=_IR_VERSION,
    )
    onnx.helper.set_model_props(made, {"kind": model.kind, "statement": statement.to_json()})
    onnx.checker.check_model(made)
    path.write_bytes(made.SerializeToString())


def _fold_in_graph(graph: Graph, model: ItemModel) -> None:
    """Add the codes of the ids, the regression, its solution, and the best items that are not in the history."""
    codes = _codes(graph, model)
    scores = _scores(graph, model.fold_in, codes, _labels(graph, model, codes))
    scores = graph.node("Add", scores, graph.constant(model.offset, np.float64))
    if model.choice is not None:
        choices = _scores(graph, model.choice, codes, _places_in_scale(graph, model))
        order, shown = ranked_by_choice(graph, model, Names(codes, scores, choices))
        graph.node("Gather", shown, order, outputs=("scores",))
        graph.node("Gather", graph.constant(_ids(model)), order, outputs=("ids",))
        return
    _best(graph, model, graph.node("Cast", scores, to=graph.float32), codes)


def _scores(graph: Graph, fold_in: FoldIn, codes: str, labels: str) -> str:
    """Return the scores of all items, with one more at the end for unknown ids."""
    padded = np.concatenate([fold_in.features, np.zeros_like(fold_in.features[:1])])
    features = graph.node("Cast", graph.constant(padded, np.float32), to=graph.float64)
    coefficients = _solved(graph, _equations(graph, fold_in, features, codes, labels), fold_in.features.shape[1])
    return graph.node("Squeeze", graph.node("MatMul", features, coefficients), graph.constant([1], np.int64))


def _codes(graph: Graph, model: ItemModel) -> str:
    """Return positions of the ids in the model's list; an unknown id gets the position after the last."""
    keys: dict[str, Any] = {"keys_strings" if model.task_ids.holds_text else "keys_int64s": list(model.task_ids)}
    places = list(range(model.n_tasks))
    return graph.node(
        "LabelEncoder", "items", domain="ai.onnx.ml", values_int64s=places, default_int64=model.n_tasks, **keys
    )


def _equations(graph: Graph, fold_in: FoldIn, features: str, codes: str, labels: str) -> str:
    """Return the matrix and the right side of the user's regression, side by side."""
    rows = graph.node("Gather", features, codes, axis=0)
    weights = np.append(fold_in.observation_weights, np.float32(0))
    weight = graph.node("Cast", graph.node("Gather", graph.constant(weights, np.float32), codes), to=graph.float64)
    last = graph.constant([1], np.int64)
    weighted = graph.node("Mul", rows, graph.node("Unsqueeze", weight, last))
    turned = graph.node("Transpose", weighted, perm=[1, 0])
    matrix = graph.node("Add", graph.node("MatMul", turned, rows), graph.constant(fold_in.base, np.float64))
    start = graph.constant(np.asarray(fold_in.base_rhs, np.float64)[:, None])
    right = graph.node("Add", graph.node("MatMul", turned, graph.node("Unsqueeze", labels, last)), start)
    return graph.node("Concat", matrix, right, axis=1)


def _labels(graph: Graph, model: ItemModel, codes: str) -> str:
    """Return the labels of the regression, as in `ItemModel.labels`."""
    if not isinstance(model, RatingModel):
        return graph.node("Expand", graph.constant(1.0, np.float64), graph.node("Shape", codes))
    centred = graph.node("Sub", _in_scale(graph, model), graph.constant(model.offset, np.float32))
    return graph.node("Cast", centred, to=graph.float64)


def _in_scale(graph: Graph, model: ItemModel) -> str:
    low, high = (graph.constant(bound, np.float32) for bound in model.value_range)
    return graph.node("Clip", "values", low, high)


def _places_in_scale(graph: Graph, model: ItemModel) -> str:
    """Return the labels of choices: 0 at the bottom of the scale, 1 at the top."""
    low, high = model.value_range
    above = graph.node("Sub", _in_scale(graph, model), graph.constant(low, np.float32))
    return graph.node("Cast", graph.node("Div", above, graph.constant(high - low, np.float32)), to=graph.float64)


def _solved(graph: Graph, equations: str, width: int) -> str:
    """Solve by Gauss-Jordan, column by column; the solution is the last column."""
    identity = np.eye(width)
    for k in range(width):
        place = graph.constant([k], np.int64)
        row = graph.node("Gather", equations, place, axis=0)
        column = graph.node("Gather", equations, place, axis=1)
        pivoted = graph.node("Div", row, graph.node("Gather", row, place, axis=1))
        less = graph.node("Sub", column, graph.constant(identity[:, k : k + 1]))
        equations = graph.node("Sub", equations, graph.node("MatMul", less, pivoted))
    return graph.node("Gather", equations, graph.constant([width], np.int64), axis=1)


def _best(graph: Graph, model: ItemModel, scores: str, codes: str) -> None:
    """Return the k best items; ties go to the first in the model's list, as in TopK."""
    never = graph.node("Expand", graph.constant(-np.inf, np.float32), graph.node("Shape", codes))
    left = graph.node("ScatterElements", scores, codes, never, axis=0)
    bounds = (graph.constant([bound], np.int64) for bound in (0, model.n_tasks))
    known = graph.node("Slice", left, *bounds)
    count = graph.node("Min", "k", graph.constant([model.n_tasks], np.int64))
    graph.node("TopK", known, count, outputs=("scores", "places"))
    graph.node("Gather", graph.constant(_ids(model)), "places", outputs=("ids",))


def _ids(model: ItemModel) -> NDArray[Any]:
    return np.array(list(model.task_ids), object) if model.task_ids.holds_text else np.asarray(model.task_ids.ids)
