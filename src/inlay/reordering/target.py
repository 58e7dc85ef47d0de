"""The machine that code is made for, and the making of it through LLVM.

A target is a value: beside the processor of this process there are named ones, x86-64 and AArch64, for which the same
modules are compiled, to be read or to be run elsewhere. Registers of SVE are of no known width; here they are: a target
says 32 or 64 bytes, and its code runs where the registers have just that width.

    >>> sorted(TARGETS)[:3]
    ['aarch64', 'aarch64-sve256', 'aarch64-sve512']

Code generation runs without LLVM's optimization passes: the emitter writes what it means, and the passes would merge
its shuffles into slower ones and double the compile time.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import llvmlite.binding as llvm

from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.forks import hold_across_forks
from inlay.reordering.lanes import Arithmetic
from inlay.reordering.network import LANE_BYTES, Shuffles

llvm_lock = threading.RLock()
"""Held during every call of LLVM, and across forks: llvmlite's own lock would stay locked in the child."""
hold_across_forks(llvm_lock)


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
    shuffles: Shuffles
    """What its shuffles of registers can do."""

    @property
    def prefers_panels(self) -> bool:
        """Whether panels with streaming stores are faster than ordinary stores: on AArch64 that was not measured."""
        return self.shuffles.family == "punpck"

    @property
    def attributes(self) -> str:
        """Attributes of every function."""
        if self.shuffles.family == "zip":
            lengths = self.vector_bytes // LANE_BYTES
            return f"vscale_range({lengths},{lengths})" if lengths > 1 else ""
        bits = self.vector_bytes * 8
        return f'"min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}"'


_STATEMENTS = {
    "x86_64": ("call void @llvm.x86.sse.sfence()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("fence seq_cst", "call void @llvm.aarch64.hint(i32 1)"),
}
_OTHER_STATEMENTS = ("fence seq_cst", "fence acquire")
_ANY_LANE = {"avx512vbmi": (64, 64, 64, 64), "avx512bw": (16, 64, 64, 64), "avx2": (16, 16, 32, 32)}
_X86_WIDTHS = (("avx512bw", 64), ("avx2", 32))


def _target(
    triple: str,
    cpu: str,
    features: str,
    vector_bytes: int,
    arithmetic: Arithmetic,
    any_lane: tuple[int, int, int, int] = (16, 16, 16, 16),
) -> Target:
    architecture = triple.split("-")[0]
    fence, pause = _STATEMENTS.get(architecture, _OTHER_STATEMENTS)
    shuffles = Shuffles("zip" if architecture == "aarch64" else "punpck", any_lane)
    return Target(triple, cpu, features, vector_bytes, fence, pause, arithmetic, shuffles)


_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_BASE = Arithmetic(f16=False, bf16=False, picks=0)
_HALVES = Arithmetic(f16=True, bf16=False, picks=0)
_ARM_HALVES = Arithmetic(f16=True, bf16=False, picks=0, nan_loses=False, rounds=False)
_PICKS = Arithmetic(f16=True, bf16=False, picks=16)
TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "x86-64-v2": _target(_X86, "x86-64-v2", "", 16, _BASE),
        "x86-64-v3": _target(_X86, "x86-64-v3", "", 32, _HALVES, _ANY_LANE["avx2"]),
        "x86-64-v4": _target(_X86, "x86-64-v4", "", 64, _PICKS, _ANY_LANE["avx512bw"]),
        "aarch64": _target(_ARM, "generic", "", 16, _ARM_HALVES),
        "aarch64-sve256": _target(_ARM, "generic", "+sve", 32, _ARM_HALVES),
        "aarch64-sve512": _target(_ARM, "generic", "+sve", 64, _ARM_HALVES),
    }
)
"""The machines that have a name: the levels of the x86-64 ABI (SSE, AVX2, AVX-512), NEON, SVE of two widths."""


def named_target(name: Any) -> Target:
    """The target called `name`; None is the machine that runs this process.

    Raises:
        InvalidArguments: there is no target of that name.
        Unimplemented: LLVM has no code generator for this processor.
    """
    if name is None:
        return host_target()
    target = TARGETS.get(name) if isinstance(name, str) else None
    if target is None:
        raise InvalidArguments(
            f"no target is called {shown(name)}: name one of {', '.join(TARGETS)}, or none for this machine"
        )
    return target


@lru_cache(maxsize=1)
def host_target() -> Target:
    """The machine that runs this process.

    Raises:
        Unimplemented: LLVM has no code generator for it here.
    """
    try:
        with llvm_lock:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            features = llvm.get_host_cpu_features()
            triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
    except RuntimeError as error:
        raise Unimplemented(f"LLVM cannot make code for this processor: {error}") from error
    is_x86 = triple.startswith("x86_64")
    width = next((w for name, w in _X86_WIDTHS if is_x86 and features.get(name)), 16)
    arithmetic = Arithmetic(
        f16=not is_x86 or bool(features.get("f16c")),
        bf16=width == 64 and bool(features.get("avx512bf16") and features.get("avx512dq")),
        picks=(8 if features.get("avx512vbmi") else 16) if width == 64 else 0,
        nan_loses=is_x86,
        rounds=is_x86,
    )
    any_lane = next((w for name, w in _ANY_LANE.items() if is_x86 and features.get(name)), (16, 16, 16, 16))
    return _target(triple, cpu, features.flatten(), width, arithmetic, any_lane)


@lru_cache(maxsize=8)
def target_machine(target: Target) -> Any:
    """Return LLVM's code generator for `target`."""
    options = {"cpu": target.cpu, "features": target.features, "opt": 2, "reloc": "pic", "codemodel": "small"}
    with llvm_lock:
        if target != host_target():
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        return llvm.Target.from_triple(target.triple).create_target_machine(**options)


def compile_ir(text: str, target: Target) -> bytes:
    """The object file of a module."""
    with llvm_lock:
        return bytes(target_machine(target).emit_object(_parsed(text, target)))


def assembly_of(text: str, target: Target) -> str:
    """The assembly of a module: what `compile_ir` makes, to be read."""
    with llvm_lock:
        return str(target_machine(target).emit_assembly(_parsed(text, target)))


def _parsed(text: str, target: Target) -> Any:
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.data_layout = str(target_machine(target).target_data)
    return module
