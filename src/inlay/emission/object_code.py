"""Object files of reorders: the machine code that Inlay itself runs, for any target, without Inlay at run time.

An object file has one function for each reorder, `void name(const void *src, void *dst)`. It runs on the thread that
calls it and needs no library. Its code is that of `inlay.reordering`; the table of numbers, which Inlay keeps as data
of the process, is a constant of the object file. Several LLVM modules are linked into one:

    kernel      moves tiles; a second one for destinations that do not begin at a cache line, where stores are streamed
    driver      fills panels and streams them (see `inlay.reordering.panels`), where the plan has panels
    constants   the tables and their offsets; one buffer for panels, with the flag by which a call acquires it
    entry       the function: selects the kernel by the alignment of `dst`, and executes all tiles

The plan depends on the cache sizes of the machine that emits. The environment variable INLAY_MACHINE names a file with
those of another machine (`inlay bench --machine --json`), and so makes the result reproducible.

For a tensor in a compound format, the kernel computes the values of blocks, and the function passes it a table on the
stack.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod

import llvmlite.binding as llvm

from inlay.descriptor.compound_desc import CompoundDesc
from inlay.emission.functions import EmittedFunction
from inlay.errors import Unimplemented
from inlay.reordering.block_kernel import select_block_kernel
from inlay.reordering.choice import BY_MODEL, Choice
from inlay.reordering.conversion import LINE, address_bits
from inlay.reordering.emit import ENTRY as KERNEL_ENTRY
from inlay.reordering.emit_blocks import ENTRY as BLOCKS_ENTRY
from inlay.reordering.kernel import Words, table_shape
from inlay.reordering.machine_code import ir_of
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.panels import (
    BUFFERS,
    FLAGS,
    KERNEL,
    OFFSETS,
    POOL,
    ROWS,
    TABLE,
    PanelKernel,
    Panels,
    build_panel_table,
)
from inlay.reordering.panels import ENTRY as PANELS_ENTRY
from inlay.reordering.planning import ReorderPlan, plan_reorder
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.target import TargetMachine, llvm_lock, target_machine


def object_file(functions: Iterable[EmittedFunction], target: TargetMachine) -> bytes:
    """Return an object file of `target` with these functions: ELF for a named target, else the format of this host.

    Post-condition: its only symbols that other files see are the names of the functions.

    Raises:
        InvalidArguments: as `EmittedFunction.problem`.
        Unimplemented: as `EmittedFunction.problem`.
    """
    functions = tuple(functions)
    texts = [text for function in functions for text in _module_texts(function, target)]
    return _linked_object(texts, {function.name for function in functions}, target)


def compound_object_file(name: str, desc: CompoundDesc, target: TargetMachine) -> bytes:
    """Return an object file of `target` with the function `NAME_unpack` of a tensor in a compound format.

    Raises:
        Unimplemented: the format has no kernel, or blocks reach beyond the tensor.
    """
    kernel, grid = select_block_kernel(desc.format, streams=False), desc.grids[0]
    if kernel is None:
        raise Unimplemented(f"no object file unpacks {desc}: its blocks have no compiled kernel. Use form='c'")
    if prod(grid.counts) * prod(grid.section.block) != prod(desc.dims):
        raise Unimplemented(f"no object file unpacks {desc}: blocks reach beyond the tensor. Use form='c'")
    row_nbytes = 4 * desc.dims[-1]
    words = [grid.counts[-1], row_nbytes, row_nbytes * kernel.rows, None, grid.section.nbytes, grid.row_nbytes]
    lines = [
        f"declare void @{BLOCKS_ENTRY}(ptr, ptr, ptr, i64, i64)",
        f"define void @{name}_unpack(ptr %src, ptr %dst) #0 {{",
        f"%blocks = getelementptr i8, ptr %src, i64 {grid.offset}",
        f"%table = alloca [{len(words)} x i64], align 8",
    ]
    for i, word in enumerate(words):
        lines.append(f"%word{i} = getelementptr i64, ptr %table, i64 {i}")
        lines.append(f"store {'ptr %blocks' if word is None else f'i64 {word}'}, ptr %word{i}, align 8")
    arguments = f"ptr null, ptr %dst, ptr %table, i64 0, i64 {grid.rows * grid.counts[-1]}"
    lines += [f"call void @{BLOCKS_ENTRY}({arguments})", "ret void", "}", "attributes #0 = { nounwind }", ""]
    return _linked_object([ir_of(kernel, target), "\n".join(lines)], {f"{name}_unpack"}, target)


def _linked_object(texts: Sequence[str], public: Set[str], target: TargetMachine) -> bytes:
    """Return the object file of LLVM modules, in which other files see only the symbols `public`."""
    with llvm_lock:
        machine = target_machine(target)
        modules = [llvm.parse_assembly(text) for text in texts]
        for module in modules:
            module.triple = target.triple
            module.data_layout = str(machine.target_data)
        for module in modules[1:]:
            modules[0].link_in(module)
        for value in (*modules[0].functions, *modules[0].global_variables):
            if not value.is_declaration and value.name not in public:
                value.linkage = "internal"
        modules[0].verify()
        return bytes(machine.emit_object(modules[0]))


def _module_texts(function: EmittedFunction, target: TargetMachine) -> Iterator[str]:
    """Yield the LLVM modules of one function."""
    name, problem = function.name, function.problem()
    if problem.is_empty:
        yield f"define void @{name}(ptr %src, ptr %dst) #0 {{\n  ret void\n}}\nattributes #0 = {{ nounwind }}\n"
        return
    choice = object_choice(problem)
    plan = plan_reorder(problem, target, choice)
    variants = [ObjectVariant(f"{name}.aligned", problem, plan)]
    if plan.streams:
        variants.append(ObjectVariant(f"{name}.any", problem, plan_reorder(problem, target, choice, aligned=False)))
    for variant in variants:
        yield from variant.module_texts(target)
    yield _entry_module(name, variants)


def object_choice(problem: ReorderProblem) -> Choice:
    """Return the kind of stores for an object file: streaming ones for tensors for which Inlay itself makes a trial.

    An object file makes no trial. For tensors that fit only the last-level cache, streaming stores are safer: where
    rows of the destination are far apart, ordinary stores take up to three times as long (decision 0029).
    """
    memory = memory_model()
    return Choice(streams=True) if problem.moved_bytes >= memory.streaming_from else BY_MODEL


@dataclass(frozen=True, slots=True)
class ObjectVariant:
    """One way to execute a reorder in an object file: a plan with its symbols."""

    prefix: str
    """Beginning of the names of its symbols."""
    problem: ReorderProblem
    """The reorder."""
    plan: ReorderPlan
    """The plan: tiles, or panels of tiles."""

    @property
    def entry(self) -> str:
        """The symbol of the function that executes a range of tiles or panels."""
        return f"{self.prefix}.kernel" if self.plan.panels is None else f"{self.prefix}.driver"

    @property
    def table(self) -> str:
        """The symbol of the table that the function reads."""
        return f"{self.prefix}.table" if self.plan.panels is None else f"{self.prefix}.panels"

    @property
    def pieces(self) -> int:
        """Number of tiles or panels."""
        return self.plan.table.tiles if self.plan.panels is None else self.plan.pieces

    def module_texts(self, target: TargetMachine) -> Iterator[str]:
        """Yield the modules of the code, and the module of its constants."""
        yield _renamed(ir_of(self.plan.kernel, target), KERNEL_ENTRY, f"{self.prefix}.kernel")
        constants = list(self.table_constants())
        if self.plan.panels is not None:
            yield _renamed(ir_of(PanelKernel(), target), PANELS_ENTRY, self.entry)
            constants += self.panel_constants(self.plan.panels)
        yield "\n".join(constants)

    def table_constants(self) -> Iterator[str]:
        """Yield the definitions of the kernel's table and of the arrays of offsets that it refers to."""
        table = self.plan.table
        symbols = {}
        for i, (position, offsets) in enumerate(zip(self._address_positions(), table.offsets, strict=True)):
            assert table.words[position] == offsets.__array_interface__["data"][0]
            symbols[position] = f"{self.prefix}.offsets{i}"
            yield _words_definition(symbols[position], offsets.ravel())
        yield _words_definition(f"{self.prefix}.table", table.words, symbols)

    def _address_positions(self) -> list[int]:
        """Return the positions of the addresses in the kernel's table, in the order of `Table.offsets`."""
        kernel, table = self.plan.kernel, self.plan.table
        shape = table_shape(kernel.lanes, kernel.registers, kernel.guards, kernel.deinterleave, kernel.overlaps)
        loops = int(table.words[shape.LOOPS])
        starts = [shape.loops + i * shape.loop_words + shape.steps for i in range(loops)]
        return [shape.OFFSETS, shape.OFFSETS + 1, *(start + 2 * side for start in starts for side in (0, 1))]

    def panel_constants(self, panels: Panels) -> Iterator[str]:
        """Yield the definitions of the driver's table, of the arrays that it refers to, and of the panel buffer."""
        sizes = (self.problem.src_type.bits // 8, self.problem.dst_type.bits // 8)
        table = build_panel_table(panels, 0, self.plan.table, sizes, (0, 0, 1))
        _, offsets, rows = table.keeps_alive
        names = {word: f"{self.prefix}.{name}" for word, name in _PANEL_SYMBOLS.items()}
        nbytes = -(-len(panels.rows) * panels.pitch * sizes[1] // LINE) * LINE
        yield f"declare void @{names[KERNEL]}(ptr, ptr, ptr, i64, i64)"
        yield _words_definition(names[OFFSETS], offsets.ravel())  # type: ignore[attr-defined]
        yield _words_definition(names[ROWS], rows)  # type: ignore[arg-type]
        yield f"@{names[FLAGS]} = global i64 0, align {LINE}"
        yield f"@{names[BUFFERS]} = global [{nbytes} x i8] zeroinitializer, align {LINE}"
        yield _words_definition(f"{self.prefix}.panels", table.words, names)

    def call_lines(self, label: str) -> list[str]:
        """Return the statements of a block that executes the reorder and returns."""
        units = [address_bits(t.name, self.plan.kernel.lanes) for t in (self.problem.src_type, self.problem.dst_type)]
        lines = [f"{label}:"]
        sides = ((self.problem.src_type, self.problem.src_offset), (self.problem.dst_type, self.problem.dst_offset))
        for side, unit, (data_type, offset) in zip(("src", "dst"), units, sides, strict=True):
            lines += [
                f"%{label}.{side}.unit = mul i64 %{side}.address, {8 // unit}",
                f"%{label}.{side}.start = add i64 %{label}.{side}.unit, {offset * data_type.bits // unit}",
                f"%{label}.{side} = inttoptr i64 %{label}.{side}.start to ptr",
            ]
        arguments = f"ptr %{label}.src, ptr %{label}.dst, ptr @{self.table}, i64 0, i64 {self.pieces}"
        return [*lines, f"call void @{self.entry}({arguments})", "ret void"]


_PANEL_SYMBOLS = {
    KERNEL: "kernel",
    TABLE: "table",
    OFFSETS: "panel.offsets",
    ROWS: "panel.rows",
    FLAGS: "panel.flag",
    BUFFERS: "panel.buffer",
}
"""For each word of a driver's table that is an address, the end of the symbol."""
assert POOL not in _PANEL_SYMBOLS


def _renamed(text: str, entry: str, symbol: str) -> str:
    """Return the text of a module with its entry function renamed."""
    return text.replace(f"define void @{entry}(", f"define void @{symbol}(")


def _words_definition(symbol: str, words: Words, symbols: Mapping[int, str] | None = None) -> str:
    """Return the definition of a constant array of words, some of which are the addresses of `symbols`."""
    addresses = {i: f"ptrtoint (ptr @{name} to i64)" for i, name in (symbols or {}).items()}
    values = [f"i64 {addresses.get(i, str(word))}" for i, word in enumerate(words.tolist())]
    return f"@{symbol} = constant [{len(values)} x i64] [{', '.join(values)}], align {LINE}"


def _entry_module(name: str, variants: Sequence[ObjectVariant]) -> str:
    """Return the module of the function itself; the first variant is for destinations that begin at a cache line."""
    lines = []
    for variant in variants:
        lines.append(f"declare void @{variant.entry}(ptr, ptr, ptr, i64, i64)")
        lines.append(f"@{variant.table} = external constant i64")
    lines += [f"define void @{name}(ptr %src, ptr %dst) #0 {{", "entry:"]
    lines += [f"%{side}.address = ptrtoint ptr %{side} to i64" for side in ("src", "dst")]
    if len(variants) > 1:
        problem = variants[0].problem
        start = problem.dst_offset * problem.dst_type.bits // 8
        lines += [
            f"%first = add i64 %dst.address, {start}",
            f"%within = and i64 %first, {LINE - 1}",
            "%is_aligned = icmp eq i64 %within, 0",
            "br i1 %is_aligned, label %aligned, label %any",
        ]
    else:
        lines.append("br label %aligned")
    for label, variant in zip(("aligned", "any"), variants, strict=False):
        lines += variant.call_lines(label)
    return "\n".join([*lines, "}", "attributes #0 = { nounwind }", ""])
