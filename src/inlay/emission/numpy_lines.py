"""NumPy expressions that pack, unpack and reorder: pad, split each axis into its digits, transpose, flatten.

    packed = np.pad(x, [(0, 0), (0, 7), (0, 0), (0, 0)]).reshape(2, 3, 8, 5, 4).transpose(0, 1, 3, 4, 2).ravel()
    x = packed.reshape(2, 3, 5, 4, 8).transpose(0, 1, 4, 2, 3).reshape(2, 24, 5, 4)[:, :17]

`x` is the logical array, `packed` the array of the stored elements in address order. NumPy has no elements of 4 bits:
there, `packed` has bytes, and an unpacked `x` has integers, or the codes of f4_e2m1, in a byte each. Padded e8m0, which
has no zero, is packed as bytes too. A swizzle is one more index, `[np.arange(n) ^ ...]`, of both sides.
"""

from dataclasses import dataclass
from math import prod

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.errors import Unimplemented
from inlay.layout import Dims, Swizzle


@dataclass(frozen=True, slots=True)
class DigitOrder:
    """A dense layout as NumPy sees it: the extents of all digits, and the order in which memory has them."""

    dims: Dims
    """Dims of the logical array."""
    padded: Dims
    """Dims with padding."""
    logical: tuple[int, ...]
    """Extents of the digits greater than 1, axis after axis, most significant first."""
    order: tuple[int, ...]
    """For each place in memory order, slowest first, the number of its digit in `logical`."""
    swizzle: Swizzle | None = None
    """Permutation of the elements in memory order; None for none."""

    @property
    def physical(self) -> tuple[int, ...]:
        """The extents in memory order."""
        return tuple(self.logical[i] for i in self.order)

    @property
    def inverse(self) -> tuple[int, ...]:
        """For each digit in logical order, its place in memory order."""
        return tuple(sorted(range(len(self.order)), key=self.order.__getitem__))

    @property
    def swizzled_order(self) -> str:
        """The expression of the swizzled offset of every element, which is its own inverse; empty without swizzle."""
        if self.swizzle is None:
            return ""
        offsets, shift = f"np.arange({prod(self.logical)})", self.swizzle.shift
        step = f">> {shift}" if shift > 0 else f"<< {-shift}"
        return f"{offsets} ^ ({offsets} & {self.swizzle.source_mask}) {step}"


def numpy_lines(name: str, desc: MemoryDesc) -> str:
    """Return two assignments: `name` is the packed array of `x`, and `x` is the logical array of `name`.

    Raises:
        InvalidArguments: `desc` has no layout.
        Unimplemented: the layout is not a padded permutation of digits (see `digit_order`), or it has an odd number of
            4-bit elements.
    """
    digits, data_type = digit_order(desc), addressed_layout(desc, "a NumPy line")[1]
    return f"{name} = {_packed('x', digits, data_type)}\nx = {_unpacked(name, digits, data_type)}\n"


def numpy_reorder_line(name: str, src: MemoryDesc, dst: MemoryDesc) -> str:
    """Return one assignment: `name` is the stored array of `dst`, computed from `src`, the stored array of `src`.

    Raises:
        InvalidArguments: a side has no layout.
        Unimplemented: as `numpy_lines`, or the types differ.
    """
    if src.data_type != dst.data_type:
        raise Unimplemented(
            f"the numpy form does not convert {src.data_type} to {dst.data_type}: astype wraps where a reorder clamps. "
            "Use equal types, or form='c' or 'object'"
        )
    (one, data_type), two = (digit_order(src), addressed_layout(src, "a NumPy line")[1]), digit_order(dst)
    return f"{name} = {_packed(_unpacked('src', one, data_type), two, data_type)}\n"


