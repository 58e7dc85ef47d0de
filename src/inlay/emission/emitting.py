"""`emit`: code for others from one layout, one reorder or one compound format, in one of five forms."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.fields import addressed_layout
from inlay.emission.c_compound import compound_header, compound_source
from inlay.emission.c_header import c_header
from inlay.emission.c_names import checked_name
from inlay.emission.c_source import c_prototypes, c_source
from inlay.emission.functions import EmittedFunction, layout_functions, reorder_function
from inlay.emission.numpy_lines import numpy_lines, numpy_reorder_line
from inlay.emission.object_code import compound_object_file, object_file
from inlay.emission.onednn_call import onednn_call, onednn_reorder
from inlay.emission.sentence import compound_sentence, layout_sentence, reorder_sentence
from inlay.errors import FileError, InvalidArguments, Unimplemented, shown
from inlay.files import atomic_write
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.requirements import require_same_dims
from inlay.reordering.target import TargetMachine, named_target

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
_USED_NAMES = frozenset((("numpy", "np"), ("onednn", "engine")))
"""Forms, and the names that their texts expect a caller to have defined."""


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


class PlannedReorder(Protocol):
    """A reorder of which code is emitted, such as `inlay.Reorder`: its descriptors and attributes."""

    @property
    def src(self) -> MemoryDesc:
        """Descriptor of the source."""

    @property
    def dst(self) -> MemoryDesc:
        """Descriptor of the destination."""

    @property
    def attributes(self) -> Attributes:
        """Attributes: scales, zero points, sum and rounding mode."""


def emit(
    src: MemoryDesc | CompoundDesc | PlannedReorder,
    dst: MemoryDesc | str | None = None,
    *,
    form: str = "c",
    name: str = _DEFAULT_NAME,
    target: str | None = None,
) -> EmittedCode:
    """Emit code for others: from one layout, from a reorder between two, or from a tensor in a compound format.

    Args:
        src: the layout, or the source of the reorder; an `inlay.Reorder`; or a `CompoundDesc`.
        dst: the destination of the reorder, or any text that names its layout, in the type of the source; None for one
            layout.
        form: `c`: C99 without dependencies. From a layout, the functions NAME_offset, NAME_pack and NAME_unpack, which
            convert from and to a dense row-major array; from a reorder, the function NAME, whose further parameters
            are the values of attributes. `object`: machine code of NAME_pack and NAME_unpack, or of NAME, as fast as
            Inlay on one thread. `numpy`: expressions. `onednn`: C++ calls. `words`: a sentence. From a compound format,
            `c` has NAME_unpack, which writes floats, and NAME_assemble, which writes the streams; `object` has
            NAME_unpack.
        name: the name of functions and variables.
        target: for `object`: one of x86-64-v2, x86-64-v3, x86-64-v4, aarch64, aarch64-sve256, aarch64-sve512; None for
            the processor of this machine.

    Post-conditions, of functions:
        They write what `inlay.reorder` writes: data, zeros in padding, and no other bit.
        `src` and `dst` do not overlap, and need the alignment of their elements only.

    Raises:
        InvalidArguments: an argument has the wrong type or an unknown value, dims differ, a side has no layout or
            reaches below its buffer, elements of a destination overlap, or a target is given for another form than
            `object`.
        Unimplemented: dims are RUNTIME, there are extras, or the form cannot say the layout, does not convert between
            the types, or does not compute the attributes.
        FormatTagError, PatternError, NotationError: `dst` is text that cannot be parsed or does not fit the dims.

    >>> desc = MemoryDesc((2, 17), "f32", "aB8b")
    >>> print(emit(desc, form="numpy"), end="")
    packed = np.pad(x, [(0, 0), (0, 7)]).reshape(2, 3, 8).ravel()
    x = packed.reshape(2, 3, 8).reshape(2, 24)[:, :17]
    """
    _check_form(form, target)
    name = checked_name(name)
    if (form, name) in _USED_NAMES:
        raise InvalidArguments(f"name is {shown(name)}, which the {form} form uses otherwise: give another one")
    if isinstance(src, CompoundDesc):
        if dst is not None:
            raise InvalidArguments(f"dst is {shown(dst)}: code of a compound format unpacks to floats and has no dst")
        return _emit_compound(src, form, name, target)
    src, dst, attributes = _sides(src, dst)
    if attributes != PLAIN:
        _require_attributes_of_c(attributes, form)
    if form in ("c", "object"):
        functions = _functions(src, dst, name, attributes)
        return _emit_functions(functions, src if dst is None else None, form, name, target)
    if dst is not None:
        _check_pair(name, src, dst, form)
        text = {"numpy": numpy_reorder_line, "onednn": onednn_reorder}.get(form, _reorder_words)(name, src, dst)
    else:
        text = {"numpy": numpy_lines, "onednn": onednn_call}.get(form, _layout_words)(name, src)
    return EmittedCode(form, text.encode(), "")


def _check_form(form: object, target: object) -> None:
    """Check the form, and that only `object` has a target."""
    if not isinstance(form, str) or form not in FORMS:
        raise InvalidArguments(f"form is {shown(form)}: give one of {', '.join(FORMS)}")
    if target is not None and form != "object":
        raise InvalidArguments(f"target is {shown(target)}: form {form!r} has none; use form='object'")


def _sides(src: object, dst: object) -> tuple[MemoryDesc, MemoryDesc | None, Attributes]:
    """Return the descriptors of a layout or a reorder, and its attributes, from the arguments of `emit`."""
    attributes = PLAIN
    if not isinstance(src, MemoryDesc) and all(hasattr(src, name) for name in ("src", "dst", "attributes")):
        src, dst, attributes = _sides_of_reorder(src, dst)
    if not isinstance(src, MemoryDesc):
        raise InvalidArguments(f"src is {shown(src)}: give a MemoryDesc, a Reorder or a CompoundDesc")
    if isinstance(dst, str):
        return src, MemoryDesc(src.dims, src.data_type, dst), attributes
    if dst is not None and not isinstance(dst, MemoryDesc):
        raise InvalidArguments(f"dst is {shown(dst)}: give a MemoryDesc, or the text of a layout")
    return src, dst, attributes


def _sides_of_reorder(reorder: Any, dst: object) -> tuple[object, object, Attributes]:
    """Return the descriptors and the attributes of a reorder."""
    if dst is not None:
        raise InvalidArguments(f"dst is {shown(dst)}: a Reorder has its own destination, {reorder.dst!r}")
    return reorder.src, reorder.dst, reorder.attributes


def _require_attributes_of_c(attributes: Attributes, form: str) -> None:
    """Check that the form computes attributes, and that they round to nearest."""
    if form != "c":
        raise Unimplemented(
            f"form {form!r} does not compute {attributes}. Use form='c', or emit the reorder without attributes, and "
            "apply scales and zero points before or after it"
        )
    if attributes.rounding_mode != "nearest":
        raise Unimplemented("emitted C rounds to nearest: create the Reorder without rounding_mode='stochastic'")


def _emit_compound(desc: CompoundDesc, form: str, name: str, target: Any) -> EmittedCode:
    """Return code of one form for a tensor in a compound format."""
    match form:
        case "c":
            return EmittedCode(form, compound_source(name, desc).encode(), compound_header(name, desc))
        case "object":
            machine = named_target(target)
            header = compound_header(name, desc, _target_note(machine), only_unpack=True)
            return EmittedCode(form, compound_object_file(name, desc, machine), header)
        case "words":
            return EmittedCode(form, f"{compound_sentence(desc)}\n".encode(), "")
    raise Unimplemented(
        f"form {form!r} does not describe {desc}: it has several streams. Use form='c', 'object' or 'words'"
    )


def _target_note(machine: TargetMachine) -> tuple[str]:
    """Return the sentence about the processor of an object file."""
    return (f"Code for {machine.triple.split('-')[0]}, processor {machine.cpu} or better.",)


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


def _emit_functions(
    functions: tuple[EmittedFunction, ...], layout: MemoryDesc | None, form: str, name: str, target: Any
) -> EmittedCode:
    """Return functions as C, with that of the offset for a layout, or as an object file."""
    if form == "c":
        offset = None if layout is None else (name, layout)
        source = c_source(functions, offset)
        return EmittedCode(form, source.encode(), c_header(name, functions, c_prototypes(functions, offset)))
    machine = named_target(target)
    prototypes = [f"void {function.name}(const void *src, void *dst)" for function in functions]
    return EmittedCode(
        form, object_file(functions, machine), c_header(name, functions, prototypes, _target_note(machine))
    )


def _functions(
    src: MemoryDesc, dst: MemoryDesc | None, name: str, attributes: Attributes
) -> tuple[EmittedFunction, ...]:
    """Return the functions to emit, whose problems are accepted.

    Raises:
        InvalidArguments: as `EmittedFunction.problem`.
        Unimplemented: as `EmittedFunction.problem`.
    """
    if dst is not None:
        return (reorder_function(name, src, dst, attributes),)
    addressed_layout(src, "emitted code")
    reorder_function(name, src, src).problem()
    return layout_functions(name, src)
