"""`ProgramSession`: compiles a program and runs it, from any number of threads.

    session = ProgramSession(program, graph)
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

**Steps.** `trace` runs step by step and returns every tensor; `profile` returns the times of steps and whole runs.

The dims are those of the program; `inlay.graph.session` has sessions for several.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

from inlay.errors import InlayError, InvalidArguments
from inlay.forks import ForkResetLock, import_lock
from inlay.graph.background import RUNS
from inlay.graph.op_graph import Array, OpGraph, exact_graph
from inlay.graph.program import FallbackShare, NumpyShare, Program, fallback_share, numpy_share
from inlay.graph.runtime.adaptive_team import AdaptiveTeam, free_threads, quota_threads
from inlay.graph.runtime.arena import Arena, plan_memory, require_memory
from inlay.graph.runtime.arguments import (
    InputValue,
    check_inputs,
    check_outputs,
    dims_of,
    match_arrays,
    require_dims,
    require_runs,
)
from inlay.graph.runtime.checking import require_names, require_sound
from inlay.graph.runtime.compiling import Weights, prepare
from inlay.graph.runtime.guards import NO_GUARDS, GuardFailed, GuardHistory, RunGuards, build_guards
from inlay.graph.runtime.instance import (
    CompiledProgram,
    Instance,
    InstancePool,
)
from inlay.graph.runtime.prepared_steps import PreparedStep
from inlay.graph.runtime.worker_affinity import keep_workers_apart
from inlay.layout import Dims
from inlay.primitives.engine import Engine, EngineLike, get_engine
from inlay.reordering.threads import ThreadLimit

if TYPE_CHECKING:
    from inlay.graph.profiling import Profile

_MOST_TEAMS = 4  # numbers of threads for which the program stays compiled


class ProgramSession:
    """A program that is ready to run.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> from inlay.graph.op_graph import Op
    >>> from inlay.graph.runtime.plain import plain_program
    >>> relu = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
    >>> op = Op("relu", "eltwise", {"src": "x"}, {"dst": "y"}, parameters=relu)
    >>> tensors = {name: Tensor(name, (2, 2), np.dtype(np.float32)) for name in "xy"}
    >>> graph = OpGraph("small", 17, ("x",), ("y",), (op,), tensors)
    >>> session = ProgramSession(plain_program(graph), graph, engine="reference")
    >>> session.run({"x": np.array([[1, -1], [-2, 2]], np.float32)})["y"].tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """

    def __init__(
        self,
        program: Program,
        graph: OpGraph,
        *,
        engine: EngineLike = None,
        weights: Weights | None = None,
        threads: int | None = None,
        most_threads: int | None = None,
        is_exact: bool = False,
        guards: RunGuards | None = None,
    ) -> None:
        """Compile `program`, whose tensors and references are those of `graph`.

        Args:
            program: the steps to compile.
            graph: the graph that the program computes.
            engine: the engine of the steps, or the default one. The reference engine computes what it does not support.
            weights: packed constants to share with other sessions.
            threads: number of threads of the first runs; as many as the engine may use if None.
            most_threads: number of threads that no run exceeds; None for no limit but Inlay's.
            is_exact: whether the reference engine computes every step that may lose NaN or infinities.
            guards: buffers that runs check, if they are known; computed from the graph if None.

        Raises:
            InvalidArguments: the program is not valid (see `checking`), or an engine requires other formats.
            Unimplemented: no engine supports a step.
            MissingExtra: a package is missing that the engine or a step needs.
            OutOfMemory: the tensors or constants do not fit in memory.
        """
        self._engine: Engine = get_engine(engine)
        self._is_exact = is_exact
        self._weights = Weights() if weights is None else weights
        self._lock = ForkResetLock()
        self._graph = graph
        predicted = sum(step.ms for step in program.steps) / 1e3
        self._most_threads = most_threads
        with ThreadLimit(most_threads):
            most = self._engine.num_threads
        start = min(threads or most, quota_threads(most))
        self._team = AdaptiveTeam(most, free_threads, expected=predicted or None, start=start)
        self._compile_lock = ForkResetLock()
        self._guards = guards
        self._pools: dict[int, InstancePool] = {}
        self._compiled = self._pool_for(self._team.threads, program).compiled
        self._inputs = tuple(graph.tensors[name] for name in program.inputs)
        self._exact: ProgramSession | None = None
        self._history = GuardHistory()
        self._is_closed = False

    @property
    def program(self) -> Program:
        """The program that runs execute."""
        return self._compiled.program

    @property
    def compiled(self) -> CompiledProgram:
        """The compiled program for the number of threads with which the session began."""
        return self._compiled

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
        """Run the program, and return its outputs by name, as new arrays or in those of `out`.

        Inputs are NumPy arrays, PyTorch tensors, memory of Inlay, or any objects with DLPack.

        Raises:
            InvalidArguments: an input is missing, unknown, of another type, or of other dims; an array of `out` is not
                suitable; or the session is closed.
            OutOfMemory: the tensors do not fit in memory.
        """
        return self.run_values(self._check(inputs), out)

    def run_values(self, values: Mapping[str, InputValue], out: Mapping[str, Array] | None) -> dict[str, Array]:
        """Run inputs that are checked; see `run`."""
        self._require_open()
        arrays = check_outputs(out, [self._graph.tensors[name] for name in self.program.outputs])
        threads, pool = self._pool()
        if not self._history.is_exact_next(pool.compiled.guards):
            try:
                return self._run(values, arrays, threads, pool)
            except GuardFailed:
                self._history.note(failed=True)
        return self._exact_session().run_values(values, out)

    def _run(
        self, values: Mapping[str, InputValue], arrays: Mapping[str, Array], threads: int, pool: InstancePool
    ) -> dict[str, Array]:
        """Run checked inputs on an instance of `pool`, and return the results; raise GuardFailed if a guard fails."""
        with RUNS, ThreadLimit(self._thread_limit(threads)):
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
        """Run the program, and return every tensor that is in memory at some time, inputs included, by name.

        Raises:
            InvalidArguments, OutOfMemory: as `run`.
        """
        with import_lock:
            from inlay.graph.runtime.step_runs import trace_instance  # loads profiles, which `run` does not need

        values = self._check(inputs)
        if self._fails_guards(values):
            return self._exact_session().trace(inputs)
        with self._instance(values) as instance:
            return trace_instance(instance, self._graph)

    def profile(self, inputs: Mapping[str, Any], *, runs: int = 20) -> "Profile":
        """Return the times of whole runs and of each step, which is waited for: medians and quartiles of `runs` rounds.

        Raises:
            InvalidArguments: `runs` is not a whole number from 1 on, or as `run`.
            OutOfMemory: as `run`.
        """
        with import_lock:
            from inlay.graph.runtime.step_runs import profile_instance

        count, values = require_runs(runs), self._check(inputs)
        if self._fails_guards(values):
            return self._exact_session().profile(inputs, runs=runs)
        with self._instance(values) as instance:
            threads = self._engine.num_threads or 1
            keep_workers_apart(self._engine.thread_team, threads)
            return profile_instance(instance, self._graph, values, runs=count, threads=threads, is_exact=self._is_exact)

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

    def release_memory(self) -> None:
        """Release the memory of tensors that no run uses now; later runs are possible, and allocate their own."""
        for pool in list(self._pools.values()):
            pool.close()
        exact = self._exact
        if exact is not None:
            exact.release_memory()

    def close(self) -> None:
        """Release all memory; a run that is going on ends as usual. Closing twice is allowed."""
        with self._lock:
            self._is_closed = True
            exact, self._exact = self._exact, None
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()
        self._weights = Weights()
        if exact is not None:
            exact.close()

    def __enter__(self) -> "ProgramSession":
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
        """Return the network, its inputs, the number of steps, the memory, and `note`."""
        inputs = ", ".join(f"{name} {dims}" for name, dims in self.input_dims.items())
        shares = "".join(f"; {share}" for share in (self.fallback, self.numpy) if share.count)
        note = f"; {self.note}" if self.declined else ""
        steps = f"{len(self.program.steps)} steps, {self.arena}"
        return f"<ProgramSession of {self._graph.name}: {inputs}; {steps}{shares}{note}>"

    def match(self, inputs: object) -> dict[str, InputValue] | None:
        """Return inputs that need no check: a row-major array for each, of its dims and type; None for any others."""
        return match_arrays(inputs, self._inputs)

    def _check(self, inputs: Mapping[str, Any]) -> dict[str, InputValue]:
        """Check these inputs, and return them as arrays or memory."""
        values = self.match(inputs)
        if values is None:
            values = check_inputs(inputs, self._inputs)
            require_dims(self._inputs, {name: dims_of(value) for name, value in values.items()})
        return values

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

    def _exact_session(self) -> "ProgramSession":
        """Return the session whose kernels propagate NaN and infinities; the first call compiles it."""
        with self._compile_lock:
            if self._exact is None:
                self._require_open()
                with import_lock:
                    from inlay.graph.runtime.plain import plain_program  # loads a part of the planner

                graph = exact_graph(self._graph)
                self._exact = ProgramSession(
                    plain_program(graph),
                    graph,
                    engine=self._engine,
                    weights=self._weights,
                    most_threads=self._most_threads,
                    is_exact=True,
                )
            return self._exact

    def _thread_limit(self, threads: int) -> int | None:
        """Return the limit that a run on `threads` threads sets for its thread; None for none."""
        return threads if threads < self._team.most else self._most_threads

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
