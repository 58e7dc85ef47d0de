"""`verify`: compares the places that a table, a packer or a packed buffer shows with those of a descriptor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, DataTypeLike
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc, parse_desc
from inlay.descriptor.compound_table import find_compound
from inlay.descriptor.fields import addressed_layout
from inlay.errors import InvalidArguments, shown
from inlay.inference.compound_verification import CompoundVerification, verify_compound
from inlay.inference.diagnosis import explain_observation, separate_padding
from inlay.inference.layout_inference import Source, as_call, as_dims, as_length, observe, type_of_elements
from inlay.inference.observation import Observation, coordinate_of, coordinate_text
from inlay.inference.packers import Codes, PackerRun, observe_packer, run_packer
from inlay.inference.results import Diagnosis, InferredLayout, Offsets
from inlay.inference.spelling import spell_layout
from inlay.inference.tables import TableKind, codes_of, logical_codes, observe_pair
from inlay.layout import Dims


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify`; true as a truth value if the source agrees with the descriptor."""

    desc: MemoryDesc
    """The descriptor that the source was compared with."""
    coordinate: Dims | None
    """Coordinate of the first difference in row-major order, in the padding if no data differs; None if none does."""
    expected: int | None
    """Place of this coordinate by the descriptor, in elements; None if nothing differs."""
    found: int | None
    """Place where the source has the element of this coordinate, in elements; None if nowhere."""
    byte: int | None
    """Lowest wrong byte of the packed buffer; None if nothing differs. For packers, it differs in at least one
    call; for tables, it is the first byte of the lowest wrong place."""
    problem: str
    """Text: the first difference, or the agreement."""
    repair: InferredLayout | Diagnosis | None
    """Result of `infer` for the source; None if nothing differs or nothing can be inferred."""

    def __bool__(self) -> bool:
        """Return True if the source agrees with the descriptor."""
        return self.byte is None

    def __str__(self) -> str:
        """Return the difference on one line, and on the next the layout that would agree, or the diagnosis."""
        if self.repair is None:
            return self.problem
        if isinstance(self.repair, Diagnosis):
            return f"{self.problem}\n    no layout makes it right: {self.repair.problem}"
        change = _change_text(self.desc, self.repair)
        return f"{self.problem}\n    {change} makes it right" if change else self.problem


@overload
def verify(
    desc: MemoryDesc,
    source: Source,
    logical: npt.NDArray[Any] | None = None,
    *,
    table: TableKind | None = None,
    marker: int = -1,
    length: int | None = None,
    signature: Sequence[object] | None = None,
) -> Verification: ...


@overload
def verify(
    desc: CompoundDesc,
    source: Source,
    logical: Mapping[str, npt.NDArray[Any]] | npt.NDArray[Any] | None = None,
    *,
    length: int | None = None,
) -> CompoundVerification: ...


@overload
def verify(
    desc: str,
    source: Source,
    logical: Mapping[str, npt.NDArray[Any]] | npt.NDArray[Any] | None = None,
    *,
    dims: Iterable[int] | None = None,
    data_type: DataTypeLike | None = None,
    table: TableKind | None = None,
    marker: int = -1,
    length: int | None = None,
    signature: Sequence[object] | None = None,
) -> Verification | CompoundVerification: ...


