"""Machine code that runs on a thread team: its part of the work, and addresses in the table of its arguments.

The function of a kernel has one argument, `%table`: words that are numbers or addresses, among them those of the
functions of OpenMP. `PARALLEL` is the prototype of GOMP_parallel, which runs the function on all threads.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

from inlay.reordering.ir import Code, module_text
from inlay.reordering.target import TargetMachine, load_permanently

PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
"""Prototype of `ThreadTeam.parallel`: a function, its argument, the number of threads, and flags, which are 0."""


def emit_pointer(code: Code, word: int) -> str:
    """Emit a load of the address in a word of the table."""
    return code.let(f"load ptr, ptr {code.word('%table', word)}")


def emit_openmp_call(code: Code, word: int) -> str:
    """Emit a call of a function of the OpenMP runtime, whose address is in a word of the table."""
    return code.let(f"sext i32 {code.let(f'call i32 {emit_pointer(code, word)}()')} to i64")


def emit_part(code: Code, count: str, parts: str, part: str) -> tuple[str, str]:
    """Emit the first index of part number `part`, and that of the next one.

    `count` items are divided into `parts` nearly equal parts.
    """
    after = code.let(f"add i64 {part}, 1")
    begin, end = (code.let(f"udiv i64 {code.let(f'mul i64 {count}, {of}')}, {parts}") for of in (part, after))
    return begin, end


TEAM_WORK = "work"
"""Name of the function that each thread of a team runs, in a module of `build_team_module`."""


def build_team_module(emitters: Sequence[Callable[[Code], str]], name: str, parallel: int, attributes: str) -> str:
    """Return the LLVM IR of functions without a result, `TEAM_WORK` among them, and of the one for a `MachineCall`.

    Args:
        emitters: each writes the body of a function, and returns the line that declares it.
        name: name of the function that runs `TEAM_WORK` on a team.
        parallel: number of the word that has the address of GOMP_parallel.
        attributes: the function attributes of the target.
    """
    results: list[tuple[Callable[[Code], str], str]] = [(emit, "void") for emit in emitters]
    results.append((partial(_emit_team_entry, name=name, parallel=parallel), "i32 0"))
    functions = []
    for emit, result in results:
        code = Code()
        code.label("entry")
        head = emit(code)
        code.do(f"ret {result}")
        functions.append((head, code))
    return module_text(functions, attributes)


def _emit_team_entry(code: Code, name: str, parallel: int) -> str:
    """Emit the function that a `MachineCall` calls: a team of `%threads` runs `TEAM_WORK`."""
    threads = code.let("trunc i64 %threads to i32")
    code.do(f"call void {emit_pointer(code, parallel)}(ptr @{TEAM_WORK}, ptr %table, i32 {threads}, i32 0)")
    return f"define i32 @{name}(ptr %table, i64 %threads)"


def load_entry(digest: str, kernel: object, build: Callable[[], str], target: TargetMachine, name: str) -> int:
    """Return the address of a function of a module that stays loaded; the module is compiled if it is not cached.

    Args:
        digest: that of the source files that write the module; if it is empty, the text of the module is its key.
        kernel: everything else that the module depends on, apart from the target.
        build: returns the text of the module.
        target: the machine to generate code for.
        name: name of the function.
    """
    (address,) = load_permanently((digest, kernel) if digest else build(), build, target, name)
    return address
