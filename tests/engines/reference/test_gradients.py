"""The gradients of the reference engine against central differences of its forward formulas, in f64.

The loss of a case is the sum of dst * diff_dst. Moving one element of an input by h either way moves the loss by 2 h
times its gradient; with numbers around 1 and h = 1e-5 the error of this is about 1e-10.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from inlay.engines.reference.bandwidth_limited import ALGORITHMS
from inlay.engines.reference.engine import FORMULAS
from inlay.primitives.algorithms import LRN, POOLING, RESAMPLING, SOFTMAX
from inlay.primitives.rules import SIGNATURES

Arrays = Mapping[str, Any]
STEP = 1e-5
SCALED = {"use_scale", "use_shift"}


@dataclass(frozen=True)
class Case:
    """A primitive with its inputs; each of `backward` gives gradients of some."""

    kind: str
    inputs: dict[str, Any]
    parameters: dict[str, Any]
    dst: tuple[int, ...]
    backward: tuple[str, ...] = ("backward",)

    def forward(self, inputs: Arrays) -> Arrays:
        """Return the results of the forward formula."""
        return call_formula(FORMULAS[self.kind, "forward"], {**self.parameters, **inputs, "shapes": self.shapes})

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The dims of every argument."""
        dims = {name: array.shape for name, array in self.inputs.items()}
        return {**dims, **{f"diff_{name}": shape for name, shape in dims.items()}, "dst": self.dst}


def call_formula(formula: Callable[..., Arrays], offered: Arrays) -> Arrays:
    """Call a formula with the values that it has as parameters."""
    names = formula.__code__.co_varnames[: formula.__code__.co_kwonlyargcount]
    return formula(**{name: offered[name] for name in names if name in offered})


def gradients(case: Case, diff_dst: Any) -> dict[str, Any]:
    """Return the results of the backward formulas."""
    results = case.forward(case.inputs)
    known = {**case.parameters, **results, **case.inputs, "diff_dst": diff_dst, "shapes": case.shapes}
    return {k: v for name in case.backward for k, v in call_formula(FORMULAS[case.kind, name], known).items()}  # type: ignore[index]


def differences(loss: Callable[[Any], float], at: Any) -> Any:
    """The central difference of the loss for each element."""
    result = np.zeros(at.shape)
    for i in np.ndindex(at.shape):
        high, low = at.copy(), at.copy()
        high[i] += STEP
        low[i] -= STEP
        result[i] = (loss(high) - loss(low)) / (2 * STEP)
    return result


def random(seed: int, *shape: int) -> Any:
    """Distinct numbers, none near the others or 0, so that no maximum changes and no corner is crossed."""
    count = int(np.prod(shape))
    steps = np.random.default_rng(seed).permutation(count) - count // 2
    return ((steps + 0.3) * (3.0 / max(count, 1))).reshape(shape)


def positive(seed: int, *shape: int) -> Any:
    return np.abs(random(seed, *shape)) + 0.5


def window(spatial: int) -> dict[str, Any]:
    return {"strides": (2,) * spatial, "dilations": (1,) * spatial, "padding_l": (1,) * spatial}


def weighted() -> Iterator[Case]:
    both = ("backward_data", "backward_weights")
    for kind, (groups, ic, oc, spatial) in product(
        ("convolution", "deconvolution"), ((1, 2, 3, 1), (2, 1, 2, 2), (3, 1, 1, 1), (1, 1, 1, 3))
    ):
        small, large = (2,) * spatial, (4,) * spatial
        src, dst = (small, large) if kind == "deconvolution" else (large, small)
        weights = random(2, *([groups] if groups > 1 else []), oc, ic, *[2] * spatial)
        inputs = {"src": random(1, 2, groups * ic, *src), "weights": weights, "bias": random(3, groups * oc)}
        yield Case(kind, inputs, window(spatial), (2, groups * oc, *dst), both)
    for space in ((), (2, 3)):
        inputs = {"src": random(4, 2, 3, *space), "weights": random(5, 4, 3, *space), "bias": random(6, 4)}
        yield Case("inner_product", inputs, {}, (2, 4), both)


def windowed() -> Iterator[Case]:
    for algorithm, spatial in product(POOLING, (1, 2)):
        parameters = window(spatial) | {"kernel": (3,) * spatial, "algorithm": algorithm, "lowest": -1e300}
        yield Case("pooling", {"src": random(7, 2, 2, *[5] * spatial)}, parameters, (2, 2, *[2] * spatial))
    for algorithm, out in product(RESAMPLING, ((7,), (2,), (3, 5))):
        src = random(8, 1, 2, *[4] * len(out))
        yield Case("resampling", {"src": src}, {"algorithm": algorithm}, (1, 2, *out))
    for algorithm, size, dims in product(LRN, (3, 4), ((2, 5, 3), (1, 4, 3, 5))):
        parameters = {"algorithm": algorithm, "local_size": size, "alpha": 0.7, "beta": 0.75, "k": 1.5}
        yield Case("lrn", {"src": random(9, *dims)}, parameters, dims)


