"""A program that imports, describes, packs, draws and converts, with what only Linux has taken away if asked to.

    python -m tests.support.other_systems FOLDER           on this system as it is
    python -m tests.support.other_systems FOLDER --bare    without what Windows or macOS lack

It prints what it computed and drew, so both must print the same. What is taken away: modules of Unix, functions of `os`
beyond those of Windows, flags of `mmap` and signals beyond those of Windows, and everything below /proc and /sys. The
packages that Inlay needs are imported before: elsewhere they are other builds.
"""

import builtins
import hashlib
import importlib.util
import io
import mmap
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any

MODULES = (
    *("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses", "posixshmem"),
    *("_posixshmem", "_curses", "crypt", "spwd", "ossaudiodev", "nis"),
)
"""Modules that only Unix has."""

WINDOWS = frozenset(
    re.findall(
        r"\w+",
        """
        abort access add_dll_directory altsep chdir chmod close closerange cpu_count curdir defpath
        device_encoding devnull dup dup2 environ environb error execl execle execlp execlpe execv execve
        execvp execvpe extsep fdopen fsdecode fsencode fspath fstat fsync ftruncate get_exec_path
        get_handle_inheritable get_inheritable get_terminal_size getcwd getcwdb getenv getenvb getlogin getpid
        getppid isatty kill linesep link listdir lseek lstat makedirs mkdir name open pardir path pathsep pipe
        popen putenv read readlink remove removedirs rename renames replace rmdir scandir sep
        set_handle_inheritable set_inheritable spawnl spawnle spawnv spawnve startfile stat stat_result
        strerror supports_bytes_environ supports_dir_fd supports_effective_ids supports_fd
        supports_follow_symlinks symlink system terminal_size times times_result truncate umask uname_result
        unlink unsetenv urandom utime waitpid waitstatus_to_exitcode walk write DirEntry PathLike F_OK R_OK
        W_OK X_OK O_APPEND O_CREAT O_EXCL O_RDONLY O_RDWR O_TRUNC O_WRONLY P_NOWAIT P_NOWAITO P_WAIT SEEK_CUR
        SEEK_END SEEK_SET TMP_MAX EX_OK""",
    )
)
"""What `os` has on Windows, as its documentation says; the rest of the public names is taken away."""

_KEPT_MMAP = ("mmap", "error", "ACCESS_", "ALLOCATIONGRANULARITY", "PAGESIZE")
_KEPT_SIGNALS = ("SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIG_")
_ABSENT = ("/proc", "/sys")
_ABSENT_CLOCKS = ("clock_", "CLOCK_", "pthread_")


PACKAGES = (
    *("numpy", "ml_dtypes", "llvmlite.binding", "rich.progress", "safetensors.numpy", "typer", "filelock"),
    *("platformdirs.unix", "subprocess", "onnx", "onnx.reference"),
)
"""What Inlay imports of others, and what they import later; who has no onnx plans no network."""


class FreeLock:
    """In place of the build of `filelock` for another system: a lock that nobody else wants."""

    def __init__(self, path: object, **_: object) -> None:
        """Take any file."""

    def acquire(self, timeout: float) -> None:
        """Return at once."""

    def release(self) -> None:
        """Do nothing."""


def take_away() -> None:
    """Make this process one of a system without what only Linux or Unix has."""
    for name in PACKAGES:
        with suppress(ImportError):
            importlib.import_module(name)
    vars(sys.modules["filelock"])["FileLock"] = FreeLock
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    _forget(os, lambda name: name not in WINDOWS and not isinstance(getattr(os, name), type(os)))
    _forget(mmap, lambda name: not name.startswith(_KEPT_MMAP))
    _forget(signal, lambda name: name.startswith("SIG") and not name.startswith(_KEPT_SIGNALS))
    _forget(time, lambda name: name.startswith(_ABSENT_CLOCKS))
    replaced = [(builtins, "open"), (io, "open")]
    replaced += [(os, name) for name in ("open", "stat", "lstat", "listdir", "scandir")]
    for module, name in replaced:
        setattr(module, name, _refusing(getattr(module, name)))


