"""Floats from quants: scales of other programs, found by name; the text on quantized tensors; damaged files."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from inlay.errors import FileError, InlayError, InvalidArguments
from inlay.storage import convert, open_memories, plan
from inlay.storage.quantization_text import QUANTIZATION_KEY, read_quantization
from tests.support.refusals import raises_exactly

E4M3 = ml_dtypes.float8_e4m3fn


def quants(*dims: int, dtype: Any = np.int8) -> npt.NDArray[Any]:
    numbers = np.random.default_rng(1).integers(-100, 100, dims)
    return numbers.astype(np.float32).astype(dtype)


def scales(*dims: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(2).uniform(0.01, 2, dims).astype(np.float32)


def dequantized(tensors: dict[str, npt.NDArray[Any]], **options: Any) -> npt.NDArray[Any]:
    save_file(tensors, "q.safetensors")
    convert(plan("q.safetensors", "d.safetensors", dequantize=True, **options), overwrite=True)
    memories = open_memories("d.safetensors")
    assert list(memories) == ["w"]
    return np.asarray(memories["w"].unpack())


@pytest.mark.parametrize("dtype", [np.int8, E4M3, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (48,), (48, 1), (1, 64), (48, 4), (3, 2), (48, 64)])
def test_scales_of_any_shape_that_fits_are_found(shape: tuple[int, ...], dtype: Any) -> None:
    q, s = quants(48, 64, dtype=dtype), scales(*shape)
    factors = s.reshape(48, 1) if shape == (48,) else s
    while factors.ndim == 2 and factors.shape != (48, 64):
        axis = 0 if 48 % factors.shape[0] == 0 and factors.shape[0] not in (1, 48) else 1
        if factors.shape[axis] in (1, (48, 64)[axis]):
            break
        factors = np.repeat(factors, (48, 64)[axis] // factors.shape[axis], axis)
    expected = q.astype(np.float32) * factors
    assert np.array_equal(dequantized({"w": q, "w_scale": s}), expected)
    assert np.array_equal(dequantized({"w": q, "w_scale": s}, memory=20_000), expected)


def test_square_blocks_with_a_part_at_the_end_are_read() -> None:
    q, s = quants(200, 300, dtype=E4M3), scales(2, 3)
    factors = np.repeat(np.repeat(s, 128, 0)[:200], 128, 1)[:, :300]
    expected = q.astype(np.float32) * factors
    found = dequantized({"w": q, "w_scale_inv": s}, scales="{name}_scale_inv")
    assert np.array_equal(found, expected)
    small = dequantized({"w": q, "w_scale_inv": s}, scales="{name}_scale_inv", memory=300_000)
    assert np.array_equal(small, expected)


def test_a_second_scale_multiplies_the_first() -> None:
    q, s = quants(8, 64, dtype=E4M3), scales(8, 4)
    second = np.array(0.25, np.float32)
    expected = q.astype(np.float32) * np.repeat(s * second, 16, 1)
    assert np.array_equal(dequantized({"w": q, "w_scale": s, "w_scale_2": second}), expected)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, E4M3])
def test_scales_of_narrow_types_are_exact(dtype: Any) -> None:
    q, s = quants(8, 64), scales(8, 1).astype(dtype)
    assert np.array_equal(dequantized({"w": q, "w_scale": s}), q.astype(np.float32) * s.astype(np.float32))


@pytest.mark.parametrize("dims", [(6,), (2, 6), (4, 3, 6), (2, 4, 3, 6)])
def test_groups_along_any_axis_of_any_rank(dims: tuple[int, ...]) -> None:
    q = quants(*dims)
    s = scales(*(n // 2 if n % 2 == 0 else n for n in dims))
    factors = s
    for axis, n in enumerate(dims):
        factors = np.repeat(factors, n // s.shape[axis], axis)
    assert np.array_equal(dequantized({"w": q, "w_scale": s}), q.astype(np.float32) * factors)


def test_results_have_the_layout_and_type_that_is_named() -> None:
    q, s = quants(40, 64), scales(40, 1)
    found = dequantized({"w": q, "w_scale": s}, to=["w=AB16a16b"], data_type="bf16")
    assert open_memories("d.safetensors")["w"].desc.tag == "AB16a16b"
    assert np.array_equal(found, (q.astype(np.float32) * s).astype(ml_dtypes.bfloat16))


def test_tensors_without_scales_are_copied() -> None:
    tensors = {"w": quants(4, 8), "mask": quants(4, 8), "w_scale": scales(4, 1)}
    save_file(tensors, "q.safetensors")
    convert(plan("q.safetensors", "d.safetensors", dequantize=True), overwrite=True)
    back = load_file("d.safetensors")
    assert back.keys() == {"w", "mask"}
    assert np.array_equal(back["mask"], tensors["mask"])


def test_scales_of_other_dims_are_refused() -> None:
    with raises_exactly(
        InvalidArguments,
        "tensor w_scale of dims (5, 1) does not scale w of dims (4, 8): name the scales (--scales)",
    ):
        dequantized({"w": quants(4, 8), "w_scale": scales(5, 1)})
    with raises_exactly(
        InvalidArguments,
        "tensor w has 9 elements along an axis and 7 scales: no power of two is the size of such groups",
    ):
        dequantized({"w": quants(4, 9), "w_scale": scales(4, 7)})
    with raises_exactly(InvalidArguments, "tensor w_scale cannot scale w: it is no tensor of floats"):
        dequantized({"w": quants(4, 8), "w_scale": quants(4, 1)})


def test_a_file_without_quants_is_refused() -> None:
    with raises_exactly(
        InvalidArguments,
        "q.safetensors has no blocks, and no quants whose scales are named {name}_zoom: name the scales (--scales)",
    ):
        dequantized({"w": quants(4, 8), "w_scale": scales(1)}, scales="{name}_zoom")


def test_integers_are_no_result() -> None:
    with raises_exactly(InvalidArguments, "tensor w cannot become s32: choose a float type (--dtype)"):
        dequantized({"w": quants(4, 8), "w_scale": scales(1)}, data_type="s32")


# The text


def write_with_text(text: str) -> None:
    save_file({"w": quants(4, 68), "w_scale": scales(4, 1)}, "q.safetensors", {QUANTIZATION_KEY: text})


def test_names_in_the_text_are_those_of_the_scales() -> None:
    save_file({"w": np.ones((4, 8), np.float32), "v": np.ones((4, 8), np.float16)}, "w.safetensors", {"a": "b"})
    options = {"quantize": "absmax:0", "data_type": "s8", "scales": "scales.{name}"}
    convert(plan("w.safetensors", "q.safetensors", ["plain"], **options), overwrite=True)  # type: ignore[arg-type]
    assert load_file("q.safetensors").keys() == {"w", "v", "scales.w", "scales.v"}
    convert(plan("q.safetensors", "d.safetensors", dequantize=True), overwrite=True)
    back = load_file("d.safetensors")
    assert {name: array.dtype for name, array in back.items()} == {"w": np.float32, "v": np.float16}
    assert all((array == 1).all() for array in back.values())
    assert plan("d.safetensors", "e.safetensors").source.metadata == {"a": "b"}


def test_the_text_stays_when_quants_are_reordered() -> None:
    save_file({"w": np.eye(32, dtype=np.float32)}, "w.safetensors")
    convert(
        plan("w.safetensors", "q.safetensors", ["plain"], quantize="absmax", data_type="s8", scales="s{name}"),
        overwrite=True,
    )
    convert(plan("q.safetensors", "p.safetensors", ["w=AB16a16b"]), overwrite=True)
    convert(plan("p.safetensors", "d.safetensors", dequantize=True), overwrite=True)
    assert np.array_equal(load_file("d.safetensors")["w"], np.eye(32, dtype=np.float32))


def test_missing_scales_are_named() -> None:
    save_file({"w": np.eye(8, dtype=np.float32)}, "w.safetensors")
    convert(plan("w.safetensors", "q.safetensors", ["plain"], quantize="absmax", data_type="s8"), overwrite=True)
    text = plan("q.safetensors", "p.safetensors").source.metadata
    save_file({"w": quants(8, 8)}, "q.safetensors", dict(text))
    with raises_exactly(
        InvalidArguments,
        "the scales w_scale of tensor w are not in q.safetensors: convert from a file that has them",
    ):
        plan("q.safetensors", "d.safetensors", dequantize=True)


GOOD_BLOCKS = {"data_type": "f32", "blocks": "ggml:Q8_0", "dims": [8, 32]}
GOOD_SCALES = {"data_type": "f32", "groups": [1, 68], "scales": ["w_scale"]}


def text_of(item: object) -> str:
    return json.dumps({"version": 1, "tensors": {"w": item}})


@pytest.mark.parametrize("item", [GOOD_BLOCKS, GOOD_SCALES])
def test_a_text_that_fits_is_read(item: object) -> None:
    write_with_text(text_of(item))
    convert(plan("q.safetensors", "d.safetensors", dequantize=True), overwrite=True)
    assert "w" in load_file("d.safetensors")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it has another form"),
        ("[]", "it has another form"),
        ('{"version": 2, "tensors": {}}', "it has version 2, this Inlay reads 1"),
        ('{"version": 1, "tensors": []}', "it has another form"),
        (text_of([]), "it has another form"),
        (text_of({}), "it has another form"),
        (text_of({**GOOD_BLOCKS, "data_type": "f31"}), "it has another form"),
        (text_of({**GOOD_BLOCKS, "blocks": "nvidia:NVFP4_128x4"}), "tensor w is in unknown blocks"),
        (text_of({**GOOD_BLOCKS, "blocks": 5}), "tensor w is in unknown blocks"),
        (text_of({**GOOD_BLOCKS, "dims": [8, 0]}), "tensor w has [8, 0] in place of whole numbers above 0"),
        (text_of({**GOOD_BLOCKS, "more": 0}), "tensor w has other entries"),
        (text_of({**GOOD_SCALES, "scales": []}), "tensor w has other entries"),
        (text_of({**GOOD_SCALES, "scales": [1]}), "tensor w has scales without names"),
        (text_of({**GOOD_SCALES, "groups": [True, 1]}), "tensor w has [True, 1] in place of whole numbers above 0"),
    ],
)
def test_a_damaged_text_is_refused(text: str, reason: str) -> None:
    write_with_text(text)
    with raises_exactly(
        FileError,
        f"cannot read q.safetensors: its text on quantized tensors is damaged, {reason}; convert the original again",
    ):
        plan("q.safetensors", "d.safetensors")


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (
            {**GOOD_BLOCKS, "dims": [4, 32]},
            "cannot read q.safetensors: tensor w has 272 bytes, and ggml:Q8_0 4x32 takes 136; convert the original "
            "again",
        ),
        (
            {**GOOD_SCALES, "groups": [1]},
            "cannot read q.safetensors: the scales of tensor w are for other dims; convert the original again",
        ),
    ],
)
def test_a_text_for_other_dims_is_refused(item: object, text: str) -> None:
    write_with_text(text_of(item))
    with raises_exactly(FileError, text):
        plan("q.safetensors", "d.safetensors", dequantize=True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.text(max_size=4) | st.sampled_from(["f32", "ggml:Q8_0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*GOOD_BLOCKS, *GOOD_SCALES, "version", "tensors"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries({"version": st.just(1), "tensors": st.dictionaries(st.just("w"), JSON)})
    | st.fixed_dictionaries({"data_type": JSON, "blocks": JSON, "dims": JSON}).map(lambda x: json.loads(text_of(x)))
    | st.fixed_dictionaries({"data_type": JSON, "groups": JSON, "scales": JSON}).map(lambda x: json.loads(text_of(x)))
    | JSON
)
def test_any_text_is_read_or_refused_by_an_error_of_ours(value: object) -> None:
    try:
        read_quantization("q.safetensors", {QUANTIZATION_KEY: json.dumps(value)})
    except InlayError:
        return
