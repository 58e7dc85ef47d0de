"""Sharded checkpoints: the tensors of a model in several files of a folder, and an index that says which is where.

    model/
        model-00001-of-00002.safetensors
        model-00002-of-00002.safetensors
        model.safetensors.index.json    {"metadata": {"total_size": 9663676416},
                                         "weight_map": {"fc.weight": "model-00002-of-00002.safetensors", ...}}

A checkpoint is named by its index or by its folder. An index is untrusted: the names in it are names of files beside
it, and each tensor must be in the file that it states. Shards of PyTorch (`pytorch_model.bin.index.json`) are read too.

Shards are written as `save_pretrained` of transformers does, in the order of the source: a shard ends before the tensor
that would make it larger than `shard_nbytes`. `total_size` is the size of all tensors, in bytes. Each shard gets its
name before the index. So an index never names a shard that does not exist.

Source: huggingface_hub, "Serialization"; transformers, "Sharded checkpoints".
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from inlay.errors import FileError, InvalidArguments, printable
from inlay.files import file_error
from inlay.storage.file_store import FileStore, WholeTensor, version_of
from inlay.storage.file_target import PARTIAL_SUFFIX, FileTarget, FileWriter, TargetFile
from inlay.storage.locations import SourcePath, UrlPath, list_names, parse_location, read_errors, require_source
from inlay.storage.options import WriteOptions
from inlay.storage.packed import open_safetensors, safetensors_target
from inlay.storage.source_files import FileVersion
from inlay.storage.store import StoredTensor
from inlay.storage.target import NewTensor, TargetTensor
from inlay.storage.torch_file import open_torch

INDEX_SUFFIXES = (".safetensors.index.json", ".bin.index.json")
"""Suffixes of indexes: shards of safetensors, and of PyTorch."""

DEFAULT_SHARD_NBYTES = 5 * 10**9
"""Most bytes of a shard, unless the caller states another size; that of transformers."""

_OTHER_FILES = 256
"""Files that a process may have open beside the shards that it writes."""

_MAX_INDEX_NBYTES = 1 << 28
"""Most bytes of an index that is read."""

_WEIGHTS = "model.safetensors"
"""Name of a checkpoint of one file, and stem of the names of shards, where the caller names a folder."""

_SHARDS: Mapping[str, Callable[[SourcePath], FileStore]] = {".safetensors": open_safetensors, ".bin": open_torch}
"""Functions that open a shard, by suffix."""


def open_index(path: SourcePath) -> FileStore:
    """Open a sharded checkpoint by its index; the headers of all shards are read.

    Raises:
        FileError: the index or a shard is missing or damaged, the index names a file outside its folder, a tensor is
            not in the shard that the index states, or two shards have a tensor of the same name.
        MissingExtra: the shards are of PyTorch, which is not installed.
    """
    version, places = version_of(path), _read_index(path)
    store = _join(path, [path.parent / name for name in sorted(set(places.values()))])
    for tensor in store.tensors:
        stated = places.pop(tensor.name, None)
        found = store.files[tensor.file].path.name
        if stated is not None and stated != found:
            raise FileError(
                f"cannot read {path}: it states that tensor {tensor.label} is in {printable(stated)}, and it is in "
                f"{printable(found)}; copy the checkpoint again from its source"
            )
    if places:
        name, stated = next(iter(places.items()))
        raise FileError(
            f"cannot read {path}: it states that tensor {printable(name)} is in {printable(stated)}, which does not "
            "have it; copy the checkpoint again from its source"
        )
    return replace(store, files=(*store.files, version))


def open_folder(path: SourcePath) -> FileStore:
    """Open the checkpoint in a folder: by its index, or the only file of weights, or all `.safetensors` files.

    Raises:
        FileError: there is none, there are several indexes, or a reason of `open_index`.
        MissingExtra: the weights are of PyTorch, which is not installed.
    """
    names = list_names(path)
    if _WEIGHTS in names:
        return open_safetensors(path / _WEIGHTS)
    for suffix in INDEX_SUFFIXES:
        indexes = [name for name in names if name.endswith(suffix)]
        if len(indexes) > 1:
            some = ", ".join(map(printable, indexes[:3]))
            raise FileError(f"cannot read {path}: the folder holds several indexes, {some}; name one of them")
        if indexes:
            return open_index(path / indexes[0])
    shards = [path / name for name in names if name.endswith(".safetensors") and not name.startswith(".")]
    if shards:
        return _join(path, shards)
    if "pytorch_model.bin" in names:
        return open_torch(path / "pytorch_model.bin")
    raise FileError(f"cannot read {path}: the folder holds no .safetensors file and no index of shards; name a file")


def _read_index(path: SourcePath) -> dict[str, str]:
    """Return the name of the shard of each tensor, as an index states it."""
    if require_source(path) > _MAX_INDEX_NBYTES:
        raise FileError(f"cannot read {path}: it has over {_MAX_INDEX_NBYTES} bytes, and is no index of a checkpoint")
    with read_errors(path), path.open("rb") as file:
        content = file.read()
    try:
        index = json.loads(content, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, _DuplicateKey) else "it is not JSON"
        raise _damaged_index(path, reason) from error
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict):
        raise _damaged_index(path, "it has no weight_map")
    suffix = ".bin" if path.name.endswith(".bin.index.json") else ".safetensors"
    for name in places.values():
        if not isinstance(name, str) or not _is_file_name(name) or not name.endswith(suffix):
            raise _damaged_index(path, f"{name!r} is no name of a {suffix} file in its folder")
    return places


class _DuplicateKey(ValueError):
    """An object of JSON has a key twice."""


def _unique_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return the object of these pairs; raise _DuplicateKey if a key occurs twice."""
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _DuplicateKey(f"it lists {printable(twice)} twice")
    return result


