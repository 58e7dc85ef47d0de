"""Handles of the library that belong to us: each is destroyed once, when nothing refers to it any more.

    handle = Handle(library, "memory_desc", created)        created: what a create function wrote
    handle.value                                            for calls

The library's objects are not all counted: a primitive keeps what it needs, but an execution's memory objects must
outlive it, and the descriptors that a primitive descriptor answers belong to it. So who borrows keeps the owner.
"""

from collections.abc import Callable
from ctypes import byref, c_int64, c_void_p
from typing import Any

from inlay.engine.onednn.library import Library


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
