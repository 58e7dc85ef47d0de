"""`CompiledGraph`: a graph of PyTorch that Inlay runs, and PyTorch where Inlay or an exporter refuses.

The first call exports the graph, and plans it for the shapes of its inputs; other shapes are planned at their first
call. If the whole graph is refused, it is split into parts. Weights are packed once, and read again by the first call
after they have changed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from inlay.errors import InvalidArguments
from inlay.forks import ForkResetLock
from inlay.graph.network import Network
from inlay.graph.open_network import OpenNetwork
from inlay.graph.planning import Planner, PlanOptions
from inlay.graph.session import MOST_SHAPES, Session
from inlay.graph.torch.constants import ConstantTensors
from inlay.graph.torch.exporting import REFUSALS, WRITES, ExportedGraph, GraphRefused, export_program
from inlay.graph.torch.part import GraphPart
from inlay.graph.torch.partition import (
    SplitGraph,
    argument_values,
    count_operators,
    find_refused,
    is_clean,
    make_functional,
    set_tensor,
    split_program,
)
from inlay.graph.torch.torch_package import TorchTensor, require_torch
from inlay.graph.torch.torch_report import INLAY, PYTORCH, TorchGraph, TorchPart

Results: TypeAlias = Sequence[Any]
"""Results of a graph, in order."""
_UNCOUNTED = "parameters were made in inference mode, and do not count their changes: make them outside of it"
MOST_RELOADS = 3
"""Number of calls in a row that find changed weights; after them, PyTorch runs the graph."""


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """The choices of a caller."""

    planning: PlanOptions = PlanOptions()  # noqa: RUF009  it is frozen
    """Options with which the graph is planned."""
    most_shapes: int = MOST_SHAPES
    """Number of shapes of which each session keeps the plan."""

    def make_session(self, network: Network | OpenNetwork) -> Session:
        """Compile a network."""
        return Session(Planner(network, self.planning), engine=self.planning.engine, most_shapes=self.most_shapes)

    def plan_alone(self, exported: ExportedGraph) -> None:
        """Load and plan a graph, without measuring.

        Raises:
            GraphRefused: Inlay does not support it.
        """
        options = replace(self.planning, costs="analytic", seconds=None, progress=None)
        try:
            Planner(exported.load(), options).plan()
        except REFUSALS as error:
            raise GraphRefused(str(error)) from error


class GraphSource(Protocol):
    """A graph that can be exported."""

    @property
    def name(self) -> str:
        """Name of the graph for reports."""

    @property
    def constants(self) -> Sequence[str]:
        """Names of the parameters and buffers in the exported program."""

    def capture(self, tensors: Sequence[TorchTensor], constants: Sequence[TorchTensor]) -> Any:
        """Return the `ExportedProgram` for these inputs, and parameters and buffers.

        Raises:
            GraphRefused: PyTorch cannot export the graph.
        """


@dataclass(frozen=True, slots=True)
class _RunningPart:
    """A part that Inlay runs."""

    part: GraphPart
    """The part."""
    constants: Mapping[str, str]
    """For each of its weights, the name of the constant of the graph."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A graph for certain weights."""

    call: Callable[..., Results | None]
    """Function of the input tensors; it returns None where PyTorch has to run the whole graph."""
    constants: ConstantTensors
    """The weights that were read."""
    positions: tuple[int, ...]
    """Their positions among the constants of the graph."""
    parts: tuple["_RunningPart", ...] = ()
    """The parts that Inlay runs."""
    eager: tuple[TorchPart, ...] = ()
    """The parts that PyTorch runs."""
    split: Any = None
    """The module of the parts; None for a whole graph."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """For each tensor that the module of the parts holds for PyTorch, by its path, the name of the constant it is."""


class CompiledGraph:
    """A graph that is compiled at its first call."""

    def __init__(self, source: GraphSource, options: GraphOptions) -> None:
        """Compile nothing yet."""
        self._source, self._options = source, options
        self._lock = ForkResetLock()
        self._compiled: _Compiled | None = None
        self._reloads = self._in_a_row = 0

    def run(self, tensors: Sequence[TorchTensor], constants: Sequence[TorchTensor]) -> Results | None:
        """Return the results for these inputs and weights; None if PyTorch has to run the whole graph.

        Raises:
            InvalidArguments: the graph is one of training, or a tensor is not on the CPU.
            MissingExtra, OutOfMemory: as `Session`.
        """
        compiled = self._compiled
        if compiled is None or not compiled.constants.match([constants[i] for i in compiled.positions]):
            compiled = self._compile(tensors, constants)
        elif self._in_a_row:
            self._in_a_row = 0
        return compiled.call(*tensors)

    def prepare(self, tensors: Sequence[TorchTensor], constants: Sequence[TorchTensor]) -> None:
        """Compile the graph for inputs of the shapes of these, and for these weights.

        Raises:
            InvalidArguments, MissingExtra, OutOfMemory: as `run`.
        """
        self._compile(tensors, constants)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions of the parts that Inlay runs; empty before the first call."""
        return () if self._compiled is None else tuple(one.part.session for one in self._compiled.parts)

    def report(self) -> TorchGraph:
        """Return what runs each part of the graph."""
        compiled = self._compiled
        if compiled is None:
            return TorchGraph(self._source.name, ())
        running = [one.part for one in compiled.parts]
        parts = [TorchPart(INLAY, part.operators, "", part.session.plans) for part in running]
        shapes = ((shape, reason) for part in running for shape, reason in part.refused.items())
        eager = [TorchPart(PYTORCH, 0, f"shapes {', '.join(map(str, shape))}: {reason}") for shape, reason in shapes]
        return TorchGraph(self._source.name, (*parts, *compiled.eager, *eager), self._reloads)

    def _compile(self, tensors: Sequence[TorchTensor], constants: Sequence[TorchTensor]) -> _Compiled:
        """Compile the graph, or read its weights again if it is compiled."""
        with self._lock:
            compiled = self._compiled
            if compiled is None:
                found = self._compile_first(tensors, constants)
            elif compiled.constants.match([constants[i] for i in compiled.positions]):
                return compiled  # another thread has read them
            else:
                found = self._reload(compiled, constants)
            self._compiled = found
            return found

    def _compile_first(self, tensors: Sequence[TorchTensor], constants: Sequence[TorchTensor]) -> _Compiled:
        """Compile the graph for these inputs and weights."""
        _require_cpu((*tensors, *constants))
        if any(tensor.is_inference() for tensor in constants):
            return _leave(_UNCOUNTED)
        try:
            program = self._source.capture(tensors, constants)
        except GraphRefused as error:
            return _leave(str(error))
        require_inference(program)
        weights, reason = dict(zip(self._source.constants, constants, strict=True)), ""
        if is_clean(program):
            state = self._track(program, constants)
            try:
                part = self._make_part(export_program(program), weights, tensors, count_operators(program.graph))
                running = _RunningPart(part, {name: name for name in weights})
                return _Compiled(part, *state, (running,))
            except GraphRefused as error:
                reason = str(error)
        try:
            functional = make_functional(program)
            return self._compile_split(functional, weights, self._track(functional, constants), reason)
        except GraphRefused as error:
            return _leave(str(error), count_operators(program.graph))

    def _track(self, program: Any, constants: Sequence[TorchTensor]) -> tuple[ConstantTensors, tuple[int, ...]]:
        """Note the constants that the program reads, and does not change itself; return them and their positions."""
        signature = program.graph_signature
        used = {*signature.parameters, *signature.buffers} - {*signature.buffers_to_mutate.values()}
        positions = tuple(i for i, name in enumerate(self._source.constants) if name in used)
        return ConstantTensors([constants[i] for i in positions]), positions

    def _make_part(
        self, exported: ExportedGraph, weights: Mapping[str, TorchTensor], tensors: Sequence[TorchTensor], count: int
    ) -> GraphPart:
        """Load and plan an exported graph for inputs of the shapes of these tensors."""
        return GraphPart(exported, weights, [tensor.shape for tensor in tensors], self._options.make_session, count)

    def _compile_split(
        self, program: Any, weights: Mapping[str, TorchTensor], state: tuple[ConstantTensors, tuple[int, ...]], why: str
    ) -> _Compiled:
        """Compile the parts of a program that Inlay supports; `why` is the reason if all of it is refused.

        Raises:
            GraphRefused: it supports no part.
        """
        made: list[_RunningPart] = []
        refusals: list[str] = []
        split = None
        if not why or why == WRITES:
            split = split_program(program, {})
            made, refusals = self._make_parts(split, weights)
        if split is None or refusals:
            split = split_program(program, find_refused(program, self._options.plan_alone))
            made, refusals = self._make_parts(split, weights)
        if not made:
            raise GraphRefused("; ".join(refusals) or why or "no two operators in a row are supported")
        eager = [TorchPart(PYTORCH, n, f"{name}: {reason}") for name, (n, reason) in split.refused.items()]
        eager += [TorchPart(PYTORCH, 0, reason) for reason in refusals]
        return _Compiled(split.module, *state, tuple(made), tuple(eager), split.module, self._copies(split, state[1]))

    def _copies(self, split: SplitGraph, positions: Sequence[int]) -> dict[str, str]:
        """Return the constants that a split graph holds for PyTorch: of its operators, and of parts that it may run."""
        paths = {f"{one.name}.eager.{name}": of for one in split.parts for name, of in one.constants.items()}
        return {name: name for name in (self._source.constants[i] for i in positions)} | paths

    def _make_parts(
        self, split: SplitGraph, weights: Mapping[str, TorchTensor]
    ) -> tuple[list[_RunningPart], list[str]]:
        """Load and plan the parts of a split graph; return them, and the reasons why others are refused."""
        made: list[_RunningPart] = []
        refusals: list[str] = []
        for one in split.parts:
            try:
                own = {name: weights[of] for name, of in one.constants.items() if of in weights}
                part = self._make_part(one.export(), own, one.examples, one.operators)
            except GraphRefused as error:
                refusals.append(str(error))
                setattr(split.module, one.name, _part_module(lambda *_: None, one.module))
            else:
                made.append(_RunningPart(part, one.constants))
                setattr(split.module, one.name, _part_module(part, one.module))
        return made, refusals

    def _reload(self, compiled: _Compiled, constants: Sequence[TorchTensor]) -> _Compiled:
        """Read the weights of a compiled graph again."""
        self._reloads += 1
        self._in_a_row += 1
        if any(tensor.is_inference() for tensor in constants):
            return _leave(_UNCOUNTED)
        if self._in_a_row > MOST_RELOADS:
            return _leave(f"weights had changed at each of {self._in_a_row} calls in a row")
        weights = dict(zip(self._source.constants, constants, strict=True))
        tracked = ConstantTensors([constants[i] for i in compiled.positions])
        for path, name in compiled.copies.items():
            if name in weights:
                set_tensor(compiled.split, path, weights[name])
        try:
            for one in compiled.parts:
                one.part.load({name: weights[of] for name, of in one.constants.items() if of in weights})
        except GraphRefused as error:
            return _leave(str(error))
        return replace(compiled, constants=tracked)


