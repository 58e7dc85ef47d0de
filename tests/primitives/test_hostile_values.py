"""Invalid arguments of primitives raise an InlayError, never an error from inside of NumPy or Python.

Every parameter of every class, and every argument of a call, is set to every value of `tests.support.hostile_values`,
and to descriptors, attributes and primitives that do not fit.
"""

from collections.abc import Callable, Iterator
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
from tests.support.public_calls import Subject, subjects

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

IMAGE = MemoryDesc((2, 16, 6, 6), "f32")
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
    *(MemoryDesc(), IMAGE, MemoryDesc(IMAGE.dims, "s8"), MemoryDesc(IMAGE.dims, "f32", "any")),
    *(MemoryDesc((0, 16, 6, 6), "f32"), MemoryDesc((1,), "f32"), MemoryDesc((-(2**63), 16, 6, 6), "f32")),
    *(MemoryDesc((3, 4), "f32"), MemoryDesc((3, 2, 4), "f32")),
    *(MemoryDesc.csr((3, 4), "f32", 2), MemoryDesc.coo((3, 4), "f32", 2), MemoryDesc.host_scalar("f32")),
)
HOSTILE: tuple[Any, ...] = (
    *(value for value in (make() for make in MAKERS) if not isinstance(value, str) or len(value) < 1000),
    *PRIMITIVES,
    *DESCS,
    *(p.PrimitiveAttributes(**given) for given in ATTRIBUTES),
)


SUBJECTS = [
    subject
    for subject in subjects()
    if subject.name.startswith("primitives.")
    and isinstance(subject.call, type)
    and issubclass(subject.call, p.Primitive)
]


def attempts(subject: Subject) -> Iterator[tuple[Callable[[], object], str]]:
    """Yield every call with one invalid value, and its description."""
    for parameter in subject.parameters:
        for i, value in enumerate(HOSTILE):
            yield partial(subject, **{parameter: value}), f"{subject.name}({parameter}=HOSTILE[{i}])"
    primitive = subject()
    memories = {argument: Memory(primitive.desc(argument)) for argument in primitive.arguments}
    for argument in (*memories, "srcs", "other"):
        for i, value in enumerate(HOSTILE):
            yield partial(primitive, **{**memories, argument: value}), f"{subject.name}()({argument}=HOSTILE[{i}])"


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_hostile_arguments_are_refused_with_an_error_of_inlay(subject: Subject) -> None:
    for attempt, what in attempts(subject):
        text = ""
        try:
            attempt()
        except InlayError as error:
            text = str(error)
        assert len(text) < 3000, what
