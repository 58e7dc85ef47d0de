"""Operations that the oneDNN engine refuses: the text names the error, and the library is not called.

golden/mistakes/onednn.txt has calls and the whole text of their errors; {name} stands for the library's name.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.engines import reference
from inlay.engines.onednn import OnednnEngine, make_engine  # noqa: F401  a call of the file names it
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import Memory
from inlay.primitives.attributes import EltwisePostOp, PrimitiveAttributes  # noqa: F401  as above
from inlay.primitives.engine import Operation, get_engine
from inlay.primitives.rules import KINDS, PropKind
from inlay.reordering.attributes import Scales
from tests.oracles import onednn as oracle
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.onednn_cases import backward, directions, forward
from tests.support.processes import run_python
from tests.support.refusals import raises_exactly

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))


def with_parameters(kind: str, **parameters: Any) -> Operation:
    operation = forward(kind)
    return replace(operation, parameters={**operation.parameters, **parameters})


def with_descs(operation: Operation, **descs: MemoryDesc | None) -> Operation:
    merged: Mapping[str, MemoryDesc | None] = {**operation.descs, **descs}
    return replace(operation, descs={name: desc for name, desc in merged.items() if desc is not None})


def with_attributes(kind: str, **attributes: Any) -> Operation:
    return replace(forward(kind), attributes=PrimitiveAttributes(**attributes))


def f32(*dims: int, format: str | None = None) -> MemoryDesc:
    return MemoryDesc(dims, "f32", format)


def make(operation: Operation, engine: OnednnEngine | None = None) -> Any:
    return (engine or get_engine("onednn")).create(operation)


def make_backward(kind: str, prop_kind: PropKind = "forward_training", engine: Any = None, **descs: Any) -> Any:
    """Make the first gradient of a kind; `hint` is in the place of the forward primitive that fits."""
    hint = descs.pop("hint", None)
    operation = backward(make(forward(kind, prop_kind), engine), directions(kind)[0])
    return make(with_descs(replace(operation, hint=hint or operation.hint), **descs))


def bind(kind: str, *names: str) -> None:
    """Bind memories of these names, all of the size of src."""
    made = make(forward(kind))
    made.bind({name: Memory(made.descs["src"]) for name in names})


FREE = MemoryDesc((256, 8), "f32", pattern="(m m4 m32) (k k4) -> m k m32 m4 k4")
"""A digit order without a tag."""


@pytest.mark.parametrize(("call", "error"), read_mistakes("onednn"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    name = make(forward("softmax")).engine.library.name
    assert_mistake(call, error.replace("{name}", name), globals())


@pytest.mark.skipif(
    oracle.why_unavailable() is not None or oracle.version() >= (3, 13), reason="this oneDNN lacks none of it"
)
@pytest.mark.parametrize(
    ("operation", "feature"),
    [
        (forward("group_normalization"), "group normalization"),
        (with_descs(forward("binary"), src_2=MemoryDesc((2, 18, 8, 7), "s8")), "binary algorithm select"),
        (
            with_attributes("matmul", scales={"weights": Scales(mask=0b11, groups=(17, 1))}),
            "scales of weights in groups",
        ),
        (
            with_parameters("layer_normalization", flags=frozenset({"rms_norm"})),
            "root mean square normalization",
        ),
    ],
)
def test_what_a_later_release_has_is_named(operation: Operation, feature: str) -> None:
    with raises_exactly(Unimplemented, f"oneDNN 3.2.0 has no {feature}"):
        make(operation)


SOMETIMES_LACKING = ("group_normalization", "augru", "lbr_augru")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if directions(kind) and kind not in SOMETIMES_LACKING])
def test_a_gradient_needs_a_hint_of_the_same_engine(kind: str) -> None:
    for direction in directions(kind):
        operation = backward(reference.make_engine().create(forward(kind)), direction)
        with pytest.raises(Unimplemented, match=f"^the hint of {kind} {direction} is of another engine, whose formats"):
            make(operation)
        text = f"{kind} {direction} needs its forward primitive as hint: create that with forward_training first"
        with raises_exactly(InvalidArguments, text):
            make(replace(operation, hint=None))


# Operations at random, in a process of their own, which must live


def run_spoiled(seed: int, count: int) -> Any:
    return json.loads(run_python("-m", "tests.support.spoiled_operations", str(seed), str(count)).stdout)


def test_spoiled_operations_crash_nothing() -> None:
    seen = run_spoiled(1, 1500)
    assert set(seen) <= {"computed", "large", "InvalidArguments", "Unimplemented", "InlayError", "OutOfMemory"}
    assert seen["computed"] > 100
    assert seen["InvalidArguments"] > 300
    assert seen["Unimplemented"] > 30


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2, 10))
def test_many_spoiled_operations_crash_nothing(seed: int) -> None:
    assert run_spoiled(seed, 10_000)["computed"] > 500


def test_a_refused_bind_leaves_memory_as_it_was_and_the_next_one_works() -> None:
    implementation = make(forward("softmax"))
    memories = {name: Memory(desc) for name, desc in implementation.descs.items()}
    memories["dst"].buffer[:] = 7
    with pytest.raises(InvalidArguments):
        implementation.bind({"dst": memories["dst"]})
    assert (memories["dst"].buffer == 7).all()
    implementation.bind(memories)()
    np.testing.assert_allclose(memories["dst"].unpack(), 1 / 18, rtol=1e-6)
