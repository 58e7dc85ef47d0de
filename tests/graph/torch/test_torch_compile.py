"""`torch.compile(model, backend="inlay")`: graphs agree with eager PyTorch, batches share them, training raises."""

import gc
import tomllib
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from weakref import WeakValueDictionary

import pytest

import inlay
from inlay.graph.torch import backend
from inlay.graph.torch.torch_report import INLAY, PYTORCH
from tests.support.paths import ROOT
from tests.support.refusals import raises_exactly


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The modules, with a report of no other test's graphs: PyTorch holds some of them after a reset."""
    from tests.support import torch_cases

    torch_cases.torch.compiler.reset()
    monkeypatch.setattr(backend, "_graphs", WeakValueDictionary())
    yield torch_cases
    torch_cases.torch.compiler.reset()


def compile_module(cases: Any, module: Any, **options: Any) -> Any:
    """Compile a module by the backend, with options that measure nothing."""
    return cases.torch.compile(module, backend=inlay.torch_backend, options={**cases.CHEAP, **options})


def test_the_entry_point_is_the_public_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["inlay"].partition(":")
    assert getattr(import_module(module), name) is inlay.torch_backend


@pytest.mark.heavy
def test_the_backend_has_a_name(cases: Any) -> None:
    registry = import_module("torch._dynamo.backends.registry")
    if "inlay" not in registry.list_backends():  # Inlay is not installed here, or without its entry points
        registry.register_backend(inlay.torch_backend, name="inlay")
    torch = cases.torch
    fast, x = torch.compile(torch.nn.ReLU().eval(), backend="inlay", options=dict(cases.CHEAP)), torch.randn(4)
    assert torch.equal(fast(x), x.relu())
    assert [part.runs_in for part in inlay.torch_report().parts] == [INLAY]


@pytest.mark.heavy
def test_batches_share_one_graph(cases: Any) -> None:
    torch, module = cases.torch, cases.seeded(cases.convolutional)
    fast = compile_module(cases, module)
    with torch.inference_mode():
        for batch in (2, 3, 5, 9, 4, 3, 2):
            x = torch.randn(batch, 3, 16, 16)
            cases.assert_agrees(fast(x), module(x))
    graphs = inlay.torch_report().graphs
    assert len(graphs) == 2  # one for the first size, and one for all others
    sizes = [{plan.inputs[0].dims[0] for plan in graph.parts[0].plans} for graph in graphs]
    assert sizes[0] == {2}
    assert {3, 4, 5, 9} <= sizes[1]
    del graphs
    torch.compiler.reset()
    gc.collect()
    assert inlay.torch_report().graphs == ()


@pytest.mark.heavy
def test_a_size_that_the_graph_computes_with(cases: Any) -> None:
    torch = cases.torch

    class Attend(cases.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            y = x.reshape(batch, length, 2, width // 2).transpose(1, 2)
            return (torch.softmax(y @ y.transpose(2, 3) / length, -1) @ y).reshape(batch * length, width), length

    module = Attend().eval()
    fast = torch.compile(module, backend=inlay.torch_backend, dynamic=True, options=dict(cases.CHEAP))
    for batch, length in ((2, 6), (3, 5), (4, 7)):
        x = torch.randn(batch, length, 8)
        cases.assert_agrees(fast(x), module(x))
    assert INLAY in {part.runs_in for part in inlay.torch_report().parts}
    assert len(inlay.torch_report().graphs) == 1


@pytest.mark.heavy
def test_graph_breaks_run_in_python(cases: Any) -> None:
    torch, module = cases.torch, cases.seeded(cases.Branching)
    fast = compile_module(cases, module)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(4, 8)
            cases.assert_agrees(fast(x), module(x))
    report = inlay.torch_report()
    assert [part.runs_in for part in report.parts] == [INLAY] * len(report.graphs)
    assert len(report.graphs) >= 2
    assert report.graphs[0].name.startswith("forward, torch_cases.py:")


@pytest.mark.heavy
def test_functions_and_operators_without_translation(cases: Any) -> None:
    torch, weight = cases.torch, cases.torch.randn(8, 8)

    def function(x: Any) -> Any:
        y = torch.relu(x @ weight) + 1
        return torch.linalg.eigvalsh(y.T @ y), y * 2

    fast, x = compile_module(cases, function), torch.randn(4, 8)
    cases.assert_agrees(fast(x), function(x), 1e-3)
    assert {part.runs_in for part in inlay.torch_report().parts} == {INLAY, PYTORCH}
    weight.mul_(2)  # it is no parameter, so it is read at each call
    cases.assert_agrees(fast(x), function(x), 1e-3)
    assert inlay.torch_report().graphs[0].reloads == 0


@pytest.mark.heavy
def test_writes_and_changed_weights(cases: Any) -> None:
    torch, module, other = cases.torch, cases.seeded(cases.Writing), cases.seeded(cases.Writing)
    fast = compile_module(cases, module)
    with torch.no_grad():
        for count in range(6):
            if count == 3:
                for one in (module, other):
                    one.linear.weight.mul_(2)
            x = torch.randn(4, 8)
            copy = x.clone()
            cases.assert_agrees((fast(x), x, module.calls), (other(copy), copy, other.calls))
    assert inlay.torch_report().graphs[0].reloads == 1


@pytest.mark.heavy
def test_training_raises_a_clear_error(cases: Any) -> None:
    torch, module, x = cases.torch, cases.seeded(cases.convolutional), cases.torch.randn(2, 3, 16, 16)
    fast = compile_module(cases, module)
    text = (
        "gradients are on, and a parameter of shape (8, 3, 3, 3) requires them: Inlay runs inference; call the module "
        "under torch.inference_mode() or torch.no_grad()"
    )
    with raises_exactly(inlay.InvalidArguments, text):
        fast(x)
    module.train()
    text = "aten.batch_norm.default is in training mode: Inlay runs inference; call eval() on the module first"
    with torch.no_grad(), raises_exactly(inlay.InvalidArguments, text):
        fast(x)
    module.eval()
    with torch.no_grad():
        cases.assert_agrees(fast(x), module(x))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"options": {"cost": "probed"}},
            "there is no option 'cost': give some of costs, seconds, convolutions, engine, fallback, most_shapes",
        ),
        ({"mode": "max-autotune"}, "mode is 'max-autotune': the backend inlay has no modes, leave it out"),
        ({"options": {"most_shapes": 0}}, "most_shapes is 0: give a whole number from 1 on"),
    ],
)
def test_wrong_options_are_named(cases: Any, arguments: dict[str, Any], text: str) -> None:
    torch = cases.torch
    fast = torch.compile(torch.nn.ReLU(), backend=inlay.torch_backend, **arguments)
    with pytest.raises(Exception, match="backend='torch_backend' raised") as caught:
        fast(torch.randn(3))
    assert text in str(caught.value)


@pytest.mark.heavy
def test_autocast_is_part_of_the_graph(cases: Any) -> None:
    torch, module, x = cases.torch, cases.seeded(cases.convolutional), cases.torch.randn(2, 3, 16, 16)
    fast = compile_module(cases, module)
    with torch.inference_mode():
        with torch.autocast("cpu", torch.bfloat16):
            cases.assert_agrees(fast(x), module(x), 0.05)
        cases.assert_agrees(fast(x), module(x))
