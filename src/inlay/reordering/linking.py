"""From the text of a module to addresses of its functions: from the cache on disk, or compiled now and kept there."""

import llvmlite.binding as llvm

from inlay.reordering import cache
from inlay.reordering.target import Target, compile_ir, load_object

_kept: list[object] = []  # what LLVM would unload code with, if it were collected


def linked(text: str, target: Target, *symbols: str) -> tuple[int, ...]:
    """The addresses of `symbols` in the module `text`, which stays loaded for the life of the process."""
    key = cache_key(text, target)
    data = cache.read_object(key)
    if data is None:
        data = compile_ir(text, target)
        cache.write_object(key, data)
    addresses, keep = load_object(data, symbols)
    _kept.append(keep)
    return addresses


def cache_key(text: str, target: Target) -> str:
    """The name of the object that LLVM makes of a module: the same everything gives the same code."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return cache.object_key(text, target.triple, target.cpu, target.features, version)
