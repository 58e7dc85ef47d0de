"""The shared library of oneDNN: loading, owned pointers, and the threads that generate code.

The library is searched for in this order:

    INLAY_ONEDNN       a file, or a folder that contains libdnnl.so.3
    the prefix         lib/libdnnl.so.3 of this Python installation, then of the user; the wheels `onednn-cpu-gomp`
                       (3.2) and `onednn` (3.13) install it there
    the system         libdnnl.so.3 as the dynamic linker finds it

**Spinning threads.** An idle thread of GNU OpenMP spins for up to 15 ms before it sleeps. On processors that other
programs use too, it takes time from threads of its own team. The engine therefore loads the library with
GOMP_SPINCOUNT=1000 (about 50 us), the value that OpenMP itself uses when there are more threads than processors. The
setting has no effect if OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, or if other code has loaded that OpenMP before.

**SYCL.** The wheel `onednn` runs on SYCL and does not declare the libraries that it needs. They are files beside it, so
they are loaded first, and the driver of the processor is named in OCL_ICD_FILENAMES.

**Sticky errors of code generation.** oneDNN generates code with Xbyak. Xbyak stores an error, such as a displacement of
more than 32 bits, in a thread-local variable that oneDNN reads and never clears. After one `runtime_error`, every
creation on that thread fails, and a creation that reports success may have generated incomplete code. A new thread has
a new variable. `CodeGeneration` therefore chooses the thread:

    an ordinary operation                the calling thread
    an operation that is prone to fail   a new thread, so that the variable of the calling thread stays clear
    after an error                       a new thread for the failed creation and for all later ones of this thread

Starting a thread takes 0.1 ms, an ordinary creation 0.03 ms or more, so not every creation gets its own thread.

**Ownership.** A `LibraryHandle` owns a pointer of the library and destroys it when the handle has no references left.

    handle = create_handle(library, "memory_desc_clone", "memory_desc", pointer)
    handle.value                                            the pointer, for calls

Not all objects of the library are reference-counted. A primitive keeps what it needs, but memory objects must outlive
the execution, and descriptors returned by a query belong to the primitive descriptor. Code that uses such a pointer
keeps a reference to the owner.

Source: `Xbyak::local::GetErrorRef` in xbyak.h, `jit_generator_t::create_kernel` in oneDNN.
"""

import ctypes
import os
import platform
import site
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from inlay import onednn_abi as abi
from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments, MissingExtra, OutOfMemory, Unimplemented
from inlay.forks import import_lock
from inlay.layout import Layout

_FILE: Final = "libdnnl.so.3"
_ENVIRONMENT: Final = "INLAY_ONEDNN"
_NEEDED_BY_SYCL: Final = ("libintlc.so.5", "libimf.so", "libsvml.so", "libtbb.so.12", "libsycl.so.9", "libsycl.so.8")
_DRIVER: Final = "libintelocl.so"
_NAMED_REMEDY: Final = f"give a libdnnl.so of version 3, or unset {_ENVIRONMENT}"
_OPENMP: Final = "install the system's package of GNU OpenMP, such as libgomp1"

_WAITING: Final = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SPINS: Final = "1000"

# These functions compute or compile, so they release the GIL; the others take less time than releasing it does.
_LONG: Final = (
    "engine_create",
    "stream_wait",
    "primitive_desc_create",
    "primitive_desc_next_impl",
    "primitive_create",
    "primitive_execute",
)


