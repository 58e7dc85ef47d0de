"""Invalid arguments of primitives raise an InlayError, never an error from inside of NumPy or Python.

Every parameter of every class, and every argument of a call, is set to every value of `tests.support.hostile_values`,
and to descriptors, attributes and primitives that do not fit.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

import inlay
from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.memory import Memory
from inlay.primitives import attributes as a
from tests.support.hostile_values import MAKERS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

IMAGE, MATRIX = MemoryDesc((2, 4, 6, 6), "f32"), MemoryDesc((3, 4), "f32")
SOURCE, ATTENTION = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((5, 2, 1), "f32")


def gates(count: int) -> dict[str, MemoryDesc]:
    weights = MemoryDesc((1, 1, 6, count, 6), "f32")
    return {"src_layer": SOURCE, "weights_layer": weights, "weights_iter": weights}


VALID: Mapping[str, Mapping[str, Any]] = {
    "Convolution": {"src": IMAGE, "weights": MemoryDesc((8, 4, 3, 3), "f32")},
    "Deconvolution": {"src": IMAGE, "weights": MemoryDesc((8, 4, 3, 3), "f32")},
    "InnerProduct": {"src": IMAGE, "weights": MemoryDesc((8, 4, 6, 6), "f32")},
    "MatMul": {"src": MATRIX, "weights": MemoryDesc((4, 5), "f32")},
    "Pooling": {"src": IMAGE, "algorithm": "max", "kernel": 2},
    "Eltwise": {"src": IMAGE, "algorithm": "relu"},
    "Softmax": {"src": IMAGE, "axis": 1},
    "LRN": {"src": IMAGE, "local_size": 3, "alpha": 1.0, "beta": 0.75},
    "BatchNormalization": {"src": IMAGE, "epsilon": 1e-3},
    "LayerNormalization": {"src": IMAGE, "epsilon": 1e-3},
    "GroupNormalization": {"src": IMAGE, "groups": 2, "epsilon": 1e-3},
    "Shuffle": {"src": IMAGE, "axis": 1, "group_size": 2},
    "PReLU": {"src": IMAGE, "weights": MemoryDesc((1, 4, 1, 1), "f32")},
    "Resampling": {"src": IMAGE, "factors": 2},
    "Reduction": {"src": IMAGE, "dst": MemoryDesc((2, 4, 1, 1), "f32"), "algorithm": "mean"},
    "Concat": {"srcs": [IMAGE, IMAGE], "axis": 1},
    "Sum": {"srcs": [IMAGE, IMAGE]},
    "Binary": {"src_0": IMAGE, "src_1": IMAGE, "algorithm": "add"},
    "Reorder": {"src": IMAGE, "dst": MemoryDesc((2, 4, 6, 6), "f32", "nhwc")},
    "VanillaRNN": {**gates(1), "activation": "relu"},
    "LSTM": gates(4),
    "GRU": gates(3),
    "LBRGRU": gates(3),
    "AUGRU": {**gates(3), "attention": ATTENTION},
    "LBRAUGRU": {**gates(3), "attention": ATTENTION},
}
"""Valid arguments of each forward class."""
BACKWARD = ("Backward", "BackwardData", "BackwardWeights")
ATTRIBUTES: tuple[Any, ...] = (
    {},
    {"scales": 5},
    {"scales": {"src": 5}},
    {"scales": {3: inlay.Scales()}},
    {"zero_points": [1]},
    {"post_ops": 5},
    {"post_ops": (5,)},
    {"post_ops": (a.SumPostOp(10**5000),)},
    {"post_ops": (a.SumPostOp(data_type=5),)},  # type: ignore[arg-type]
    {"post_ops": (a.EltwisePostOp("relu", None),)},  # type: ignore[arg-type]
    {"post_ops": (a.BinaryPostOp("add", 5),)},  # type: ignore[arg-type]
    {"post_ops": (a.PReLUPostOp(-1),)},
    {"post_ops": (a.DepthwiseConvolution(5, 5, 5, 5, 5, 5),)},  # type: ignore[arg-type]
    {"post_ops": (a.DepthwiseConvolution("f32", None, "f32", 3, 1, 1),)},
    {"recurrent": 5},
    {"recurrent": a.RecurrentScales(None, None, None, None)},  # type: ignore[arg-type]
    {"recurrent": a.RecurrentScales(1.0, 0.0, (), ())},
    {"scratchpad_mode": 5},
    {"fpmath_mode": None},
)
PRIMITIVES: tuple[Any, ...] = (
    p.get_engine("reference"),
    p.Eltwise(IMAGE, algorithm="relu", engine="reference"),
    p.Eltwise(IMAGE, algorithm="relu", prop_kind="forward_training", engine="reference"),
)
DESCS: tuple[Any, ...] = (
    *(MemoryDesc(), IMAGE, MemoryDesc(IMAGE.dims, "s8"), MemoryDesc(IMAGE.dims, "f32", "any"), MATRIX, SOURCE),
    *(MemoryDesc((0, 4, 6, 6), "f32"), MemoryDesc((1,), "f32"), MemoryDesc((-(2**63), 4, 6, 6), "f32")),
    *(MemoryDesc.csr((3, 4), "f32", 2), MemoryDesc.coo((3, 4), "f32", 2), MemoryDesc.host_scalar("f32")),
)
HOSTILE: tuple[Any, ...] = (
    *(value for value in (make() for make in MAKERS) if not isinstance(value, str) or len(value) < 1000),
    *PRIMITIVES,
    *DESCS,
    *(p.PrimitiveAttributes(**given) for given in ATTRIBUTES),
)


def created(name: str, **changed: Any) -> Any:
    return getattr(p, name)(**{**VALID[name], "engine": "reference", **changed})


def attempts(name: str) -> Iterator[tuple[Callable[[], object], str]]:
    """Yield every call with one invalid value, and its description."""
    cls = getattr(p, name)
    for parameter in inspect.signature(cls).parameters:
        for i, value in enumerate(HOSTILE):
            yield partial(created, name, **{parameter: value}), f"{name}({parameter}=HOSTILE[{i}])"
    for suffix in BACKWARD:
        backward = getattr(p, name + suffix, None)
        if backward is not None:
            hint = created(name, prop_kind="forward_training")
            for parameter in inspect.signature(backward).parameters:
                for i, value in enumerate(HOSTILE):
                    given = {"hint_forward": hint, "engine": "reference", parameter: value}
                    yield partial(backward, **given), f"{name}{suffix}({parameter}=HOSTILE[{i}])"
    primitive = created(name)
    memories = {argument: Memory(primitive.desc(argument)) for argument in primitive.arguments}
    for argument in (*memories, "srcs", "other"):
        for i, value in enumerate(HOSTILE):
            yield partial(primitive, **{**memories, argument: value}), f"{name}()({argument}=HOSTILE[{i}])"


@pytest.mark.parametrize("name", VALID)
def test_hostile_arguments_are_refused_with_an_error_of_inlay(name: str) -> None:
    for attempt, what in attempts(name):
        text = ""
        try:
            attempt()
        except InlayError as error:
            text = str(error)
        assert len(text) < 3000, what
