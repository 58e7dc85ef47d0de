"""Running a primitive on one engine, forward and backward, and comparing the results of two engines.

A `Case` is a problem without data: a class, descriptors, parameters, and the classes of its gradients. `run` creates it
with one engine and computes on data that depend on the case only, so two engines get the same numbers in the formats
that they choose. It returns all results as logical arrays. Values are seeded and distinct, so that a wrong index gives
a wrong number.

    case = draw("convolution", seed=7)                     # of primitive_cases
    assert_close(case, run(case, "onednn"), run(case, "reference"))
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.memory import Memory, pack, reorder
from inlay.primitives import attributes as a
from inlay.primitives.primitive import Primitive

Array = npt.NDArray[Any]
Rng = np.random.Generator


POSITIVE = ("sqrt", "log", "pow")
"""Algorithms of eltwise that are defined for positive numbers."""
NAMES = {"lrn": "LRN", "matmul": "MatMul", "prelu": "PReLU"}
"""Names of classes that are not the kind in camel case."""


@dataclass(frozen=True, slots=True)
class Case:
    """A problem without data."""

    kind: str
    seed: int
    """Seed of its data."""
    descs: Mapping[str, MemoryDesc]
    """Its descriptors by argument."""
    options: Mapping[str, Any]
    """Its other arguments."""

    @property
    def forward(self) -> Callable[..., Primitive]:
        """The class."""
        return getattr(p, _class_name(self.kind))  # type: ignore[no-any-return]

    @property
    def backward(self) -> list[Callable[..., Primitive]]:
        """The classes of its gradients; none in inference."""
        if self.options.get("prop_kind") != "forward_training":
            return []
        names = [_class_name(self.kind) + suffix for suffix in ("Backward", "BackwardData", "BackwardWeights")]
        return [getattr(p, name) for name in names if hasattr(p, name)]

    @property
    def positive(self) -> set[str]:
        """Arguments whose data are positive."""
        algorithm = str(self.options.get("algorithm")).removesuffix("_use_dst_for_bwd")
        is_src_positive = (self.kind, algorithm) in (*[("eltwise", name) for name in POSITIVE], ("reduction", "mul"))
        return {"variance"} | ({"src"} if is_src_positive else set()) | ({"src_1"} if self.kind == "binary" else set())

    def create(self, engine: Any, **changed: Any) -> Primitive:
        """The forward primitive of an engine; some options may be changed."""
        descs: dict[str, Any] = dict(self.descs)
        if self.kind in ("concat", "sum"):
            descs = {"srcs": [desc for name, desc in descs.items() if name != "dst"], "dst": descs.get("dst")}
        return self.forward(**descs, **{**self.options, **changed}, engine=engine)

    def data(self, name: str, desc: MemoryDesc) -> Array:
        """The logical array of an argument: drawn from the seed and the name."""
        rng = np.random.default_rng([self.seed, *name.encode()])
        found = distinct(rng, desc, positive=name in self.positive)
        # Without VNNI the library halves such weights: odd ones would lose half of a unit.
        is_halved = name == "weights" and str(desc.data_type) == "s8"
        return 2 * np.trunc(found / 2) if is_halved else found


def _class_name(kind: str) -> str:
    return NAMES.get(kind, kind.title().replace("_", ""))


def distinct(rng: Rng, desc: MemoryDesc, *, positive: bool = False) -> Array:
    """An array of the dims of `desc`: different numbers between -1 and 1, or 0.5 and 1.5, or small integers."""
    count = int(np.prod(desc.dims, dtype=np.int64))
    assert desc.data_type is not None
    if desc.data_type.kind != "float":
        low = 1 if positive else max(-40, int(desc.data_type.lowest))
        return rng.integers(low, 41, desc.dims).astype(np.float32)
    spread = (2.0 * rng.permutation(count) + 0.5 - count) / max(count, 1)
    return (spread / 2 + 1 if positive else spread).reshape(desc.dims).astype(np.float32)


# Running a case


def run(case: Case, engine: Any, *, backward: bool = True) -> dict[str, Array]:
    """Every result of the case, forward and backward, as logical f64 arrays by name."""
    primitive = case.create(engine)
    inputs = {name: case.data(name, primitive.desc(name)) for name in _reads(primitive)}
    given = {name: pack_any(array, primitive.desc(name)) for name, array in inputs.items()}
    if any(isinstance(post_op, a.SumPostOp) for post_op in primitive.attributes.post_ops):
        given["dst"] = pack_any(case.data("dst", primitive.dst_desc), primitive.dst_desc)
    written = results_by_name(primitive, primitive(**given))
    results = {name: unpack_any(memory) for name, memory in written.items() if name != "workspace"}
    if backward:
        for kind in case.backward:
            results |= run_backward(case, kind, primitive, {**given, **written})
    return results


def run_backward(
    case: Case, kind: Callable[..., Primitive], hint: Primitive, kept: Mapping[str, Memory]
) -> dict[str, Array]:
    """Every result of one gradient, where `kept` are the memories of forward."""
    gradient = kind(hint_forward=hint)
    given = {}
    for name in _reads(gradient):
        desc = gradient.desc(name)
        if name.startswith("diff_"):
            given[name] = pack_any(case.data(name, desc), desc)
        else:
            given[name] = kept[name] if kept[name].desc == desc else reorder(kept[name], desc)
    written = results_by_name(gradient, gradient(**given))
    return {name: unpack_any(memory) for name, memory in written.items()}


def _reads(primitive: Primitive) -> list[str]:
    written = {*primitive.operation.signature.writes, "scratchpad"}
    statistics = {"mean", "variance"} if "use_global_stats" in _flags(primitive) else set()
    is_forward = primitive.operation.direction == "forward"
    return [
        name
        for name in primitive.arguments
        if name not in written or name in statistics or (name == "workspace" and not is_forward)
    ]


def _flags(primitive: Primitive) -> Any:
    return primitive.operation.parameters.get("flags", ())


def results_by_name(primitive: Primitive, result: Any) -> dict[str, Memory]:
    """Return the result of a call as a mapping, also if it is one memory."""
    if not isinstance(result, Memory):
        return dict(result)
    (name,) = (n for n in primitive.arguments if primitive.desc(n) is result.desc and n in _writes(primitive))
    return {name: result}


def _writes(primitive: Primitive) -> tuple[str, ...]:
    return tuple(name for name in primitive.operation.signature.writes if name in primitive.arguments)


def pack_any(array: Array, desc: MemoryDesc) -> Memory:
    """The array as memory of `desc`, an opaque one too."""
    if desc.kind != "opaque":
        return pack(array, desc)
    plain = pack(array, MemoryDesc(desc.dims, desc.data_type))
    result: Memory = p.Reorder(plain.desc, desc)(src=plain)
    return result


def unpack_any(memory: Memory) -> Array:
    """The logical array of a memory, an opaque one too, in f64."""
    if memory.desc.kind == "opaque":
        memory = p.Reorder(memory.desc, MemoryDesc(memory.desc.dims, memory.desc.data_type))(src=memory)
    return memory.unpack().astype(np.float64)


# Comparing

BOUNDS = {"f64": 1e-12, "f32": 2e-5, "bf16": 2.0**-6, "f16": 2.0**-9, "f8_e5m2": 0.3, "f8_e4m3": 0.15}
"""Largest difference of results, as a share of the largest result; from rounding, and from sums in another order."""

SINGLE = 2.0**-17
"""The same bound of f32, as a share of the largest result or of 1, the largest number of the data."""


def bound_of(case: Case) -> float:
    """The bound for the least exact type of the case; integers may differ by one where a tie is rounded."""
    types = [str(desc.data_type) for desc in case.descs.values()]
    return max((BOUNDS.get(name, 0.0) for name in types), default=0.0) or 1.0 / 40


def assert_close(case: Case, ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> None:
    """Compare two results within the bound of the case."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        found = ours[name]
        assert found.shape == expected.shape, (case, name)
        if not expected.size:
            continue
        largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
        limit = bound_of(case) * max(largest, 1e-3)
        if bound_of(case) == BOUNDS["f32"]:
            limit = min(limit, SINGLE * max(largest, 1.0))
        off = np.abs(found - expected)
        off[(found == expected) | (np.isnan(found) & np.isnan(expected))] = 0
        assert float(off.max()) <= limit, (case, name, float(off.max()), largest)
