"""Products with weights in ggml's blocks, beside products in f64 with the weights that the package gguf unpacks."""

from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import inlay
from inlay import CompoundDesc, CompoundMemory, MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import Memory, pack
from inlay.primitives import MatMul, PrimitiveAttributes
from inlay.primitives.attributes import EltwisePostOp
from inlay.reordering.attributes import Scales
from tests.oracles import onednn as oracle
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.refusals import raises_exactly

CLOSE = 1e-6
"""Largest difference, as a share of the sum of the magnitudes of the products."""
ENGINES = [
    "reference",
    pytest.param("onednn", marks=pytest.mark.skipif(bool(oracle.why_unavailable()), reason="oneDNN is not there")),
]


def draw(*dims: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(dims, np.float32)


def row_major(*dims: int, data_type: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, data_type, "ab")


def make_product(rows: int, weights: CompoundDesc, **options: Any) -> MatMul:
    """Return a product of f32, row-major."""
    columns, inner = weights.dims
    return MatMul(row_major(rows, inner), weights, dst=row_major(rows, columns), **options)


def check_close(found: npt.NDArray[Any], src: npt.NDArray[Any], weights: npt.NDArray[Any], close: float) -> None:
    """Compare with the product in f64; `weights` are (N, K)."""
    expected = src.astype(np.float64) @ weights.astype(np.float64).T
    magnitude = np.abs(src).astype(np.float64) @ np.abs(weights).astype(np.float64).T + 1
    assert np.max(np.abs(found - expected) / magnitude) < close


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 40])
@pytest.mark.parametrize("name", ["Q4_0", "Q8_0"])
def test_results_are_those_of_the_weights_that_gguf_unpacks(name: str, rows: int, engine: str) -> None:
    gguf: Any = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[name]
    stored = gguf.quants.quantize(draw(50, 96), kind)
    src, desc = draw(rows, 96, seed=1), CompoundDesc(inlay.compound(f"ggml:{name}"), (50, 96))
    found = make_product(rows, desc, engine=engine)(src=pack(src, "ab"), weights=CompoundMemory(desc, np.ravel(stored)))
    check_close(found.unpack(), src, gguf.quants.dequantize(stored, kind), CLOSE)


@pytest.mark.parametrize("rows", [1, 11])
@pytest.mark.parametrize("name", ["ggml:Q4_0", "ggml:Q8_0"])
def test_memory_out_of_bounds_is_not_accessed(name: str, rows: int) -> None:
    packed, src = inlay.pack_compound(draw(33, 64), name), draw(rows, 64, seed=1)
    buffers = [GuardedBuffer(size, align=4) for size in (packed.desc.size, src.nbytes, rows * 33 * 4)]
    blocks, left, result = buffers
    blocks.bytes[:], left.bytes[:] = packed.buffer[: packed.desc.size], src.reshape(-1).view(np.uint8)
    product = make_product(rows, packed.desc)
    dst = Memory(product.dst_desc, result.bytes)
    for buffer in (blocks, left):
        buffer.seal()
    weights = CompoundMemory(packed.desc, blocks.bytes)
    product(src=Memory(product.src_desc, left.bytes), weights=weights, dst=dst)
    check_close(dst.unpack(), src, packed.unpack(), CLOSE)
    assert all(buffer.gap_is_untouched for buffer in buffers)


def test_few_rows_and_many_are_computed_by_the_kernel_for_integers() -> None:
    if oracle.why_unavailable() or inlay.primitives.get_engine("onednn").thread_team is None:
        pytest.skip("there is no library on GNU OpenMP")
    for name, data_type in (("ggml:Q4_0", "s4"), ("ggml:Q8_0", "s8")):
        for rows in (1, 64):
            product = make_product(rows, CompoundDesc(inlay.compound(name), (32, 64)), avoid="reference")
            assert product.impl == f"matvec:{data_type}"
            assert str(product.weights_desc.data_type) == data_type
            assert product.arguments == ("src", "weights", "dst")


