"""Costs beside oneDNN: the kernels that it has, and the formats for which the cost model knows that it has none."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inlay import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.costs import measured, probed
from inlay.graph.costs.kernel_models import select_kernel_model
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PrimitiveAttributes, SumPostOp
from inlay.primitives.engine import Operation, get_engine
from tests.graph.costs.test_model import kernel
from tests.oracles import onednn as oracle
from tests.support import cost_cases as cases

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

TAGS = ("nchw", "nhwc", "nChw8c", "nChw16c")
INTEGER_KINDS = ("dense", "stem", "depthwise", "grouped", "max_pooling")
"""Cases that are asked for in 8-bit integers too."""
NEEDED = {"SSE41": "sse4_1", "AVX2": "avx2", "AVX512_CORE": "avx512bw"}
"""Instruction sets of the table, and the flag of the processor that each needs."""


def operations() -> dict[str, Operation]:
    """By name: operations of networks in uniform formats, and convolutions between two."""
    same: list[Callable[[str], Operation]] = [cases.add, cases.batch_normalization, cases.eltwise, cases.excite]
    same += [cases.layer_normalization, cases.max_pooling, cases.mean]
    found = {f"{make.__name__} {tag}": make(tag) for make in same for tag in TAGS}
    found |= {f"excite {tag} both": cases.excite(tag, tag) for tag in TAGS}
    found |= {f"softmax {tag} {axis}": cases.softmax(tag, axis) for tag in TAGS for axis in (1, 3)}
    shapes = {"dense": ((64, 64), 1), "stem": ((3, 64), 1), "depthwise": ((64, 64), 64), "grouped": ((48, 48), 2)}
    for name, (channels, groups) in shapes.items():
        for src, dst in (*((tag, tag) for tag in TAGS), ("nchw", "nhwc"), ("nchw", "nChw16c"), ("nhwc", "nChw8c")):
            found[f"{name} {src} {dst}"] = cases.convolution(src, dst, channels=channels, groups=groups)
    integers = {f"{name} u8": in_integers(found[name]) for name in found if name.startswith(INTEGER_KINDS)}
    return found | integers


def in_integers(operation: Operation) -> Operation:
    """The operation on u8, with s8 weights and an f32 bias."""
    types = dict.fromkeys(operation.descs, "u8") | {"weights": "s8", "bias": "f32"}
    descs = {name: MemoryDesc(desc.dims, types[name], desc.tag or "any") for name, desc in operation.descs.items()}
    return replace(operation, descs=descs)


def lacks(flag: str) -> bool:
    info = Path("/proc/cpuinfo")
    return not info.exists() or flag not in info.read_text().split()


ASKED = """
import json
from inlay.graph.costs import probed
from tests.graph.costs.test_onednn import operations
costs = probed("onednn")
kernels = {name: costs.kernel(operation) for name, operation in operations().items()}
print(json.dumps([costs.isa, {name: kernel and kernel.impl for name, kernel in kernels.items()}]))
"""


def printed(program: str, *arguments: str, **environment: str) -> Any:
    """What a program prints, as JSON, in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(oracle.why_unavailable() is None and oracle.version() >= (3, 3), reason="the table is of 3.2")
@pytest.mark.parametrize("isa", NEEDED)
def test_the_table_knows_where_the_library_has_generic_code_only(isa: str) -> None:
    if lacks(NEEDED[isa]):
        pytest.skip(f"this processor has no {isa}")
    told, impls = printed(ASKED, ONEDNN_MAX_CPU_ISA=isa)  # the names of kernels, if only `isa` may be used
    assert told == isa
    wrong = {
        name: impls[name]
        for name, operation in operations().items()
        if (select_kernel_model(operation, isa).impl == "ref") != ("ref" in impls[name])
    }
    assert wrong == {}


def test_there_is_a_kernel_where_the_engine_makes_one() -> None:
    engine, costs = get_engine("onednn"), probed("onednn")
    wide = {name: MemoryDesc(desc.dims, "f64", "any") for name, desc in cases.convolution().descs.items()}
    double = replace(cases.convolution(), descs=wide)
    odd = {
        "strange": cases.convolution("nhwc", post_ops=(BinaryPostOp("add", cases.image("nChw16c", (1, 64, 28, 28))),)),
        "double": double,
    }
    for operation in (*operations().values(), *odd.values()):
        try:
            made = engine.create(operation)
        except (Unimplemented, InvalidArguments):
            assert costs.kernel(operation) is None
            continue
        found = kernel(costs, operation)
        assert (found.impl, found.source) == (made.impl, "probed")
        assert found.operation.descs == {name: made.descs[name] for name in operation.descs}
        assert found.operation.attributes == operation.attributes
        assert found.ms > found.roofline
    assert costs.kernel(double) is None