def _is_file_name(name: str) -> bool:
    """Return True if a text is the name of a file in a folder: no path, and no half of a surrogate pair."""
    return name not in ("", ".", "..") and re.search(r"[/\\:\0\ud800-\udfff]", name) is None


def _damaged_index(path: SourcePath, reason: str) -> FileError:
    return FileError(f"cannot read {path}: the index is damaged, {reason}; copy the checkpoint again from its source")


def _join(path: SourcePath, shards: Iterable[SourcePath]) -> FileStore:
    """Return one store of the tensors of several files."""
    tensors, whole = dict[str, StoredTensor](), dict[str, WholeTensor]()
    files, metadata = list[FileVersion](), dict[str, str]()
    for shard in shards:
        opened = _SHARDS[f".{shard.name.rpartition('.')[2]}"](shard)
        for tensor in opened.tensors:
            if tensor.name in tensors:
                first = files[tensors[tensor.name].file].path.name
                raise FileError(
                    f"cannot read {path}: tensor {tensor.label} is in {printable(first)} and in "
                    f"{printable(shard.name)}; name the file to read"
                )
            tensors[tensor.name] = replace(tensor, file=len(files) + tensor.file)
        files.extend(opened.files)
        whole.update(opened.whole)
        metadata = {**opened.metadata, **metadata}
    return FileStore(path, tuple(tensors.values()), metadata, tuple(files), whole)


# Targets


@dataclass(frozen=True, slots=True)
class CheckpointTarget(FileTarget):
    """A `Target` of several files in a folder, which is created if it does not exist.

    A hidden file marks a new folder, so that any process that discards the target removes the folder too.
    """

    def create(self, token: str) -> None:
        """Create the folder, and all files with their headers.

        Raises:
            FileError: the folder or a file cannot be written.
        """
        mark = self._mark(token)
        try:
            if not mark.parent.exists():
                mark.parent.mkdir()
                mark.touch()
        except OSError as error:
            raise file_error("create", mark.parent, error) from error
        FileTarget.create(self, token)

    def open(self, token: str) -> FileWriter:
        """Open all files of `create`.

        Raises:
            FileError: a file does not exist, or this user may not write it.
        """
        _allow_open_files(len(self.files) + _OTHER_FILES)
        return FileTarget.open(self, token)

    def discard(self, token: str) -> None:
        """Remove the files of `create` that still have their hidden names, and the folder if it is new and empty."""
        FileTarget.discard(self, token)
        mark = self._mark(token)
        with suppress(OSError):
            mark.unlink()
            mark.parent.rmdir()

    def commit(self, token: str, *, again: bool = False) -> None:
        """Give all files their final names, the index last.

        Raises:
            FileError: a file cannot be renamed.
        """
        FileTarget.commit(self, token, again=again)
        with suppress(OSError):
            self._mark(token).unlink()

    def _mark(self, token: str) -> Path:
        """Path of the file that marks a new folder."""
        return self.files[0].path.with_name(f".new-folder.{token}{PARTIAL_SUFFIX}")


