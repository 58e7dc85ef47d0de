"""Lowering of random nodes: results are correct, by the primitives of the operator, or with a reason.

They are compared with ONNX Runtime, or where it is not installed with the NumPy functions that are compared with it.
"""

import re
from collections.abc import Mapping
from importlib.util import find_spec

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inlay.errors import InlayError
from inlay.graph.numpy_operators.evaluation import compute_node
from tests.graph.lowering.test_conformance import with_constants
from tests.support import lowered_models as lm
from tests.support.lowered_models import SEEDS
from tests.support.operator_cases import Array, Case, by_runtime, model_of, node_of
from tests.support.operator_generators import case_of
from tests.support.product_generators import PRODUCT_GENERATORS, product_case

pytestmark = pytest.mark.filterwarnings("ignore")

OPEN = "its .* is computed by the network, and has to be known before it runs"
NUMBER = ".* has 0 axes, a descriptor has 1 to 12"
INTEGERS = "x is u?int(8|32|64), and primitives are used for float32"
CELLS = "its activations are .*|its sequences differ in length|it clips the inputs of activations"
RESAMPLED = r"resampling||matmul( matmul)?|.* uses other elements than the primitive|it shrinks an axis with antialias"

EXPECTED: Mapping[str, str] = {
    "AveragePool": "pooling|a window covers only padding|its mean counts padding that ceil_mode leaves out",
    "BatchNormalization": "batch_normalization",
    "Conv": "convolution",
    "ConvTranspose": "deconvolution|its dims need padding of .* in all, which is odd or negative",
    "Gemm": f"(matmul|inner_product)( eltwise)*( binary)?|{NUMBER}",
    "GRU": f"gru|lbr_gru|{CELLS}|{OPEN}",
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), "pooling"),
    "LSTM": f"lstm|its input and forget gates are coupled|{CELLS}|{OPEN}",
    "LayerNormalization": "layer_normalization",
    **dict.fromkeys(("LogSoftmax", "Softmax"), "softmax"),
    "MatMul": f"matmul|{NUMBER}",
    "MaxPool": f"pooling|a window covers only padding|{INTEGERS}",
    "RNN": f"vanilla_rnn|{CELLS}|{OPEN}",
    **dict.fromkeys(
        (f"Reduce{way}" for way in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")),
        f"((^| )(eltwise|reduction|matmul|pooling))*|{NUMBER}|{INTEGERS}|{OPEN}",
    ),
    "Slice": rf"(concat ?)*|its steps are \(.*-.*\)|{OPEN}",
    "Upsample": f"{RESAMPLED}|{OPEN}",
}
"""Kinds of primitives without views, or why there is none, as regular expressions."""


LOOSE = ("GRU", "LSTM", "LayerNormalization", "RNN")


def lowered(case: Case, is_weights: bool) -> str:
    """Lower a node, compare its first output, and return the kinds of its primitives, or why there is none."""
    del case.node.output[1:]
    if any(attribute.s == b"half_pixel_symmetric" for attribute in case.node.attribute):
        expected = [lm.run_reference(model_of(case), case.arrays)["y0"]]  # ONNX Runtime rounds coordinates to float32
    else:
        expected = (by_runtime(case) if find_spec("onnxruntime") else by_numpy(case)) or []
    assume(expected)
    model, arrays = model_of(case), case.arrays
    if is_weights:
        model, arrays = with_constants(model, arrays, is_weights)
    values = dict(zip(case.node.output, expected, strict=False))
    graph = lm.lower_and_compare(model, arrays, 1e-4 if case.node.op_type in LOOSE else 1e-5, values=values)
    return "; ".join(op.why for op in graph.ops if op.kind == "reference") or " ".join(lm.kinds_of(graph))


def by_numpy(case: Case) -> list[Array] | None:
    """Return the results of the NumPy functions; None if they do not support the node."""
    try:
        return [*compute_node(node_of(case), case.opset, case.arrays).values()]
    except InlayError:
        return None


def drawn_case(operator: str, seed: int) -> Case:
    """Return a random node, of a product or of another operator."""
    return (product_case if operator in PRODUCT_GENERATORS else case_of)(operator, seed)


@pytest.mark.parametrize("operator", EXPECTED)
@settings(max_examples=300)
@given(seed=SEEDS, is_weights=st.booleans())
def test_a_node_is_lowered_to_primitives_or_a_reference_with_the_reason(
    operator: str, seed: int, is_weights: bool
) -> None:
    assert re.fullmatch(EXPECTED[operator], lowered(drawn_case(operator, seed), is_weights))


@settings(max_examples=1600)
@given(seed=SEEDS, is_weights=st.booleans())
def test_a_resize_is_lowered_to_resamplings_or_products_or_a_reference_with_the_reason(
    seed: int, is_weights: bool
) -> None:
    case = case_of("Resize", seed)
    cubic = any(attribute.s == b"cubic" for attribute in case.node.attribute)
    expected = "|matmul( matmul)?|it shrinks an axis with antialias" if cubic else RESAMPLED
    assert re.fullmatch(f"{expected}|{OPEN}", lowered(case, is_weights))
