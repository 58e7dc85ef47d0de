"""`inlay.from_torch`: modules agree with what they compute eagerly, and the report says which part runs where."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.graph.torch.torch_report import INLAY, PYTORCH
from tests.support.refusals import raises_exactly

pytestmark = pytest.mark.heavy

GRADIENTS = "Inlay runs inference; call the module under torch.inference_mode() or torch.no_grad()"
EVALUATE = "Inlay runs inference; call eval() on"


@pytest.fixture
def cases() -> Any:
    from tests.support import torch_cases

    return torch_cases


def test_a_module_is_one_part_and_reads_and_returns_tensors(cases: Any) -> None:
    torch, module, x = cases.torch, cases.seeded(cases.convolutional), cases.torch.randn(2, 3, 16, 16)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    with torch.inference_mode():
        cases.assert_agrees(fast(x), module(x))
        cases.assert_agrees(fast(input=x), module(x))
    assert [part.runs_in for part in fast.report().parts] == [INLAY]
    assert repr(fast) == "<TorchModule of Sequential: 1 parts in Inlay, 0 in PyTorch>"
    assert "Inlay    7 operators, planned for (2, 3, 16, 16)" in str(fast.report())
    assert fast.module is module
    assert len(fast.sessions) == 1


def test_an_open_batch_is_exported_once_and_planned_for_each_size(cases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, module = cases.torch, cases.seeded(cases.convolutional)
    fast = inlay.from_torch(module, torch.randn(2, 3, 16, 16), dynamic_shapes=({0: "batch"},), **cases.CHEAP)
    monkeypatch.setattr(torch.export, "export", lambda *_, **__: pytest.fail("exported again"))
    with torch.inference_mode():
        for batch in (1, 2, 7, 1):
            x = torch.randn(batch, 3, 16, 16)
            cases.assert_agrees(fast(x), module(x))
    assert {plan.inputs[0].dims[0] for plan in fast.sessions[0].plans} == {1, 2, 7}
    assert fast.report().refusals == ()


def test_other_shapes_of_a_fixed_axis_run_in_pytorch_with_a_warning(cases: Any) -> None:
    torch, module = cases.torch, cases.seeded(cases.convolutional)
    fast = inlay.from_torch(module, torch.randn(2, 3, 16, 16), **cases.CHEAP)
    x = torch.randn(4, 3, 16, 16)
    fault = "axis 0 of input input is 4, and the graph was exported for 2"
    with torch.inference_mode():
        text = f"PyTorch runs shapes (4, 3, 16, 16): {fault}; if an axis varies, export it as an open one"
        with pytest.warns(inlay.PerformanceWarning) as caught:
            cases.assert_agrees(fast(x), module(x))
        assert [str(warning.message) for warning in caught] == [text]
        cases.assert_agrees(fast(x), module(x))
    assert [part.reason for part in fast.report().refusals] == [f"shapes (4, 3, 16, 16): {fault}"]


def test_shapes_that_the_export_ties_together_are_checked(cases: Any) -> None:
    torch = cases.torch

    class Sum(cases.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return torch.relu(x + y)

    axes = {0: "n"}
    examples = torch.ones(3, 2), torch.ones(3, 2)
    fast = inlay.from_torch(Sum().eval(), examples, dynamic_shapes=(axes, axes), **cases.CHEAP)
    with torch.inference_mode():
        assert fast(torch.ones(5, 2), torch.ones(5, 2)).tolist() == [[2, 2]] * 5
        with pytest.warns(inlay.PerformanceWarning, match="axis 0 of input y is 1, and the graph was exported for 5"):
            assert fast(torch.ones(5, 2), torch.ones(1, 2)).tolist() == [[2, 2]] * 5


def test_arguments_by_name_flags_and_nested_results(cases: Any) -> None:
    torch, module = cases.torch, cases.seeded(cases.Nested)
    x, others, shift = torch.randn(2, 4), [torch.randn(2, 4), torch.randn(4)], torch.randn(4)
    fast = inlay.from_torch(module, (x, others), {"shift": shift, "double": True}, **cases.CHEAP)
    with torch.inference_mode():
        cases.assert_agrees(fast(x, others, shift=shift, double=True), module(x, others, shift=shift, double=True))
        expected = module(x, others, shift=shift, double=True)
        cases.assert_agrees(fast(double=True, others=others, x=x, shift=shift), expected)
        text = "an argument is False, and the module was exported for True: export it for this one by inlay.from_torch"
        with raises_exactly(inlay.InvalidArguments, text):
            fast(x, others, shift=shift, double=False)
        text = (
            "the arguments are not those of the example in number, names or nesting: call the module as in the "
            "example, or export it for these by inlay.from_torch"
        )
        with raises_exactly(inlay.InvalidArguments, text):
            fast(x, [*others, shift], shift=shift, double=True)
        text = "the module cannot be called with these arguments: missing a required argument: 'others'"
        with raises_exactly(inlay.InvalidArguments, text):
            fast(x)


def test_a_parameter_may_have_the_name_of_an_input(cases: Any) -> None:
    torch = cases.torch

    class Scale(cases.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.x = torch.nn.Parameter(torch.randn(8))

        def forward(self, x: Any) -> Any:
            return torch.relu(x * self.x)

    module, x = Scale().eval(), torch.randn(4, 8)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    with torch.inference_mode():
        cases.assert_agrees(fast(x), module(x))
    assert [part.runs_in for part in fast.report().parts] == [INLAY]


def test_a_branch_on_values_breaks_the_graph_and_both_sides_run(cases: Any) -> None:
    torch, module = cases.torch, cases.seeded(cases.Branching)
    fast = inlay.from_torch(module, torch.randn(4, 8), **cases.CHEAP)
    assert fast.report().graphs == ()
    with torch.inference_mode():
        for _ in range(2):
            x = torch.randn(4, 8)
            cases.assert_agrees(fast(x), module(x))
    report = fast.report()
    assert len(report.graphs) > 1
    assert {part.runs_in for part in report.parts} == {INLAY}
    assert report.notes[0].startswith("not one graph: torch.export: GuardOnDataDependentSymNode")


def test_an_operator_without_translation_runs_in_pytorch_between_two_parts(cases: Any) -> None:
    torch, module, x = cases.torch, cases.seeded(cases.Spectral), cases.torch.randn(4, 8)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    with torch.no_grad():
        cases.assert_agrees(fast(x), module(x), 1e-4)
        module.first.weight.mul_(2)
        module.second.bias = torch.nn.Parameter(torch.ones(8))
        cases.assert_agrees(fast(x), module(x), 1e-4)
        with pytest.warns(inlay.PerformanceWarning, match=r"^PyTorch runs shapes \(5, 8\): "):
            cases.assert_agrees(fast(x[[0, 1, 2, 3, 0]]), module(x[[0, 1, 2, 3, 0]]), 1e-4)
        module.load_state_dict(cases.Spectral().state_dict(), assign=True)
        cases.assert_agrees(fast(x), module(x), 1e-4)
        cases.assert_agrees(fast(x[[0, 1, 2, 3, 0]]), module(x[[0, 1, 2, 3, 0]]), 1e-4)
    inlay_parts = [part for part in fast.report().parts if part.runs_in == INLAY]
    assert [part.operators for part in inlay_parts] == [4, 3]
    refused = fast.report().refusals[0]
    assert (refused.runs_in, refused.operators) == (PYTORCH, 1)
    assert refused.reason.startswith("aten.linalg_eigvalsh: torch.onnx.export: ")


def test_an_operator_that_inlay_refuses_runs_in_pytorch(cases: Any) -> None:
    torch = cases.torch

    class Sorted(cases.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.topk(torch.relu(x * 2), 2).values + 1

    x = torch.randn(3, 8)
    fast = inlay.from_torch(Sorted().eval(), x, fallback=None, **cases.CHEAP)
    with torch.inference_mode():
        cases.assert_agrees(fast(x), Sorted()(x))
    refused, alone = fast.report().refusals
    assert refused.reason.startswith("aten.topk: ")
    assert "there is no primitive for TopK" in refused.reason
    assert alone.reason == "aten.add.Tensor: it is alone between others"


def test_random_numbers_are_those_of_pytorch(cases: Any) -> None:
    torch = cases.torch

    class Noisy(cases.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.relu(x + torch.randn_like(x) * 2) + 1

    module, x = Noisy().eval(), torch.randn(3, 8)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    results = []
    for run in (fast, module):
        torch.manual_seed(1)
        results.append(run(x))
    cases.assert_agrees(*results)
    assert [part.reason for part in fast.report().refusals] == [
        "aten.randn_like: random numbers are those of PyTorch's generator"
    ]


def test_writes_to_inputs_and_buffers_reach_them(cases: Any) -> None:
    torch, module, other = cases.torch, cases.seeded(cases.Writing), cases.seeded(cases.Writing)
    fast = inlay.from_torch(module, torch.zeros(4, 8), **cases.CHEAP)
    assert not module.calls.any()
    with torch.no_grad():
        for count in (1, 2, 3, 4, 5):
            x = torch.randn(4, 8)
            copy = x.clone()
            cases.assert_agrees((fast(x), x, module.calls), (other(copy), copy, other.calls))
            assert module.calls.tolist() == [count] * 8
    assert fast.report().graphs[0].reloads == 0
    assert [part.runs_in for part in fast.report().parts] == [INLAY, PYTORCH]


def test_weights_that_change_are_read_again(cases: Any) -> None:
    torch, module, x = cases.torch, cases.seeded(cases.convolutional), cases.torch.randn(2, 3, 16, 16)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    with torch.no_grad():
        before = fast(x)
        other = cases.convolutional()
        module.load_state_dict(other.state_dict())
        cases.assert_agrees(fast(x), module(x))
        assert not torch.equal(fast(x), before)
        module[6].bias = torch.nn.Parameter(torch.ones(5))
        cases.assert_agrees(fast(x), module(x))
        module[0].weight.data = torch.zeros(8, 3, 3, 3)
        cases.assert_agrees(fast(x), module(x))
        module.load_state_dict(other.state_dict(), assign=True)
        cases.assert_agrees(fast(x), module(x))
    assert fast.report().graphs[0].reloads == 4
    assert "weights read again 4 times" in str(fast.report())


def test_weights_that_change_at_each_call_leave_the_module_to_pytorch(cases: Any) -> None:
    torch, module, x = cases.torch, cases.seeded(cases.convolutional), cases.torch.randn(2, 3, 16, 16)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    with torch.no_grad():
        for _ in range(5):
            module[6].bias.add_(1)
            cases.assert_agrees(fast(x), module(x))
    assert [part.reason for part in fast.report().refusals] == ["weights had changed at each of 4 calls in a row"]


def test_parameters_of_inference_mode_are_left_to_pytorch(cases: Any) -> None:
    torch = cases.torch
    with torch.inference_mode():
        module, x = cases.seeded(cases.convolutional), torch.randn(2, 3, 16, 16)
        fast = inlay.from_torch(module, x, **cases.CHEAP)
        cases.assert_agrees(fast(x), module(x))
    (refused,) = fast.report().refusals
    assert "made in inference mode" in refused.reason
    module = cases.seeded(cases.convolutional)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    assert fast.report().refusals == ()
    with torch.inference_mode():
        module[6].bias = torch.nn.Parameter(torch.ones(5))
        cases.assert_agrees(fast(x), module(x))
    assert fast.report().refusals == (refused,)


def test_training_raises(cases: Any) -> None:
    module, x = cases.seeded(cases.convolutional), cases.torch.randn(2, 3, 16, 16)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    text = f"gradients are on, and a parameter of shape (8, 3, 3, 3) requires them: {GRADIENTS}"
    with raises_exactly(inlay.InvalidArguments, text):
        fast(x)
    module.requires_grad_(False)
    cases.assert_agrees(fast(x), module(x))
    with raises_exactly(
        inlay.InvalidArguments, f"gradients are on, and an input of shape (2, 3, 16, 16) requires them: {GRADIENTS}"
    ):
        fast(x.clone().requires_grad_())
    module.train()
    text = f"the module is in training mode: {EVALUATE} it first"
    with raises_exactly(inlay.InvalidArguments, text):
        fast(x)
    with raises_exactly(inlay.InvalidArguments, text):
        inlay.from_torch(module, x)
    module.training = False  # its dropout and its normalization still train
    with raises_exactly(
        inlay.InvalidArguments, f"aten.batch_norm.default is in training mode: {EVALUATE} the module first"
    ):
        inlay.from_torch(module, x)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64"])
def test_other_types_are_returned_as_they_are(cases: Any, name: str) -> None:
    torch = cases.torch
    dtype = getattr(torch, name)
    module = cases.seeded(lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())).to(dtype)
    x = torch.randn(4, 8).to(dtype)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    with torch.inference_mode():
        cases.assert_agrees(fast(x), module(x), 1e-10 if name == "float64" else 0.05)


def test_strides_of_inputs_and_weights_do_not_matter(cases: Any) -> None:
    torch, module = cases.torch, cases.seeded(cases.convolutional)
    module = module.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 16, 16)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    with torch.inference_mode():
        for value in (x, x.to(memory_format=torch.channels_last), x[:, :, ::2, ::2].repeat(1, 1, 2, 2), x.flip(0)):
            cases.assert_agrees(fast(value), module(value))
        wide = torch.randn(2, 3, 32, 16)[:, :, ::2]
        cases.assert_agrees(fast(wide), module(wide))


def test_several_threads_call_a_module(cases: Any) -> None:
    torch, module = cases.torch, cases.seeded(cases.convolutional)
    module.requires_grad_(False)  # gradients are off on the main thread only
    fast = inlay.from_torch(module, torch.randn(2, 3, 16, 16), dynamic_shapes=({0: "n"},), **cases.CHEAP)
    inputs = [torch.randn(1 + i % 4, 3, 16, 16) for i in range(24)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(fast, inputs))
    for x, result in zip(inputs, results, strict=True):
        cases.assert_agrees(result, module(x))


def test_tensors_are_read_in_place_and_results_are_of_the_caller(cases: Any) -> None:
    torch = cases.torch
    module, x = torch.nn.ReLU().eval(), torch.randn(1 << 16)
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    first = fast(x)
    kept = first.clone()
    x.neg_()
    second = fast(x)
    assert torch.equal(first, kept)
    assert torch.equal(second, module(x))
    first.zero_()
    assert torch.equal(fast(x), second)


def test_wrong_calls_of_from_torch(cases: Any) -> None:
    torch, module, x = cases.torch, cases.seeded(cases.convolutional), cases.torch.randn(2, 3, 16, 16)
    with raises_exactly(inlay.InvalidArguments, "module is a function: give a torch.nn.Module"):
        inlay.from_torch(lambda x: x, x)
    with pytest.raises(inlay.InvalidArguments, match=r"^dynamic_shapes do not fit the module: UserError: "):
        inlay.from_torch(module, x, dynamic_shapes=({0: "n"}, {0: "n"}))
    with raises_exactly(
        inlay.InvalidArguments, "costs are 'guessed': give measured, probed, analytic, or an object with costs"
    ):
        inlay.from_torch(module, x, costs="guessed")  # type: ignore[arg-type]
    text = (
        "a tensor of shape (2, 3, 16, 16) is on meta: Inlay runs on the CPU, move the module and its inputs there with "
        "cpu()"
    )
    with raises_exactly(inlay.InvalidArguments, text):
        inlay.from_torch(cases.convolutional().to("meta"), x.to("meta"))
    fast = inlay.from_torch(module, x, **cases.CHEAP)
    with torch.inference_mode():
        text = "input input is float64, the network takes float32: convert it, as with astype('float32')"
        with raises_exactly(inlay.InvalidArguments, text):
            fast(x.double())
        text = "input input is a tensor on meta, strided: give a dense tensor on the CPU"
        with raises_exactly(inlay.InvalidArguments, text):
            fast(x.to("meta"))
        with raises_exactly(inlay.InvalidArguments, "an argument is a ndarray: give a torch.Tensor, as in the example"):
            fast(np.zeros((2, 3, 16, 16), np.float32))
        text = (
            "autocast is on, and was not when the module was exported: call inlay.from_torch in the mode of the calls"
        )
        with torch.autocast("cpu", torch.bfloat16), raises_exactly(inlay.InvalidArguments, text):
            fast(x)


def test_load_names_from_torch(cases: Any) -> None:
    text = (
        "a network is read from a path or from the bytes of a file, not from a Sequential: "
        "inlay.from_torch(module, example_inputs) exports, plans and runs it"
    )
    with raises_exactly(inlay.InvalidArguments, text):
        inlay.load(cases.convolutional())