def verify(
    desc: MemoryDesc | CompoundDesc | str,
    source: Source,
    logical: Any = None,
    *,
    dims: Iterable[int] | None = None,
    data_type: DataTypeLike | None = None,
    table: TableKind | None = None,
    marker: int = -1,
    length: int | None = None,
    signature: Sequence[object] | None = None,
) -> Verification | CompoundVerification:
    """Compare a packer, a table or a packed buffer with a descriptor; return the agreement or the first difference.

    With `logical`, `source` is the packed buffer of this array, and bytes are compared, those of gaps excepted.
    Otherwise `source` is a packer or a table, and `table`, `marker`, `length` and `signature` are those of `infer`.
    Elements must be in their places, and places of padding must hold 0. A packer that fills a buffer must not write
    elsewhere.

    `desc` may be the text of any notation, such as "nChw8c", "tensorrt:CHW32" or "Swizzle<3,3,3> o (8,64):(64,1)", with
    `dims` and `data_type`; they are those of `logical` by default, or else f32.

    With a `CompoundDesc`, or the name of a compound format such as "ggml:Q4_0", `source` is a packer of streams or a
    packed buffer, and `logical` the arrays of the streams in a dict, or the f32 values that the buffer unpacks to; only
    `length`, in bytes, matters besides. A packer gets a dict of arrays, or `logical`.

    Post-condition: `bool(result)` is False exactly if a byte of an element or of padding is wrong, or a packer writes
        another byte of its buffer; `result.byte` is then the lowest one that differed in a call. For tables, it is the
        first byte of the lowest wrong place.

    Raises:
        InvalidArguments: `desc` has no layout or elements that overlap or lie below the buffer; it is text without
            dims, or a descriptor with dims or a type besides; or as `infer`.
        FormatTagError, PatternError, NotationError: `desc` is text of no notation.
        Unimplemented: `desc` has RUNTIME dims or strides; or as `infer`.

    >>> from inlay.descriptor import MemoryDesc
    >>> desc = MemoryDesc((2, 3), "f32", "ab")
    >>> print(verify(desc, lambda x: x.T.copy()))
    element 1 at (0, 1) is in place 2, expected 1; the first wrong byte is 6
        ba instead of ab makes it right
    >>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> print(verify("cutlass:RowMajor", x.copy(), x))
    r c -> r c: all 6 elements of dims 2x3 are in their places
    """
    described = _as_desc(desc, dims, data_type, logical)
    if isinstance(described, CompoundDesc):
        return verify_compound(described, source, logical, as_length(length))
    expected = _ExpectedPlaces.of(described)
    if logical is not None:
        return _verify_buffer(expected, source, logical)
    sizes, element = expected.desc.dims, expected.data_type
    length = as_length(length)
    call = as_call(source, element, length, signature)
    if call is None:
        return _verify_places(expected, observe(source, sizes, element, table, marker, None, length, signature))
    return _verify_run(expected, run_packer(call, sizes, element, length))


def _as_desc(
    desc: object, dims: Iterable[int] | None, data_type: DataTypeLike | None, logical: Any
) -> MemoryDesc | CompoundDesc:
    """Return the descriptor of a text with dims, or the one that is given.

    Raises:
        InvalidArguments, FormatTagError, PatternError, NotationError, Unimplemented: as `verify`.
    """
    if isinstance(desc, (MemoryDesc, CompoundDesc)):
        if dims is not None or data_type is not None:
            given = f"dims {shown(dims)}" if dims is not None else f"data type {shown(data_type)}"
            raise InvalidArguments(f"{desc!r} is given with {given}: leave it out, a descriptor has its own")
        return desc
    if not isinstance(desc, str):
        raise InvalidArguments(f"desc is {shown(desc)}: give the MemoryDesc to compare with, or its format with dims=")
    fmt = find_compound(desc)
    if fmt is not None and isinstance(logical, Mapping):
        logical = logical.get(fmt.values.name)
    if dims is None:
        if not isinstance(logical, np.ndarray):
            raise InvalidArguments(f"format {shown(desc)} has no dims: give dims=, or logical=")
        dims = logical.shape
    return parse_desc(desc, as_dims(dims), type_of_elements(data_type, None if fmt is not None else logical))


