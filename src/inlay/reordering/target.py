"""The machine that code is made for, and machine code through LLVM: compiled, kept on disk, loaded and unloaded.

A target is a value: beside the processor of this process there are named ones, x86-64 and AArch64, for which the same
modules are compiled, to be read or to be run elsewhere. Registers of SVE are of no known width; here they are: a target
says 32 or 64 bytes, and its code runs where the registers have just that width.

    >>> sorted(TARGETS)[:3]
    ['aarch64', 'aarch64-sve256', 'aarch64-sve512']

Code generation runs without LLVM's optimization passes: the emitter writes what it means, and the passes would merge
its shuffles into slower ones and double the compile time.

Object files are linked into this process, and unloaded once nothing refers to them:

**Linker.** JITLink puts all sections of an object into one block of memory. RuntimeDyld, the other linker of LLVM, maps
each section by itself: where the sections end up more than 2 GiB apart, as in the gaps that freed memory leaves, the
relocations of the small code model cannot reach, and LLVM calls abort().

**Sessions.** A session of LLVM (LLJIT) keeps some 9 KB of each object for its own life, also after the object was
unloaded. So a session links `_SESSION_OBJECTS` objects, and ends when the last of them is unloaded.

**Unloading.** A garbage collector may drop the last reference at any moment: in the middle of a call of LLVM, on any
thread, in a forked child. So it only queues the object, and `make_room` unloads what is queued.

**Roofline.** The code of an object takes two memory mappings, of which Linux allows a process 65,530, and LLVM calls
abort() where the system refuses one. So `make_room` refuses before that.

An object is kept on disk under the digest of everything that its code follows from: what the emitter was asked for (a
kernel, as text), the source files that say what the emitter writes for it, the target, and the version of LLVM. So a
module that was compiled before need not even be written, and no version number of the emitter can be forgotten.

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
from inlay.reordering.ir import Arithmetic
from inlay.reordering.network import LANE_BYTES, Shuffles

llvm_lock = threading.RLock()
"""Held during every call of LLVM, and across forks: llvmlite's own lock would stay locked in the child."""
hold_across_forks(llvm_lock)


@dataclass(frozen=True, slots=True)
class Target:
    """What the code depends on in a machine."""

    triple: str
    """LLVM's name of architecture and system."""
    cpu: str
    """LLVM's name of the processor."""
    features: str
    """LLVM's list of the features of the processor."""
    vector_bytes: int
    """Width of the registers to use."""
    fence: str
    """The statement after which streaming stores are visible to other threads."""
    pause: str
    """The statement that tells the processor that a loop waits."""
    arithmetic: Arithmetic
    """What it converts by itself."""
    shuffles: Shuffles
    """What its shuffles of registers can do."""

    @property
    def prefers_panels(self) -> bool:
        """Whether panels with streaming stores are faster than ordinary stores: on AArch64 that was not measured."""
        return self.shuffles.family == "punpck"

    @property
    def attributes(self) -> str:
        """Attributes of every function."""
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
) -> Target:
    architecture = triple.split("-")[0]
    fence, pause = _STATEMENTS.get(architecture, _OTHER_STATEMENTS)
    shuffles = Shuffles("zip" if architecture == "aarch64" else "punpck", any_lane)
    return Target(triple, cpu, features, vector_bytes, fence, pause, arithmetic, shuffles)


