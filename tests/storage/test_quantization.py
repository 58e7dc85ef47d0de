"""Quantization: scales and quants equal NumPy's, errors are within half a step, and boxes do not matter."""

import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file, save_file

from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory.compound import pack_compound
from inlay.storage import convert, open_memories, plan
from inlay.storage.loss import ConversionLoss
from inlay.storage.quantization import parse_scheme
from tests.support.refusals import raises_exactly

Floats = npt.NDArray[np.float32]

TYPES: dict[str, tuple[Any, float]] = {
    "s8": (np.int8, 127),
    "s4": (ml_dtypes.int4, 7),
    "f8_e4m3": (ml_dtypes.float8_e4m3fn, 448),
    "f8_e5m2": (ml_dtypes.float8_e5m2, 57344),
}
"""NumPy's type of the quants, and the greatest of them."""

SCHEMES = ["absmax", "absmax:0", "absmax:1", "absmax:group=4"]


def weights(*dims: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(dims, np.float32)


def quantize(w: Any, scheme: str, data_type: str | None, *to: str, **options: Any) -> tuple[ConversionLoss, ...]:
    """Write q.safetensors, the quantized w."""
    save_file({"w": w}, "w.safetensors")
    made = plan("w.safetensors", "q.safetensors", to or ["*=plain"], quantize=scheme, data_type=data_type, **options)
    return convert(made, overwrite=True)


def read(name: str) -> npt.NDArray[Any]:
    return np.asarray(open_memories("q.safetensors")[name].unpack())


def dequantized(**options: Any) -> npt.NDArray[Any]:
    convert(plan("q.safetensors", "d.safetensors", dequantize=True, **options), overwrite=True)
    return np.asarray(open_memories("d.safetensors")["w"].unpack())


def magnitudes(w: Floats, scheme: str) -> Floats:
    """The greatest magnitude of each group, broadcast over its elements."""
    if scheme == "absmax":
        return np.full_like(w, np.abs(w).max())
    if "group" in scheme:
        size = int(scheme.rpartition("=")[2])
        groups = w.reshape(*w.shape[:-1], -1, size)
        return np.broadcast_to(np.abs(groups).max(-1, keepdims=True), groups.shape).reshape(w.shape)
    axis = int(scheme[-1])
    others = tuple(i for i in range(w.ndim) if i != axis)
    return np.broadcast_to(np.abs(w).max(others, keepdims=True), w.shape)


def spread(scales: Floats, dims: tuple[int, ...]) -> Floats:
    """Scales as they are stored, broadcast over the elements."""
    if scales.shape == (1,):
        return np.full(dims, scales[0], np.float32)
    for axis, n in enumerate(dims):
        scales = np.repeat(scales, n // scales.shape[axis], axis)
    return scales


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_scales_and_quants_are_numpys(scheme: str, data_type: str) -> None:
    w = weights(24, 20)
    w[3], w[:, 7], w[5, 8:12] = 0, 0, 0
    quantize(w, scheme, data_type)
    dtype, greatest = TYPES[data_type]
    expected = magnitudes(w, scheme) / np.float32(greatest)
    expected[expected == 0] = 1
    assert np.array_equal(spread(read("w_scale"), w.shape), expected)
    quotients = w / expected
    rounded = np.rint(quotients) if data_type[0] == "s" else quotients
    assert np.array_equal(read("w").astype(np.float32), rounded.astype(dtype).astype(np.float32))


@given(
    arrays.arrays(np.float32, (3, 8), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    st.sampled_from(SCHEMES),
    st.sampled_from(["s8", "s4"]),
)
def test_integers_are_within_half_a_step(w: Floats, scheme: str, data_type: str) -> None:
    quantize(w, scheme, data_type)
    scales, quants = spread(read("w_scale"), w.shape), read("w")
    assert (scales > 0).all()
    error = np.abs(quants.astype(np.float64) * scales - w)
    assert (error <= scales.astype(np.float64) * (0.5 + 1e-4)).all()
    with np.errstate(over="ignore"):
        assert np.array_equal(dequantized(), quants.astype(np.float32) * scales)


@given(
    arrays.arrays(np.float32, (2, 32), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    st.sampled_from(["f8_e4m3", "f8_e5m2", "mxfp4", "nvfp4"]),
)
def test_no_float_becomes_infinite_or_nan_and_large_ones_are_near(w: Floats, data_type: str) -> None:
    quantize(w, "absmax", data_type)
    values = dequantized()
    greatest = np.abs(w).max()
    assert not np.isnan(values).any()
    if 1e-30 < greatest < 1e38:
        error = np.abs(values.astype(np.float64) - w).max()
        assert error <= greatest * (0.26 if "fp4" in data_type else 0.13)


def test_a_scale_that_rounding_puts_above_the_greatest_number_is_that_number() -> None:
    w = np.zeros((2, 32), np.float32)
    w[0, 0] = 1.3258693e16  # divided by 448 * 6 and then by 6, over 448 in f32
    quantize(w, "absmax", "nvfp4")
    assert read("w_scale").astype(np.float32).max() == 448
    assert dequantized()[0, 0] == pytest.approx(w[0, 0], rel=1e-6)


def test_mxfp4_has_the_scales_of_the_specification() -> None:
    w = weights(8, 64) * np.exp2(np.arange(8, dtype=np.float32) * 7 - 20)[:, None]
    w[3, :32] = 0
    quantize(w, "absmax", "mxfp4")
    groups = w.reshape(8, 2, 32)
    with np.errstate(divide="ignore"):
        expected = np.exp2(np.floor(np.log2(np.abs(groups).max(-1))) - 2)
    expected[3, 0] = 1
    assert np.array_equal(read("w_scale").astype(np.float32), expected)
    quants = np.clip(groups / expected[..., None], -6, 6).astype(ml_dtypes.float4_e2m1fn)
    assert np.array_equal(read("w").astype(np.float32).reshape(groups.shape), quants.astype(np.float32))


def test_nvfp4_has_two_levels_of_scales() -> None:
    w = weights(8, 64)
    quantize(w, "absmax:group=16", "nvfp4")
    second = np.abs(w).max() / np.float32(448 * 6)
    assert np.array_equal(read("w_scale_2"), [second])
    blocks = np.abs(w.reshape(8, 4, 16)).max(-1) / second / np.float32(6)
    assert np.array_equal(read("w_scale"), blocks.astype(ml_dtypes.float8_e4m3fn))
    factors = (read("w_scale").astype(np.float32) * second)[..., None]
    quants = (w.reshape(8, 4, 16) / factors).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert np.array_equal(read("w").astype(np.float32).reshape(quants.shape), quants)
    assert np.array_equal(dequantized(), (quants * factors).reshape(w.shape))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("data_type", ["s8", "s4"])
def test_layouts_of_source_quants_and_scales_do_not_change_the_numbers(scheme: str, data_type: str) -> None:
    w = weights(40, 72)
    save_file({"w": w}, "w.safetensors")
    quantize(w, scheme, data_type)
    expected, scales, again = read("w"), read("w_scale"), dequantized()
    convert(plan("w.safetensors", "p.safetensors", ["AB16b4a"]), overwrite=True)
    scales_to = "ba" if scales.ndim > 1 else None
    convert(
        plan(
            "p.safetensors", "q.safetensors", ["*=BA16a16b"], quantize=scheme, data_type=data_type, scales_to=scales_to
        ),
        overwrite=True,
    )
    assert open_memories("q.safetensors")["w"].desc.tag == "BA16a16b"
    assert np.array_equal(read("w"), expected)
    assert np.array_equal(read("w_scale"), scales)
    assert np.array_equal(dequantized(), again)
    assert np.array_equal(dequantized(to=["AB16b4a"]), again)


def test_scales_in_blocks_are_written_by_whole_blocks() -> None:
    w = weights(70, 512)
    quantize(w, "absmax:group=32", "s8")
    expected = read("w_scale")
    quantize(w, "absmax:group=32", "s8", scales_to="AB32a4b", memory=100_000)
    assert np.array_equal(read("w_scale"), expected)
    assert np.array_equal(dequantized(memory=20_000), dequantized())


@pytest.mark.parametrize("data_type", ["s8", "s4", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("scheme", ["absmax", "absmax:0", "absmax:1", "absmax:group=32"])
def test_small_boxes_give_the_same_file(scheme: str, data_type: str) -> None:
    if "fp4" in data_type:
        scheme = "absmax"
    w = weights(96, 640)
    quantize(w, scheme, data_type)
    whole = Path("q.safetensors").read_bytes()
    quantize(w, scheme, data_type, memory=24_000)
    made = plan("w.safetensors", "q.safetensors", ["*=plain"], quantize=scheme, data_type=data_type, memory=24_000)
    assert made.count > 4
    assert Path("q.safetensors").read_bytes() == whole


def test_a_coordinate_larger_than_the_memory_is_quantized_in_two_passes() -> None:
    w = weights(4, 64, 500)
    made = {}
    for memory in ("1 GB", 20_000):
        quantize(w, "absmax:0", "s8", memory=memory)
        made[memory] = Path("q.safetensors").read_bytes()
    assert made["1 GB"] == made[20_000]
    again = plan("w.safetensors", "q.safetensors", ["*=plain"], quantize="absmax:0", data_type="s8", memory=20_000)
    assert again.tensors[0].operation.needs_scan
    assert np.array_equal(read("w_scale"), np.abs(w).max((1, 2), keepdims=True) / np.float32(127))


def test_weights_of_convolutions_have_a_scale_for_each_filter() -> None:
    w = weights(12, 5, 3, 3)
    quantize(w, "absmax:0", "s8", "w=OIhw16i16o")
    assert read("w_scale").shape == (12, 1, 1, 1)
    assert np.array_equal(read("w"), np.rint(w / read("w_scale")).astype(np.int8))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_sources_of_other_types_are_quantized_as_f32(dtype: Any) -> None:
    w = weights(16, 32).astype(dtype)
    save_file({"w": w}, "w.safetensors")
    quantize(w, "absmax:0", "s8")
    exact = w.astype(np.float32)
    scales = np.abs(exact).max(1, keepdims=True) / np.float32(127)
    assert np.array_equal(read("w_scale"), scales)
    assert np.array_equal(read("w"), np.rint(exact / scales).astype(np.int8))
    assert dequantized().dtype == w.dtype
    working = np.float64 if dtype == np.float64 else np.float32
    assert np.array_equal(dequantized(), (read("w").astype(working) * scales).astype(dtype))
    assert dequantized(data_type="f32").dtype == np.float32


def test_scales_may_have_another_type() -> None:
    w = weights(16, 32)
    quantize(w, "absmax:0", "s8", scales_type="bf16")
    scales = (np.abs(w).max(1, keepdims=True) / np.float32(127)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(read("w_scale"), scales)
    expected = np.clip(np.rint(w / scales.astype(np.float32)), -128, 127)
    assert np.array_equal(read("w"), expected.astype(np.int8))


def test_subnormal_magnitudes_have_scales_above_zero() -> None:
    w = np.array([[1e-45, -2e-45, 0, 1e-40]], np.float32)
    quantize(w, "absmax", "s8")
    scale = np.float64(read("w_scale")[0])
    assert scale > 0
    assert (np.abs(read("w") * scale - w) <= scale / 2).all()
    quantize(w, "absmax", "s8", scales_type="f16")
    assert read("w_scale").astype(np.float64).tolist() == [2.0**-24]
    assert not read("w").any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scheme", ["absmax", "absmax:1"])
def test_nan_and_infinities_are_refused(scheme: str, bad: float) -> None:
    w = weights(4, 8)
    w[2, 5] = bad
    where = "" if scheme == "absmax" else " in [0:4, 0:8]"
    kind = "NaN" if np.isnan(bad) else "infinities"
    with raises_exactly(
        InvalidArguments,
        f"tensor w holds {kind}{where}: quantize numbers that are finite in f32, or name other tensors (--to)",
    ):
        quantize(w, scheme, "s8")
    with pytest.raises(InvalidArguments, match="tensor w holds NaN or infinities in"):
        quantize(np.tile(w, 4), "absmax", None, "ggml:Q8_0")
    assert sorted(path.name for path in Path().iterdir()) == ["w.safetensors"]


def test_numbers_beyond_f32_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="tensor w holds infinities"):
        quantize(np.full((2, 2), 1e39), "absmax", "s8")


def test_a_scale_beyond_its_type_is_refused() -> None:
    with raises_exactly(
        InvalidArguments,
        "a scale is 78740160.0, and the greatest number of f16 is 65504: store scales in f32 (--scales-dtype)",
    ):
        quantize(np.full((2, 2), 1e10, np.float32), "absmax", "s8", scales_type="f16")


def test_memory_too_small_for_a_box_is_refused() -> None:
    with raises_exactly(
        InvalidArguments,
        "a box of tensor w with its numbers in f32 takes more than 1000 bytes: allow more (--memory)",
    ):
        quantize(weights(8, 512), "absmax:group=512", "s8", memory=1000)


def test_errors_are_reported() -> None:
    w = weights(30, 1000)
    (loss,) = quantize(w, "absmax:0", "s4", memory=100_000)
    difference = dequantized().astype(np.float64) - w
    relative = np.sqrt((difference**2).sum() / (w.astype(np.float64) ** 2).sum())
    assert loss.relative_error == pytest.approx(relative, rel=1e-9)
    assert loss.greatest_error == pytest.approx(np.abs(difference).max(), rel=1e-9)
    assert str(loss) == (
        f"w: quantized with a relative RMS error of {100 * relative:.3g} %, the greatest error is "
        f"{np.abs(difference).max():.3g}"
    )


@pytest.mark.parametrize("dims", [(0, 8), (8, 0), (1, 1)])
@pytest.mark.parametrize("scheme", ["absmax", "absmax:0", "absmax:1"])
def test_tensors_without_elements_stay_so(dims: tuple[int, ...], scheme: str) -> None:
    quantize(np.ones(dims, np.float32), scheme, "s8")
    assert read("w").shape == dims
    assert dequantized().shape == dims


def test_rules_without_a_pattern_quantize_matrices_of_floats() -> None:
    tensors: dict[str, npt.NDArray[Any]] = {
        "fc.weight": weights(4, 8),
        "fc.bias": weights(4),
        "ids": np.arange(6).reshape(2, 3),
        "step": np.array(3, np.float32),
    }
    save_file(tensors, "w.safetensors", {"format": "pt"})
    convert(plan("w.safetensors", "q.safetensors", ["plain"], quantize="absmax:0", data_type="s8"), overwrite=True)
    back = load_file("q.safetensors")
    assert {name: str(each.dtype) for name, each in back.items()} == {
        "fc.weight": "int8",
        "fc.weight_scale": "float32",
        "fc.bias": "float32",
        "ids": "int64",
        "step": "float32",
    }
    convert(plan("q.safetensors", "d.safetensors", dequantize=True), overwrite=True)
    assert load_file("d.safetensors").keys() == tensors.keys()


# Blocks


@pytest.mark.parametrize("format", ["ggml:Q4_0", "ggml:Q4_1", "ggml:Q5_0", "ggml:Q5_1", "ggml:Q8_0", "ggml:MXFP4"])
def test_blocks_are_those_of_pack_compound(format: str) -> None:
    w = weights(20, 96)
    quantize(w, "absmax", None, format, memory=30_000)
    packed = pack_compound(w, format)
    rows = load_file("q.safetensors")["w"]
    assert rows.shape == (20, packed.desc.size // 20)
    assert rows.tobytes() == packed.buffer[: packed.desc.size].tobytes()
    assert np.array_equal(dequantized(), packed.unpack())
    assert np.array_equal(dequantized(to=["BA16a32b"], memory=40_000), packed.unpack())


def test_blocks_in_a_file_are_copied_and_not_reordered() -> None:
    w = weights(4, 64)
    quantize(w, "absmax", None, "ggml:Q8_0")
    convert(plan("q.safetensors", "c.safetensors"), overwrite=True)
    assert Path("c.safetensors").read_bytes() == Path("q.safetensors").read_bytes()
    with raises_exactly(
        InvalidArguments,
        "ba does not fit tensor w: it is in blocks of ggml:Q8_0; convert it to floats first (--dequantize)",
    ):
        plan("q.safetensors", "c.safetensors", ["ba"])


# Values


def test_plans_can_be_pickled() -> None:
    save_file({"w": weights(8, 64)}, "w.safetensors")
    for options in ({"data_type": "nvfp4"}, {"to": ["ggml:Q4_0"]}):
        made = plan("w.safetensors", "q.safetensors", **{"to": ["plain"], **options}, quantize="absmax")  # type: ignore[arg-type]
        again = pickle.loads(pickle.dumps(made))
        convert(again, overwrite=True)
        first = Path("q.safetensors").read_bytes()
        convert(made, overwrite=True)
        assert Path("q.safetensors").read_bytes() == first
        back = plan("q.safetensors", "d.safetensors", dequantize=True)
        convert(pickle.loads(pickle.dumps(back)), overwrite=True)


def test_plans_name_the_scales() -> None:
    save_file({"w": weights(8, 64)}, "w.safetensors")
    made = plan("w.safetensors", "q.safetensors", ["plain"], quantize="absmax:0", data_type="s8")
    assert str(made) == (
        "w: 8x64, f32::blocked:ab::f0 -> s8::blocked:ab::f0, w_scale f32::blocked:ab::f0, 2048 -> 544 bytes\n"
        "reads 2.0 kB and writes 544 bytes in 1 task of 2.6 kB"
    )
    assert made.nbytes == 544


@pytest.mark.parametrize("text", ["absmax", "absmax:0", "absmax:3", "absmax:group=128"])
def test_schemes_are_written_as_they_are_read(text: str) -> None:
    assert str(parse_scheme(text)) == text


REFUSALS: list[tuple[dict[str, Any], str]] = [
    (
        {"quantize": "minmax", "data_type": "s8"},
        "'minmax' is no way to quantize: write absmax for one scale of a tensor, absmax:0 for one of each coordinate "
        "of axis 0, or absmax:group=128 for one of each group along the last axis",
    ),
    (
        {"quantize": "absmax:2", "data_type": "s8"},
        "tensor w has dims (4, 48), and no axis 2 for absmax:2: name an axis below 2",
    ),
    (
        {"quantize": "absmax:group=32", "data_type": "s8"},
        "axis 1 of tensor w has 48 elements, no multiple of the group of 32: choose a group that divides it",
    ),
    (
        {"quantize": "absmax"},
        "tensor w is to be quantized to no type: choose one (--dtype s8), or blocks such as --to ggml:Q8_0",
    ),
    (
        {"quantize": "absmax", "data_type": "u8"},
        "floats cannot be quantized to 'u8': choose one of s8, s4, f8_e4m3, f8_e5m2, mxfp4, nvfp4 (--dtype), or blocks "
        "such as --to ggml:Q8_0",
    ),
    (
        {"quantize": "absmax:0", "data_type": "mxfp4"},
        "absmax:0 does not fit mxfp4, which has absmax:group=32: write absmax alone",
    ),
    (
        {"quantize": "absmax", "data_type": "mxfp4", "scales_type": "f32"},
        "the scales of mxfp4 are e8m0: leave out f32",
    ),
    (
        {"quantize": "absmax", "data_type": "s8", "scales_type": "s8"},
        "scales cannot be 's8': choose one of f32, bf16, f16",
    ),
    (
        {"quantize": "absmax", "data_type": "s8", "scales": "scale"},
        "'scale' does not name scales: write {name} for the name of the tensor, as in {name}_scale",
    ),
    (
        {"quantize": "absmax", "data_type": "s8", "scales_to": "nchw"},
        "nchw does not fit the scales of tensor w: their dims are (1,)",
    ),
    (
        {"quantize": "absmax", "data_type": "s8", "scales_to": "*=ab"},
        "'*=ab' is no format of scales: write a tag, as in --scales-to ba",
    ),
    (
        {"quantize": "absmax", "data_type": "s8", "dequantize": True},
        "quantize and dequantize exclude each other: convert twice",
    ),
    (
        {"to": ["ggml:Q8_0"]},
        "ggml:Q8_0 quantizes tensor w, which rounds its numbers: ask for it (--quantize absmax, in Python "
        "quantize='absmax')",
    ),
    (
        {"to": ["ggml:Q8_0"], "quantize": "absmax"},
        "ggml:Q8_0 does not fit tensor w: dim 1 of (4, 48) is 48, no multiple of the 32 elements of ggml:Q8_0: pad the "
        "axis to 64, or name the tensors it is for, as in 'fc*=ggml:Q8_0'",
    ),
    (
        {"to": ["ggml:Q8_0"], "quantize": "absmax", "data_type": "s8"},
        "ggml:Q8_0 defines the groups and types of its blocks: quantize with absmax alone, without --dtype",
    ),
    (
        {"to": ["n=plain"], "quantize": "absmax", "data_type": "s8"},
        "n=plain does not fit tensor n: it is s32, and floats are quantized",
    ),
    (
        {"to": ["x.odd=plain"], "quantize": "absmax", "data_type": "s4"},
        "tensor x.odd cannot be s4 in ab: stride 3 of axis 0 (a) is odd: s4 has two elements in a byte, so strides "
        "other than 1 are even; 4 works",
    ),
    (
        {"quantize": "absmax", "data_type": "s8", "scales": "{name}.n"},
        "the scales of tensor w are named w.n, as another tensor of w.safetensors is: choose other names (--scales)",
    ),
]


@pytest.mark.parametrize(("options", "text"), REFUSALS)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], text: str) -> None:
    save_file(
        {"w": weights(4, 48), "n": np.ones((2, 2), np.int32), "x.odd": weights(2, 3), "w.n": weights(2)},
        "w.safetensors",
    )
    with raises_exactly(InvalidArguments, text):
        plan("w.safetensors", "q.safetensors", **{"to": ["w=plain"], **options})


def test_formats_that_floats_are_not_quantized_to_are_refused() -> None:
    save_file({"w": weights(4, 256)}, "w.safetensors")
    with raises_exactly(
        Unimplemented,
        "ggml:Q4_K has no rule that quantizes floats: choose one of ggml:Q4_0, ggml:Q4_1, ggml:Q5_0, ggml:Q5_1, "
        "ggml:Q8_0, ggml:MXFP4",
    ):
        plan("w.safetensors", "q.safetensors", ["ggml:Q4_K"], quantize="absmax")
