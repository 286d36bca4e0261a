"""A small builder of ONNX graphs: operators by name, constants by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from common.arrays import Vector

# Texts are split and matched from operator set 20 on; lookups of doubles from ml set 4 on.
OPERATORS, LOOKUPS, FORMAT = 20, 4, 9
TYPES = {"number": TensorProto.DOUBLE, "text": TensorProto.STRING, "whole": TensorProto.INT64}


class Graph:
    """Nodes in the order in which they were added, each with one output of its own name."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, kind: str) -> str:
        """A column of the raw table, shape (n, 1)."""
        self._inputs.append(helper.make_tensor_value_info(name, TYPES[kind], ["n", 1]))
        return name

    def output(self, value: str, name: str, kind: str) -> None:
        """A column of what is predicted, shape (n, 1)."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TYPES[kind], ["n", 1]))

    def constant(self, value: float | str | Sequence[int] | NDArray[Any]) -> str:
        """A double, a text, whole numbers, or an array; equal ones are kept once."""
        if isinstance(value, str):
            array = np.array(value, dtype=object)
        elif isinstance(value, float):
            array = np.array(value, dtype=np.float64)
        elif isinstance(value, np.ndarray):
            array = value
        else:
            array = np.array(value, dtype=np.int64)
        content = repr(value).encode() if array.dtype == object else array.tobytes()
        key = (array.dtype.str, array.shape, content)
        if key not in self._constants:
            self._constants[key] = f"copriv_constant {len(self._constants)}"
            tensor = numpy_helper.from_array(array, self._constants[key])
            self._initializers.append(tensor)
        return self._constants[key]

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator; the name of its output, or of its first."""
        domain = "ai.onnx.ml" if kind == "LabelEncoder" else ""
        name = f"copriv_{kind} {len(self._nodes)}"
        outputs = [name, f"{name} lengths"] if kind == "StringSplit" else [name]
        node = helper.make_node(kind, list(inputs), outputs, domain=domain, **attributes)
        self._nodes.append(node)
        return name

    def matches(self, text: str, pattern: str) -> str:
        """Whether texts match a pattern as a whole."""
        return self.op("RegexFullMatch", text, pattern=pattern)

    def where(self, condition: str, yes: str | float, no: str | float) -> str:
        """One or the other; numbers are constants, texts are names of values."""
        chosen = [value if isinstance(value, str) else self.constant(value) for value in (yes, no)]
        return self.op("Where", condition, *chosen)

    def number(self, text: str) -> str:
        """Texts that are plain numbers, as doubles."""
        return self.op("Cast", text, to=TensorProto.DOUBLE)

    def lookup(self, values: str, keys: NDArray[Any], codes: Vector, other: float) -> str:
        """The code of each value, or the other one."""
        return self.op(
            "LabelEncoder",
            values,
            keys_tensor=numpy_helper.from_array(keys, "keys"),
            values_tensor=numpy_helper.from_array(codes, "values"),
            default_tensor=numpy_helper.from_array(np.array([other]), "other"),
        )

    def model(self, *, name: str, notes: dict[str, str]) -> onnx.ModelProto:
        """The whole graph, checked.

        Args:
          name: The graph's name.
          notes: What the file says of itself.
        """
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, initializer=self._initializers
        )
        imports = [helper.make_opsetid("", OPERATORS), helper.make_opsetid("ai.onnx.ml", LOOKUPS)]
        made = helper.make_model(
            graph, opset_imports=imports, producer_name="copriv", ir_version=FORMAT
        )
        helper.set_model_props(made, notes)
        onnx.checker.check_model(made)
        return made
