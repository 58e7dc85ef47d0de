"""Decoding: steps of a session that keep the keys and values of earlier positions.

    state = session.new_state()
    session.step({"input_ids": prompt}, state=state)      all positions of a prompt in one run
    session.step({"input_ids": token}, state=state)       one position: it is written, and the earlier ones are read

**Lengths.** A plan is for a fixed number of positions. Sessions have plans for 64, 128, 256 ... positions; a step takes
the least that suffices. Positions after the newest one are 0 in `attention_mask`, so they have no share in any result.

**Prompts.** Several positions of an empty state are computed in one run. Later ones are computed one by one, since
exported models derive the order of new positions from the length of the past.

**Memory.** A state has its positions in the outermost axis, so plans for all lengths use the same memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from inlay.arguments import integer_or_none
from inlay.errors import InvalidArguments, OutOfMemory
from inlay.forks import ForkResetLock
from inlay.graph.decoder_inputs import MASK, PLACES, DecoderInputs
from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.passes.absent_positions import ABSENT, HIDDEN
from inlay.graph.passes.kept_states import POSITION, rows_of
from inlay.graph.runtime.arguments import as_arrays, check_inputs
from inlay.graph.states import TensorState
from inlay.layout import Dims

LEAST = 64
"""Least number of positions of a plan, unless the maximum is smaller."""


def round_length(count: int, maximum: int) -> int:
    """Return the number of positions of the plan for `count` positions.

    >>> round_length(5, 1000), round_length(65, 1000), round_length(513, 1000)
    (64, 128, 1000)
    """
    return min(maximum, max(LEAST, 1 << (count - 1).bit_length()))


class DecodingState:
    """The keys and values of one batch of sequences, which the steps of a session read and extend.

    One thread at a time runs a step with a state; others wait. A state is of the session that made it.
    """

    def __init__(self, decoder: DecoderInputs, batch: int, page: int | None) -> None:
        """Reserve memory: for the maximum, or for the first page.

        Args:
            decoder: the inputs of the network that are states, and those that the session supplies.
            batch: number of sequences.
            page: positions by which the memory grows; None to reserve the maximum.

        Raises:
            OutOfMemory: it cannot be allocated.
        """
        self._decoder, self._batch, self._page = decoder, batch, page
        self._lock = ForkResetLock()
        self._length, self._is_closed = 0, False
        self._arrays: dict[str, Array] = {}
        self._views: dict[int, dict[str, Array]] = {}  # results of `first_positions`: sessions recognize the objects
        self._capacity = 0
        self._grow(min(decoder.maximum, page or decoder.maximum))

    @property
    def length(self) -> int:
        """Number of positions that are kept."""
        return self._length

    @property
    def maximum(self) -> int:
        """Most positions that can be kept."""
        return self._decoder.maximum

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return self._batch

    @property
    def nbytes(self) -> int:
        """Bytes of the reserved memory. The system provides memory for the maximum when positions are written."""
        return sum(array.nbytes for array in self._arrays.values())

    def reset(self) -> None:
        """Forget all positions.

        Raises:
            InvalidArguments: the state is closed.
        """
        self.truncate(0)

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on.

        Args:
            length: number of positions that are kept.

        Raises:
            InvalidArguments: fewer are kept, or the state is closed.
        """
        with self._lock:
            self.require_open()
            kept = integer_or_none(length)
            if kept is None or not 0 <= kept <= self._length:
                raise InvalidArguments(
                    f"length is {length!r}, and the state keeps {self._length} positions: give a whole number from 0 "
                    f"to {self._length}"
                )
            self._clear(kept, self._length)
            self._length = kept

    def close(self) -> None:
        """Release the memory. Closing twice is allowed."""
        with self._lock:
            self._is_closed = True
            self._arrays, self._views, self._length = {}, {}, 0

    def is_of(self, decoder: DecoderInputs) -> bool:
        """Return whether the state is of the session of a decoder.

        Args:
            decoder: the inputs of the network of a session.
        """
        return self._decoder is decoder

    def require_open(self) -> None:
        """Check that the state is not closed.

        Raises:
            InvalidArguments: it is closed.
        """
        if self._is_closed:
            raise InvalidArguments("the state is closed: make another one with session.new_state()")

    def __enter__(self) -> "DecodingState":
        """Return the state, which is closed at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the state."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: steps write into the memory of one process."""
        raise InvalidArguments("a state is memory of one process: run the same steps in the other one")

    def __repr__(self) -> str:
        """Return the numbers of positions and sequences, and the memory."""
        if self._is_closed:
            return "<DecodingState: closed>"
        return (
            f"<DecodingState: {self._length} of {self.maximum} positions, batch {self._batch}, "
            f"{self.nbytes / 1e6:.1f} MB>"
        )

    def first_positions(self, count: int) -> dict[str, Array]:
        """Return the memory of the first positions of each state, growing it if it has fewer.

        Args:
            count: number of positions, at most the maximum.

        Raises:
            OutOfMemory: more memory cannot be allocated.
        """
        if count > self._capacity:
            page = self._page or count
            self._grow(min(self.maximum, -(-count // page) * page))
        views = self._views.get(count)
        if views is None:
            views = self._views[count] = {name: array[:count] for name, array in self._arrays.items()}
        return views

    def _clear(self, first: int, end: int) -> None:
        """Set the positions from `first` up to `end` to 0, since plans multiply those that are not kept by 0."""
        for array in self._arrays.values():
            array[first:end] = 0

    def _grow(self, capacity: int) -> None:
        """Reserve memory for so many positions, and copy those that are written."""
        try:
            grown = {state.input: np.zeros(self._dims(state, capacity), np.float32) for state in self._decoder.states}
        except (MemoryError, ValueError):  # NumPy raises ValueError for more bytes than addresses
            raise OutOfMemory(
                f"{capacity} positions of {len(self._decoder.states)} states cannot be allocated: give a smaller "
                "maximum, or a page"
            ) from None
        for name, array in self._arrays.items():
            grown[name][: self._capacity] = array
        self._arrays, self._views, self._capacity = grown, {}, capacity

    def _dims(self, state: TensorState, capacity: int) -> Dims:
        """Return the dims of the memory of a state."""
        others = [n for axis, n in enumerate(self._decoder.pasts[state.input].dims) if axis != state.axis]
        return (capacity, *(n if isinstance(n, int) else self._batch for n in others))


RunDims = Callable[[Mapping[str, Dims], Mapping[str, Array], Mapping[str, Array]], dict[str, Array]]
"""A function that runs the network of given dims with inputs, and writes outputs into arrays that are given."""


@dataclass(frozen=True)
class StepRunner:
    """Runs the steps of a decoder with a state."""

    decoder: DecoderInputs
    """The roles of its inputs."""
    run: RunDims
    """Runs the network: `run(dims of its inputs, inputs of the program, arrays for outputs)`."""

    def step(self, inputs: Mapping[str, Any], state: DecodingState) -> dict[str, Array]:
        """Run new positions, and return the outputs for them; see `Session.step`."""
        arrays, rows = self._check(inputs, state.batch)
        with state._lock:
            state.require_open()
            self._require_room(state, rows)
            arrays = self._complete(arrays, state, rows)
            before = state.length
            try:
                found = self._run(arrays, state, rows)
                state._length = before + rows
            finally:
                if state.length == before:
                    state._clear(before, round_length(before + rows, state.maximum))
            return found

    def _run(self, arrays: Mapping[str, Array], state: DecodingState, rows: int) -> dict[str, Array]:
        """Run and write new positions, and return the outputs for them."""
        is_prompt = rows > 1 and self.decoder.has_prompts
        if state.length == 0 and (is_prompt or state.maximum == 1):  # a plan of one position has no past
            return self._run_prompt(arrays, state, rows)
        if rows == 1:
            return self._run_one(arrays, state, state.length)
        return self._join([self._run_one(one, state, at) for at, one in self._split(arrays, state, rows)])

    def _check(self, inputs: Mapping[str, Any], batch: int) -> tuple[dict[str, Array], int]:
        """Check inputs; return them as row-major arrays, and the number of new positions."""
        decoder = self.decoder
        given: object = inputs
        names = given if isinstance(given, Mapping) else ()
        if kept := [state.input for state in decoder.states if state.input in names]:
            raise InvalidArguments(f"{kept[0]} is kept in the state: leave it out of the inputs of a step")
        if numbers := [one.name for one in (*decoder.indices, *decoder.counts) if one.name in names]:
            raise InvalidArguments(
                f"{numbers[0]} follows from the length of the state: leave it out of the inputs of a step"
            )
        tensors = (*decoder.given, *(one for one in decoder.optional if one.name in names))
        arrays = as_arrays(check_inputs(inputs, tensors))
        counts = {
            name: arrays[name].shape[axis] if arrays[name].ndim > axis else 0
            for name, axis in decoder.row_axes.items()
            if axis is not None and name in arrays
        }
        rows = next(iter(counts.values()), 1)
        if not rows or any(count != rows for count in counts.values()):
            listed = ", ".join(f"{name} {arrays[name].shape}" for name in counts)
            raise InvalidArguments(f"inputs have other numbers of new positions, or none: {listed}: give one for each")
        for name, array in arrays.items():
            if array.ndim and array.shape[0] != batch:
                raise InvalidArguments(
                    f"input {name} has dims {array.shape}, and the state is of a batch of {batch}: give such an array, "
                    f"or make the state with new_state(batch={array.shape[0]})"
                )
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}, rows

    def _require_room(self, state: DecodingState, rows: int) -> None:
        """Check that a state has room for new positions."""
        if state.length + rows > state.maximum:
            raise InvalidArguments(
                f"the state keeps {state.length} positions of at most {state.maximum}, and {rows} "
                f"{'is' if rows == 1 else 'are'} new: truncate or reset it, or {self.decoder.longer}"
            )

    def _complete(self, arrays: dict[str, Array], state: DecodingState, rows: int) -> dict[str, Array]:
        """Return the inputs with a mask of all positions so far and the new ones, and with the new positions."""
        decoder, length, found = self.decoder, state.length, dict(arrays)
        dims = state.batch, length + rows
        if decoder.mask is not None:
            mask = found.setdefault(MASK, np.ones(dims, decoder.mask.dtype))
            if mask.shape != dims:
                raise InvalidArguments(
                    f"{MASK} has dims {mask.shape}: give {dims}, a number for each of {length} kept and {rows} new "
                    "positions, or leave it out"
                )
        places = decoder.places
        if places is not None and places.name not in found:
            line = np.arange(length, length + rows, dtype=places.dtype)
            found[places.name] = np.ascontiguousarray(np.broadcast_to(line, (state.batch, rows)))
        return found

    def _split(
        self, arrays: Mapping[str, Array], state: DecodingState, rows: int
    ) -> Iterator[tuple[int, dict[str, Array]]]:
        """Yield the position and the inputs of each new position."""
        for i in range(rows):
            at = state.length + i
            one = {
                name: array if axis is None else np.ascontiguousarray(array.take([i], axis))
                for name, axis in self.decoder.row_axes.items()
                for array in (arrays[name],)
            }
            yield at, one | ({MASK: arrays[MASK][:, : at + 1]} if MASK in arrays else {})

    def _join(self, results: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return the outputs of several single positions as those of one run."""
        found: dict[str, Array] = {}
        for name, first in results[0].items():
            axis = self.decoder.output_axis(name, first.shape, 1)
            parts = [one[name] for one in results]
            found[name] = parts[-1] if axis is None else np.concatenate(parts, axis)
        return found

    def _run_one(self, arrays: Mapping[str, Array], state: DecodingState, at: int) -> dict[str, Array]:
        """Run one position, which is written at `at`."""
        decoder = self.decoder
        length = round_length(at + 1, state.maximum)
        dims = decoder.dims(arrays, length - 1, 1, state.batch)
        values = {**arrays, **self._visible(arrays, at + 1, length), **state.first_positions(length)}
        values |= decoder.positions(at, at + 1, state.batch)
        return self.run(dims, {**values, POSITION: np.array([at])}, {})

    def _visible(self, arrays: Mapping[str, Array], count: int, length: int) -> dict[str, Array]:
        """Return the input that excludes all but `count` of `length` positions."""
        if MASK in arrays:
            return {MASK: _pad(arrays[MASK], 1, length)}
        absent = np.full(length, HIDDEN, np.float32)
        absent[:count] = 0
        return {ABSENT: absent}

    def _run_prompt(self, arrays: Mapping[str, Array], state: DecodingState, rows: int) -> dict[str, Array]:
        """Run the first positions, whose number is rounded up, and store them."""
        decoder = self.decoder
        length = round_length(rows, state.maximum)
        padded = {name: _pad(arrays[name], axis, length) for name, axis in decoder.row_axes.items()}
        padded |= self._visible(arrays, rows, length)
        padded |= decoder.positions(0, rows, state.batch)
        stored = state.first_positions(length)
        out = {rows_of(one): stored[one.input] for one in decoder.states}
        results = self.run(decoder.dims(padded, 0, length, state.batch), padded, out)
        state._clear(rows, length)
        found: dict[str, Array] = {}
        for name, array in results.items():
            axis = decoder.output_axis(name, array.shape, length)
            if name not in out:
                found[name] = array if axis is None else array[(slice(None),) * axis + (slice(rows),)]
        return found


def _pad(array: Array, axis: int | None, length: int) -> Array:
    """Return an array with zeros after its elements along an axis; unchanged without an axis."""
    if axis is None or array.shape[axis] == length:
        return array
    padded = np.zeros((*array.shape[:axis], length, *array.shape[axis + 1 :]), array.dtype)
    padded[(slice(None),) * axis + (slice(array.shape[axis]),)] = array
    return padded


def require_equal_constants(one: OpGraph, longer: OpGraph) -> None:
    """Check that the networks of one new position after two lengths of the past differ in lengths only.

    A network whose constants differ derives the new position from the length of the past, which is that of a plan and
    not that of the sequence.

    Raises:
        InvalidArguments: a constant differs, or the operations do.
    """
    is_same = len(one.ops) == len(longer.ops)
    for first, second in zip(one.ops, longer.ops, strict=False):
        is_same = is_same and first.constants.keys() == second.constants.keys()
        if not is_same or not all(_begins_with(first.constants[n], second.constants[n]) for n in first.constants):
            raise InvalidArguments(
                f"{first.name} depends on the length of the past, as if it were the next position: export the model "
                f"with the input {PLACES}, or with positions that are computed from {MASK}"
            )


def _begins_with(one: Array, longer: Array) -> bool:
    """Return whether the second array begins with the first one in each axis."""
    if one is longer or one.ndim != longer.ndim or any(n > m for n, m in zip(one.shape, longer.shape, strict=True)):
        return one is longer
    return np.array_equal(one, longer[tuple(slice(n) for n in one.shape)], equal_nan=one.dtype.kind == "f")
