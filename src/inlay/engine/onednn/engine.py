"""`OnednnEngine`: an operation becomes a primitive descriptor, whose answers become an implementation.

    descs        given ones stay; `any` is asked of the primitive descriptor, and so are workspace and scratchpad
    impl         its `impl_info_str`
    bind         the primitive is made at the first call, and found in the library's own cache at later ones

The library is told about tensors without `offset0` (see `creation.within`): an address has it.
"""

import threading
from collections.abc import Mapping
from ctypes import byref, c_char_p
from types import MappingProxyType

from inlay.descriptor import MemoryDesc
from inlay.engine.onednn.attributes import attributes_handle, code_of, post_op_codes, value_arguments
from inlay.engine.onednn.capabilities import Capabilities, capabilities, lacking
from inlay.engine.onednn.creation import primitive_desc, said, within
from inlay.engine.onednn.declarations import ARGUMENTS, CPU, QUERY_ARGUMENT, QUERY_IMPL
from inlay.engine.onednn.descs import Descriptors
from inlay.engine.onednn.execution import Argument, Bound, Lanes, Plan, Team
from inlay.engine.onednn.handles import Handle, created
from inlay.engine.onednn.library import Library
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import Memory
from inlay.primitives.attributes import PLAIN, PReLU
from inlay.primitives.operation import Operation


class OnednnEngine:
    """Computes primitives by a loaded oneDNN, from any number of threads."""

    def __init__(self, library: Library) -> None:
        """Make the library's engine of this processor.

        Raises:
            InlayError: the library refuses.
        """
        self.library = library
        """What computes."""
        self.capabilities: Capabilities = capabilities(library)
        """What it can do."""
        self.descriptors = Descriptors(library)
        """Its descriptors and ours."""
        self.engine = created(library, "engine_create", "engine", CPU, 0)
        """The library's own."""
        self.team = Team(library)
        """How many threads it starts."""
        some_bytes = self.descriptors.handle(MemoryDesc((1,), "u8"))
        self.lanes = Lanes(library, self.engine, some_bytes, self.team)
        """What each Python thread executes with."""
        self._plain = attributes_handle(library, self.descriptors, Operation("reorder", "forward_inference", {}))

    @property
    def name(self) -> str:
        """Its name and version, such as `onednn 3.2.0`."""
        return f"onednn {'.'.join(map(str, self.library.version))}"

    def create(self, operation: Operation) -> "OnednnImplementation":
        """Choose the formats that are `any`, and how to compute.

        Raises:
            InvalidArguments: a backward operation has no hint or one of another kind, or the library, or the check
                before it, refuses the arguments.
            Unimplemented: the library lacks it (see `capabilities`), or the hint is of another engine.
            OutOfMemory: the library says so.
        """
        lack = lacking(self.capabilities, operation)
        if lack is not None:
            raise Unimplemented(f"{self.library.name} has no {lack}")
        hint = self._hint(operation)
        plain = operation.attributes is PLAIN
        attributes = self._plain if plain else attributes_handle(self.library, self.descriptors, operation)
        threads = self.team.wanted
        lane = self.lanes.lane
        if lane.threads != threads:
            lane.tell(threads)
        return OnednnImplementation(self, operation, primitive_desc(self, operation, attributes, hint), threads)

    def _hint(self, operation: Operation) -> Handle | None:
        if operation.direction == "forward":
            return None
        hint = operation.hint
        if hint is None:
            raise InvalidArguments(
                f"{operation.kind} {operation.prop_kind} needs its forward primitive as hint: create that with "
                "forward_training first"
            )
        if not isinstance(hint, OnednnImplementation) or hint.engine is not self:
            raise Unimplemented(
                f"the hint of {operation.kind} {operation.prop_kind} is of another engine, whose formats and workspace "
                f"{self.library.name} does not know"
            )
        if hint.operation.kind != operation.kind or hint.operation.direction != "forward":
            raise InvalidArguments(
                f"the hint of {operation.kind} {operation.prop_kind} is {hint.operation.kind} "
                f"{hint.operation.prop_kind}: give the forward primitive of the same kind"
            )
        return hint.primitive_desc

    def wait(self) -> None:
        """Return when everything that this thread began with `Bound.submit` is done."""
        self.lanes.lane.wait()


