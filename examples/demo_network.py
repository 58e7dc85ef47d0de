"""The last part of the demo: ResNet-50 planned, run on the photograph, and compared with other ways to run it.

The topology is that of the `onnx` wheel, the weights are random, drawn as He et al. draw them, so its scores mean
nothing; that two ways to compute them agree means all the more. Who is compared runs the same network on as many
threads, in turns: Inlay with every tensor row-major and nothing fused, and ONNX Runtime where it is installed.
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from textwrap import indent

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import inlay
from inlay.bench.measurement import INLAY, Measurement
from inlay.bench.networks import runtimes_text
from inlay.graph.network import Network
from inlay.graph.plan import Plan
from inlay.graph.runtime.arena import plan_memory
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.measure.interleaved import Turn, measure_interleaved
from inlay.primitives.engine import explain_fallback, get_engine
from inlay.render.network import PlanPicture

Floats = npt.NDArray[np.float32]
Results = Mapping[str, Floats]

ROUNDS = 9
NEAR = 1e-4
"""Two ways to compute the network agree when no score differs by more than this, relative to the greatest."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Somebody who runs the network."""

    name: str
    """What is printed."""
    run: Callable[[], Results]
    """The outputs by name."""


def show_resnet50(console: Console, photograph: npt.NDArray[np.uint8], folder: Path, seconds: float) -> None:
    """Plan ResNet-50, measuring for `seconds` at most; draw the plan into `folder`, run it, compare."""
    console.rule("[bold]4  ResNet-50[/]: planned, run on the photograph, compared", align="left")
    console.print("  weights are random, since the onnx wheel has none: the scores name no object")
    model, scores = resnet50()
    network = inlay.load(model)
    has_engine = get_engine().name != "reference"
    plan = planned(console, network, seconds) if has_engine else inlay.plan(network, costs="analytic")
    print_plan(console, plan)
    PlanPicture(plan).save(folder / "resnet50.html")
    console.print("  drawn in build/demo/resnet50.html\n", style="dim")
    if not has_engine:
        console.print("  This is the plan of a model of the machine. It is not run, since NumPy alone")
        console.print("  would take minutes. With oneDNN it is measured and run:")
        reason = explain_fallback() or "the reference engine is chosen, by INLAY_ENGINE or set_engine"
        console.print(f"  {reason}", markup=False, soft_wrap=True)
        return
    image = prepared(photograph)
    plain = ProgramSession(plain_program(plan.graph), plan.graph)
    session = plan.compile()
    contenders = [
        Contender("inlay, this plan", lambda: session.run({network.inputs[0]: image})),
        Contender("inlay, all nchw, nothing fused", lambda: plain.run({network.inputs[0]: image})),
        *onnxruntime(model, {network.inputs[0]: image}),
    ]
    agree(console, contenders, scores)
    print_times(console, contenders)


def resnet50() -> tuple[bytes, str]:
    """The file of the network with random weights, and the name of its scores before softmax, one more output."""
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from onnx import TensorProto, helper

    from examples.random_networks import light

    model = light("resnet50")
    (softmax,) = (node for node in model.graph.node if node.op_type == "Softmax")
    model.graph.output.append(helper.make_tensor_value_info(softmax.input[0], TensorProto.FLOAT, (1, 1000)))
    return model.SerializeToString(), softmax.input[0]


def prepared(photograph: npt.NDArray[np.uint8]) -> Floats:
    """The photograph as networks for ImageNet are given it: 1x3x224x224, mean 0, variance 1."""
    from PIL import Image

    small = np.asarray(Image.fromarray(photograph).resize((224, 224)), np.float32) / 255
    normal = (small - np.array([0.485, 0.456, 0.406], np.float32)) / np.array([0.229, 0.224, 0.225], np.float32)
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None], np.float32)


