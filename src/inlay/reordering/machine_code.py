"""Loading of kernels: the LLVM IR of each kind of kernel, and its machine code in this process.

There are four kinds of kernels: the kernel of a reorder, the driver of both passes of panels, the sums of int8 weights,
and the values of quantized blocks. All have the same signature. Code comes from memory, from the cache on disk (see
`target`), or it is compiled.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakValueDictionary

from inlay.forks import ForkResetLock
from inlay.reordering import emit, emit_blocks, emit_sums, panels
from inlay.reordering.emit_blocks import BlockKernel
from inlay.reordering.emit_sums import SumKernel
from inlay.reordering.kernel import Kernel
from inlay.reordering.panels import PanelKernel
from inlay.reordering.target import LoadedCode, TargetMachine, load_or_compile

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
AnyKernel = Kernel | PanelKernel | SumKernel | BlockKernel
"""A kernel of any of the four kinds."""
_SYMBOLS: dict[type[AnyKernel], str] = {
    Kernel: emit.ENTRY,
    PanelKernel: panels.ENTRY,
    SumKernel: emit_sums.ENTRY,
    BlockKernel: emit_blocks.ENTRY,
}


@dataclass(frozen=True, slots=True, weakref_slot=True)
class MachineCode:
    """The machine code of a kernel; it stays loaded as long as this object is alive."""

    entry: Callable[[int, int, int, int, int], None]
    """The function; arguments: source, destination, table, first tile, last tile (exclusive)."""
    address: int
    """Address of the function."""
    loaded: LoadedCode
    """The loaded object file; keeps the code in memory."""


MOST_KERNELS = 1024
"""Number of recently used kernels that stay loaded even if nothing refers to them."""
_codes: WeakValueDictionary[tuple[AnyKernel, TargetMachine], MachineCode] = WeakValueDictionary()
_compiling = ForkResetLock()


@lru_cache(maxsize=MOST_KERNELS)
def machine_code(kernel: AnyKernel, target: TargetMachine) -> MachineCode:
    """Return the code of `kernel` from memory, from disk, or compiled now and then stored in both.

    Post-condition: it stays loaded while the result is alive; besides, the last `MOST_KERNELS` kernels do.
    """
    with _compiling:
        code = _codes.get((kernel, target))
        if code is None:
            loaded = load_or_compile(kernel, lambda: ir_of(kernel, target), target, _SYMBOLS[type(kernel)])
            (address,) = loaded.addresses
            code = _codes[kernel, target] = MachineCode(_FUNCTION(address), address, loaded)
        return code


def ir_of(kernel: AnyKernel, target: TargetMachine) -> str:
    """Return the text of the LLVM module of `kernel` for `target`."""
    match kernel:
        case Kernel():
            return emit.kernel_ir(kernel, target.fence, target.attributes, target.arithmetic)
        case PanelKernel():
            return panels.panels_ir(target.fence, target.pause, target.attributes)
        case SumKernel():
            return emit_sums.sums_ir(kernel, target.attributes, target.arithmetic)
        case BlockKernel():
            return emit_blocks.blocks_ir(kernel, target)
