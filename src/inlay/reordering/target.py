"""The target machine, and machine code through LLVM: compiled, stored on disk, loaded and unloaded.

A `TargetMachine` is a value. Besides the processor of this process there are named targets of x86-64 and AArch64: the
same modules can be compiled for them, to read the assembly or to run it elsewhere. The width of SVE registers is
unknown at compile time in general; a target fixes it to 32 or 64 bytes, and its code runs on processors with exactly
that width.

    >>> sorted(TARGETS)[:3]
    ['aarch64', 'aarch64-sve256', 'aarch64-sve512']

Code is generated without LLVM's optimization passes. They would merge the chosen shuffles into slower ones and double
the compile time.

Object files are linked into this process and unloaded once nothing refers to them:

**Linker.** JITLink allocates all sections of an object in one block of memory. RuntimeDyld, LLVM's other linker, maps
each section separately. If the sections are more than 2 GiB apart, the relocations of the small code model overflow and
LLVM calls abort().

**Sessions.** A session of LLVM (LLJIT) retains some 9 KB for each object even after the object was unloaded. So a
session links only `_SESSION_OBJECTS` objects, and it is freed when the last of them is unloaded.

**Unloading.** The garbage collector may drop the last reference at any time: during a call of LLVM, on any thread, in a
forked child. So a finalizer only queues the object, and `make_room` unloads queued objects.

**Limit.** The code of an object needs two memory mappings. Linux allows a process 65,530, and LLVM calls abort() if a
mapping fails. So `make_room` raises an exception before that.

The name of a cached object is the digest of everything that determines its code: the input of the emitter (a kernel, as
text), the source files of the emitter, the target, and the version of LLVM. So the module of a cached object need not
be written again, and there is no version number of the emitter to maintain.

    >>> from inlay.reordering.network import BitPermutation
    >>> canonical_text(BitPermutation((1, 0)))
    'BitPermutation((1, 0))'
"""

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import llvmlite.binding as llvm

from inlay import cache, data_type
from inlay.errors import InvalidArguments, OutOfMemory, Unimplemented, shown
from inlay.forks import hold_across_forks
from inlay.reordering.instructions import LANE_BYTES, Arithmetic, Shuffles

llvm_lock = threading.RLock()
"""The lock held during every call of LLVM, and while the process forks: llvmlite's own lock would stay locked in the
child."""
hold_across_forks(llvm_lock)


@dataclass(frozen=True, slots=True)
class TargetMachine:
    """The properties of a machine that code depends on."""

    triple: str
    """LLVM's name of architecture and system."""
    cpu: str
    """LLVM's name of the processor."""
    features: str
    """LLVM's list of the processor's features."""
    vector_bytes: int
    """Width in bytes of the vector registers to use."""
    fence: str
    """The statement that makes streaming stores visible to other threads."""
    pause: str
    """The statement for a polling loop (x86: `pause`)."""
    arithmetic: Arithmetic
    """The conversion and permutation instructions of the processor."""
    shuffles: Shuffles
    """The shuffle instructions of the processor."""

    @property
    def prefers_panels(self) -> bool:
        """Return whether panels with streaming stores are used by default.

        Not on AArch64, where they were not measured.
        """
        return self.shuffles.family == "punpck"

    @property
    def attributes(self) -> str:
        """The LLVM attributes of every function."""
        if self.shuffles.family == "zip":
            lengths = self.vector_bytes // LANE_BYTES
            return f"vscale_range({lengths},{lengths})" if lengths > 1 else ""
        bits = self.vector_bytes * 8
        return f'"min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}"'


