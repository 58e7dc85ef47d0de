"""Calls of oneDNN's C++ interface (`dnnl.hpp`, version 3) that create a descriptor.

    dnnl::memory::desc act({2, 17, 5, 4}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::nChw8c);

The interface creates descriptors from one of its format tags, or from strides. Descriptors that it cannot create by one
call are refused: blocks without a tag, chosen padding, offsets, extras, and digits in a free order.
"""

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.layout import RUNTIME, Dims
from inlay.notation.format_tag import ALIASES, ENUMERATED

_TAGS = frozenset((*ENUMERATED, *ALIASES, "any"))
"""The names that `dnnl::memory::format_tag` has."""


def onednn_call(name: str, desc: MemoryDesc) -> str:
    """Return the C++ declaration of the variable `name`, a `dnnl::memory::desc` equal to `desc`.

    Raises:
        Unimplemented: oneDNN's C++ interface cannot create the descriptor by one call.
    """
    if desc.data_type is None or desc.data_type.name not in DATA_TYPES:
        raise Unimplemented(_refusal(desc, f"dnnl::memory::data_type has no {desc.data_type}"))
    if desc.kind == "swizzled":
        raise Unimplemented(_refusal(desc, "oneDNN describes no XOR of offset bits"))
    if desc.kind == "digits":
        raise Unimplemented(_refusal(desc, "its digits have a free order, which oneDNN does not describe"))
    if desc.extras:
        raise Unimplemented(_refusal(desc, "no constructor has extras", "Describe the elements without extras"))
    if desc.kind not in ("any", "blocked"):
        raise Unimplemented(_refusal(desc, f"it is of kind {desc.kind}", "Give a descriptor of kind blocked or any"))
    data_type = f"dnnl::memory::data_type::{desc.data_type}"
    tag = _tag_of(desc)
    if tag is not None:
        return f"dnnl::memory::desc {name}({_braced(desc.dims)}, {data_type}, dnnl::memory::format_tag::{tag});\n"
    if desc.is_plain and MemoryDesc(desc.dims, desc.data_type, strides=desc.strides) == desc:
        strides = f"dnnl::memory::dims{_braced(desc.strides)}"
        return f"dnnl::memory::desc {name}({_braced(desc.dims)}, {data_type}, {strides});\n"
    raise Unimplemented(_refusal(desc, "it has an offset, chosen padding, or blocks without a tag and dense strides"))


def onednn_reorder(name: str, src: MemoryDesc, dst: MemoryDesc) -> str:
    """Return C++ declarations of both descriptors and of the primitive descriptor `name` of the reorder between them.

    A variable `engine` of type `dnnl::engine` is expected.

    Raises:
        Unimplemented: as `onednn_call`.
    """
    descs = onednn_call(f"{name}_src", src) + onednn_call(f"{name}_dst", dst)
    return f"{descs}dnnl::reorder::primitive_desc {name}(engine, {name}_src, engine, {name}_dst);\n"


def _tag_of(desc: MemoryDesc) -> str | None:
    """Return the tag of oneDNN from which `desc` can be created, spelled as it was created if possible; or None."""
    if desc.kind == "any":
        return "any"
    for tag in (desc.spelling, desc.tag):
        if tag is not None and str(tag) in _TAGS and MemoryDesc(desc.dims, desc.data_type, str(tag)) == desc:
            return str(tag)
    return None


def _braced(numbers: Dims) -> str:
    """Return a braced list of numbers.

    >>> _braced((2, RUNTIME))
    '{2, DNNL_RUNTIME_DIM_VAL}'
    """
    return f"{{{', '.join('DNNL_RUNTIME_DIM_VAL' if n == RUNTIME else str(n) for n in numbers)}}}"


def _refusal(desc: MemoryDesc, reason: str, remedy: str = "Use form='c' or 'words'") -> str:
    """Return the text of the error about a descriptor."""
    return f"no call of oneDNN's C++ interface creates {desc}: {reason}. {remedy}"
