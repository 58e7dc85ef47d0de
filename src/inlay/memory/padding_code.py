"""Compiled loops over runs of bytes: write one element into all of them, or compare all of them with it.

A run is a number of adjacent bytes, and runs are spaced evenly along each of three axes. The element is repeated over a
vector. A run is read or written by chunks of a power of two, the last of which ends with the run and overlaps the one
before: 28 bytes are the chunks of 16 from byte 0 and from byte 12. There are two functions for each size of chunks.
"""

import struct
from collections.abc import Sequence
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cache
from typing import Any

from inlay.errors import Unimplemented
from inlay.reordering.target import TargetMachine, host_target, load_permanently

CHUNKS = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "<2 x i64>", 32: "<4 x i64>"}
"""LLVM's types of the chunks, by their size in bytes."""
MOST_BYTES = max(CHUNKS)
"""Size of the largest chunk, in bytes."""
AXES = 3
"""Number of axes of the loops."""

_FUNCTION = CFUNCTYPE(c_int64, c_void_p, c_void_p, c_void_p)


def loop_words(axes: Sequence[tuple[int, int]], nbytes: int) -> bytes:
    """Return the words that the functions read: extent and stride of each of `AXES` axes, and the bytes of a run."""
    whole = [(1, 0)] * (AXES - len(axes)) + list(axes)
    return struct.pack(f"{2 * AXES + 1}q", *(word for axis in whole for word in axis), nbytes)


@cache
def run_functions() -> dict[tuple[str, int], Any] | None:
    """Return the compiled functions by `fill` or `differs` and the size of a chunk, or None without generated code.

    A function has the arguments

        address of the first run, words of the loops as `loop_words` returns them, address of the repeated element

    where extents are at least 1, a run has at least the bytes of a chunk, and a chunk holds whole elements. `differs`
    returns 1 if a byte of a run is not that of the element, else 0; `fill` returns 0.
    """
    try:
        target = host_target()
    except Unimplemented:
        return None
    keys = [(purpose, size) for purpose in ("fill", "differs") for size in CHUNKS]
    text = module_text(target)
    addresses = load_permanently(text, lambda: text, target, *(f"inlay_{purpose}_{size}" for purpose, size in keys))
    return {key: _FUNCTION(address) for key, address in zip(keys, addresses, strict=True)}


def module_text(target: TargetMachine) -> str:
    """Return LLVM IR of all functions."""
    functions = [_function_text(size, is_fill) for is_fill in (True, False) for size in CHUNKS]
    return "\n".join([*functions, f"attributes #0 = {{ nounwind {target.attributes} }}\n"])


def _function_text(size: int, is_fill: bool) -> str:
    """Return the function for one size of chunks."""
    kind = CHUNKS[size]
    access = _store_text(kind) if is_fill else _compare_text(kind)
    state = "" if is_fill else f"  %before = phi {kind} [%seen2, %axis2], [%seen_body, %body]"
    name = f"inlay_{'fill' if is_fill else 'differs'}_{size}"
    lines = [f"define i64 @{name}(ptr %p0, ptr %words, ptr %element) #0 {{", "entry:"]
    for i, word in enumerate([*(f"{word}{axis}" for axis in range(AXES) for word in "ns"), "nbytes"]):
        lines += [f"  %{word}_at = getelementptr i64, ptr %words, i64 {i}", f"  %{word} = load i64, ptr %{word}_at"]
    lines += [f"  %value = load {kind}, ptr %element, align 1", f"  %last = sub i64 %nbytes, {size}"]
    lines += ["  br label %axis0"]
    for i in range(AXES):
        lines += _axis_text(i, None if is_fill or i + 1 < AXES else kind)
    lines += ["chunk:", f"  %k = phi i64 [0, %axis{AXES - 1}], [%k_next, %body]", state]
    lines += ["  %is_more = icmp slt i64 %k, %last", "  br i1 %is_more, label %body, label %final", "body:"]
    lines += [access.format(at="%k", name="body"), f"  %k_next = add i64 %k, {size}", "  br label %chunk", "final:"]
    lines += [access.format(at="%last", name="final"), f"  br label %next{AXES - 1}"]
    for i in reversed(range(AXES)):
        lines += _next_text(i, None if is_fill or i + 1 < AXES else kind)
    return "\n".join([*lines, "done:", "  ret i64 0", "differs:", "  ret i64 1", "}"])


def _axis_text(i: int, seen: str | None) -> list[str]:
    """Return the start of the loop along one axis; bits that differ so far are of the type `seen`, None for none."""
    before = "entry" if not i else f"axis{i - 1}"
    inner = f"axis{i + 1}" if i + 1 < AXES else "chunk"
    state = [] if seen is None else [f"  %seen{i} = phi {seen} [zeroinitializer, %{before}], [%seen_final, %next{i}]"]
    if seen is not None and not seen.startswith("<"):
        state = [state[0].replace("zeroinitializer", "0")]
    steps = [f"  %at{i} = mul i64 %i{i}, %s{i}", f"  %p{i + 1} = getelementptr i8, ptr %p{i}, i64 %at{i}"]
    loop = [f"axis{i}:", f"  %i{i} = phi i64 [0, %{before}], [%j{i}, %next{i}]"]
    return [*loop, *state, *steps, f"  br label %{inner}"]


def _next_text(i: int, seen: str | None) -> list[str]:
    """Return the end of the loop along one axis; the bits of `seen` are tested after the last run of the axis."""
    outer = f"next{i - 1}" if i else "done"
    left = outer if seen is None else "test"
    lines = [f"next{i}:", f"  %j{i} = add i64 %i{i}, 1", f"  %again{i} = icmp slt i64 %j{i}, %n{i}"]
    lines += [f"  br i1 %again{i}, label %axis{i}, label %{left}"]
    if seen is None:
        return lines
    bits = "256" if seen == "<4 x i64>" else "128" if seen == "<2 x i64>" else seen[1:]
    lines += ["test:", f"  %bits = bitcast {seen} %seen_final to i{bits}", f"  %is_other = icmp ne i{bits} %bits, 0"]
    return [*lines, f"  br i1 %is_other, label %differs, label %{outer}"]


def _store_text(kind: str) -> str:
    """Return the instructions that write a chunk."""
    return "\n".join(
        [
            f"  %p_{{name}} = getelementptr i8, ptr %p{AXES}, i64 {{at}}",
            f"  store {kind} %value, ptr %p_{{name}}, align 1",
        ]
    )


def _compare_text(kind: str) -> str:
    """Return the instructions that add the bits in which a chunk differs to those that were seen before."""
    return "\n".join(
        [
            f"  %p_{{name}} = getelementptr i8, ptr %p{AXES}, i64 {{at}}",
            f"  %read_{{name}} = load {kind}, ptr %p_{{name}}, align 1",
            f"  %other_{{name}} = xor {kind} %read_{{name}}, %value",
            f"  %seen_{{name}} = or {kind} %before, %other_{{name}}",
        ]
    )
