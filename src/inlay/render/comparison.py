"""Pictures of two layouts of one tensor: the source beside the destination, element by element.

The tensor is drawn once, without padding. Its elements have one number in it and in both memories, and the color and
the letter of their block of the source, so that the destination shows where each block of the source goes. The walls
are those of each memory's own digits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.errors import InvalidArguments, Unimplemented
from inlay.render.compose import SceneOptions, compose
from inlay.render.legend import Legend, crossed, layout_name, legend
from inlay.render.picture import SVG_WIDTH, Drawing, PictureFormat, terminal_for, text_room
from inlay.render.saving import file_contents, save_contents
from inlay.render.scene import OFFSET, Scene, SpaceLimits
from inlay.render.selection import Selection
from inlay.render.svg import Canvas, description_of, identity_of
from inlay.render.text import Colors, Span, TextDrawing
from inlay.render.values import ElementValues, MovedValues, OffsetTexts

_BESIDE = 104
"""Characters from which on the parts of both sides are beside one another in text."""
_BETWEEN = 3
"""Characters between both sides."""
_HALF, _WORDS = 54, 48
"""Characters across of one side in markup, and of a line of its words."""
_HEADINGS = ("Source memory", "Destination memory")
_GUTTER = 28.0
"""Pixels between both sides."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two layouts."""

    desc: MemoryDesc
    """The descriptor."""
    values: ElementValues | None = None
    """The values that cells show; None to number them."""
    has_type: bool = True
    """True if the elements have a data type; those of a bare layout have none."""


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonPicture(Drawing):
    """The picture of a source beside its destination."""

    src: Side
    """The source."""
    dst: Side
    """The destination, with the same dims."""
    names: tuple[str, ...]
    """One per axis."""
    offsets: bool = False
    """True if an element has its offset in the source, False for its value or its row-major index."""
    format: PictureFormat = "text"
    """The format that `str` returns."""
    width: int | None = None
    """Characters across; None for the width of the terminal, and a fixed one in markup."""
    color: bool | None = None
    """True for text in color; None to use the colors of the terminal."""
    selection: Selection | None = None
    """The coordinates to show; None for all."""
    heat_map: bool | None = None
    """True for heat maps of addresses, None for them where a large tensor is shown in part."""

    def text(self) -> str:
        """The picture as lines of text, none longer than the width."""
        terminal = terminal_for(self.width, self.color)
        is_beside = terminal.width >= _BESIDE
        half = (terminal.width - _BETWEEN) // 2 if is_beside else terminal.width
        scenes = [self._scene(side, half, terminal.colors) for side in (self.src, self.dst)]
        grid = self._scene(self.src, terminal.width, terminal.colors, data_only=True)
        drawing, narrow = TextDrawing(terminal), TextDrawing(replace(terminal, width=half))
        words = [list(narrow.words(words)) for words in self._legends()]
        maps = [list(narrow.heat_map(scene.heat_map)) for scene in scenes]
        memories = [list(narrow.strip(*part)) for part in zip(scenes, _HEADINGS, strict=True)]
        lines = [*drawing.words(Legend(self.title, (), "")), [], *_joined(words, half, is_beside), []]
        lines += [*drawing.grid(grid), *_joined(maps, half, is_beside), [], *_joined(memories, half, is_beside), []]
        return drawing.finished([*lines, *drawing.key(*self._key(grid, scenes))])

    def svg(self) -> str:
        """The picture as one self-contained `svg` element."""
        scenes = [self._scene(side, _HALF, None) for side in (self.src, self.dst)]
        grid, about = self._scene(self.src, SVG_WIDTH, None, data_only=True), self._about()
        canvas = Canvas(self.src.desc.data_type, identity_of((about, grid, scenes)))
        canvas.words(Legend(self.title, (), ""))
        canvas.words_width = _WORDS
        second = canvas.left + max(canvas.words_width_px, *map(canvas.strip_width, scenes)) + _GUTTER
        canvas.draw_beside(second, [partial(canvas.words, words, "heading") for words in self._legends()])
        canvas.grid(grid)
        canvas.draw_beside(second, [partial(canvas.heat_map, scene.heat_map) for scene in scenes])
        halves = zip((self.src, self.dst), scenes, _HEADINGS, strict=True)
        canvas.draw_beside(second, [partial(self._draw_memory, canvas, *half) for half in halves])
        canvas.key(*self._key(grid, scenes))
        return canvas.finished(self.title, about)

    def _draw_memory(self, canvas: Canvas, side: Side, scene: Scene, heading: str) -> None:
        """Draw the memory of one side, whose data type tells the tooltips the bytes."""
        canvas.data_type = side.desc.data_type
        canvas.strip(scene, heading)

    def save(self, path: str | Path) -> None:
        """Write the picture to `path`: SVG, PNG, a page of HTML, or text without color, by its suffix.

        Post-condition: `path` holds the whole picture, or an error was raised and it is as it was.

        Raises:
            InvalidArguments: `path` ends in none of .svg, .png, .html and .txt.
            MissingExtra: `path` ends in .png, and resvg-py is not installed.
            FileError: the file cannot be written.
        """
        plain = replace(self, format="text", width=self.width or 80, color=False)
        save_contents(path, file_contents(self.title, self.svg, plain.text))

    @property
    def title(self) -> str:
        """Both layouts, the dims and the data types."""
        sides = (self.src, self.dst)
        types = dict.fromkeys(str(side.desc.data_type) for side in sides if side.has_type)
        of_type = f" of {' to '.join(types)}" if types else ""
        return f"{' to '.join(layout_name(side.desc) for side in sides)}, {crossed(self.src.desc.dims)}{of_type}"

    def _about(self) -> str:
        """Return the words for readers that do not see the drawing."""
        return "\n".join([self.title, *map(description_of, self._legends())])

    def _legends(self) -> Iterator[Legend]:
        """Yield the words on each side; blocks are those of the source."""
        for side, name in zip((self.src, self.dst), ("Source", "Destination"), strict=True):
            words = legend(side.desc, self.names, has_type=side.has_type)
            facts = tuple(fact for fact in words.facts if side is self.src or fact[0] != "blocks")
            yield Legend(f"{name}: {layout_name(side.desc)}", facts, "")

    def _scene(self, side: Side, width: int, colors: Colors | None, *, data_only: bool = False) -> Scene:
        """Return the scene of one side, for text of so many colors or, for None, for markup."""
        source, _ = addressed_layout(self.src.desc, "a picture")
        room = SpaceLimits(width) if colors is None else text_room(width, colors, self.src.desc)
        if colors is None:
            room = replace(room, heat_columns=48)
        heat_map = False if data_only else self.heat_map
        values = OffsetTexts(self.src.desc) if self.offsets else side.values
        options = SceneOptions(False, values, self.selection, heat_map, source, data_only)
        scene = compose(side.desc, self.names, room, options)
        return replace(scene, numbers=f"{OFFSET} in the source") if self.offsets else scene

    def _key(self, grid: Scene, scenes: Sequence[Scene]) -> tuple[Scene, str]:
        """Return a scene with the cells and walls of both sides, for the key, and the owner of the blocks."""
        rows = (*scenes[0].strip.rows, *scenes[1].strip.rows)
        walls = [
            (level, f"{name}, {meaning}")
            for name, scene in zip(("source", "destination"), scenes, strict=True)
            for level, meaning in scene.walls
        ]
        width = max(scene.label_width for scene in (grid, *scenes))
        numbers = scenes[0].numbers
        strip = replace(grid.strip, rows=rows)
        return replace(grid, strip=strip, walls=tuple(walls), label_width=width, numbers=numbers), " in the source"


