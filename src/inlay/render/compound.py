"""Pictures of compound formats: a map of the bytes of one block, with the stream of every bit.

Bytes whose bits belong to consecutive entries of the same streams are one line:

    bytes   bits
    0..1    7..0 scale
    2..17   7..4 quants 16..31   3..0 quants 0..15

In markup each stream has a color, and a line has one rectangle for each range of bits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import get_args

from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import CompoundFormat, Section, Stream
from inlay.errors import InvalidArguments, shown
from inlay.render.colors import COLORS
from inlay.render.legend import Legend
from inlay.render.picture import Drawing, PictureFormat
from inlay.render.saving import file_contents, save_contents
from inlay.render.svg import CELL, Canvas, identity_of

_MOST_LINES = 40
_BIT, _LEFT = 56, 90
"""Sizes in the SVG, in pixels: least width of a bit, width of the labels."""
_CHARACTER = 7.3
"""Width of a character in the SVG, in pixels."""


@dataclass(frozen=True, slots=True)
class BitRun:
    """Consecutive bits of one byte that belong to one entry of a stream, or to none."""

    low: int
    """Lowest bit, from 0 to 7."""
    high: int
    """Highest bit."""
    stream: str
    """Name of the stream; empty for unused bits."""
    entry: int
    """Index of the entry in row-major order; -1 if a block has one entry of the stream."""
    shift: int
    """Position of the lowest bit in the number."""


@dataclass(frozen=True, slots=True)
class ByteLine:
    """Consecutive bytes whose bits are used alike."""

    first: int
    """First byte."""
    last: int
    """Last byte."""
    runs: tuple[BitRun, ...]
    """The bits of the first byte, highest first."""
    step: int
    """Difference of the entries from byte to byte; 0 for the bytes of one number."""


def byte_lines(fmt: CompoundFormat, section: int, *, in_footer: bool = False) -> tuple[ByteLine, ...]:
    """Return the map of the bytes of a block, or of a footer, in order.

    >>> from inlay.descriptor.compound_table import compound
    >>> [(line.first, line.last) for line in byte_lines(compound("ggml:Q4_0"), 0)]
    [(0, 1), (2, 17)]
    """
    lines: list[ByteLine] = []
    for byte, runs in enumerate(_byte_runs(fmt, section, in_footer)):
        step = _step(lines[-1], runs) if lines else None
        if step is None:
            lines.append(ByteLine(byte, byte, runs, 0))
        else:
            lines[-1] = replace(lines[-1], last=byte, step=step)
    return tuple(lines)


def _byte_runs(fmt: CompoundFormat, section: int, in_footer: bool) -> Iterator[tuple[BitRun, ...]]:
    """Iterate over the bytes of a block; each has its runs of bits, highest first."""
    part = fmt.sections[section]
    owners: list[tuple[str, int, int] | None] = [None] * (8 * (part.footer_nbytes if in_footer else part.nbytes))
    for stream in fmt.streams:
        if stream.section == section and stream.in_footer == in_footer:
            first = 0 if prod(stream.dims) > 1 else -1
            for field in stream.fields:
                for entry, offset in enumerate(field.bit_offsets().tolist(), first):
                    for bit in range(field.width):
                        owners[offset + bit] = stream.name, entry, field.shift + bit
    for start in range(0, len(owners), 8):
        runs: list[BitRun] = []
        for bit, owner in enumerate(owners[start : start + 8]):
            name, entry, position = owner or ("", 0, 0)
            if runs and (runs[-1].stream, runs[-1].entry) == (name, entry):
                runs[-1] = replace(runs[-1], high=bit)
            else:
                runs.append(BitRun(bit, bit, name, entry, position))
        yield tuple(reversed(runs))


def _step(line: ByteLine, runs: tuple[BitRun, ...]) -> int | None:
    """Return the difference of entries if a byte continues a line; None if it does not."""
    before = line.runs
    if [(r.low, r.high, r.stream) for r in before] != [(r.low, r.high, r.stream) for r in runs]:
        return None
    count = line.last - line.first + 1
    differences = {new.entry - old.entry for old, new in zip(before, runs, strict=True) if new.stream} or {0}
    step, rest = divmod(min(differences), count)
    if len(differences) > 1 or rest or step < 0 or (count > 1 and step != line.step):
        return None
    is_same_part = all(new.shift == old.shift for old, new in zip(before, runs, strict=True))
    return step if is_same_part or not step else None


@dataclass(frozen=True, slots=True, repr=False)
class CompoundPicture(Drawing):
    """The picture of a compound format, or of its use for a tensor."""

    compound_format: CompoundFormat
    """The format that is drawn."""
    desc: CompoundDesc | None = None
    """The tensor; None for the format alone."""
    format: PictureFormat = "text"
    """The format that `str` returns."""

    def text(self) -> str:
        """The picture as lines of text."""
        lines = [self._title(), *map(self._stream_text, self.compound_format.streams)]
        for title, rows in self._maps():
            lines += ["", title, *(f"  {_bytes_text(row):<10} {_runs_text(row)}" for row in rows[:_MOST_LINES])]
            if len(rows) > _MOST_LINES:
                lines.append(f"  and {len(rows) - _MOST_LINES} lines more, to byte {rows[-1].last}")
        return "\n".join(lines)

    def svg(self) -> str:
        """The picture as one self-contained `svg` element."""
        streams = self.compound_format.streams
        about = "\n".join([self._title(), *map(self._stream_text, streams)])
        canvas = Canvas(None, identity_of((about, self.desc)))
        canvas.words(Legend(self._title(), (), ""))
        kinds = {stream.name: f"block b{i % COLORS}" for i, stream in enumerate(streams)}
        for stream in streams:
            canvas.box(canvas.left, canvas.y, 18, kinds[stream.name])
            canvas.text(canvas.left + 28, canvas.y + CELL / 2 + 4, self._stream_text(stream).strip(), "words")
            canvas.y += CELL
        for title, rows in self._maps():
            canvas.heading(title[0].upper() + title[1:])
            _draw_map(canvas, rows, kinds)
        return canvas.finished(self._title(), about)

    def _title(self) -> str:
        """Return name, dims and size."""
        fmt = self.compound_format
        blocks = ", ".join(f"{_times(part.block)} elements in {part.nbytes} bytes" for part in fmt.sections)
        whole = "" if self.desc is None else f", {_times(self.desc.dims)} in {self.desc.size} bytes"
        return f"{fmt.name}{whole}; blocks of {blocks}"

    def _stream_text(self, stream: Stream) -> str:
        """Return the description of a stream."""
        words = [f"{stream.bits} bits", f"as {stream.data_type}"]
        words += [f"{_times(stream.dims)} in a {'footer' if stream.in_footer else 'block'}"]
        words += [f"minus {stream.zero}"] if stream.zero else []
        words += ["codes of a table"] if stream.codebook else []
        return f"  {stream.name:<10} {', '.join(words)}"

    def _maps(self) -> Iterator[tuple[str, tuple[ByteLine, ...]]]:
        """Iterate over the maps of blocks and footers, each with its title."""
        fmt = self.compound_format
        for index, section in enumerate(fmt.sections):
            number = f" of section {index}" if len(fmt.sections) > 1 else ""
            at = "" if self.desc is None else _where(self.desc, index)
            yield f"bytes of a block{number}{at}", byte_lines(fmt, index)
            if section.footer_nbytes:
                yield f"bytes of the footer of a row of blocks{number}", byte_lines(fmt, index, in_footer=True)

    def save(self, path: str | Path) -> None:
        """Write the picture to `path`: SVG, PNG, HTML, or text, by its suffix.

        Post-condition: `path` holds the whole picture, or an error was raised and it is as it was.

        Raises:
            InvalidArguments: `path` ends in none of .svg, .png, .html and .txt.
            MissingExtra: `path` ends in .png, and resvg-py is not installed.
            FileError: the file cannot be written.
        """
        save_contents(path, file_contents(self._title(), self.svg, self.text))


def picture_compound(desc: CompoundFormat | CompoundDesc, format: PictureFormat = "text") -> CompoundPicture:
    """Return the picture of a compound format, or of a tensor in one.

    Raises:
        InvalidArguments: `format` is none of text, svg and html.

    >>> from inlay.descriptor.compound_table import compound
    >>> picture_compound(compound("ggml:Q4_0"))
    ggml:Q4_0; blocks of 32 elements in 18 bytes
      quants     4 bits, as u8, 32 in a block, minus 8
      scale      16 bits, as f16, 1 in a block
    <BLANKLINE>
    bytes of a block
      0..1       7..0 scale
      2..17      7..4 quants 16..31   3..0 quants 0..15
    """
    if format not in get_args(PictureFormat):
        raise InvalidArguments(f"format of a picture is text, svg or html, not {shown(format)}")
    fmt = desc.format if isinstance(desc, CompoundDesc) else desc
    return CompoundPicture(fmt, desc if isinstance(desc, CompoundDesc) else None, format)


def _times(dims: tuple[int, ...]) -> str:
    return "x".join(map(str, dims))


def _where(desc: CompoundDesc, index: int) -> str:
    """Return the place of the blocks of a section in the buffer."""
    grid = desc.grids[index]
    section: Section = grid.section
    footer = f" and footers of {section.footer_nbytes}" if section.footer_nbytes else ""
    blocks = f"{_times(grid.counts)} block{'s' * (prod(grid.counts) > 1)}"
    return f", {blocks} of {section.nbytes} bytes{footer} from byte {grid.offset}"


def _bytes_text(line: ByteLine) -> str:
    return f"{line.first}" if line.first == line.last else f"{line.first}..{line.last}"


def _runs_text(line: ByteLine) -> str:
    """Return the runs of a line, highest bits first."""
    return "   ".join(f"{_bits_text(run)} {_run_text(run, line)}" for run in line.runs)


def _bits_text(run: BitRun) -> str:
    return f"{run.high}" if run.high == run.low else f"{run.high}..{run.low}"


def _run_text(run: BitRun, line: ByteLine) -> str:
    """Return stream and entries of a run."""
    if not run.stream:
        return "unused"
    last = run.entry + line.step * (line.last - line.first)
    part = f" >> {run.shift}" if run.shift and line.step else ""
    if run.entry < 0:
        return f"{run.stream}{part}"
    if run.entry == last:
        return f"{run.stream} {run.entry}{part}"
    second = f",{run.entry + line.step}" if line.step > 1 else ""
    return f"{run.stream} {run.entry}{second}..{last}{part}"


def _draw_map(canvas: Canvas, rows: Sequence[ByteLine], kinds: Mapping[str, str]) -> None:
    """Draw the map of the bytes of a block: a line for each range of bytes, a rectangle for each range of bits."""
    shown = rows[:_MOST_LINES]
    bit = max([_BIT, *(_bit_width(run, row) for row in shown for run in row.runs)])
    left = canvas.left + _LEFT
    for row in shown:
        canvas.text(canvas.left, canvas.y + CELL / 2 + 4, _bytes_text(row), "words")
        for run in row.runs:
            x = left + bit * (7 - run.high)
            canvas.box(x, canvas.y, bit * (run.high - run.low + 1), kinds.get(run.stream, "bare"))
            canvas.text(x + 6, canvas.y + CELL / 2 + 4, _run_text(run, row), "words")
        canvas.y += CELL
    if len(rows) > len(shown):
        more = f"and {len(rows) - len(shown)} lines more, to byte {rows[-1].last}"
        canvas.text(canvas.left, canvas.y + CELL / 2 + 4, more, "muted")
        canvas.y += CELL


def _bit_width(run: BitRun, line: ByteLine) -> int:
    """Return the width of a bit, in pixels, at which the words of a run fit into its rectangle."""
    return ceil((_CHARACTER * len(_run_text(run, line)) + 12) / (run.high - run.low + 1))
