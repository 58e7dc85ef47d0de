"""What operations cost by a model: their work, the formats that suit them, and the cliffs beside those."""

from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pytest

from inlay import MemoryDesc
from inlay.graph.costs import AnalyticCosts, Costs, KernelEstimate, Machine, analytic
from inlay.graph.costs import machine as machine_module
from inlay.graph.costs.instruction_sets import ISAS, host_isa
from inlay.graph.costs.kernel_models import OVERHEAD, arithmetic_type, channel_layout
from inlay.graph.costs.machine import Workload, read_figures, this_machine, workload
from inlay.graph.costs.timing_records import operation_key, operation_text
from inlay.graph.network import Subgraph, Tensor
from inlay.graph.op_graph import Op, OpGraph
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PrimitiveAttributes, SumPostOp
from inlay.primitives.engine import Operation
from tests.support.cost_cases import (
    IMAGE,
    add,
    batch_normalization,
    convolution,
    eltwise,
    excite,
    image,
    layer_normalization,
    matmul,
    max_pooling,
    mean,
    softmax,
)

WIDE = Machine("AVX512_CORE", threads=2, peak=230.0, cache_bandwidth=150.0, memory_bandwidth=40.0, cache_bytes=32 << 20)
NARROW = replace(WIDE, isa="AVX2")
OLD = replace(WIDE, isa="SSE41", peak=78.0)
NEW = replace(WIDE, isa="AVX512_CORE_BF16")
RELU = EltwisePostOp("relu")


def kernel(costs: Costs, operation: Operation) -> KernelEstimate:
    found = costs.kernel(operation)
    assert found is not None
    return found


# The content of an operation


def test_the_content_does_not_depend_on_the_order_in_which_an_operation_was_put_together() -> None:
    one = convolution("nhwc", post_ops=(SumPostOp(), RELU))
    other = replace(
        one,
        descs={name: one.descs[name] for name in reversed(list(one.descs))},
        parameters={name: one.parameters[name] for name in reversed(list(one.parameters))},
        attributes=replace(one.attributes, scratchpad_mode="user"),
    )
    assert operation_text(one) == operation_text(other)
    assert operation_key(eltwise("nchw")) == "f3280a65b5181b4b2efe7871d5b41698"


def test_the_numbers_of_a_requantization_change_nothing_and_its_functions_do() -> None:
    def ending(*functions: EltwisePostOp | SumPostOp) -> str:
        return operation_text(convolution("nhwc", post_ops=functions))

    one = ending(EltwisePostOp("linear", 0.25, 3.0), EltwisePostOp("clip", 0.0, 255.0))
    other = ending(EltwisePostOp("linear", 0.5, -7.0), EltwisePostOp("clip", -128.0, 127.0))
    assert one == other
    assert len({one, ending(EltwisePostOp("linear", 0.25, 3.0)), ending(RELU), ending(EltwisePostOp("relu", 0.1))}) == 4
    assert ending(SumPostOp(0.3)) == ending(SumPostOp(0.7)) != ending(SumPostOp())


@pytest.mark.parametrize(
    "other",
    [
        convolution("nhwc", kernel=1),
        convolution("nchw"),
        convolution("nhwc", "nchw"),
        convolution("nhwc", batch=2),
        *(convolution("nhwc", post_ops=(SumPostOp(scale),)) for scale in (0.5, 1.0)),
        *(convolution("nhwc", post_ops=(BinaryPostOp("add", image(tag)),)) for tag in ("nhwc", "nchw")),
        convolution("nhwc", post_ops=(RELU,)),
        replace(convolution("nhwc"), prop_kind="forward_training"),
        replace(convolution("nhwc"), attributes=PrimitiveAttributes(fpmath_mode="bf16")),
    ],
)
def test_whatever_changes_the_kernel_changes_the_content(other: Operation) -> None:
    cases = [convolution("nhwc"), convolution("nhwc", post_ops=(SumPostOp(), RELU)), other]
    assert len({operation_key(case) for case in cases}) == 3


# Workload


def test_a_relu_costs_nothing_at_the_end_of_winograds_convolution_and_another_function_does() -> None:
    direct = convolution("nhwc")
    one = replace(direct, parameters={**direct.parameters, "algorithm": "winograd"})
    ends = [PrimitiveAttributes(post_ops=(function,)) for function in (RELU, EltwisePostOp("tanh"))]
    relu, tanh = (replace(one, attributes=end) for end in ends)
    assert operation_text(relu) == operation_text(one) != operation_text(tanh)
    assert operation_text(replace(direct, attributes=ends[0])) != operation_text(direct)


