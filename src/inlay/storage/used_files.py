"""The files that a conversion reads and writes: none of them is both, and none is written for another purpose.

require_other_files(store, target)      shards of a checkpoint that are shards of the source
require_free(Path("report.json"), store, target)
"""

import os
from pathlib import Path

from inlay.errors import FileError
from inlay.files import require_unused, require_writable
from inlay.storage.file_store import FileStore
from inlay.storage.file_target import FileTarget
from inlay.storage.locations import SourcePath, UrlPath, url_parts
from inlay.storage.staged_store import StagedStore
from inlay.storage.store import Store
from inlay.storage.target import Target
from inlay.storage.upload import UploadTarget
from inlay.storage.zarr_store import ZarrStore, is_url
from inlay.storage.zarr_target import ZarrTarget


def require_other_place(written: SourcePath, read: SourcePath) -> None:
    """Check that a file or a URL to write is not the one that is read.

    Raises:
        FileError: it is.
    """
    if isinstance(written, Path) and isinstance(read, Path):
        require_unused(written, read)
    elif isinstance(read, UrlPath) and read.samefile(written):
        raise FileError(f"cannot write {written}: it is the URL that is being read; choose another name")


def require_other_files(store: Store, target: Target) -> None:
    """Check that no file of a target is read, and that no directory of arrays contains what is read or written.

    Raises:
        FileError: one is, or does.
    """
    if isinstance(target, UploadTarget):
        for url in target.urls:
            for source in store.files if isinstance(store, FileStore) else ():
                require_other_place(url, source.path)
            _require_outside_url(url.url, str(url), store)
    elif isinstance(target, FileTarget):
        for file in target.files:
            _require_outside(file.path, store)
            if os.path.exists(file.path):  # noqa: PTH110  # False for names that are too long
                require_unused(file.path, *_paths_of(store))
    elif isinstance(target, ZarrTarget) and is_url(target.location):
        _require_outside_url(target.location, target.location, store)
        files = [file.path for file in store.files] if isinstance(store, FileStore) else []
        for read in [store.location] if isinstance(store, ZarrStore) else [str(each) for each in files]:
            if _is_below_url(read, target.location):
                raise FileError(
                    f"cannot write {target.location}: it contains {read}, which is being read; choose another name"
                )
    elif isinstance(target, ZarrTarget):
        _require_outside(Path(target.location), store)
        for path in _paths_of(store):
            if _is_below(path, target.location):
                raise FileError(
                    f"cannot write {target.location}: it contains {path}, which is being read; choose another name"
                )


def require_free(path: Path, store: Store, target: Target) -> None:
    """Check that a file can be written that is no file of a conversion, such as its report.

    Raises:
        FileError: it cannot be written, or is read or written by the conversion.
    """
    final = require_writable(path)
    written = [file.path for file in target.files] if isinstance(target, FileTarget) else []
    is_part = isinstance(target, ZarrTarget) and _is_below(path, target.location)
    if is_part or any(os.fspath(final) == os.path.realpath(each) for each in (Path(target.location), *written)):
        raise FileError(f"cannot write {path}: it is the output of the conversion; choose another name")
    _require_outside(path, store)
    require_unused(path, *_paths_of(store))


def _require_outside(path: Path, store: Store) -> None:
    """Check that a path is in no directory of arrays that are read.

    Raises:
        FileError: it is.
    """
    read = store.source if isinstance(store, StagedStore) else store
    if isinstance(read, ZarrStore) and not is_url(read.location) and _is_below(path, read.location):
        raise FileError(f"cannot write {path}: it is in {read.location}, which is being read; choose another place")


def _require_outside_url(url: str, label: str, store: Store) -> None:
    """Check that a URL is in no store of arrays that is read.

    Raises:
        FileError: it is.
    """
    if isinstance(store, ZarrStore) and is_url(store.location) and _is_below_url(url, store.location):
        raise FileError(f"cannot write {label}: it is in {store.location}, which is being read; choose another place")


def _is_below_url(url: str, folder: str) -> bool:
    """Return True if a URL is that of a folder, or in it."""
    parts = url_parts(folder)
    return url_parts(url)[: len(parts)] == parts


def _is_below(path: Path, folder: str) -> bool:
    """Return True if a path is that of a folder, or in it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _paths_of(store: Store) -> list[Path]:
    """Return the paths of the files of a store on this machine, or that of its directory."""
    if isinstance(store, FileStore):
        return [file.path for file in store.files if isinstance(file.path, Path)]
    if isinstance(store, ZarrStore) and not is_url(store.location):
        return [Path(store.location)]
    return []
