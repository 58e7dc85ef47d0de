"""The functions of emitted code: each moves a tensor from one layout to another.

From a pair of descriptors, one function is emitted; from one descriptor, one that packs and one that unpacks. The other
side of these two is the dense row-major array of the same tensor, without padding. Elements of 4 bits have a byte each
there: s4 as int8_t, u4 as uint8_t, and the codes of f4_e2m1 as uint8_t; values out of range are clamped. The values of
attributes are further parameters: dense row-major arrays, in which numbers of 4 bits have a byte each too.
"""

from dataclasses import dataclass, replace

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.fields import addressed_layout, require_start_in_buffer
from inlay.emission.c_names import element_type, joined_dims
from inlay.emission.c_text import comment
from inlay.layout import Layout
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.problem import ReorderProblem, build_reorder_problem


@dataclass(frozen=True, slots=True)
class EmittedFunction:
    """One function to emit: its name, and the reorder that it executes."""

    name: str
    """Name of the function."""
    src: MemoryDesc
    """Descriptor of the memory that the function reads."""
    dst: MemoryDesc
    """Descriptor of the memory that the function writes."""
    src_type: DataType
    """Type as which source elements are read."""
    dst_type: DataType
    """Type as which destination elements are written."""
    attributes: Attributes = PLAIN
    """Scales, zero points and sum; their values are further parameters."""

    @property
    def converts(self) -> bool:
        """True if elements are computed, and not only moved."""
        return self.src_type != self.dst_type or self.attributes.computes

    @property
    def prototype(self) -> str:
        """The declaration in C, without a semicolon; the pointers have the types of the elements."""
        src, dst = element_type(self.src_type), element_type(self.dst_type)
        values = (f", const {element_type(self.attributes.entry(v).type.widened)} *{v}" for v in self.attributes.names)
        return f"void {self.name}(const {src} *src, {dst} *dst{''.join(values)})"

    @property
    def comment(self) -> str:
        """Both sides in words: oneDNN's text, dims, and size of the buffer in bytes; then the formula."""
        lines = [_side_text(self.src), f"   -> {_side_text(self.dst)}"]
        if self.attributes.computes:
            lines.append(f"   dst = {_formula(self.attributes)}")
        for name in self.attributes.names:
            entry = self.attributes.entry(name)
            lines.append(f"   {name}: {joined_dims(entry.shape(self.src.dims))}, {entry.type.widened}, row-major")
        return comment("\n".join(lines))

    def problem(self) -> ReorderProblem:
        """Return the problem that the function solves.

        Raises:
            InvalidArguments: a side has no layout or reaches below its buffer, or elements of the destination overlap.
            Unimplemented: dims are RUNTIME, there are extras, or no conversion between the types exists.
        """
        problem = build_reorder_problem(self.src, self.dst, self.attributes)
        for desc in (self.src, self.dst):
            require_start_in_buffer(desc, addressed_layout(desc, "emitted code")[0])
        if (self.src_type, self.dst_type) == (self.src.data_type, self.dst.data_type):
            return problem
        return replace(problem, src_type=self.src_type, dst_type=self.dst_type)


def reorder_function(name: str, src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> EmittedFunction:
    """Return the function `name` that moves memory described by `src` to memory described by `dst`.

    Raises:
        InvalidArguments: a side has no layout.
    """
    src_type = addressed_layout(src, "the source of emitted code")[1]
    dst_type = addressed_layout(dst, "the destination of emitted code")[1]
    return EmittedFunction(name, src, dst, src_type, dst_type, attributes)


def layout_functions(name: str, desc: MemoryDesc) -> tuple[EmittedFunction, EmittedFunction]:
    """Return the functions that pack a row-major array into memory described by `desc`, and that unpack it.

    Precondition: `desc` has a layout without RUNTIME dims.
    """
    array = row_major_desc(desc)
    array_type = _type_of(array)
    stored = _type_of(desc)
    # Codes of f4_e2m1 are moved like the numbers of u4.
    stored = DATA_TYPES["u4"] if stored.is_sub_byte and stored.kind == "float" else stored
    return (
        EmittedFunction(f"{name}_pack", array, desc, array_type, stored),
        EmittedFunction(f"{name}_unpack", desc, array, stored, array_type),
    )


def without_swizzle(desc: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of the same layout before its swizzle; `desc` itself if it has none.

    Post-condition: for every coordinate x, with y = without_swizzle(desc).offset(x) - desc.offset0,
    desc.swizzle.apply(y) + desc.offset0 == desc.offset(x).

    >>> without_swizzle(MemoryDesc((8, 64), "bf16", "Swizzle<3,3,3> o (8,64):(64,1)"))
    MemoryDesc((8, 64), 'bf16', 'ab')
    """
    if not isinstance(desc.layout, kinds.SwizzledLayout):
        return desc
    return MemoryDesc.from_layout(desc.layout.layout, _type_of(desc), dims=desc.dims, offset0=desc.offset0)


def row_major_desc(desc: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of the row-major array that is packed into `desc`: dense, and in whole bytes.

    >>> row_major_desc(MemoryDesc((2, 17), "s4", "aB8b"))
    MemoryDesc((2, 17), 's8', 'ab')
    """
    data_type = _type_of(desc)
    if data_type.is_sub_byte:
        data_type = DATA_TYPES["s8" if data_type.kind == "signed" else "u8"]
    strides = tuple(axis.stride for axis in Layout.row_major(desc.dims).axes)
    return MemoryDesc(desc.dims, data_type, strides=strides)


def _type_of(desc: MemoryDesc) -> DataType:
    """Return the data type of a descriptor that has one."""
    assert desc.data_type is not None
    return desc.data_type


def _formula(attributes: Attributes) -> str:
    """Return the computation of an element.

    >>> from inlay.reordering.attributes import Scales, ZeroPoints
    >>> _formula(Attributes(src_scales=Scales(), dst_zero_points=ZeroPoints(), sum=0.5))
    'src * src_scales + 0.5 * old dst + dst_zero_points'
    """
    text = "(src - src_zero_points)" if attributes.src_zero_points else "src"
    text += " * src_scales" if attributes.src_scales else ""
    text += f" + {attributes.sum} * old dst" if attributes.sum is not None else ""
    if attributes.dst_scales:
        text = f"({text}) / dst_scales" if attributes.sum is not None else f"{text} / dst_scales"
    return text + (" + dst_zero_points" if attributes.dst_zero_points else "")


def _side_text(desc: MemoryDesc) -> str:
    """Return one side of a reorder in words: oneDNN's text, dims, and size of the buffer in bytes."""
    padded = f" padded to {joined_dims(desc.padded_dims)}" if desc.padded_dims != desc.dims else ""
    return f"{desc}, {joined_dims(desc.dims)}{padded}, {buffer_bytes(desc)} bytes"


def buffer_bytes(desc: MemoryDesc) -> int:
    """Return the number of bytes that a buffer needs: up to the end of the last stored element.

    >>> buffer_bytes(MemoryDesc((2, 17), "f32", "aB8b"))
    192
    """
    layout, data_type = addressed_layout(desc, "an emitted function")
    low, high = layout.span
    high = high if desc.swizzle is None else desc.swizzle.round_up(high)
    return -(-(high + desc.offset0) * data_type.bits // 8) if low < high else 0
