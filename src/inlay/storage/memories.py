"""`Memory` from the tensors of a file, by memory map, and files from memories."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments
from inlay.memory import Memory
from inlay.memory.buffers import Bytes
from inlay.storage.file_store import FileStore
from inlay.storage.formats import open_store
from inlay.storage.packed import METADATA_KEY, make_entry, metadata_of
from inlay.storage.safetensors_file import require_names, require_texts, write_safetensors
from inlay.storage.store import StoredTensor


def open_memories(path: str | Path) -> dict[str, Memory]:
    """Open the tensors of a file as read-only `Memory`, by name; the data is mapped, not copied.

    The file may be of any format whose tensors are ranges of bytes: a checkpoint of several files, PyTorch, ONNX and
    others. Compressed tensors of a .npz file are read into memory.

    Scalars and tensors of a type without descriptors are left out.

    The file must not become shorter while the memories are used: the operating system ends a process that reads mapped
    bytes beyond the end of a file (SIGBUS). Renaming another file over it is safe.

    Raises:
        FileError: the file is missing, truncated or not in the format of its suffix, or its descriptors do not fit its
            bytes.
    """
    store = open_store(path)
    if not isinstance(store, FileStore):
        raise FileError(f"cannot map {path}: its tensors are no ranges of bytes; convert it to .safetensors first")
    return {t.name: memory_of(store, t, t.desc) for t in store.tensors if t.desc is not None}


def memory_of(store: FileStore, tensor: StoredTensor, desc: MemoryDesc) -> Memory:
    """Return the bytes of `tensor` as read-only memory described by `desc`.

    The bytes are mapped, or copied if they do not begin at a multiple of the element size.

    Raises:
        InvalidArguments: `desc` addresses bytes beyond those of the tensor.
    """
    data = store.data(tensor)
    if tensor.begin % desc.require_layout("memory")[1].itemsize:
        data = data.copy()
        data.flags.writeable = False
    return Memory(desc, data)


def save_memories(path: str | Path, memories: Mapping[str, Memory], metadata: Mapping[str, str] | None = None) -> None:
    """Write memories with their descriptors, by name, into a safetensors file with these texts as metadata.

    Post-condition: `open_memories` of the file returns memories with equal descriptors and bytes.

    Raises:
        InvalidArguments: `memories` is no mapping of texts to memories, or `metadata` no mapping of texts to texts; a
            text is not allowed, such as the tensor name `__metadata__` or the metadata key `inlay`; or a descriptor has
            no layout, or addresses bytes before the first. No file is written.
        Unimplemented: a dim or stride is RUNTIME.
        FileError: the file cannot be written.
    """
    target = Path(path)
    if target.suffix != ".safetensors":
        raise FileError(f"cannot store descriptors in {target}: use the suffix .safetensors")
    _require_memories(memories)
    _require_metadata(metadata)
    descs = {name: memory.desc for name, memory in memories.items()}
    entries = [make_entry(name, desc) for name, desc in descs.items()]
    texts = {**(metadata or {}), **metadata_of(descs)}
    write_safetensors(target, entries, texts, lambda entry: [_fit_to_size(memories[entry.name], entry.nbytes)])


def _require_memories(memories: object) -> None:
    """Check that `memories` is a mapping of valid names to `Memory`."""
    if not isinstance(memories, Mapping):
        raise InvalidArguments(f"memories is {memories!r}: give a mapping of names to Memory")
    require_names(memories)
    for name, memory in memories.items():
        if not isinstance(memory, Memory):
            raise InvalidArguments(f"memories[{name!r}] is {memory!r}: give a Memory, as from inlay.pack(array, tag)")


def _require_metadata(metadata: object) -> None:
    """Check that `metadata` is None or a mapping of texts to texts without the key of Inlay."""
    if metadata is None:
        return
    if not isinstance(metadata, Mapping):
        raise InvalidArguments(f"metadata is {metadata!r}: give a mapping of texts to texts")
    require_texts(metadata)
    if METADATA_KEY in metadata:
        raise InvalidArguments(f"the key {METADATA_KEY!r} of the metadata is reserved for descriptors: use another key")


def _fit_to_size(memory: Memory, nbytes: int) -> Bytes:
    """Return the bytes of `memory`, truncated or extended with zeros to `nbytes`."""
    data = memory.buffer.reshape(-1).view(np.uint8)
    if data.size >= nbytes:
        return data[:nbytes]
    return np.concatenate([data, np.zeros(nbytes - data.size, np.uint8)])
