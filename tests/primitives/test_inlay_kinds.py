"""Dynamic quantization, cache write and table lookup, the kinds that the specification lacks."""

import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import Memory, pack
from inlay.primitives.attributes import EltwisePostOp, PrimitiveAttributes
from inlay.primitives.cache_write import CacheWrite
from inlay.primitives.dynamic_quantization import DynamicQuantization
from inlay.primitives.engine import Operation
from inlay.primitives.operation_checks import require_operation
from inlay.primitives.rules import INLAY_KINDS, KINDS, SIGNATURES
from inlay.primitives.table_lookup import TableLookup
from tests.support.refusals import raises_exactly

RELU = PrimitiveAttributes(post_ops=(EltwisePostOp("relu"),))
POSITION = MemoryDesc((1,), "s64")


def rows(*dims: int, data_type: str = "f32", tag: str | None = None) -> MemoryDesc:
    return MemoryDesc(dims, data_type, tag)


def cache_write(src: MemoryDesc | None = None, **options: Any) -> CacheWrite:
    return CacheWrite(src or rows(2, 1, 8), POSITION, rows(2, 16, 8), **{"axis": 1, "engine": "reference", **options})


def test_the_kinds_are_beside_those_of_the_specification() -> None:
    assert not set(INLAY_KINDS) & set(KINDS)
    assert {kind for kind, _ in SIGNATURES} == {*INLAY_KINDS, *KINDS}


@pytest.mark.parametrize("seed", range(20))
def test_dynamic_quantization_is_that_of_onnx(seed: int) -> None:
    """The reference implementation of ONNX is the oracle."""
    evaluator = pytest.importorskip("onnx.reference")
    helper = pytest.importorskip("onnx.helper")
    x = (np.random.default_rng(seed).normal(size=(3, 50)) * 10.0 ** (seed - 10) + seed % 3).astype(np.float32)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    quantized, scale, zero_point = evaluator.ReferenceEvaluator(node).run(None, {"x": x})
    src = pack(x, "ba")
    found = DynamicQuantization(src.desc, engine="reference")(src=src)
    assert found["scale"].unpack() == scale
    assert found["zero_point"].unpack() == zero_point
    np.testing.assert_array_equal(found["dst"].unpack(), quantized)


def test_elements_of_zero_have_the_scale_1() -> None:
    src = pack(np.zeros((2, 3), np.float32), "ab")
    found = DynamicQuantization(src.desc, engine="reference")(src=src)
    assert [found[name].unpack().ravel().tolist() for name in ("dst", "scale", "zero_point")] == [[0] * 6, [1], [0]]


@pytest.mark.parametrize("source", [np.uint8, np.int8])
@pytest.mark.parametrize("result", [np.uint8, np.int8])
@pytest.mark.parametrize("tag", ["abc", "cab", "aBc8b"])
def test_a_table_lookup_takes_the_entry_of_the_bits(source: Any, result: Any, tag: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (3, 5, 70)).astype(np.uint8).view(source)
    table = rng.integers(0, 256, 256).astype(np.uint8).view(result)
    src = pack(x, tag)
    lookup = TableLookup(src.desc, MemoryDesc((256,), table.dtype), engine="reference")
    found = lookup(src=src, table=pack(table, "a")).unpack()
    assert found.dtype == result
    np.testing.assert_array_equal(found, table[x.view(np.uint8)])


BYTES, TABLE = rows(2, 3, data_type="u8"), rows(256, data_type="u8")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((rows(2, 3), TABLE), "TableLookup: src is f32: describe it as s8 or u8"),
        ((BYTES, rows(256)), "TableLookup: table is f32: describe it as s8 or u8"),
        (
            (BYTES, rows(255, data_type="u8")),
            "TableLookup: table is MemoryDesc((255,), 'u8', 'a'): it has 256 elements, one after the other",
        ),
        (
            (BYTES, TABLE, rows(2, 3, data_type="s8")),
            "TableLookup: dst is s8, and table u8: make them equal",
        ),
    ],
)
def test_mistakes_in_table_lookups(arguments: Any, text: str) -> None:
    with raises_exactly(InvalidArguments, text):
        TableLookup(*arguments, engine="reference")


