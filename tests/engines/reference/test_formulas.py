"""The formulas of the reference engine, forward, against loops over coordinates (`oracles.formulas`)."""

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
@pytest.mark.parametrize("kind", ["convolution", "deconvolution"])
def test_convolutions_are_sums_over_channels_and_taps(kind: str, case: Any, has_bias: bool) -> None:
    n, g, ic, oc, size, kernel, strides, dilations, pl, pr = case
    out = windows_of(size, kernel, strides, dilations, pl, pr)
    if kind == "deconvolution":
        size, out = out, size
    weights = random(1, *([g] if g > 1 else []), oc, ic, *kernel)
    src, bias = random(2, n, g * ic, *size), random(3, g * oc) if has_bias else None
    given = {"strides": strides, "dilations": dilations, "padding_l": pl, "shapes": {"dst": (n, g * oc, *out)}}
    result = getattr(spatial, kind)(src=src, weights=weights, bias=bias, **given)
    close(result["dst"], getattr(formulas, kind)(src, weights, bias, out, strides, dilations, pl))


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
    result = bandwidth_limited.eltwise(src=halves, algorithm="round", alpha=0, beta=0)["dst"]
    assert result.tolist() == [-2, -2, 0, 0, 2, 2]


@pytest.mark.parametrize(
    "algorithm", ["logistic", "soft_relu", "mish", "swish", "elu", "gelu_erf", "gelu_tanh", "tanh", "relu"]
)
def test_eltwise_of_large_numbers_is_finite(algorithm: str) -> None:
    x, low, high = np.array([-1e3, 1e3]), {"elu": -1.0, "tanh": -1.0}, {"logistic": 1.0, "tanh": 1.0}
    given: Any = {"src": x, "algorithm": algorithm, "alpha": 0.0 if algorithm == "relu" else 1.0, "beta": 0}
    result = bandwidth_limited.eltwise(**given)["dst"]
    assert np.abs(result - [low.get(algorithm, 0.0), high.get(algorithm, 1e3)]).max() <= 1e-12
    assert np.isfinite(bandwidth_limited.eltwise_backward(**given, diff_dst=np.ones(2))["diff_src"]).all()


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
    given: Any = {"src": x, "dst": x, "algorithm": algorithm, "alpha": alpha, "beta": beta}
    assert bandwidth_limited.eltwise_backward(**given, diff_dst=diff_dst)["diff_src"].tolist() == [3.0 * slope]