@pytest.mark.parametrize(
    ("operation", "flops"),
    [
        (convolution(channels=(64, 256), kernel=1, size=56), 2 * 56 * 56 * 256 * 64),
        (convolution(channels=(64, 64), groups=64), 2 * 28 * 28 * 64 * 9),
        (convolution(channels=(48, 96), groups=4, batch=3), 2 * 3 * 28 * 28 * 96 * 12 * 9),
        (convolution(channels=(16, 16), post_ops=(RELU, SumPostOp())), 2 * 784 * 16 * 16 * 9 + 2 * 784 * 16),
        (matmul(5, 7, 11), 2 * 5 * 7 * 11),
        (eltwise("nchw"), 2 * 64 * 784),
        (eltwise("nchw", "tanh"), 20 * 2 * 64 * 784),
        (max_pooling("nhwc"), 4 * 2 * 64 * 14 * 14),
    ],
)
def test_arithmetic_is_counted(operation: Operation, flops: int) -> None:
    assert workload(operation).flops == flops


def test_a_deconvolution_does_the_arithmetic_of_the_convolution_that_it_turns_round() -> None:
    descs = {
        "src": image("any", (1, 24, 7, 7)),
        "weights": MemoryDesc((2, 6, 12, 2, 2), "f32", "any"),
        "dst": image("any", (1, 12, 14, 14)),
    }
    assert workload(Operation("deconvolution", "forward_inference", descs)).flops == 2 * 7 * 7 * 24 * 6 * 4


def test_a_recurrent_network_multiplies_by_its_weights_in_each_step() -> None:
    descs = dict.fromkeys(("src_layer", "dst_layer"), MemoryDesc((50, 8, 512), "f32", "abc"))
    descs |= dict.fromkeys(("weights_layer", "weights_iter"), MemoryDesc((1, 1, 512, 4, 512), "f32", "any"))
    assert workload(Operation("lstm", "forward_inference", descs)).flops == 2 * 50 * 8 * 512 * 512 * 4 * 2


def test_bytes_are_those_of_the_formats_with_their_padding_weights_apart() -> None:
    found = workload(convolution("nChw16c", channels=(17, 33), kernel=1, size=4))
    assert found == Workload(2 * 16 * 33 * 17, (32 + 48) * 16 * 4, (33 * 17 + 33) * 4)
    fused = workload(convolution("nhwc", channels=(8, 8), kernel=1, size=4, post_ops=(SumPostOp(),)))
    assert fused.activation_bytes == 3 * 8 * 16 * 4
    batch = {name: MemoryDesc((12, 8, 8), "f32", "abc") for name in ("src", "weights", "dst")}
    assert workload(Operation("matmul", "forward_inference", batch)).weight_bytes == 0


# Cliffs


@pytest.mark.parametrize("machine", [WIDE, NARROW, OLD], ids=lambda m: m.isa)
@pytest.mark.parametrize(
    ("cliff", "fast", "moved"),
    [
        (excite("nChw16c"), excite("nchw"), ("nChw16c", "nchw")),
        *(
            (make(tag), make("nchw"), (tag, "nchw"))
            for make in (mean, partial(softmax, axis=3), layer_normalization)
            for tag in ("nhwc", "nChw16c")
        ),
        (softmax("nchw", 1), softmax("nhwc", 1), ("nchw", "nhwc")),
        (convolution("nChw16c", channels=(48, 48), groups=2), convolution("nhwc", channels=(48, 48), groups=2), None),
        (convolution("nchw", "nChw4c"), convolution("nchw"), None),
        (convolution("nhwc", "nchw"), convolution("nhwc"), None),
    ],
)
def test_a_known_cliff_is_dearer_than_a_reorder_there_and_back_and_the_fast_kernel(
    machine: Machine, cliff: Operation, fast: Operation, moved: tuple[str, str] | None
) -> None:
    costs = AnalyticCosts(machine)
    src, dst = (image(tag) for tag in moved or ("nChw16c", "nchw"))
    reorders = costs.reorder(src, dst) + costs.reorder(dst, src)
    fallen, quick = kernel(costs, cliff), kernel(costs, fast)
    assert (fallen.impl, fallen.is_cliff, quick.is_cliff) == ("ref", True, False)
    assert fallen.ms > reorders + quick.ms


@pytest.mark.parametrize("machine", [WIDE, NARROW, OLD], ids=lambda m: m.isa)
@pytest.mark.parametrize("tag", ["nchw", "nhwc"])
def test_usual_operations_in_plain_formats_are_no_cliffs(machine: Machine, tag: str) -> None:
    costs = AnalyticCosts(machine)
    for operation in (eltwise(tag), add(tag), excite(tag), convolution(tag), convolution(tag, kernel=1)):
        assert not kernel(costs, operation).is_cliff


def test_no_time_is_below_the_roofline() -> None:
    for machine in (WIDE, NARROW, OLD):
        for tag in ("nchw", "nhwc", "nChw8c", "nChw16c"):
            for make in (convolution, eltwise, add, excite, mean, max_pooling, batch_normalization):
                found = kernel(AnalyticCosts(machine), make(tag))
                assert found.ms > found.roofline > 0


