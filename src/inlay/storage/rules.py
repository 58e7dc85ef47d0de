"""Rules of a conversion: formats for tensors by name, and the formats of tensors that a file does not describe."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

from inlay.data_type import DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_format import CompoundFormat
from inlay.descriptor.compound_table import find_compound
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.notation import Notation, parse_notation
from inlay.notation.format_tag import FormatTag
from inlay.storage.store import Store, StoredTensor, is_row_major, row_major

PLAIN = "plain"
"""Name that stands for row-major in place of a tag, for any number of dims."""


@dataclass(frozen=True, slots=True)
class FormatRule:
    """A format for tensors by name: `conv*.weight=OIhw16i16o`, or a format alone for every tensor."""

    pattern: str | None
    """Shell pattern for tensor names (`*`, `?`, `[abc]`); None matches every tensor."""
    tag: Notation | None
    """Format in any notation; None means row-major, written `plain`, or a compound format."""
    text: str
    """Text from which the rule was parsed."""
    compound: CompoundFormat | None = None
    """Compound format, such as `ggml:Q4_0`; then `tag` is None."""

    def matches(self, name: str) -> bool:
        """Return True if the rule applies to the tensor `name`."""
        return self.pattern is None or fnmatchcase(name, self.pattern)


def parse_rule(text: str) -> FormatRule:
    """Parse `TAG` or `PATTERN=TAG`; the tag is any text of `parse_notation`, a compound format, or `plain` (row-major).

    Raises:
        InvalidArguments: the pattern is empty.
        FormatTagError, PatternError, NotationError: TAG is no format tag, nor of another notation.

    >>> rule = parse_rule("conv*.weight=OIhw16i16o")
    >>> rule.matches("conv1.weight"), rule.matches("fc.weight"), str(rule.tag)
    (True, False, 'ABcd16b16a')
    """
    pattern, equals, tag = text.rpartition("=")
    if equals and not pattern:
        raise InvalidArguments(
            f"the name pattern before '=' in {text!r} is empty: write *{text} for every tensor, or the tag alone"
        )
    compound = find_compound(tag)
    is_notation = tag != PLAIN and compound is None
    return FormatRule(pattern if equals else None, parse_notation(tag) if is_notation else None, text, compound)


def require_match(rule: FormatRule, store: Store) -> None:
    """Check that the rule matches a tensor of the store.

    Raises:
        InvalidArguments: it matches none.
    """
    if any(rule.matches(t.name) for t in store.tensors):
        return
    if not store.tensors:
        raise InvalidArguments(f"{store.location} holds no tensor: there is nothing to convert")
    names = ", ".join(t.label for t in store.tensors[:3])
    more = f" and {len(store.tensors) - 3} more" if len(store.tensors) > 3 else ""
    raise InvalidArguments(f"no tensor of {store.location} matches {rule.pattern!r}: its tensors are {names}{more}")


def first_match(rules: Sequence[FormatRule], name: str) -> FormatRule | None:
    """Return the first rule that applies to the tensor `name`, or None."""
    return next((rule for rule in rules if rule.matches(name)), None)


def destination_descriptor(
    tensor: StoredTensor, src: MemoryDesc, rule: FormatRule, data_type: DataTypeLike | None
) -> MemoryDesc:
    """Return the descriptor of the result for a rule of `to`.

    Raises:
        InvalidArguments: the rule has another number of axes than the tensor.
    """
    src_type = src.require_layout(rule.text)[1]
    dst_type = src_type if data_type is None else as_data_type(data_type)
    if rule.tag is None:
        return row_major(src.dims, dst_type)
    if rule.tag.ndims != src.ndims:
        raise InvalidArguments(
            f"{rule.text} does not fit tensor {tensor.label}: {_places(rule.tag)}, dims {src.dims} "
            f"are {src.ndims}; name the tensors it is for, as in 'conv*=TAG'"
        )
    return MemoryDesc(src.dims, dst_type, rule.tag)


def _places(notation: Notation) -> str:
    """Return the text that says how many axes a format places."""
    if isinstance(notation, FormatTag):
        return f"{notation} has {notation.ndims} letters"
    return f"it has {notation.ndims} axes"


def source_descriptor(tensor: StoredTensor, rule: FormatRule, dims: Dims | None = None) -> MemoryDesc | None:
    """Return the descriptor, in the format of `rule`, of a tensor that the file stores without a descriptor.

    The shape in the file has one entry for each letter of the tag (the number of blocks if the axis is blocked), then
    one for each inner block. Or it has a single entry, and `dims` are the logical dims. For another notation than a
    tag, `dims` are the logical dims, and the shape has any number of entries.

    Raises:
        InvalidArguments: the shape does not fit the tag or `dims`, the file has a descriptor of the tensor, or no
            descriptor has its type or number of dims.
    """
    if rule.compound is not None:
        raise InvalidArguments(
            f"{rule.text} is no format of one array of numbers: blocks are read from GGUF files and from files that "
            "Inlay wrote (--dequantize)"
        )
    if rule.tag is None:
        return tensor.desc
    if tensor.is_packed:
        raise InvalidArguments(f"tensor {tensor.label} already has the descriptor {tensor.desc}: leave out {rule.text}")
    desc = tensor.desc
    if desc is None:
        raise InvalidArguments(f"{rule.text} does not fit tensor {tensor.label}: {tensor.refusal}")
    if not is_row_major(desc):
        raise InvalidArguments(f"{rule.text} does not fit tensor {tensor.label}: it is column-major; save it row-major")
    if not isinstance(rule.tag, FormatTag):
        return _source_of_notation(tensor, rule, desc, rule.tag, dims)
    logical = dims if dims is not None else _logical_dims(tensor, rule.tag)
    src = MemoryDesc(logical, desc.data_type, rule.tag)
    shape, flat = _memory_shape(src, rule.tag), (prod(src.padded_dims),)
    if tensor.shape not in (shape, flat):
        raise InvalidArguments(
            f"tensor {tensor.label} has the shape {tensor.shape}: {rule.text} of dims {src.dims} needs {shape} "
            f"or {flat}"
        )
    return src


def _source_of_notation(
    tensor: StoredTensor, rule: FormatRule, stored: MemoryDesc, notation: Notation, dims: Dims | None
) -> MemoryDesc:
    """Return the descriptor of a tensor whose format is in another notation than a tag."""
    if dims is None:
        raise InvalidArguments(f"{rule.text} needs the dims of tensor {tensor.label}: give them (--dims)")
    src = MemoryDesc(dims, stored.data_type, notation)
    if prod(tensor.shape) != prod(src.padded_dims):
        raise InvalidArguments(
            f"tensor {tensor.label} has the shape {tensor.shape}: {rule.text} of dims {src.dims} needs "
            f"{prod(src.padded_dims)} elements"
        )
    return src


def _memory_shape(desc: MemoryDesc, tag: FormatTag) -> Dims:
    """Return the shape of the memory of `desc`: outer axes in the order of the tag, then inner blocks."""
    outer = (desc.padded_dims[axis] // tag.blocks(axis) for axis in tag.order)
    return (*outer, *(size for _, size in tag.inner_blocks))


def _logical_dims(tensor: StoredTensor, tag: FormatTag) -> Dims:
    """Return the padded dims of a tensor whose shape in the file is outer axes in the order of `tag`, then blocks."""
    n, inner = tag.ndims, tuple(size for _, size in tag.inner_blocks)
    if len(tensor.shape) != n + len(inner) or tensor.shape[n:] != inner:
        blocks = f" and then {inner}" if inner else ""
        raise InvalidArguments(
            f"tensor {tensor.label} has the shape {tensor.shape}: memory in format {tag} has {n} entries{blocks}; "
            "give the dims of the tensor (--dims) if its memory is one axis"
        )
    dims = [0] * n
    for axis, count in zip(tag.order, tensor.shape, strict=False):
        dims[axis] = count * tag.blocks(axis)
    return tuple(dims)