@dataclass(frozen=True, slots=True, eq=False)
class _ExpectedPlaces:
    """The places of elements and padding by a descriptor."""

    desc: MemoryDesc
    data_type: DataType
    places: Offsets
    """Place of each coordinate within the padded dims."""
    length: int
    """Least length of the buffer, in elements."""

    @classmethod
    def of(cls, desc: MemoryDesc) -> "_ExpectedPlaces":
        """Return the places of a descriptor.

        Raises:
            InvalidArguments, Unimplemented: as `verify`.
        """
        layout, data_type = addressed_layout(desc, "verify")
        as_dims(layout.dims)
        as_dims(desc.dims)
        coordinates = np.indices(layout.dims).reshape(layout.ndims, -1).T
        places = np.asarray(desc.offset(coordinates), np.int64)
        if int(places.min()) < 0 or len(np.unique(places)) != len(places):
            raise InvalidArguments(
                f"{desc!r} has elements that overlap or lie below its buffer: packers cannot fill it"
            )
        return cls(desc, data_type, places.reshape(layout.dims), int(places.max()) + 1)

    @property
    def data(self) -> Offsets:
        """The place of each element, by row-major index."""
        return self.places[tuple(slice(n) for n in self.desc.dims)].reshape(-1)

    def codes(self, elements: Codes, length: int) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Return the codes of a packed buffer, and for each place True if it is an element or padding."""
        used = np.zeros(max(length, self.length), bool)
        used[self.places] = True
        codes = np.zeros(len(used), elements.dtype)
        codes[self.data] = elements
        return codes, used

    def coordinate_of(self, place: int) -> Dims | None:
        """Return the coordinate, within the padded dims, whose place this is; None if it is in a gap."""
        at = np.flatnonzero(self.places.reshape(-1) == place)
        return coordinate_of(int(at[0]), self.places.shape) if at.size else None

    def byte_of(self, place: int) -> int:
        """Return the first byte of a place."""
        return place * self.data_type.bits // 8


def _verify_run(expected: _ExpectedPlaces, run: PackerRun) -> Verification:
    """Return the verification of what a packer wrote."""
    count = len(expected.data)
    first = np.arange(1, count + 1)
    wrong: list[tuple[int, int]] = []
    for numbers, series in zip((first, first[::-1]), run.written, strict=True):
        for codes in series:
            want, used = expected.codes(run.digits.encode(numbers % run.digits.base), len(codes))
            numbers = numbers // run.digits.base
            wrong += _first_wrong_byte(expected, want, used, codes)
    wrong += _first_gap_write(expected, run)
    observation = observe_packer(run, expected.desc.dims, expected.data_type)
    if not wrong:
        return _agreement(expected)
    byte, place = min(wrong)
    return _difference(expected, observation, byte, place)


def _first_gap_write(expected: _ExpectedPlaces, run: PackerRun) -> list[tuple[int, int]]:
    """Return the lowest byte that a packer writes beside elements and padding, and its place, in a list; or none."""
    if run.initial is None:
        return []
    gaps = np.ones(len(run.written[0][0]), bool)
    gaps[expected.places[expected.places < len(gaps)]] = False
    at = np.flatnonzero(gaps & ~run.untouched())
    if not at.size:
        return []
    place = int(at[0])
    itemsize = expected.data_type.itemsize
    if expected.data_type.is_sub_byte:
        return [(expected.byte_of(place), place)]
    pairs = [
        (codes[place : place + 1], before[place : place + 1])
        for written, initial in zip(run.written, run.initial, strict=True)
        for codes, before in zip(written, initial, strict=True)
    ]
    changed = [np.flatnonzero(a.view(np.uint8) != b.view(np.uint8)) for a, b in pairs]
    return [(place * itemsize + min(int(one[0]) for one in changed if one.size), place)]


def _verify_buffer(expected: _ExpectedPlaces, packed: object, logical: npt.NDArray[Any]) -> Verification:
    """Return the verification of the packed buffer of a logical array."""
    desc, data_type = expected.desc, expected.data_type
    codes = codes_of(packed, data_type, "packed buffer")
    want, used = expected.codes(logical_codes(logical, desc.dims, data_type), len(codes))
    wrong = _first_wrong_byte(expected, want, used, codes)
    if not wrong:
        return _agreement(expected)
    byte, place = wrong[0]
    try:
        observation = separate_padding(observe_pair(packed, logical, desc.dims, data_type))
    except InvalidArguments:  # values repeat, so only bytes can be compared
        return _difference(expected, None, byte, place)
    return _difference(expected, observation, byte, place)


def _first_wrong_byte(
    expected: _ExpectedPlaces, want: Codes, used: npt.NDArray[np.bool_], codes: Codes
) -> list[tuple[int, int]]:
    """Return the lowest wrong byte and its place, in a list, which is empty if all used places are right."""
    longer = np.zeros(len(want), want.dtype)
    longer[: len(codes)] = codes[: len(want)]
    is_wrong = used & (longer != want)
    is_wrong[len(codes) :] = used[len(codes) :]
    at = np.flatnonzero(is_wrong)
    if not at.size:
        return []
    place = int(at[0])
    if expected.data_type.is_sub_byte or place >= len(codes):
        return [(expected.byte_of(place), place)]
    pair = np.array([want[place], longer[place]]).view(np.uint8).reshape(2, -1)
    return [(expected.byte_of(place) + int(np.flatnonzero(pair[0] != pair[1])[0]), place)]


def _verify_places(expected: _ExpectedPlaces, observation: Observation) -> Verification:
    """Return the verification of a table."""
    wrong = expected.data[observation.places != expected.data]
    if observation.length is not None and observation.length < expected.length:
        wrong = np.append(wrong, expected.places[expected.places >= observation.length])
    if observation.free is not None:
        padding = np.setdiff1d(expected.places, expected.data)
        inside = padding[padding < len(observation.free)]
        wrong = np.append(wrong, inside[~observation.free[inside]])
    if not wrong.size:
        return _agreement(expected)
    place = int(wrong.min())
    return _difference(expected, observation, expected.byte_of(place), place)


def _agreement(expected: _ExpectedPlaces) -> Verification:
    """Return the verification without a difference."""
    desc = expected.desc
    dims = "x".join(map(str, desc.dims))
    problem = f"{_format_text(desc)}: all {len(expected.data)} elements of dims {dims} are in their places"
    return Verification(desc, None, None, None, None, problem, None)


def _difference(expected: _ExpectedPlaces, observation: Observation | None, byte: int, place: int) -> Verification:
    """Return the verification with a difference at `place`; the observation is None if values repeat."""
    desc = expected.desc
    coordinate = expected.coordinate_of(place)
    if observation is None:
        problem = f"byte {byte} of the buffer is wrong: it is of {_coordinate_text(desc, coordinate)} in place {place}"
        return Verification(desc, coordinate, place, None, byte, problem, None)
    is_moved = observation.places != expected.data
    if observation.elements is not None:  # an element may have several places, of which one is right
        at = expected.data.clip(max=len(observation.elements) - 1)
        is_moved &= (at != expected.data) | (observation.elements[at] != np.arange(len(at)))
    moved = np.flatnonzero(is_moved)
    repair = explain_observation(observation)
    if not moved.size and coordinate is None:
        problem = (
            f"place {place} is of no element and no padding, and the packer writes byte {byte} there; with logical=, a "
            "packed buffer is compared without its header and gaps"
        )
        return Verification(desc, None, None, None, byte, problem, None)
    if not moved.size:
        problem = f"{_coordinate_text(desc, coordinate)} in place {place} holds a wrong value (byte {byte})"
        if observation.length is not None and place >= observation.length:
            problem = f"the buffer ends before {_coordinate_text(desc, coordinate)} in place {place} (byte {byte})"
        return Verification(desc, coordinate, place, None, byte, problem, repair)
    first = int(moved[0])
    want, have = int(expected.data[first]), int(observation.places[first])
    where = f"is in place {have}" if have >= 0 else "is in no place"
    problem = f"element {coordinate_text(first, desc.dims)} {where}, expected {want}; the first wrong byte is {byte}"
    coordinate = coordinate_of(first, desc.dims)
    return Verification(desc, coordinate, want, have if have >= 0 else None, byte, problem, repair)


def _coordinate_text(desc: MemoryDesc, coordinate: Dims | None) -> str:
    """Return the text of a coordinate of data or padding, or of the gaps."""
    if coordinate is None:
        return "a gap"
    inside = all(x < n for x, n in zip(coordinate, desc.dims, strict=True))
    return f"{'element' if inside else 'padding'} {coordinate}"


def _format_text(desc: MemoryDesc) -> str:
    """Return the layout of a descriptor in its shortest notation."""
    tag = desc.spelling or desc.tag
    if tag is None:
        layout, data_type = addressed_layout(desc, "verify")
        spelled = spell_layout(layout, desc.dims, data_type, desc.offset0, desc.swizzle)
        tag = None if isinstance(spelled, InvalidArguments) else spelled[1]
    return InferredLayout(desc, tag, None, ()).format


def _change_text(desc: MemoryDesc, repair: InferredLayout) -> str:
    """Return the change from a descriptor to an inferred layout, empty if there is none."""
    have = _format_text(desc)
    changes = []
    if repair.format != have and (desc.tag is None or repair.tag != desc.tag):
        changes.append(f"{repair.format} instead of {have}")
    if desc.padded_dims != repair.desc.padded_dims:
        changes.append(f"padded_dims {repair.desc.padded_dims} instead of {desc.padded_dims}")
    if desc.offset0 != repair.desc.offset0:
        changes.append(f"offset0 {repair.desc.offset0} instead of {desc.offset0}")
    if repair.pitch is not None:
        changes.append(f"strides {repair.pitch}")
    if repair.swizzle != desc.swizzle:
        changes.append(str(repair.swizzle) if repair.swizzle is not None else f"no {desc.swizzle}")
    if not changes and not desc.equivalent(repair.desc):
        changes.append(repr(repair.desc))
    return ", ".join(changes)