# What `any` becomes


@pytest.mark.parametrize(
    ("operation", "wide", "narrow", "old"),
    [
        (convolution(), "acdb acdb", "acdb acdb", "aBcd8b aBcd8b"),
        (convolution(channels=(3, 64), kernel=7), "abcd aBcd16b", "abcd aBcd8b", "abcd aBcd8b"),
        (convolution(groups=64), "acdb acdb", "acdb acdb", "aBcd8b aBcd8b"),
        (convolution(channels=(128, 128), groups=32), "aBcd4b aBcd4b", "abcd abcd", "abcd abcd"),
        (convolution(channels=(30, 50)), "acdb acdb", "acdb acdb", "abcd abcd"),
    ],
)
def test_any_becomes_what_the_library_chose_on_such_a_machine(
    operation: Operation, wide: str, narrow: str, old: str
) -> None:
    for machine, tags in ((WIDE, wide), (NARROW, narrow), (OLD, old)):
        settled = kernel(AnalyticCosts(machine), operation).operation.descs
        assert f"{settled['src'].tag} {settled['dst'].tag}" == tags
        assert settled["weights"].kind == "any"


def test_a_destination_follows_its_source() -> None:
    open_ended = max_pooling("nChw8c")
    asked = replace(open_ended, descs={**open_ended.descs, "dst": image("any", (2, 64, 14, 14))})
    for costs in (AnalyticCosts(WIDE), AnalyticCosts(OLD)):
        assert kernel(costs, asked).operation.descs["dst"].tag == "aBcd8b"


def test_the_operation_of_a_kernel_keeps_the_attributes_that_were_asked_for() -> None:
    costs = AnalyticCosts(WIDE)
    for mode in ("library", "user"):
        asked = replace(convolution("nhwc"), attributes=PrimitiveAttributes(scratchpad_mode=mode))
        assert kernel(costs, asked).operation == asked


# Machines


def test_reorders_and_nodes_cost_their_bytes() -> None:
    costs = AnalyticCosts(WIDE)
    empty = image("nchw", (0, 64, 28, 28))
    assert costs.reorder(empty, empty) == 0.0
    assert costs.reorder(image("nchw"), image("nchw")) == costs.reorder(image("nchw"), image("nhwc"))  # a copy moves
    small, large = (costs.reorder(image("nchw", dims), image("nhwc", dims)) for dims in (IMAGE, (64, 64, 112, 112)))
    assert small == pytest.approx(0.003 + 1.4 * 2 * 2 * 64 * 784 * 4 / 150e6)
    assert large == pytest.approx(0.003 + 1.4 * 2 * 64 * 64 * 112 * 112 * 4 / 40e6)
    tensors = {name: Tensor(name, (1000, 1000), np.dtype(np.float32)) for name in "xy"}
    op = Op("node", "reference", {"src_0": "x"}, {"dst_0": "y"})
    graph = OpGraph("", 17, ("x",), ("y",), (op,), tensors)
    assert costs.reference(op, graph) == pytest.approx(0.02 + 4.0)
    fallback = replace(op, node=Subgraph("node", "Subgraph", ("x",), ("y",)))
    assert costs.reference(fallback, graph) == pytest.approx(0.004 + 4.0)


def test_the_roofline_is_the_larger_of_arithmetic_and_bytes() -> None:
    assert WIDE.roofline(Workload(230_000_000, 0, 0), "f32") == pytest.approx(1.0)
    assert WIDE.roofline(Workload(0, 1_500_000, 0), "f32") == pytest.approx(0.01)
    assert WIDE.roofline(Workload(0, 1_500_000, 400_000), "f32") == pytest.approx(0.02)
    assert WIDE.roofline(Workload(0, 400_000_000, 0), "f32") == pytest.approx(10.0)
    bf16 = replace(WIDE, isa="AVX512_CORE_BF16")
    assert bf16.roofline(Workload(230_000_000, 0, 0), "bf16") == pytest.approx(0.5)


def test_a_machine_is_taken_as_if_it_had_another_instruction_set_or_number_of_threads() -> None:
    here = this_machine()
    assert here.isa in ISAS
    assert 0 < here.memory_bandwidth <= here.cache_bandwidth
    assert this_machine("sse41").isa == analytic("SSE41").isa == "SSE41"
    assert this_machine("SSE41").peak < here.peak
    one = this_machine(threads=1)
    assert one.threads == 1
    assert one.peak == pytest.approx(here.peak / here.threads)