def _require_cpu(tensors: Sequence[TorchTensor]) -> None:
    """Check that all tensors are on the CPU.

    Raises:
        InvalidArguments: one is not.
    """
    other = next((tensor for tensor in tensors if tensor.device.type != "cpu"), None)
    if other is not None:
        raise InvalidArguments(
            f"a tensor of shape {tuple(other.shape)} is on {other.device}: Inlay runs on the CPU, move the module and "
            "its inputs there with cpu()"
        )


def _leave(reason: str, operators: int = 0) -> _Compiled:
    """Return a graph that PyTorch runs."""
    eager = (TorchPart(PYTORCH, operators, reason),)
    return _Compiled(lambda *tensors: None, ConstantTensors(()), (), (), eager)


def _part_module(part: Callable[..., Results | None], module: Any) -> Any:
    """Return a part as a module of PyTorch, which runs `module` where `part` returns None."""
    base: Any = require_torch().nn.Module
    is_one = not isinstance(module.graph.output_node().args[0], (tuple, list))

    class PartModule(base):  # type: ignore[misc]
        """A part of a split graph, and the operators that PyTorch runs where Inlay refuses a shape."""

        def __init__(self) -> None:
            """Hold the operators."""
            super().__init__()
            self.eager = module

        def forward(self, *tensors: TorchTensor) -> Any:
            """Return the results of the part: one alone, or a tuple."""
            results = part(*tensors)
            if results is None:
                return self.eager(*tensors)
            return results[0] if is_one else results

    return PartModule()


def require_inference(program: Any) -> None:
    """Check that no operator of a program is one of training, such as dropout.

    Raises:
        InvalidArguments: one is.
    """
    for node in program.graph.nodes:
        if node.op == "call_function" and _trains(node):
            raise InvalidArguments(
                f"{node.target} is in training mode: Inlay runs inference; call eval() on the module first"
            )


def _trains(node: Any) -> bool:
    """Return whether an operator has an argument that says that it trains."""
    return any(name in ("train", "training") and value is True for name, value in argument_values(node))
