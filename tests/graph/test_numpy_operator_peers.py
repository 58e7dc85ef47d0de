"""What NumPy computes in place of primitives gives what a second source gives: ONNX Runtime, or what ONNX's cases say.

All operators of `numpy_operators` and `reference_operators` are compared: on ONNX's backend cases at every version of
the operator, and on random nodes with the attributes that these leave out.
"""

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from inlay.errors import Unimplemented
from inlay.graph.numpy_operators.evaluation import FUNCTIONS, compute_node
from tests.support.operator_cases import Array, Case, backend_cases, by_runtime, node_of, since, versions
from tests.support.operator_generators import GENERATORS, case_of
from tests.support.product_generators import PRODUCT_GENERATORS, product_case

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore")

CASES = {**dict.fromkeys(GENERATORS, case_of), **dict.fromkeys(PRODUCT_GENERATORS, product_case)}
"""The function that makes a random node of each operator from a seed."""
RANDOM = ("bernoulli", "training_dropout")
OTHERWISE = (
    "downsample_scales_linear_align_corners",
    "downsample_scales_cubic_align_corners",
    "qk_matmul_bias_3d_mask_causal",
    "qk_matmul_bias_4d_mask_causal",
)
"""Cases whose written results ONNX Runtime does not give."""


def difference(got: Array, wanted: Array, tolerance: float) -> str:
    """How a result differs; empty if it does not. ONNX Runtime calls 8-bit floats uint8."""
    if got.dtype.itemsize == 1 and wanted.dtype == np.uint8:
        got = got.view(np.uint8)
    if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        return f"{got.dtype} {got.shape}, not {wanted.dtype} {wanted.shape}"
    if got.dtype.kind in "biu":
        return "" if np.array_equal(got, wanted) else f"{got.reshape(-1)[:6]}, not {wanted.reshape(-1)[:6]}"
    tolerance = 1e-2 if got.dtype.itemsize < 4 else tolerance
    a, b = got.astype(np.float64).reshape(-1), wanted.astype(np.float64).reshape(-1)
    greatest = np.abs(b[np.isfinite(b)]).max(initial=0)
    close = np.isclose(a, b, rtol=tolerance, atol=tolerance * (greatest + 1e-3), equal_nan=True)
    return "" if close.all() else f"{a[~close][:6]}, not {b[~close][:6]}"


def compare(case: Case, wanted: list[Array], tolerance: float = 2e-5) -> str:
    """How the results of a node differ from those wanted."""
    got = list(compute_node(node_of(case), case.opset, case.arrays).values())
    found = [difference(one, other, tolerance) for one, other in zip(got, wanted, strict=True)]
    if case.node.op_type.startswith("QLinear"):  # a product beside a half may be rounded to either side
        far = [np.abs(one.astype(int) - other.astype(int)).max() for one, other in zip(got, wanted, strict=True)]
        return "" if max(far) <= 1 else "; ".join(found)
    return "; ".join(filter(None, found))


def failures(operator: str, seeds: range) -> list[str]:
    """Random nodes of an operator that differ from ONNX Runtime; most must be such as it takes."""
    faults, count = [], 0
    for seed in seeds:
        case = CASES[operator](operator, seed)
        wanted = by_runtime(case)
        if wanted is not None:
            count += 1
            text = compare(case, wanted)
            faults += [f"{case.name}, opset {case.opset}, {node_of(case).attributes}: {text}"] if text else []
    assert count >= 0.8 * len(seeds), (operator, count)
    return faults


@pytest.mark.parametrize("operator", CASES)
def test_random_nodes_give_what_onnx_runtime_gives(operator: str) -> None:
    assert failures(operator, range(10)) == []


@pytest.mark.heavy
@pytest.mark.parametrize("operator", CASES)
def test_many_random_nodes_give_what_onnx_runtime_gives(operator: str) -> None:
    assert failures(operator, range(10, 200)) == []


@pytest.mark.heavy
def test_every_version_of_every_operator_gives_what_a_second_source_gives() -> None:
    compared, faults, refused = Counter[tuple[str, int]](), list[str](), Counter[str]()
    for operator, make in CASES.items():
        compared.update({(operator, since(operator, make(operator, seed).opset)) for seed in range(200)})
    for case in backend_cases():
        operator = case.node.op_type
        if operator not in FUNCTIONS or any(word in case.name for word in RANDOM):
            continue
        written = case.expected if case.is_original else None
        wanted = None if any(word in case.name for word in OTHERWISE) else by_runtime(case)
        wanted = written if wanted is None else wanted
        if wanted is None:
            continue
        try:
            text = compare(case, wanted, 2e-4 if wanted is written else 2e-5)  # some are written with four digits
        except Unimplemented:
            refused[operator] += 1
            continue
        faults += [f"{case.name}: {text}"] if text else []
        compared[operator, since(operator, case.opset)] += 1
    assert faults == []
    listed = {(operator, version) for operator in FUNCTIONS for version in versions(operator)}
    missing = {one for one in listed - UNASKED if not compared[one[0], since(*one)] and not one[0].startswith("Random")}
    assert missing == set()
    assert dict(refused) == REFUSED


REFUSED = {
    "Cast": 2,  # to FLOAT8E8M0
    "MaxUnpool": 3,  # output_shape, which ONNX Runtime reads otherwise
    "RoiAlign": 2,  # mode max, which ONNX Runtime computes otherwise
}
"""How many cases are not computed, and why."""


UNASKED = {
    ("Bernoulli", 15),  # random
    ("Bernoulli", 22),
    ("GlobalLpPool", 22),  # more types than 2
    ("GroupNormalization", 18),  # see test_numpy_operators.py
    ("MaxRoiPool", 22),  # more types than 1
    ("Multinomial", 9),  # random
    ("Multinomial", 22),
    ("Scatter", 11),  # deprecated
    ("Upsample", 10),  # deprecated
}
"""Versions of operators that neither ONNX nor its runtime can be asked about."""


RANDOM_NODES: dict[str, tuple[dict[str, Any], Any]] = {
    "Bernoulli": ({"dtype": onnx.TensorProto.INT32}, np.int32),
    "RandomNormal": ({"shape": [2, 3], "dtype": onnx.TensorProto.DOUBLE}, np.float64),
    "RandomNormalLike": ({"dtype": onnx.TensorProto.FLOAT16}, np.float16),
    "RandomUniform": ({"shape": [2, 3], "dtype": onnx.TensorProto.FLOAT16}, np.float16),
    "RandomUniformLike": ({}, np.float32),
}
"""Attributes of random operators, and the type of what they give."""


@pytest.mark.parametrize("operator", RANDOM_NODES)
@pytest.mark.parametrize("opset", [15, 22])
def test_random_operators_give_the_types_and_dims_that_onnx_says(operator: str, opset: int) -> None:
    """Nobody can predict their elements, but of what type they are, how many, and that a seed repeats them."""
    attributes, dtype = RANDOM_NODES[operator]
    reads = [] if "shape" in attributes else ["x"]
    node = onnx.helper.make_node(operator, reads, ["y"], seed=3.0, **attributes)
    case = Case(operator, node, opset, dict.fromkeys(reads, np.full((2, 3), 0.5, np.float32)), [], True)
    first, again = (compute_node(node_of(case), opset, case.arrays)["y"] for _ in range(2))
    assert (first.shape, first.dtype) == ((2, 3), np.dtype(dtype))
    assert first.tobytes() == again.tobytes()


def test_every_random_operator_with_types_is_listed() -> None:
    assert {name for name in FUNCTIONS if name.startswith(("Random", "Bernoulli"))} == RANDOM_NODES.keys()
