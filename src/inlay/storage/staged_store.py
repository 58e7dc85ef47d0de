"""A store of which some tensors are read from intermediate arrays, which the first pass of a conversion wrote.

The elements of both are equal. So where the intermediate arrays do not exist, as after the conversion, tensors are read
from the source itself.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from inlay.descriptor import MemoryDesc
from inlay.memory import Memory
from inlay.storage.box import Box
from inlay.storage.store import Store, StoredTensor, StoreReader
from inlay.storage.zarr_store import ZarrStore, file_system, is_url


@dataclass(frozen=True, slots=True)
class StagedStore:
    """A `Store` of the tensors of another, some of which are in intermediate arrays too."""

    source: Store
    """The store itself."""
    stage: ZarrStore
    """The intermediate arrays: row-major, by the names of the tensors."""

    @property
    def location(self) -> str:
        """Path or URL of the source, for messages."""
        return self.source.location

    @property
    def tensors(self) -> tuple[StoredTensor, ...]:
        """All tensors of the source."""
        return self.source.tensors

    @property
    def metadata(self) -> Mapping[str, str]:
        """Texts beside the tensors."""
        return self.source.metadata

    @property
    def version(self) -> str:
        """Text that changes when a file of the source changes."""
        return self.source.version

    def open(self) -> "StagedReader":
        """Open both stores in this process.

        Raises:
            FileError: a file is missing, or this user may not read it.
        """
        return StagedReader(self)


class StagedReader:
    """A `StagedStore` that is open for reading; a context manager that closes it."""

    def __init__(self, store: StagedStore) -> None:
        """Open the source, and the intermediate arrays if they exist.

        Raises:
            FileError: a file is missing, or this user may not read it.
        """
        self._staged = {tensor.name: tensor for tensor in store.stage.tensors} if exists(store.stage.location) else {}
        with ExitStack() as stack:
            self._source: StoreReader = stack.enter_context(store.source.open())
            self._stage: StoreReader = stack.enter_context(store.stage.open())
            self._stack = stack.pop_all()

    def read_box(self, tensor: StoredTensor, desc: MemoryDesc, box: Box) -> Memory:
        """Return the elements of a box as memory of their own.

        Raises:
            FileError: a file cannot be read, or became shorter.
            OutOfMemory: the operating system cannot provide the bytes of the box.
        """
        staged = self._staged.get(tensor.name)
        if staged is None or staged.desc is None:
            return self._source.read_box(tensor, desc, box)
        return self._stage.read_box(staged, staged.desc, box)

    def require_unchanged(self) -> None:
        """Check that nobody wrote to the source.

        Raises:
            FileError: a file changed.
        """
        self._source.require_unchanged()

    def __enter__(self) -> "StagedReader":
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close both stores."""
        self._stack.__exit__(kind, value, trace)


def exists(location: str) -> bool:
    """Return True if there is a Zarr group at a path or URL."""
    if not is_url(location):
        return (Path(location) / "zarr.json").is_file()
    fs, root = file_system(location)
    return bool(fs.exists(f"{root}/zarr.json"))
