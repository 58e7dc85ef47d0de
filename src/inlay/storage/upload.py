"""Targets at URLs: files that are written in a folder of this machine (staging), and uploaded when they are complete.

    /tmp/inlay-staging-1000/7d0f.../model-00001-of-00002.safetensors     until the end of the conversion
    s3://bucket/packed/model-00001-of-00002.safetensors                  afterwards

Object stores write whole objects, and boxes are written in any order. So all files are written in a staging folder,
which needs space for the whole target. They are uploaded one after the other, an index last, and removed here.

The staging folder has a folder for each URL, which belongs to this user alone. So the same conversion finds what an
interrupted one has written.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from inlay.errors import FileError
from inlay.files import file_error
from inlay.storage.file_target import FileTarget, TargetFile
from inlay.storage.locations import RemoteErrors, UrlPath
from inlay.storage.target import TargetTensor, TargetWriter


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """A `Target` at a URL, whose files are written in a staging folder first."""

    url: UrlPath
    """URL that the caller gave: of the only file, of an index of files, or of a folder."""
    local: FileTarget
    """The same target in the staging folder."""
    folder: UrlPath
    """URL of the folder that gets the files."""

    @property
    def location(self) -> str:
        """The URL, for messages."""
        return str(self.url)

    @property
    def last_name(self) -> str:
        """URL of the last file: a folder and the index in it are one target."""
        return str(self.urls[-1])

    @property
    def path(self) -> Path:
        """Path of the target in the staging folder."""
        return self.local.path

    @property
    def files(self) -> tuple[TargetFile, ...]:
        """The files in the staging folder, in the order in which they are uploaded."""
        return self.local.files

    @property
    def urls(self) -> tuple[UrlPath, ...]:
        """URLs that the files get, in the order of `files`."""
        return tuple(self.folder / file.path.name for file in self.files)

    @property
    def tensors(self) -> Mapping[str, TargetTensor]:
        """The tensors by name, in the order of their bytes."""
        return self.local.tensors

    def find_existing(self) -> str | None:
        """Return the first URL that an upload would replace; None if there is none.

        Raises:
            FileError: the URL cannot be reached.
        """
        return next((str(url) for url in self.urls if url.exists()), None)

    def create(self, token: str) -> None:
        """Create all files with their headers in the staging folder.

        Raises:
            FileError: a file cannot be written, as on a full disk; what was created remains for `discard`.
        """
        _create_private(self._staging)
        self.local.create(token)

    def is_whole(self, token: str) -> bool:
        """Return True if all files still exist in the staging folder, under their hidden or their final names."""
        return self._is_finished() or self.local.is_whole(token)

    def open(self, token: str) -> TargetWriter:
        """Open the files in the staging folder.

        Raises:
            FileError: a file does not exist, or this user may not write it.
        """
        return self.local.open(token)

    def sync(self, token: str) -> None:
        """Wait until all files in the staging folder are on disk; those that have their final names are already.

        Raises:
            FileError: a file cannot be written.
        """
        if self.local.is_whole(token):
            self.local.sync(token)

    def commit(self, token: str, *, again: bool = False) -> None:
        """Complete the files, upload them in order, and remove them here; what was not uploaded remains for a retry.

        Raises:
            FileError: a file cannot be completed, read or uploaded.
        """
        # Uploads begin when no file has its hidden name any more.
        if self.local.is_whole(token) or (again and any(file.partial(token).exists() for file in self.files)):
            self.local.commit(token, again=again)
        for file in self.files:
            if file.path.exists():  # an interrupted commit has uploaded those that are gone
                _upload(file.path, self.folder / file.path.name)
                with suppress(OSError):
                    file.path.unlink()
        self._remove_staging()

    def discard(self, token: str) -> None:
        """Remove the files from the staging folder; the URL is unchanged."""
        self.local.discard(token)
        for file in self.files:
            with suppress(OSError):
                file.path.unlink()
        self._remove_staging()

    @property
    def _staging(self) -> Path:
        """Folder of this URL in the staging folder."""
        return self.local.path.parent

    def _is_finished(self) -> bool:
        """Return True if the last file has its final name here: the conversion is done, and the upload is not."""
        return self.files[-1].path.exists()

    def _remove_staging(self) -> None:
        """Remove the folders that are empty now."""
        for folder in (self.files[0].path.parent, self._staging, self._staging.parent):
            with suppress(OSError):
                folder.rmdir()


def upload_target(
    url: UrlPath, make_local: Callable[[Path], FileTarget], *, is_folder: bool, staging: Path | None
) -> UploadTarget:
    """Return the target at a URL; `make_local` makes the target of a path in the staging folder.

    Raises:
        FileError: the staging folder does not exist, the name of the URL is no name of a file, or a reason of
            `make_local`.
    """
    if staging is not None and not staging.is_dir():
        raise FileError(f"cannot write {url}: the staging folder {staging} does not exist; create it first")
    if url.name in ("", ".", "..") or "\\" in url.name:
        raise FileError(f"cannot write {url}: it names no file; add a name to the URL")
    base = (staging or Path(tempfile.gettempdir())) / f"inlay-staging-{_user_name()}"
    local = make_local(base / sha256(url.url.encode()).hexdigest()[:16] / url.name)
    return UploadTarget(url, local, url if is_folder else url.parent)


def _user_name() -> str:
    """Return the number of this user, or the name on systems without numbers."""
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


def _create_private(folder: Path) -> None:
    """Create a folder and its parent that only this user may use.

    Raises:
        FileError: they cannot be created, or belong to another user.
    """
    for path in (folder.parent, folder):
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            status = path.lstat()
        except OSError as error:
            raise file_error("create the staging folder", path, error) from error
        if path.is_symlink() or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
            raise FileError(
                f"cannot write to the staging folder {path}: it belongs to another user; name another one (--staging)"
            )


def _upload(path: Path, url: UrlPath) -> None:
    """Copy a file to a URL.

    Raises:
        FileError: the file cannot be read, or the URL cannot be written.
    """
    file_system, remote = url.file_system()
    with RemoteErrors("write", url):
        file_system.put_file(str(path), remote)
        file_system.invalidate_cache()
        nbytes = file_system.info(remote)["size"]
    if nbytes != path.stat().st_size:
        raise FileError(f"cannot write {url}: {nbytes} of {path.stat().st_size} bytes arrived; try again")
