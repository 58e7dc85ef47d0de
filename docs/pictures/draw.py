"""Draw the pictures of this folder anew: `python docs/pictures/draw.py`.

Five are those of oneDNN's article "Understanding Memory Formats"; the others show walls, a comparison and a heat map. A
test holds that what is committed is what this draws.
"""

from pathlib import Path

from inlay import MemoryDesc
from inlay.render import ComparisonPicture, Picture, show

FOLDER = Path(__file__).parent


def pictures() -> dict[str, Picture | ComparisonPicture]:
    """Each picture by the name of its file."""
    formats = {
        "nchw": MemoryDesc((2, 16, 5, 4), "f32", "nchw"),
        "nhwc": MemoryDesc((2, 16, 5, 4), "f32", "nhwc"),
        "chwn": MemoryDesc((2, 16, 5, 4), "f32", "chwn"),
        "nChw8c": MemoryDesc((2, 16, 5, 4), "f32", "nChw8c"),
        "zero-padding": MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"),
        "walls": MemoryDesc((32, 32), "bf16", "BA16a16b2a"),
    }
    drawn: dict[str, Picture | ComparisonPicture] = {f"{name}.svg": show(desc) for name, desc in formats.items()}
    drawn["comparison.svg"] = show("nchw", "nChw8c")
    drawn["heat-map.svg"] = show(MemoryDesc((512, 512), "f32", "AB128b128a"))
    return drawn


if __name__ == "__main__":
    for name, picture in pictures().items():
        picture.save(FOLDER / name)
