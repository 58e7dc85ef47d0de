"""Sums of integers in the kernels of products, beside integers of NumPy and beside plans that cannot fuse them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import inlay
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from inlay.graph.plan import Plan
from inlay.primitives.attributes import BinaryPostOp, SumPostOp

RNG = np.random.default_rng(20)
CHANNELS = 24
DIMS = {"Conv": (2, CHANNELS, 9, 7), "depthwise": (2, CHANNELS, 9, 7), "Gemm": (30, CHANNELS)}
WEIGHTS = {
    "Conv": RNG.integers(-60, 61, (CHANNELS, CHANNELS, 1, 1)).astype(np.int8),
    "depthwise": RNG.integers(-60, 61, (CHANNELS, 1, 1, 1)).astype(np.int8),
    "Gemm": RNG.integers(-60, 61, (CHANNELS, CHANNELS)).astype(np.int8),
}
WEIGHTS_SCALES = RNG.uniform(0.005, 0.02, CHANNELS).astype(np.float32)
BIAS = RNG.standard_normal(CHANNELS).astype(np.float32)
ZEROS: dict[str, tuple[Any, Any, Any]] = {
    "u8": (np.uint8(120), np.uint8(93), np.uint8(131)),
    "u8 from 0 on": (np.uint8(0), np.uint8(0), np.uint8(0)),
    "s8": (np.int8(3), np.int8(-7), np.int8(12)),
}
"""Zero points of the inputs, of the product, and of the sum."""
IN_SCALE, PRODUCT_SCALE, SUM_SCALE = np.float32(0.03), np.float32(0.021), np.float32(0.033)


class Network:
    """Nodes between quantized tensors, with the constants of their scales and zero points."""

    def __init__(self, operator: str, zeros: str, src_scale: float = float(IN_SCALE)) -> None:
        self.operator, self.zeros, self.dims = operator, ZEROS[zeros], DIMS[operator]
        self.quantum = {"i": np.float32(src_scale), "p": PRODUCT_SCALE, "s": SUM_SCALE}
        self.zero = dict(zip("ips", self.zeros, strict=True))
        self.constants: dict[str, Any] = {"w": WEIGHTS[operator], "ws": WEIGHTS_SCALES, "b": BIAS}
        self.constants["wz"] = np.zeros(CHANNELS, np.int8)
        self.constants |= {f"{name}s": scale for name, scale in self.quantum.items()}
        self.constants |= {f"{name}z": zero for name, zero in self.zero.items()}
        self.nodes: list[Any] = []

    def node(self, operator: str, inputs: str, output: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(operator, inputs.split(), [output], **attributes))

    def quantize(self, name: str, kind: str) -> None:
        """Add `name`q, the integers of a tensor, and `name`d, the numbers that they represent."""
        self.node("QuantizeLinear", f"{name} {kind}s {kind}z", f"{name}q")
        self.node("DequantizeLinear", f"{name}q {kind}s {kind}z", f"{name}d")

    def product(self, src: str, output: str) -> None:
        """Add a product of a quantized tensor, and quantize it."""
        self.node("DequantizeLinear", "w ws wz", f"{output}w", axis=1 if self.operator == "Gemm" else 0)
        groups = {"group": CHANNELS} if self.operator == "depthwise" else {}
        self.node("Gemm" if self.operator == "Gemm" else "Conv", f"{src}d {output}w b", output, **groups)
        self.quantize(output, "p")

    def add(self, one: str, other: str, output: str, *, relu: bool = False) -> None:
        """Add a sum of dequantized tensors, and quantize it."""
        self.node("Add", f"{one} {other}", f"{output}a" if relu else output)
        if relu:
            self.node("Relu", f"{output}a", output)
        self.quantize(output, "s")

    def model(self, inputs: str, *outputs: str, dims: tuple[int, ...] | None = None) -> bytes:
        """The model with outputs of integers, which have the dims of the inputs unless `dims` are given."""
        ends = [helper.make_tensor_value_info(name, 1, self.dims) for name in inputs]
        integer = helper.np_dtype_to_tensor_dtype(self.zeros[0].dtype)
        results = [helper.make_tensor_value_info(name, integer, dims or self.dims) for name in outputs]
        initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "sums", ends, results, initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        content: bytes = model.SerializeToString()
        return content

    # Integers of NumPy

    def integers(self, x: Array, kind: str) -> Array:
        """The numbers of quanta that the integers of a tensor represent."""
        limits, zero = np.iinfo(self.zero[kind].dtype), int(self.zero[kind])
        return np.asarray(np.clip(np.rint(x / np.float64(self.quantum[kind])), limits.min - zero, limits.max - zero))

    def real_product(self, x: Array) -> Array:
        """The product of the quantized x, of numbers of f64."""
        quanta, weights = self.integers(x, "i"), WEIGHTS[self.operator].astype(np.float64)
        if self.operator == "Gemm":
            real = quanta @ weights * WEIGHTS_SCALES.astype(np.float64) * self.quantum["i"] + BIAS
        elif self.operator == "Conv":
            real = np.einsum("nchw,oc->nohw", quanta, weights[:, :, 0, 0])
        else:
            real = quanta * weights.reshape(1, -1, 1, 1)
        if self.operator != "Gemm":
            scales = WEIGHTS_SCALES.reshape(1, -1, 1, 1).astype(np.float64) * self.quantum["i"]
            real = real * scales + BIAS.reshape(1, -1, 1, 1)
        return np.asarray(real)

    def sum_of(self, one: Array, other: Array, *, relu: bool = False) -> Array:
        """The numbers of quanta of a sum of real numbers."""
        total = one + other
        return self.integers(np.maximum(total, 0) if relu else total, "s")


def residual(operator: str, zeros: str, *, relu: bool = False, swapped: bool = False) -> Network:
    """q = quantized (product of x + y)."""
    network = Network(operator, zeros)
    network.quantize("x", "i")
    network.quantize("y", "i")
    network.product("x", "p")
    network.add(*(("yd", "pd") if swapped else ("pd", "yd")), "t", relu=relu)
    return network


def samples(network: Network, names: str) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    return {name: (3 * rng.standard_normal(network.dims)).astype(np.float32) for name in names}


def require_close(found: Array, expected: Array, quantum: float = 1.0) -> None:
    """Check that numbers differ by one quantum at most, on one element of a thousand at most."""
    off = np.abs(found.astype(np.float64) - expected) / quantum
    assert off.max() <= 1.01
    assert (off > 0.01).mean() <= 1e-3


def plan_of(model: bytes) -> Plan:
    """A plan for an instruction set with exact kernels of integers."""
    return inlay.plan(inlay.load(model), costs="analytic", isa="AVX512_CORE_VNNI")


def post_ops_of(model: bytes) -> list[str]:
    """The kinds of the post-operations with an operand, of all steps, and of the steps that only add."""
    found = []
    for step in plan_of(model).program.steps:
        assert step.operation is not None
        found += [step.kind] if step.kind == "binary" else []
        post_ops = step.operation.attributes.post_ops
        found += [type(one).__name__ for one in post_ops if isinstance(one, (BinaryPostOp, SumPostOp))]
    return found


def run(model: bytes, inputs: dict[str, Array]) -> dict[str, Array]:
    with inlay.compile(inlay.load(model), costs="analytic") as session:
        return session.run(inputs)


@pytest.mark.parametrize("swapped", [False, True], ids=["product first", "product second"])
@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("operator", DIMS)
def test_a_sum_has_the_integers_of_numpy(operator: str, zeros: str, relu: bool, swapped: bool) -> None:
    network = residual(operator, zeros, relu=relu, swapped=swapped)
    x = samples(network, "xy")
    model = network.model("xy", "tq")
    assert post_ops_of(model) == ["SumPostOp"]
    found = run(model, x)["tq"]
    product = network.integers(network.real_product(x["x"]), "p") * np.float64(PRODUCT_SCALE)
    other = network.integers(x["y"], "i") * np.float64(IN_SCALE)
    require_close(found.astype(np.float64) - int(network.zero["s"]), network.sum_of(product, other, relu=relu))


@pytest.mark.parametrize("operator", DIMS)
def test_an_operand_that_is_read_later_is_kept(operator: str) -> None:
    """The integers of y are an output, so the sum must not overwrite them."""
    network = residual(operator, "u8")
    x = samples(network, "xy")
    model = network.model("xy", "tq", "yq")
    assert post_ops_of(model) == ["BinaryPostOp"]
    found = run(model, x)
    product = network.integers(network.real_product(x["x"]), "p") * np.float64(PRODUCT_SCALE)
    quanta = network.integers(x["y"], "i")
    require_close(found["yq"].astype(np.float64) - int(network.zero["i"]), quanta)
    expected = network.sum_of(product, quanta * np.float64(IN_SCALE))
    require_close(found["tq"].astype(np.float64) - int(network.zero["s"]), expected)


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("operator", DIMS)
def test_a_fused_sum_has_the_integers_of_one_that_is_not_fused(operator: str, zeros: str) -> None:
    """A product whose integers are an output has a step of its own, and so has the sum."""
    network = residual(operator, zeros)
    x = samples(network, "xy")
    fused, alone = network.model("xy", "tq"), network.model("xy", "tq", "pq")
    assert (post_ops_of(fused), post_ops_of(alone)) == (["SumPostOp"], ["binary"])
    require_close(run(fused, x)["tq"], run(alone, x)["tq"].astype(np.float64))


@pytest.mark.parametrize("operator", DIMS)
def test_two_sums_follow_one_product(operator: str) -> None:
    """Between the sums the integers are rounded and bounded too."""
    network = residual(operator, "u8")
    network.quantize("z", "i")
    network.node("Add", "td zd", "u")
    network.quantize("u", "p")
    x = samples(network, "xyz")
    model = network.model("xyz", "uq")
    assert len(post_ops_of(model)) == 2
    assert "binary" not in post_ops_of(model)
    found = run(model, x)["uq"]
    product = network.integers(network.real_product(x["x"]), "p") * np.float64(PRODUCT_SCALE)
    y, z = (network.integers(x[name], "i") * np.float64(IN_SCALE) for name in "yz")
    real = network.sum_of(product, y) * np.float64(SUM_SCALE) + z
    require_close(found.astype(np.float64) - int(network.zero["p"]), network.integers(real, "p"))


def test_a_constant_per_channel_is_added_after_rounding() -> None:
    """It is no bias: the product is quantized before it is added."""
    network = Network("Gemm", "u8")
    network.constants["c"] = RNG.standard_normal(CHANNELS).astype(np.float32)
    network.quantize("x", "i")
    network.product("x", "p")
    network.add("pd", "c", "t")
    model = network.model("x", "tq")
    assert post_ops_of(model) == ["BinaryPostOp"]
    x = samples(network, "x")
    found = run(model, x)["tq"]
    product = network.integers(network.real_product(x["x"]), "p") * np.float64(PRODUCT_SCALE)
    expected = network.sum_of(product, network.constants["c"].astype(np.float64))
    require_close(found.astype(np.float64) - int(network.zero["s"]), expected)


def test_the_bias_and_the_residual_of_rows_in_planes_are_fused() -> None:
    """A MatMul of three axes is computed as a matrix with a reshape behind it, which the sums pass."""
    network = Network("Gemm", "u8")
    network.dims = (3, 10, CHANNELS)
    network.constants["c"] = RNG.standard_normal(CHANNELS).astype(np.float32)
    for name in "xy":
        network.quantize(name, "i")
    network.node("DequantizeLinear", "w ws wz", "wd", axis=1)
    network.node("MatMul", "xd wd", "p")
    network.quantize("p", "p")
    network.add("pd", "c", "t")
    network.add("yd", "td", "u")
    model = network.model("xy", "uq")
    assert post_ops_of(model) == ["BinaryPostOp", "BinaryPostOp"]
    x = samples(network, "xy")
    found = run(model, x)["uq"]
    product = network.real_product(x["x"]) - BIAS.astype(np.float64)
    product = network.integers(product, "p") * np.float64(PRODUCT_SCALE)
    total = network.sum_of(product, network.constants["c"].astype(np.float64)) * np.float64(SUM_SCALE)
    expected = network.sum_of(total, network.integers(x["y"], "i") * np.float64(IN_SCALE))
    require_close(found.astype(np.float64) - int(network.zero["s"]), expected)


@pytest.mark.parametrize("zero", [140, 230], ids=["fits into s8", "does not fit"])
def test_weights_of_u8_with_another_zero_point(zero: int) -> None:
    """A convolution of integers has weights without a zero point: those that fit into s8 less theirs."""
    network = Network("Conv", "u8")
    network.constants["w"] = (WEIGHTS["Conv"].astype(np.int16) + 130).astype(np.uint8)
    network.constants["wz"] = np.full(CHANNELS, zero, np.uint8)
    network.quantize("x", "i")
    network.product("x", "p")
    model = network.model("x", "pq")
    ops = lower_network(load_bound(model)).ops
    (product,) = [op for op in ops if op.kind == "convolution"]
    assert product.constants["weights"].dtype == (np.int8 if zero == 140 else np.float32)
    x = samples(network, "x")
    found = run(model, x)["pq"]
    weights = network.constants["w"].astype(np.float64)[:, :, 0, 0] - zero
    scale = WEIGHTS_SCALES.reshape(1, -1, 1, 1).astype(np.float64) * IN_SCALE
    real = np.einsum("nchw,oc->nohw", network.integers(x["x"], "i"), weights) * scale + BIAS.reshape(1, -1, 1, 1)
    require_close(found.astype(np.float64) - 93, network.integers(real, "p"))


def test_groups_that_differ_in_scales_alone_have_post_operations_of_their_own() -> None:
    """The cache of candidates must not give one product the numbers of another."""
    network = Network("Conv", "u8")
    for name in "xy":
        network.quantize(name, "i")
    network.product("x", "p")
    network.add("pd", "yd", "t")
    network.node("DequantizeLinear", "w ws wz", "ow", axis=0)
    network.node("Conv", "td ow b", "o")
    network.constants["os"] = np.float32(0.05)
    network.node("QuantizeLinear", "o os iz", "oq")
    network.node("DequantizeLinear", "oq os iz", "od")
    network.node("Add", "od td", "u")
    network.quantize("u", "p")
    model = network.model("xy", "uq")
    chains = [
        step.operation.attributes.post_ops
        for step in plan_of(model).program.steps
        if step.operation is not None and step.operation.attributes.post_ops
    ]
    assert len(chains) == len(set(chains)) == 2


def test_a_saved_plan_has_the_same_integers(tmp_path: Path) -> None:
    network = residual("Conv", "u8", relu=True)
    plan, x = inlay.plan(inlay.load(network.model("xy", "tq")), costs="analytic"), samples(network, "xy")
    plan.save(tmp_path / "plan.inlay")
    with plan.compile() as one, inlay.Session.load(tmp_path / "plan.inlay") as other:
        assert one.run(x)["tq"].tobytes() == other.run(x)["tq"].tobytes()


@pytest.mark.parametrize("operator", DIMS)
def test_a_product_has_one_scale(operator: str) -> None:
    network = residual(operator, "u8")
    ops = lower_network(load_bound(network.model("xy", "tq"))).ops
    (product,) = [op for op in ops if op.kind in ("convolution", "matmul")]
    assert set(product.attributes.scales) == {"weights"}
    assert not product.attributes.zero_points
    expected = WEIGHTS_SCALES.astype(np.float64) * IN_SCALE / PRODUCT_SCALE
    np.testing.assert_allclose(product.constants["weights_scales"], expected, 1e-6)
    rows = WEIGHTS[operator].T if operator == "Gemm" else WEIGHTS[operator].reshape(CHANNELS, -1)
    bias = BIAS / np.float64(PRODUCT_SCALE) - 120 * rows.sum(1, np.float64) * expected + 93
    np.testing.assert_allclose(product.constants["bias"].ravel(), bias, 1e-5, 1e-4)


def test_a_padded_convolution_keeps_the_zero_point_of_its_source() -> None:
    """Padding has the zero point, which a bias would add where no element is."""
    network = Network("Conv", "u8")
    network.quantize("x", "i")
    network.product("x", "p")
    network.nodes[-3].attribute.append(helper.make_attribute("pads", [1, 1, 0, 0]))
    model = network.model("x", "pq", dims=(2, CHANNELS, 10, 8))
    (product,) = [op for op in lower_network(load_bound(model)).ops if op.kind == "convolution"]
    assert set(product.attributes.zero_points) == {"src"}
    x = samples(network, "x")
    found = run(model, x)["pq"]
    padded = np.pad(x["x"], ((0, 0), (0, 0), (1, 0), (1, 0)))
    require_close(found.astype(np.float64) - 93, network.integers(network.real_product(padded), "p"))


def test_scales_whose_product_f32_lacks_stay_apart() -> None:
    network = Network("Conv", "u8", src_scale=1e-38)
    network.quantize("x", "i")
    network.product("x", "p")
    ops = lower_network(load_bound(network.model("x", "pq"))).ops
    (product,) = [op for op in ops if op.kind == "convolution"]
    assert set(product.attributes.scales) == {"src", "weights", "dst"}