def _forget(module: Any, is_absent: Callable[[str], bool]) -> None:
    for name in [name for name in vars(module) if not name.startswith("_") and is_absent(name)]:
        delattr(module, name)


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for which there is nothing below /proc and /sys."""

    def called(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(_ABSENT):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return function(path, *args, **kwargs)

    return called


def prove_absence() -> None:
    """Fail if anything that was to be taken away is still here."""
    for attempt in (
        lambda: __import__("fcntl"),
        lambda: os.sched_getaffinity(0),
        lambda: os.register_at_fork(after_in_child=print),
        lambda: os.getuid(),
        lambda: mmap.MAP_PRIVATE,
        lambda: mmap.MADV_HUGEPAGE,
        lambda: signal.SIGHUP,
        lambda: open("/proc/self/stat"),  # noqa: PTH123, SIM115
        lambda: os.stat("/sys"),  # noqa: PTH116
    ):
        try:
            attempt()
        except (ImportError, AttributeError, FileNotFoundError):
            continue
        sys.exit("something that only Linux has is still here")


def compute() -> None:
    """Import, describe, pack, reorder, draw."""
    import numpy as np

    import inlay

    desc = inlay.MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    print(desc, desc.size, desc.offset((1, 16, 4, 3)), inlay.MemoryDesc.from_json(desc.to_json()) == desc)
    print(inlay.show(desc, offsets=True))
    print(hashlib.sha256(str(inlay.show(desc, format="svg")).encode()).hexdigest())
    image = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
    packed = inlay.pack(image, "nChw16c")
    print(hashlib.sha256(packed.buffer.tobytes()).hexdigest(), np.array_equal(packed.unpack(), image))
    large = np.random.default_rng(0).standard_normal((8, 64, 112, 112), np.float32)  # for threads, in large pages
    blocked = inlay.pack(large, "nChw16c")
    back = inlay.reorder(blocked, inlay.MemoryDesc(large.shape, "bf16", "nhwc"))
    print(hashlib.sha256(back.buffer.tobytes()).hexdigest(), np.array_equal(blocked.unpack(), large))
    inlay.set_num_threads(1)
    print(inlay.get_num_threads(), inlay.Reorder(desc, inlay.MemoryDesc(desc.dims, "f32", "nchw")).explain() != "")


def command(folder: str) -> None:
    """The commands that need no engine."""
    import numpy as np

    from inlay import cli

    os.chdir(folder)
    np.save("image.npy", np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4))
    for text in (
        "show nChw8c 2x17x5x4 --offsets",
        "show OIhw4i16o4i 33x17x3x3 --svg layout.svg",
        "offset OIhw4i16o4i 33x17x3x3 20,13,1,2 --dtype s8",
        "names nChw16c",
        "convert image.npy -o image.safetensors --to nChw16c",
        "convert image.safetensors -o back.npy --to plain",
        "show nChw8c 2x17x5",
    ):
        print(text, cli.main(text.split()))
    print(np.array_equal(np.load("back.npy"), np.load("image.npy")))


def networks() -> None:
    """A network planned for a named processor, and run by the reference engine."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    from inlay import cli

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, c, 8, 8)) for n, c in (("x", 3), ("y", 4)))
    weights = numpy_helper.from_array(np.ones((4, 3, 1, 1), np.float32), "w")
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "one", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with open("one.onnx", "wb") as file:  # noqa: PTH123
        file.write(model.SerializeToString())
    np.save("x.npy", np.ones((1, 3, 8, 8), np.float32))
    for text in (
        "plan one.onnx --isa avx2 --threads 2 --picture one.svg",
        "run one.onnx -i x.npy --engine reference -o y.npy",
    ):
        with redirect_stdout(io.StringIO()) as text_with_times:
            code = cli.main(text.split())
        print(text, code, len(text_with_times.getvalue()) > 100)
    print(np.load("y.npy").sum())


if __name__ == "__main__":
    if "--bare" in sys.argv:
        take_away()
        prove_absence()
    compute()
    command(sys.argv[1])
    if importlib.util.find_spec("onnx"):
        networks()
