"""oneDNN's shared library: finding and loading it, creating primitives on a sound thread, owning its handles.

Where it is looked for, in this order:

    INLAY_ONEDNN       a file, or a folder that holds one
    the prefix         lib/libdnnl.so.3 of this Python or of the user, where the wheels `onednn-cpu-gomp` (3.2) and
                       `onednn` (3.13) put it
    the system         libdnnl.so.3 as the dynamic linker finds it

Idle threads of GNU OpenMP look for the next call for up to 15 ms: on processors that others use as well, their own team
misses that time. Here they do so for some 50 us, as OpenMP itself has it where threads are more than processors, unless
OMP_WAIT_POLICY or GOMP_SPINCOUNT is set or something else has loaded that OpenMP before.

The wheel `onednn` runs on SYCL and says nowhere where the libraries that it needs lie, nor the driver of its processor:
they lie beside it, so they are loaded first and named in OCL_ICD_FILENAMES.

`CodeGeneration` creates primitives in spite of errors that the library's code generator keeps. oneDNN generates code
with Xbyak, which stores an error, such as a displacement of more than 32 bits, in a thread-local variable that oneDNN
reads and never clears: after one `runtime_error` every creation on that thread fails, and one that reports success
there may lack a part. A new thread has a new variable. Hence

    an ordinary operation       is created by the calling thread
    one that is prone to fail   is created by a new thread, and the calling thread keeps a clear variable
    after an error              the creation is repeated by a new thread, and so is every later one of this thread

A new thread costs 0.1 ms, an ordinary creation 0.03 ms and more: so not every creation gets one.

A `Handle` is a pointer of the library that belongs to us: it is destroyed once, when nothing refers to it any more.

    handle = Handle(library, "memory_desc", created)        created: what a create function wrote
    handle.value                                            for calls

The library's objects are not all counted: a primitive keeps what it needs, but an execution's memory objects must
outlive it, and the descriptors that a primitive descriptor answers belong to it. So who borrows keeps the owner.

Source: `Xbyak::local::GetErrorRef` in xbyak.h, `jit_generator_t::create_kernel` in oneDNN.
"""

import ctypes
import os
import platform
import site
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import byref, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from inlay import onednn_abi as abi
from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments, MissingExtra, OutOfMemory, Unimplemented
from inlay.layout import Layout

_FILE: Final = "libdnnl.so.3"
_ENVIRONMENT: Final = "INLAY_ONEDNN"
_NEEDED_BY_SYCL: Final = ("libintlc.so.5", "libimf.so", "libsvml.so", "libtbb.so.12", "libsycl.so.9", "libsycl.so.8")
_DRIVER: Final = "libintelocl.so"
_NAMED_REMEDY: Final = f"give a libdnnl.so of version 3, or unset {_ENVIRONMENT}"
_OPENMP: Final = "install the system's package of GNU OpenMP, such as libgomp1"

_WAITING: Final = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SPINS: Final = "1000"

# Calls that compute or compile let other threads run; the rest take less time than letting go of the lock.
_LONG: Final = (
    "engine_create",
    "stream_wait",
    "primitive_desc_create",
    "primitive_desc_next_impl",
    "primitive_create",
    "primitive_execute",
)


def install_command(system: str = sys.platform, machine: str | None = None) -> str:
    """How to install oneDNN on this platform: by the wheel where there is one, else by hand.

    >>> install_command("linux", "x86_64")
    "pip install 'inlay[engine]', or set INLAY_ONEDNN to a libdnnl.so of version 3"
    >>> install_command("linux", "aarch64")
    'build oneDNN 3, of which there is no wheel for linux on aarch64, and set INLAY_ONEDNN to its libdnnl.so'
    """
    machine = platform.machine() if machine is None else machine
    if (system, machine) == ("linux", "x86_64"):
        return "pip install 'inlay[engine]', or set INLAY_ONEDNN to a libdnnl.so of version 3"
    return (
        f"build oneDNN 3, of which there is no wheel for {system} on {machine}, and set INLAY_ONEDNN to its libdnnl.so"
    )


