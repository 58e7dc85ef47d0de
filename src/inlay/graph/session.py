"""`Session`: runs a network for inputs of any dims, from any number of threads.

    session = inlay.compile(network)              plans each shape at its first call
    session.prepare({"x": (8, 128)})              or ahead
    session.run({"x": array})["y"]
    session(array)                                the same by position: arrays in, arrays of their kind out

**Shapes.** For each shape of the inputs, a session has a plan and a `ProgramSession`, which is compiled from it. It
keeps those of the shapes that were used last, and all share the constants that have equal formats.

**Planning.** The first shape, and a shape of `prepare`, gets a plan of its own, for which kernels may be measured. Any
other new shape gets the formats of the plan for the nearest known dims (`Planner.adapt`), so a request waits for no
measurement. Runs of known shapes go on meanwhile: planning yields to them (`inlay.graph.background`).
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from inlay.arguments import integer_or_none
from inlay.errors import FileError, InlayError, InvalidArguments, StalePlanWarning, printable
from inlay.forks import ForkResetLock
from inlay.graph.background import in_background
from inlay.graph.decoder_inputs import DecoderInputs
from inlay.graph.decoding import DecodingState, StepRunner
from inlay.graph.garbage_collection import pause_garbage_collection
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenTensor, describe_open
from inlay.graph.planned_program import ADAPTED, PlannedProgram
from inlay.graph.program import FallbackShare, NumpyShare
from inlay.graph.runtime.arguments import InputValue, check_inputs, dims_of, require_dims
from inlay.graph.runtime.call_values import name_inputs, return_like, view_tensors
from inlay.graph.runtime.compiling import Weights
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.saved_plans.replanning import load_plan
from inlay.layout import Dims
from inlay.primitives.engine import Engine, EngineLike, get_engine

if TYPE_CHECKING:
    from inlay.graph.profiling import Profile

MOST_SHAPES = 32
"""Number of shapes of which a session keeps the plan, unless it is told another."""
_MOST_NAMED = 4  # shapes in a representation


class ShapePlanner(Protocol):
    """Plans one network for inputs of any dims that it can have."""

    @property
    def inputs(self) -> tuple[Tensor | OpenTensor, ...]:
        """The inputs of the network."""

    def plan(self, dims: Mapping[str, Dims]) -> PlannedProgram:
        """Return the plan for inputs of these dims, by name.

        Raises:
            InvalidArguments: the network cannot have these dims.
            Unimplemented, MissingExtra: it cannot be planned.
        """

    def adapt(self, known: PlannedProgram, dims: Mapping[str, Dims]) -> PlannedProgram:
        """Return a plan for inputs of these dims that has the formats of a known plan, without measuring anything.

        Raises:
            InvalidArguments, Unimplemented, MissingExtra: as `plan`.
        """


@dataclass(frozen=True, slots=True)
class KeptShape:
    """The plan and the compiled program of one shape of the inputs."""

    plan: PlannedProgram
    """The plan."""
    program: ProgramSession
    """The compiled program."""


class Session:
    """A network that is ready to run.

    >>> import inlay
    >>> import numpy as np
    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    >>> session = inlay.compile(inlay.load(model.SerializeToString()), engine="reference", costs="analytic")
    >>> session.run({"x": np.array([[1, -1], [-2, 2]], np.float32)})["y"].tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """

    def __init__(
        self,
        planner: ShapePlanner | None,
        first: PlannedProgram | None = None,
        *,
        engine: EngineLike = None,
        most_shapes: int = MOST_SHAPES,
        decoder: DecoderInputs | None = None,
        page: int | None = None,
    ) -> None:
        """Compile the plan `first` if it is given; without a planner, it is the only one.

        Args:
            planner: plans other shapes when they first occur; None refuses them.
            first: a plan that exists already.
            engine: the engine of the programs, or the default one.
            most_shapes: number of shapes of which the plan is kept.
            decoder: the inputs that steps of decoding give and keep; None for a session that keeps no states.
            page: number of positions by which the memory of a state grows; None if it is reserved at once.

        Raises:
            InvalidArguments: there is neither a planner nor a plan; `most_shapes` is below 1; or as `ProgramSession`.
            Unimplemented, MissingExtra, OutOfMemory: as `ProgramSession`.
        """
        if (integer_or_none(most_shapes) or 0) < 1:
            raise InvalidArguments(f"most_shapes is {most_shapes!r}: give a whole number from 1 on")
        if planner is None and first is None:
            raise InvalidArguments("neither a planner nor a plan is given: inlay.compile makes a session of a network")
        self._planner, self._most_shapes = planner, most_shapes
        self._engine = get_engine(engine)
        self._weights = Weights()
        self._lock, self._plan_lock = ForkResetLock(), ForkResetLock()
        self._shapes: dict[tuple[Dims, ...], KeptShape] = {}
        self._is_closed = False
        self._runner = None if decoder is None else StepRunner(decoder, self._run_dims)
        self._page = page
        self._own_state: DecodingState | None = None
        self.note = ""
        """One line on why a saved plan was made again; empty if it was not."""
        self._latest: ProgramSession | None = None
        if first is not None:
            self._inputs: tuple[Tensor | OpenTensor, ...] = first.inputs
            self._keep(tuple(tensor.dims for tensor in first.inputs), self._compile(first))
        if planner is not None:
            self._inputs = planner.inputs

    @classmethod
    def load(cls, path: str | PathLike[str], *, engine: EngineLike = None) -> "Session":
        """Return a session of a plan that `Plan.save` or `inlay plan -o` saved, for the dims of that plan.

        Nothing is measured, and the package onnx is not needed. The weights are read from a memory map of the file in
        the formats that the plan has, so processes that load one file share them; replace the file as a whole, and
        never write into it. If the processor, its instruction set, the engine or the version of Inlay is another one,
        the network is planned again from the saved graph, with probed costs, and `note` says so.

        Args:
            path: the file.
            engine: the engine of the session, or the default one.

        Raises:
            FileError: the file cannot be read, is no saved plan, is of another version, or was changed.
            Unimplemented, MissingExtra, OutOfMemory: as `Session`.

        Warns:
            StalePlanWarning: the network is planned again.
        """
        plan, note, require_intact = load_plan(Path(path), engine)
        if note:
            warnings.warn(note, StalePlanWarning, stacklevel=2)
        try:
            with pause_garbage_collection():
                session = cls(None, plan, engine=engine)
        except InlayError as error:
            require_intact()  # of a damaged file, this is the error to raise
            if not isinstance(error, InvalidArguments):
                raise
            raise FileError(f"{printable(str(path))} holds no valid plan: {error}") from error
        require_intact()
        session.note = note
        return session

    @property
    def engine(self) -> Engine:
        """The engine that computes the steps."""
        return self._engine

    @property
    def weights(self) -> Weights:
        """The packed constants, which all shapes share."""
        return self._weights

    @property
    def plans(self) -> tuple[PlannedProgram, ...]:
        """The plans that the session keeps, the most recently used last."""
        with self._lock:
            return tuple(kept.plan for kept in self._shapes.values())

    def run(self, inputs: Mapping[str, Any], *, out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Run the network, and return its outputs by name, as new arrays or in those of `out`.

        Inputs are NumPy arrays, PyTorch tensors, memory of Inlay, or any objects with DLPack. The first run with inputs
        of other dims plans and compiles the network for them.

        Raises:
            InvalidArguments: an input is missing, unknown, of another type, or of dims that the network cannot have; an
                array of `out` is not suitable; or the session is closed.
            OutOfMemory: the tensors do not fit in memory.
            Unimplemented, MissingExtra: the network cannot be planned for these dims.
        """
        if self._runner is not None:
            raise InvalidArguments("the session keeps states between runs: call step, or compile without state=")
        program, values = self._match(inputs)
        return program.run_values(values, out)

    def __call__(self, *inputs: Any) -> Any:
        """Run the network for an array of each input, in their order, or for one mapping of names to arrays.

        The result has the kind of the arrays that are passed: NumPy arrays, PyTorch tensors, JAX arrays (the kind of
        the first that is not NumPy's). It is one array if the network has one output, else a tuple of them in the order
        of the outputs.

        >>> import inlay
        >>> import numpy as np
        >>> from onnx import TensorProto, helper
        >>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
        >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
        >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        >>> session = inlay.compile(inlay.load(model.SerializeToString()), engine="reference", costs="analytic")
        >>> session(np.array([[1, -1]], np.float32))
        array([[1., 0.]], dtype=float32)

        Raises:
            InvalidArguments: there are more or fewer arrays than inputs; or as `run`.
            OutOfMemory, Unimplemented, MissingExtra: as `run`.
        """
        named = name_inputs(inputs, self._inputs)
        return return_like(named, self.run(view_tensors(named)))

    def new_state(self, *, batch: int = 1) -> DecodingState:
        """Return an empty state of decoding; `inlay.compile` with `state=` makes sessions with states.

        Args:
            batch: number of sequences.

        Raises:
            InvalidArguments: the session keeps no states, `batch` is no whole number from 1 on, or it is closed.
            OutOfMemory: the memory for the maximum cannot be allocated.
        """
        self._require_open()
        if (integer_or_none(batch) or 0) < 1:
            raise InvalidArguments(f"batch is {batch!r}: give a whole number from 1 on")
        return DecodingState(self._require_decoder().decoder, batch, self._page)

    def step(self, inputs: Mapping[str, Any], *, state: DecodingState | None = None) -> dict[str, Array]:
        """Run the network for new positions after those of a state, add them to it, and return the outputs by name.

        Inputs are those of the network but its states: arrays with one or several new positions, such as `input_ids`
        with dims (batch, positions). `attention_mask` may be left out: all positions are read; else it has a number for
        each kept and new one, 0 for those that are not read. `position_ids` may be left out: they go on from the length
        of the state. The write index and the number of positions of caches of the maximum length are left out. So are
        the outputs of states in the results.

        A step that fails leaves the length of the state as it was.

        Args:
            inputs: the new positions.
            state: a state that `new_state` of this session returned; None for one that the session keeps.

        Raises:
            InvalidArguments: the session keeps no states; the state is full, closed, or of another session; an input is
                missing, unknown, of another type, or of dims that do not fit; or the session is closed.
            OutOfMemory, Unimplemented, MissingExtra: as `run`.
        """
        runner = self._require_decoder()
        self._require_open()
        if state is None:
            with self._lock:
                state = self._own_state = self._own_state or self.new_state()
        given: object = state
        if not isinstance(given, DecodingState) or not given.is_of(runner.decoder):
            raise InvalidArguments("state is none of this session: give one that its new_state() returned")
        return runner.step(inputs, state)

    def prepare(self, dims: Mapping[str, Dims] | None = None, *, measure: bool = True) -> ProgramSession:
        """Plan and compile the network for inputs of these dims, by name, unless that is done; return the program.

        Args:
            dims: the dims of each input. None means those of the run or call before, or else those that the network
                fixes.
            measure: True plans these dims for themselves, with measured kernels if the costs are `measured`, and
                replaces a plan that has the formats of another one: call it before requests come, or when there are
                few. False does what a run with new dims does: it takes the formats of the plan for the nearest known
                dims, and measures nothing.

        Raises:
            InvalidArguments: an input is missing or unknown, or the network cannot have these dims; `dims` is None, and
                nothing says which they are; or the session is closed.
            Unimplemented, MissingExtra, OutOfMemory: as `run`.
        """
        self._require_open()
        if dims is None:
            latest = self._latest
            if latest is not None:
                return latest
            open_inputs = tuple(tensor for tensor in self._inputs if isinstance(tensor, OpenTensor) and tensor.is_open)
            if open_inputs:
                example = {one.name: tuple(n if isinstance(n, int) else 1 for n in one.dims) for one in self._inputs}
                raise InvalidArguments(describe_open(open_inputs, f"give the dims of each input, as {example}"))
        given = {tensor.name: tensor.dims for tensor in self._inputs} if dims is None else dims
        return self._program_for(_require_dims(given, self._inputs), is_ahead=measure)

    def trace(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the network, and return every tensor that is in memory at some time, inputs included, by name.

        Raises:
            InvalidArguments, OutOfMemory, Unimplemented, MissingExtra: as `run`.
        """
        return self._match(inputs)[0].trace(inputs)

    def profile(self, inputs: Mapping[str, Any], *, runs: int = 20) -> "Profile":
        """Return the times of whole runs and of each step, which is waited for: medians and quartiles of `runs` rounds.

        Raises:
            InvalidArguments: `runs` is not a whole number from 1 on, or as `run`.
            OutOfMemory, Unimplemented, MissingExtra: as `run`.
        """
        return self._match(inputs)[0].profile(inputs, runs=runs)

    def measure_numpy(self, inputs: Mapping[str, Any], *, runs: int = 3) -> NumpyShare:
        """Return the number of steps that NumPy computes, and their share of the time that `profile` measures.

        Raises:
            InvalidArguments, OutOfMemory, Unimplemented, MissingExtra: as `profile`.
        """
        return self._match(inputs)[0].measure_numpy(inputs, runs=runs)

    def measure_fallback(self, inputs: Mapping[str, Any], *, runs: int = 3) -> FallbackShare:
        """Return the number of steps that ONNX Runtime computes, and their share of the time that `profile` measures.

        Raises:
            InvalidArguments, OutOfMemory, Unimplemented, MissingExtra: as `profile`.
        """
        return self._match(inputs)[0].measure_fallback(inputs, runs=runs)

    def close(self) -> None:
        """Release all memory; a run that is going on ends as usual. Closing twice is allowed."""
        with self._lock:
            self._is_closed = True
            shapes, self._shapes, self._latest = self._shapes, {}, None
            own, self._own_state = self._own_state, None
        if own is not None:
            own.close()
        self._weights = Weights()
        for kept in shapes.values():
            kept.program.close()

    def __enter__(self) -> "Session":
        """Return the session, which is closed at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the session."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: a session holds addresses of one process."""
        raise InvalidArguments(
            "a session is memory and machine code of one process: pickle the network or the plan, and compile it there"
        )

    def __repr__(self) -> str:
        """Return the inputs, and the dims of the shapes that are kept."""
        inputs = ", ".join(f"{tensor.name} {tensor.extents}" for tensor in self._inputs)
        with self._lock:
            shapes = [", ".join(map(str, key)) for key in self._shapes]
        more = f" and {len(shapes) - _MOST_NAMED} more" if len(shapes) > _MOST_NAMED else ""
        note = f"; {self.note}" if self.note else ""
        return f"<Session: {inputs}; planned for {'; '.join(shapes[:_MOST_NAMED]) or 'no dims yet'}{more}{note}>"

    def _match(self, inputs: Mapping[str, Any]) -> tuple[ProgramSession, dict[str, InputValue]]:
        """Check these inputs, and return them with the program for their dims."""
        latest = self._latest
        values = None if latest is None else latest.match(inputs)
        if latest is not None and values is not None:
            return latest, values
        self._require_open()
        values = check_inputs(inputs, self._inputs)
        return self._program_for({name: dims_of(value) for name, value in values.items()}), values

    def _program_for(self, dims: Mapping[str, Dims], *, is_ahead: bool = False) -> ProgramSession:
        """Return the compiled program for these dims of all inputs; plan and compile it if it is not kept.

        If `is_ahead`, an adapted plan does not count as kept.
        """
        key = tuple(dims[tensor.name] for tensor in self._inputs)
        found = self._find(key, is_ahead)
        if found is None:
            with self._plan_lock:
                found = self._find(key, is_ahead)
                if found is None:
                    self._require_open()
                    with in_background():
                        kept = self._compile(self._plan(key, dims, is_ahead))
                    found = self._keep(key, kept)
        return found

    def _plan(self, key: tuple[Dims, ...], dims: Mapping[str, Dims], is_ahead: bool) -> PlannedProgram:
        """Plan the network for these dims: like the nearest known ones, unless `is_ahead` or there are none."""
        if self._planner is None:
            require_dims(self._inputs, dims)
            raise AssertionError(dims)  # the plan of its own dims is never forgotten
        known = None if is_ahead else self._find_nearest(key)
        return self._planner.plan(dims) if known is None else self._planner.adapt(known, dims)

    def _require_decoder(self) -> StepRunner:
        """Return what runs steps of decoding.

        Raises:
            InvalidArguments: the session keeps no states.
        """
        if self._runner is None:
            raise InvalidArguments("the session keeps no states: compile the network with state=inlay.StateOptions()")
        return self._runner

    def _run_dims(
        self, dims: Mapping[str, Dims], values: Mapping[str, Array], out: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Run the network for these dims of its inputs; `values` are the inputs of its program."""
        return self._program_for(dims).run_values(values, out)

    def _find_nearest(self, key: tuple[Dims, ...]) -> PlannedProgram | None:
        """Return the kept plan whose dims differ least from these, by the logarithms of their ratios; None without any.

        Plans for extents of 0 do not count: where nothing is computed, all formats are equally good.
        """
        with self._lock:
            plans = {other: kept.plan for other, kept in self._shapes.items() if not any(0 in dims for dims in other)}
        return plans[min(plans, key=partial(_distance, key))] if plans else None

    def _compile(self, plan: PlannedProgram) -> KeptShape:
        """Compile a plan on as many threads as the shape that was used last runs on."""
        threads = None if self._latest is None else self._latest.threads
        program = ProgramSession(
            plan.program,
            plan.graph,
            engine=self._engine,
            weights=self._weights,
            threads=threads,
            most_threads=plan.most_threads,
            guards=plan.guards,
        )
        return KeptShape(plan, program)

    def _find(self, key: tuple[Dims, ...], is_ahead: bool = False) -> ProgramSession | None:
        """Return the kept program for these dims, and mark it as the most recently used; None if there is none.

        If `is_ahead`, an adapted plan does not count.
        """
        with self._lock:
            kept = self._shapes.get(key)
            if kept is None or (is_ahead and kept.plan.method == ADAPTED):
                return None
            self._shapes[key] = self._shapes.pop(key)  # the last one is the most recently used
            self._latest = kept.program
            return kept.program

    def _keep(self, key: tuple[Dims, ...], kept: KeptShape) -> ProgramSession:
        """Keep a compiled program, unless this session was closed in the meantime, and release what is forgotten."""
        with self._lock:
            forgotten = [one for one in (self._shapes.pop(key, None),) if one is not None]
            while len(self._shapes) >= self._most_shapes:
                forgotten.append(self._shapes.pop(next(iter(self._shapes))))  # the least recently used
            if not self._is_closed:
                self._shapes[key] = kept
                self._latest = kept.program
        while forgotten:
            forgotten.pop().program.release_memory()
        self._weights.release_unused()
        return kept.program

    def _require_open(self) -> None:
        """Check that the session is not closed."""
        if self._is_closed:
            raise InvalidArguments("the session is closed: compile another one")


def _distance(one: tuple[Dims, ...], other: tuple[Dims, ...]) -> float:
    """Return the sum of the magnitudes of the logarithms of all ratios of extents."""
    return math.fsum(abs(math.log((n + 1) / (m + 1))) for n, m in zip(chain(*one), chain(*other), strict=False))


def _require_dims(dims: object, inputs: tuple[Tensor | OpenTensor, ...]) -> dict[str, Dims]:
    """Return dims of all inputs, by name, as tuples of numbers.

    Raises:
        InvalidArguments: an input is missing or unknown, or an extent is no number.
    """
    described = ", ".join(f"{tensor.name} {tensor.extents}" for tensor in inputs)
    if not isinstance(dims, Mapping) or set(dims) != {tensor.name for tensor in inputs}:
        given = ", ".join(map(str, dims)) if isinstance(dims, Mapping) else f"a {type(dims).__name__}"
        raise InvalidArguments(f"dims are given for {given}: give the dims of each input: {described}")
    found: dict[str, Dims] = {}
    for name, extents in dims.items():
        numbers = tuple(integer_or_none(n) for n in extents) if isinstance(extents, (tuple, list)) else (None,)
        whole = tuple(n for n in numbers if n is not None and n >= 0)
        if len(whole) != len(numbers):
            raise InvalidArguments(f"dims of {name} are {extents!r}: give a whole number for each axis of {described}")
        found[name] = whole
    return found