_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_ANY_LANE = {"avx512vbmi": (64, 64, 64, 64), "avx512bw": (16, 64, 64, 64), "avx2": (16, 16, 32, 32)}
_X86_WIDTHS = (("avx512bw", 64), ("avx2", 32))
_BASE = Arithmetic(f16=False, bf16=False, picks=0)
_HALVES = Arithmetic(f16=True, bf16=False, picks=0)
_ARM_HALVES = Arithmetic(f16=True, bf16=False, picks=0, nan_loses=False, rounds=False)
_PICKS = Arithmetic(f16=True, bf16=False, picks=16)
TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "x86-64-v2": _target(_X86, "x86-64-v2", "", 16, _BASE),
        "x86-64-v3": _target(_X86, "x86-64-v3", "", 32, _HALVES, _ANY_LANE["avx2"]),
        "x86-64-v4": _target(_X86, "x86-64-v4", "", 64, _PICKS, _ANY_LANE["avx512bw"]),
        "aarch64": _target(_ARM, "generic", "", 16, _ARM_HALVES),
        "aarch64-sve256": _target(_ARM, "generic", "+sve", 32, _ARM_HALVES),
        "aarch64-sve512": _target(_ARM, "generic", "+sve", 64, _ARM_HALVES),
    }
)
"""The machines that have a name: the levels of the x86-64 ABI (SSE, AVX2, AVX-512), NEON, SVE of two widths."""


def named_target(name: Any) -> Target:
    """The target called `name`; None is the machine that runs this process.

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
def host_target() -> Target:
    """The machine that runs this process.

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
        picks=(8 if features.get("avx512vbmi") else 16) if width == 64 else 0,
        nan_loses=is_x86,
        rounds=is_x86,
    )
    any_lane = next((w for name, w in _ANY_LANE.items() if is_x86 and features.get(name)), (16, 16, 16, 16))
    return _target(triple, cpu, features.flatten(), width, arithmetic, any_lane)


# Making code


@lru_cache(maxsize=8)
def target_machine(target: Target) -> Any:
    """Return LLVM's code generator for `target`."""
    options = {"cpu": target.cpu, "features": target.features, "opt": 2, "reloc": "pic", "codemodel": "small"}
    with llvm_lock:
        if target != host_target():
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        return llvm.Target.from_triple(target.triple).create_target_machine(**options)


def compile_ir(text: str, target: Target) -> bytes:
    """The object file of a module."""
    with llvm_lock:
        return bytes(target_machine(target).emit_object(_parse_module(text, target)))


def assembly_of(text: str, target: Target) -> str:
    """The assembly of a module: what `compile_ir` makes, to be read."""
    with llvm_lock:
        return str(target_machine(target).emit_assembly(_parse_module(text, target)))


def _parse_module(text: str, target: Target) -> Any:
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.data_layout = str(target_machine(target).target_data)
    return module


# Code in this process


_SESSION_OBJECTS = 32
_libraries = count()


class LoadedCode:
    """The functions of one object file, which stay loaded while this object is referred to.

    Whoever keeps an address of a function has to keep this object too.
    """

    __slots__ = ("__weakref__", "addresses")

    def __init__(self, addresses: tuple[int, ...], tracker: object) -> None:
        """Take over the resource `tracker` of the object file."""
        self.addresses = addresses
        """Addresses of the functions, in the order in which they were asked for."""
        weakref.finalize(self, _unused.append, tracker).atexit = False


def load_object(data: bytes, symbols: tuple[str, ...]) -> LoadedCode:
    """Link an object file into this process.

    Args:
        data: the object file, for this machine.
        symbols: the functions of it that are wanted.

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
    """The session that links now; resource trackers keep the sessions before it as long as they need them."""
    # Windows has RuntimeDyld alone.
    return llvm.create_lljit_compiler(target_machine(host_target()), use_jit_link=sys.platform != "win32")


_LIMIT, _MAPPINGS = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")
_MOST_UNCHECKED = 256  # loads between two counts of the mappings, which take a microsecond for every two mappings
_unused: deque[Any] = deque()  # resource trackers of objects that nothing refers to
_unchecked_loads = 0  # so many loads may follow before the mappings are counted again


def make_room() -> None:
    """Unload code that nothing refers to, and check that there is room for more.

    Raises:
        OutOfMemory: the process has three quarters of the memory mappings that the system allows.
    """
    with llvm_lock:
        unload_unused()
        _require_mappings()


def unload_unused() -> None:
    """Give back the memory of code that nothing refers to."""
    with llvm_lock:
        while _unused:
            _unused.popleft().close()


def _require_mappings() -> None:
    """Raise OutOfMemory if the process has three quarters of the mappings that it may have.

    The rest is for whatever maps memory between two counts, and for code that every process needs.
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
    """How many memory mappings a process may have; None where the system has no such limit."""
    try:
        return int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None


