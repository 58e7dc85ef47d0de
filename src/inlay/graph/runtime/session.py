"""`Session`: compiles a program and runs it, from any number of threads.

    session = Session(program, graph)
    session.run({"data": image})["softmax"]

Compiling creates implementations, generates machine code, packs constants in the formats of kernels, and binds every
call to addresses in one arena. A run executes a flat list of calls.

**Memory.** Tensors that are not live at the same time share bytes (`session.arena`). If no step overwrites an input, it
has the format of the program and over 64 KiB, steps read the caller's memory, and the session holds a reference to it
until the next run; otherwise it is copied. Results are new arrays, or arrays of the caller.

**Threads.** Several threads may run a session at once. Each run has an arena of its own, which later runs use again;
constants are shared. Each calling thread has its own team of engine threads: limit them by `inlay.set_num_threads`
before compiling. While other programs or a quota take processors away, runs use fewer threads (see `adaptive_team`).
The program is compiled once for each number of threads, in the same formats of activations.

**Sizes.** A session is compiled for one set of dims. Given `replan`, it plans a program for other dims when they first
occur, caches its session, and shares all constants in equal formats with it. Runs of known dims go on meanwhile.

**Steps.** `trace` runs step by step and returns every tensor; `profile` returns the time of each step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import Any, NoReturn, TypeAlias

import numpy as np

from inlay.errors import InlayError, InvalidArguments
from inlay.forks import ForkResetLock
from inlay.graph.op_graph import Array, OpGraph, exact_graph
from inlay.graph.program import FallbackShare, NumpyShare, Program, Step, fallback_share, numpy_share
from inlay.graph.runtime.adaptive_team import AdaptiveTeam, free_threads, quota_threads
from inlay.graph.runtime.arena import Arena, plan_memory, require_memory
from inlay.graph.runtime.checking import WriteTracker, require_names, require_sound
from inlay.graph.runtime.compiling import PreparedStep, Weights, prepare
from inlay.graph.runtime.guards import NO_GUARDS, GuardFailed, GuardHistory, RunGuards, build_guards
from inlay.graph.runtime.instance import (
    CompiledProgram,
    InputValue,
    Instance,
    InstancePool,
    check_inputs,
    check_outputs,
    dims_of,
    match_arrays,
    require_dims,
)
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.worker_affinity import keep_workers_apart
from inlay.layout import Dims
from inlay.primitives.engine import Engine, EngineLike, get_engine
from inlay.reordering.threads import ThreadLimit


@dataclass(frozen=True, slots=True)
class StepTiming:
    """The measured time of a step."""

    step: Step
    """The step."""
    impl: str
    """Name of its implementation."""
    ms: float
    """Median time of the runs in milliseconds."""


Replan: TypeAlias = Callable[[Mapping[str, Dims]], tuple[Program, OpGraph]]
"""A function from the dims of each input, by name, to a program and its graph for these dims."""

_MOST_SIZES = 16  # sessions for other dims
_MOST_TEAMS = 4  # numbers of threads for which the program stays compiled


class Session:
    """A program that is ready to run.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> from inlay.graph.op_graph import Op
    >>> from inlay.graph.runtime.plain import plain_program
    >>> relu = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
    >>> op = Op("relu", "eltwise", {"src": "x"}, {"dst": "y"}, parameters=relu)
    >>> tensors = {name: Tensor(name, (2, 2), np.dtype(np.float32)) for name in "xy"}
    >>> graph = OpGraph("small", 17, ("x",), ("y",), (op,), tensors)
    >>> session = Session(plain_program(graph), graph, engine="reference")
    >>> session.run({"x": np.array([[1, -1], [-2, 2]], np.float32)})["y"].tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """

    def __init__(
        self,
        program: Program,
        graph: OpGraph,
        *,
        engine: EngineLike = None,
        replan: Replan | None = None,
        weights: Weights | None = None,
        threads: int | None = None,
        is_exact: bool = False,
    ) -> None:
        """Compile `program`, whose tensors and references are those of `graph`.

        Args:
            program: the steps to compile.
            graph: the graph that the program computes.
            engine: the engine of the steps, or the default one. The reference engine computes what it does not support.
            replan: plans a program for other dims; None refuses other dims.
            weights: packed constants to share with other sessions.
            threads: number of threads of the first runs; as many as the engine may use if None.
            is_exact: whether the reference engine computes every step that may lose NaN or infinities.

        Raises:
            InvalidArguments: the program is not valid (see `checking`), or an engine requires other formats.
            Unimplemented: no engine supports a step.
            MissingExtra: a package is missing that the engine or a step needs.
            OutOfMemory: the tensors or constants do not fit in memory.
        """
        self._engine: Engine = get_engine(engine)
        self._is_exact = is_exact
        self._weights = Weights() if weights is None else weights
        self._replan = replan
        self._lock = ForkResetLock()
        self._plan_lock = ForkResetLock()
        self._graph = graph
        predicted = sum(step.ms for step in program.steps) / 1e3
        most = self._engine.num_threads
        start = min(threads or most, quota_threads(most))
        self._team = AdaptiveTeam(most, free_threads, expected=predicted or None, start=start)
        self._compile_lock = ForkResetLock()
        self._guards: RunGuards | None = None
        self._pools: dict[int, InstancePool] = {}
        self._compiled = self._pool_for(self._team.threads, program).compiled
        self._inputs = tuple(graph.tensors[name] for name in program.inputs)
        self._sessions_by_dims: dict[tuple[Dims, ...], Session] = {}
        self._exact: Session | None = None
        self._history = GuardHistory()
        self._is_closed = False

    @property
    def program(self) -> Program:
        """The program that runs execute."""
        return self._compiled.program

    @property
    def graph(self) -> OpGraph:
        """The graph that the program computes."""
        return self._graph

    @property
    def arena(self) -> Arena:
        """The arena of all tensors except inputs that are read in the caller's memory."""
        return self._compiled.memory_plan.arena

    @property
    def engine(self) -> Engine:
        """The engine that computes the steps."""
        return self._engine

    @property
    def threads(self) -> int:
        """Number of the engine's threads that the next run uses; 1 for an engine without threads."""
        return self._team.threads

    @property
    def weights(self) -> Weights:
        """The packed constants."""
        return self._weights

    @property
    def input_dims(self) -> dict[str, Dims]:
        """The dims of each input that the session was compiled for."""
        return {name: self._graph.tensors[name].dims for name in self._compiled.program.inputs}

    @property
    def impls(self) -> dict[str, str]:
        """Name of each step's implementation, by the name of the step."""
        return {prepared.step.name: prepared.impl for prepared in self._compiled.prepared}

    @property
    def declined(self) -> tuple[str, ...]:
        """Names of the steps that the engine does not compute as it prefers, in the order they run.

        They are the steps that the engine does not support, which the slow reference engine computes, and those whose
        preferred implementation failed at code generation, which another and mostly slow implementation computes:
        `impls` has its name.

        Nodes without a primitive are not among them: the plan reports these, and the reason.
        """
        prepared = self._compiled.prepared
        return tuple(one.step.name for one in prepared if one.is_declined or one.replaced)

    @property
    def note(self) -> str:
        """One line with the number and names of the steps in `declined`; empty if there are none."""
        return describe_declined(self._compiled.prepared)

    @property
    def numpy(self) -> NumpyShare:
        """The number of steps that NumPy computes for want of a kernel, and their share of the predicted time."""
        steps = ((one.step, one.impl, one.step.ms) for one in self._compiled.prepared)
        return numpy_share(steps, "predicted")

    @property
    def fallback(self) -> FallbackShare:
        """The number of steps that ONNX Runtime computes, and their share of the predicted time."""
        return fallback_share(((one.step, one.impl, one.step.ms) for one in self._compiled.prepared), "predicted")

    def run(self, inputs: Mapping[str, Any], *, out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Run the network, and return its outputs by name, as new arrays or in those of `out`.

        Inputs are NumPy arrays, PyTorch tensors, memory of Inlay, or any objects with DLPack.

        Raises:
            InvalidArguments: an input is missing, unknown, of another type, or of dims that neither the session nor
                `replan` supports; an array of `out` is not suitable; or the session is closed.
            OutOfMemory: the tensors do not fit in memory.
        """
        session, values = self._session_for_inputs(inputs)
        arrays = check_outputs(out, [session._graph.tensors[name] for name in session.program.outputs])
        threads, pool = session._pool()
        if not session._history.is_exact_next(pool.compiled.guards):
            try:
                return session._run(values, arrays, threads, pool)
            except GuardFailed:
                session._history.note(failed=True)
        return session._exact_session().run(inputs, out=out)

    def _run(
        self, values: Mapping[str, InputValue], arrays: Mapping[str, Array], threads: int, pool: InstancePool
    ) -> dict[str, Array]:
        """Run checked inputs on an instance of `pool`, and return the results; raise GuardFailed if a guard fails."""
        with ThreadLimit(self._thread_limit(threads)):
            instance = pool.acquire()
            try:
                instance.feed(values)
                keep_workers_apart(self._engine.thread_team, threads)
                began = perf_counter()
                instance.run()
                self._team.note(threads, perf_counter() - began)
                self._history.note(failed=False)
                return instance.fetch(arrays)
            finally:
                pool.release(instance)

    def trace(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the network, and return every tensor that is in memory at some time, inputs included, by name.

        Raises:
            InvalidArguments, OutOfMemory: as `run`.
        """
        session, values = self._session_for_inputs(inputs)
        if session._fails_guards(values):
            return session._exact_session().trace(inputs)
        with session._instance(values) as instance:
            return trace_instance(instance, session._graph)

    def profile(self, inputs: Mapping[str, Any], *, runs: int = 20) -> list[StepTiming]:
        """Return the time of each step: the median of `runs` runs, in which each step is waited for.

        Raises:
            InvalidArguments: `runs` is not positive, or as `run`.
            OutOfMemory: as `run`.
        """
        if runs < 1:
            raise InvalidArguments(f"runs is {runs}: give 1 or more")
        session, values = self._session_for_inputs(inputs)
        if session._fails_guards(values):
            return session._exact_session().profile(inputs, runs=runs)
        with session._instance(values) as instance:
            return profile_instance(instance, runs)

    def measure_numpy(self, inputs: Mapping[str, Any], *, runs: int = 3) -> NumpyShare:
        """Return the number of steps that NumPy computes, and their share of the time that `profile` measures.

        Raises:
            InvalidArguments, OutOfMemory: as `profile`.
        """
        return numpy_share(((one.step, one.impl, one.ms) for one in self.profile(inputs, runs=runs)), "measured")

    def measure_fallback(self, inputs: Mapping[str, Any], *, runs: int = 3) -> FallbackShare:
        """Return the number of steps that ONNX Runtime computes, and their share of the time that `profile` measures.

        Raises:
            InvalidArguments, OutOfMemory: as `profile`.
        """
        return fallback_share(((one.step, one.impl, one.ms) for one in self.profile(inputs, runs=runs)), "measured")

    def close(self) -> None:
        """Release all memory; a run that is going on ends as usual. Closing twice is allowed."""
        with self._lock:
            self._is_closed = True
            others, self._sessions_by_dims = self._sessions_by_dims, {}
            exact, self._exact = self._exact, None
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()
        self._weights = Weights()
        for other in (*others.values(), *([exact] if exact else ())):
            other.close()

    def __enter__(self) -> "Session":
        """Return the session, which is closed at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the session."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: a session holds addresses of one process."""
        raise InvalidArguments(
            "a Session is memory and machine code of one process: pickle the network or the plan, and compile it there"
        )

    def __repr__(self) -> str:
        """Return the network, its inputs, the number of steps, the memory, and `note`."""
        inputs = ", ".join(f"{name} {dims}" for name, dims in self.input_dims.items())
        shares = "".join(f"; {share}" for share in (self.fallback, self.numpy) if share.count)
        note = f"; {self.note}" if self.declined else ""
        return f"<Session of {self._graph.name}: {inputs}; {len(self.program.steps)} steps, {self.arena}{shares}{note}>"

    def _session_for_inputs(self, inputs: Mapping[str, Any]) -> "tuple[Session, dict[str, InputValue]]":
        """Check these inputs, and return them with the session for their dims."""
        matched = match_arrays(inputs, self._inputs)
        if matched is not None:
            self._require_open()
            return self, matched
        tensors = self._graph.tensors
        values = check_inputs(inputs, self._inputs)
        self._require_open()
        for name, value in values.items():
            if dims_of(value) != tensors[name].dims:
                return self._session_for_dims({name: dims_of(value) for name, value in values.items()}), values
        return self, values

    def _session_for_dims(self, dims: Mapping[str, Dims]) -> "Session":
        """Return the cached session for other dims, or plan and compile one."""
        if self._replan is None:
            for name, its in dims.items():
                require_dims(self._graph.tensors[name], its, "give such an array, or plan the network for these dims")
            raise AssertionError(dims)
        key = tuple(dims.values())
        session = self._cached_session(key)
        if session is None:
            # One thread plans at a time: plans share their costs, and measurements must not disturb each other.
            with self._plan_lock:
                session = self._cached_session(key)
                if session is None:
                    self._require_open()
                    program, graph = self._replan(dims)
                    threads = self._team.threads
                    session = Session(program, graph, engine=self._engine, weights=self._weights, threads=threads)
                    self._cache_session(key, session)
        return session

    def _cached_session(self, key: tuple[Dims, ...]) -> "Session | None":
        """Return the cached session for other dims, and mark it as the most recently used; None if there is none."""
        with self._lock:
            session = self._sessions_by_dims.pop(key, None)
            if session is not None:
                self._sessions_by_dims[key] = session  # the last one is the most recently used
            return session

    def _cache_session(self, key: tuple[Dims, ...], session: "Session") -> None:
        """Cache a session for other dims, unless this session was closed in the meantime."""
        with self._lock:
            while len(self._sessions_by_dims) >= _MOST_SIZES:
                del self._sessions_by_dims[next(iter(self._sessions_by_dims))]  # the least recently used
            if not self._is_closed:
                self._sessions_by_dims[key] = session

    def _require_open(self) -> None:
        """Check that the session is not closed."""
        if self._is_closed:
            raise InvalidArguments("the session is closed: compile another one")

    def _fails_guards(self, values: Mapping[str, InputValue]) -> bool:
        """Run these inputs once, and return whether exact kernels have to compute them."""
        try:
            with self._instance(values) as instance:
                instance.run()
                return instance.compiled.guards.after is None
        except GuardFailed:
            return True

    @contextmanager
    def _instance(self, values: Mapping[str, InputValue]) -> Iterator[Instance]:
        """Provide an instance with these inputs, on as many threads as the next run uses."""
        threads, pool = self._pool()
        with ThreadLimit(self._thread_limit(threads)), pool.instance() as instance:
            instance.feed(values)
            yield instance

    def _exact_session(self) -> "Session":
        """Return the session whose kernels propagate NaN and infinities; the first call compiles it."""
        with self._compile_lock:
            if self._exact is None:
                self._require_open()
                graph, engine = exact_graph(self._graph), self._engine
                self._exact = Session(plain_program(graph), graph, engine=engine, weights=self._weights, is_exact=True)
            return self._exact

    def _thread_limit(self, threads: int) -> int | None:
        """Return the limit that a run on `threads` threads sets for its thread; None for the largest team."""
        return threads if threads < self._team.most else None

    def _pool(self) -> tuple[int, InstancePool]:
        """Return the number of threads of the next run, and the pool of instances for it."""
        threads = self._team.threads
        pool = self._pools.get(threads)
        if pool is not None:
            return threads, pool
        self._require_open()
        try:
            return threads, self._pool_for(threads, self._compiled.program)
        except InlayError:
            # There is too little memory, or an engine does not support a step on this number of threads.
            return self._team.fix_threads(next(iter(self._pools))), next(iter(self._pools.values()))

    def _pool_for(self, threads: int, program: Program) -> InstancePool:
        """Return the pool of instances for so many threads, compiling the program at the first call.

        Of the pools, the first one and the last few that were compiled are cached.
        """
        with self._compile_lock, ThreadLimit(self._thread_limit(threads)):
            if threads not in self._pools:
                compiled = self._compile(program)
                self._guards, pool = compiled.guards, InstancePool(compiled)
                if len(self._pools) >= _MOST_TEAMS:
                    del self._pools[list(self._pools)[1]]
                self._pools[threads] = pool
            return self._pools[threads]

    def _compile(self, program: Program) -> CompiledProgram:
        """Validate and compile the program; guards are computed by the first call only."""
        engine, graph = self._engine, self._graph
        require_names(program)
        memory_plan = plan_memory(program, graph.tensors)
        require_memory(graph.name, memory_plan)
        require_sound(program, graph)
        prepared = prepare(program, graph, engine, self._weights, is_exact=self._is_exact)
        guards = self._guards
        if guards is None:
            is_conditional = any(op.exact is not None for op in graph.ops)
            is_exact = self._is_exact or (engine.propagates_special_values and not is_conditional)
            guards = NO_GUARDS if is_exact else build_guards(program, graph)
        return CompiledProgram(program, graph.tensors, prepared, memory_plan, engine, guards)


_MOST_NAMED = 8  # steps in a list


def describe_declined(prepared: Sequence[PreparedStep]) -> str:
    """Return one line with the steps that the engine does not compute as it prefers; empty if there are none."""
    declined = [one.step.name for one in prepared if one.is_declined]
    replaced = [f"{one.step.name} ({one.impl} for {one.replaced})" for one in prepared if one.replaced]
    clauses = [
        _list_steps(declined, "computed by the reference engine"),
        _list_steps(replaced, "computed by another implementation, because code generation failed"),
    ]
    return "; ".join(filter(None, clauses))


def _list_steps(names: list[str], reason: str) -> str:
    """Return a clause with the number of steps that share a reason, and the names of the first; empty without steps."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    steps = "1 step is" if len(names) == 1 else f"{len(names)} steps are"
    return f"{steps} {reason}: {', '.join(names[:_MOST_NAMED])}{more}"


def trace_instance(instance: Instance, graph: OpGraph) -> dict[str, Array]:
    """Run an instance step by step, and return a copy of every tensor that is in memory at some time, by name."""
    program, locations = instance.compiled.program, instance.compiled.memory_plan.locations
    tracker = WriteTracker(program, graph, locations)
    copies: dict[str, Array] = {}
    _copy_valid_tensors(copies, tracker, instance, program.inputs.values())
    for prepared, call in instance.calls():
        if call is not None:
            call()
            instance.finish()
        for name in prepared.step.writes.values():
            tracker.write(name)
        _copy_valid_tensors(copies, tracker, instance, prepared.step.writes.values())
    return copies


def _copy_valid_tensors(
    copies: dict[str, Array], tracker: WriteTracker, instance: Instance, written: Iterable[str]
) -> None:
    """Copy the tensors that became complete when the buffers `written` were written, unless they are copied already."""
    locations = instance.compiled.memory_plan.locations
    allocations = {locations[name].allocation for name in written}
    for name, location in locations.items():
        tensor = instance.compiled.program.buffers[name].tensor
        if location.allocation in allocations and tensor not in copies and tracker.find_conflict(name) is None:
            copies[tensor] = instance.copy_out(name)


def profile_instance(instance: Instance, runs: int) -> list[StepTiming]:
    """Return the median time of each step in `runs` runs; each step is waited for."""
    calls = instance.calls()
    for _, call in calls:
        if call is not None:
            call()
    instance.finish()
    times_ns = np.zeros((runs, len(calls)))
    for run in range(runs):
        for k, (_, call) in enumerate(calls):
            begin = perf_counter_ns()
            if call is not None:
                call()
                instance.finish()
            times_ns[run, k] = perf_counter_ns() - begin
    medians = np.median(times_ns, axis=0) / 1e6
    return [StepTiming(one.step, one.impl, float(ms)) for (one, _), ms in zip(calls, medians, strict=True)]
