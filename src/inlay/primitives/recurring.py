"""What the classes of recurrent networks share: rules, what is derived, networks that stand still.

`Recurrent` is the base of forward primitives, `RecurrentBackward` of their gradients.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.memory import Memory, reorder
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.calls import Given, zeroing
from inlay.primitives.engines import EngineLike
from inlay.primitives.operation import Parameter
from inlay.primitives.primitive import Primitive, forward_kind, forward_of
from inlay.primitives.recurrent_rules import (
    DIRECTIONS,
    FLAGS,
    checked_descs,
    require_all_dims,
    require_all_types,
    require_pairs,
    require_scales,
    sizes_of,
)
from inlay.primitives.rules import choice, flags_of, require_dims, type_of
from inlay.primitives.slow_kernels import Avoid

_SUMS = ("diff_weights", "diff_bias")

State: TypeAlias = MemoryDesc | Literal["any"] | None
"""How the state at the end is described: not written, written in a format that the engine chooses, or as given."""


class Recurrent(Primitive):
    """What the forward primitives of all kinds share: the rules, and what is derived from the weights."""

    __slots__ = ()

    def _forward(
        self,
        prop_kind: str,
        direction: str,
        given: Mapping[str, MemoryDesc | None],
        states: Mapping[str, State],
        *,
        parameters: Mapping[str, Parameter] = MappingProxyType({}),
        attributes: PrimitiveAttributes | None,
        engine: EngineLike,
        avoid: Avoid,
    ) -> None:
        """Check what is given, derive what is left out, and create."""
        place, kind = type(self).__name__, self.kind
        purpose = forward_kind(place, prop_kind)
        way = choice(place, "direction", direction, DIRECTIONS)
        descs = checked_descs(place, given)
        sizes = sizes_of(place, kind, way, descs)
        source = type_of(descs["src_layer"])
        descs.setdefault("dst_layer", MemoryDesc(sizes.dims["dst_layer"], source, "any"))
        for name, state in states.items():
            if isinstance(state, str) and state == "any":
                taken = descs.get(name.replace("dst", "src"))
                data_type = source if taken is None else type_of(taken)
                fresh = "f32" if name == "dst_iter_c" and taken is None else data_type
                descs[name] = MemoryDesc(sizes.dims[name], fresh, "any")
            elif state is not None:
                descs |= checked_descs(place, {name: state})
        if kind == "lstm":
            require_pairs(place, descs)
        require_all_dims(place, sizes, descs)
        require_all_types(place, kind, purpose, descs)
        if attributes is not None:
            require_scales(place, sizes, descs, attributes)
        told = {**parameters, "direction": way, "flags": frozenset[str]()}
        self._create(purpose, descs, told, attributes=attributes, engine=engine, avoid=avoid)

    def _bound(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        if _is_still(self):
            return _carrying(memories, {"dst_iter": "src_iter", "dst_iter_c": "src_iter_c"}, [])
        return super()._bound(memories)


class RecurrentBackward(Primitive):
    """What the backward primitives of all kinds share.

    They read all that forward reads and writes, its workspace, and a gradient of each thing that forward writes; they
    write a gradient of each thing that forward reads. Gradients are f32. Gradients of weights are added to what their
    memory holds, so that steps may be summed, unless the flag `diff_weights_overwrite` is set; memory that a call makes
    starts at zero. After backward the workspace may hold anything.
    """

    __slots__ = ()
    forward: ClassVar[type[Recurrent]]
    """The forward primitive that it belongs to."""

    def __init__(
        self,
        diff_dst_layer: MemoryDesc | None = None,
        *,
        hint_forward: Recurrent | None = None,
        descs: Mapping[str, MemoryDesc] = MappingProxyType({}),
        flags: Any = (),
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for the gradient of `hint_forward`, of the same arguments.

        `descs` says formats of other arguments by name. What it leaves out is `any` for weights and gradients, so that
        the engine may choose other formats of weights than forward has, and that of forward for all else. `flags` are
        names of `recurrent_rules.FLAGS`.

        Raises:
            InvalidArguments: the hint is missing, descs name what is no argument, an argument has other dims or types
                than those of hint_forward, there is no such flag, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = type(self).__name__
        hint = forward_of(place, hint_forward, self.forward)
        if not isinstance(descs, Mapping):
            raise InvalidArguments(f"{place}: descs are {shown(descs)}: give a mapping from names to MemoryDescs")
        gradient = descs.get("diff_dst_layer") if diff_dst_layer is None else diff_dst_layer
        said = checked_descs(place, {**descs, "diff_dst_layer": gradient})
        taken = _backward_descs(hint)
        for name, desc in said.items():
            _require_as_hint(place, name, desc, taken)
        self._create(
            "backward",
            {**taken, **said},
            {**hint.operation.parameters, "flags": flags_of(place, flags, FLAGS)},
            attributes=attributes,
            hint=hint,
            engine=engine,
            avoid=avoid,
        )

    def _bound(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        if _is_still(self):
            flags = self.operation.parameters["flags"]
            is_new = isinstance(flags, frozenset) and "diff_weights_overwrite" in flags
            sums = [name for name in memories if name.startswith(_SUMS)] if is_new else []
            return _carrying(memories, {"diff_src_iter": "diff_dst_iter", "diff_src_iter_c": "diff_dst_iter_c"}, sums)
        return super()._bound(memories)

    def _checked(self, memories: Mapping[str, object]) -> Given:
        """As `Primitive` does; new memory that is added to starts at zero, whatever new memory holds."""
        given = super()._checked(memories)
        for name in given.fresh:
            if name.startswith(_SUMS):
                given.memories[name].buffer[:] = 0
        return given


def _is_still(primitive: Primitive) -> bool:
    """Whether there is no step or no sequence, so that states stay and nothing is added to gradients of weights."""
    return 0 in primitive.src_desc.dims[:2]


def _carrying(memories: Mapping[str, Memory], states: Mapping[str, str], zeros: list[str]) -> Callable[[], None]:
    """What writes to each state of `states` the one that it is, 0 if that was left out, and 0 to `zeros`."""
    moves = []
    for name, source in states.items():
        if name in memories and 0 not in memories[name].desc.dims:
            if source in memories:
                moves.append((memories[source], memories[name]))
            else:
                zeros = [*zeros, name]
    zero = zeroing([memories[name] for name in zeros])

    def run() -> None:
        zero()
        for src, dst in moves:
            reorder(src, dst.desc, out=dst)

    return run


def _backward_descs(hint: Primitive) -> dict[str, MemoryDesc]:
    """The descriptor of each argument of the gradient of `hint`, where nobody says another."""
    found: dict[str, MemoryDesc] = {}
    for name in hint.operation.descs:
        chosen = hint.desc(name)
        anew = MemoryDesc(chosen.dims, type_of(chosen), "any")
        found[name] = anew if name.startswith("weights") else chosen
        found[f"diff_{name}"] = MemoryDesc(chosen.dims, "f32", "any")
    return found


def _require_as_hint(place: str, name: str, desc: MemoryDesc, taken: Mapping[str, MemoryDesc]) -> None:
    if name not in taken:
        raise InvalidArguments(f"{place}: descs name {shown(name)}: the arguments are {', '.join(taken)}")
    require_dims(place, name, desc, taken[name].dims, "those of hint_forward")
    if type_of(desc) != type_of(taken[name]):
        why = "gradients are" if name.startswith("diff_") else "that of hint_forward is"
        raise InvalidArguments(f"{place}: {name} is {type_of(desc)}: {why} {type_of(taken[name])}")