# From the cache on disk, or compiled now


_resident: list[LoadedCode] = []


def load_permanently(asked: object, module_text: Callable[[], str], target: Target, *symbols: str) -> tuple[int, ...]:
    """The addresses of `symbols` in a module, which stays loaded for the life of the process.

    It is for the few modules that every process needs once, and is not refused; arguments and exceptions are otherwise
    those of `load_or_compile`.
    """
    code = _load_or_compile(asked, module_text, target, symbols)
    _resident.append(code)
    return code.addresses


def load_or_compile(asked: object, module_text: Callable[[], str], target: Target, *symbols: str) -> LoadedCode:
    """Load the functions `symbols` of a module: from the cache on disk, or compiled now and kept there.

    Args:
        asked: all that `module_text` depends on beside the target and the source files of this package; see `spelled`.
        module_text: writes the module; called only where no object is kept.
        target: the machine that code is made for.
        symbols: the functions that are wanted.

    Raises:
        OutOfMemory: as `make_room`.
        TypeError: `asked` cannot be spelled.
    """
    make_room()
    return _load_or_compile(asked, module_text, target, symbols)


def _load_or_compile(
    asked: object, module_text: Callable[[], str], target: Target, symbols: tuple[str, ...]
) -> LoadedCode:
    # Where the sources cannot be read, as in a zip archive, the module itself tells what the emitter writes.
    key = cache_key(canonical_text(asked) if SOURCES else module_text(), target)
    code = _load_cached(cache.read_object(key), symbols)
    if code is None:
        data = compile_ir(module_text(), target)
        cache.write_object(key, data)
        code = load_object(data, symbols)
    return code


def _load_cached(data: bytes | None, symbols: tuple[str, ...]) -> LoadedCode | None:
    """A kept object in this process; None if there is none, or it was damaged before it was sealed."""
    if data is None:
        return None
    try:
        return load_object(data, symbols)
    except RuntimeError:
        return None


def cache_key(asked: str, target: Target) -> str:
    """The name of the object that is made when `asked` is: the same everything gives the same code."""
    return cache.object_key(asked, SOURCES, *_machine_words(target))


@lru_cache(maxsize=8)
def _machine_words(target: Target) -> tuple[str, str]:
    """The target, and the version of LLVM that makes code for it."""
    return canonical_text(target), ".".join(map(str, llvm.llvm_version_info))


_PLAIN = frozenset((type(None), bool, int, float, str))


def canonical_text(value: object) -> str:
    """A value as text that leaves nothing out: values are equal if their texts are.

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
    raise TypeError(f"{value!r} names no machine code: make kernels of numbers, text, tuples and dataclasses")


@lru_cache(maxsize=64)
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    """The names of the fields of a dataclass."""
    return tuple(field.name for field in fields(kind))


def emitter_files() -> list[Path]:
    """The source files that decide what is compiled: those of this package, and the table of data types."""
    return [*sorted(Path(__file__).parent.glob("*.py")), Path(data_type.__file__)]


def digest_of(files: Iterable[Path]) -> str:
    """A digest of the names and contents of `files`; nothing where one cannot be read."""
    whole = sha256()
    try:
        for path in files:
            content = path.read_bytes()
            whole.update(f"{path.name} {len(content)}\n".encode() + content)
    except OSError:
        return ""
    return whole.hexdigest()


SOURCES = digest_of(emitter_files())
"""Taken as soon as the code is loaded: a file that is edited while the process runs is not the one that it runs."""
