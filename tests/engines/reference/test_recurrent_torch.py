"""Recurrent networks of the reference engine against PyTorch's: outputs, states, and gradients by its autograd.

PyTorch has one layer above another across both directions, gates of a GRU in the order r u o, two biases, and the reset
gate after the product; so a network of it with D directions is one primitive for each layer here.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.recurrent_cases import Case, make_case, pack_arguments, run_backward, run_forward

pytestmark = pytest.mark.heavy

Arrays = dict[str, npt.NDArray[Any]]
KINDS = {"vanilla_rnn": "RNN", "lstm": "LSTM", "lbr_gru": "GRU"}
ORDER = {"vanilla_rnn": [0], "lstm": [0, 1, 2, 3], "lbr_gru": [1, 0, 2]}
"""Indices of Inlay's gates in the order of PyTorch's gates."""


def parameters(case: Case, torch: Any) -> dict[str, Any]:
    """PyTorch's parameters of each direction: W, U, two biases, projection."""
    found = {}
    order = ORDER[case.kind]
    for d in range(case.arrays["weights_layer"].shape[1]):
        end = "_l0" + "_reverse" * d
        for ours, theirs in (("weights_layer", "weight_ih"), ("weights_iter", "weight_hh")):
            weights = case.arrays[ours][0, d][:, order]
            found[theirs + end] = weights.transpose(1, 2, 0).reshape(-1, weights.shape[0])
        bias = case.arrays["bias"][0, d]
        inner = np.zeros_like(bias[: len(order)])
        if case.kind == "lbr_gru":
            inner[2] = bias[3]
        found["bias_ih" + end] = bias[order].reshape(-1)
        found["bias_hh" + end] = inner.reshape(-1)
        if "weights_projection" in case.arrays:
            found["weight_hr" + end] = case.arrays["weights_projection"][0, d].T
    return {name: torch.tensor(np.ascontiguousarray(array, np.float64)) for name, array in found.items()}


def peer(case: Case, torch: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """PyTorch's network, and its inputs."""
    arrays = case.arrays
    channels = arrays["weights_layer"].shape[4]
    options: dict[str, Any] = {"bidirectional": case.direction == "concat"}
    if "weights_projection" in arrays:
        options["proj_size"] = arrays["weights_projection"].shape[3]
    if case.kind == "vanilla_rnn":
        options["nonlinearity"] = case.parameters["activation"]
    network = getattr(torch.nn, KINDS[case.kind])(arrays["src_layer"].shape[2], channels, **options).double()
    network.load_state_dict(parameters(case, torch))
    src = torch.tensor(arrays["src_layer"], dtype=torch.float64, requires_grad=True)
    states = [torch.tensor(arrays[name][0], dtype=torch.float64, requires_grad=True) for name in states_of(case, "src")]
    return network, src, tuple(states)


def states_of(case: Case, which: str) -> list[str]:
    return [f"{which}_iter", f"{which}_iter_c"] if case.kind == "lstm" else [f"{which}_iter"]


def ours_of(case: Case, gradients: Mapping[str, Any]) -> Arrays:
    """PyTorch's gradients of its parameters as those of ours."""
    found: dict[str, list[Any]] = {"diff_weights_layer": [], "diff_weights_iter": [], "diff_bias": []}
    order, channels = ORDER[case.kind], case.arrays["weights_layer"].shape[4]
    for d in range(case.arrays["weights_layer"].shape[1]):
        end = "_l0" + "_reverse" * d
        for ours, theirs in (("weights_layer", "weight_ih"), ("weights_iter", "weight_hh")):
            matrix = gradients[theirs + end].reshape(len(order), channels, -1)
            found[f"diff_{ours}"].append(matrix[np.argsort(order)].transpose(2, 0, 1))
        bias = gradients["bias_ih" + end].reshape(len(order), channels)[np.argsort(order)]
        inner = gradients["bias_hh" + end].reshape(len(order), channels)[2:3]
        found["diff_bias"].append(np.concatenate([bias, inner]) if case.kind == "lbr_gru" else bias)
        if "weights_projection" in case.arrays:
            found.setdefault("diff_weights_projection", []).append(gradients["weight_hr" + end].T)
    return {name: np.stack(rows)[None] for name, rows in found.items()}


CASES = [
    make_case(kind, direction, times=times, batch=batch, channels=channels, inputs=7, projection=projection, seed=seed)
    for seed, (kind, direction, times, batch, channels, projection) in enumerate(
        [
            (kind, direction, times, batch, channels, None)
            for kind in KINDS
            for direction in ("left2right", "concat")
            for times, batch, channels in ((1, 1, 1), (4, 3, 17), (6, 1, 16), (2, 5, 33))
        ]
        + [("lstm", direction, 4, 3, 9, 5) for direction in ("left2right", "concat")]
    )
] + [make_case("vanilla_rnn", "concat", parameters={"activation": "relu"}, seed=99)]


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_outputs_and_gradients_are_those_of_pytorch(case: Case) -> None:
    torch = pytest.importorskip("torch")
    network, src, states = peer(case, torch)
    result, after = network(src, states if case.kind == "lstm" else states[0])
    written = dict(zip(states_of(case, "dst"), after if case.kind == "lstm" else (after,), strict=True))
    forward = case.forward()
    found = run_forward(forward, case.arrays)
    assert found["dst_layer"].unpack() == pytest.approx(result.detach().numpy(), rel=1e-6, abs=2e-7)
    for name, tensor in written.items():
        assert found[name].unpack()[0] == pytest.approx(tensor.detach().numpy(), rel=1e-6, abs=2e-7)

    gradients = case.gradients(forward)
    weighed = (result * torch.tensor(gradients["diff_dst_layer"])).sum()
    for name, tensor in written.items():
        weighed = weighed + (tensor * torch.tensor(gradients[f"diff_{name}"][0])).sum()
    weighed.backward()
    back = run_backward(forward, case.backward(forward), case.arrays, gradients)
    wanted = ours_of(case, {name: one.grad.numpy() for name, one in network.named_parameters()})
    wanted["diff_src_layer"] = src.grad.numpy()
    for name, state in zip(states_of(case, "src"), states, strict=True):
        wanted[f"diff_{name}"] = state.grad.numpy()[None]
    assert set(back) == set(wanted)
    for name, array in wanted.items():
        assert back[name] == pytest.approx(array, rel=1e-5, abs=1e-5)


def test_layers_above_one_another_are_primitives_above_one_another() -> None:
    """With one direction a stack of PyTorch is one primitive, too."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.LSTM(6, 6, num_layers=3)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 2, 6)).astype(np.float32)
    kinds = {"weights_layer": "weight_ih_l", "weights_iter": "weight_hh_l"}
    arrays = {"src_layer": x}
    for ours, theirs in kinds.items():
        rows = [getattr(network, f"{theirs}{i}").detach().numpy().reshape(4, 6, 6).transpose(2, 0, 1) for i in range(3)]
        arrays[ours] = np.stack(rows)[:, None]
    rows = [(getattr(network, f"bias_ih_l{i}") + getattr(network, f"bias_hh_l{i}")).detach().numpy() for i in range(3)]
    arrays["bias"] = np.stack(rows).reshape(3, 1, 4, 6)
    primitive = Case("lstm", "left2right", arrays).forward()
    found = primitive(**pack_arguments(primitive, arrays))
    result, (h, c) = network(torch.tensor(x))
    for name, tensor in (("dst_layer", result), ("dst_iter", h[:, None]), ("dst_iter_c", c[:, None])):
        assert found[name].unpack() == pytest.approx(tensor.detach().numpy(), rel=1e-5, abs=1e-6)