@pytest.mark.parametrize("data_type", ["f32", "bf16", "s8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("tag", ["abc", "bca", "aBc8b"])
def test_a_cache_write_replaces_rows_and_keeps_the_rest(data_type: str, axis: int, tag: str) -> None:
    rng, count, dims = np.random.default_rng(axis), 2, (3, 5, 4)
    cache, new = rng.integers(-9, 9, dims), rng.integers(-9, 9, [count if i == axis else n for i, n in enumerate(dims)])
    dtype = MemoryDesc((1,), data_type).data_type.dtype  # type: ignore[union-attr]
    dst, src = pack(cache.astype(dtype), tag), pack(new.astype(dtype), "cab")
    write = CacheWrite(src.desc, POSITION, dst.desc, axis=axis, engine="reference")
    for position in range(dims[axis] - count + 1):
        cache[(slice(None),) * axis + (slice(position, position + count),)] = new
        write(src=src, position=pack(np.array([position]), "a"), dst=dst)
        np.testing.assert_array_equal(dst.unpack().astype(np.int64), cache)


@pytest.mark.parametrize("position", [-1, 16])
def test_a_position_outside_of_the_cache_is_refused(position: int) -> None:
    write, dst = cache_write(), pack(np.ones((2, 16, 8), np.float32), "abc")
    with raises_exactly(
        InvalidArguments,
        f"CacheWrite: position is {position}: it is from 0 to 15, since dst has 16 elements along axis 1 and src 1",
    ):
        write(src=Memory(write.src_desc), position=pack(np.array([position]), "a"), dst=dst)
    assert (dst.unpack() == 1).all()


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "rows of another type": (
        lambda: cache_write(rows(2, 1, 8, data_type="bf16")),
        "CacheWrite: src is bf16 and dst f32: describe both with the same type",
    ),
    "rows of other dims": (
        lambda: cache_write(rows(2, 1, 7)),
        "CacheWrite: src has dims (2, 1, 7), dst (2, 16, 8) and axis 1 give (2, 1, 8): describe it with these",
    ),
    "too many rows": (
        lambda: cache_write(rows(2, 17, 8)),
        "CacheWrite: src has 17 elements along axis 1: dst has room for 1 to 16",
    ),
    "no rows": (
        lambda: cache_write(rows(2, 0, 8)),
        "CacheWrite: src has 0 elements along axis 1: dst has room for 1 to 16",
    ),
    "an axis too many": (lambda: cache_write(axis=3), "CacheWrite: axis is 3: the tensor has axes 0 to 2"),
    "two positions": (
        lambda: CacheWrite(rows(2, 1, 8), rows(2, data_type="s64"), rows(2, 16, 8), axis=1),
        "CacheWrite: position has dims (2,), one position give (1,): describe it with these",
    ),
    "a position of s32": (
        lambda: CacheWrite(rows(2, 1, 8), rows(1, data_type="s32"), rows(2, 16, 8), axis=1),
        "CacheWrite: position is s32: describe it as s64",
    ),
    "no cache": (
        lambda: cache_write()(src=Memory(rows(2, 1, 8)), position=Memory(POSITION)),
        "CacheWrite: dst is missing: give the memory whose other elements are kept",
    ),
    "integers": (
        lambda: DynamicQuantization(rows(4, data_type="s8")),
        "DynamicQuantization: src is s8: describe numbers of floating point, such as f32",
    ),
    "signed results": (
        lambda: DynamicQuantization(rows(4), rows(4, data_type="s8")),
        "DynamicQuantization: dst is s8: describe it as u8",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_raises_this_error(name: str) -> None:
    call, error = MISTAKES[name]
    with raises_exactly(InvalidArguments, error):
        call()


@pytest.mark.parametrize(
    "create", [lambda: cache_write(attributes=RELU), lambda: DynamicQuantization(rows(4), attributes=RELU)]
)
def test_attributes_are_refused(create: Callable[[], object]) -> None:
    with pytest.raises(InvalidArguments, match=re.escape("it has no attributes: leave PrimitiveAttributes(")):
        create()


def test_operations_of_files_are_checked() -> None:
    found = cache_write().operation
    require_operation(found)
    require_operation(DynamicQuantization(rows(4), engine="reference").operation)
    wrong = Operation("cache_write", "forward_inference", {**found.descs, "src": rows(2, 17, 8)}, found.parameters)
    with raises_exactly(InvalidArguments, MISTAKES["too many rows"][1]):
        require_operation(wrong)


def test_fpmath_integers_is_true_or_false_and_refused_by_onednn() -> None:
    from inlay import primitives
    from inlay.primitives.engine import get_engine

    def create(value: Any, engine: str) -> primitives.MatMul:
        attributes = PrimitiveAttributes(fpmath_integers=value)
        weights = MemoryDesc((8, 3), "s8", "any")
        return primitives.MatMul(rows(2, 8), weights, attributes=attributes, engine=engine)

    with raises_exactly(InvalidArguments, "MatMul: fpmath_integers is 1: give True or False"):
        create(1, "reference")
    wrong: Any = PrimitiveAttributes(rounds_source=cast(Any, None))
    with raises_exactly(InvalidArguments, "MatMul: rounds_source is None: give True or False"):
        primitives.MatMul(rows(2, 4), rows(4, 3, data_type="s8"), attributes=wrong, engine="reference")
    assert create(True, "reference").operation.attributes.fpmath_integers
    if "onednn" in get_engine().name:
        # On threads of GNU OpenMP Inlay's own kernel computes it, with weights in its own format.
        with pytest.raises(
            Unimplemented, match=r"integer weights|a product of few rows has no weights .* leave them any"
        ):
            create(True, "onednn")


@pytest.mark.heavy
def test_dynamic_quantization_is_bit_for_bit_that_of_onnx_runtime() -> None:
    """1,000 rows whose ranges differ by six decades, centred or not."""
    runtime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["dst", "scale", "zero_point"])
    described = [helper.make_tensor_value_info("x", floats, [1, 97])]
    types = {
        "dst": (onnx.TensorProto.UINT8, [1, 97]),
        "scale": (floats, []),
        "zero_point": (onnx.TensorProto.UINT8, []),
    }
    results = [helper.make_tensor_value_info(name, *form) for name, form in types.items()]
    graph = helper.make_graph([node], "rows", described, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    quantize = DynamicQuantization(rows(1, 97), engine="reference")
    rng = np.random.default_rng(0)
    for index in range(1000):
        x = rng.standard_normal((1, 97)) * 10 ** rng.uniform(-3, 3) + rng.uniform(-2, 2) * (index % 3)
        found = quantize(src=pack(x.astype(np.float32), "ab"))
        for name, expected in zip(types, session.run(None, {"x": x.astype(np.float32)}), strict=True):
            np.testing.assert_array_equal(
                found[name].unpack().reshape(expected.shape), expected, err_msg=f"row {index}"
            )
