"""`GraphPart`: an exported graph as a function of tensors, computed by a session of Inlay.

Tensors are read in place, and results share the memory of the arrays that the session returns. Shapes that the graph is
not valid for, or that Inlay cannot plan, are left to PyTorch.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from inlay.errors import InvalidArguments, PerformanceWarning
from inlay.forks import ForkResetLock
from inlay.graph.network import Network
from inlay.graph.open_network import OpenNetwork
from inlay.graph.session import Session
from inlay.graph.torch.exporting import REFUSALS, ExportedGraph, GraphRefused
from inlay.graph.torch.torch_package import TorchTensor, require_torch
from inlay.layout import Dims
from inlay.rearranging.array_kinds import numpy_of_torch, torch_of_numpy

SessionMaker: TypeAlias = Callable[[Network | OpenNetwork], Session]
"""Function that compiles a network."""
Shapes: TypeAlias = tuple[Dims, ...]
"""Dims of all inputs, in their order."""


class GraphPart:
    """A graph, or a part of one, that Inlay runs."""

    def __init__(
        self,
        exported: ExportedGraph,
        weights: Mapping[str, TorchTensor],
        shapes: Sequence[Dims],
        make_session: SessionMaker,
        operators: int,
    ) -> None:
        """Load the graph with these weights, and plan it for inputs of these shapes.

        Raises:
            GraphRefused: Inlay does not support the graph.
            MissingExtra, OutOfMemory: as `Session`.
        """
        self.operators = operators
        """Number of the graph's operators."""
        self._exported, self._make_session = exported, make_session
        self._torch = require_torch()
        self._lock = ForkResetLock()
        self._latest: Shapes = tuple(map(tuple, shapes))
        self._refused: dict[Shapes, str] = {}
        self.load(weights)

    def load(self, weights: Mapping[str, TorchTensor]) -> None:
        """Load the graph with these weights in place of those before, and plan it for the shapes that were used last.

        Raises:
            GraphRefused: Inlay does not support the graph.
            MissingExtra, OutOfMemory: as `Session`.
        """
        exported = self._exported.with_weights(weights)
        try:
            session = self._make_session(exported.load())
            session.prepare(self._dims(self._latest))
        except REFUSALS as error:
            raise GraphRefused(str(error)) from error
        self._session, self._known, self._exported = session, {self._latest}, exported

    @property
    def session(self) -> Session:
        """The session, which has a plan for each shape of the inputs."""
        return self._session

    @property
    def refused(self) -> dict[Shapes, str]:
        """The shapes of inputs that are left to PyTorch, each with the reason."""
        return dict(self._refused)

    def __call__(self, *tensors: TorchTensor) -> tuple[TorchTensor, ...] | None:
        """Return the results for these tensors; None if PyTorch has to compute them."""
        shapes = tuple([tensor.shape for tensor in tensors])
        if shapes not in self._known and not self._admit(shapes):
            return None
        torch, names = self._torch, self._exported.inputs
        try:
            arrays = {name: numpy_of_torch(torch, tensor) for name, tensor in zip(names, tensors, strict=True)}
        except (RuntimeError, TypeError):
            _require_arrays(names, tensors)
            raise
        results = self._session.run(arrays)
        return tuple([torch_of_numpy(torch, results[name]) for name in self._exported.outputs])

    def _admit(self, shapes: Shapes) -> bool:
        """Plan the graph for other shapes; return whether Inlay can run them."""
        shapes = tuple(map(tuple, shapes))
        with self._lock:
            if shapes in self._refused:
                return False
            fault = self._exported.rules.find_fault(shapes)
            try:
                if not fault:
                    self._session.prepare(self._dims(shapes), measure=False)
            except REFUSALS as error:
                fault = str(error)
            if fault:
                self._refused[shapes] = fault
                text = f"PyTorch runs shapes {', '.join(map(str, shapes))}: {fault}"
                warnings.warn(f"{text}; if an axis varies, export it as an open one", PerformanceWarning, stacklevel=2)
                return False
            self._known.add(shapes)
            self._latest = shapes
            return True

    def _dims(self, shapes: Shapes) -> dict[str, Dims]:
        """Return shapes by the names of the inputs."""
        return dict(zip(self._exported.inputs, shapes, strict=True))


def _require_arrays(names: Sequence[str], tensors: Sequence[TorchTensor]) -> None:
    """Check that tensors are on the CPU and dense.

    Raises:
        InvalidArguments: one is not.
    """
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.device.type != "cpu" or tensor.layout != require_torch().strided:
            raise InvalidArguments(
                f"input {name} is a tensor on {tensor.device}, {str(tensor.layout).removeprefix('torch.')}: give a "
                "dense tensor on the CPU"
            )
