"""Plans of quantizations and of conversions back to floats: what becomes of each stored tensor.

Rules without a pattern quantize the tensors of floats that have two axes or more. Vectors, such as biases and the
factors of normalizations, are a small part of a network and stay floats.
"""

from collections.abc import Sequence
from math import prod

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import CompoundFormat
from inlay.errors import FileError, InvalidArguments, Unimplemented
from inlay.layout import Dims
from inlay.memory.compound.quantize import QUANTIZERS
from inlay.storage.dequantize_operation import ScaleTensor
from inlay.storage.packed import STORED_TYPES
from inlay.storage.quantization import NAME, Quantization, QuantizationScheme
from inlay.storage.quantization_drafts import DequantizeDraft, PackDraft, QuantizeDraft, UnpackDraft
from inlay.storage.quantization_text import (
    QUANTIZATION_KEY,
    BlockTensor,
    ScaledTensor,
    read_quantization,
    write_quantization,
)
from inlay.storage.quantize_operation import F32, byte_dims
from inlay.storage.rules import FormatRule, destination_descriptor
from inlay.storage.store import Store, StoredTensor, raw_bytes, row_major
from inlay.storage.target import NewTensor
from inlay.storage.tensor_draft import ReorderDraft, TensorDraft

_QUANT_TYPES = frozenset({"s8", "s4", "f8_e4m3", "f8_e5m2", "f4_e2m1"})
"""Data types of tensors whose scales are searched for by name."""

_STALE_KEYS = ("general.file_type",)
"""Metadata that say how most tensors of a file are quantized (GGUF); readers infer it from the tensors."""


