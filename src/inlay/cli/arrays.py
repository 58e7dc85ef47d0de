"""Arrays of a run on the command line: read from .npy files, described in lines, written to .npz and .npy files."""

import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy_format

from inlay.errors import InvalidArguments
from inlay.files import file_error, replacing, require_unused
from inlay.printable import printable

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_ROWS = 8
"""Rows of scores that are printed."""
_BEST = 5
_FEWEST = 10
"""Entries from which on a row is taken for one of scores."""


def split_named(texts: Sequence[str]) -> dict[str | None, Path]:
    """Files by the name of the input; None where the text is a file alone.

    Raises:
        InvalidArguments: a name comes twice, or a file without a name beside others.

    >>> [(name, path.name) for name, path in split_named(["ids=a.npy", "mask=b.npy"]).items()]
    [('ids', 'a.npy'), ('mask', 'b.npy')]
    """
    found: dict[str | None, Path] = {}
    for text in texts:
        before, equals, after = text.partition("=")
        is_named = bool(equals) and not Path(text).exists()
        name = before if is_named else None
        if name in found:
            raise InvalidArguments(f"--input {name or text} is given twice: give each input one file, as NAME=FILE")
        found[name] = Path(after if is_named else text)
    if None in found and len(found) > 1:
        raise InvalidArguments(f"--input {found[None]} does not say for which input it is: give NAME=FILE for each")
    return found


def read_inputs(files: Mapping[str | None, Path]) -> dict[str | None, Array]:
    """The arrays of .npy files; nothing in them is unpickled.

    Raises:
        FileError: a file is missing, is no .npy file, is cut short, or holds Python objects.
    """
    from inlay.chunked.npy import read_npy

    arrays: dict[str | None, Array] = {}
    for name, path in files.items():
        read_npy(path)
        try:
            arrays[name] = np.load(path, allow_pickle=False)
        except OSError as error:
            raise file_error("read", path, error) from error
    return arrays


# What comes out


def described(name: str, array: Array) -> Iterator[str]:
    """Lines on an output: dims, range, mean; the greatest entries of rows of scores, with their index.

    >>> list(described("y", np.array([[0.25, 0.75]], np.float32)))
    ['y (1, 2) float32: 0.25, 0.75']
    """
    yield f"{printable(name)} {array.shape} {array.dtype}: {_summary(array)}"
    width = array.shape[1] if array.ndim > 1 and array.shape[1] >= _FEWEST else 0
    if array.dtype.kind != "f" or not width or array.size != array.shape[0] * width:
        return
    rows = array.reshape(-1, width)
    for number, row in enumerate(rows[:_ROWS]):
        best = np.argsort(-row, kind="stable")[:_BEST]
        yield f"  row {number}: " + ", ".join(f"[{i}] {float(row[i]):.4g}" for i in best)
    if len(rows) > _ROWS:
        yield f"  {len(rows) - _ROWS} more rows: -o FILE.npz writes all"


def _summary(array: Array) -> str:
    if array.size == 0:
        return "no elements"
    if array.dtype.kind == "b":
        return f"{int(array.sum())} of {array.size} are true"
    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    others = f", {values.size - finite.size} not finite" if finite.size < values.size else ""
    if not finite.size:
        return others.removeprefix(", ")
    if values.size <= 4:
        return ", ".join(f"{value:.6g}" for value in values)
    return f"from {finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}{others}"


def require_target(target: Path | None, sources: Iterable[Path]) -> None:
    """Refuse to begin what could not be written.

    Raises:
        InvalidArguments: `target` ends in neither .npz nor .npy.
        FileError: it is one of `sources`, the files that are read.
    """
    if target is None:
        return
    require_unused(target, *sources)
    if target.suffix.lower() not in (".npz", ".npy"):
        raise InvalidArguments(
            f"outputs are written as .npz, or one of them as .npy, not {target.suffix or 'without an ending'!r}"
        )


def require_names_for(target: Path, outputs: Sequence[str]) -> None:
    """Refuse outputs that the file `target` cannot keep.

    Raises:
        InvalidArguments: a .npy file is asked for several outputs, or a name would be cut short in a .npz file.
    """
    if target.suffix.lower() == ".npy":
        if len(outputs) != 1:
            raise InvalidArguments(
                f"the network has {len(outputs)} outputs, {', '.join(map(printable, outputs))}: a .npy file holds one, "
                "write a .npz file"
            )
        return
    for name in outputs:
        if "\0" in name:
            raise InvalidArguments(
                f"a .npz file cannot keep the output {name!r}: names end at the character NUL there; rename the output "
                "in the model"
            )


def write_outputs(target: Path, results: Mapping[str, Array]) -> None:
    """Write all outputs by name as .npz, or the only one as .npy; the file appears whole or not at all.

    Raises:
        InvalidArguments: the file cannot keep these outputs, see `require_names_for`.
        FileError: it cannot be written.
    """
    require_names_for(target, list(results))
    with replacing(target) as file:
        if target.suffix.lower() == ".npy":
            npy_format.write_array(file, next(iter(results.values())), allow_pickle=False)
            return
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in results.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy_format.write_array(member, array, allow_pickle=False)
