"""Five chains of primitives from the specification: only primitives that multiply by weights need reorders.

A chain is built as in "Memory format propagation": compute-intensive primitives with `any`, the others for the format
of the previous result. `Chain.feed` reorders memory to the format of an argument, and records each reorder. It is
needed only if a compute-intensive primitive chose another format than its source has. The results are compared with
those of the reference engine, which needs no reorder.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.memory import Memory, pack, reorder
from inlay.primitives.primitive import Primitive
from tests.oracles import onednn as oracle
from tests.support.primitive_runs import distinct, unpack_any

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))
Array = npt.NDArray[np.float64]


def any_of(*dims: int) -> MemoryDesc:
    return MemoryDesc(dims, "f32", "any")


class Chain:
    """Primitives of one engine, and the reorders between them."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.reorders: list[str] = []
        self.between: list[str] = []

    def data(self, name: str, desc: MemoryDesc) -> Memory:
        """Return a random tensor in a format; weights do not count as reorders."""
        return pack(distinct(np.random.default_rng([*name.encode()]), desc), desc)

    def image(self, *dims: int) -> Memory:
        """Return the row-major input of the network."""
        return self.data("image", MemoryDesc(dims, "f32"))

    def feed(self, memory: Memory, primitive: Primitive, name: str = "src") -> Memory:
        """Return the memory in the format of an argument, and record the reorder."""
        wanted = primitive.desc(name)
        if memory.desc == wanted:
            return memory
        self.reorders.append(f"{type(primitive).__name__}.{name}")
        if memory.desc.tag != "abcd"[: memory.desc.ndims]:
            self.between.append(self.reorders[-1])
        return reorder(memory, wanted)

    def conv(self, memory: Memory, outputs: int, kernel: int = 3, name: str = "conv", train: bool = False) -> "Step":
        """Run a convolution that preserves the size of the image."""
        dims = memory.desc.dims
        primitive = p.Convolution(
            any_of(*dims),
            any_of(outputs, dims[1], kernel, kernel),
            padding_l=kernel // 2,
            prop_kind="forward_training" if train else "forward_inference",
            engine=self.engine,
        )
        src = self.feed(memory, primitive)
        weights = self.data(name, primitive.weights_desc)
        return Step(primitive, src, primitive(src=src, weights=weights), weights)

    def relu(self, memory: Memory) -> Memory:
        """Run a ReLU in the format of its source."""
        primitive = p.Eltwise(memory.desc, algorithm="relu", engine=self.engine)
        result: Memory = primitive(src=self.feed(memory, primitive))
        return result


@dataclass
class Step:
    """A convolution with its memories."""

    primitive: Primitive
    src: Memory
    dst: Memory
    weights: Memory


def conv_relu_pool_conv(chain: Chain) -> list[Memory]:
    first = chain.relu(chain.conv(chain.image(2, 32, 12, 12), 64).dst)
    pool = p.Pooling(first.desc, algorithm="max", kernel=2, strides=2, engine=chain.engine)
    return [chain.conv(pool(src=chain.feed(first, pool)), 32, name="second").dst]


def conv_bn_conv_in_training(chain: Chain) -> list[Memory]:
    one = chain.conv(chain.image(2, 32, 10, 10), 48, train=True)
    norm = p.BatchNormalization(one.dst.desc, epsilon=1e-3, prop_kind="forward_training", engine=chain.engine)
    kept = norm(src=chain.feed(one.dst, norm))
    two = chain.conv(kept["dst"], 32, name="second", train=True)
    back = p.ConvolutionBackwardData(hint_forward=two.primitive)
    gradient = chain.data("gradient", back.diff_dst_desc)
    arriving = back(diff_dst=gradient, weights=reorder(two.weights, back.weights_desc))
    back_norm = p.BatchNormalizationBackward(arriving.desc, hint_forward=norm)
    statistics = {"mean": kept["mean"], "variance": kept["variance"]}
    inner = back_norm(src=one.dst, diff_dst=chain.feed(arriving, back_norm, "diff_dst"), **statistics)
    last = p.ConvolutionBackwardWeights(hint_forward=one.primitive)
    src, diff_dst = chain.feed(one.src, last), chain.feed(inner, last, "diff_dst")
    return [two.dst, inner, last(src=src, diff_dst=diff_dst)]


