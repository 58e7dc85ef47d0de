"""Every registered engine keeps the protocol: members have their declared types, `supports` agrees with `create`."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
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
from tests.support.onednn_cases import forward

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
        thread_team = is_asynchronous = batches_machine_calls = propagates_special_values = None

        def create(self, problem: Operation) -> None: ...
        def supports(self, operation: Operation) -> None: ...
        def with_threads_of(self, host: Engine) -> None: ...
        def batch(self, calls: Sequence[Any]) -> None: ...

    assert missing(Wrong(), Engine) == [
        "name is 3",
        "create(problem: inlay.primitives.engine.Operation) -> None",
        "owns is missing",
        "accepts_any_contents is missing",
        "num_threads is True",
        "is_asynchronous is None",
        "batches_machine_calls is None",
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


@pytest.mark.parametrize("kind", KINDS)
def test_supports_agrees_with_create(engine: Engine, kind: str) -> None:
    problem = forward(kind, "forward_inference")
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
    unsupported = {kind for kind in KINDS if not engine.supports(forward(kind, "forward_inference"))}
    if name == "onednn":
        assert unsupported <= {"group_normalization"}  # which 3.2 lacks
    else:
        assert unsupported == {"reference": set(), "inlay": set(KINDS) - {"reorder"}}[name]


F64, ROWS = (MemoryDesc((4, 6), data_type, "ab") for data_type in ("f64", "f32"))
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


def test_what_is_bound_computes_alone_and_in_batches(name: str, engine: Engine) -> None:
    operation = forward("reorder") if name == "inlay" else UNSUPPORTED["inlay"]
    created = engine.create(operation)
    rng = np.random.default_rng(0)
    sources = [pack(rng.standard_normal(desc.dims).astype(np.float32), desc) for desc in [created.descs["src"]] * 2]
    results = [Memory(created.descs["dst"]) for _ in sources]
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
    assert not engine.batches_machine_calls or created.is_batched
