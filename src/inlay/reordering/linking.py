"""From what is asked for to machine code in this process: from the cache on disk, or compiled now and kept there.

An object is kept under the digest of everything that its code follows from: what the emitter was asked for (a kernel,
as text), the source files that say what the emitter writes for it, the target, and the version of LLVM. So a module
that was compiled before need not even be written, and no version number of the emitter can be forgotten.

    >>> from inlay.reordering.network import Permute
    >>> spelled(Permute((1, 0)))
    'Permute((1, 0))'
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from hashlib import sha256
from pathlib import Path

import llvmlite.binding as llvm

from inlay import data_type
from inlay.reordering import cache
from inlay.reordering.target import Target, compile_ir, load_object

_kept: list[object] = []  # what LLVM would unload code with, if it were collected


def linked(asked: object, module_text: Callable[[], str], target: Target, *symbols: str) -> tuple[int, ...]:
    """The addresses of `symbols` in a module, which stays loaded for the life of the process.

    Args:
        asked: all that `module_text` depends on beside the target and the source files of this room; see `spelled`.
        module_text: writes the module; called only where no object is kept.
        target: the machine that code is made for.
        symbols: the functions that are wanted.

    Raises:
        TypeError: `asked` cannot be spelled.
    """
    # Where the sources cannot be read, as in a zip archive, the module itself tells what the emitter writes.
    key = cache_key(spelled(asked) if SOURCES else module_text(), target)
    data = cache.read_object(key)
    if data is None:
        data = compile_ir(module_text(), target)
        cache.write_object(key, data)
    addresses, keep = load_object(data, symbols)
    _kept.append(keep)
    return addresses


def cache_key(asked: str, target: Target) -> str:
    """The name of the object that is made when `asked` is: the same everything gives the same code."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return cache.object_key(asked, SOURCES, spelled(target), version)


def spelled(value: object) -> str:
    """A value as text that leaves nothing out: values are equal if their texts are.

    Raises:
        TypeError: the value, or a part of it, is no number, text, tuple or dataclass.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(spelled, value))})"
    if is_dataclass(value):
        return f"{type(value).__qualname__}({', '.join(spelled(getattr(value, f.name)) for f in fields(value))})"
    raise TypeError(f"{value!r} names no machine code: make kernels of numbers, text, tuples and dataclasses")


def emitter_files() -> list[Path]:
    """The source files that decide what is compiled: those of this room, and the table of data types."""
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