def install_command(system: str = sys.platform, machine: str | None = None) -> str:
    """Return the instruction to install oneDNN on this platform: with pip if there is a wheel, else by a build.

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
    """A loaded oneDNN and its functions: those of `onednn_abi` that this release has."""

    def __init__(self, path: str, remedy: str = "") -> None:
        """Load the file `path`.

        Args:
            path: the file, or a name that the dynamic linker resolves.
            remedy: the remedy in error texts; by default the instruction to install oneDNN.

        Raises:
            MissingExtra: the file cannot be loaded, is not oneDNN, or finds no processor to compute on.
            Unimplemented: the major version is not 3.
        """
        self._remedy = remedy or install_command()
        self.path = path
        """The file, as passed to the dynamic linker."""
        self.cdll = _load_with_dependencies(path, self._remedy)
        """The library as ctypes loaded it, for functions that are not part of oneDNN, such as those of OpenMP."""
        self.functions: Mapping[str, Callable[..., Any]] = _bind_functions(self.cdll, path)
        """Functions by name without `dnnl_`; functions that this release lacks are missing."""
        self.version, self.runtime = self._query_version()
        self.code_generation = CodeGeneration()
        """Chooses the thread on which a primitive is created."""
        self._require_processor()

    version: tuple[int, int, int]
    """Version of the library: major, minor, patch."""
    runtime: str
    """Threading runtime: sequential, omp, tbb, threadpool or sycl."""

    def _query_version(self) -> tuple[tuple[int, int, int], str]:
        """Return the version and the threading runtime of the library."""
        if "version" not in self.functions:
            raise MissingExtra(f"{self.path} is not oneDNN, it has no dnnl_version: {self._remedy}")
        version = abi.Version.from_address(self.functions["version"]())
        if version.major != 3:
            raise Unimplemented(
                f"{self.path} is oneDNN {version.major}.{version.minor}, but the engine needs version 3: {self._remedy}"
            )
        runtime = abi.RUNTIMES.get(version.cpu_runtime, f"code {version.cpu_runtime}")
        return (version.major, version.minor, version.patch), runtime

    def _require_processor(self) -> None:
        """Raise `MissingExtra` if the library finds no processor to compute on."""
        if not self.functions["engine_get_count"](abi.CPU):
            raise MissingExtra(
                f"{self.path} finds no processor to compute on: set OCL_ICD_FILENAMES to the {_DRIVER} beside it "
                "before Python starts"
            )

    @property
    def name(self) -> str:
        """Name in messages, such as `oneDNN 3.2.0`."""
        return f"oneDNN {'.'.join(map(str, self.version))}"

    def require(self, status: int, describe: Callable[[], str]) -> None:
        """Raise the error of a status that is not success; `describe` returns the text for the failed call.

        Raises:
            InvalidArguments, Unimplemented, OutOfMemory: for the statuses of these names.
            RuntimeFailure: for the status `runtime_error`.
            InlayError: for any other status.
        """
        if status != abi.SUCCESS:
            raise self.error(status, describe())

    def error(self, status: int, description: str) -> InlayError:
        """Return the exception for a status; `description` is the text for the failed call."""
        kind, problem = _ERRORS.get(status, (InlayError, f"fails with status {status} at"))
        return kind(f"{self.name} {problem} {description}")


class RuntimeFailure(InlayError):
    """An error with the status `runtime_error` of the library."""


_ERRORS: Final[Mapping[int, tuple[type[InlayError], str]]] = {
    1: (OutOfMemory, "has no memory for"),
    2: (InvalidArguments, "refuses the arguments of"),
    3: (Unimplemented, "has no implementation of"),
    abi.RUNTIME_ERROR: (RuntimeFailure, "fails with status 5 at"),
}


def _bind_functions(cdll: ctypes.CDLL, path: str) -> dict[str, Callable[..., Any]]:
    """Return the functions of the library by name; those of `_LONG` release the GIL while they run."""
    releasing = {name: call for name, call in abi.functions(cdll).items() if any(part in name for part in _LONG)}
    return abi.functions(ctypes.PyDLL(path)) | releasing


def _load_with_dependencies(path: str, remedy: str) -> ctypes.CDLL:
    """Load the library after the files beside it that it needs.

    Raises:
        MissingExtra: the library, or a library that it needs, cannot be loaded.
    """
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
    """Set GOMP_SPINCOUNT in the environment for the duration of the block, unless the user has set a wait policy."""
    if any(name in os.environ for name in _WAITING):
        yield
        return
    os.environ[_WAITING[-1]] = _SPINS
    try:
        yield
    finally:
        del os.environ[_WAITING[-1]]


def candidate_paths(environment: Mapping[str, str]) -> Iterator[str]:
    """Iterate over the files to load, in the order of preference.

    Raises:
        MissingExtra: INLAY_ONEDNN names a path that does not exist or cannot be read, or a folder without the library.
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
    """Return the file that the value `named` of INLAY_ONEDNN names.

    Raises:
        MissingExtra: it does not exist, cannot be read, or is a folder without the library.
    """
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
    """Return the library of this process; the first call loads it.

    Raises:
        MissingExtra: no library can be loaded; the text says what to install.
        Unimplemented: the library that INLAY_ONEDNN names has a major version other than 3.
    """
    named = os.environ.get(_ENVIRONMENT, "")
    problems = []
    for path in candidate_paths(os.environ):
        try:
            return Library(path, _NAMED_REMEDY if named else "")
        except (MissingExtra, Unimplemented) as error:
            if named:
                raise type(error)(f"{_ENVIRONMENT} is {named!r}: {error}") from error
            problems.append(str(error))
    if len(problems) == 1:
        # No wheel is installed. The linker's message about the system's library would not help the user.
        raise MissingExtra(f"no oneDNN is installed: {install_command()}")
    raise MissingExtra(problems[0])