def inner_product_after_pooling(chain: Chain) -> list[Memory]:
    image = chain.conv(chain.image(2, 32, 8, 8), 64).dst
    pool = p.Pooling(image.desc, algorithm="avg_exclude_padding", kernel=4, strides=4, engine=chain.engine)
    pooled = pool(src=chain.feed(image, pool))
    dense = p.InnerProduct(any_of(*pooled.desc.dims), any_of(10, *pooled.desc.dims[1:]), engine=chain.engine)
    weights = chain.data("dense", dense.weights_desc)
    return [dense(src=chain.feed(pooled, dense), weights=weights)]


def concat_of_convs(chain: Chain) -> list[Memory]:
    image = chain.conv(chain.image(2, 32, 9, 9), 32, name="stem").dst
    parts = [chain.conv(image, 16 * i, kernel=2 * i - 1, name=f"branch {i}").dst for i in (1, 2)]
    joined = p.Concat([part.desc for part in parts], axis=1, engine=chain.engine)
    fed = [chain.feed(part, joined, f"src_{i}") for i, part in enumerate(parts)]
    return [chain.conv(joined(srcs=fed), 32, name="after").dst]


def residual_sum(chain: Chain) -> list[Memory]:
    image = chain.conv(chain.image(2, 32, 9, 9), 32, name="stem").dst
    inner = chain.relu(chain.conv(image, 32, name="one").dst)
    outer = chain.conv(inner, 32, name="two").dst
    both = p.Sum([outer.desc, image.desc], engine=chain.engine)
    total = both(srcs=[chain.feed(outer, both, "src_0"), chain.feed(image, both, "src_1")])
    return [chain.conv(chain.relu(total), 32, name="after").dst]


CHAINS: tuple[Callable[[Chain], list[Memory]], ...] = (
    conv_relu_pool_conv,
    conv_bn_conv_in_training,
    inner_product_after_pooling,
    concat_of_convs,
    residual_sum,
)


FORCED = {"inner_product_after_pooling": ["InnerProduct.src"]}
"""Reorders between primitives with oneDNN 3.2 and AVX-512: an inner product of several pixels needs one."""
needs_onednn_3_2 = pytest.mark.skipif(
    oracle.why_unavailable() is not None or oracle.version() != (3, 2) or not oracle.isa() & oracle.AVX512,
    reason="formats that oneDNN 3.2 chooses with AVX-512",
)


@pytest.mark.parametrize("chain", CHAINS)
def test_the_reference_needs_no_reorder(chain: Callable[[Chain], list[Memory]]) -> None:
    run = Chain("reference")
    assert all(np.isfinite(unpack_any(memory)).all() for memory in chain(run))
    assert run.reorders == []


@needs_onednn
@pytest.mark.parametrize("chain", CHAINS)
def test_only_primitives_with_weights_need_reorders(chain: Callable[[Chain], list[Memory]]) -> None:
    run = Chain("onednn")
    results = chain(run)
    with_weights = ("Convolution", "InnerProduct", "ConvolutionBackwardData", "ConvolutionBackwardWeights")
    assert {place.split(".")[0] for place in run.reorders} <= set(with_weights)
    expected = [unpack_any(memory) for memory in chain(Chain("reference"))]
    for found, wanted in zip(map(unpack_any, results), expected, strict=True):
        assert np.abs(found - wanted).max() <= 5e-5 * max(1.0, float(np.abs(wanted).max()))


@needs_onednn_3_2
@pytest.mark.parametrize("chain", CHAINS)
def test_the_number_of_reorders_with_onednn_3_2(chain: Callable[[Chain], list[Memory]]) -> None:
    run = Chain("onednn")
    chain(run)
    assert run.between == FORCED.get(chain.__name__, [])
    assert run.reorders == ["Convolution.src", *run.between]  # the image itself, first


@needs_onednn_3_2
def test_a_stem_of_three_channels_needs_one_reorder_with_onednn_3_2() -> None:
    run = Chain("onednn")
    stem = run.conv(run.image(1, 3, 16, 16), 64)
    run.conv(run.relu(stem.dst), 64, name="second")
    assert (stem.dst.desc.tag, run.between) == ("aBcd16b", ["Convolution.src"])


def test_a_reorder_is_recorded() -> None:
    run = Chain("reference")
    turned = run.data("image", MemoryDesc((1, 4, 3, 3), "f32", "nhwc"))
    pool = p.Pooling(MemoryDesc((1, 4, 3, 3), "f32", "nchw"), algorithm="max", kernel=3, engine="reference")
    run.feed(turned, pool)
    assert run.between == ["Pooling.src"]
