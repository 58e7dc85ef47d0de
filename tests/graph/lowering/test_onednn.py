"""Lowered operations on oneDNN: it creates the primitives, and its results equal those of the reference engine."""

from collections import Counter
from math import prod
from typing import Any

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.graph.op_graph import Op, OpGraph, constant_desc, operation_of
from inlay.memory import Memory, pack
from inlay.primitives import get_engine
from inlay.primitives.rules import INLAY_KINDS, SIGNATURES
from tests.graph.lowering.test_conformance import node_cases, with_constants
from tests.oracles import onednn as oracle
from tests.support import lowered_models as lm
from tests.support.interpreter import interpret
from tests.support.networks import EXPORTS, inputs_of

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.heavy,
    pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable())),
]
_CLOSE = 2e-4
_RECURRENT = ("gru", "lbr_gru", "lstm", "vanilla_rnn")


def by_onednn(graph: OpGraph, op: Op, found: lm.Arrays) -> lm.Arrays:
    """Return the results of one primitive, in formats that oneDNN chooses where they are free.

    Raises:
        Unimplemented: this oneDNN does not support the primitive.
    """
    # Packed weights of recurrent networks are opaque, and no layout that arrays can be packed into.
    free = frozenset() if op.kind in _RECURRENT else SIGNATURES[op.kind, "forward"].free
    arrays = {**op.constants, **{argument: found[name] for argument, name in op.reads.items()}}
    descs = {argument: constant_desc(array, argument in free) for argument, array in arrays.items()}
    written = {argument: graph.tensors[name] for argument, name in op.writes.items()}
    answers = {argument: MemoryDesc(one.dims, one.dtype, "any") for argument, one in written.items()}
    implementation = get_engine("onednn").create(operation_of(op, {**descs, **answers}))
    memories = {
        argument: pack(np.ascontiguousarray(array), implementation.descs[argument])
        for argument, array in arrays.items()
    }
    results = {
        argument: Memory(implementation.descs[argument], np.zeros(implementation.descs[argument].size, np.uint8))
        for argument, one in written.items()
        if prod(one.dims)
    }
    implementation.bind({**memories, **results})()
    engine: Any = get_engine("onednn")  # a queue, where it has one
    engine.wait()
    return {op.writes[argument]: memory.unpack() for argument, memory in results.items()}


def require_same(graph: OpGraph, given: lm.Arrays, declined: Counter[str]) -> int:
    """Compare each primitive with the reference engine; return their number, and count unsupported ones by kind."""
    found, count = interpret(graph, given), 0
    for op in graph.ops:
        if op.kind in ("view", "reference", "reorder", *INLAY_KINDS):
            continue
        try:
            results = by_onednn(graph, op, found)
        except Unimplemented:
            declined[op.kind] += 1
            continue
        count += 1
        for name, array in results.items():
            scale = max(1.0, float(np.abs(found[name][np.isfinite(found[name])]).max(initial=0)))
            np.testing.assert_allclose(
                array, found[name], rtol=_CLOSE, atol=_CLOSE * scale, err_msg=f"{op.kind} {name}"
            )
    return count


@pytest.mark.parametrize("is_weights", [False, True])
def test_operators_of_onnx(is_weights: bool) -> None:
    declined, count = Counter[str](), 0
    for case, arrays, _ in node_cases():
        changed, given = with_constants(case.model, arrays, is_weights)
        graph = lm.lower_model(changed, given, lm.run_reference(changed, given))
        count += require_same(graph, given, declined)
    assert count >= 240
    assert not declined


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_of_torch(name: str) -> None:
    model = EXPORTS[name](2, 17)
    given: Any = inputs_of(model)
    graph = lm.lower_model(model, given, lm.run_onnxruntime(model, given))
    declined = Counter[str]()
    assert require_same(graph, given, declined)
    assert not declined
