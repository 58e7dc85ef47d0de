"""Kernels in this process: the IR of each kind of kernel, and the machine code that is loaded for it.

There are three kinds: the kernel of a reorder, the code that runs both passes of panels, and the sums of int8 weights.
All are called alike. Code is found in memory, then on disk (see `target`), or it is compiled.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakValueDictionary

from inlay.forks import ForkResetLock
from inlay.reordering import emit, emit_sums, panels
from inlay.reordering.emit_sums import SumKernel
from inlay.reordering.kernel import Kernel
from inlay.reordering.panels import PanelKernel
from inlay.reordering.target import LoadedCode, Target, load_or_compile

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
AnyKernel = Kernel | PanelKernel | SumKernel
_SYMBOLS: dict[type[AnyKernel], str] = {
    Kernel: emit.ENTRY,
    PanelKernel: panels.ENTRY,
    SumKernel: emit_sums.ENTRY,
}


@dataclass(frozen=True, slots=True, weakref_slot=True)
class MachineCode:
    """The machine code of a kernel, which stays loaded as long as this object is referred to."""

    entry: Callable[[int, int, int, int, int], None]
    """Source, destination, table, first tile, last tile (exclusive)."""
    address: int
    """Where it lies."""
    loaded: LoadedCode
    """What keeps it loaded."""


MOST_KERNELS = 1024
"""Kernels that stay loaded though nothing refers to them: those that were asked for last."""
_codes: WeakValueDictionary[tuple[AnyKernel, Target], MachineCode] = WeakValueDictionary()
_compiling = ForkResetLock()


@lru_cache(maxsize=MOST_KERNELS)
def machine_code(kernel: AnyKernel, target: Target) -> MachineCode:
    """The code of `kernel`: from memory, from disk, or compiled now and kept in both.

    Post-condition: it stays loaded while the result is referred to; beside that, the last `MOST_KERNELS` do.
    """
    with _compiling:
        code = _codes.get((kernel, target))
        if code is None:
            loaded = load_or_compile(kernel, lambda: ir_of(kernel, target), target, _SYMBOLS[type(kernel)])
            (address,) = loaded.addresses
            code = _codes[kernel, target] = MachineCode(_FUNCTION(address), address, loaded)
        return code


def ir_of(kernel: AnyKernel, target: Target) -> str:
    """The module of `kernel` for `target`."""
    match kernel:
        case Kernel():
            return emit.kernel_ir(kernel, target.fence, target.attributes, target.arithmetic)
        case PanelKernel():
            return panels.panels_ir(target.fence, target.pause, target.attributes)
        case SumKernel():
            return emit_sums.sums_ir(kernel, target.attributes, target.arithmetic)