class OnednnImplementation:
    """A primitive descriptor of the library, and what it answered."""

    __slots__ = ("_lock", "_plan", "_primitive", "descs", "engine", "operation", "primitive_desc")

    operation: Operation
    """What was asked."""
    engine: OnednnEngine
    """Who answered."""
    primitive_desc: Handle
    """The library's answer."""
    descs: Mapping[str, MemoryDesc]
    """The descriptor of each argument that is read or written, none `any`."""

    def __init__(self, engine: OnednnEngine, operation: Operation, descriptor: Handle, threads: int) -> None:
        """Ask the primitive descriptor what it chose."""
        self.operation, self.engine, self.primitive_desc = operation, engine, descriptor
        self._lock = threading.Lock()
        self._primitive: Handle | None = None
        arguments, scratch = _arguments(engine, operation, descriptor)
        hidden = _hidden(engine, operation, descriptor)
        self.descs = MappingProxyType({argument.name: argument.desc for argument in arguments})
        asynchronous = engine.capabilities.is_asynchronous
        self._plan = Plan(arguments, hidden, scratch, threads, asynchronous, f"{operation.kind} {operation.prop_kind}")

    @property
    def impl(self) -> str:
        """The library's name for how it computes, such as `brgconv:avx512_core`."""
        text = c_char_p()
        query = self.engine.library.functions["primitive_desc_query"]
        status = query(self.primitive_desc.value, QUERY_IMPL, 0, byref(text))
        self.engine.library.require(status, lambda: f"the name of {said(self.operation)}")
        return (text.value or b"").decode()

    def bind(self, memories: Mapping[str, Memory]) -> Bound:
        """What computes once with these memories, each time it is called.

        Raises:
            InvalidArguments: one is missing, or there is one too many.
            OutOfMemory: the library has no room for the primitive.
        """
        engine = self.engine
        return self._plan.bound(engine.library, engine.lanes, engine.engine, self._made(), memories)

    def _made(self) -> Handle:
        """The primitive, made at the first call."""
        if self._primitive is None:
            with self._lock:
                lane = self.engine.lanes.lane
                lane.tell(self._plan.threads)
                if self._primitive is None:
                    self._primitive = created(
                        self.engine.library,
                        "primitive_create",
                        "primitive",
                        self.primitive_desc.value,
                        what=lambda: said(self.operation),
                    )
        return self._primitive


def _arguments(engine: OnednnEngine, operation: Operation, descriptor: Handle) -> tuple[list[Argument], int]:
    """Every argument of a primitive, and the bytes of a scratchpad that the engine brings."""
    asked = _Asked(engine, operation, descriptor)
    found = [asked.argument(name, desc, code_of(operation.kind, name)) for name, desc in operation.descs.items()]
    attributes = operation.attributes
    if attributes is not PLAIN:
        found += [asked.argument(name, desc, code) for name, (code, desc) in value_arguments(operation).items()]
        found += [asked.post_op(name, code) for name, code in post_op_codes(attributes).items()]
    kept = "workspace" in (*operation.signature.reads, *operation.signature.writes)
    if kept and operation.prop_kind != "forward_inference" and "workspace" not in operation.descs:
        found += asked.if_any("workspace")
    scratchpad = asked.if_any("scratchpad")
    if attributes.scratchpad_mode == "user":
        return found + scratchpad, 0
    return found, scratchpad[0].desc.size if scratchpad else 0


def _hidden(engine: OnednnEngine, operation: Operation, descriptor: Handle) -> list[Argument]:
    """The shift that 3.2 counts among the arguments of a layer normalization on its way back."""
    if operation.kind != "layer_normalization" or operation.direction == "forward" or "shift" in operation.descs:
        return []
    return _Asked(engine, operation, descriptor).if_any("shift")


class _Asked:
    """Questions to one primitive descriptor."""

    def __init__(self, engine: OnednnEngine, operation: Operation, descriptor: Handle) -> None:
        self._engine, self._operation, self._descriptor = engine, operation, descriptor
        self._query = engine.library.functions["primitive_desc_query_md"]

    def _pointer(self, code: int) -> int:
        return int(self._query(self._descriptor.value, QUERY_ARGUMENT, code) or 0)

    def argument(self, name: str, desc: MemoryDesc, code: int) -> Argument:
        """An argument of this descriptor, or of what the library made of `any`."""
        descriptors = self._engine.descriptors
        if desc.kind != "any":
            handle = descriptors.handle(within(desc))
            shift = 0
            if desc.offset0 and desc.data_type is not None and within(desc) is not desc:
                shift = desc.offset0 * desc.data_type.itemsize
            return Argument(name, code, desc, handle, handle.value, shift)
        pointer = self._pointer(code)
        return Argument(name, code, descriptors.read(pointer, desc), self._descriptor, pointer, 0)

    def if_any(self, name: str) -> list[Argument]:
        """An argument that nobody described, such as the workspace, if the primitive has one."""
        pointer = self._pointer(ARGUMENTS[name])
        if not pointer or not self._engine.library.functions["memory_desc_get_size"](pointer):
            return []
        desc = self._engine.descriptors.read(pointer)
        return [Argument(name, ARGUMENTS[name], desc, self._descriptor, pointer, 0)]

    def post_op(self, name: str, code: int) -> Argument:
        """What a post-operation reads."""
        i = int(name.removeprefix("post_op_").split("_")[0])
        post_op = self._operation.attributes.post_ops[i]
        if isinstance(post_op, PReLU):
            dims = self._operation.descs["dst"].dims
            return self.argument(
                name, MemoryDesc([n if post_op.mask >> k & 1 else 1 for k, n in enumerate(dims)], "f32"), code
            )
        src_1: MemoryDesc | None = getattr(post_op, "src_1", None)
        if src_1 is not None:
            return self.argument(name, src_1, code)
        pointer = self._pointer(code)
        return Argument(name, code, self._engine.descriptors.read(pointer), self._descriptor, pointer, 0)