def normalized() -> Iterator[Case]:
    dims, src = (2, 4, 3), random(10, 2, 4, 3)
    for kind, channels, statistics in (("batch", 4, (4,)), ("layer", 3, (2, 4)), ("group", 4, (2, 2))):
        rows = {"scale": positive(11, channels), "shift": random(12, channels)}
        given = {"mean": random(13, *statistics), "variance": positive(14, *statistics)}
        for flags, inputs in (
            (SCALED, rows),
            (set(), {}),
            (SCALED | {"rms_norm"}, rows),
            (SCALED | {"use_global_stats"}, {**rows, **given}),
        ):
            parameters = {"epsilon": 0.1, "flags": frozenset(flags)} | ({"groups": 2} if kind == "group" else {})
            yield Case(f"{kind}_normalization", {"src": src, **inputs}, parameters, dims)
    for flag in ("fuse_norm_relu", "fuse_norm_add_relu"):
        inputs = {"src": random(15, *dims), "scale": positive(16, 4), "shift": random(17, 4)}
        inputs |= {"src_1": random(18, *dims)} if "add" in flag else {}
        yield Case("batch_normalization", inputs, {"epsilon": 0.1, "flags": frozenset(SCALED | {flag})}, dims)


def pointwise() -> Iterator[Case]:
    for name in (name for name, (_, slope) in ALGORITHMS.items() if slope is not None):
        needs_positive = name.removesuffix("_use_dst_for_bwd") in ("sqrt", "log", "pow")
        src = (positive if needs_positive else random)(19, 3, 7)
        yield Case("eltwise", {"src": src}, {"algorithm": name, "alpha": 0.4, "beta": 0.8}, (3, 7))
    for algorithm, axis in product(SOFTMAX, (0, 1)):
        yield Case("softmax", {"src": random(20, 3, 4)}, {"algorithm": algorithm, "axis": axis}, (3, 4))
    for shape in ((1, 3, 1), (2, 3, 4), (1, 1, 1)):
        yield Case("prelu", {"src": random(21, 2, 3, 4), "weights": random(22, *shape)}, {}, (2, 3, 4))
    yield Case("shuffle", {"src": random(23, 2, 6, 2)}, {"axis": 1, "group_size": 3}, (2, 6, 2))


CASES = [*weighted(), *windowed(), *normalized(), *pointwise()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.parameters.get('algorithm', case.dst)}")
def test_gradients_are_the_differences_of_the_forward_formula(case: Case) -> None:
    dst = case.forward(case.inputs)["dst"]
    assert dst.shape == case.dst
    diff_dst = random(99, *dst.shape)
    found = gradients(case, diff_dst)
    for name, array in case.inputs.items():
        if name in ("mean", "variance"):
            continue

        def loss(moved: Any, name: str = name) -> float:
            return float((case.forward({**case.inputs, name: moved})["dst"] * diff_dst).sum())

        np.testing.assert_allclose(found[f"diff_{name}"], differences(loss, array), rtol=1e-6, atol=1e-7, err_msg=name)


def test_every_gradient_is_tested() -> None:
    tested = {(case.kind, name) for case in CASES for name in case.backward}
    feedforward = {key for key in FORMULAS if "src_layer" not in SIGNATURES[key].reads}
    assert tested == {key for key in feedforward if key[1] != "forward"}


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("batch_normalization", (0, 3, 2)), ("layer_normalization", (2, 0)), ("group_normalization", (2, 4, 0))],
)
def test_normalization_of_nothing_gives_nothing(kind: str, shape: Any) -> None:
    parameters = {"epsilon": 0.1, "flags": frozenset({"use_scale"}), "groups": 2}
    inputs = {"src": np.zeros(shape), "scale": np.ones(shape[-1 if kind == "layer_normalization" else 1])}
    case = Case(kind, inputs, parameters, shape)
    assert case.forward(inputs)["dst"].shape == shape
    found = gradients(case, np.zeros(shape))
    assert found["diff_src"].shape == shape
    assert found["diff_scale"].tolist() == [0.0] * len(inputs["scale"])


def test_the_differences_see_a_wrong_gradient() -> None:
    case = next(pointwise())
    diff_dst = np.ones(case.dst)
    wrong = gradients(case, 1.001 * diff_dst)["diff_src"]
    right = differences(lambda x: float(case.forward({"src": x})["dst"].sum()), case.inputs["src"])
    assert not np.allclose(wrong, right, rtol=1e-6, atol=1e-7)
