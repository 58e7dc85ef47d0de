"""Inlay: memory layouts of tensors - descriptors, drawings, and reorders at the speed of a copy.

This module defines only the public names. The packages `layout`, `notation` and `descriptor` are imported here and need
only NumPy and ml_dtypes. All other packages are imported when one of their names is used first.

The packages, in the order of data flow:

    layout, notation, descriptor    layouts, their text notations, and oneDNN's memory descriptors
    memory, reordering              arrays in these layouts, and the compiler of reorders between them
    rearranging                     axes of any arrays, in the notation of einops
    inference                       layouts from tables and packers, and verification of packers
    emission                        code for others: C, object files, NumPy, oneDNN
    primitives, engines             oneDNN's operations, and the engines that compute them
    graph                           networks of ONNX and PyTorch: import, planning of formats and memory, execution
    storage, render, cli            files of tensors, drawings, the command line
    cache, measure, bench, testing  caches on disk, timing, benchmarks, generators of test cases

>>> import inlay
>>> inlay.MemoryDesc((2, 17, 5, 4), "f32", "nChw8c").padded_dims
(2, 24, 5, 4)
"""

import importlib
from typing import TYPE_CHECKING, Any

from inlay import interrupts  # noqa: F401  before the imports that take time
from inlay.data_type import DATA_TYPES, MOVED_TYPES, DataType
from inlay.descriptor import Extras, MemoryDesc
from inlay.errors import (
    FileError,
    FormatTagError,
    InlayError,
    InlayWarning,
    InvalidArguments,
    MissingExtra,
    NotationError,
    OutOfMemory,
    PatternError,
    PerformanceWarning,
    StalePlanWarning,
    Unimplemented,
)
from inlay.layout import RUNTIME, Axis, Digit, Layout, Refusal, Swizzle
from inlay.lazy_names import import_lazily
from inlay.notation.format_tag import ALIASES, FormatTag
from inlay.notation.format_tag import ENUMERATED as TAGS

if TYPE_CHECKING:
    from inlay import primitives as primitives
    from inlay.descriptor.compound_desc import CompoundDesc, describe_compensated
    from inlay.descriptor.compound_table import compound
    from inlay.emission import emit
    from inlay.graph.decoding import DecodingState
    from inlay.graph.onnx.reading import load
    from inlay.graph.plan import compile, plan
    from inlay.graph.session import Session
    from inlay.graph.states import StateOptions
    from inlay.graph.torch.backend import torch_backend, torch_report
    from inlay.graph.torch.torch_module import TorchModule, from_torch
    from inlay.graph.torch.torch_report import TorchReport
    from inlay.inference import (
        CompoundVerification,
        Diagnosis,
        InferredCompound,
        InferredLayout,
        Verification,
        infer,
        verify,
    )
    from inlay.memory import (
        UNDEFINED,
        ZERO,
        Filled,
        Memory,
        Reorder,
        as_strided,
        check_padding,
        fill_padding,
        map_padded,
        pack,
        poison_padding,
        reorder,
        zero_padding,
    )
    from inlay.memory.compound import CompoundMemory, assemble, pack_compound
    from inlay.memory.padding import preserves_padding
    from inlay.memory.sparse import to_coo, to_csr, to_dense
    from inlay.notation.dictionary import NamedLayout, named
    from inlay.rearranging import ascontiguous, rearrange, repeat, transpose
    from inlay.render import show
    from inlay.reordering.attributes import Attributes, Scales, ZeroPoints
    from inlay.reordering.threads import get_num_threads, set_num_threads

__version__ = "0.1.0"

