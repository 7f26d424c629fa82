"""The whole fold-in as one ONNX graph: a history of ids and values in, the best ids and their scores out.

ONNX has no operator that solves equations, so the elimination is unrolled: for k = 1 to d,

    M ← M − (M[:, k] − e_k) M[k, :] / M[k, k],        M = [base + Σ c f fᵀ | right side + Σ c y f] at the start

which is Gauss-Jordan without pivots (the matrix is positive definite) and leaves u in the last column. It runs in
float64. Unknown ids are left out, and items in the history are not recommended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.exports.needed import library, refuse_unless_solvable, statement_of
from apportion.recommend.model import ItemModel, RatingModel

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
    graph = _Graph(onnx)
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


class _Graph:
    """Nodes and constants of a graph under construction; every result has a name."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add a constant tensor."""
        name = f"c{len(self._constants)}"
        array = np.asarray(values, dtype)
        self._constants.append(
            self._onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        )
        return name

    def node(
        self, operator: str, *inputs: str, outputs: tuple[str, ...] = (), domain: str = "", **attributes: Any
    ) -> str:
        """Add an operator; return the name of its first output."""
        names = outputs or (f"n{len(self._nodes)}",)
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names[0]

    def finished(self, name: str, id_kind: int) -> Any:
        """Return the graph with its inputs and outputs."""
        types, value = self._onnx.TensorProto, self._onnx.helper.make_tensor_value_info
        inputs = [value("items", id_kind, ["n"]), value("values", types.FLOAT, ["n"]), value("k", types.INT64, [1])]
        outputs = [value("ids", id_kind, ["best"]), value("scores", types.FLOAT, ["best"])]
        return self._onnx.helper.make_graph(self._nodes, name, inputs, outputs, self._constants)


def _fold_in_graph(graph: _Graph, model: ItemModel) -> None:
    """Add the codes of the ids, the regression, its solution, and the best items that are not in the history."""
    codes = _codes(graph, model)
    padded = np.concatenate([model.fold_in.features, np.zeros_like(model.fold_in.features[:1])])
    features = graph.node("Cast", graph.constant(padded, np.float32), to=_double(graph))
    coefficients = _solved(graph, _equations(graph, model, features, codes), model.fold_in.features.shape[1])
    scores = graph.node("Squeeze", graph.node("MatMul", features, coefficients), graph.constant([1], np.int64))
    scores = graph.node("Add", scores, graph.constant(model.offset, np.float64))
    _best(graph, model, graph.node("Cast", scores, to=_float(graph)), codes)


def _codes(graph: _Graph, model: ItemModel) -> str:
    """Return positions of the ids in the model's list; an unknown id gets the position after the last."""
    keys: dict[str, Any] = {"keys_strings" if model.task_ids.holds_text else "keys_int64s": list(model.task_ids)}
    places = list(range(model.n_tasks))
    return graph.node(
        "LabelEncoder", "items", domain="ai.onnx.ml", values_int64s=places, default_int64=model.n_tasks, **keys
    )


def _equations(graph: _Graph, model: ItemModel, features: str, codes: str) -> str:
    """Return the matrix and the right side of the user's regression, side by side."""
    rows = graph.node("Gather", features, codes, axis=0)
    weights = np.append(model.fold_in.observation_weights, np.float32(0))
    weight = graph.node("Cast", graph.node("Gather", graph.constant(weights, np.float32), codes), to=_double(graph))
    last = graph.constant([1], np.int64)
    weighted = graph.node("Mul", rows, graph.node("Unsqueeze", weight, last))
    turned = graph.node("Transpose", weighted, perm=[1, 0])
    matrix = graph.node("Add", graph.node("MatMul", turned, rows), graph.constant(model.fold_in.base, np.float64))
    labels = graph.node("Unsqueeze", _labels(graph, model, weight), last)
    start = graph.constant(np.asarray(model.fold_in.base_rhs, np.float64)[:, None])
    right = graph.node("Add", graph.node("MatMul", turned, labels), start)
    return graph.node("Concat", matrix, right, axis=1)


def _labels(graph: _Graph, model: ItemModel, like: str) -> str:
    """Return the labels of the regression, as in `ItemModel.labels`."""
    if not isinstance(model, RatingModel):
        return graph.node("Expand", graph.constant(1.0, np.float64), graph.node("Shape", like))
    low, high = (graph.constant(bound, np.float32) for bound in model.value_range)
    centred = graph.node("Sub", graph.node("Clip", "values", low, high), graph.constant(model.offset, np.float32))
    return graph.node("Cast", centred, to=_double(graph))


def _solved(graph: _Graph, equations: str, width: int) -> str:
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


def _best(graph: _Graph, model: ItemModel, scores: str, codes: str) -> None:
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


def _double(graph: _Graph) -> int:
    return int(graph._onnx.TensorProto.DOUBLE)


def _float(graph: _Graph) -> int:
    return int(graph._onnx.TensorProto.FLOAT)
