"""Operations that are spoiled at random, given to oneDNN's engine: a program, since what it looks for ends its process.

Each is one of `onednn_cases` with an argument left out or described otherwise, a parameter replaced, another hint. The
engine must compute it or say why not. What it accepts is executed on memory of its own.

    python -m tests.support.spoiled_operations SEED COUNT         counts what happened, as JSON
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import OnednnEngine, OnednnImplementation, make_engine
from inlay.errors import InlayError
from inlay.memory import Memory
from inlay.primitives.engine import Operation, Parameter
from inlay.primitives.rules import KINDS
from tests.support.onednn_cases import FORWARD, backward, directions, forward

Hints = Mapping[tuple[str, str], OnednnImplementation]

NUMBERS: tuple[Any, ...] = (0, -1, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**63, -(2**31), 1.5, float("nan"), float("inf"), "x")
TEXTS = ("direct", "max", "linear", "x", "select", "winograd", "relu_use_dst_for_bwd", "norm_lp_max", "log")
FLAGS = ("use_global_stats", "use_scale", "use_shift", "fuse_norm_relu", "fuse_norm_add_relu", "rms_norm", "x")
LARGEST = 1 << 22


def spoiled_desc(rng: random.Random, desc: MemoryDesc) -> MemoryDesc:
    """Other dims, another type, another format."""
    dims = list(desc.dims)
    match rng.randrange(6):
        case 0:
            dims[rng.randrange(len(dims))] = rng.choice((0, 1, 2, 7, 2**31, 2**40))
        case 1:
            dims = dims[:-1] or [1]
        case 2:
            dims = [*dims, rng.choice((1, 3))]
        case 3:
            dims = [1] * rng.randrange(1, 12)
    data_type = rng.choice(("f32", "f32", "bf16", "s8", "u8", "s32", "f64", "f16"))
    return MemoryDesc(dims, data_type, rng.choice(("any", None)), allow_empty=True)


def spoiled_parameter(rng: random.Random, value: Parameter) -> Any:
    """Another value, of the same type or not."""
    if isinstance(value, tuple):
        other: list[tuple[Any, ...]] = [value[:-1], (*value, 1), tuple(rng.choice(NUMBERS) for _ in value)]
        return rng.choice(other)
    if isinstance(value, frozenset):
        return frozenset(rng.sample(FLAGS, rng.randrange(4)))
    return rng.choice(TEXTS) if isinstance(value, str) else rng.choice(NUMBERS)


def spoiled(rng: random.Random, hints: Hints) -> Operation:
    """One operation, with one or two things wrong."""
    kind = rng.choice(KINDS)
    prop_kind = rng.choice(FORWARD)
    hint = hints.get((kind, prop_kind))
    ways = directions(kind)
    chosen = backward(hint, rng.choice(ways)) if hint and ways and rng.random() < 0.6 else forward(kind, prop_kind)
    descs, parameters, given = dict(chosen.descs), dict(chosen.parameters), chosen.hint
    for _ in range(rng.randint(1, 2)):
        match rng.choice(("left out", "described", "described", "told", "told", "told", "hinted")):
            case "left out" if descs:
                del descs[rng.choice(list(descs))]
            case "described" if descs:
                name = rng.choice(list(descs))
                descs[name] = spoiled_desc(rng, descs[name])
            case "told" if parameters:
                name = rng.choice(list(parameters))
                parameters[name] = spoiled_parameter(rng, parameters[name])
            case "hinted":
                given = rng.choice([None, *hints.values()])
    return Operation(kind, chosen.prop_kind, descs, parameters, hint=given)


def tried(engine: OnednnEngine, rng: random.Random, operation: Operation) -> str:
    """What happens to it."""
    try:
        implementation = engine.create(operation)
        if any(desc.size > LARGEST for desc in implementation.descs.values()):
            return "large"
        memories = {name: Memory(desc) for name, desc in implementation.descs.items()}
        for memory in memories.values():
            memory.buffer[:] = rng.choice((0, 1, 63, 255))
        implementation.bind(memories)()
    except InlayError as error:
        return type(error).__name__
    return "computed"


def main() -> None:
    """Try as many as asked for."""
    rng = random.Random(int(sys.argv[1]))
    engine = make_engine()
    hints: dict[tuple[str, str], OnednnImplementation] = {}
    for kind in KINDS:
        for prop_kind in FORWARD:
            try:
                made = engine.create(forward(kind, prop_kind))
            except InlayError:
                continue
            assert isinstance(made, OnednnImplementation)
            hints[kind, prop_kind] = made
    seen = Counter(tried(engine, rng, spoiled(rng, hints)) for _ in range(int(sys.argv[2])))
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
