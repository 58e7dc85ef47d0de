"""Lowering of element-wise operators: results equal those of `onnx.reference`, in each opset that changed them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import lowered_models as lm
from tests.support.lowered_models import SEEDS, SHAPES

pytestmark = pytest.mark.filterwarnings("ignore")

FACTORS = st.floats(0.125, 2, width=32)


def normal(seed: int, shape: tuple[int, ...]) -> lm.Array:
    return (2 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("operator", "opset"),
    [
        *((name, opset) for name in ("Abs", "Exp", "Neg", "Relu", "Sigmoid", "Tanh") for opset in (7, 13, 22)),
        *((name, 13) for name in ("Elu", "HardSigmoid", "LeakyRelu", "Log", "Reciprocal", "Round", "Selu", "Softplus")),
        *(("Sqrt", 13), ("Celu", 12), ("HardSwish", 14), ("Mish", 18), ("Swish", 24)),
    ],
)
@given(shape=SHAPES, seed=SEEDS)
def test_functions_of_one_element(operator: str, opset: int, shape: tuple[int, ...], seed: int) -> None:
    x = normal(seed, shape)
    x = np.where(np.abs(x) < 1e-2, np.float32(1), x) if operator == "Reciprocal" else x
    x = np.abs(x) + np.float32(0.1) if operator in ("Log", "Sqrt") else x
    assert set(lm.kinds_of(lm.lower_operator(operator, {"x": x}, opset=opset))) == {"eltwise"}


NUMBERS = {"Celu": ["alpha"], "Elu": ["alpha"], "LeakyRelu": ["alpha"]}
NUMBERS |= {"HardSigmoid": ["alpha", "beta"], "Selu": ["alpha", "gamma"]}


@pytest.mark.parametrize("operator", NUMBERS)
@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_functions_with_numbers(operator: str, data: Any, shape: tuple[int, ...], seed: int) -> None:
    numbers = {name: data.draw(FACTORS, name) for name in NUMBERS[operator]}
    assert set(lm.kinds_of(lm.lower_operator(operator, {"x": normal(seed, shape)}, opset=16, **numbers))) == {"eltwise"}


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@given(shape=SHAPES, seed=SEEDS)
def test_both_gelus(approximate: str, shape: tuple[int, ...], seed: int) -> None:
    (op,) = lm.lower_operator("Gelu", {"x": normal(seed, shape)}, opset=20, approximate=approximate).ops
    assert op.parameters["algorithm"] == ("gelu_erf" if approximate == "none" else "gelu_tanh")


@pytest.mark.parametrize("opset", [9, 11, 13, 22])
@given(shape=SHAPES, seed=SEEDS, bounds=st.tuples(*(st.none() | st.floats(-2, 2, width=32),) * 2))
def test_bounds_of_clip_are_inputs_from_opset_11_on(
    opset: int, shape: tuple[int, ...], seed: int, bounds: tuple[float | None, float | None]
) -> None:
    low, high = bounds
    limits: dict[str, Any] = {
        name: bound for name, bound in zip(("min", "max"), bounds, strict=True) if bound is not None
    }
    arrays = {"x": normal(seed, shape)}
    if opset < 11:
        graph = lm.lower_operator("Clip", arrays, opset=opset, **limits)
    else:
        arrays |= {name: np.array(bound, np.float32) for name, bound in limits.items()}
        inputs = ["x", *(name if name in limits else "" for name in ("min", "max"))]
        graph = lm.lower_operator("Clip", arrays, opset=opset, constants=list(limits), inputs=inputs)
    is_ordered = low is None or high is None or low <= high
    assert lm.kinds_of(graph) == (["eltwise"] if is_ordered else ["reference"])


@given(shape=SHAPES, seed=SEEDS, exponent=st.sampled_from([0.5, 1.0, 2.0, 3.0, -1.0, 1.5]))
def test_powers_with_a_constant_exponent(shape: tuple[int, ...], seed: int, exponent: float) -> None:
    arrays = {"x": np.abs(normal(seed, shape)) + np.float32(0.1), "e": np.array(exponent, np.float32)}
    assert lm.kinds_of(lm.lower_operator("Pow", arrays, opset=13, constants=["e"])) == ["eltwise"]


def spread(data: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Draw a shape that ONNX broadcasts to `dims`."""
    kept = data.draw(st.integers(0, len(dims)))
    return tuple(data.draw(st.sampled_from([1, n])) for n in dims[len(dims) - kept :])


@pytest.mark.parametrize("operator", ["Add", "Div", "Mul", "Sub"])
@given(data=st.data(), dims=SHAPES, seed=SEEDS, is_constant=st.booleans(), is_first=st.booleans())
def test_two_tensors_are_spread(
    operator: str, data: Any, dims: tuple[int, ...], seed: int, is_constant: bool, is_first: bool
) -> None:
    other = spread(data, dims)
    shapes = (other, dims) if is_first else (dims, other)
    arrays = {n: normal(seed + i, shape) + np.float32(3) for i, (n, shape) in enumerate(zip("ab", shapes, strict=True))}
    arrays = {name: np.where(np.abs(array) < 0.1, np.float32(1), array) for name, array in arrays.items()}
    fixed = ["a" if is_first else "b"] if is_constant else []
    graph = lm.lower_operator(operator, arrays, opset=14, constants=fixed, tolerance=1e-4)
    is_number = not other and not is_constant
    kinds = lm.kinds_of(graph)
    assert kinds == ["reference"] if is_number else {*kinds} <= {"binary", "eltwise"}
    assert is_first or len(kinds) <= 3


def test_both_sides_may_be_spread() -> None:
    arrays = {"a": normal(0, (3, 1, 4)), "b": normal(1, (2, 1))}
    graph = lm.lower_operator("Sub", arrays, opset=14)
    assert graph.tensors[graph.outputs[0]].dims == (3, 2, 4)


@pytest.mark.parametrize("operator", ["Max", "Mean", "Min", "Sum"])
@given(data=st.data(), dims=SHAPES, seed=SEEDS, count=st.integers(1, 4), is_spread=st.booleans())
def test_any_number_of_tensors(
    operator: str, data: Any, dims: tuple[int, ...], seed: int, count: int, is_spread: bool
) -> None:
    shapes = [dims, *((spread(data, dims) or (1,)) if is_spread else dims for _ in range(count - 1))]
    arrays = {f"x{index}": normal(seed + index, shape) for index, shape in enumerate(shapes)}
    fixed = data.draw(st.lists(st.sampled_from(sorted(arrays)), unique=True, max_size=count - 1))
    graph = lm.lower_operator(operator, arrays, opset=13, constants=fixed)
    assert "reference" not in lm.kinds_of(graph)


@given(data=st.data(), dims=SHAPES, seed=SEEDS, is_constant=st.booleans())
def test_prelu_spreads_its_slope(data: Any, dims: tuple[int, ...], seed: int, is_constant: bool) -> None:
    arrays = {"x": normal(seed, dims), "slope": normal(seed + 1, spread(data, dims) or (1,))}
    graph = lm.lower_operator("PRelu", arrays, opset=16, constants=["slope"] if is_constant else [])
    assert set(lm.kinds_of(graph)) <= {"binary", "prelu"} or (is_constant and lm.kinds_of(graph) == ["eltwise"])