class Library:
    """A loaded oneDNN: its functions are those of `onednn_abi` that it has."""

    def __init__(self, path: str, remedy: str = "") -> None:
        """Load the file; `remedy` is what to do where it is no oneDNN, by default to install one.

        Raises:
            MissingExtra: it cannot be loaded, is no oneDNN, or finds no processor that it can compute on.
            Unimplemented: its version is not 3.
        """
        self._remedy = remedy or install_command()
        self.path = path
        """The file, as the linker was told."""
        self.cdll = _loaded(path, self._remedy)
        """For what needs the library itself."""
        self.functions: Mapping[str, Callable[..., Any]] = _bound(self.cdll, path)
        """By name without `dnnl_`; what a version lacks is left out."""
        self.version, self.runtime = self._asked()
        self.code_generation = CodeGeneration()
        """On which thread primitives are created."""
        self._require_processor()

    version: tuple[int, int, int]
    """Major, minor, patch."""
    runtime: str
    """What it starts threads with: sequential, omp, tbb, threadpool, sycl."""

    def _asked(self) -> tuple[tuple[int, int, int], str]:
        if "version" not in self.functions:
            raise MissingExtra(f"{self.path} is no oneDNN, it has no dnnl_version: {self._remedy}")
        found = abi.Version.from_address(self.functions["version"]())
        if found.major != 3:
            raise Unimplemented(
                f"{self.path} is oneDNN {found.major}.{found.minor}, and the engine speaks to version 3: {self._remedy}"
            )
        return (found.major, found.minor, found.patch), abi.RUNTIMES.get(found.cpu_runtime, f"code {found.cpu_runtime}")

    def _require_processor(self) -> None:
        if not self.functions["engine_get_count"](abi.CPU):
            raise MissingExtra(
                f"{self.path} finds no processor to compute on: set OCL_ICD_FILENAMES to the {_DRIVER} beside it "
                "before Python starts"
            )

    @property
    def name(self) -> str:
        """What messages call it, such as `oneDNN 3.2.0`."""
        return f"oneDNN {'.'.join(map(str, self.version))}"

    def require(self, status: int, what: Callable[[], str]) -> None:
        """Raise the error of a status; `what` says what was asked, if it comes to that.

        Raises:
            InvalidArguments, Unimplemented, OutOfMemory: the statuses of these names.
            RuntimeFailure: the status `runtime_error`.
            InlayError: another status.
        """
        if status != abi.SUCCESS:
            raise self.error(status, what())

    def error(self, status: int, what: str) -> InlayError:
        """The error of a status."""
        kind, problem = _ERRORS.get(status, (InlayError, f"fails with status {status} at"))
        return kind(f"{self.name} {problem} {what}")


class RuntimeFailure(InlayError):
    """The status `runtime_error` of the library."""


_ERRORS: Final[Mapping[int, tuple[type[InlayError], str]]] = {
    1: (OutOfMemory, "has no memory for"),
    2: (InvalidArguments, "refuses the arguments of"),
    3: (Unimplemented, "has no implementation of"),
    abi.RUNTIME_ERROR: (RuntimeFailure, "fails with status 5 at"),
}


def _bound(cdll: ctypes.CDLL, path: str) -> dict[str, Callable[..., Any]]:
    """The functions that the library has: those that take long let other threads run."""
    long = {name: found for name, found in abi.functions(cdll).items() if any(part in name for part in _LONG)}
    return abi.functions(ctypes.PyDLL(path)) | long


def _loaded(path: str, remedy: str) -> ctypes.CDLL:
    folder = Path(path).parent
    beside = [folder / name for name in (*_NEEDED_BY_SYCL, _DRIVER) if os.sep in path and (folder / name).exists()]
    try:
        for needed in beside:
            if needed.name == _DRIVER:
                os.environ.setdefault("OCL_ICD_FILENAMES", str(needed))
            else:
                ctypes.CDLL(str(needed), ctypes.RTLD_GLOBAL)
        with _short_spins():
            return ctypes.CDLL(path)
    except OSError as error:
        raise MissingExtra(
            f"{path} cannot be loaded ({error}): {_OPENMP if 'libgomp' in str(error) else remedy}"
        ) from error


@contextmanager
def _short_spins() -> Iterator[None]:
    """While this lasts the environment has the number of looks after which an idle thread of OpenMP sleeps."""
    if any(name in os.environ for name in _WAITING):
        yield
        return
    os.environ[_WAITING[-1]] = _SPINS
    try:
        yield
    finally:
        del os.environ[_WAITING[-1]]


def candidates(environment: Mapping[str, str]) -> Iterator[str]:
    """The files to try, best first.

    Raises:
        MissingExtra: INLAY_ONEDNN names what does not exist or cannot be looked at, or a folder without the library.
    """
    named = environment.get(_ENVIRONMENT, "")
    if named:
        yield _file_of(named)
        return
    for prefix in (sys.prefix, site.getuserbase()):
        path = Path(prefix) / "lib" / _FILE
        if path.exists():
            yield str(path)
    yield _FILE


def _file_of(named: str) -> str:
    """The file that INLAY_ONEDNN names."""
    path = Path(named)
    try:
        is_folder = path.is_dir()
        if is_folder:
            path = path / _FILE
        problem = "" if path.exists() else f"has no {_FILE}" if is_folder else "does not exist"
    except OSError as error:  # such as a name that is too long
        problem = f"cannot be read ({error.strerror})"
    if problem:
        raise MissingExtra(f"{_ENVIRONMENT} is {named!r}, which {problem}: {_NAMED_REMEDY}")
    return str(path.absolute())


