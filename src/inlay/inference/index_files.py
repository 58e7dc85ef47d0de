"""Tables of indices and packed buffers in files: .npy, .json, .csv, and raw ones of one data type; streams in .npz."""

import json
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataTypeLike, as_data_type
from inlay.errors import FileError, printable, shown
from inlay.files import file_error, require_file

_MOST_TEXT = 1 << 30
"""Largest .json or .csv file, in bytes."""


def read_indices(path: Path, data_type: DataTypeLike | None = None) -> npt.NDArray[Any]:
    """Return the array of a file: a .npy file, nested lists in .json, integers in .csv, or raw elements otherwise.

    Raw files hold elements of `data_type`; 4-bit types give bytes of two.

    Raises:
        FileError: the file cannot be read, or holds something else.
        InvalidArguments: `data_type` is no data type.
    """
    nbytes = require_file(path)
    try:
        if path.suffix == ".npy":
            return _require_numbers(path, np.asarray(np.load(path, allow_pickle=False)))
        if path.suffix in (".json", ".csv"):
            return _read_text(path, nbytes)
        if data_type is None:
            raise FileError(f"{_name(path)} is a raw file: give the type of its elements, as in --index-type s32")
        element = as_data_type(data_type)
        if nbytes % element.itemsize:
            raise FileError(f"{_name(path)} has {nbytes} bytes: elements of {element} have {element.itemsize}")
        return np.fromfile(path, np.uint8 if element.is_sub_byte else element.dtype)
    except (ValueError, EOFError, RecursionError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{_name(path)} holds no table of integers: {shown(str(error))}") from error
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise file_error("read", path, error) from error


def read_streams(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file by name.

    Raises:
        FileError: the file cannot be read, or is none of NumPy's archives of numbers.
    """
    require_file(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: _require_numbers(path, np.asarray(archive[name])) for name in archive.files}
    except (ValueError, EOFError, KeyError, AttributeError, TypeError, BadZipFile, zlib.error) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{_name(path)} holds no arrays of streams: {shown(str(error))}") from error
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise file_error("read", path, error) from error


def _read_text(path: Path, nbytes: int) -> npt.NDArray[Any]:
    """Return the integers of a .json or .csv file.

    Raises:
        FileError: the file is larger than 1 GiB, or holds something else.
        ValueError: the text is neither JSON nor integers separated by commas or spaces.
    """
    if nbytes > _MOST_TEXT:
        raise FileError(f"{_name(path)} has {nbytes} bytes: tables as text have at most {_MOST_TEXT}, write .npy")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return _require_numbers(path, np.array(json.loads(text)))
    rows = [[int(entry) for entry in line.replace(",", " ").split()] for line in text.splitlines() if line.strip()]
    flat = np.array([entry for row in rows for entry in row])
    is_even = len({len(row) for row in rows}) == 1
    return _require_numbers(path, flat.reshape(len(rows), -1) if is_even and len(rows) > 1 else flat)


def _require_numbers(path: Path, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array after a check that it holds numbers.

    Raises:
        FileError: it holds other objects, or nothing.
    """
    if array.dtype.hasobject or array.dtype.kind in "USmM" or not array.size:
        raise FileError(f"{_name(path)} holds no array of numbers")
    return array


def _name(path: Path) -> str:
    """Return the name of a file in messages."""
    return printable(str(path))
