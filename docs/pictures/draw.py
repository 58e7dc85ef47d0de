"""Draw the pictures of this folder anew: `python docs/pictures/draw.py`.

They are the five of oneDNN's article "Understanding Memory Formats". A test holds that what is committed is what this
draws.
"""

from pathlib import Path

from inlay import MemoryDesc
from inlay.render import Picture, show

FOLDER = Path(__file__).parent


def pictures() -> dict[str, Picture]:
    """Each picture by the name of its file."""
    formats = {
        "nchw": MemoryDesc((2, 16, 5, 4), "f32", "nchw"),
        "nhwc": MemoryDesc((2, 16, 5, 4), "f32", "nhwc"),
        "chwn": MemoryDesc((2, 16, 5, 4), "f32", "chwn"),
        "nChw8c": MemoryDesc((2, 16, 5, 4), "f32", "nChw8c"),
        "zero-padding": MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"),
    }
    return {f"{name}.svg": show(desc) for name, desc in formats.items()}


if __name__ == "__main__":
    for name, picture in pictures().items():
        picture.save(FOLDER / name)
