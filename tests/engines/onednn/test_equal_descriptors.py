"""Equal descriptors give equal primitives, independent of earlier calls and of the strides of unit axes."""

import json
import os
from itertools import permutations

import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import OnednnEngine, load_library
from inlay.engines.onednn.creation import canonical_descs, implementation_name, kernel_rank
from inlay.engines.onednn.descs import DescriptorTable
from inlay.graph.costs.kernel_models import channel_layout
from inlay.graph.costs.timing_records import desc_text
from inlay.layout import Layout
from inlay.testing import draw_any_descriptor
from inlay.testing.choices import Seeded
from tests.oracles import onednn as oracle
from tests.support.processes import run_python

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))


@needs_onednn
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each history is a fork")
@pytest.mark.parametrize(
    ("count", "seed"), [(6, 0), pytest.param(500, 100, marks=(pytest.mark.heavy, pytest.mark.long))]
)
def test_shuffled_histories_give_identical_primitives(count: int, seed: int) -> None:
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = run_python("-m", "tests.support.process_histories", str(count), str(seed), timeout=900, **settings)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == count
    for name, primitive in found[0].items():
        assert all(other[name] == primitive for other in found), name


@needs_onednn
@pytest.mark.parametrize("dims", [(1, 1, 28, 28), (4, 64, 1, 1), (2, 1, 8, 8), (1, 17, 1, 1)])
@pytest.mark.parametrize("tag", ["nchw", "nhwc", "nChw16c"])
def test_every_stride_variant_gets_the_best_kernel(engine: OnednnEngine, dims: tuple[int, ...], tag: str) -> None:
    weights = MemoryDesc((16, dims[1], 1, 1), "f32", "any")
    dst = MemoryDesc((dims[0], 16, *dims[2:]), "f32", tag)
    sources = [MemoryDesc(dims, "f32", "".join(order)) for order in permutations("abcd")]
    equal = [src for src in sources if src == MemoryDesc(dims, "f32")]
    names = {p.Convolution(src, weights, dst=dst, engine="onednn").impl for src in equal}
    assert len(names) == 1
    for src in equal:
        operation = p.Convolution(src, weights, dst=dst, engine="reference").operation
        alone = implementation_name(engine.library, engine.create_primitive_desc(operation, None))
        assert min(map(kernel_rank, names)) <= kernel_rank(alone)


@pytest.mark.parametrize(
    ("dims", "tag", "row_major", "channels_last"),
    [
        ((1, 1, 28, 28), "nhwc", (784, 784, 28, 1), (784, 1, 28, 1)),
        ((4, 64, 1, 1), "nchw", (64, 1, 1, 1), (64, 1, 64, 64)),
        ((1, 8, 1, 1), "nChw8c", (8, 8, 8, 8), (8, 8, 8, 8)),
        ((1, 1, 8, 4), "abdc", (32, 32, 1, 8), (32, 1, 1, 8)),
        ((5, 1), "ba", (1, 1), (1, 1)),
    ],
)
def test_both_stride_variants_have_the_strides_of_tags(
    dims: tuple[int, ...], tag: str, row_major: tuple[int, ...], channels_last: tuple[int, ...]
) -> None:
    both = canonical_descs(MemoryDesc(dims, "f32", tag))
    assert both is not None
    assert [desc.strides for desc in both] == [row_major, channels_last]


def test_stride_variants_are_equal_and_depend_on_equality_alone() -> None:
    choose, changed = Seeded(14), 0
    for _ in range(2000):
        desc = draw_any_descriptor(choose)
        both = canonical_descs.__wrapped__(desc)
        if both is None:
            continue
        other = _with_other_unit_strides(desc)
        again = canonical_descs.__wrapped__(other)
        assert again is not None
        assert both[0] == both[1] == desc == other
        assert [one.strides for one in both] == [one.strides for one in again]
        changed += other.strides != desc.strides
    assert changed > 100


def _with_other_unit_strides(desc: MemoryDesc) -> MemoryDesc:
    layout, data_type = desc.require_layout("test")
    axes = tuple(
        type(axis)(axis.stride + 7, axis.inner) if dim == padded == 1 else axis
        for dim, padded, axis in zip(desc.dims, layout.dims, layout.axes, strict=True)
    )
    return MemoryDesc.from_layout(
        Layout(layout.dims, axes), data_type, dims=desc.dims, offset0=desc.offset0, extras=desc.extras
    )


@needs_onednn
def test_handles_have_the_strides_of_their_descriptor() -> None:
    descriptors = DescriptorTable(load_library())
    tags = [MemoryDesc((2, 1, 4, 4), "f32", tag) for tag in ("nchw", "nhwc", "nchw")]
    for desc in tags:
        assert descriptors.read(descriptors.convert(desc).pointer).strides == desc.strides
    for desc in tags:
        handle = descriptors.handle(desc)
        assert descriptors.read(handle.value, MemoryDesc(desc.dims, "f32", "any")).strides == desc.strides


def test_what_costs_ask_of_formats_depends_on_their_spelling_alone() -> None:
    first, last = (MemoryDesc((2, 1, 6, 6), "f32", tag) for tag in ("nchw", "nhwc"))
    assert (channel_layout(first).kind, channel_layout(last).kind) == ("ncx", "nxc")
    assert [MemoryDesc.from_json(desc_text(desc)).strides for desc in (first, last)] == [first.strides, last.strides]