_Result = TypeVar("_Result")


class _ThreadState(threading.local):
    """The state of code generation in one Python thread."""

    has_failed = False
    """True after the library reported a `runtime_error` on this thread."""


class CodeGeneration:
    """Runs creations on a thread whose code generator has not failed; one object for each library."""

    def __init__(self) -> None:
        """Start with no failed threads."""
        self._state = _ThreadState()

    def run(self, create: Callable[[], _Result], prepare: Callable[[], object], *, isolate: bool = False) -> _Result:
        """Return `create()`, called on a thread on which the code generator has not failed.

        Args:
            create: creates an object of the library; raises `RuntimeFailure` for the status `runtime_error`.
            prepare: called before `create` on a new thread, to copy thread-local settings of the calling thread.
            isolate: use a new thread even if no creation has failed on the calling thread.

        Raises:
            RuntimeFailure: code generation fails on a new thread too.
            OutOfMemory: the system cannot start a thread.
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
    """Return the result of `call()` or raise its exception; a new thread runs it and ends afterwards.

    Raises:
        OutOfMemory: the system cannot start a thread.

    >>> run_on_new_thread(threading.current_thread) is threading.current_thread()
    False
    """
    with import_lock:
        from concurrent.futures import ThreadPoolExecutor  # loads the package logging, and few processes need it

    try:
        with ThreadPoolExecutor(1, "inlay-code-generation") as threads:
            created = threads.submit(call)
    except RuntimeError as error:
        raise OutOfMemory(f"the system starts no thread to create a primitive with: {error}") from error
    return created.result()


_LONG_AXIS: Final = 1 << 28
"""Extent of an axis in elements (dim times stride) from which displacements in generated code may exceed 32 bits. For a
blocked axis, dim times stride is an upper bound. The shortest axis that failed had 3 * 2^28 elements."""
_EMULATED: Final = frozenset((DATA_TYPES["f8_e5m2"], DATA_TYPES["f8_e4m3"]))
"""Types whose conversions are emulated by several instructions; 3.13 fails to generate one of them with AMX."""


def is_prone_to_failure(descs: Iterable[MemoryDesc]) -> bool:
    """Return whether code generation for tensors of these descriptors is likely to fail.

    >>> is_prone_to_failure([MemoryDesc((2, 17), "f32")]), is_prone_to_failure([MemoryDesc((2, 17), "f8_e5m2")])
    (False, True)
    """
    for desc in descs:
        if desc.data_type in _EMULATED:
            return True
        if isinstance(desc.layout, Layout):
            for dim, axis in zip(desc.dims, desc.layout.axes, strict=True):
                if dim * axis.stride >= _LONG_AXIS:
                    return True
        elif desc.size >= _LONG_AXIS:
            return True
    return False


class LibraryHandle:
    """An owned pointer of the library; it is destroyed when the handle has no references left."""

    __slots__ = ("__weakref__", "_destroy", "value")

    value: int
    """The pointer, for calls of the library."""

    def __init__(self, destroy: Callable[[int], Any], value: int) -> None:
        """Take ownership of the pointer `value`; `destroy` is called with it at the end."""
        self._destroy = destroy
        self.value = value

    def __del__(self) -> None:
        self._destroy(self.value)


def create_handle(
    library: Library, name: str, kind: str, *arguments: Any, describe: Callable[[], str] | None = None
) -> LibraryHandle:
    """Call the create function `name` and return the created object; `{kind}_destroy` destroys it.

    Raises:
        InvalidArguments, Unimplemented, OutOfMemory, InlayError: for the status of the library; `describe` returns
            the text for the failed call, by default `name`.
    """
    out = c_void_p()
    status = library.functions[name](byref(out), *arguments)
    if status or not out.value:
        raise library.error(status, describe() if describe is not None else name)
    return LibraryHandle(library.functions[f"{kind}_destroy"], out.value)


def query(library: Library, pointer: int, code: int) -> int:
    """Return the result of the query with number `code` of a memory descriptor: a number, or the address of an array.

    Raises:
        InlayError: the library fails.
    """
    result = c_int64()
    library.require(library.functions["memory_desc_query"](pointer, code, byref(result)), lambda: f"query {code}")
    return result.value
