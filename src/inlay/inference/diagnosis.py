"""Inference from an observation: the layout, or the diagnosis why there is none.

The nearest layout of a faulty observation is found by majority: the step from one coordinate of an axis to the next is
the most frequent difference over all other coordinates, and the extent of a digit is the one that most steps fit. So a
few wrong elements do not change it, and are named.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise, product, takewhile

import numpy as np

from inlay.errors import InvalidArguments
from inlay.inference.digits import (
    FactoredOffsets,
    FactorFault,
    axis_values,
    factor_axis,
    factor_offsets,
    find_padding,
    layout_of,
    sum_of_axes,
)
from inlay.inference.observation import Observation, coordinate_text
from inlay.inference.results import Diagnosis, InferredLayout, Offsets
from inlay.inference.spelling import spell_layout
from inlay.inference.swizzles import find_swizzle
from inlay.inference.tables import find_overlap
from inlay.layout import Axis, Digit, Dims, Swizzle
from inlay.layout.axis import LETTERS, normal_axis

_MOST_EXTENTS = 24
"""Number of extents of a digit that the majority decides between."""
_MOST_NAMED = 16
_MOST_OPTIONS = 5
"""Number of extents of each digit that are compared over all digits."""
_MOST_LINES = 64
"""Number of lines of elements along an axis that are factored."""
_CORNER = 4096
"""Number of coordinates that exclude an exchange before all coordinates are compared; with more, two elements that
violate a layout are exchanged, and no swizzle is looked for."""
_SAMPLED_BLOCKS = 512
"""Number of blocks that exclude an extent before all blocks are compared."""
_MOST_TRIED = 4
"""Number of places of an element, whose value is also that of padding, with which a layout is sought."""
_MOST_FITS = 128
"""Number of combinations of digits that are compared."""


def explain_observation(observation: Observation) -> InferredLayout | Diagnosis:
    """Return the layout that explains an observation, or the reason why there is none."""
    explained = _explain_places(observation)
    return replace(explained, notes=observation.notes) if isinstance(explained, Diagnosis) else explained


def _explain_places(observation: Observation) -> InferredLayout | Diagnosis:
    """Return the layout that explains an observation, or the reason without the notes of the observation."""
    if observation.fault is not None:
        return _diagnose_twice(observation, observation.fault)
    lost = np.flatnonzero(observation.places < 0)
    if lost.size:
        return _diagnose_lost(observation, lost)
    factored = factor_offsets(observation.offsets)
    if isinstance(factored, FactoredOffsets):
        return describe_layout(observation, factored, None)
    overlap = find_overlap(observation)
    if overlap is not None:
        return overlap
    diagnosis = _diagnose_few(observation)
    if diagnosis is None or diagnosis.rule != "exchanged":
        exchange = _find_exchange(observation, factored)
        diagnosis = diagnosis if exchange is None else exchange
    exchange = diagnosis if diagnosis is not None and diagnosis.rule == "exchanged" else None
    if exchange is not None and observation.offsets.size > _CORNER:
        return exchange
    swizzled = _describe_swizzled(observation)
    if exchange is not None and not _is_as_simple(swizzled, exchange.nearest):
        return exchange
    if swizzled is not None:
        return swizzled
    for found in (_diagnose_xor(observation), diagnosis):
        if found is not None:
            return found
    return _diagnose_fault(observation, factored)


def _is_as_simple(swizzled: InferredLayout | Diagnosis | None, nearest: InferredLayout | None) -> bool:
    """Return whether a swizzled layout has no more digits than the layout with two exchanged elements.

    Both explain all places. Of a few elements any two may look exchanged, while few orders are those of a swizzle.
    """
    return isinstance(swizzled, InferredLayout) and (nearest is None or swizzled.digit_count <= nearest.digit_count)


def _describe_swizzled(observation: Observation) -> InferredLayout | Diagnosis | None:
    """Return the description of a swizzled layout, or None if no swizzle explains the places.

    A swizzle of offsets from the start of a buffer with a header is a diagnosis: descriptors count from the header.
    """
    start = int(observation.places[0])
    swizzled = find_swizzle(observation.offsets - start)
    if swizzled is not None:
        swizzle, factored = swizzled
        return describe_layout(observation, replace(factored, offset0=start), swizzle)
    swizzled = find_swizzle(observation.offsets) if start else None
    if swizzled is None:
        return None
    swizzle, factored = swizzled
    problem = (
        f"the places are those of a layout from place {factored.offset0} on, swizzled by {swizzle} that counts from "
        "place 0: descriptors count from the first element"
    )
    return Diagnosis("xor", problem)


def describe_layout(
    observation: Observation, factored: FactoredOffsets, swizzle: Swizzle | None
) -> InferredLayout | Diagnosis:
    """Return the description of the layout with these digits, padding and notes included."""
    digits = find_padding(factored, observation.free, observation.is_exact, swizzle)
    spelled = spell_layout(layout_of(digits), observation.dims, observation.data_type, factored.offset0, swizzle)
    if isinstance(spelled, InvalidArguments):
        return Diagnosis("digits", f"the offsets are those of digits, but no descriptor has them: {spelled}")
    desc, tag = spelled
    notes = [*observation.notes, *_padding_notes(observation, desc.padded_dims, digits.unexplained)]
    units = [i for i, n in enumerate(desc.padded_dims) if n == 1]
    if units and len(units) < len(desc.dims):
        notes.append(
            f"the position of {_axes_text(units)} in the order is free: {'its' if len(units) == 1 else 'their'}"
            " dim is 1"
        )
    return InferredLayout(desc, tag, observation.length, tuple(notes))


def _axes_text(axes: list[int]) -> str:
    """Return the names of axes: "axis b", "axes b and d"."""
    letters = [LETTERS[i] if i < len(LETTERS) else str(i) for i in axes]
    return f"axis {letters[0]}" if len(letters) == 1 else f"axes {', '.join(letters[:-1])} and {letters[-1]}"


def _padding_notes(observation: Observation, padded: Dims, unexplained: int) -> list[str]:
    """Return the sentences on padding that cannot be seen, or that can be read as a gap."""
    longer = [i for i, (n, more) in enumerate(zip(observation.dims, padded, strict=True)) if more > n]
    if observation.free is None:
        return ["the table does not show padding: it is that of whole blocks"] if longer else []
    notes = []
    if unexplained and observation.is_exact:
        many = f"{unexplained} places beside the padding are" if unexplained > 1 else "1 place beside the padding is"
        notes.append(f"{many} written too, such as gaps or the rest of the buffer")
    if longer and not observation.is_exact:
        notes.append(f"places without an element that complete {_axes_text(longer)} are read as padding, not as gaps")
    return notes


# Faults


def separate_padding(observation: Observation) -> Observation:
    """Return the observation of a pair with one place for the element whose value is also that of padding.

    It is the place that the layout of the other elements gives it, or else the nearest one that makes a layout.
    """
    fault, elements = observation.fault, observation.elements
    if fault is None or elements is None or len(fault.elements) > 1:
        return observation
    element = fault.elements[0]
    candidates = np.flatnonzero(elements == element)
    if 1 < len(candidates) <= 1 + np.count_nonzero(observation.places < 0):
        return observation  # the element may be in the places of those that are lost
    places = observation.places.copy()
    places[element] = -1
    _, expected = nearest_layout(replace(observation, places=places))
    if expected is not None and int(expected.flat[element]) in candidates:
        return _with_place(observation, element, int(expected.flat[element]))
    others = places[places >= 0] if (places >= 0).any() else candidates
    distances = np.maximum(others.min() - candidates, candidates - others.max()).clip(min=0)
    nearest = candidates[np.argsort(distances, kind="stable")[:_MOST_TRIED]]
    tried = [_with_place(observation, element, int(place)) for place in nearest]
    return next((one for one in tried if isinstance(explain_observation(one), InferredLayout)), tried[0])


def _with_place(observation: Observation, element: int, place: int) -> Observation:
    """Return an observation in which an element has one place only, and padding its other ones."""
    places, elements = observation.places.copy(), np.array(observation.elements)
    places[element] = place
    elements[elements == element] = -1
    elements[place] = element
    note = f"the value of element {coordinate_text(element, observation.dims)} is also that of padding"
    notes = (*observation.notes, note)
    return replace(observation, places=places, elements=elements, free=elements < 0, fault=None, notes=notes)


def _diagnose_twice(observation: Observation, fault: Diagnosis) -> Diagnosis:
    """Return a diagnosis; that of elements with several places with the layout of their first places."""
    if fault.rule != "twice" or observation.elements is None or observation.free is None:
        return fault
    at = np.flatnonzero(observation.elements >= 0)
    free = observation.free.copy()
    free[at[observation.places[observation.elements[at]] != at]] = True
    return replace(fault, nearest=nearest_layout(replace(observation, free=free))[0])


def _diagnose_lost(observation: Observation, lost: Offsets) -> Diagnosis:
    """Return the diagnosis of missing elements; it names the element in the place of the first, if there is one."""
    first = int(lost[0])
    count = f"{len(lost)} elements have no place" if len(lost) > 1 else "1 element has no place"
    slab = _slab_text(lost, observation.dims) if len(lost) > 1 else ""
    problem = f"{count}{slab}, the first is {coordinate_text(first, observation.dims)}"
    nearest, expected = nearest_layout(observation)
    elements = [int(i) for i in lost[:_MOST_NAMED]]
    if expected is not None:
        place = int(expected.flat[first])
        other = np.flatnonzero(observation.places == place)
        if other.size:
            element = coordinate_text(int(other[0]), observation.dims)
            problem = f"{problem}: element {element} is written to the same place {place}"
            return Diagnosis("overlap", problem, (min(first, int(other[0])), max(first, int(other[0]))), nearest)
    return Diagnosis("lost", problem, tuple(elements), nearest)


def _slab_text(elements: Offsets, dims: Dims) -> str:
    """Return " (all with b = 3..5)" if these are all elements with some coordinates of one axis, or an empty text."""
    mask = np.zeros(dims, bool)
    mask.reshape(-1)[elements] = True
    for i, n in enumerate(dims):
        at = np.flatnonzero(mask.any(axis=tuple(j for j in range(len(dims)) if j != i)))
        first, last = int(at[0]), int(at[-1])
        if len(elements) * n == len(at) * mask.size and len(at) == last - first + 1 < n:
            return f" (all with {_axes_text([i])[5:]} = {first if first == last else f'{first}..{last}'})"
    return ""


def _diagnose_few(observation: Observation) -> Diagnosis | None:
    """Return the diagnosis of a layout that most elements fit, or None if there is none."""
    nearest, expected = nearest_layout(observation)
    if nearest is None or expected is None:
        return None
    found = observation.places
    wrong = np.flatnonzero(expected.reshape(-1) != found)
    a, b = int(wrong[0]), int(wrong[-1])
    flat = expected.reshape(-1)
    if len(wrong) == 2 and flat[a] == found[b] and flat[b] == found[a]:
        return _exchanged(observation, a, b, nearest)
    if len(wrong) * 8 > len(found):
        return None
    problem = (
        f"{len(wrong)} of {len(found)} elements violate the layout of the others: element "
        f"{coordinate_text(a, observation.dims)} is in place {found[a]}, expected {flat[a]}"
    )
    return Diagnosis("moved", problem, tuple(int(i) for i in wrong[:_MOST_NAMED]), nearest)


def _exchanged(observation: Observation, a: int, b: int, nearest: InferredLayout | None) -> Diagnosis:
    """Return the diagnosis of two exchanged elements."""
    first, second = (coordinate_text(i, observation.dims) for i in (min(a, b), max(a, b)))
    return Diagnosis("exchanged", f"elements {first} and {second} are exchanged", (min(a, b), max(a, b)), nearest)


def _find_exchange(observation: Observation, fault: FactorFault) -> Diagnosis | None:
    """Return the diagnosis of two exchanged elements that hide digits from the majority, or None.

    Each element that breaks a progression is exchanged with the element in the place that would continue it.
    """
    places = observation.places
    for element, expected in dict.fromkeys(_doubtful_elements(observation, fault)):
        partner = np.flatnonzero(places == expected)
        if not partner.size or partner[0] == element:
            continue
        pair = element, int(partner[0])
        if isinstance(factor_offsets(_exchanged_corner(observation, pair)), FactorFault):
            continue
        swapped = places.copy()
        swapped[[*pair]] = swapped[[*pair[::-1]]]
        factored = factor_offsets(swapped.reshape(observation.dims))
        if isinstance(factored, FactoredOffsets):
            described = describe_layout(replace(observation, places=swapped), factored, None)
            nearest = described if isinstance(described, InferredLayout) else None
            return _exchanged(observation, element, int(partner[0]), nearest)
    return None


def _exchanged_corner(observation: Observation, pair: tuple[int, int]) -> Offsets:
    """Return the offsets of the first coordinates along each axis, where two elements are exchanged.

    The first coordinates of a layout have digits too, so this corner excludes most pairs.
    """
    edge = max(2, round(_CORNER ** (1 / len(observation.dims))))
    corner = observation.offsets[(slice(edge),) * len(observation.dims)].copy()
    for element, other in (pair, pair[::-1]):
        at = np.unravel_index(element, observation.dims)
        if all(x < edge for x in at):
            corner[at] = observation.places[other]
    return corner


def _doubtful_elements(observation: Observation, fault: FactorFault) -> Iterator[tuple[int, int]]:
    """Yield elements that break the progression along an axis, with the place that would continue it."""
    offsets = observation.offsets
    yield int(np.ravel_multi_index(fault.coordinate, observation.dims)), fault.expected
    for i, step in enumerate(np.array(offsets.strides) // offsets.itemsize):
        line = offsets[tuple(slice(None) if i == j else 0 for j in range(offsets.ndim))]
        if len(line) > 1:
            stride = _mode(np.diff(line))
            breaks = np.flatnonzero(np.diff(line) != stride)[:_MOST_EXTENTS]
            yield from ((int(x + 1) * int(step), int(line[x]) + stride) for x in breaks)
            yield from ((int(x) * int(step), int(line[x + 1]) - stride) for x in breaks)


def _diagnose_xor(observation: Observation) -> Diagnosis | None:
    """Return the diagnosis of places whose bits are XORs of bits of the row-major index, or None if they are not."""
    places, count = observation.places, len(observation.places)
    if count & (count - 1) or count < 4:
        return None
    for start in dict.fromkeys((0, int(places.min()))):
        relative = places - start
        columns = [int(relative[1 << j] ^ relative[0]) for j in range(count.bit_length() - 1)]
        predicted = np.full(count, relative[0], np.int64)
        for j, column in enumerate(columns):
            predicted ^= np.where(np.arange(count) >> j & 1, column, 0)
        if not np.array_equal(predicted, relative):
            continue
        rows = []
        for bit in range(max(columns).bit_length()):
            sources = [j for j, column in enumerate(columns) if column >> bit & 1]
            if len(sources) > 1:
                names = f"{', '.join(map(str, sources[:-1]))} and {sources[-1]}"
                rows.append(f"bit {bit} of the place is the XOR of bits {names} of the index")
        if rows:
            more = f" ({len(rows) - 4} more)" * (len(rows) > 4)
            return Diagnosis("xor", "; ".join(rows[:4]) + f"{more}: this is no layout and no swizzle of one")
        inverted = [bit for bit in range(int(relative[0]).bit_length()) if int(relative[0]) >> bit & 1]
        text = f"inverted bits of the place: {', '.join(map(str, inverted))}"
        return Diagnosis("xor", f"{text}; the places are those of a layout, XOR {int(relative[0])}")
    return None


def _diagnose_fault(observation: Observation, fault: FactorFault) -> Diagnosis:
    """Return the diagnosis of offsets that are not made of digits."""
    element = int(np.ravel_multi_index(fault.coordinate, observation.dims))
    at = f"element {coordinate_text(element, observation.dims)} is in place {fault.found}, expected {fault.expected}"
    if fault.axis is None:
        problem = f"the place is not a sum of functions of the coordinates, one for each axis: {at}"
        return Diagnosis("coordinates", problem, (element,))
    problem = f"the places along {_axes_text([fault.axis])} are not made of digits: {at}"
    return Diagnosis("digits", problem, (element,))


# Majority


def nearest_layout(observation: Observation) -> tuple[InferredLayout | None, Offsets | None]:
    """Return the layout that most elements fit, and its offsets; None if fewer than three quarters fit.

    Elements without a place do not count, but at most half may have none. Only the offsets are returned if two are
    equal.
    """
    offsets, dims = observation.offsets, observation.dims
    known = int(np.count_nonzero(offsets >= 0))
    if known * 2 < offsets.size:
        return None, None
    fits = [_fit_axes(offsets, axes) for axes in islice(product(*_candidate_axes(offsets)), _MOST_FITS)]
    agreed, start, axes = max(fits, key=lambda fit: fit[0])
    expected = sum_of_axes(start, [axis_values(axis, n) for axis, n in zip(axes, dims, strict=True)])
    if agreed * 4 < known * 3 or start < 0:
        return None, None
    if len(np.unique(expected)) < expected.size:
        return None, expected
    described = describe_layout(observation, FactoredOffsets(start, dims, axes), None)
    return (described if isinstance(described, InferredLayout) else None), expected


def _fit_axes(offsets: Offsets, axes: tuple[Axis, ...]) -> tuple[int, int, tuple[Axis, ...]]:
    """Return the number of elements that fit the digits of all axes, the first offset that fits most, and the axes."""
    lines = [axis_values(axis, n) for axis, n in zip(axes, offsets.shape, strict=True)]
    residual = np.where(offsets >= 0, offsets - sum_of_axes(0, lines), -1)
    start = _mode(residual[offsets >= 0])
    return int(np.count_nonzero(residual[offsets >= 0] == start)), start, axes


def _candidate_axes(offsets: Offsets) -> list[list[Axis]]:
    """Return for each axis the digits that its lines of elements show, the most frequent first; at most three."""
    result = []
    for i in range(offsets.ndim):
        lines = np.moveaxis(offsets, i, 0).reshape(offsets.shape[i], -1)
        if lines.shape[1] == 1:
            result.append(_majority_axes(lines[:, 0] - lines[0, 0]))
            continue
        chosen = lines[:, :: max(1, lines.shape[1] // _MOST_LINES)]
        chosen = chosen[:, (chosen >= 0).all(axis=0)]
        shown: Counter[Axis] = Counter()
        for line in (chosen - chosen[:1]).T:
            axis = factor_axis(line)
            if isinstance(axis, Axis):
                shown[axis] += 1
        found = [axis for axis, _ in shown.most_common(3)]
        result.append(found or _majority_axes(_majority_line(lines)))
    return result


def _mode(values: Offsets) -> int:
    """Return the most frequent value, the smallest of several; 0 if there is none."""
    if not values.size:
        return 0
    unique, counts = np.unique(values, return_counts=True)
    return int(unique[counts.argmax()])


def _majority_line(lines: Offsets) -> Offsets:
    """Return offsets along an axis, from 0: sums of the most frequent steps of its lines, until no line has a step."""
    shown = takewhile(len, ((b - a)[(a >= 0) & (b >= 0)] for a, b in pairwise(lines)))
    steps = [_mode(differences) for differences in shown]
    return np.concatenate([[0], np.cumsum(np.array(steps, np.int64))]).astype(np.int64)


def _majority_axes(values: Offsets) -> list[Axis]:
    """Return the digits that most values along one line fit, the best first; at most three."""
    found = [
        normal_axis(Axis(digits[-1].stride, tuple(reversed(digits[:-1]))), len(values)) if digits else Axis(0)
        for digits in _majority_digits(values)
    ]
    unique = list(dict.fromkeys(found))
    fits = [(_fit_axes(values, (axis,))[0], -k, axis) for k, axis in enumerate(unique)]
    return [axis for _, _, axis in sorted(fits, key=lambda fit: fit[:2], reverse=True)[:3]] or [Axis(0)]


def _majority_digits(values: Offsets) -> Iterator[tuple[Digit, ...]]:
    """Yield lists of digits, innermost first, that many values along one line fit."""
    if len(values) == 1:
        yield ()
        return
    stride = _mode(np.diff(values))
    breaks = np.flatnonzero(np.diff(values) != stride) + 1
    counts = np.arange(len(values))
    extents = {len(values), *breaks[:_MOST_EXTENTS].tolist(), *np.diff(breaks)[:_MOST_EXTENTS].tolist()}
    options = []
    for extent in (e for e in extents if e > 1):
        if not _sample_agrees(values, extent, stride):
            continue
        residual = values - stride * (counts % extent)
        leads = _block_medians(residual, extent)
        agreed = int(np.count_nonzero(leads[counts // extent] == residual))
        if agreed * 4 >= len(values) * 3:
            options.append((agreed - 2 * len(leads), extent, leads))
    for _, extent, leads in sorted(options, key=lambda option: option[:2], reverse=True)[:_MOST_OPTIONS]:
        for outer in _majority_digits(leads):
            yield (Digit(extent, stride), *outer)


def _sample_agrees(values: Offsets, extent: int, stride: int) -> bool:
    """Return False if fewer than half of the values in sampled blocks are in steps of `stride`."""
    whole = values[: len(values) // extent * extent].reshape(-1, extent)
    if len(whole) < 2 * _SAMPLED_BLOCKS:
        return True
    residual = whole[:: len(whole) // _SAMPLED_BLOCKS] - stride * np.arange(extent)
    median = np.sort(residual, axis=1)[:, extent // 2, None]
    return int(np.count_nonzero(residual == median)) * 2 >= residual.size


def _block_medians(values: Offsets, extent: int) -> Offsets:
    """Return the median of each `extent` consecutive values: the value of most of them, if it is that of most."""
    whole = len(values) // extent * extent
    medians = np.sort(values[:whole].reshape(-1, extent), axis=1)[:, extent // 2]
    tail = np.sort(values[whole:])
    return np.concatenate([medians, tail[len(tail) // 2 :][:1]])
