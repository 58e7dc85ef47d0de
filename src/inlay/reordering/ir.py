"""LLVM IR as text: a function body that is written line by line.

The text form is what LLVM reads fastest, and what a reader can compare with the language reference line by line.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Code:
    """The lines of one function, and the intrinsics it needs declared."""

    lines: list[str] = field(default_factory=list)
    """Finished lines."""
    declarations: set[str] = field(default_factory=set)
    """`declare` lines of the intrinsics that were called, and whole functions that stand beside this one."""
    count: int = 0
    """How many names were made."""

    def fresh(self) -> str:
        """A name that no value has yet."""
        self.count += 1
        return f"%v{self.count}"

    def let(self, operation: str) -> str:
        """Append `operation` and name its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {operation}")
        return name

    def do(self, statement: str) -> None:
        """Append a statement without a result."""
        self.lines.append(f"  {statement}")

    def label(self, name: str) -> None:
        """Begin the block `name`."""
        self.lines.append(f"{name}:")

    def do_declared(self, statement: str) -> None:
        """Append a statement of a target, such as its fence, and declare what it calls."""
        self.do(statement)
        if "@" in statement:
            self.declarations.add(declaration_of(statement))

    def call(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call an intrinsic of arguments (type, value) and name its result."""
        self.declarations.add(f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})")
        return self.let(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def load_word(self, base: str, index: str | int) -> str:
        """The 64-bit word number `index` after `base`."""
        return self.let(f"load i64, ptr {self.word(base, index)}")

    def word(self, base: str, index: str | int) -> str:
        """The address of that word."""
        return self.let(f"getelementptr i64, ptr {base}, i64 {index}")

    def byte(self, base: str, offset: str | int) -> str:
        """The address `offset` bytes after `base`."""
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    @contextmanager
    def loop(self, name: str, count: int | str) -> Iterator[str]:
        """Run what is written meanwhile `count` times, at least once; its index, from 0 on.

        What is written may have labels of its own; `count` may be the name of a value.
        """
        self.do(f"br label %{name}.before")
        self.label(f"{name}.before")
        self.do(f"br label %{name}")
        self.label(name)
        self.do(f"%{name}.index = phi i64 [0, %{name}.before], [%{name}.next, %{name}.last]")
        yield f"%{name}.index"
        self.do(f"br label %{name}.last")
        self.label(f"{name}.last")
        self.do(f"%{name}.next = add i64 %{name}.index, 1")
        more = self.let(f"icmp ult i64 %{name}.next, {count}")
        self.do(f"br i1 {more}, label %{name}, label %{name}.done")
        self.label(f"{name}.done")

    def prefetch(self, address: str) -> None:
        """Ask for the line at `address`, which need not be valid, to come into the second-level cache."""
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")

    def minmax(self, name: str, value: str, limit: int) -> str:
        """The smaller (`smin`) or greater (`smax`) of a 64-bit value and a constant."""
        self.declarations.add(f"declare i64 @llvm.{name}.i64(i64, i64)")
        return self.let(f"call i64 @llvm.{name}.i64(i64 {value}, i64 {limit})")

    def masked_load(self, vector: str, address: str, mask: str) -> str:
        """Load the lanes of `vector` that `mask` selects, zero in the others; unselected memory is not touched."""
        wide = _of_two_lanes(vector)
        if wide != vector:
            both = self.masked_load(wide, address, self._and_none(mask))
            return self.let(f"shufflevector {wide} {both}, {wide} poison, <1 x i32> zeroinitializer")
        name = f"llvm.masked.load.{suffix(vector)}.p0"
        bools = _bools(vector)
        self.declarations.add(f"declare {vector} @{name}(ptr, i32, {bools}, {vector})")
        arguments = f"ptr {address}, i32 1, {bools} {mask}, {vector} zeroinitializer"
        return self.let(f"call {vector} @{name}({arguments})")

    def masked_store(self, vector: str, value: str, address: str, mask: str) -> None:
        """Store the lanes of `value` that `mask` selects; unselected memory is not touched."""
        wide = _of_two_lanes(vector)
        if wide != vector:
            both = self.let(f"shufflevector {vector} {value}, {vector} poison, <2 x i32> zeroinitializer")
            self.masked_store(wide, both, address, self._and_none(mask))
            return
        name = f"llvm.masked.store.{suffix(vector)}.p0"
        bools = _bools(vector)
        self.declarations.add(f"declare void @{name}({vector}, ptr, i32, {bools})")
        self.do(f"call void @{name}({vector} {value}, ptr {address}, i32 1, {bools} {mask})")

    def _and_none(self, mask: str) -> str:
        """The mask of one lane, with a second lane that is never selected."""
        return self.let(f"shufflevector <1 x i1> {mask}, <1 x i1> zeroinitializer, <2 x i32> <i32 0, i32 1>")


def module_text(functions: Sequence[tuple[str, Code]], attributes: str) -> str:
    """The module of some functions, each with its head; `attributes` are LLVM's of all of them."""
    declarations = sorted(set().union(*(code.declarations for _, code in functions)))
    texts = [f"{head} #0 {{\n" + "\n".join(code.lines) + "\n}" for head, code in functions]
    tail = f"attributes #0 = {{ nounwind {attributes} }}\n!0 = !{{i32 1}}\n"
    return "\n".join([*declarations, *texts, tail])


def _of_two_lanes(vector: str) -> str:
    """A vector of at least two lanes: LLVM has no code for a masked access of one in registers of SVE."""
    return vector.replace("<1 x ", "<2 x ")


def declaration_of(call: str) -> str:
    """The declaration of what a statement calls.

    >>> declaration_of("call void @llvm.aarch64.hint(i32 1)")
    'declare void @llvm.aarch64.hint(i32)'
    """
    head, arguments = call.removeprefix("call ").rstrip(")").split("(")
    return f"declare {head}({', '.join(argument.split()[0] for argument in arguments.split(', ') if argument)})"


def _bools(vector: str) -> str:
    """The mask type of a vector type: <16 x float> -> <16 x i1>."""
    return vector.split(" x ")[0] + " x i1>"


def suffix(vector: str) -> str:
    """How intrinsics spell a vector type.

    >>> suffix("<16 x float>")
    'v16f32'
    """
    count, element = vector.strip("<>").split(" x ")
    return f"v{count}{_SPELLING.get(element, element)}"


_SPELLING = {"float": "f32", "half": "f16", "double": "f64"}