@pytest.mark.parametrize("algorithm", ["across_channels", "within_channel"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("shape", [(2, 7), (1, 5, 4), (1, 3, 4, 5), (0, 3, 4)])
def test_lrn_divides_by_the_squares_around(algorithm: str, size: int, shape: Any) -> None:
    if algorithm == "within_channel" and len(shape) == 2:
        shape = (*shape, 3)
    src = random(7, *shape)
    result = normalization.lrn_forward(src=src, algorithm=algorithm, local_size=size, alpha=0.7, beta=0.75, k=1.5)
    close(result["dst"], formulas.lrn(src, algorithm, size, 0.7, 0.75, 1.5))


NORMALIZED = {
    # Shape of the source, axis of the channels, whether two elements share statistics, and where statistics are stored.
    "batch": ((3, 4, 2, 2), 1, lambda a, b: a[1] == b[1], np.s_[0, :, 0, 0]),
    "layer": ((3, 4, 5), 2, lambda a, b: a[:-1] == b[:-1], np.s_[..., 0]),
    "group": ((2, 6, 3), 1, lambda a, b: a[0] == b[0] and a[1] // 2 == b[1] // 2, np.s_[:, ::2, 0]),
}


@pytest.mark.parametrize("kind", NORMALIZED)
def test_normalization_uses_mean_and_variance_of_each_channel_row_or_group(kind: str) -> None:
    shape, axis, together, stored = NORMALIZED[kind]
    src, scale, shift = random(8, *shape), random(9, shape[axis]), random(10, shape[axis])
    normal, means, variances = formulas.normalization(src, together, 1e-3)
    given = {"flags": frozenset({"use_scale", "use_shift"})} | ({"groups": 3} if kind == "group" else {})
    forward = getattr(normalization, f"{kind}_forward")
    result = forward(src=src, scale=scale, shift=shift, epsilon=1e-3, **given)
    to_axis = [-1] + [1] * (len(shape) - 1 - axis)
    close(result["dst"], normal * scale.reshape(to_axis) + shift.reshape(to_axis))
    close(result["mean"], means[stored])
    close(result["variance"], variances[stored])


def test_given_statistics_are_used_and_not_computed() -> None:
    src, mean, variance = random(11, 2, 3, 4), random(12, 3), np.abs(random(13, 3))
    flags = frozenset({"use_global_stats"})
    result = normalization.batch_forward(src=src, mean=mean, variance=variance, epsilon=0.5, flags=flags)
    close(result["dst"], (src - mean.reshape(3, 1)) / np.sqrt(variance.reshape(3, 1) + 0.5))
    assert set(result) == {"dst"}


def test_without_a_mean_the_root_of_the_mean_square_divides() -> None:
    src = random(11, 2, 3, 4)
    result = normalization.layer_forward(src=src, epsilon=0.5, flags=frozenset({"rms_norm"}))
    squares = np.mean(src**2, axis=2)
    close(result["dst"], src / np.sqrt(squares + 0.5)[..., None])
    close(result["variance"], squares)
    assert set(result) == {"dst", "variance"}


@pytest.mark.parametrize("flag", ["fuse_norm_relu", "fuse_norm_add_relu"])
def test_a_fused_relu_returns_the_positive_numbers_and_their_mask(flag: str) -> None:
    src, other = random(14, 2, 3, 4), random(15, 2, 3, 4) if "add" in flag else None
    plain = normalization.batch_forward(src=src, epsilon=1e-3, flags=frozenset())["dst"]
    total = plain if other is None else plain + other
    result = normalization.batch_forward(src=src, src_1=other, epsilon=1e-3, flags=frozenset({flag}))
    close(result["dst"], np.where(total > 0, total, 0))
    close(result["workspace"], (total > 0).astype(float))


@pytest.mark.parametrize("algorithm", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("shape", "out"),
    [((2, 3, 4), (7,)), ((1, 2, 6), (3,)), ((1, 2, 5, 4), (3, 9)), ((1, 1, 2, 3, 2), (3, 2, 5)),
     ((1, 17, 1, 1), (2, 3)), ((0, 2, 4), (8,)), ((1, 2, 3, 3), (3, 3)), ((1, 1, 2), (1,))],
)  # fmt: skip
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
    result = bandwidth_limited.binary(src_0=x, src_1=y, algorithm=algorithm)["dst"]
    close(result, np.vectorize(formulas.BINARY[algorithm], otypes=[float])(x, y))


def test_select_takes_src_0_where_the_condition_holds() -> None:
    x, y, condition = np.array([1.0, 2, 3]), np.array([4.0, 5, 6]), np.array([0.0, 1, -1])
    assert bandwidth_limited.binary(src_0=x, src_1=y, src_2=condition, algorithm="select")["dst"].tolist() == [4, 2, 3]


@pytest.mark.parametrize(
    ("shape", "axis", "group"), [((12,), 0, 3), ((2, 6, 3), 1, 2), ((1, 7), 1, 7), ((2, 4), 1, 1), ((0, 4), 1, 2)]
)
def test_shuffle_reads_rows_of_a_group_by_columns(shape: Any, axis: int, group: int) -> None:
    src = random(20, *shape)
    result = bandwidth_limited.shuffle(src=src, axis=axis, group_size=group)["dst"]
    order = np.arange(shape[axis]).reshape(-1, group).T.ravel()
    close(result, src.take(order, axis))
    close(bandwidth_limited.shuffle_backward(diff_dst=result, axis=axis, group_size=group)["diff_src"], src)


@pytest.mark.parametrize("weights", [(2, 3, 4), (1, 3, 1), (1, 1, 1), (1, 3, 4)])
def test_prelu_multiplies_what_is_not_positive(weights: Any) -> None:
    src, w = random(21, 2, 3, 4), random(22, *weights)
    wanted = np.vectorize(lambda x, slope: x if x > 0 else x * slope)(src, w)
    close(bandwidth_limited.prelu(src=src, weights=w)["dst"], wanted)


def test_concat_and_sum_of_tensors() -> None:
    a, b = random(23, 2, 3, 4), random(24, 2, 5, 4)
    result = bandwidth_limited.concat(sources=(a, b), axis=1)["dst"]
    assert np.array_equal(result, np.concatenate([a, b], axis=1))
    total = bandwidth_limited.weighted_sum(sources=(a, a, a), scales=(2.0, -0.5, 0.25))["dst"]
    close(total, 1.75 * a)


@pytest.mark.parametrize(
    ("n", "c", "o", "space"), [(2, 3, 4, ()), (1, 17, 2, (2, 3)), (2, 2, 1, (3,)), (0, 3, 2, ()), (2, 0, 3, ())]
)
def test_inner_product_sums_over_everything_but_the_image(n: int, c: int, o: int, space: Any) -> None:
    src, weights, bias = random(25, n, c, *space), random(26, o, c, *space), random(27, o)
    axes = range(1, src.ndim)
    wanted = np.tensordot(src, weights, (axes, axes)) + bias
    close(products.inner_product(src=src, weights=weights, bias=bias)["dst"], wanted)


@pytest.mark.parametrize("batch", [((), ()), ((2,), (2,)), ((2,), (1,)), ((1, 3), (2, 3)), ((0,), (1,))])
def test_matmul_repeats_batches_of_one(batch: Any) -> None:
    src, weights = random(28, *batch[0], 3, 4), random(29, *batch[1], 4, 5)
    bias = random(30, *[1] * len(batch[0]), 1, 5)
    wanted = np.einsum("...mk,...kn->...mn", src, weights) + bias
    close(products.matmul(src=src, weights=weights, bias=bias)["dst"], wanted)


def test_the_loops_see_a_wrong_tap() -> None:
    src, weights = random(31, 1, 1, 4), random(32, 1, 1, 2)
    right = formulas.convolution(src, weights, None, (3,), (1,), (0,), (0,))
    for stride, dilation, padding in product((1, 2), (0, 1), (0, 1)):
        if (stride, dilation, padding) != (1, 0, 0):
            other = formulas.convolution(src, weights, None, (3,), (stride,), (dilation,), (padding,))
            assert not np.allclose(right, other)