@cache
def load_library() -> Library:
    """The library of this process, loaded at the first call.

    Raises:
        MissingExtra: none can be loaded; the text says what to install.
        Unimplemented: the one that INLAY_ONEDNN names has another version.
    """
    named = os.environ.get(_ENVIRONMENT, "")
    problems = []
    for path in candidates(os.environ):
        try:
            return Library(path, _NAMED_REMEDY if named else "")
        except (MissingExtra, Unimplemented) as error:
            if named:
                raise type(error)(f"{_ENVIRONMENT} is {named!r}: {error}") from error
            problems.append(str(error))
    if len(problems) == 1:
        # Nothing is installed where wheels go, and what the linker says of the system is no news.
        raise MissingExtra(f"no oneDNN is installed: {install_command()}")
    raise MissingExtra(problems[0])


_Result = TypeVar("_Result")


class _ThreadState(threading.local):
    """State of one Python thread."""

    has_failed = False
    """Whether the library reported a runtime error to it."""


class CodeGeneration:
    """Chooses the thread that generates code for one library."""

    def __init__(self) -> None:
        """Begin without errors."""
        self._state = _ThreadState()

    def run(self, create: Callable[[], _Result], prepare: Callable[[], object], *, isolate: bool = False) -> _Result:
        """Return `create()`, called on a thread on which the code generator has not failed.

        Args:
            create: calls the library; a runtime error is raised as `RuntimeFailure`.
            prepare: called before it on a new thread, to set what the calling thread has set.
            isolate: a new thread creates, whatever happened before.

        Raises:
            RuntimeFailure: code generation fails on a new thread too.
            OutOfMemory: the system starts no thread.
        """
        if not (isolate or self._state.has_failed):
            try:
                return create()
            except RuntimeFailure:
                self._state.has_failed = True

        def prepared() -> _Result:
            prepare()
            return create()

        return run_on_new_thread(prepared)


def run_on_new_thread(call: Callable[[], _Result]) -> _Result:
    """Return `call()`, or raise its error; a thread is started for it and ends with it.

    Raises:
        OutOfMemory: the system starts no thread.

    >>> run_on_new_thread(threading.current_thread) is threading.current_thread()
    False
    """
    try:
        with ThreadPoolExecutor(1, "inlay-code-generation") as threads:
            created = threads.submit(call)
    except RuntimeError as error:
        raise OutOfMemory(f"the system starts no thread to create a primitive with: {error}") from error
    return created.result()


_FAR: Final = 1 << 28
"""Elements between the ends of an axis from which on displacements may not fit in 32 bits; for a blocked axis, a bound
of them. The shortest axis that failed had 3 * 2^28."""
_EMULATED: Final = frozenset((DATA_TYPES["f8_e5m2"], DATA_TYPES["f8_e4m3"]))
"""Types whose conversions are generated, not single instructions: 3.13 fails at one of them with AMX."""


def is_prone(descs: Iterable[MemoryDesc]) -> bool:
    """Whether code generation for tensors of these descriptors is likely to fail.

    >>> is_prone([MemoryDesc((2, 17), "f32")]), is_prone([MemoryDesc((2, 17), "f8_e5m2")])
    (False, True)
    """
    for desc in descs:
        if desc.data_type in _EMULATED:
            return True
        if isinstance(desc.layout, Layout):
            for dim, axis in zip(desc.dims, desc.layout.axes, strict=True):
                if dim * axis.stride >= _FAR:
                    return True
        elif desc.size >= _FAR:
            return True
    return False


class Handle:
    """A pointer of the library and the call that destroys it."""

    __slots__ = ("__weakref__", "_destroy", "value")

    value: int
    """The pointer."""

    def __init__(self, destroy: Callable[[int], Any], value: int) -> None:
        """Own `value`, which `destroy` takes back."""
        self._destroy = destroy
        self.value = value

    def __del__(self) -> None:
        self._destroy(self.value)


def created(library: Library, name: str, kind: str, *arguments: Any, what: Callable[[], str] | None = None) -> Handle:
    """What the create function `name` writes, which the function `{kind}_destroy` takes back.

    Raises:
        InvalidArguments, Unimplemented, OutOfMemory, InlayError: the library's status; `what` says at what.
    """
    out = c_void_p()
    status = library.functions[name](byref(out), *arguments)
    if status or not out.value:
        raise library.error(status, what() if what is not None else name)
    return Handle(library.functions[f"{kind}_destroy"], out.value)


def query(library: Library, pointer: int, what: int) -> int:
    """The number, or the address of the array, that answers a query of a memory descriptor.

    Raises:
        InlayError: the library fails.
    """
    answer = c_int64()
    library.require(library.functions["memory_desc_query"](pointer, what, byref(answer)), lambda: f"query {what}")
    return answer.value
