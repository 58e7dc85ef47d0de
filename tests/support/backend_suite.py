"""ONNX's backend tests (`onnx.backend.test`), each read, planned and run: one line of JSON for each case.

    python -m tests.support.backend_suite                        # every case as ONNX ships it
    python -m tests.support.backend_suite --clamp --constant 1   # opset put to 9..22, all inputs but the first constant
    python -m tests.support.backend_suite --only '^test_relu'    # cases by regular expression
    python -m tests.support.backend_suite --fallback none        # primitives and views alone
    python -m tests.support.backend_suite --table                # a table by operator after the cases

`result` is `pass`; `refused`, by an InlayError; `random`, where nobody can predict the numbers; `wrong`, by the
tolerances of the case, or where an input was changed or a second run answered otherwise; `exception`, any other.
A case is named in a line of its own before it runs, so that the last line tells which case ended the process.
"""

import argparse
import json
import re
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

import inlay

RANDOM = re.compile("Bernoulli|Dropout|Multinomial|Random")
OPSETS = (9, 22)
"""The opsets that --clamp puts models to."""

FALLBACKS: dict[str, Any] = {"auto": "auto", "numpy": False, "none": None}
"""The values of `fallback` that --fallback names."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How cases are read and planned."""

    is_clamped: bool = False
    """Whether the opset is put to the nearest of `OPSETS`."""
    constant: int | None = None
    """The first of the inputs that become constants; None for none."""
    fallback: Any = "auto"
    """What computes nodes without a primitive, as in `inlay.plan`."""


def cases(variant: Variant, models: list[Any]) -> Iterator[tuple[str, str, Callable[[Any], None]]]:
    """Kind, name and test of each case for processors; the test raises, and adds the model that it runs to `models`."""

    def prepare(model: Any, _: str) -> SimpleNamespace:
        models.append(model)
        return SimpleNamespace(run=lambda inputs: computed(*changed(model, inputs, variant), variant.fallback))

    backend: Any = SimpleNamespace(supports_device=lambda device: device == "CPU", prepare=prepare)
    runner = Runner(backend)
    for kind, items in runner._test_items.items():
        for name, item in items.items():
            if name.endswith("_cpu"):
                yield kind.removesuffix("Model"), name.removesuffix("_cpu"), item.func


def changed(model: Any, inputs: list[Any], variant: Variant) -> tuple[Any, dict[str, Any]]:
    """The model with the changes that were asked for, and its inputs by name."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    weights = {tensor.name for tensor in copy.graph.initializer}
    values = [value for value in copy.graph.input if value.name not in weights]
    pairs = zip(values, inputs, strict=False)
    arrays = {value.name: np.asarray(x) if isinstance(x, np.generic) else x for value, x in pairs}
    for opset in copy.opset_import if variant.is_clamped else ():
        if opset.domain in ("", "ai.onnx"):
            opset.version = min(max(opset.version, OPSETS[0]), OPSETS[1])
    can_store = all(isinstance(x, np.ndarray) and x.dtype != object for x in arrays.values())
    for value in values[variant.constant :] if variant.constant is not None and can_store else ():
        copy.graph.initializer.append(numpy_helper.from_array(arrays.pop(value.name), value.name))
        copy.graph.input.remove(value)
    return copy, arrays


def computed(model: Any, arrays: dict[str, Any], fallback: Any) -> list[Any]:
    """The outputs of a model.

    Raises:
        AssertionError: an input was changed, or a second run answers otherwise.
        InlayError: the model is refused.
    """
    shapes = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input if value.name in arrays}
    left_open = [(name, axis) for name, dims in shapes.items() for axis, dim in enumerate(dims) if dim.dim_value <= 0]
    dims = {f"{name}[{axis}]": np.shape(arrays[name])[axis] for name, axis in left_open}
    network = inlay.load(model.SerializeToString(), dims=dims)
    session = inlay.plan(network, fallback=fallback, costs="probed").compile()  # tensors too small to measure
    before = {name: np.array(x) for name, x in arrays.items()}
    results, again = session.run(arrays), session.run(arrays)
    assert all(before[name].tobytes() == x.tobytes() for name, x in arrays.items()), "an input was changed"
    if not is_random(model):
        assert all(y.tobytes() == again[name].tobytes() for name, y in results.items()), "a second run is different"
    return [results[value.name] for value in model.graph.output]


def is_random(model: Any) -> bool:
    """Whether an operator of the model draws random numbers."""
    return any(RANDOM.search(node.op_type) for node in model.graph.node)


def judged(test: Callable[[Any], None], models: list[Any]) -> tuple[str, str]:
    """The result of a case, and what went wrong."""
    models.clear()
    refusals, found = list[str](), unittest.TestResult()

    def attempt() -> None:
        try:
            test(None)
        except inlay.InlayError as error:
            refusals.append(f"{type(error).__name__}: {error}")

    unittest.FunctionTestCase(attempt).run(found)
    if refusals:
        return "refused", refusals[0]
    if found.failures:
        return "random" if models and is_random(models[0]) else "wrong", found.failures[0][1][-400:]
    return ("exception", found.errors[0][1][-2000:]) if found.errors else ("pass", "")


def operator_of(models: list[Any]) -> str:
    """The operator of a model of one node; else what it is."""
    nodes: Any = models[0].graph.node if models else ()
    return str(nodes[0].op_type) if len(nodes) == 1 else "(several)"


def table(lines: list[dict[str, str]]) -> str:
    """A line for each operator: how many cases have each result, and the reasons why others are refused."""
    rows = [f"{'operator':30} {'pass':>5} {'refused':>8} {'other':>6}  reasons"]
    for operator in sorted({line["operator"] for line in lines}):
        results = Counter(line["result"] for line in lines if line["operator"] == operator)
        texts = (line["text"] for line in lines if line["operator"] == operator and line["result"] == "refused")
        reasons = "; ".join(f"{count} x {text}" for text, count in Counter(map(without_names, texts)).most_common(3))
        others = results.total() - results["pass"] - results["refused"]
        rows.append(f"{operator:30} {results['pass']:5} {results['refused']:8} {others:6}  {reasons}")
    return "\n".join(rows)


def without_names(text: str) -> str:
    """A refusal without the names of tensors, so that alike ones are counted together."""
    return re.sub("'[^']*'", "...", text)[:160]


def main() -> None:
    """Run the cases that are asked for, and count their results on the error stream."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clamp", action="store_true")
    parser.add_argument("--constant", type=int)
    parser.add_argument("--fallback", choices=FALLBACKS, default="auto")
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", default="", help="Node, Simple, Real, PyTorchConverted or PyTorchOperator")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    models, lines = list[Any](), list[dict[str, str]]()
    for kind, name, test in cases(Variant(options.clamp, options.constant, FALLBACKS[options.fallback]), models):
        if kind.startswith(options.kind) and re.search(options.only, name):
            print(json.dumps({"kind": kind, "name": name}), flush=True)
            result, text = judged(test, models)
            operator = operator_of(models)
            lines.append({"kind": kind, "name": name, "operator": operator, "result": result, "text": text})
            print(json.dumps(lines[-1]), flush=True)
    if options.table:
        print(table(lines), file=sys.stderr)
    for (kind, result), count in sorted(Counter((line["kind"], line["result"]) for line in lines).items()):
        print(f"{kind:20} {result:10} {count:5}", file=sys.stderr)


if __name__ == "__main__":
    main()