def _allow_open_files(count: int) -> None:
    """Let this process open as many files, if its hard limit permits; many systems have a soft limit of 1,024."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (count if hard < 0 else min(count, hard), hard))


def index_target(
    path: Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str], options: WriteOptions
) -> CheckpointTarget:
    """Return the target of a sharded checkpoint whose index is `path`.

    Raises:
        FileError: the shards are of PyTorch, which Inlay does not write.
        InvalidArguments: a name or a text is not allowed, or the size of shards is less than 1.
    """
    if not path.name.endswith(INDEX_SUFFIXES[0]):
        raise FileError(
            f"cannot write {path}: Inlay only reads files of PyTorch; write a .safetensors.index.json instead"
        )
    stem = path.name.removesuffix(INDEX_SUFFIXES[0])
    require_no_whole_file(path)
    shards = _split(tensors, options)
    names = [f"{stem}-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    texts = {"format": "pt", **metadata}  # transformers refuses shards without a format
    places, files, weight_map = dict[str, TargetTensor](), list[TargetFile](), dict[str, str]()
    for i, (name, shard) in enumerate(zip(names, shards, strict=True)):
        target = safetensors_target(path.with_name(name), shard, texts)
        places.update({key: replace(tensor, file=i) for key, tensor in target.tensors.items()})
        files.extend(target.files)
        weight_map.update(dict.fromkeys(target.tensors, name))
    total = sum(tensor.nbytes for tensor in places.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    text = json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n"
    return CheckpointTarget(path, places, (*files, TargetFile(path, len(text), text)))


def folder_target(
    path: Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str], options: WriteOptions
) -> CheckpointTarget:
    """Return the target of a checkpoint in a folder: `model.safetensors` if one shard is enough, else shards and index.

    Raises:
        InvalidArguments: a name or a text is not allowed, or the size of shards is less than 1.
    """
    if len(_split(tensors, options)) > 1:
        sharded = index_target(path / f"{_WEIGHTS}.index.json", tensors, metadata, options)
        return replace(sharded, path=path)
    single = safetensors_target(path / _WEIGHTS, tensors, {"format": "pt", **metadata})
    return CheckpointTarget(path, single.tensors, single.files)


def require_no_whole_file(index: SourcePath) -> None:
    """Check that no file beside an index holds the whole checkpoint: readers would take it, and not the shards.

    Raises:
        FileError: there is one, or the folder cannot be reached.
    """
    name = f"{index.name.removesuffix(INDEX_SUFFIXES[0])}.safetensors"
    if (index.parent / name).exists():
        raise FileError(
            f"cannot write {index}: its folder holds {name}, which readers of checkpoints prefer to an index; remove "
            "it, or choose another folder"
        )


def _split(tensors: Sequence[NewTensor], options: WriteOptions) -> list[list[NewTensor]]:
    """Return the tensors of each shard, in their order."""
    limit = DEFAULT_SHARD_NBYTES if options.shard_nbytes is None else options.shard_nbytes
    if limit < 1:
        raise InvalidArguments(f"shards of {limit} bytes hold nothing: give a size such as 5GB (--shard-size)")
    shards, nbytes = [list[NewTensor]()], 0
    for tensor in tensors:
        if shards[-1] and nbytes + tensor.nbytes > limit:
            shards.append([])
            nbytes = 0
        shards[-1].append(tensor)
        nbytes += tensor.nbytes
    return shards


def is_folder(location: str | Path | UrlPath) -> bool:
    """Return True if a location names a folder: one that exists, or a text that ends with a slash.

    >>> is_folder("model/"), is_folder("model.safetensors")
    (True, False)
    """
    if str(location).endswith("/"):
        return True
    path = parse_location(location)
    return path.url.endswith("/") or path.is_dir() if isinstance(path, UrlPath) else path.is_dir()
