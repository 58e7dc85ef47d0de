"""What a process does with a oneDNN whose code generator fails and stays so: a program, run with `sticky_onednn.c`.

The environment names the stub (INLAY_ONEDNN), the library that it is linked to, and what fails.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import Library
from inlay.errors import InlayError
from inlay.graph.op_graph import Op
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.memory import Memory, pack
from tests.oracles import onednn as oracle
from tests.support.graph_programs import drawn, graph_of, relu

PLAIN = MemoryDesc((2, 16, 5, 7), "f32", "abcd")
BLOCKED = MemoryDesc((2, 16, 5, 7), "f32", "aBcd8b")


def outcome(create: Any, engine: str | None) -> dict[str, Any]:
    """How a primitive is computed, and how far its result is from the reference's."""
    src = pack(drawn(2, 16, 5, 7), PLAIN)
    try:
        primitive = create(engine)
        result = primitive(src=src).unpack()
    except InlayError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    expected = create("reference")(src=src).unpack()
    distance = float(np.abs(result - expected).max())
    return {"engine": primitive.engine.name.split()[0], "impl": primitive.impl, "is_right": distance < 1e-5}


def softmax(axis: int) -> Any:
    return lambda engine: p.Softmax(PLAIN, axis=axis, engine=engine)


def eltwise(algorithm: str) -> Any:
    return lambda engine: p.Eltwise(PLAIN, algorithm=algorithm, alpha=0.5, engine=engine)


def pooling(engine: str | None) -> Any:
    return p.Pooling(PLAIN, algorithm="max", kernel=2, engine=engine)


def session() -> dict[str, Any]:
    """What a session says of a softmax and the ReLU after it."""
    names = ("x", "t", "y")
    first = Op("softmax", "softmax", {"src": "x"}, {"dst": "t"}, parameters={"algorithm": "accurate", "axis": 1})
    graph = graph_of([first, relu("relu", "t", "y")], dict.fromkeys(names, (2, 3)), "x", "y")
    found = ProgramSession(plain_program(graph), graph, engine="onednn")
    image = drawn(2, 3)
    powers = np.exp(image.astype(np.float64))
    (result,) = found.run({"x": image}).values()
    is_right = bool(np.allclose(result, powers / powers.sum(1, keepdims=True), rtol=1e-5))
    return {"declined": found.declined, "note": found.note, "is_right": is_right}


def moved_by_the_oracle() -> str:
    """What the oracle of the tests does with a reorder."""
    src = pack(drawn(2, 16, 5, 7), PLAIN)
    dst = Memory(BLOCKED)
    try:
        oracle.reorder(oracle.mirror(PLAIN), src.address, oracle.mirror(BLOCKED), dst.address)
    except oracle.Refused as refused:
        return refused.status
    return "right" if (dst.unpack() == src.unpack()).all() else "wrong"


def main() -> None:
    """Meet the error, and go on in this thread and in others."""
    # What SYCL needs is found beside the real library.
    Library(os.environ["STICKY_REAL"])
    found: dict[str, Any] = {"named": outcome(eltwise("relu"), "onednn"), "default": outcome(eltwise("tanh"), None)}
    found["later"] = [outcome(create, "onednn") for create in (softmax(1), softmax(3), pooling)]
    with ThreadPoolExecutor(4) as threads:
        creates = [softmax(0), eltwise("square"), softmax(2), eltwise("abs")] * 2
        found["threads"] = list(threads.map(outcome, creates, ["onednn"] * 8))
    found["session"] = session()
    found["oracle"] = [moved_by_the_oracle() for _ in range(3)]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