def test_bias_and_post_operations_are_applied() -> None:
    packed, src, bias = inlay.pack_compound(draw(40, 64), "ggml:Q4_0"), draw(2, 64, seed=1), draw(1, 40, seed=2)
    attributes = PrimitiveAttributes(post_ops=(EltwisePostOp("relu"),))
    product = make_product(2, packed.desc, bias=row_major(1, 40), attributes=attributes)
    found = product(src=pack(src, "ab"), weights=packed, bias=pack(bias, "ab")).unpack()
    expected = np.maximum(src.astype(np.float64) @ packed.unpack().T.astype(np.float64) + bias, 0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_sources_without_a_kernel_for_integers_have_weights_of_their_type() -> None:
    packed, src = inlay.pack_compound(draw(48, 64), "ggml:Q8_0"), draw(4, 64, seed=1)
    product = MatMul(row_major(4, 64, data_type="bf16"), packed.desc, dst=row_major(4, 48))
    assert str(product.weights_desc.data_type) == "bf16"
    left = pack(src, product.src_desc)
    found = product(src=left, weights=packed).unpack()
    check_close(found, left.unpack().astype(np.float32), packed.unpack(), 1e-2)


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_are_packed_at_their_first_call(engine: str) -> None:
    one, other = (inlay.pack_compound(draw(32, 32, seed=seed), "ggml:Q8_0") for seed in (1, 2))
    src, product = pack(draw(1, 32), "ab"), make_product(1, one.desc, engine=engine)
    first = product(src=src, weights=one).unpack()
    assert not np.array_equal(product(src=src, weights=other).unpack(), first)
    again = product(src=src, weights=one)
    one.buffer[:] = 0
    assert np.array_equal(product(src=src, weights=one, dst=again).unpack(), first)
    fresh = CompoundMemory(one.desc, one.buffer)
    assert not product(src=src, weights=fresh).unpack().any()
    dst = Memory(product.dst_desc)
    run = product.bind(src=src, weights=other, dst=dst)
    run()
    assert np.array_equal(dst.unpack(), product(src=src, weights=other).unpack())


def test_threads_share_a_product() -> None:
    product = make_product(1, CompoundDesc(inlay.compound("ggml:Q4_0"), (64, 64)))
    pairs = [(pack(draw(1, 64, seed=i), "ab"), inlay.pack_compound(draw(64, 64, seed=i), "ggml:Q4_0")) for i in (3, 4)]
    expected = [product(src=src, weights=weights).unpack() for src, weights in pairs]
    wrong: list[int] = []

    def multiply(i: int) -> None:
        src, weights = pairs[i]
        for _ in range(20):
            if not np.array_equal(product(src=src, weights=weights).unpack(), expected[i]):
                wrong.append(i)

    threads = [Thread(target=multiply, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def q4(*dims: int) -> CompoundDesc:
    return CompoundDesc(inlay.compound("ggml:Q4_0"), dims)


SCALED = PrimitiveAttributes(scales={"weights": Scales()})
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "minima": (
        lambda: make_product(1, CompoundDesc(inlay.compound("ggml:Q4_1"), (32, 32))),
        Unimplemented,
        "MatMul: weights are ggml:Q4_1, and blocks of integers with one scale are supported, such as ggml:Q4_0 and "
        "ggml:Q8_0: give an f32 matrix, pack(memory.unpack().T, product.weights_desc)",
    ),
    "a code book": (
        lambda: make_product(1, CompoundDesc(inlay.compound("ggml:IQ4_NL"), (32, 32))),
        Unimplemented,
        "MatMul: weights are ggml:IQ4_NL, and blocks of integers with one scale are supported, such as ggml:Q4_0 and "
        "ggml:Q8_0: give an f32 matrix, pack(memory.unpack().T, product.weights_desc)",
    ),
    "three axes": (
        lambda: MatMul(MemoryDesc((2, 1, 32), "f32", "abc"), q4(2, 32, 32)),
        InvalidArguments,
        "MatMul: weights ggml:Q4_0 2x32x32 have 3 axes: describe one matrix with two, (N, K)",
    ),
    "other dims": (
        lambda: MatMul(row_major(1, 48), q4(48, 32)),
        InvalidArguments,
        "MatMul: src (1, 48) has 48 columns, weights (32, 48) have 32 rows: make them equal",
    ),
    "a source of integers": (
        lambda: MatMul(row_major(1, 32, data_type="u8"), q4(32, 32)),
        InvalidArguments,
        "MatMul: src is u8, and ggml:Q4_0 is multiplied by f32, bf16, f16: reorder it to one of these",
    ),
    "scales": (
        lambda: make_product(1, q4(32, 32), attributes=SCALED),
        InvalidArguments,
        "MatMul: attributes have scales or zero points of weights, and ggml:Q4_0 has its own: leave them out",
    ),
    "an f32 matrix": (
        lambda: make_product(1, q4(32, 32))(src=pack(draw(1, 32), "ab"), weights=pack(draw(32, 32), "ab")),
        InvalidArguments,
        "MatMul: weights are a Memory of shape (32, 32): give a CompoundMemory of ggml:Q4_0 32x32, as "
        "inlay.pack_compound returns",
    ),
    "another format": (
        lambda: make_product(1, q4(32, 32))(
            src=pack(draw(1, 32), "ab"), weights=inlay.pack_compound(draw(32, 32), "ggml:Q8_0")
        ),
        InvalidArguments,
        "MatMul: weights are ggml:Q8_0 32x32: give a CompoundMemory of ggml:Q4_0 32x32, as inlay.pack_compound returns",
    ),
    "no weights": (
        lambda: make_product(1, q4(32, 32))(src=pack(draw(1, 32), "ab")),
        InvalidArguments,
        "MatMul: give weights as a CompoundMemory of ggml:Q4_0 32x32, and no weights_scales, which it has",
    ),
    "a scale that is infinite": (
        lambda: make_product(1, q4(32, 32))(src=pack(draw(1, 32), "ab"), weights=infinite()),
        InvalidArguments,
        "MatMul: weights have a scale that is not finite: quantize them again",
    ),
}


def infinite() -> CompoundMemory:
    """Return blocks of which one has an infinite scale."""
    streams = inlay.pack_compound(draw(32, 32), "ggml:Q4_0").streams()
    streams["scale"][3] = np.inf
    return inlay.assemble("ggml:Q4_0", streams)


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_product_is_refused(name: str) -> None:
    make, error, text = REFUSED[name]
    with raises_exactly(error, text):
        make()