def planned(console: Console, network: Network, seconds: float) -> Plan:
    """The plan by measured costs, and how long it takes: with what has to be measured, and when that is known."""
    first = time.perf_counter()
    plan = inlay.plan(network, seconds=seconds)
    second = time.perf_counter()
    inlay.plan(network, seconds=0.0)
    third = time.perf_counter()
    console.print(f"  planned in {second - first:.2f} s; again in {third - second:.2f} s")
    console.print(f"  costs of {plan.sources}", soft_wrap=True)
    return plan


def print_plan(console: Console, plan: Plan) -> None:
    """Totals, and what takes how long by kind of step."""
    arena = plan_memory(plan.program, plan.graph.tensors).arena
    engine = f" of {plan.engine}" if plan.engine else ""
    console.print(f"  {plan.costs} costs{engine}, {plan.isa}, {plan.threads} threads")
    console.print(f"  {len(plan.program.steps)} steps, {len(plan.reorders)} of them reorders")
    console.print(f"  no choice among the same kernels takes less than {plan.bound:.2f} ms")
    console.print(
        f"  memory between steps {arena.nbytes / 1e6:.2f} MB, {arena.unshared / 1e6:.2f} MB if nothing shared\n"
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("  kind of step", "steps", "ms", "", "formats chosen as", "ms", "times"):
        table.add_column(heading, justify="right" if heading in ("steps", "ms", "times") else "left", no_wrap=True)
    kinds = [row(plan, kind) for kind in sorted({step.kind for step in plan.program.steps})]
    others = [("this plan", plan.ms), *plan.totals.items()]
    ways = [(name, f"{ms:.2f}", f"{ms / plan.ms:.2f}") for name, ms in others]
    for number in range(max(len(kinds), len(ways))):
        left = kinds[number] if number < len(kinds) else ("", "", "")
        right = ways[number] if number < len(ways) else ("", "", "")
        table.add_row(*left, "", *right)
    console.print(table)


def row(plan: Plan, kind: str) -> tuple[str, str, str]:
    """A kind of step: how many there are, and what they take together."""
    steps = [step for step in plan.program.steps if step.kind == kind]
    return f"  {kind.replace('_', ' ')}", str(len(steps)), f"{sum(step.ms for step in steps):.2f}"


def onnxruntime(model: bytes, inputs: Mapping[str, Floats]) -> list[Contender]:
    """ONNX Runtime on as many threads, where it is installed."""
    try:
        import onnxruntime as ort
    except ImportError:
        return []
    options = ort.SessionOptions()
    options.intra_op_num_threads = inlay.get_num_threads()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [
        Contender(
            f"ONNX Runtime {ort.__version__}", lambda: dict(zip(names, session.run(names, dict(inputs)), strict=True))
        )
    ]


def agree(console: Console, contenders: list[Contender], scores: str) -> None:
    """Compare the scores of the first with those of the others, and end the demo where they differ."""
    found = [contender.run()[scores].copy() for contender in contenders]
    for contender, its in zip(contenders[1:], found[1:], strict=True):
        difference = float(np.abs(found[0] - its).max() / np.abs(its).max())
        if not difference <= NEAR:
            sys.exit(f"demo: scores differ by {difference:.2g} from those of {contender.name}")
        console.print(f"  [green]close[/]  scores of this plan and of {contender.name}: within {difference:.1g}")


def print_times(console: Console, contenders: list[Contender]) -> None:
    """Time all contenders in turns, and print the medians."""
    names = [INLAY, *(contender.name for contender in contenders[1:])]
    times = measure_interleaved(
        {name: contender.run for name, contender in zip(names, contenders, strict=True)},
        ROUNDS,
        Turn(warm=50e-3, block=100e-3),  # a run wakes every thread for each of some hundred kernels
        patience=inf,
    )
    hows = {name: "this plan" if name == INLAY else "" for name in names}
    console.print(indent(runtimes_text(Measurement(times), hows), "  "), markup=False, soft_wrap=True)
    words = f"one photograph, {inlay.get_num_threads()} threads, median of {ROUNDS} rounds in turns"
    console.print(f"  {words}\n", style="dim")
