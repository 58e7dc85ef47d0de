"""The machine that code is made for, and the making of it through LLVM.

Code generation runs without LLVM's optimization passes: the emitter writes what it means, and the passes would merge
its shuffles into slower ones and double the compile time.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

import llvmlite.binding as llvm

from inlay.errors import Unimplemented
from inlay.reordering.lanes import Arithmetic


@dataclass(frozen=True, slots=True)
class Target:
    """What the code depends on in a machine."""

    triple: str
    """LLVM's name of architecture and system."""
    cpu: str
    """LLVM's name of the processor."""
    features: str
    """LLVM's list of the features of the processor."""
    vector_bytes: int
    """Width of the registers to use."""
    fence: str
    """The statement after which streaming stores are visible to other threads."""
    pause: str
    """The statement that tells the processor that a loop waits."""
    arithmetic: Arithmetic
    """What it converts by itself."""

    @property
    def attributes(self) -> str:
        """Attributes of every function."""
        bits = self.vector_bytes * 8
        return f'"min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}"'


_STATEMENTS = {
    True: ("call void @llvm.x86.sse.sfence()", "call void @llvm.x86.sse2.pause()"),
    False: ("fence seq_cst", "fence acquire"),
}
_X86_WIDTHS = (("avx512bw", 64), ("avx2", 32))


@lru_cache(maxsize=1)
def host_target() -> Target:
    """The machine that runs this process.

    Raises:
        Unimplemented: LLVM has no code generator for it here.
    """
    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = llvm.get_host_cpu_features()
    except RuntimeError as error:
        raise Unimplemented(f"LLVM cannot make code for this processor: {error}") from error
    triple = llvm.get_process_triple()
    is_x86 = triple.startswith(("x86_64", "i386", "i686"))
    width = next((w for name, w in _X86_WIDTHS if is_x86 and features.get(name)), 16)
    arithmetic = Arithmetic(
        f16=not is_x86 or bool(features.get("f16c")),
        bf16=width == 64 and bool(features.get("avx512bf16") and features.get("avx512dq")),
        picks=width == 64,
    )
    fence, pause = _STATEMENTS[is_x86]
    return Target(triple, llvm.get_host_cpu_name(), features.flatten(), width, fence, pause, arithmetic)


@lru_cache(maxsize=4)
def _machine(target: Target) -> Any:
    options = {"cpu": target.cpu, "features": target.features, "opt": 2, "reloc": "pic", "codemodel": "small"}
    return llvm.Target.from_triple(target.triple).create_target_machine(**options)


def compile_ir(text: str, target: Target) -> bytes:
    """The object file of a module."""
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.data_layout = str(_machine(target).target_data)
    return bytes(_machine(target).emit_object(module))


@lru_cache(maxsize=1)
def _linker() -> Any:
    return llvm.create_lljit_compiler(_machine(host_target()))


_libraries = count()


def load_object(data: bytes, symbols: tuple[str, ...]) -> tuple[tuple[int, ...], object]:
    """Link an object file into this process: the addresses of `symbols`, and what must outlive their use."""
    builder = llvm.JITLibraryBuilder().add_object_img(data)
    for symbol in symbols:
        builder.export_symbol(symbol)
    tracker = builder.link(_linker(), f"inlay-{next(_libraries)}")
    return tuple(int(tracker[symbol]) for symbol in symbols), tracker