__all__ = [
    "ALIASES",
    "DATA_TYPES",
    "MOVED_TYPES",
    "RUNTIME",
    "TAGS",
    "UNDEFINED",
    "ZERO",
    "Attributes",
    "Axis",
    "CompoundDesc",
    "CompoundMemory",
    "CompoundVerification",
    "DataType",
    "DecodingState",
    "Diagnosis",
    "Digit",
    "Extras",
    "FileError",
    "Filled",
    "FormatTag",
    "FormatTagError",
    "InferredCompound",
    "InferredLayout",
    "InlayError",
    "InlayWarning",
    "InvalidArguments",
    "Layout",
    "Memory",
    "MemoryDesc",
    "MissingExtra",
    "NamedLayout",
    "NotationError",
    "OutOfMemory",
    "PatternError",
    "PerformanceWarning",
    "Refusal",
    "Reorder",
    "Scales",
    "Session",
    "StalePlanWarning",
    "StateOptions",
    "Swizzle",
    "TorchModule",
    "TorchReport",
    "Unimplemented",
    "Verification",
    "ZeroPoints",
    "as_strided",
    "ascontiguous",
    "assemble",
    "check_padding",
    "compile",
    "compound",
    "describe_compensated",
    "emit",
    "fill_padding",
    "from_torch",
    "get_num_threads",
    "infer",
    "load",
    "map_padded",
    "named",
    "pack",
    "pack_compound",
    "plan",
    "poison_padding",
    "preserves_padding",
    "rearrange",
    "reorder",
    "repeat",
    "set_num_threads",
    "show",
    "to_coo",
    "to_csr",
    "to_dense",
    "torch_backend",
    "torch_report",
    "transpose",
    "verify",
    "zero_padding",
]

_LATE_NAMES = {
    "Attributes": "inlay.reordering.attributes",
    "Diagnosis": "inlay.inference",
    "InferredCompound": "inlay.inference",
    "InferredLayout": "inlay.inference",
    "CompoundDesc": "inlay.descriptor.compound_desc",
    "CompoundMemory": "inlay.memory.compound",
    "Filled": "inlay.memory",
    "CompoundVerification": "inlay.inference",
    "Memory": "inlay.memory",
    "NamedLayout": "inlay.notation.dictionary",
    "Reorder": "inlay.memory",
    "Scales": "inlay.reordering.attributes",
    "DecodingState": "inlay.graph.decoding",
    "Session": "inlay.graph.session",
    "StateOptions": "inlay.graph.states",
    "TorchModule": "inlay.graph.torch.torch_module",
    "TorchReport": "inlay.graph.torch.torch_report",
    "Verification": "inlay.inference",
    "ZERO": "inlay.memory",
    "UNDEFINED": "inlay.memory",
    "ZeroPoints": "inlay.reordering.attributes",
    "as_strided": "inlay.memory",
    "assemble": "inlay.memory.compound",
    "ascontiguous": "inlay.rearranging",
    "check_padding": "inlay.memory",
    "compile": "inlay.graph.plan",
    "compound": "inlay.descriptor.compound_table",
    "describe_compensated": "inlay.descriptor.compound_desc",
    "emit": "inlay.emission",
    "fill_padding": "inlay.memory",
    "from_torch": "inlay.graph.torch.torch_module",
    "get_num_threads": "inlay.reordering.threads",
    "infer": "inlay.inference",
    "load": "inlay.graph.onnx.reading",
    "map_padded": "inlay.memory",
    "named": "inlay.notation.dictionary",
    "pack": "inlay.memory",
    "pack_compound": "inlay.memory.compound",
    "plan": "inlay.graph.plan",
    "poison_padding": "inlay.memory",
    "preserves_padding": "inlay.memory.padding",
    "rearrange": "inlay.rearranging",
    "reorder": "inlay.memory",
    "repeat": "inlay.rearranging",
    "set_num_threads": "inlay.reordering.threads",
    "show": "inlay.render",
    "to_coo": "inlay.memory.sparse",
    "to_csr": "inlay.memory.sparse",
    "to_dense": "inlay.memory.sparse",
    "torch_backend": "inlay.graph.torch.backend",
    "torch_report": "inlay.graph.torch.backend",
    "verify": "inlay.inference",
    "transpose": "inlay.rearranging",
    "zero_padding": "inlay.memory",
}
"""Module of each public name that is imported at first use."""

_LATE_PACKAGES = ("primitives",)
"""Public packages that are imported at first use, and whose names need the prefix: `inlay.primitives.Convolution`."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use and store it in this module."""
    if name in _LATE_PACKAGES:
        return importlib.import_module(f"inlay.{name}")
    return import_lazily(__name__, _LATE_NAMES, name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "__version__"])
