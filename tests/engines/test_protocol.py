"""Every registered engine keeps the protocol: members have their declared types, `supports` agrees with `create`."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.memory import Memory, pack
from inlay.primitives import engine as engines
from inlay.primitives.engine import Batch, Engine, Implementation, Operation, Parameter, get_engine
from inlay.primitives.rules import KINDS
from tests.oracles import onednn as oracle

NAMES = tuple(engines._FACTORIES)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of each registered engine that there is on this machine."""
    found: str = request.param
    if found == "onednn" and oracle.why_unavailable() is not None:
        pytest.skip(str(oracle.why_unavailable()))
    return found


@pytest.fixture
def engine(name: str) -> Engine:
    return get_engine(name)


def is_of(value: object, declared: Any) -> bool:
    """Whether a value is of a declared type; parameters of generic types are not looked at, and a bool is no int."""
    origin = get_origin(declared)
    if origin in (Union, UnionType):
        return any(is_of(value, one) for one in get_args(declared))
    if origin is Literal:
        return value in get_args(declared)
    if declared is int:
        return type(value) is int
    kind = origin or (NoneType if declared is None else declared)
    if getattr(kind, "_is_protocol", False):
        return not missing(value, kind)
    return isinstance(value, kind)


def members(protocol: type) -> Iterator[tuple[str, Any]]:
    """The public members of a protocol: properties and methods."""
    for member, found in vars(protocol).items():
        if isinstance(found, property) or (inspect.isfunction(found) and not member.startswith("_")):
            yield member, found


def missing(value: object, protocol: type) -> list[str]:
    """Members of a protocol that a value lacks, whose type is another, or which are called otherwise."""
    wrong = []
    for member, declared in members(protocol):
        found = getattr(value, member, missing)
        if found is missing:
            wrong.append(f"{member} is missing")
        elif isinstance(declared, property):
            if not is_of(found, get_type_hints(declared.fget)["return"]):
                wrong.append(f"{member} is {found!r}")
        elif list(inspect.signature(found).parameters) != list(inspect.signature(declared).parameters)[1:]:
            wrong.append(f"{member}{inspect.signature(found)}")
    return wrong


def test_faults_of_an_engine_are_found() -> None:
    class Wrong:
        name = 3
        num_threads = True
        runtime = "omp"
        thread_team = is_asynchronous = batches_checks = propagates_special_values = None

        def create(self, problem: Operation) -> None: ...
        def supports(self, operation: Operation) -> None: ...
        def with_threads_of(self, host: Engine) -> None: ...
        def batch(self, calls: Sequence[Any]) -> None: ...

    assert missing(Wrong(), Engine) == [
        "name is 3",
        "create(problem: inlay.primitives.engine.Operation) -> None",
        "num_threads is True",
        "is_asynchronous is None",
        "batches_checks is None",
        "wait is missing",
        "propagates_special_values is None",
    ]


def test_each_member_of_the_protocol_has_its_type(name: str, engine: Engine) -> None:
    assert missing(engine, Engine) == []
    assert Engine in type(engine).__mro__
    assert get_engine(name) is engine
    assert engine.name.partition(" ")[0] == name
    assert engine.num_threads >= 0


def test_an_engine_computes_beside_each_other(engine: Engine) -> None:
    for host in NAMES:
        if host != "onednn" or oracle.why_unavailable() is None:
            beside = engine.with_threads_of(get_engine(host))
            assert missing(beside, Engine) == []
            assert beside.name == engine.name
            assert type(beside) is type(engine)


IMAGE, WEIGHTS = MemoryDesc((2, 8, 6, 6), "f32", "nchw"), MemoryDesc((8, 8, 3, 3), "f32", "any")
ROWS, SQUARE = MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((6, 6), "f32", "any")
GATES = MemoryDesc((1, 1, 6, 4, 6), "f32", "any")

PRIMITIVES: Mapping[str, Callable[..., p.Primitive]] = {
    "convolution": lambda **to: p.Convolution(IMAGE, WEIGHTS, padding_l=1, **to),
    "deconvolution": lambda **to: p.Deconvolution(IMAGE, WEIGHTS, **to),
    "inner_product": lambda **to: p.InnerProduct(ROWS, SQUARE, **to),
    "matmul": lambda **to: p.MatMul(ROWS, SQUARE, **to),
    "lstm": lambda **to: p.LSTM(MemoryDesc((5, 2, 6), "f32"), GATES, GATES, **to),
    "pooling": lambda **to: p.Pooling(IMAGE, algorithm="max", kernel=2, strides=2, **to),
    "batch_normalization": lambda **to: p.BatchNormalization(IMAGE, epsilon=1e-3, **to),
    "layer_normalization": lambda **to: p.LayerNormalization(ROWS, epsilon=1e-3, **to),
    "group_normalization": lambda **to: p.GroupNormalization(IMAGE, groups=2, epsilon=1e-3, **to),
    "lrn": lambda **to: p.LRN(IMAGE, local_size=5, alpha=1e-4, beta=0.75, **to),
    "eltwise": lambda **to: p.Eltwise(ROWS, algorithm="relu", **to),
    "shuffle": lambda **to: p.Shuffle(IMAGE, axis=1, group_size=2, **to),
    "softmax": lambda **to: p.Softmax(ROWS, axis=1, **to),
    "prelu": lambda **to: p.PReLU(IMAGE, MemoryDesc((1, 8, 1, 1), "f32", "any"), **to),
    "resampling": lambda **to: p.Resampling(IMAGE, factors=2, **to),
    "reduction": lambda **to: p.Reduction(ROWS, MemoryDesc((4, 1), "f32", "any"), algorithm="sum", **to),
    "reorder": lambda **to: p.Reorder(IMAGE, MemoryDesc(IMAGE.dims, "f32", "nhwc"), **to),
    "concat": lambda **to: p.Concat([ROWS, ROWS], axis=0, **to),
    "sum": lambda **to: p.Sum([ROWS, ROWS], **to),
    "binary": lambda **to: p.Binary(ROWS, ROWS, algorithm="add", **to),
}
"""A plain problem in f32 of each kind; of the recurrent networks LSTM alone."""


