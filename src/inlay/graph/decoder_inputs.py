"""`describe_decoder`: the inputs and outputs of a decoder by their roles, which the steps of a session need.

    input_ids (batch, sequence)                        given in each step
    attention_mask, position_ids                       given, or supplied by the session
    past_key_values.0.key (batch, 12, past, 64)        a state; `present.0.key` replaces it
    write_indices, nonpad_kv_seqlen (batch,)           supplied: they follow from the length of a state

A model that updates a cache by TensorScatter has the maximum length in its dims, or an open dim for it. It is built for
the number of positions of each plan, as models with a past that grows are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from inlay.errors import InvalidArguments, printable, shown
from inlay.graph.network import Network
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenModel, OpenNetwork, OpenTensor
from inlay.graph.states import CacheUpdate, StateOptions, TensorState, match_names
from inlay.layout import Dims

MASK = "attention_mask"
"""Input that is 1 for each position that others may read, 0 elsewhere. A model without one gets an input of this sort
from `passes.absent_positions`."""
PLACES = "position_ids"
"""Input with the number of each new position."""
POSITIONS = "positions"
"""Name of the axis of positions of a cache whose extent the model fixes."""


@dataclass(frozen=True)
class DecoderInputs:
    """The inputs and outputs of a decoder by their roles, and the axes that differ from step to step."""

    states: tuple[TensorState, ...]
    """The states."""
    given: tuple[OpenTensor, ...]
    """The inputs that a caller gives in each step, the tokens among them."""
    mask: OpenTensor | None
    """The input `attention_mask`, if there is one."""
    places: OpenTensor | None
    """The input `position_ids`, if there is one."""
    pasts: Mapping[str, OpenTensor]
    """The input of each state, by name."""
    outputs: Mapping[str, OpenTensor]
    """The outputs but the states, as far as their dims are known."""
    network: OpenNetwork = field(repr=False, compare=False)
    """The network, in which the axes of positions are open."""
    updated: frozenset[str] = frozenset()
    """Inputs of the states that have the new positions too, which TensorScatter overwrites."""
    indices: tuple[OpenTensor, ...] = ()
    """The inputs with the position of the first new row in each sequence."""
    counts: tuple[OpenTensor, ...] = ()
    """The inputs with the number of valid positions of each sequence."""
    extents: frozenset[int] = frozenset()
    """The numbers of positions of caches whose extent the model fixes."""
    has_prompts: bool = True
    """True if several positions of an empty state are one run; else they are computed one by one."""
    _known_dims: dict[tuple[object, ...], dict[str, Dims]] = field(default_factory=dict, repr=False, compare=False)
    """Results of `dims`, by its arguments."""

    @property
    def maximum(self) -> int:
        """Most positions of a sequence."""
        return self.states[0].maximum

    @cached_property
    def optional(self) -> tuple[OpenTensor, ...]:
        """The inputs that a caller may leave out."""
        return tuple(one for one in (self.mask, self.places) if one is not None)

    @cached_property
    def row_axes(self) -> Mapping[str, int | None]:
        """Axis of the new positions of each input that a caller gives, and of `position_ids`; None without one."""
        return {one.name: _row_axis(one) for one in (*self.given, self.places) if one is not None}

    def output_axis(self, name: str, dims: Dims, rows: int) -> int | None:
        """Return the axis of the new positions of an output whose dims for `rows` of them are `dims`."""
        tensor = self.outputs.get(name)
        extents: Sequence[int | str] = dims if tensor is None else tensor.dims
        axes = range(1, len(dims))
        return next((i for i in axes if dims[i] == rows and (tensor is None or isinstance(extents[i], str))), None)

    def dims(self, arrays: Mapping[str, Array], past: int, rows: int, batch: int) -> dict[str, Dims]:
        """Return the dims of all inputs of the network for so many positions."""
        given = tuple(arrays[one.name].shape for one in self.given)
        key = given, past, rows, batch
        found = self._known_dims.get(key)
        if found is None:
            found = self._known_dims[key] = self._list_dims(given, past, rows, batch)
        return found

    def _list_dims(self, given: Sequence[Dims], past: int, rows: int, batch: int) -> dict[str, Dims]:
        """Return the dims of all inputs, with those of the inputs that a caller gives."""
        found = {one.name: dims for one, dims in zip(self.given, given, strict=True)}
        if self.mask is not None:
            found[self.mask.name] = (batch, past + rows)
        if self.places is not None:
            found[self.places.name] = (batch, rows)
        found |= {one.name: (batch,) for one in (*self.indices, *self.counts)}
        for state in self.states:
            length = past + rows if state.input in self.updated else past
            found[state.input] = tuple(
                length if axis == state.axis else n if isinstance(n, int) else batch
                for axis, n in enumerate(self.pasts[state.input].dims)
            )
        return found

    @property
    def longer(self) -> str:
        """The remedy for a sequence that is longer than the maximum."""
        is_limited = self.maximum in self.extents
        return "export the model with longer caches" if is_limited else "compile with a greater maximum"

    def positions(self, first: int, count: int, batch: int) -> dict[str, Array]:
        """Return the inputs with the position of the first new row, and with the number of valid positions."""
        numbers = dict.fromkeys(self.indices, first) | dict.fromkeys(self.counts, count)
        return {one.name: np.full(batch, number, one.dtype) for one, number in numbers.items()}

    def example_dims(self, past: int) -> dict[str, Dims]:
        """Return the dims of all inputs for a batch of 1 with one new position."""
        arrays = {one.name: np.empty([n if isinstance(n, int) else 1 for n in one.dims], "b") for one in self.given}
        return self.dims(arrays, past, 1, 1)


def _row_axis(tensor: OpenTensor) -> int | None:
    """Return the axis of an input whose extent is the number of new positions; None if it is fixed."""
    return next((axis for axis, n in enumerate(tensor.dims) if axis and isinstance(n, str)), None)


def describe_decoder(model: object, options: StateOptions) -> DecoderInputs:
    """Return the roles of the inputs of a decoder.

    Raises:
        InvalidArguments: an option is not valid; the network has no states, or one has no open past or another type
            than float32.
    """
    given: object = options
    if not isinstance(given, StateOptions):
        raise InvalidArguments(f"state is {shown(given)}: give options, as state=inlay.StateOptions(maximum=2048)")
    options.require_valid()
    network = _as_open(model)
    inputs = {one.name: one for one in network.inputs}
    found = network.model.find_updates()
    updated = {name: one.output for name, one in found.updates.items()}
    names = dict(match_names(inputs, network.outputs) | updated if options.names is None else options.names)
    _require_names(names, inputs, network.outputs)
    updates = {name: one for name, one in found.updates.items() if names.get(name) == one.output}
    axes = {name: _axis_of(inputs[name], updates.get(name)) for name in names}
    extents = {n for name in updates for n in (inputs[name].dims[axes[name]],) if isinstance(n, int)}
    network = _open_positions(network, {name: axes[name] for name in updates}, extents)
    inputs, maximum = {one.name: one for one in network.inputs}, min((options.maximum, *extents))
    states = tuple(TensorState(name, output, axes[name], maximum) for name, output in names.items())
    indices = {one.index or "" for one in updates.values()}
    counts = set(found.counts if updates else ())
    rest = tuple(one for one in network.inputs if one.name not in {*names, MASK, PLACES, *indices, *counts})
    tensors, kept = network.tensors, set(names.values())
    outputs = {name: tensors[name] for name in network.outputs if name in tensors and name not in kept}
    return DecoderInputs(
        states,
        rest,
        inputs.get(MASK),
        inputs.get(PLACES),
        {name: inputs[name] for name in names},
        outputs,
        network,
        frozenset(updates),
        tuple(_require_numbers(inputs[name]) for name in sorted(indices)),
        tuple(_require_numbers(inputs[name]) for name in sorted(counts)),
        frozenset(extents),
        found.has_prompts or not updates,
    )


def _as_open(network: object) -> OpenNetwork:
    """Return a network whose positions are open, or can be opened."""
    if isinstance(network, Network) and isinstance(network.again, OpenModel) and network.again.find_updates().updates:
        tensors = [network.tensors[name] for name in network.inputs]
        inputs = tuple(OpenTensor(one.name, one.dims, one.dtype) for one in tensors)
        return OpenNetwork(network.name, network.opset, inputs, network.outputs, network.again)
    if not isinstance(network, OpenNetwork):
        raise InvalidArguments(
            "the model has no open dims, and the past of a state grows: export it with dynamic axes for past and "
            "sequence, and leave them open"
        )
    return network


def _axis_of(tensor: OpenTensor, update: CacheUpdate | None) -> int:
    """Return the axis of the positions of a state, which a TensorScatter writes if `update` is given."""
    if update is None:
        return _past_axis(tensor)
    _require_float32(tensor)
    if not update.index:
        problem = "has no write_indices" if update.index == "" else "computes write_indices"
        raise InvalidArguments(
            f"TensorScatter {update.node!r} {problem}, and a state supplies the position of new rows: export the model "
            "with write_indices as an input"
        )
    return update.axis % len(tensor.dims)


def _open_positions(network: OpenNetwork, axes: Mapping[str, int], extents: set[int]) -> OpenNetwork:
    """Return the network in which these axes of inputs, and that of the mask, are open instead of these extents."""
    opened = {MASK: 1, **axes}
    inputs = tuple(
        replace(
            one,
            dims=tuple(
                POSITIONS if axis == opened.get(one.name) and n in extents else n for axis, n in enumerate(one.dims)
            ),
        )
        for one in network.inputs
    )
    return replace(network, inputs=inputs)


def _require_numbers(tensor: OpenTensor) -> OpenTensor:
    """Check that an input has a whole number for each sequence, and return it."""
    if len(tensor.dims) != 1 or tensor.dtype.kind not in "iu":
        raise InvalidArguments(
            f"{tensor.name} {tensor.extents} {tensor.dtype} is no whole number for each sequence, and a state supplies "
            "these: export the model with dims (batch,)"
        )
    return tensor


def _require_names(names: Mapping[str, str], inputs: Mapping[str, OpenTensor], outputs: Sequence[str]) -> None:
    """Check that there are states, and that their names are those of inputs and outputs."""
    if not names:
        listed = ", ".join(map(printable, inputs))
        raise InvalidArguments(
            f"no input has the name of a state, such as past_key_values.0.key: name the states of {listed} by names="
        )
    for name, output in names.items():
        if name not in inputs:
            raise InvalidArguments(f"names have {name!r}, which is no input: give one of {', '.join(inputs)}")
        if output not in outputs:
            raise InvalidArguments(f"names have {output!r}, which is no output: give one of {', '.join(outputs)}")


def _require_float32(tensor: OpenTensor) -> None:
    """Check the type of a state."""
    if tensor.dtype != np.float32:
        raise InvalidArguments(f"state {tensor.name} is {tensor.dtype}: states are kept in float32: export it so")


def _past_axis(tensor: OpenTensor) -> int:
    """Return the axis of the positions of a state that grows."""
    _require_float32(tensor)
    axes = [axis for axis, n in enumerate(tensor.dims) if axis and isinstance(n, str)]
    if len(axes) != 1:
        raise InvalidArguments(
            f"state {tensor.name} {tensor.extents} has {len(axes)} open axes after the first: leave that of the "
            "positions open, and no other"
        )
    return axes[0]
