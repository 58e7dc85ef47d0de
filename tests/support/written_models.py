"""Models of ONNX from the text of their nodes, as in `t = Conv <pads = [1, 1]> (x, w) y = Relu(t)`."""

from typing import Any

import onnx
from onnx import TensorProto, helper, parser

from tests.support.network_runs import model_of
from tests.support.networks import Model


def nodes_of(text: str) -> list[onnx.NodeProto]:
    """Return the nodes of a text in ONNX's own syntax, named after their first outputs."""
    nodes = list(parser.parse_graph(f"g () => () {{ {text} }}").node)
    for node in nodes:
        node.name = node.name or next(filter(None, node.output), "")
    return nodes


def written_model(
    text: str,
    dims: Any = (2, 3),
    outputs: str = "y",
    /,
    *,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
    **constants: Any,
) -> Model:
    """Return a model of these nodes with the input x; the outputs are separated by blanks, the constants are arrays."""
    nodes = nodes_of(text)
    model = model_of(nodes, {"x": dims}, outputs.split(), constants, opset, kind)
    domains = {node.domain for node in nodes} - {""}
    model.opset_import.extend(helper.make_opsetid(domain, 1) for domain in domains)
    return model
