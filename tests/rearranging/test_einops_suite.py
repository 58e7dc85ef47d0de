"""einops' own tests with `inlay.rearrange` and `inlay.repeat` in place of einops' functions, and Inlay's parser.

`reduce`, `parse_shape` and the other functions of einops stay einops' own; `parse_shape` reads by Inlay's parser. The
test functions that use none of the replaced names, and those listed with a reason, are left out.
"""

import importlib
import inspect
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.errors import InlayError
from inlay.rearranging.einops_notation import AnonymousAxis, AnyAxes, NamedAxis, is_axis_name, items_of, parse_side

pytestmark = pytest.mark.heavy
einops = pytest.importorskip("einops")

REPLACED = {"rearrange", "repeat", "ParsedExpression"}
LEFT_OUT = {
    "test_ops.test_rearrange_array_api": "einops.array_api is another module of einops, which is not replaced",
    "test_ops.test_repeat_array_api": "einops.array_api is another module of einops, which is not replaced",
    "test_ops.test_torch_compile_with_dynamic_shape": "torch.compile with fullgraph cannot trace calls of machine code",
    "test_ops.test_repeat_symbolic": "symbols of pytensor have no elements to move",
    "test_ops.test_reduction_symbolic": "symbols of pytensor have no elements to move",
    "test_other.test_parse_shape_symbolic": "symbols of pytensor have no elements to move",
    "test_other.test_parse_shape_symbolic_ellipsis": "symbols of pytensor have no elements to move",
    "test_other.test_torch_compile_for_functions": "imports einops' functions in the test; not replaced",
    "test_other.test_torch_compile_for_layers": "uses layers alone",
    "test_other.test_einops_threading": "runs another process with einops",
    "test_other.test_doctests_examples": "runs the docstrings of einops",
}


class AxisOfLength:
    """The adapter of an anonymous axis: einops' attribute `value`."""

    def __init__(self, length: str | int) -> None:
        self.value = int(length)


class ParsedSide:
    """The adapter of a parsed side: the attributes of einops' ParsedExpression, from Inlay's parser."""

    def __init__(self, text: str, *, allow_underscore: bool = False) -> None:
        words = text.split(" ")
        plain = " ".join(f"skip{i}" if word == "_" and allow_underscore else word for i, word in enumerate(words))
        groups = parse_side(plain)
        axes = {item: AxisOfLength(item.length) for item in items_of(groups) if isinstance(item, AnonymousAxis)}

        def name_of(item: Any) -> Any:
            if isinstance(item, NamedAxis):
                return "_" if allow_underscore and item.name.startswith("skip") else item.name
            return "…" if isinstance(item, AnyAxes) else axes[item]

        self.composition = [
            "…" if not g.is_parenthesized and any(isinstance(i, AnyAxes) for i in g.items) else [*map(name_of, g.items)]
            for g in groups
        ]
        self.identifiers = {name_of(item) for item in items_of(groups)}
        self.has_ellipsis = any(isinstance(item, AnyAxes) for item in items_of(groups))
        self.has_non_unitary_anonymous_axes = bool(axes)
        inside = [item for group in groups if group.is_parenthesized for item in group.items]
        self.has_ellipsis_parenthesized = (
            any(isinstance(item, AnyAxes) for item in inside) if self.has_ellipsis else None
        )

    def has_composed_axes(self) -> bool:
        """Return True if a group has several axes."""
        return any(isinstance(axes, list) and len(axes) > 1 for axes in self.composition)

    @staticmethod
    def check_axis_name(name: str) -> bool:
        """Return True if Inlay accepts the name."""
        return is_axis_name(name)


def suite() -> Iterator[Any]:
    """Return the test functions of einops that use a replaced name."""
    os.environ["EINOPS_TEST_BACKENDS"] = ",".join(
        ["numpy", *(name for name in ("torch", "jax") if importlib.util.find_spec(name))]
    )
    for name in ("test_ops", "test_parsing", "test_examples", "test_other"):
        module = importlib.import_module(f"einops.tests.{name}")
        for function_name, function in inspect.getmembers(module, inspect.isfunction):
            uses = set(_names(function.__code__)) & {*REPLACED, "parse_shape"}
            if function_name.startswith("test_") and function.__module__ == module.__name__ and uses:
                label = f"{name}.{function_name}"
                marks = [pytest.mark.skip(reason=LEFT_OUT[label])] if label in LEFT_OUT else []
                yield pytest.param(module, function, id=label, marks=marks)


def _names(code: Any) -> Iterator[str]:
    """Return the names that a function and its inner functions use, and those of its module's helpers."""
    yield from code.co_names
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _names(constant)
    if {"check_op_against_numpy", "check_reversion"} & set(code.co_names):
        yield "rearrange"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "function"), [*suite()])
def test_a_test_of_einops(module: Any, function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes with Inlay's functions, and at least one replaced name is called."""
    calls: list[str] = []

    def counted(name: str, call: Any) -> Any:
        def run(*arguments: Any, **lengths: Any) -> Any:
            calls.append(name)
            return call(*arguments, **lengths)

        return run

    class CountedSide(ParsedSide):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            calls.append("ParsedExpression")
            super().__init__(*arguments, **more)

    for name, value in (
        ("rearrange", counted("rearrange", inlay.rearrange)),
        ("repeat", counted("repeat", inlay.repeat)),
        ("ParsedExpression", CountedSide),
        ("AnonymousAxis", AxisOfLength),
        ("EinopsError", InlayError),
    ):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, value)
    if "parse_shape" in _names(function.__code__):
        monkeypatch.setattr(importlib.import_module("einops.einops"), "ParsedExpression", CountedSide)
        monkeypatch.setattr(importlib.import_module("einops.einops"), "AnonymousAxis", AxisOfLength)
        monkeypatch.setattr("einops.EinopsError", InlayError)
    function()
    assert calls or function.__name__ == "test_elementary_axis_name"


def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite notices a rearrangement that is wrong."""
    os.environ.setdefault("EINOPS_TEST_BACKENDS", "numpy")
    module = importlib.import_module("einops.tests.test_ops")
    monkeypatch.setattr(module, "rearrange", lambda x, pattern, **lengths: np.array(inlay.rearrange(x, pattern)) * 0)
    with pytest.raises(AssertionError):
        module.test_rearrange_permutations_numpy()
