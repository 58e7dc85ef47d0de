"""Tables of indices and packed buffers in files: .npy, .json, .csv, and raw ones of one data type; streams in .npz."""

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataTypeLike, as_data_type
from inlay.errors import FileError, InlayError, printable, shown
from inlay.files import file_error, require_file

_MOST_TEXT = 1 << 30
"""Largest .json or .csv file, in bytes."""
_ENTRIES = "give integers, with the number of --marker (-1) where no element is"


def read_indices(path: Path, data_type: DataTypeLike | None = None) -> npt.NDArray[Any]:
    """Return the array of a file: a .npy file, nested lists in .json, integers in .csv, or raw elements otherwise.

    Raw files hold elements of `data_type`; 4-bit types give bytes of two.

    Raises:
        FileError: the file cannot be read, or holds something else.
        InvalidArguments: `data_type` is no data type.
    """
    nbytes = require_file(path)
    kind = path.suffix.lower()
    with _file_errors(path, "no table of integers"):
        if kind == ".npy":
            return _as_element(_require_numbers(path, np.asarray(np.load(path, allow_pickle=False))), data_type)
        if kind in (".json", ".csv"):
            return _read_text(path, nbytes)
        if kind == ".npz":
            raise FileError(f"{_name(path)} holds several arrays: save the one to read as .npy")
        if data_type is None:
            raise FileError(
                f"{_name(path)} is a raw file: give the type of the entries of a table, as in --index-type s32, or the "
                "array that was packed as --logical"
            )
        element = as_data_type(data_type)
        if nbytes % element.itemsize:
            raise FileError(f"{_name(path)} has {nbytes} bytes: elements of {element} have {element.itemsize}")
        return np.fromfile(path, np.uint8 if element.is_sub_byte else element.dtype)


def read_streams(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file by name.

    Raises:
        FileError: the file cannot be read, or is none of NumPy's archives of numbers.
    """
    require_file(path)
    with _file_errors(path, "no arrays of streams"), np.load(path, allow_pickle=False) as archive:
        return {name: _require_numbers(path, np.asarray(archive[name])) for name in archive.files}


@contextmanager
def _file_errors(path: Path, what: str) -> Iterator[None]:
    """Raise errors of reading a file as FileError; the file then holds `what`."""
    try:
        yield
    except InlayError:
        raise
    except OSError as error:
        raise file_error("read", path, error) from error
    except (
        ValueError,
        EOFError,
        RecursionError,
        KeyError,
        AttributeError,
        TypeError,
        BadZipFile,
        zlib.error,
    ) as error:
        raise FileError(f"{_name(path)} holds {what}: {shown(str(error))}") from error


def _read_text(path: Path, nbytes: int) -> npt.NDArray[Any]:
    """Return the integers of a .json or .csv file.

    Raises:
        FileError: the file is larger than 1 GiB, or holds something else.
        ValueError: the text is no JSON.
    """
    if nbytes > _MOST_TEXT:
        raise FileError(f"{_name(path)} has {nbytes} bytes: tables as text have at most {_MOST_TEXT}, write .npy")
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".csv":
        rows = list(_read_rows(path, text))
        is_even = len(rows) > 1 and len({len(row) for row in rows}) == 1
        return _require_numbers(path, np.array(rows if is_even else [entry for row in rows for entry in row]))
    content = json.loads(text)
    try:
        table = np.array(content)
    except ValueError:  # lists of unequal length
        table = np.array(None)
    return _require_numbers(path, table)


def _read_rows(path: Path, text: str) -> Iterator[list[int]]:
    """Yield the integers of each line, which are separated by commas or spaces.

    Raises:
        FileError: an entry is no integer.
    """
    for number, line in enumerate(text.splitlines(), 1):
        entries = line.split(",") if "," in line else line.split()
        try:
            row = [int(entry) for entry in entries]
        except ValueError:
            problem = f"line {number} of {_name(path)} is {shown(line)}: {_ENTRIES}, separated by commas or spaces"
            raise FileError(problem) from None
        if row:
            yield row


def _as_element(array: npt.NDArray[Any], data_type: DataTypeLike | None) -> npt.NDArray[Any]:
    """Return an array of a data type, if NumPy's files hold that type as bytes without a type of numbers."""
    if array.dtype.kind != "V" or data_type is None:
        return array
    dtype = as_data_type(data_type).dtype
    return array.view(dtype) if dtype.itemsize == array.dtype.itemsize else array


def _require_numbers(path: Path, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array after a check that it holds numbers.

    Raises:
        FileError: it holds other objects, or nothing.
    """
    if array.dtype.hasobject or array.dtype.kind in "USmM" or not array.size:
        raise FileError(f"{_name(path)} holds no array of numbers: {_ENTRIES}, in lists of equal length")
    return array


def _name(path: Path) -> str:
    """Return the name of a file in messages."""
    return printable(str(path))
