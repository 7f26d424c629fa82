"""A graph of ONNX operators under construction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Names:
    """The results in a graph from which a ranking by choice starts.

    Attributes:
        codes: the codes of the items in the history; unknown ids have the code after the last.
        values: the predicted values of all items, and one more.
        choices: the choice scores of all items, and one more.
    """

    codes: str
    values: str
    choices: str


class Graph:
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

    @property
    def float64(self) -> int:
        """The type of double precision."""
        return int(self._onnx.TensorProto.DOUBLE)

    @property
    def float32(self) -> int:
        """The type of single precision."""
        return int(self._onnx.TensorProto.FLOAT)

    def finished(self, name: str, id_kind: int) -> Any:
        """Return the graph with its inputs and outputs."""
        types, value = self._onnx.TensorProto, self._onnx.helper.make_tensor_value_info
        inputs = [value("items", id_kind, ["n"]), value("values", types.FLOAT, ["n"]), value("k", types.INT64, [1])]
        outputs = [value("ids", id_kind, ["best"]), value("scores", types.FLOAT, ["best"])]
        return self._onnx.helper.make_graph(self._nodes, name, inputs, outputs, self._constants)