class QuantizationPlanner:
    """The drafts of the tensors of a store that are quantized or dequantized, and the text on them."""

    def __init__(
        self,
        store: Store,
        quantization: Quantization | None,
        dequantize: bool,
        names: str,
        data_type: DataType | None,
    ) -> None:
        """Read what the store says on its quantized tensors.

        `names` is the pattern of the names of scales, and `data_type` that of floats to compute, None for the original.

        Raises:
            FileError: the text on quantized tensors is damaged.
            InvalidArguments: there is nothing to dequantize, or scales do not fit their quants.
        """
        self._store, self._quantization, self._names, self._data_type = store, quantization, names, data_type
        self._tensors = {tensor.name: tensor for tensor in store.tensors}
        known = read_quantization(store.location, store.metadata)
        self._known = {name: known[name] for name in known if name in self._tensors}
        for tensor in store.tensors:
            if tensor.compound is not None:
                self._known[tensor.name] = BlockTensor(F32, tensor.compound)
        self._text = dict(self._known)
        self._scaled = self._find_scaled() if dequantize else {}
        self._dequantizes = dequantize
        if dequantize and not self._scaled and not self._known:
            raise InvalidArguments(
                f"{store.location} has no blocks, and no quants whose scales are named {names}: name the scales "
                "(--scales)"
            )

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the target: that of the store, with the text on the tensors of all drafts so far."""
        left_out = {QUANTIZATION_KEY, *(_STALE_KEYS if self._text != self._known else ())}
        texts = {key: text for key, text in self._store.metadata.items() if key not in left_out}
        return {**texts, **write_quantization(self._text)}

    @property
    def kept(self) -> tuple[StoredTensor, ...]:
        """The tensors of the store without scales that are multiplied into floats."""
        used = {name for scaled in self._scaled.values() for name in scaled.scales}
        return tuple(tensor for tensor in self._store.tensors if tensor.name not in used)

    def draft(
        self, tensor: StoredTensor, src: MemoryDesc | None, rule: FormatRule | None
    ) -> TensorDraft | ReorderDraft | None:
        """Return the draft of a tensor that is quantized, dequantized or in blocks; None for any other.

        Raises:
            InvalidArguments: a rule matches a tensor that cannot be quantized, blocks have no option `quantize`, or
                scales do not fit the quants.
            Unimplemented: no rule quantizes floats to the blocks of a format.
            FileError: blocks have another size in the file than their dims need.
        """
        known = self._known.get(tensor.name)
        if isinstance(known, BlockTensor):
            return self._draft_blocks(tensor, known, rule)
        if tensor.name in self._scaled:
            return self._dequantize(tensor, src, self._scaled[tensor.name], rule)
        if rule is None or (self._quantization is None and rule.compound is None):
            return None
        if not _is_chosen(tensor, src, rule):
            return None
        assert src is not None
        if self._quantization is None:
            raise InvalidArguments(
                f"{rule.text} quantizes tensor {tensor.label}, which rounds its numbers: ask for it "
                "(--quantize absmax, in Python quantize='absmax')"
            )
        if rule.compound is not None:
            return self._pack(tensor, src, rule, rule.compound, self._quantization)
        return self._quantize(tensor, src, rule, self._quantization)

    def _find_scaled(self) -> dict[str, ScaledTensor]:
        """Return the tensors with scales, by name: those of the text, and those that the pattern finds scales of."""
        scaled = {name: each for name, each in self._known.items() if isinstance(each, ScaledTensor)}
        for tensor in self._store.tensors:
            is_quants = tensor.desc is not None and tensor.desc.data_type in _QUANT_TYPES
            first = self._names.replace(NAME, tensor.name)
            if tensor.name in scaled or not is_quants or first not in self._tensors:
                continue
            assert tensor.desc is not None
            names = tuple(name for name in (first, f"{first}_2") if name in self._tensors)
            groups = _infer_groups(tensor, tensor.desc.dims, self._tensors[first])
            scaled[tensor.name] = ScaledTensor(F32, groups, names)
        return scaled

    # To quants

    def _quantize(
        self, tensor: StoredTensor, src: MemoryDesc, rule: FormatRule, quantization: Quantization
    ) -> TensorDraft:
        """Return the draft of a tensor with scales beside it."""
        element = quantization.element
        if element is None:
            raise InvalidArguments(
                f"tensor {tensor.label} is to be quantized to no type: choose one (--dtype s8), or blocks such as "
                "--to ggml:Q8_0"
            )
        scheme, dst = quantization.scheme, _describe_quants(tensor, src, rule, element.data_type)
        groups = scheme.groups(src.dims, tensor.label)
        dims: Dims = tuple(n // size for n, size in zip(src.dims, groups, strict=True))
        if scheme == QuantizationScheme():
            dims = (1,)
        names = quantization.name_scales(tensor.name)
        for name in names:
            if name in self._tensors:
                raise InvalidArguments(
                    f"the scales of tensor {tensor.label} are named {name}, as another tensor of "
                    f"{self._store.location} is: choose other names (--scales)"
                )
        news = [NewTensor(tensor.name, dst.dims, dst, dst)]
        scales = self._describe_scales(tensor, dims, quantization)
        news.append(NewTensor(names[0], dims, scales, scales))
        if len(names) > 1:
            news.append(NewTensor(names[1], (1,), row_major((1,), F32), row_major((1,), F32)))
        self._text[tensor.name] = ScaledTensor(_original_type(src), groups, names)
        return QuantizeDraft(tensor, src, tuple(news), quantization, groups)

    def _describe_scales(self, tensor: StoredTensor, dims: Dims, quantization: Quantization) -> MemoryDesc:
        """Return the descriptor of the scales of the groups."""
        if quantization.format is None or quantization.format.tag is None:
            return row_major(dims, quantization.scale_type)
        if quantization.format.tag.ndims != len(dims):
            raise InvalidArguments(
                f"{quantization.format.text} does not fit the scales of tensor {tensor.label}: their dims are {dims}"
            )
        return MemoryDesc(dims, quantization.scale_type, quantization.format.tag)

    def _pack(
        self,
        tensor: StoredTensor,
        src: MemoryDesc,
        rule: FormatRule,
        format: CompoundFormat,
        quantization: Quantization,
    ) -> TensorDraft:
        """Return the draft of a tensor in blocks."""
        if quantization.scheme != QuantizationScheme() or quantization.element is not None:
            raise InvalidArguments(
                f"{rule.text} defines the groups and types of its blocks: quantize with absmax alone, without --dtype"
            )
        if format.name not in QUANTIZERS:
            raise Unimplemented(
                f"{format.name} has no rule that quantizes floats: choose one of {', '.join(QUANTIZERS)}"
            )
        try:
            desc = CompoundDesc(format, src.dims)
        except InvalidArguments as error:
            raise InvalidArguments(
                f"{rule.text} does not fit tensor {tensor.label}: {error}, or name the tensors it is for, as in "
                f"'fc*={format.name}'"
            ) from error
        self._text[tensor.name] = BlockTensor(_original_type(src), desc)
        bytes_desc = row_major(byte_dims(desc), "u8")
        return PackDraft(tensor, src, (NewTensor(tensor.name, src.dims, bytes_desc, None, compound=format.name),), desc)

    # To floats

    def _draft_blocks(
        self, tensor: StoredTensor, known: BlockTensor, rule: FormatRule | None
    ) -> TensorDraft | ReorderDraft:
        """Return the draft of a tensor that is in blocks already: floats, or the same blocks."""
        desc = known.desc
        if tensor.nbytes != desc.size:
            raise FileError(
                f"cannot read {self._store.location}: tensor {tensor.label} has {tensor.nbytes} bytes, and {desc} "
                f"takes {desc.size}; convert the original again"
            )
        if self._dequantizes:
            del self._text[tensor.name]
            new = self._new_floats(tensor, desc.dims, known.data_type, rule)
            return UnpackDraft(tensor, row_major(byte_dims(desc), "u8"), (new,), desc)
        if rule is not None and rule.compound != desc.format and (rule.compound or rule.tag or self._quantization):
            raise InvalidArguments(
                f"{rule.text} does not fit tensor {tensor.label}: it is in blocks of {desc.format.name}; convert it to "
                "floats first (--dequantize)"
            )
        unchanged = raw_bytes(tensor.nbytes)
        new = NewTensor(tensor.name, desc.dims, unchanged, None, compound=desc.format.name)
        return ReorderDraft(tensor, unchanged, (new,))

    def _dequantize(
        self, tensor: StoredTensor, src: MemoryDesc | None, scaled: ScaledTensor, rule: FormatRule | None
    ) -> TensorDraft:
        """Return the draft of a tensor whose quants are multiplied by their scales."""
        if src is None or len(scaled.groups) != src.ndims:
            raise FileError(
                f"cannot read {self._store.location}: the scales of tensor {tensor.label} are for other dims; convert "
                "the original again"
            )
        scales = tuple(self._scale_tensor(tensor, src.dims, name, scaled.groups) for name in scaled.scales)
        self._text.pop(tensor.name, None)
        new = self._new_floats(tensor, src.dims, scaled.data_type, rule)
        return DequantizeDraft(tensor, src, (new,), scales)

    def _new_floats(self, tensor: StoredTensor, dims: Dims, original: DataType, rule: FormatRule | None) -> NewTensor:
        """Return the tensor of floats that is computed."""
        data_type = self._data_type or original
        if data_type.kind != "float" or data_type.is_exponent:
            raise InvalidArguments(f"tensor {tensor.label} cannot become {data_type}: choose a float type (--dtype)")
        if rule is not None and rule.compound is not None:
            raise InvalidArguments(
                f"{rule.text} does not fit tensor {tensor.label}, which becomes floats: quantize them in a second "
                "conversion"
            )
        plain = row_major(dims, data_type)
        dst = plain if rule is None else destination_descriptor(tensor, plain, rule, data_type)
        return NewTensor(tensor.name, dims, dst, dst)

    def _scale_tensor(self, tensor: StoredTensor, dims: Dims, name: str, groups: Dims) -> ScaleTensor:
        """Return a tensor of scales, after checking that it fits the quants."""
        stored = self._tensors.get(name)
        if stored is None:
            raise InvalidArguments(
                f"the scales {name} of tensor {tensor.label} are not in {self._store.location}: convert from a file "
                "that has them"
            )
        desc = _describe_stored(stored)
        if desc is None or desc.require_layout(stored.label)[1].kind != "float":
            raise InvalidArguments(f"tensor {stored.label} cannot scale {tensor.label}: it is no tensor of floats")
        if prod(desc.dims) == 1:
            return ScaleTensor(stored, desc, (1,) * len(dims), dims)
        shape = tuple(-(-n // size) for n, size in zip(dims, groups, strict=True))
        if desc.dims not in (shape, tuple(n for n in shape if n > 1)):
            raise InvalidArguments(
                f"tensor {stored.label} has dims {desc.dims}, and the scales of {tensor.label} have {shape}: name its "
                "scales (--scales)"
            )
        return ScaleTensor(stored, desc, shape, groups)


def _is_chosen(tensor: StoredTensor, src: MemoryDesc | None, rule: FormatRule) -> bool:
    """Return True if a rule quantizes a tensor; False if the tensor is none that a rule without a pattern is for.

    Raises:
        InvalidArguments: a rule with a pattern matches a tensor that cannot be quantized.
    """
    data_type = None if src is None else src.require_layout(tensor.label)[1]
    is_float = data_type is not None and data_type.kind == "float" and not data_type.is_exponent
    if rule.pattern is None:
        return is_float and src is not None and src.ndims > 1 and data_type not in _QUANT_TYPES
    if not is_float:
        what = tensor.refusal or f"it is {data_type}, and floats are quantized"
        raise InvalidArguments(f"{rule.text} does not fit tensor {tensor.label}: {what}")
    return True


def _describe_quants(tensor: StoredTensor, src: MemoryDesc, rule: FormatRule, data_type: DataType) -> MemoryDesc:
    """Return the descriptor of quants.

    Raises:
        InvalidArguments: the rule has another number of axes than the tensor, or no layout of it has 4-bit elements.
    """
    if not data_type.is_sub_byte:
        return destination_descriptor(tensor, src, rule, data_type)
    in_bytes = destination_descriptor(tensor, src, rule, "s8")
    try:
        return destination_descriptor(tensor, src, rule, data_type)
    except InvalidArguments as error:
        raise InvalidArguments(f"tensor {tensor.label} cannot be {data_type} in {in_bytes.tag}: {error}") from error


def _original_type(src: MemoryDesc) -> DataType:
    """Return the data type to which a tensor returns."""
    return src.require_layout("a tensor")[1]


def _describe_stored(tensor: StoredTensor) -> MemoryDesc | None:
    """Return the descriptor of a tensor of scales, which may be a scalar."""
    if tensor.desc is not None or tensor.shape:
        return tensor.desc
    names = {stored: name for name, stored in STORED_TYPES.items()}
    name = names.get(tensor.stored_type)
    return None if name is None else row_major((1,), DATA_TYPES[name])


def _infer_groups(tensor: StoredTensor, dims: Dims, scales: StoredTensor) -> Dims:
    """Return the number of elements along each axis that share a scale, by the dims of the scales.

    Raises:
        InvalidArguments: they do not fit.
    """
    desc = _describe_stored(scales)
    counts: Sequence[int] = () if desc is None else desc.dims
    if prod(counts) == 1:
        return dims
    if len(counts) == 1 < len(dims) and counts[0] == dims[0]:
        counts = (*counts, *(1,) * (len(dims) - 1))
    if desc is None or len(counts) != len(dims) or any(not 1 <= c <= n for c, n in zip(counts, dims, strict=True)):
        raise InvalidArguments(
            f"tensor {scales.label} of dims {tuple(counts)} does not scale {tensor.label} of dims {dims}: name the "
            "scales (--scales)"
        )
    is_square = sum(1 < count < n for n, count in zip(dims, counts, strict=True)) > 1
    return tuple(_infer_group(tensor, n, count, is_square) for n, count in zip(dims, counts, strict=True))


def _infer_group(tensor: StoredTensor, n: int, count: int, is_square: bool) -> int:
    """Return the size of the groups of an axis: equal ones, or a power of two of which the last group is a part.

    Groups along one axis divide it. Square blocks, such as those of 128 x 128 of DeepSeek, may end with a part.
    """
    sizes = [1 << power for power in range(n.bit_length()) if -(-n // (1 << power)) == count]
    if n % count == 0 and not (is_square and len(sizes) == 1):
        return n // count
    if len(sizes) != 1:
        raise InvalidArguments(
            f"tensor {tensor.label} has {n} elements along an axis and {count} scales: no power of two is the size of "
            "such groups"
        )
    return sizes[0]
