"""Modules of PyTorch for tests of `inlay.from_torch`, and a comparison with what they compute eagerly."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")
nn = torch.nn
Module: Any = nn.Module

CHEAP: Mapping[str, Any] = MappingProxyType({"costs": "analytic", "engine": "reference"})
"""Options that measure nothing and need no engine's library."""


class Branching(Module):  # type: ignore[misc]
    """A branch on a value: PyTorch cannot export it as one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.first(x))
        if y.sum() > 0:
            y = torch.tanh(y + 1)
        return self.second(y)


class Spectral(Module):  # type: ignore[misc]
    """An operator without translation, `linalg.eigvalsh`, between two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.first(x))
        values = torch.linalg.eigvalsh(y.transpose(0, 1) @ y)
        return torch.relu(self.second(values) + 1), y


class Writing(Module):  # type: ignore[misc]
    """Writes to its input and to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(8))

    def forward(self, x: Any) -> Any:
        x.add_(1)
        self.calls += 1
        return torch.relu_(self.linear(x)) + self.calls


class Nested(Module):  # type: ignore[misc]
    """Reads a keyword, a flag and a list, and returns a dict of tensors, a tuple, None and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, x: Any, others: Any, *, shift: Any = None, double: bool = False) -> Any:
        y = (x + others[0]) * self.scale + others[1]
        y = y if shift is None else y + shift
        return {"y": y * 2 if double else y, "more": (y.mean(-1), None, 3), "x": x}


def convolutional() -> Any:
    """A convolution with normalization and a classifier; `inplace` as most CNNs have it."""
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2)
    module = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.5), nn.Linear(32, 5))
    module[1].running_mean.normal_()
    return module.eval()


def seeded(build: Any) -> Any:
    """Return a module in evaluation mode with weights of seed 0."""
    torch.manual_seed(0)
    return build().eval()


def assert_agrees(results: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Require results of the same structure, types and shapes, with elements that differ by rounding only."""
    ours, spec = torch.utils._pytree.tree_flatten(results)
    theirs, expected_spec = torch.utils._pytree.tree_flatten(expected)
    assert spec == expected_spec
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
        else:
            assert one == other
