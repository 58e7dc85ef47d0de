"""`emit`: code for others from one layout or one reorder, in one of five forms."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.emission.c_header import c_header
from inlay.emission.c_names import checked_name
from inlay.emission.c_source import c_prototypes, c_source
from inlay.emission.functions import EmittedFunction, layout_functions, reorder_function
from inlay.emission.numpy_lines import numpy_lines, numpy_reorder_line
from inlay.emission.object_code import object_file
from inlay.emission.onednn_call import onednn_call, onednn_reorder
from inlay.emission.sentence import layout_sentence, reorder_sentence
from inlay.errors import FileError, InvalidArguments, shown
from inlay.files import atomic_write
from inlay.reordering.problem import require_same_dims
from inlay.reordering.target import named_target

FORMS: Mapping[str, str] = MappingProxyType(
    {
        "c": "readable C99 and a header",
        "object": "an object file and a header",
        "numpy": "NumPy expressions",
        "onednn": "the C++ call that creates oneDNN's descriptor",
        "words": "one sentence",
    }
)
"""The forms of emitted code, and a description of each."""
_DEFAULT_NAME = "packed"


@dataclass(frozen=True, slots=True)
class EmittedCode:
    """Emitted code: the text or object file, and the header of functions in C."""

    form: str
    """The form, one of `FORMS`."""
    content: bytes
    """The text in UTF-8, or the object file."""
    header: str
    """The C header; empty for forms without functions in C."""

    def __str__(self) -> str:
        """Return the text; for an object file, its header."""
        return self.header if self.form == "object" else self.content.decode()

    def save(self, path: str | Path) -> list[Path]:
        """Write the content to `path`, and a header beside it under the same name with the suffix .h.

        Post-condition: each file is complete or unchanged, see `inlay.files.atomic_write`.

        Returns:
            The paths of the files.

        Raises:
            InvalidArguments: `path` is no path.
            FileError: a file cannot be written, or `path` ends in .h, where the header goes.
        """
        if not isinstance(path, (str, Path)):
            raise InvalidArguments(f"path is {shown(path)}: give a text or a pathlib.Path")
        target = Path(path)
        files = {target: self.content}
        if self.header:
            if not target.name or target.suffix == ".h":
                raise FileError(
                    f"cannot write {target}: the header goes there; name a file such as packed.c or packed.o"
                )
            files[target.with_suffix(".h")] = self.header.encode()
        for file, content in files.items():
            with atomic_write(file) as out:
                out.write(content)
        return list(files)


def emit(
    src: MemoryDesc,
    dst: MemoryDesc | None = None,
    *,
    form: str = "c",
    name: str = _DEFAULT_NAME,
    target: str | None = None,
) -> EmittedCode:
    """Emit code for others: from one layout, or from a reorder between two.

    Args:
        src: the layout, or the source of the reorder.
        dst: the destination of the reorder; None for one layout.
        form: `c`: C99 without dependencies. From a layout, the functions NAME_offset, NAME_pack and NAME_unpack, which
            convert from and to a dense row-major array; from a reorder, the function NAME. `object`: machine code of
            NAME_pack and NAME_unpack, or of NAME, as fast as Inlay on one thread. `numpy`: expressions.
            `onednn`: C++ calls. `words`: a sentence.
        name: the name of functions and variables.
        target: for `object`: one of x86-64-v2, x86-64-v3, x86-64-v4, aarch64, aarch64-sve256, aarch64-sve512; None for
            the processor of this machine.

    Post-conditions, of functions:
        They write what `inlay.reorder` writes: data, zeros in padding, and no other bit.
        `src` and `dst` do not overlap, and need the alignment of their elements only.

    Raises:
        InvalidArguments: an argument has the wrong type or an unknown value, dims differ, a side has no layout,
            elements of a destination overlap, or a target is given for another form than `object`.
        Unimplemented: dims are RUNTIME, there are extras, the form cannot say the layout, or it does not convert
            between the types.

    >>> desc = MemoryDesc((2, 17), "f32", "aB8b")
    >>> print(emit(desc, form="numpy"), end="")
    packed = np.pad(x, [(0, 0), (0, 7)]).reshape(2, 3, 8).ravel()
    x = packed.reshape(2, 3, 8).reshape(2, 24)[:, :17]
    """
    _check_arguments(src, dst, form)
    name = checked_name(name)
    if target is not None and form != "object":
        raise InvalidArguments(f"target is {shown(target)}: form {form!r} has none; use form='object'")
    if form in ("c", "object"):
        return _emit_functions(src, dst, form, name, target)
    if dst is not None:
        _check_pair(name, src, dst, form)
        text = {"numpy": numpy_reorder_line, "onednn": onednn_reorder}.get(form, _reorder_words)(name, src, dst)
    else:
        text = {"numpy": numpy_lines, "onednn": onednn_call}.get(form, _layout_words)(name, src)
    return EmittedCode(form, text.encode(), "")


def _check_arguments(src: object, dst: object, form: object) -> None:
    """Check the types of the descriptors, and the form."""
    for side, desc in (("src", src), ("dst", dst)):
        if not isinstance(desc, MemoryDesc) and (desc is not None or side == "src"):
            raise InvalidArguments(f"{side} is {shown(desc)}: give a MemoryDesc")
    if not isinstance(form, str) or form not in FORMS:
        raise InvalidArguments(f"form is {shown(form)}: give one of {', '.join(FORMS)}")


def _check_pair(name: str, src: MemoryDesc, dst: MemoryDesc, form: str) -> None:
    """Check that a reorder exists; oneDNN's own call may have a destination of kind any."""
    if form == "onednn":
        require_same_dims(src, dst)
    else:
        reorder_function(name, src, dst).problem()


def _layout_words(_: str, desc: MemoryDesc) -> str:
    """Return the line of the sentence about a layout."""
    return f"{layout_sentence(desc)}\n"


def _reorder_words(_: str, src: MemoryDesc, dst: MemoryDesc) -> str:
    """Return the line of the sentence about a reorder."""
    return f"{reorder_sentence(src, dst)}\n"


def _emit_functions(src: MemoryDesc, dst: MemoryDesc | None, form: str, name: str, target: Any) -> EmittedCode:
    """Return the functions of a layout, or the function of a reorder, as C or as an object file."""
    functions = _functions(src, dst, name)
    if form == "c":
        offset = (name, src) if dst is None else None
        source = c_source(functions, offset)
        return EmittedCode(form, source.encode(), c_header(name, functions, c_prototypes(functions, offset)))
    machine = named_target(target)
    note = f"Code for {machine.triple.split('-')[0]}, processor {machine.cpu} or better."
    prototypes = [f"void {function.name}(const void *src, void *dst)" for function in functions]
    return EmittedCode(form, object_file(functions, machine), c_header(name, functions, prototypes, note))


def _functions(src: MemoryDesc, dst: MemoryDesc | None, name: str) -> tuple[EmittedFunction, ...]:
    """Return the functions to emit, whose problems are accepted.

    Raises:
        InvalidArguments: as `EmittedFunction.problem`.
        Unimplemented: as `EmittedFunction.problem`.
    """
    if dst is not None:
        return (reorder_function(name, src, dst),)
    src.require_layout("emitted code")
    reorder_function(name, src, src).problem()
    return layout_functions(name, src)