def digit_order(desc: MemoryDesc) -> DigitOrder:
    """Return the digits of a layout in which every element of the buffer is a stored coordinate, and each only once.

    Raises:
        InvalidArguments: `desc` has no layout.
        Unimplemented: the layout begins at an offset, has gaps, partial blocks or overlapping elements, RUNTIME dims,
            or extras.
    """
    layout, data_type = addressed_layout(desc, "a NumPy line")
    if layout.has_runtime:
        raise Unimplemented("a NumPy line needs every dim and stride: bind the RUNTIME ones first")
    if desc.extras:
        raise Unimplemented(
            f"no NumPy line describes oneDNN's extras {desc.extras}: describe the elements without extras"
        )
    if 0 in layout.dims:
        return DigitOrder(desc.dims, layout.dims, layout.dims, tuple(range(len(layout.dims))))
    axes = [axis.digits(n) for axis, n in zip(layout.axes, layout.dims, strict=True)]
    digits = [digit for axis in axes for digit in axis if digit.extent > 1]
    order = tuple(sorted(range(len(digits)), key=lambda i: -digits[i].stride))
    step = 1
    is_dense = all(prod(d.extent for d in axis) == n for axis, n in zip(axes, layout.dims, strict=True))
    for i in reversed(order):
        is_dense = is_dense and digits[i].stride == step
        step *= digits[i].extent
    if desc.offset0 or not is_dense:
        raise Unimplemented(
            f"no NumPy line describes {desc}: it begins at an offset or has gaps, partial blocks or overlapping "
            "elements, and a transpose has none of these. Use form='c'"
        )
    if data_type.is_sub_byte and step % 2:
        raise Unimplemented(
            f"no NumPy line describes {desc}: {step} elements of 4 bits end within a byte. Use form='c'"
        )
    if desc.swizzle is not None and step % desc.swizzle.chunk:
        raise Unimplemented(
            f"no NumPy line describes {desc}: its swizzle permutes runs of {desc.swizzle.chunk} elements, and {step} "
            "elements have gaps afterwards. Use form='c'"
        )
    return DigitOrder(desc.dims, layout.dims, tuple(digit.extent for digit in digits), order, desc.swizzle)


def _packed(array: str, digits: DigitOrder, data_type: DataType) -> str:
    """Return the expression of the stored elements of a logical array."""
    if digits.dims != digits.padded:
        # NumPy casts the zero of the padding to e8m0, which has none: there it pads bytes.
        array = array if data_type.has_zero or not data_type.is_number else f"{array}.view(np.uint8)"
        widths = ", ".join(f"(0, {n - dim})" for dim, n in zip(digits.dims, digits.padded, strict=True))
        array = f"np.pad({array}, [{widths}])"
    if digits.logical != digits.padded:
        array += f".reshape({_numbers(digits.logical)})"
    flat = f"{array}{_transposed(digits.order)}.ravel()"
    flat += f"[{digits.swizzled_order}]" if digits.swizzle else ""
    if not data_type.is_sub_byte:
        return flat
    return f"({flat}.view(np.uint8) & 15).reshape(-1, 2) @ np.array([1, 16], np.uint8)"


def _unpacked(array: str, digits: DigitOrder, data_type: DataType) -> str:
    """Return the expression of the logical array of stored elements."""
    if data_type.is_sub_byte:
        array = f"np.stack([{array} & 15, {array} >> 4], -1)"
        array = f"((({array}) ^ 8) - 8).view(np.int8)" if data_type.kind == "signed" else array
        array += ".ravel()" if digits.swizzle else ""
    array += f"[{digits.swizzled_order}]" if digits.swizzle else ""
    array += f".reshape({_numbers(digits.physical)}){_transposed(digits.inverse)}"
    if digits.logical != digits.padded:
        array += f".reshape({_numbers(digits.padded)})"
    if digits.dims == digits.padded:
        return array
    last = max(i for i, (dim, n) in enumerate(zip(digits.dims, digits.padded, strict=True)) if dim != n)
    parts = [f":{dim}" if dim != n else ":" for dim, n in zip(digits.dims, digits.padded, strict=True)]
    return f"{array}[{', '.join(parts[: last + 1])}]"


def _transposed(order: tuple[int, ...]) -> str:
    """Return the call that transposes axes to `order`; empty where they have it."""
    return "" if order == tuple(range(len(order))) else f".transpose({_numbers(order)})"


def _numbers(values: tuple[int, ...]) -> str:
    """Return the arguments of `reshape` or `transpose`; an empty tuple for none."""
    return ", ".join(map(str, values)) or "()"
