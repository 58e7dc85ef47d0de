"""`Session`: a program compiled and run, from any number of threads.

    session = Session(program, graph)
    session.run({"data": image})["softmax"]

What is done once: engines are asked, machine code is made, constants are laid out in the formats that kernels chose,
every call is bound to addresses in one arena. A run is a flat list of calls.

**Memory.** Tensors share bytes when they are not needed at once (`session.arena`). An input that no step overwrites is
read where it lies if it has the format that the program wants, else copied; the last such array is kept until the next
run. Results are new arrays, or written to those that the caller gives.

**Threads.** Runs from several threads go on at once, each in an arena of its own, which is kept for later runs; weights
are shared. An engine's threads are each caller's own: limit them with `inlay.set_num_threads` before compiling. Where
other programs or a quota take processors away, runs use fewer threads until they are free again (see `adaptive_team`):
the program is compiled once for each number of threads, in the same formats of activations.

**Sizes.** A session is for one set of dims. Given `replan`, it makes a program for others when they first come, keeps
it, and shares with it all constants that are laid out alike. Meanwhile runs of sizes that are known go on.

**Steps.** A run may be done step by step: `trace` keeps every tensor, `profile` the time of each step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import Any, NoReturn, TypeAlias

import numpy as np

from inlay.errors import InlayError, InvalidArguments
from inlay.forks import ForkResetLock
from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.program import NumpyShare, Program, Step, numpy_share
from inlay.graph.runtime.adaptive_team import AdaptiveTeam, free_threads, quota_threads
from inlay.graph.runtime.arena import Arena, laid, require_memory
from inlay.graph.runtime.checking import Written, require_names, require_sound
from inlay.graph.runtime.compiling import PreparedStep, Weights, prepare
from inlay.graph.runtime.guards import NO_GUARDS, GuardFailed, GuardHistory, RunGuards, guards_of
from inlay.graph.runtime.instance import Compiled, Fed, Instance, InstancePool, dims_of, out_arrays, require_dims, taken
from inlay.graph.runtime.plain import plain_program
from inlay.layout import Dims
from inlay.primitives.engine import Engine, EngineLike, get_engine
from inlay.reordering.threads import ThreadLimit


@dataclass(frozen=True, slots=True)
class Timed:
    """A step and how long it took."""

    step: Step
    """What was done."""
    impl: str
    """How it was computed."""
    ms: float
    """Milliseconds, the median of the runs."""


Replan: TypeAlias = Callable[[Mapping[str, Dims]], tuple[Program, OpGraph]]
"""From dims of the inputs, by name, to a program for them."""

_MOST_SIZES = 16
_MOST_TEAMS = 4  # numbers of threads that a program is kept compiled for


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

        What `engine`, or the default one, declines the reference engine computes, and if `is_exact` all that may lose
        NaN or infinities. Sessions that are given the same `weights` share constants that are laid out alike. The first
        runs use `threads`, or as many as the engine may.

        Raises:
            InvalidArguments: the program is not sound (see `checking`), or an engine takes other formats.
            Unimplemented: no engine computes a step.
            MissingExtra: a package is missing that computes a step, or the engine.
            OutOfMemory: there is no room.
        """
        self._engine: Engine = get_engine(engine)
        self._is_exact = is_exact
        self._weights = Weights() if weights is None else weights
        self._replan = replan
        self._lock = ForkResetLock()
        self._planning = ForkResetLock()
        self._graph = graph
        predicted = sum(step.ms for step in program.steps) / 1e3
        most = self._engine.num_threads
        start = min(threads or most, quota_threads(most))
        self._team = AdaptiveTeam(most, free_threads, expected=predicted or None, start=start)
        self._making = ForkResetLock()
        self._guards: RunGuards | None = None
        self._pools: dict[int, InstancePool] = {}
        self._compiled = self._pool_for(self._team.threads, program).compiled
        self._others: dict[tuple[Dims, ...], Session] = {}
        self._exact: Session | None = None
        self._history = GuardHistory()
        self._is_closed = False

    @property
    def program(self) -> Program:
        """What is run."""
        return self._compiled.program

    @property
    def graph(self) -> OpGraph:
        """What the program computes."""
        return self._graph

    @property
    def arena(self) -> Arena:
        """Where tensors lie; inputs that are read where the caller has them are not among them."""
        return self._compiled.laid.arena

    @property
    def engine(self) -> Engine:
        """What computes."""
        return self._engine

    @property
    def threads(self) -> int:
        """How many threads of the engine the next run uses; 1 where the engine cannot be told."""
        return self._team.threads

    @property
    def weights(self) -> Weights:
        """The constants, as they are laid out."""
        return self._weights

    @property
    def input_dims(self) -> dict[str, Dims]:
        """The dims of each input that the session was compiled for."""
        return {name: self._graph.tensors[name].dims for name in self._compiled.program.inputs}

    @property
    def impls(self) -> dict[str, str]:
        """By step, how it is computed."""
        return {prepared.step.name: prepared.impl for prepared in self._compiled.prepared}

    @property
    def declined(self) -> tuple[str, ...]:
        """Steps that the engine does not compute as it prefers, by name, in the order they run.

        The slow reference engine computes what the engine declined. Another implementation of the engine, mostly a slow
        one too, computes what its code generator failed at: `impls` has its name.

        Nodes that have no primitive are not among them: the plan says of these that NumPy computes them, and why.
        """
        prepared = self._compiled.prepared
        return tuple(one.step.name for one in prepared if one.is_declined or one.replaced)

    @property
    def note(self) -> str:
        """What there is to say of `declined`, in one line: how many steps, and which; empty if there are none."""
        return describe_declined(self._compiled.prepared)

    @property
    def numpy(self) -> NumpyShare:
        """How many steps NumPy computes, for want of a kernel, and their share of the predicted time."""
        steps = ((one.step, one.impl, one.step.ms) for one in self._compiled.prepared)
        return numpy_share(steps, "predicted")

    def run(self, inputs: Mapping[str, Any], *, out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The outputs of the network by name, as new arrays or in those of `out`.

        Inputs are arrays of NumPy, tensors of PyTorch, memory of Inlay, or have DLPack.

        Raises:
            InvalidArguments: an input is missing, unknown, of another type, or of dims that the session is not for and
                `replan` does not take; an array of `out` does not fit; or the session is closed.
            OutOfMemory: there is no room.
        """
        session, fed = self._session_for(inputs)
        given = out_arrays(out, [session._graph.tensors[name] for name in session.program.outputs])
        threads, pool = session._pool()
        if not session._history.is_exact_next(pool.compiled.guards):
            try:
                with ThreadLimit(session._limit(threads)), pool.instance() as instance:
                    instance.feed(fed)
                    began = perf_counter()
                    instance.run()
                    session._team.note(threads, perf_counter() - began)
                    session._history.note(failed=False)
                    return instance.fetch(given)
            except GuardFailed:
                session._history.note(failed=True)
        return session._exact_session().run(inputs, out=out)

    def trace(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Every tensor of one run that has memory at some time, by name, inputs included: for tests and questions.

        Raises:
            InvalidArguments, OutOfMemory: as `run`.
        """
        session, fed = self._session_for(inputs)
        if session._fails_guards(fed):
            return session._exact_session().trace(inputs)
        with session._instance(fed) as instance:
            return trace_instance(instance, session._graph)

    def profile(self, inputs: Mapping[str, Any], *, runs: int = 20) -> list[Timed]:
        """How long each step takes: the medians of `runs` runs, each step waited for.

        Raises:
            InvalidArguments: `runs` is not positive, or as `run`.
            OutOfMemory: as `run`.
        """
        if runs < 1:
            raise InvalidArguments(f"runs is {runs}: give 1 or more")
        session, fed = self._session_for(inputs)
        if session._fails_guards(fed):
            return session._exact_session().profile(inputs, runs=runs)
        with session._instance(fed) as instance:
            return profile_instance(instance, runs)

    def measure_numpy(self, inputs: Mapping[str, Any], *, runs: int = 3) -> NumpyShare:
        """How many steps NumPy computes, and their share of the time that `profile` measures.

        Raises:
            InvalidArguments, OutOfMemory: as `profile`.
        """
        return numpy_share(((one.step, one.impl, one.ms) for one in self.profile(inputs, runs=runs)), "measured")

    def close(self) -> None:
        """Give back all memory; a run that goes on ends as usual. To close twice does nothing."""
        with self._lock:
            self._is_closed = True
            others, self._others = self._others, {}
            exact, self._exact = self._exact, None
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()
        self._weights = Weights()
        for other in (*others.values(), *([exact] if exact else ())):
            other.close()

    def __enter__(self) -> "Session":
        """The session itself, closed at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: a session is addresses of one process."""
        raise InvalidArguments(
            "a Session is memory and machine code of one process: pickle the network or the plan, and compile it there"
        )

    def __repr__(self) -> str:
        """The network, its inputs, how many steps, the memory, and `note`."""
        inputs = ", ".join(f"{name} {dims}" for name, dims in self.input_dims.items())
        numpy = f"; {self.numpy}" if self.numpy.count else ""
        note = f"; {self.note}" if self.declined else ""
        return f"<Session of {self._graph.name}: {inputs}; {len(self.program.steps)} steps, {self.arena}{numpy}{note}>"

    def _session_for(self, inputs: Mapping[str, Any]) -> "tuple[Session, dict[str, Fed]]":
        """The session for the dims of these inputs, and the inputs checked."""
        tensors = self._graph.tensors
        fed = taken(inputs, [tensors[name] for name in self._compiled.program.inputs])
        self._require_open()
        for name, value in fed.items():
            if dims_of(value) != tensors[name].dims:
                return self._for_dims({name: dims_of(value) for name, value in fed.items()}), fed
        return self, fed

    def _for_dims(self, dims: Mapping[str, Dims]) -> "Session":
        """The session for other dims."""
        if self._replan is None:
            for name, its in dims.items():
                require_dims(self._graph.tensors[name], its, "give such an array, or plan the network for these dims")
            raise AssertionError(dims)
        key = tuple(dims.values())
        found = self._kept(key)
        if found is None:
            # One at a time: plans share their prices, and kernels that are measured must not disturb each other.
            with self._planning:
                found = self._kept(key)
                if found is None:
                    self._require_open()
                    program, graph = self._replan(dims)
                    threads = self._team.threads
                    found = Session(program, graph, engine=self._engine, weights=self._weights, threads=threads)
                    self._store(key, found)
        return found

    def _kept(self, key: tuple[Dims, ...]) -> "Session | None":
        """The session for other dims, if it is there; it is then the one that was asked for last."""
        with self._lock:
            found = self._others.pop(key, None)
            if found is not None:
                self._others[key] = found
            return found

    def _store(self, key: tuple[Dims, ...], session: "Session") -> None:
        """Keep a session for other dims, unless this one was closed while that was planned."""
        with self._lock:
            while len(self._others) >= _MOST_SIZES:
                del self._others[next(iter(self._others))]  # the one that was not asked for longest
            if not self._is_closed:
                self._others[key] = session

    def _require_open(self) -> None:
        if self._is_closed:
            raise InvalidArguments("the session is closed: compile another one")

    def _fails_guards(self, fed: Mapping[str, Fed]) -> bool:
        """Whether exact kernels are to compute these inputs, which one run tells."""
        try:
            with self._instance(fed) as instance:
                instance.run()
                return instance.compiled.guards.after is None
        except GuardFailed:
            return True

    @contextmanager
    def _instance(self, fed: Mapping[str, Fed]) -> Iterator[Instance]:
        """An instance with these inputs, on as many threads as the next run."""
        threads, pool = self._pool()
        with ThreadLimit(self._limit(threads)), pool.instance() as instance:
            instance.feed(fed)
            yield instance

    def _exact_session(self) -> "Session":
        """The session whose kernels propagate NaN and infinities, made at the first use."""
        with self._making:
            if self._exact is None:
                self._require_open()
                program, engine = plain_program(self._graph), self._engine
                self._exact = Session(program, self._graph, engine=engine, weights=self._weights, is_exact=True)
            return self._exact

    def _limit(self, threads: int) -> int | None:
        """What a run on so many threads limits the calling thread to; None for a run on as many as there may be."""
        return threads if threads < self._team.most else None

    def _pool(self) -> tuple[int, InstancePool]:
        """The number of threads of the next run, and the program compiled for it."""
        threads = self._team.threads
        pool = self._pools.get(threads)
        if pool is not None:
            return threads, pool
        self._require_open()
        try:
            return threads, self._pool_for(threads, self._compiled.program)
        except InlayError:
            # There is no room, or an engine cannot do on fewer threads what it can on more.
            return self._team.keep(next(iter(self._pools))), next(iter(self._pools.values()))

    def _pool_for(self, threads: int, program: Program) -> InstancePool:
        """The program compiled for so many threads; the first one stays, of the others the last few."""
        with self._making, ThreadLimit(self._limit(threads)):
            if threads not in self._pools:
                compiled = self._compile(program)
                self._guards, pool = compiled.guards, InstancePool(compiled)
                if len(self._pools) >= _MOST_TEAMS:
                    del self._pools[list(self._pools)[1]]
                self._pools[threads] = pool
            return self._pools[threads]

    def _compile(self, program: Program) -> Compiled:
        """The program, with its guards where they are known already."""
        engine, graph = self._engine, self._graph
        require_names(program)
        where = laid(program, graph.tensors)
        require_memory(graph.name, where)
        require_sound(program, graph)
        prepared = prepare(program, graph, engine, self._weights, is_exact=self._is_exact)
        guards = self._guards
        if guards is None:
            is_exact = self._is_exact or engine.propagates_special_values
            guards = NO_GUARDS if is_exact else guards_of(program, graph)
        return Compiled(program, graph.tensors, prepared, where, engine, guards)


_MOST_NAMED = 8


def describe_declined(prepared: Sequence[PreparedStep]) -> str:
    """How many steps the engine does not compute as it prefers, and which; empty if there are none."""
    declined = [one.step.name for one in prepared if one.is_declined]
    replaced = [f"{one.step.name} ({one.impl} for {one.replaced})" for one in prepared if one.replaced]
    clauses = [
        _counted_steps(declined, "computed by the reference engine"),
        _counted_steps(replaced, "computed by another implementation, because code generation failed"),
    ]
    return "; ".join(filter(None, clauses))


def _counted_steps(names: list[str], fate: str) -> str:
    """How many steps share a fate, and which; empty if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    steps = "1 step is" if len(names) == 1 else f"{len(names)} steps are"
    return f"{steps} {fate}: {', '.join(names[:_MOST_NAMED])}{more}"


def trace_instance(instance: Instance, graph: OpGraph) -> dict[str, Array]:
    """Run an instance that was fed, and copy every tensor that has memory at some time, by name."""
    compiled, places = instance.compiled, instance.compiled.laid.places
    state = Written(compiled.program, graph, places)
    found: dict[str, Array] = {}
    _keep(found, state, instance, {places[name].home for name in compiled.program.inputs.values()})
    for prepared, call in instance.calls():
        if call is not None:
            call()
            instance.finish()
        for name in prepared.step.writes.values():
            state.write(name)
        _keep(found, state, instance, {places[name].home for name in prepared.step.writes.values()})
    return found


def _keep(found: dict[str, Array], state: Written, instance: Instance, homes: set[str]) -> None:
    """Copy the tensors in these homes that are whole now and are not yet kept."""
    for name, place in instance.compiled.laid.places.items():
        tensor = instance.compiled.program.buffers[name].tensor
        if place.home in homes and tensor not in found and state.strangers(name) is None:
            found[tensor] = instance.copied(name)


def profile_instance(instance: Instance, runs: int) -> list[Timed]:
    """The median time of each step in `runs` runs of an instance that was fed, each step waited for."""
    calls = instance.calls()
    for _, call in calls:
        if call is not None:
            call()
    instance.finish()
    taken_ns = np.zeros((runs, len(calls)))
    for run in range(runs):
        for k, (_, call) in enumerate(calls):
            begin = perf_counter_ns()
            if call is not None:
                call()
                instance.finish()
            taken_ns[run, k] = perf_counter_ns() - begin
    medians = np.median(taken_ns, axis=0) / 1e6
    return [Timed(one.step, one.impl, float(ms)) for (one, _), ms in zip(calls, medians, strict=True)]
