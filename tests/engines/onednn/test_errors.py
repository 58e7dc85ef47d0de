"""Operations that the oneDNN engine refuses: the text names the error, and the library is not called."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.engines import reference
from inlay.engines.onednn import OnednnEngine, make_engine
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.memory import Memory
from inlay.primitives.attributes import EltwisePostOp, PrimitiveAttributes
from inlay.primitives.engine import Operation
from inlay.primitives.rules import KINDS
from inlay.reordering.attributes import Scales
from tests.oracles import onednn as oracle
from tests.support.onednn_cases import backward, directions, forward
from tests.support.processes import run_python

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))


@pytest.fixture(scope="module")
def engine() -> OnednnEngine:
    return make_engine()


def refusal(engine: OnednnEngine, operation: Operation, kind: type[InlayError] = InvalidArguments) -> str:
    with pytest.raises(kind) as caught:
        engine.create(operation)
    return str(caught.value)


def with_parameters(operation: Operation, **parameters: Any) -> Operation:
    return replace(operation, parameters={**operation.parameters, **parameters})


def with_descs(operation: Operation, **descs: MemoryDesc | None) -> Operation:
    merged: Mapping[str, MemoryDesc | None] = {**operation.descs, **descs}
    return replace(operation, descs={name: desc for name, desc in merged.items() if desc is not None})


CONVOLUTION = forward("convolution")
SOFTMAX = forward("softmax")
SOMETIMES_LACKING = ("group_normalization", "augru", "lbr_augru")
NO_LIMIT = 2**31 - 1


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (
            with_parameters(CONVOLUTION, strides=(0, 1)),
            f"strides of convolution is (0, 1): give whole numbers from 1 to {NO_LIMIT}",
        ),
        (
            with_parameters(CONVOLUTION, strides=(1,)),
            "strides of convolution is (1,): give 2 numbers, one for each spatial axis",
        ),
        (
            with_parameters(CONVOLUTION, strides=2),
            "strides of convolution is 2: give a tuple of numbers, one for each spatial axis",
        ),
        (
            with_parameters(CONVOLUTION, dilations=(0, -1)),
            f"dilations of convolution is (0, -1): give whole numbers from 0 to {NO_LIMIT}",
        ),
        (
            with_parameters(CONVOLUTION, padding_l=(2**31, 0)),
            f"padding_l of convolution is (2147483648, 0): give whole numbers from -{NO_LIMIT} to {NO_LIMIT}",
        ),
        (
            with_parameters(CONVOLUTION, algorithm="fft"),
            "convolution has no algorithm 'fft': it has direct, winograd, auto",
        ),
        (
            replace(CONVOLUTION, parameters={"algorithm": "direct"}),
            "convolution lacks the parameter strides: its parameters are algorithm, strides, dilations, padding_l, "
            "padding_r",
        ),
        (
            with_descs(CONVOLUTION, weights=None),
            "convolution forward_training lacks weights: describe it, by a format or any",
        ),
        (
            with_descs(CONVOLUTION, bias=MemoryDesc()),
            "bias of convolution is the zero descriptor: describe it, or leave it out",
        ),
        (
            with_parameters(forward("pooling"), kernel=(3, 0)),
            f"kernel of pooling is (3, 0): give whole numbers from 1 to {NO_LIMIT}",
        ),
        (
            with_parameters(forward("shuffle"), group_size=0),
            f"group_size of shuffle is 0: give a whole number from 1 to {NO_LIMIT}",
        ),
        (with_parameters(forward("concat"), axis=4), "axis of concat is 4: give a whole number from 0 to 3"),
        (with_parameters(SOFTMAX, axis=-1), "axis of softmax is -1: give a whole number from 0 to 3"),
        (with_parameters(forward("eltwise"), alpha="1"), "alpha of eltwise is '1': give a number"),
        (with_parameters(forward("sum"), scales=(1.0,)), "scales of sum is (1.0,): give 2 numbers"),
        (
            with_parameters(forward("resampling"), factors=(1.0, "2")),
            "factors of resampling is (1.0, '2'): give numbers",
        ),
        (
            with_parameters(forward("batch_normalization"), flags=frozenset({"fast"})),
            "flags of batch_normalization is frozenset({'fast'}): give a frozenset of use_global_stats, use_scale, "
            "use_shift, fuse_norm_relu, fuse_norm_add_relu, rms_norm",
        ),
        (
            with_parameters(forward("lstm"), direction="up"),
            "direction has no algorithm 'up': it has left2right, right2left, concat, sum",
        ),
        (
            with_descs(SOFTMAX, dst=MemoryDesc((2, 18, 8, 6), "f32", "acdb")),
            "dst of softmax has dims (2, 18, 8, 6), src (2, 18, 8, 7): give both the same",
        ),
        (
            with_descs(SOFTMAX, src=MemoryDesc((2, 18, 8, 7), "f32", "any")),
            "{name} refuses the arguments of softmax forward_training, src f32::any:any::f0 2x18x8x7, dst "
            "f32::any:any::f0 2x18x8x7, algorithm='accurate', axis=1",
        ),
        (
            with_descs(forward("batch_normalization"), mean=MemoryDesc((17,), "f32")),
            "mean of batch_normalization forward_training is MemoryDesc((17,), 'f32', 'a'), but the primitive takes "
            "MemoryDesc((18,), 'f32', 'a'): describe it so, or leave it out",
        ),
    ],
)
def test_what_the_library_would_trip_over_is_refused_before(
    engine: OnednnEngine, operation: Operation, text: str
) -> None:
    assert refusal(engine, operation) == text.replace("{name}", engine.library.name)


def test_what_the_library_lacks_is_said(engine: OnednnEngine) -> None:
    operation = with_parameters(CONVOLUTION, algorithm="winograd")
    text = refusal(engine, operation, Unimplemented)
    assert text.startswith(f"{engine.library.name} has no implementation of convolution forward_training, src f32::any")
    free = MemoryDesc((256, 8), "f32", pattern="(m m4 m32) (k k4) -> m k m32 m4 k4")
    operation = Operation("softmax", "forward_inference", {"src": free, "dst": free}, {"algorithm": "log", "axis": 1})
    assert refusal(engine, operation, Unimplemented) == (
        f"oneDNN cannot represent the digit order of {free!r}: reorder to a format with a tag first"
    )


@pytest.mark.skipif(
    oracle.why_unavailable() is not None or oracle.version() >= (3, 13), reason="this oneDNN lacks none of it"
)
def test_what_came_later_is_said(engine: OnednnEngine) -> None:
    assert refusal(engine, forward("group_normalization"), Unimplemented) == "oneDNN 3.2.0 has no group normalization"
    binary = with_descs(forward("binary"), src_2=MemoryDesc((2, 18, 8, 7), "s8"))
    assert refusal(engine, binary, Unimplemented) == "oneDNN 3.2.0 has no binary algorithm select"
    grouped = PrimitiveAttributes(scales={"weights": Scales(mask=0b11, groups=(17, 1))})
    assert refusal(engine, replace(forward("matmul"), attributes=grouped), Unimplemented) == (
        "oneDNN 3.2.0 has no scales of weights in groups"
    )
    rms = with_parameters(forward("layer_normalization"), flags=frozenset({"rms_norm"}))
    assert refusal(engine, rms, Unimplemented) == "oneDNN 3.2.0 has no root mean square normalization"


def test_what_no_version_does_right_is_said(engine: OnednnEngine) -> None:
    name = engine.library.name
    assert refusal(engine, forward("augru"), Unimplemented) == (f"{name} has no correct gradients of augru")
    assert refusal(engine, with_parameters(forward("lrn"), local_size=1), Unimplemented) == (
        f"{name} has no safe gradient of LRN with a local_size of 1"
    )
    empty = {desc: MemoryDesc(d.dims, "f32") for desc, d in forward("prelu").descs.items()}
    empty |= {"src": MemoryDesc((0, 18, 8, 7), "f32"), "dst": MemoryDesc((0, 18, 8, 7), "f32")}
    assert refusal(engine, replace(forward("prelu"), descs=empty), Unimplemented) == (
        f"{name} has no safe PReLU of tensors without elements"
    )


# Hints


@pytest.mark.parametrize("kind", [kind for kind in KINDS if directions(kind) and kind not in SOMETIMES_LACKING])
def test_no_way_back_without_a_hint(engine: OnednnEngine, kind: str) -> None:
    for direction in directions(kind):
        hint = reference.make_engine().create(forward(kind))
        operation = backward(hint, direction)
        assert refusal(engine, operation, Unimplemented).startswith(
            f"the hint of {kind} {operation.prop_kind} is of another engine, whose formats and workspace "
        )
        assert refusal(engine, replace(operation, hint=None)) == (
            f"{kind} {operation.prop_kind} needs its forward primitive as hint: create that with forward_training first"
        )


def test_a_hint_is_of_the_same_kind_and_dims(engine: OnednnEngine) -> None:
    hint = engine.create(forward("pooling"))
    operation = backward(hint, "backward")
    other = engine.create(forward("lrn"))
    assert refusal(engine, replace(operation, hint=other)) == (
        "the hint of pooling backward is lrn forward_training: give the forward primitive of the same kind"
    )
    smaller = MemoryDesc((2, 18, 8, 6), "f32", "any")
    assert refusal(engine, with_descs(operation, diff_src=smaller)) == (
        "diff_src of pooling backward has dims (2, 18, 8, 6), its forward primitive was created for (2, 18, 8, 7): a "
        "gradient has the dims of what it belongs to"
    )
    assert refusal(engine, with_descs(operation, diff_dst=None)) == (
        "pooling backward lacks diff_dst: describe it, by a format or any"
    )
    inference = engine.create(forward("pooling", "forward_inference"))
    with pytest.raises(InlayError, match="pooling backward"):
        engine.create(replace(operation, hint=inference))


def test_another_library_of_the_same_engine_is_another_engine(engine: OnednnEngine) -> None:
    hint = make_engine().create(forward("pooling"))
    assert refusal(engine, backward(hint, "backward"), Unimplemented) == (
        f"the hint of pooling backward is of another engine, whose formats and workspace {engine.library.name} does "
        "not know"
    )


# Executions


def test_memories_are_those_of_the_arguments(engine: OnednnEngine) -> None:
    implementation = engine.create(SOFTMAX)
    memories = {name: Memory(desc) for name, desc in implementation.descs.items()}
    for given, text in (
        ({"src": memories["src"]}, "dst is missing"),
        ({**memories, "weights": memories["src"]}, "there is no weights"),
        ({}, "src is missing"),
    ):
        with pytest.raises(InvalidArguments) as caught:
            implementation.bind(given)
        assert str(caught.value) == f"memories of softmax forward_training: {text}; it takes src, dst"


def test_a_post_operation_that_is_none_is_named(engine: OnednnEngine) -> None:
    attributes = PrimitiveAttributes(post_ops=(EltwisePostOp("sine"),))
    text = refusal(engine, replace(CONVOLUTION, attributes=attributes))
    assert text.startswith("eltwise has no algorithm 'sine': it has relu, tanh, elu, square")


def test_scales_of_an_argument_that_is_none_are_named(engine: OnednnEngine) -> None:
    attributes = PrimitiveAttributes(scales={"nose": Scales()})
    assert refusal(engine, replace(CONVOLUTION, attributes=attributes)) == (
        "convolution has no argument 'nose' in oneDNN: the names are those of its signature"
    )


def test_an_opaque_format_of_another_engine_is_named(engine: OnednnEngine) -> None:
    opaque = MemoryDesc.from_json(
        '{"inlay":"memory_desc","version":1,"kind":"opaque","dims":[2,18,8,7],"data_type":"f32","name":"x","nbytes":9}'
    )
    assert refusal(engine, with_descs(SOFTMAX, src=opaque), Unimplemented) == (
        f"the opaque format x of dims (2, 18, 8, 7) was not created by this {engine.library.name}: only the engine "
        "that created it can read it, in the same process"
    )


# Operations at random, in a process of their own, which must live


def run_spoiled(seed: int, count: int) -> Mapping[str, int]:
    seen: Mapping[str, int] = json.loads(
        run_python("-m", "tests.support.spoiled_operations", str(seed), str(count)).stdout
    )
    return seen


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


def test_nothing_above_is_written_to_the_memories_of_others(engine: OnednnEngine) -> None:
    """A refused bind leaves memory as it was, and the next one works."""
    implementation = engine.create(SOFTMAX)
    memories = {name: Memory(desc) for name, desc in implementation.descs.items()}
    memories["dst"].buffer[:] = 7
    with pytest.raises(InvalidArguments):
        implementation.bind({"dst": memories["dst"]})
    assert (memories["dst"].buffer == 7).all()
    implementation.bind(memories)()
    np.testing.assert_allclose(memories["dst"].unpack(), 1 / 18, rtol=1e-6)
