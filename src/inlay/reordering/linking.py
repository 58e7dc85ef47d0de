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
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from inlay import cache, data_type
from inlay.reordering.loaded_code import LoadedCode, load_object, make_room
from inlay.reordering.target import Target, compile_ir

_resident: list[LoadedCode] = []


def linked(asked: object, module_text: Callable[[], str], target: Target, *symbols: str) -> tuple[int, ...]:
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
        asked: all that `module_text` depends on beside the target and the source files of this room; see `spelled`.
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
    key = cache_key(spelled(asked) if SOURCES else module_text(), target)
    code = _loaded(cache.read_object(key), symbols)
    if code is None:
        data = compile_ir(module_text(), target)
        cache.write_object(key, data)
        code = load_object(data, symbols)
    return code


def _loaded(data: bytes | None, symbols: tuple[str, ...]) -> LoadedCode | None:
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
    return spelled(target), ".".join(map(str, llvm.llvm_version_info))


def spelled(value: object) -> str:
    """A value as text that leaves nothing out: values are equal if their texts are.

    Raises:
        TypeError: the value, or a part of it, is no number, text, tuple or dataclass.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(spelled, value))})"
    kind = type(value)
    if is_dataclass(kind):
        return f"{kind.__qualname__}({', '.join([spelled(getattr(value, name)) for name in _fields_of(kind)])})"
    raise TypeError(f"{value!r} names no machine code: make kernels of numbers, text, tuples and dataclasses")


@lru_cache(maxsize=64)
def _fields_of(kind: type[Any]) -> tuple[str, ...]:
    """The names of the fields of a dataclass."""
    return tuple(field.name for field in fields(kind))


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