def test_any_is_answered_by_the_engine() -> None:
    found = kernel(probed("onednn"), cases.convolution(post_ops=(SumPostOp(), EltwisePostOp("relu"))))
    assert all(desc.kind == "blocked" for desc in found.operation.descs.values())
    assert probed("onednn").engine == get_engine("onednn").name


def test_the_scratchpad_is_known() -> None:
    engine, costs = get_engine("onednn"), probed("onednn")
    user = PrimitiveAttributes(scratchpad_mode="user")
    sizes = []
    for operation in (cases.convolution("nchw"), cases.convolution("nhwc"), cases.eltwise("nhwc")):
        made = engine.create(replace(operation, attributes=user))
        sizes.append(made.descs["scratchpad"].size if "scratchpad" in made.descs else 0)
        assert kernel(costs, operation).scratch == sizes[-1]
    assert max(sizes) > min(sizes) == 0


def test_a_cliff_of_the_library_is_dearer_than_the_way_round_it() -> None:
    costs = probed("onednn")
    around = costs.reorder(cases.image("nChw16c"), cases.image("nchw")) * 2
    for cliff, fast in ((cases.excite("nChw16c"), cases.excite("nchw")), (cases.mean("nhwc"), cases.mean("nchw"))):
        fallen, quick = kernel(costs, cliff), kernel(costs, fast)
        assert "ref" in fallen.impl
        assert fallen.is_cliff
        assert fallen.ms > around + quick.ms


def test_the_reference_engine_has_a_kernel_for_everything_and_none_is_fast() -> None:
    costs = probed("reference")
    for operation in operations().values():
        found = kernel(costs, operation)
        assert found.impl == "numpy:f64"
        assert found.ms > 0.1


@pytest.mark.usefixtures("quiet_machine")
def test_what_is_measured_is_what_is_probed_and_what_is_remembered() -> None:
    # The slow half of these takes seconds.
    asked = {
        name: operation
        for name, operation in operations().items()
        if (found := probed("onednn").kernel(operation)) is not None and "ref" not in found.impl
    }
    costs, told = measured("onednn"), probed("onednn")
    costs.prepare(asked.values())
    again = measured("onednn", seconds=0)
    units = set()
    for operation in asked.values():
        now, probe, remembered = (kernel(one, operation) for one in (costs, told, again))
        assert now == replace(probe, ms=now.ms, source="measured")
        assert now.ms > 0
        assert remembered == replace(now, ms=remembered.ms)
        units.add(round(remembered.ms / now.ms, 9))
    # The yardstick may have been faster since it was first timed: that changes the unit and no ratio.
    assert len(units) == 1
    assert costs.slowdown() >= 1


MEASURED_RECURRENT = """
import json, sys
from inlay.graph.costs import measured, measuring, probed, timing
from inlay.measure import disturbance
from inlay.measure.processors import Processors
from tests.graph.costs.test_onednn import recurrent
measuring.recent_processors = lambda *_: Processors((1.0, 1.0))
disturbance._MAX_WAIT_SHARE = timing._YARDSTICK_LIMIT = float("inf")
costs, told, sources = measured("onednn"), probed("onednn"), {}
for inputs in json.loads(sys.argv[1]):
    kernel, probe = costs.kernel(recurrent(inputs)), told.kernel(recurrent(inputs))
    assert kernel.operation.descs == probe.operation.descs
    sources[inputs] = kernel.source
costs.save()
print(json.dumps([sources, costs.sources.measured, costs.sources.remembered]))
"""


def recurrent(inputs: int) -> Operation:
    """A gated recurrent unit, too narrow for the library's fast code: it packs weights in a format of its own."""
    kinds = {"src_layer": (1, 3, inputs), "dst_layer": (1, 3, 5), "dst_iter": (1, 1, 3, 5)}
    descs = {name: MemoryDesc(dims, "f32") for name, dims in kinds.items()}
    for name, rows in (("weights_layer", inputs), ("weights_iter", 5)):
        descs[name] = MemoryDesc((1, 1, rows, 3, 5), "f32", "any")
    return Operation("gru", "forward_inference", descs, {"direction": "left2right", "flags": frozenset()})


def test_packed_weights_are_timed_with_what_the_library_packs(tmp_path: Path) -> None:
    """Their counts and offsets are read as such; and another process calls another format by the same name."""
    tmp_path.chmod(0o700)
    for inputs, measured_now in ([2, 3], 2), ([3, 2], 0):
        found = printed(MEASURED_RECURRENT, json.dumps(inputs), INLAY_CACHE_DIR=str(tmp_path))
        assert found == [{str(one): "measured" for one in inputs}, measured_now, 2 - measured_now]
