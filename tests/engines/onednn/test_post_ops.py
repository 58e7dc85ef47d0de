"""Post-operations of oneDNN are the reference engine's, in every format, or they are declined."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.memory import pack
from inlay.primitives.attributes import PLAIN, BinaryPostOp, EltwisePostOp, PostOp, PrimitiveAttributes, SumPostOp
from inlay.primitives.engine import Engine, Operation, get_engine
from tests.oracles import onednn as oracle

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

FORMATS = ("ab", "ba", "acb", "aBc8b", "abcd", "acdb", "aBcd16b", "acdeb", "abcdef")
RELU, TANH = EltwisePostOp("relu", 0.0, 0.0), EltwisePostOp("tanh", 0.0, 0.0)
FUNCTION = {"algorithm": "tanh", "alpha": 0.0, "beta": 0.0}
LRN = {"algorithm": "across_channels", "local_size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0}
STATISTICS = {"epsilon": 1e-5, "flags": frozenset(("use_global_stats",))}

Case = tuple[dict[str, MemoryDesc], Mapping[str, Any]]


def dims_of(tag: str, channels: int) -> tuple[int, ...]:
    return (2, channels, *(3,) * (len({c for c in tag.lower() if c.isalpha()}) - 2))


def cases(tag: str, channels: int) -> dict[str, Case]:
    """Operations by kind, whose images have this format."""
    dims = dims_of(tag, channels)
    image, spatial = MemoryDesc(dims, "f32", tag), len(dims) - 2
    both, each = {"src": image, "dst": image}, MemoryDesc((channels,), "f32")
    found: dict[str, Case] = {
        "eltwise": (both, FUNCTION),
        "binary": ({"src_0": image, "src_1": image, "dst": image}, {"algorithm": "add"}),
        "softmax": (both, {"algorithm": "accurate", "axis": 1}),
        "batch_normalization": ({**both, "mean": each, "variance": each}, STATISTICS),
        "lrn": (both, LRN),
    }
    if 1 <= spatial <= 3:
        numbers = {"strides": 1, "dilations": 0, "padding_l": 1, "padding_r": 1}
        window = {name: (n,) * spatial for name, n in numbers.items()}
        larger = MemoryDesc((*dims[:2], *(6,) * spatial), "f32", tag)
        found["pooling"] = (both, {"algorithm": "max", "kernel": (3,) * spatial, **window})
        found["resampling"] = ({"src": image, "dst": larger}, {"algorithm": "nearest", "factors": (2.0,) * spatial})
        weights = MemoryDesc((16, channels, *(3,) * spatial), "f32")
        image = MemoryDesc((2, 16, *dims[2:]), "f32", tag)
        found["convolution"] = ({**both, "weights": weights, "dst": image}, {"algorithm": "direct", **window})
    return found


def post_ops(dst: MemoryDesc) -> Iterator[tuple[PostOp, ...]]:
    dims, last = dst.dims, len(dst.dims) - 1
    yield from (
        (),
        (TANH,),
        (SumPostOp(),),
        (RELU, SumPostOp()),
        (BinaryPostOp("add", dst),),
        (BinaryPostOp("mul", MemoryDesc(dims, "f32")),),
    )
    for axes in ({1}, set(), {last}, set(range(2, last + 1)), {0, 1}):
        yield (BinaryPostOp("mul", MemoryDesc(tuple(n if i in axes else 1 for i, n in enumerate(dims)), "f32")),)


def computed(engine: Engine, operation: Operation) -> np.ndarray[Any, Any] | None:
    """The result, or None where the engine declines; what it reads follows from the dims alone."""
    try:
        implementation = engine.create(operation)
    except Unimplemented:
        return None
    rng = np.random.default_rng(7)
    memories = {
        name: pack(rng.uniform(0.5, 1.5, desc.dims).astype(np.float32), desc)
        for name, desc in implementation.descs.items()
    }
    implementation.bind(memories)()
    return memories["dst"].unpack()


@pytest.mark.parametrize(
    ("tag", "channels"), [(tag, n) for tag in FORMATS for n in (16, 5) if n == 16 or "B" not in tag]
)
def test_post_operations_are_those_of_the_reference_or_declined(tag: str, channels: int) -> None:
    count = 0
    for kind, (descs, parameters) in cases(tag, channels).items():
        for chain in post_ops(descs["dst"]):
            attributes = PrimitiveAttributes(post_ops=chain) if chain else PLAIN
            operation = Operation(kind, "forward_inference", descs, parameters, attributes)
            found = computed(get_engine("onednn"), operation)
            if found is not None:
                count += 1
                expected = computed(get_engine("reference"), operation)
                assert expected is not None
                np.testing.assert_allclose(found, expected, 1e-3, 1e-4, err_msg=f"{kind} {descs['dst']!r} {chain}")
    assert count >= 20