def _joined(parts: Sequence[Sequence[list[Span]]], half: int, is_beside: bool) -> list[list[Span]]:
    """Return the lines of two parts, beside one another or with an empty line between them."""
    first, second = parts
    if not is_beside:
        return [*first, *([[]] if first and second and second[0] else []), *second]
    lines: list[list[Span]] = []
    empty: list[Span] = []
    for left, right in zip_longest(first, second, fillvalue=empty):
        padding = half - sum(len(text) for text, _ in left) + _BETWEEN
        lines.append([*left, (" " * padding, ""), *right])
    return lines


def compare_sides(
    src: Side,
    dst: Side,
    names: tuple[str, ...],
    *,
    offsets: bool = False,
    format: PictureFormat = "text",
    width: int | None = None,
    color: bool | None = None,
    selection: Selection | None = None,
    heat_map: bool | None = None,
) -> ComparisonPicture:
    """Return the picture of a source beside a destination; cells of a side without values have those of the other.

    Raises:
        InvalidArguments: the dims differ, or a side has no layout or no elements.
        Unimplemented: a dim or stride is RUNTIME.
    """
    for name, side in (("source", src), ("destination", dst)):
        layout, _ = addressed_layout(side.desc, f"a picture of the {name}")
        if layout.has_runtime:
            raise Unimplemented(f"the {name} {side.desc!r} has dims or strides that are known only when data arrives")
        if 0 in side.desc.dims:
            raise InvalidArguments(f"the {name} {side.desc!r} has no elements to draw")
    if src.desc.dims != dst.desc.dims:
        raise InvalidArguments(
            f"the source has dims {crossed(src.desc.dims)} and the destination {crossed(dst.desc.dims)}: a picture of "
            "two layouts shows one tensor"
        )
    known = src.values or dst.values
    if known is not None:
        src, dst = (replace(s, values=s.values or MovedValues(known, s.desc.dims)) for s in (src, dst))
    return ComparisonPicture(src, dst, names, offsets, format, width, color, selection, heat_map)