def test_figures_of_a_machine_are_those_of_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {1: [1, 100.0, 50.0, 20.0], 2: [1, 190.0, 90.0, 30.0]}
    threads = [2]
    monkeypatch.setattr(machine_module, "get_num_threads", lambda: threads[0])
    monkeypatch.setattr(machine_module, "_figures_table", lambda: {"figures": stored[threads[0]]})
    machine_module._machine_figures.cache_clear()
    try:
        for threads[0] in (2, 1, 2):
            here = this_machine(host_isa())
            found = (here.threads, here.peak, here.cache_bandwidth, here.memory_bandwidth)
            assert found == (threads[0], *stored[threads[0]][1:])
    finally:
        machine_module._machine_figures.cache_clear()


@pytest.mark.parametrize(
    "value",
    [None, "", [], [1, 2.0, 3.0], [1, 2.0, 3.0, "x"], [0, 1.0, 1.0, 1.0], [1, 1.0, 1.0, -1.0], {}, [1, 1.0, 1.0, inf]],
)
def test_figures_of_a_machine_that_make_no_sense_are_measured_again(value: Any) -> None:
    assert read_figures(value) == (0, (0.0, 0.0, 0.0))


def test_forms_of_formats() -> None:
    images = {"nchw": "ncx", "nhwc": "nxc", "nChw16c": "blocked", "nChw4c": "blocked", "chwn": "other"}
    for tag, kind in {**images, "ABcd4b4a": "other"}.items():
        assert channel_layout(image(tag)).kind == kind
    assert channel_layout(MemoryDesc((8, 64), "f32", "ab")).kind == "nxc"
    assert channel_layout(MemoryDesc((2, 8, 64), "f32", "abc")).kind == "ncx"
    assert channel_layout(MemoryDesc((2, 8, 4, 4), "f32", strides=(1000, 16, 4, 1))).kind == "other"


def narrow(operation: Operation, data_type: str) -> Operation:
    """The operation on elements of another type, with weights of s8 for integers."""
    types = dict.fromkeys(operation.descs, data_type) | {"bias": "f32"}
    types["weights"] = "s8" if data_type == "u8" else data_type
    descs = {name: MemoryDesc(desc.dims, types[name], desc.tag or "any") for name, desc in operation.descs.items()}
    return replace(operation, descs=descs)


@pytest.mark.parametrize(("data_type", "rate"), [("bf16", 2), ("u8", 4)])
def test_products_of_narrow_types_are_faster_than_in_f32(data_type: str, rate: int) -> None:
    costs, f32 = AnalyticCosts(NEW), convolution("nhwc", channels=(256, 256))
    found, wide = (kernel(costs, each).ms - OVERHEAD for each in (narrow(f32, data_type), f32))
    assert found == pytest.approx(wide / rate)


@pytest.mark.parametrize("data_type", ["bf16", "u8"])
def test_a_depthwise_convolution_computes_in_f32(data_type: str) -> None:
    layer = convolution("nhwc", channels=(96, 96), groups=96)
    assert arithmetic_type(narrow(layer, data_type)) == "f32"
    costs = AnalyticCosts(NEW)
    found, wide = kernel(costs, narrow(layer, data_type)), kernel(costs, layer)
    assert found.ms == pytest.approx(wide.ms, rel=0.2)


@pytest.mark.parametrize("data_type", ["f32", "bf16", "u8"])
@pytest.mark.parametrize("machine", [NEW, OLD], ids=lambda m: m.isa)
def test_a_product_that_writes_columns_is_a_cliff(machine: Machine, data_type: str) -> None:
    costs, weights = AnalyticCosts(machine), "s8" if data_type == "u8" else data_type

    def product(rows: int, tag: str) -> KernelEstimate:
        descs = {"src": MemoryDesc((rows, 64), data_type, "ab"), "weights": MemoryDesc((64, 48), weights, "any")}
        descs["dst"] = MemoryDesc((rows, 48), "f32", tag)
        return kernel(costs, Operation("matmul", "forward_inference", descs))

    assert [product(8, tag).is_cliff for tag in ("ab", "ba")] == [False, True]
    assert not product(1, "ba").is_cliff


def test_functions_of_narrow_types_compute_in_f32() -> None:
    assert arithmetic_type(narrow(softmax("nchw", 3), "bf16")) == "f32"
    assert arithmetic_type(narrow(convolution("nhwc"), "bf16")) == "bf16"


def test_a_dynamic_quantization_reads_its_source_twice() -> None:
    descs = {"src": MemoryDesc((1, 1 << 16), "f32", "ab"), "dst": MemoryDesc((1, 1 << 16), "u8", "ab")}
    descs |= {"scale": MemoryDesc((1,), "f32"), "zero_point": MemoryDesc((1,), "s32")}
    found = kernel(AnalyticCosts(WIDE), Operation("dynamic_quantization", "forward_inference", descs))
    assert found.impl == "jit"
    assert found.ms > 2 * found.roofline
