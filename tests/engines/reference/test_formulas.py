"""The formulas of the reference engine, forward, against loops over coordinates (`oracles.formulas`)."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from inlay.engines.reference import bandwidth_limited, normalization, products, spatial
from inlay.primitives.algorithms import ALL_ELTWISE, REDUCTION
from tests.oracles import formulas


def random(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def close(result: Any, wanted: Any) -> None:
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-12)


WINDOWS = [
    # n, groups, channels in and out of each, space, kernel, strides, dilations, padding on the left and on the right
    (2, 1, 3, 2, (5,), (3,), (1,), (0,), (1,), (1,)),
    (1, 3, 1, 2, (7,), (2,), (2,), (2,), (0,), (3,)),
    (2, 2, 2, 3, (5, 4), (3, 2), (2, 1), (0, 1), (1, 0), (0, 2)),
    (1, 1, 17, 1, (3, 3), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0)),
    (1, 1, 2, 2, (6, 6), (2, 3), (2, 2), (0, 0), (0, 1), (-1, -2)),
    (1, 4, 1, 1, (4, 4), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1)),
    (1, 1, 1, 2, (3, 2, 3), (2, 1, 2), (1, 1, 2), (0, 0, 0), (1, 0, 1), (0, 0, 1)),
    (0, 1, 2, 3, (4,), (2,), (1,), (0,), (0,), (0,)),
    (2, 1, 0, 3, (4,), (2,), (1,), (0,), (1,), (0,)),
    (2, 1, 3, 0, (4,), (2,), (1,), (0,), (1,), (0,)),
    (1, 1, 2, 2, (0, 3), (1, 2), (1, 1), (0, 0), (0, 0), (0, 0)),
]


def windows_of(size: Any, kernel: Any, strides: Any, dilations: Any, padding_l: Any, padding_r: Any) -> Any:
    """Return the number of windows along each axis, by oneDNN's rule."""
    parts = zip(size, kernel, strides, dilations, padding_l, padding_r, strict=True)
    return tuple((n + pl + pr - ((k - 1) * (d + 1) + 1)) // s + 1 for n, k, s, d, pl, pr in parts)


@pytest.mark.parametrize("case", WINDOWS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution_is_the_sum_over_channels_and_taps(case: Any, has_bias: bool) -> None:
    n, g, ic, oc, size, kernel, strides, dilations, pl, pr = case
    out = windows_of(size, kernel, strides, dilations, pl, pr)
    weights = random(1, *([g] if g > 1 else []), oc, ic, *kernel)
    src, bias = random(2, n, g * ic, *size), random(3, g * oc) if has_bias else None
    given = {"strides": strides, "dilations": dilations, "padding_l": pl, "shapes": {"dst": (n, g * oc, *out)}}
    result = spatial.convolution(src=src, weights=weights, bias=bias, **given)
    close(result["dst"], formulas.convolution(src, weights, bias, out, strides, dilations, pl))


@pytest.mark.parametrize("case", WINDOWS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_deconvolution_adds_each_element_to_its_taps(case: Any, has_bias: bool) -> None:
    n, g, ic, oc, out, kernel, strides, dilations, pl, pr = case
    size = windows_of(out, kernel, strides, dilations, pl, pr)
    weights = random(1, *([g] if g > 1 else []), oc, ic, *kernel)
    src, bias = random(2, n, g * ic, *size), random(3, g * oc) if has_bias else None
    given = {"strides": strides, "dilations": dilations, "padding_l": pl, "shapes": {"dst": (n, g * oc, *out)}}
    result = spatial.deconvolution(src=src, weights=weights, bias=bias, **given)
    close(result["dst"], formulas.deconvolution(src, weights, bias, out, strides, dilations, pl))


POOLS = [
    ((2, 3, 5), (2,), (2,), (0,), (1,), (0,)),
    ((1, 2, 5, 6), (3, 2), (2, 1), (0, 1), (1, 1), (1, 0)),
    ((1, 17, 4, 4), (4, 4), (1, 1), (0, 0), (0, 0), (0, 0)),
    ((1, 1, 3, 3), (1, 1), (2, 2), (0, 0), (0, 0), (0, 0)),
    ((1, 2, 3, 4, 3), (2, 2, 2), (1, 2, 1), (0, 0, 0), (1, 0, 0), (0, 0, 1)),
    ((0, 2, 4), (2,), (1,), (0,), (0,), (0,)),
    ((2, 0, 4), (2,), (1,), (0,), (0,), (0,)),
]


@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.parametrize("case", POOLS)
def test_pooling_is_the_greatest_or_the_average_of_each_window(case: Any, algorithm: str) -> None:
    shape, kernel, strides, dilations, pl, pr = case
    out = windows_of(shape[2:], kernel, strides, dilations, pl, pr)
    # Few distinct values, so that windows have several greatest elements.
    src = np.random.default_rng(5).integers(-2, 2, shape).astype(float)
    window = {"strides": strides, "kernel": kernel, "dilations": dilations, "padding_l": pl}
    shapes = {"dst": (*shape[:2], *out)}
    result = spatial.pooling(src=src, algorithm=algorithm, **window, shapes=shapes, lowest=-3.0)
    wanted, index = formulas.pooling(src, algorithm, kernel, out, strides, dilations, pl)
    close(result["dst"], wanted)
    if algorithm == "max":
        close(result["workspace"], index)


def test_a_pooled_window_outside_the_source_holds_the_lowest_number_and_passes_no_gradient() -> None:
    window: Any = {"strides": (1,), "kernel": (1,), "dilations": (0,), "padding_l": (1,)}
    shapes = {"dst": (1, 1, 3), "diff_src": (1, 1, 1)}
    forward = spatial.pooling(src=np.array([[[7.0]]]), algorithm="max", **window, shapes=shapes, lowest=-128.0)
    assert forward["dst"].tolist() == [[[-128.0, 7.0, -128.0]]]
    diff = np.array([[[1.0, 10.0, 100.0]]])
    backward = spatial.pooling_backward(
        diff_dst=diff, workspace=forward["workspace"], algorithm="max", **window, shapes=shapes
    )
    assert backward["diff_src"].tolist() == [[[10.0]]]


def test_a_window_of_minus_infinity_has_its_first_tap_inside_as_greatest() -> None:
    window: Any = {"strides": (1,), "kernel": (2,), "dilations": (0,), "padding_l": (1,)}
    src = np.full((1, 1, 2), -np.inf)
    result = spatial.pooling(src=src, algorithm="max", **window, shapes={"dst": (1, 1, 3)}, lowest=-1.0)
    assert result["workspace"].tolist() == [[[1, 0, 0]]]


@pytest.mark.parametrize("algorithm", ALL_ELTWISE)
def test_eltwise_is_the_function_of_each_element(algorithm: str) -> None:
    name = algorithm.removesuffix("_use_dst_for_bwd")
    x = np.linspace(-4, 4, 33)
    x = np.abs(x) + 0.25 if name in ("sqrt", "log", "pow") else x
    for alpha, beta in ((0.5, 1.5), (0.25, 0.5)):
        result = bandwidth_limited.eltwise(src=x.reshape(3, 11), algorithm=algorithm, alpha=alpha, beta=beta)
        wanted = [formulas.ELTWISE[name](v, alpha, beta) for v in x.tolist()]
        close(result["dst"], np.array(wanted).reshape(3, 11))


def test_round_takes_halves_to_even() -> None:
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    assert bandwidth_limited.eltwise(src=halves, algorithm="round", alpha=0, beta=0)["dst"].tolist() == [
        -2,
        -2,
        0,
        0,
        2,
        2,
    ]


@pytest.mark.parametrize(
    ("algorithm", "low", "high"),
    [("logistic", 0.0, 1.0), ("soft_relu", 0.0, 1e3), ("mish", 0.0, 1e3), ("swish", 0.0, 1e3), ("elu", -1.0, 1e3),
     ("gelu_erf", 0.0, 1e3), ("gelu_tanh", 0.0, 1e3), ("tanh", -1.0, 1.0), ("relu", 0.0, 1e3)],
)  # fmt: skip
def test_eltwise_of_large_numbers_is_finite(algorithm: str, low: float, high: float) -> None:
    x = np.array([-1e3, 1e3])
    alpha = 0.0 if algorithm == "relu" else 1.0
    result = bandwidth_limited.eltwise(src=x, algorithm=algorithm, alpha=alpha, beta=0)["dst"]
    assert np.abs(result - [low, high]).max() <= 1e-12
    gradient = bandwidth_limited.eltwise_backward(src=x, diff_dst=np.ones(2), algorithm=algorithm, alpha=alpha, beta=0)[
        "diff_src"
    ]
    assert np.isfinite(gradient).all()


CORNERS = [
    # algorithm, alpha, beta, where, slope there: what oneDNN takes at the corner of a function
    ("relu", 0.25, 0.0, 0.0, 0.25),
    ("elu", 0.5, 0.0, 0.0, 0.5),
    ("abs", 0.0, 0.0, 0.0, 0.0),
    ("clip", -1.0, 2.0, -1.0, 0.0),
    ("clip", -1.0, 2.0, 2.0, 1.0),
    ("clip_v2", -1.0, 2.0, -1.0, 0.0),
    ("clip_v2", -1.0, 2.0, 2.0, 0.0),
    ("pow", 2.0, 0.0, 0.0, 0.0),
    ("relu_use_dst_for_bwd", 0.25, 0.0, 0.0, 0.25),
    ("elu_use_dst_for_bwd", 0.5, 0.0, 0.0, 0.5),
    ("clip_v2_use_dst_for_bwd", -1.0, 2.0, 2.0, 0.0),
]


@pytest.mark.parametrize(("algorithm", "alpha", "beta", "at", "slope"), CORNERS)
def test_slopes_at_corners_are_those_of_onednn(
    algorithm: str, alpha: float, beta: float, at: float, slope: float
) -> None:
    x, diff_dst = np.array([at]), np.array([3.0])
    result = bandwidth_limited.eltwise_backward(
        src=x, dst=x, diff_dst=diff_dst, algorithm=algorithm, alpha=alpha, beta=beta
    )
    assert result["diff_src"].tolist() == [3.0 * slope]


@pytest.mark.parametrize("algorithm", ["across_channels", "within_channel"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("shape", [(2, 7), (1, 5, 4), (1, 3, 4, 5), (0, 3, 4)])
def test_lrn_divides_by_the_squares_around(algorithm: str, size: int, shape: Any) -> None:
    if algorithm == "within_channel" and len(shape) == 2:
        shape = (*shape, 3)
    src = random(7, *shape)
    result = normalization.lrn_forward(src=src, algorithm=algorithm, local_size=size, alpha=0.7, beta=0.75, k=1.5)
    close(result["dst"], formulas.lrn(src, algorithm, size, 0.7, 0.75, 1.5))


def test_batch_normalization_takes_mean_and_variance_of_each_channel() -> None:
    src, scale, shift = random(8, 3, 4, 2, 2), random(9, 4), random(10, 4)
    normal, means, variances = formulas.normalization(src, lambda a, b: a[1] == b[1], 1e-3)
    flags = frozenset({"use_scale", "use_shift"})
    result = normalization.batch_forward(src=src, scale=scale, shift=shift, epsilon=1e-3, flags=flags)
    close(result["dst"], normal * scale.reshape(4, 1, 1) + shift.reshape(4, 1, 1))
    close(result["mean"], means[0, :, 0, 0])
    close(result["variance"], variances[0, :, 0, 0])


def test_layer_normalization_takes_mean_and_variance_of_each_row() -> None:
    src, scale, shift = random(8, 3, 4, 5), random(9, 5), random(10, 5)
    normal, means, variances = formulas.normalization(src, lambda a, b: a[:-1] == b[:-1], 1e-3)
    flags = frozenset({"use_scale", "use_shift"})
    result = normalization.layer_forward(src=src, scale=scale, shift=shift, epsilon=1e-3, flags=flags)
    close(result["dst"], normal * scale + shift)
    close(result["mean"], means[..., 0])
    close(result["variance"], variances[..., 0])


def test_group_normalization_takes_mean_and_variance_of_each_group_of_channels() -> None:
    src, scale, shift = random(8, 2, 6, 3), random(9, 6), random(10, 6)
    normal, means, variances = formulas.normalization(src, lambda a, b: a[0] == b[0] and a[1] // 2 == b[1] // 2, 1e-3)
    flags = frozenset({"use_scale", "use_shift"})
    result = normalization.group_forward(src=src, scale=scale, shift=shift, groups=3, epsilon=1e-3, flags=flags)
    close(result["dst"], normal * scale.reshape(6, 1) + shift.reshape(6, 1))
    close(result["mean"], means[:, ::2, 0])
    close(result["variance"], variances[:, ::2, 0])


def test_given_statistics_are_used_and_not_computed() -> None:
    src, mean, variance = random(11, 2, 3, 4), random(12, 3), np.abs(random(13, 3))
    flags = frozenset({"use_global_stats"})
    result = normalization.batch_forward(src=src, mean=mean, variance=variance, epsilon=0.5, flags=flags)
    close(result["dst"], (src - mean.reshape(3, 1)) / np.sqrt(variance.reshape(3, 1) + 0.5))
    assert set(result) == {"dst"}


def test_without_a_mean_the_root_of_the_mean_square_divides() -> None:
    src = random(11, 2, 3, 4)
    result = normalization.layer_forward(src=src, epsilon=0.5, flags=frozenset({"rms_norm"}))
    squares = np.array([[math.fsum(x**2 for x in row) / 4 for row in rows] for rows in src])
    close(result["dst"], src / np.sqrt(squares + 0.5)[..., None])
    close(result["variance"], squares)
    assert set(result) == {"dst", "variance"}


@pytest.mark.parametrize("flag", ["fuse_norm_relu", "fuse_norm_add_relu"])
def test_a_fused_relu_keeps_what_is_positive_and_says_where(flag: str) -> None:
    src, other = random(14, 2, 3, 4), random(15, 2, 3, 4) if "add" in flag else None
    plain = normalization.batch_forward(src=src, epsilon=1e-3, flags=frozenset())["dst"]
    total = plain if other is None else plain + other
    result = normalization.batch_forward(src=src, src_1=other, epsilon=1e-3, flags=frozenset({flag}))
    close(result["dst"], np.where(total > 0, total, 0))
    close(result["workspace"], (total > 0).astype(float))


@pytest.mark.parametrize("algorithm", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("shape", "out"),
    [
        ((2, 3, 4), (7,)),
        ((1, 2, 6), (3,)),
        ((1, 2, 5, 4), (3, 9)),
        ((1, 1, 2, 3, 2), (3, 2, 5)),
        ((1, 17, 1, 1), (2, 3)),
        ((0, 2, 4), (8,)),
        ((1, 2, 3, 3), (3, 3)),
        ((1, 1, 2), (1,)),
    ],
)
def test_resampling_takes_the_nearest_or_weighs_two_along_each_axis(algorithm: str, shape: Any, out: Any) -> None:
    src = random(16, *shape)
    result = spatial.resampling(src=src, algorithm=algorithm, shapes={"dst": (*shape[:2], *out)})
    close(result["dst"], formulas.resampling(src, algorithm, out))


@pytest.mark.parametrize("algorithm", ["accurate", "log"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 5), 1), ((2, 3, 4), 1), ((4, 1), 1), ((2, 3, 2), 0), ((0, 3), 1)])
def test_softmax_is_the_share_of_each_power(algorithm: str, shape: Any, axis: int) -> None:
    src = random(17, *shape)
    result = bandwidth_limited.softmax(src=src, algorithm=algorithm, axis=axis)
    close(result["dst"], formulas.softmax(src, algorithm, axis))


def test_softmax_of_large_numbers_is_that_of_their_differences() -> None:
    result = bandwidth_limited.softmax(src=np.array([[1e4, 1e4 - 1]]), algorithm="accurate", axis=1)["dst"]
    close(result, bandwidth_limited.softmax(src=np.array([[1.0, 0.0]]), algorithm="accurate", axis=1)["dst"])


@pytest.mark.parametrize("algorithm", REDUCTION)
@pytest.mark.parametrize(
    ("shape", "out"),
    [((3, 4), (1, 4)), ((2, 3, 4), (2, 1, 1)), ((2, 3), (1, 1)), ((2, 1, 3), (1, 1, 3)), ((3, 0), (1, 0))],
)
@pytest.mark.parametrize(("p", "eps"), [(1.0, 0.0), (2.0, 0.5), (3.0, 100.0)])
def test_reduction_combines_what_has_the_same_coordinate(
    algorithm: str, shape: Any, out: Any, p: float, eps: float
) -> None:
    src = random(18, *shape)
    result = bandwidth_limited.reduction(src=src, algorithm=algorithm, p=p, eps=eps, shapes={"dst": out})
    close(result["dst"], formulas.reduction(src, algorithm, p, eps, out))


@pytest.mark.parametrize("algorithm", sorted(formulas.BINARY))
@pytest.mark.parametrize(
    "shapes", [((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 3), (1, 1)), ((1, 3), (2, 1)), ((0, 3), (1, 3))]
)
def test_binary_combines_elements_of_equal_coordinates(algorithm: str, shapes: Any) -> None:
    rng = np.random.default_rng(19)
    x, y = (rng.integers(1, 4, shape).astype(float) for shape in shapes)
    a, b = np.broadcast_arrays(x, y)
    result = bandwidth_limited.binary(src_0=x, src_1=y, algorithm=algorithm)["dst"]
    close(result, formulas.elementwise(a.shape, lambda at: formulas.BINARY[algorithm](a[at], b[at])))


def test_select_takes_src_0_where_the_condition_holds() -> None:
    x, y, condition = np.array([1.0, 2, 3]), np.array([4.0, 5, 6]), np.array([0.0, 1, -1])
    assert bandwidth_limited.binary(src_0=x, src_1=y, src_2=condition, algorithm="select")["dst"].tolist() == [4, 2, 3]


@pytest.mark.parametrize(
    ("shape", "axis", "group"), [((12,), 0, 3), ((2, 6, 3), 1, 2), ((1, 7), 1, 7), ((2, 4), 1, 1), ((0, 4), 1, 2)]
)
def test_shuffle_reads_rows_of_a_group_by_columns(shape: Any, axis: int, group: int) -> None:
    src = random(20, *shape)
    rows = shape[axis] // group

    def element(at: Any) -> float:
        column, row = divmod(at[axis], rows)
        return float(src[(*at[:axis], row * group + column, *at[axis + 1 :])])

    result = bandwidth_limited.shuffle(src=src, axis=axis, group_size=group)["dst"]
    close(result, formulas.elementwise(shape, element))
    close(bandwidth_limited.shuffle_backward(diff_dst=result, axis=axis, group_size=group)["diff_src"], src)


@pytest.mark.parametrize("weights", [(2, 3, 4), (1, 3, 1), (1, 1, 1), (1, 3, 4)])
def test_prelu_multiplies_what_is_not_positive(weights: Any) -> None:
    src, w = random(21, 2, 3, 4), random(22, *weights)
    full = np.broadcast_to(w, src.shape)
    wanted = formulas.elementwise(src.shape, lambda at: src[at] if src[at] > 0 else src[at] * full[at])
    close(bandwidth_limited.prelu(src=src, weights=w)["dst"], wanted)


def test_concat_and_sum_of_tensors() -> None:
    a, b = random(23, 2, 3, 4), random(24, 2, 5, 4)
    result = bandwidth_limited.concat(sources=(a, b), axis=1)["dst"]
    assert np.array_equal(result[:, :3], a)
    assert np.array_equal(result[:, 3:], b)
    total = bandwidth_limited.weighted_sum(sources=(a, a, a), scales=(2.0, -0.5, 0.25))["dst"]
    close(total, 1.75 * a)


@pytest.mark.parametrize(
    ("n", "c", "o", "space"), [(2, 3, 4, ()), (1, 17, 2, (2, 3)), (2, 2, 1, (3,)), (0, 3, 2, ()), (2, 0, 3, ())]
)
def test_inner_product_sums_over_everything_but_the_image(n: int, c: int, o: int, space: Any) -> None:
    src, weights, bias = random(25, n, c, *space), random(26, o, c, *space), random(27, o)

    def element(at: Any) -> float:
        return float(
            math.fsum(src[(at[0], *x)] * weights[(at[1], *x)] for x in formulas.every((c, *space))) + bias[at[1]]
        )

    close(products.inner_product(src=src, weights=weights, bias=bias)["dst"], formulas.elementwise((n, o), element))


@pytest.mark.parametrize("batch", [((), ()), ((2,), (2,)), ((2,), (1,)), ((1, 3), (2, 3)), ((0,), (1,))])
def test_matmul_repeats_batches_of_one(batch: Any) -> None:
    src, weights = random(28, *batch[0], 3, 4), random(29, *batch[1], 4, 5)
    bias = random(30, *[1] * len(batch[0]), 1, 5)
    out = np.broadcast_shapes(*batch)

    def element(at: Any) -> float:
        *b, m, n = at
        x = src[tuple(i if s > 1 else 0 for i, s in zip(b, batch[0], strict=True))]
        w = weights[tuple(i if s > 1 else 0 for i, s in zip(b, batch[1], strict=True))]
        return float(math.fsum(x[m, k] * w[k, n] for k in range(4)) + bias.reshape(-1)[n])

    result = products.matmul(src=src, weights=weights, bias=bias)["dst"]
    close(result, formulas.elementwise((*out, 3, 5), element))


def test_the_loops_see_a_wrong_tap() -> None:
    src, weights = random(31, 1, 1, 4), random(32, 1, 1, 2)
    right = formulas.convolution(src, weights, None, (3,), (1,), (0,), (0,))
    for stride, dilation, padding in product((1, 2), (0, 1), (0, 1)):
        if (stride, dilation, padding) != (1, 0, 0):
            other = formulas.convolution(src, weights, None, (3,), (stride,), (dilation,), (padding,))
            assert not np.allclose(right, other)