def operation(kind: str) -> Operation:
    return PRIMITIVES[kind](engine="reference").operation


def test_there_is_a_problem_of_each_kind() -> None:
    assert PRIMITIVES.keys() == set(KINDS) - {"vanilla_rnn", "gru", "lbr_gru", "augru", "lbr_augru"}
    assert all(operation(kind).kind == kind for kind in PRIMITIVES)


@pytest.mark.parametrize("kind", PRIMITIVES)
def test_supports_agrees_with_create(engine: Engine, kind: str) -> None:
    problem = operation(kind)
    if not engine.supports(problem):
        with pytest.raises(Unimplemented):
            engine.create(problem)
        return
    created = engine.create(problem)
    assert missing(created, Implementation) == []
    assert created.operation is problem
    assert created.descs.keys() >= problem.descs.keys()
    assert all(desc.kind != "any" and not desc.has_runtime for desc in created.descs.values())
    assert created.family == created.impl.partition(":")[0] != ""
    created.create_primitive()


def test_the_reference_supports_everything_and_the_others_what_they_are_for(name: str, engine: Engine) -> None:
    unsupported = {kind for kind in PRIMITIVES if not engine.supports(operation(kind))}
    if name == "onednn":
        assert unsupported <= {"group_normalization"}  # which 3.2 lacks
    else:
        assert unsupported == {"reference": set(), "inlay": PRIMITIVES.keys() - {"reorder"}}[name]


F64 = MemoryDesc((4, 6), "f64", "ab")
ELTWISE: Mapping[str, Parameter] = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
UNSUPPORTED: Mapping[str, Operation] = {
    "onednn": Operation("eltwise", "forward_inference", {"src": F64, "dst": F64}, ELTWISE),
    "inlay": Operation("eltwise", "forward_inference", {"src": ROWS, "dst": ROWS}, ELTWISE),
    "reference": Operation("reduction", "backward", {"diff_dst": ROWS, "diff_src": ROWS}),
}


def test_an_unsupported_operation_is_unimplemented(name: str, engine: Engine) -> None:
    assert not engine.supports(UNSUPPORTED[name])
    with pytest.raises(Unimplemented):
        engine.create(UNSUPPORTED[name])


@pytest.mark.parametrize("host", NAMES)
def test_winograd_needs_a_host_with_threads_to_share(host: str) -> None:
    if host == "onednn" and oracle.why_unavailable() is not None:
        pytest.skip(str(oracle.why_unavailable()))
    image, weights = MemoryDesc((1, 64, 8, 8), "f32", "any"), MemoryDesc((64, 64, 3, 3), "f32", "any")
    problem = p.Convolution(image, weights, padding_l=1, algorithm="winograd", engine="reference").operation
    engine = get_engine("inlay").with_threads_of(get_engine(host))
    if engine.supports(problem):
        assert get_engine(host).thread_team is not None
        assert missing(engine.create(problem), Implementation) == []
    else:
        with pytest.raises(Unimplemented):
            engine.create(problem)


def relu_of(name: str) -> tuple[Implementation, list[Memory], list[Memory]]:
    """An implementation of what an engine computes, a ReLU or a reorder, and memories for two calls."""
    kind = "reorder" if name == "inlay" else "eltwise"
    created = get_engine(name).create(operation(kind))
    dims = created.descs["src"].dims
    arrays = [np.random.default_rng(seed).standard_normal(dims).astype(np.float32) for seed in range(2)]
    return created, [pack(one, created.descs["src"]) for one in arrays], [Memory(created.descs["dst"]) for _ in arrays]


def test_what_is_bound_computes_alone_and_in_batches(name: str, engine: Engine) -> None:
    created, sources, results = relu_of(name)
    calls = [created.bind({"src": src, "dst": dst}) for src, dst in zip(sources, results, strict=True)]
    wanted = [src.unpack() if name == "inlay" else np.maximum(src.unpack(), 0) for src in sources]
    if created.is_batched:
        batches = engine.batch(calls)
        assert all(missing(batch, Batch) == [] for batch in batches)
        assert sum(map(len, batches)) == 2
        for batch in batches:
            batch.submit()
        engine.wait()
    else:
        assert list(engine.batch(calls)) == []
        for call in calls:
            call()
    for result, array in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result.unpack(), array)
    assert not engine.batches_checks or created.is_batched