_STATEMENTS = {
    "x86_64": ("call void @llvm.x86.sse.sfence()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("fence seq_cst", "call void @llvm.aarch64.hint(i32 1)"),
}
_OTHER_STATEMENTS = ("fence seq_cst", "fence acquire")


def _target(
    triple: str,
    cpu: str,
    features: str,
    vector_bytes: int,
    arithmetic: Arithmetic,
    any_lane: tuple[int, int, int, int] = (16, 16, 16, 16),
) -> TargetMachine:
    architecture = triple.split("-")[0]
    fence, pause = _STATEMENTS.get(architecture, _OTHER_STATEMENTS)
    shuffles = Shuffles("zip" if architecture == "aarch64" else "punpck", any_lane)
    return TargetMachine(triple, cpu, features, vector_bytes, fence, pause, arithmetic, shuffles)


_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_ANY_LANE = {"avx512vbmi": (64, 64, 64, 64), "avx512bw": (16, 64, 64, 64), "avx2": (16, 16, 32, 32)}
_X86_WIDTHS = (("avx512bw", 64), ("avx2", 32))
_BASE = Arithmetic(f16=False, bf16=False, permute_bits=0)
_HALVES = Arithmetic(f16=True, bf16=False, permute_bits=0)
_ARM_HALVES = Arithmetic(f16=True, bf16=False, permute_bits=0, max_drops_nan=False, has_lrint=False)
_PICKS = Arithmetic(f16=True, bf16=False, permute_bits=16)
TARGETS: Mapping[str, TargetMachine] = MappingProxyType(
    {
        "x86-64-v2": _target(_X86, "x86-64-v2", "", 16, _BASE),
        "x86-64-v3": _target(_X86, "x86-64-v3", "", 32, _HALVES, _ANY_LANE["avx2"]),
        "x86-64-v4": _target(_X86, "x86-64-v4", "", 64, _PICKS, _ANY_LANE["avx512bw"]),
        "aarch64": _target(_ARM, "generic", "", 16, _ARM_HALVES),
        "aarch64-sve256": _target(_ARM, "generic", "+sve", 32, _ARM_HALVES),
        "aarch64-sve512": _target(_ARM, "generic", "+sve", 64, _ARM_HALVES),
    }
)
"""The named targets: the levels of the x86-64 ABI (SSE, AVX2, AVX-512), NEON, and SVE of two widths."""


def named_target(name: Any) -> TargetMachine:
    """Return the target called `name`; for None, that of the machine that runs this process.

    Raises:
        InvalidArguments: there is no target of that name.
        Unimplemented: LLVM has no code generator for this processor.
    """
    if name is None:
        return host_target()
    target = TARGETS.get(name) if isinstance(name, str) else None
    if target is None:
        raise InvalidArguments(
            f"no target is called {shown(name)}: name one of {', '.join(TARGETS)}, or none for this machine"
        )
    return target


@lru_cache(maxsize=1)
def host_target() -> TargetMachine:
    """Return the target of the machine that runs this process.

    Raises:
        Unimplemented: LLVM has no code generator for it here.
    """
    try:
        with llvm_lock:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            features = llvm.get_host_cpu_features()
            triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
    except RuntimeError as error:
        raise Unimplemented(f"LLVM cannot make code for this processor: {error}") from error
    is_x86 = triple.startswith("x86_64")
    width = next((w for name, w in _X86_WIDTHS if is_x86 and features.get(name)), 16)
    arithmetic = Arithmetic(
        f16=not is_x86 or bool(features.get("f16c")),
        bf16=width == 64 and bool(features.get("avx512bf16") and features.get("avx512dq")),
        permute_bits=(8 if features.get("avx512vbmi") else 16) if width == 64 else 0,
        max_drops_nan=is_x86,
        has_lrint=is_x86,
    )
    any_lane = next((w for name, w in _ANY_LANE.items() if is_x86 and features.get(name)), (16, 16, 16, 16))
    return _target(triple, cpu, features.flatten(), width, arithmetic, any_lane)


# Making code


@lru_cache(maxsize=8)
def target_machine(target: TargetMachine) -> Any:
    """Return LLVM's code generator for `target`."""
    options = {"cpu": target.cpu, "features": target.features, "opt": 2, "reloc": "pic", "codemodel": "small"}
    with llvm_lock:
        if target != host_target():
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        return llvm.Target.from_triple(target.triple).create_target_machine(**options)


def compile_ir(text: str, target: TargetMachine) -> bytes:
    """Compile a module; return its object file."""
    with llvm_lock:
        return bytes(target_machine(target).emit_object(_parse_module(text, target)))


def assembly_of(text: str, target: TargetMachine) -> str:
    """Return the assembly that `compile_ir` generates for a module."""
    with llvm_lock:
        return str(target_machine(target).emit_assembly(_parse_module(text, target)))


def _parse_module(text: str, target: TargetMachine) -> Any:
    """Parse the text of a module and set its target."""
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.data_layout = str(target_machine(target).target_data)
    return module


# Code in this process


_SESSION_OBJECTS = 32
_libraries = count()


class LoadedCode:
    """The functions of one object file, which stay loaded while this object is alive.

    The owner of a function's address must keep a reference to this object.
    """

    __slots__ = ("__weakref__", "addresses")

    def __init__(self, addresses: tuple[int, ...], tracker: object) -> None:
        """Take ownership of the resource `tracker` of the object file."""
        self.addresses = addresses
        """Addresses of the functions, in the order of the `symbols` argument of `load_object`."""
        weakref.finalize(self, _unused.append, tracker).atexit = False


def load_object(data: bytes, symbols: tuple[str, ...]) -> LoadedCode:
    """Link an object file into this process.

    Args:
        data: the object file, for this machine.
        symbols: names of the functions to return.

    Raises:
        RuntimeError: LLVM cannot link it.
    """
    with llvm_lock:
        number = next(_libraries)
        builder = llvm.JITLibraryBuilder().add_object_img(data)
        for symbol in symbols:
            builder.export_symbol(symbol)
        tracker = builder.link(_session(number // _SESSION_OBJECTS), f"inlay-{number}")
        return LoadedCode(tuple(int(tracker[symbol]) for symbol in symbols), tracker)


@lru_cache(maxsize=1)
def _session(number: int) -> Any:
    """Return the current session; resource trackers keep earlier sessions alive as long as they need them."""
    # On Windows, only RuntimeDyld is available.
    return llvm.create_lljit_compiler(target_machine(host_target()), use_jit_link=sys.platform != "win32")


_LIMIT, _MAPPINGS = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")
_MOST_UNCHECKED = 256  # loads between two counts of the mappings; a count takes a microsecond for every two mappings
_unused: deque[Any] = deque()  # resource trackers of objects that nothing refers to
_unchecked_loads = 0  # number of loads until the mappings are counted again


def make_room() -> None:
    """Unload code that nothing refers to, and check that more code can be loaded.

    Raises:
        OutOfMemory: the process has three quarters of the memory mappings that the system allows.
    """
    with llvm_lock:
        unload_unused()
        _require_mappings()


def unload_unused() -> None:
    """Unload code that nothing refers to, and free its memory."""
    with llvm_lock:
        while _unused:
            _unused.popleft().close()


def _require_mappings() -> None:
    """Raise OutOfMemory if the process has three quarters of the memory mappings that it may have.

    The rest is a reserve for mappings between two counts, and for code that every process needs.
    """
    global _unchecked_loads
    if _unchecked_loads > 0:
        _unchecked_loads -= 1
        return
    limit = _mapping_limit()
    if limit is None:
        return
    mappings = _MAPPINGS.read_bytes().count(b"\n")
    left = limit * 3 // 4 - mappings
    if left <= 0:
        raise OutOfMemory(
            f"this process has {mappings} memory mappings, and the system allows {limit}: no more machine code is "
            "loaded; delete reorders and other objects that are not needed, or continue in a new process"
        )
    _unchecked_loads = min(_MOST_UNCHECKED, left // 8)


@lru_cache(maxsize=1)
def _mapping_limit() -> int | None:
    """Return the number of memory mappings that a process may have, or None if the system has no such limit."""
    try:
        return int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None


# From the cache on disk, or compiled now


_resident: list[LoadedCode] = []


def load_permanently(
    key: object, module_text: Callable[[], str], target: TargetMachine, *symbols: str
) -> tuple[int, ...]:
    """Return the addresses of functions in a module that stays loaded for the life of the process.

    Use it for the few modules that every process loads once: it does not check the limit on mappings. Arguments and
    other exceptions are those of `load_or_compile`.
    """
    code = _load_or_compile(key, module_text, target, symbols)
    _resident.append(code)
    return code.addresses


def load_or_compile(key: object, module_text: Callable[[], str], target: TargetMachine, *symbols: str) -> LoadedCode:
    """Load the functions `symbols` of a module: from the cache on disk, or compile the module and store it there.

    Args:
        key: everything that `module_text` depends on, apart from the target and the source files of this package; see
            `canonical_text`.
        module_text: returns the text of the module; called only if no cached object exists.
        target: the machine to generate code for.
        symbols: names of the functions to return.

    Raises:
        OutOfMemory: as `make_room`.
        TypeError: `key` has no canonical text.
    """
    make_room()
    return _load_or_compile(key, module_text, target, symbols)


def _load_or_compile(
    key: object, module_text: Callable[[], str], target: TargetMachine, symbols: tuple[str, ...]
) -> LoadedCode:
    # If the source files cannot be read, as in a zip archive, the text of the module is the key.
    name = cache_key(canonical_text(key) if SOURCES else module_text(), target)
    code = _load_cached(cache.read_object(name), symbols)
    if code is None:
        data = compile_ir(module_text(), target)
        cache.write_object(name, data)
        code = load_object(data, symbols)
    return code


def _load_cached(data: bytes | None, symbols: tuple[str, ...]) -> LoadedCode | None:
    """Load a cached object into this process; return None if there is none or it is damaged."""
    if data is None:
        return None
    try:
        return load_object(data, symbols)
    except RuntimeError:
        return None


def cache_key(text: str, target: TargetMachine) -> str:
    """Return the name of a cached object: the digest of `text`, the emitter's sources, the target, LLVM's version."""
    return cache.object_key(text, SOURCES, *_machine_words(target))


@lru_cache(maxsize=8)
def _machine_words(target: TargetMachine) -> tuple[str, str]:
    """Return the canonical text of the target, and the version of LLVM."""
    return canonical_text(target), ".".join(map(str, llvm.llvm_version_info))


_PLAIN = frozenset((type(None), bool, int, float, str))


def canonical_text(value: object) -> str:
    """Return a value as text without loss: two values are equal if their texts are.

    Raises:
        TypeError: the value, or a part of it, is no number, text, tuple or dataclass.
    """
    kind = type(value)
    if kind in _PLAIN or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(canonical_text, value))})"
    if is_dataclass(kind):
        return (
            f"{kind.__qualname__}({', '.join([canonical_text(getattr(value, name)) for name in _field_names(kind)])})"
        )
    raise TypeError(f"{value!r} cannot identify machine code: build kernels from numbers, text, tuples and dataclasses")


@lru_cache(maxsize=64)
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass."""
    return tuple(field.name for field in fields(kind))


def emitter_files() -> list[Path]:
    """Return the source files that determine generated code: those of this package, and the table of data types."""
    return [*sorted(Path(__file__).parent.glob("*.py")), Path(data_type.__file__)]


def digest_of(files: Iterable[Path]) -> str:
    """Return a digest of the names and contents of `files`; an empty text if one cannot be read."""
    whole = sha256()
    try:
        for path in files:
            content = path.read_bytes()
            whole.update(f"{path.name} {len(content)}\n".encode() + content)
    except OSError:
        return ""
    return whole.hexdigest()


SOURCES = digest_of(emitter_files())
"""The digest of the source files, computed at import: the process runs the files of that moment, even if they are
edited."""
