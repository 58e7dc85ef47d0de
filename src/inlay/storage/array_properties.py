"""Properties of a chunked array besides its elements, which a conversion keeps: compression, fill value, attributes."""

from dataclasses import dataclass

from inlay.descriptor import MemoryDesc


@dataclass(frozen=True, slots=True)
class ArrayProperties:
    """Properties of an array in a Zarr store, as JSON where Inlay only passes them on."""

    compressors: str = "[]"
    """The codecs that compress the bytes of a chunk, in order, as JSON."""
    fill_value: str | None = None
    """Value of elements that no chunk holds, as JSON; None for 0."""
    attributes: str = "{}"
    """Attributes of users, as JSON."""
    dimension_names: tuple[str | None, ...] | None = None
    """Name of each axis; None if none has a name."""

    chunk: MemoryDesc | None = None
    """Descriptor of the bytes of a chunk, if chunks are local files of which parts can be read; else None."""

    @property
    def is_compressed(self) -> bool:
        """True if chunks are compressed."""
        return self.compressors != "[]"
