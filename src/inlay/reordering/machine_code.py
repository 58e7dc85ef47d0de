"""Kernels in this process: the IR of each kind of kernel, and the machine code that is loaded for it.

There are three kinds: the kernel of a reorder, the code that runs both passes of panels, and the sums of int8 weights.
All are called alike. Code is found in memory, then on disk (see `linking`), or it is compiled.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from inlay.forks import RenewedLock
from inlay.reordering import emit, emit_panels, emit_sums
from inlay.reordering.emit_panels import PanelKernel
from inlay.reordering.emit_sums import SumKernel
from inlay.reordering.kernel import Kernel
from inlay.reordering.linking import linked
from inlay.reordering.target import Target

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
AnyKernel = Kernel | PanelKernel | SumKernel
_SYMBOLS: dict[type[AnyKernel], str] = {
    Kernel: emit.ENTRY,
    PanelKernel: emit_panels.ENTRY,
    SumKernel: emit_sums.ENTRY,
}


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The machine code of a kernel, which stays loaded for the life of the process."""

    entry: Callable[[int, int, int, int, int], None]
    """Source, destination, table, first tile, last tile (exclusive)."""
    address: int
    """Where it lies."""


_codes: dict[tuple[AnyKernel, Target], MachineCode] = {}
_compiling = RenewedLock()


def machine_code(kernel: AnyKernel, target: Target) -> MachineCode:
    """The code of `kernel`: from memory, from disk, or compiled now and kept in both."""
    asked = (kernel, target)
    code = _codes.get(asked)
    if code is None:
        with _compiling:
            code = _codes.get(asked)
            if code is None:
                (address,) = linked(kernel, lambda: ir_of(kernel, target), target, _SYMBOLS[type(kernel)])
                code = _codes[asked] = MachineCode(_FUNCTION(address), address)
    return code


def ir_of(kernel: AnyKernel, target: Target) -> str:
    """The module of `kernel` for `target`."""
    match kernel:
        case Kernel():
            return emit.kernel_ir(kernel, target.fence, target.attributes, target.arithmetic)
        case PanelKernel():
            return emit_panels.panels_ir(target.fence, target.pause, target.attributes)
        case SumKernel():
            return emit_sums.sums_ir(kernel, target.attributes, target.arithmetic)
