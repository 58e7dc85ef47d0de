"""The packages that Inlay needs, and those of its extras: which are installed, and the command that installs others.

Names and versions are those that the metadata of the installed package require.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PURPOSES: Mapping[str, str] = {
    "onnx": "networks in ONNX files",
    "engine": "oneDNN's kernels",
    "torch": "modules of PyTorch",
    "fallback": "other operators, by ONNX Runtime",
    "storage": "Zarr, Dask, URLs",
    "sparse": "sparse matrices of SciPy",
    "explore": "the explorer in a browser",
    "png": "pictures as PNG",
}
"""What each extra for users is for; other extras are for tests and benchmarks."""

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[(?P<extras>[^]]*)\])?\s*\(?(?P<bounds>[^;)]*)\)?;?(?P<marker>.*)"
)
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_LEAST = re.compile(r">=\s*([0-9][0-9.]*)")


@dataclass(frozen=True, slots=True)
class RequiredPackage:
    """A package that Inlay or one of its extras requires, and its installed version."""

    name: str
    """Name of the distribution."""
    least: str | None
    """Lowest version that is accepted; None: any."""
    version: str | None
    """Installed version; None if it is not installed."""

    @property
    def is_usable(self) -> bool:
        """True if the package is installed in a version that is accepted."""
        return self.version is not None and (self.least is None or _release(self.version) >= _release(self.least))

    def __str__(self) -> str:
        """Return the name with its version, or what is wrong with it."""
        if self.version is None:
            return f"{self.name} is missing"
        return f"{self.name} {self.version}" + ("" if self.is_usable else f" is older than {self.least}")


@dataclass(frozen=True, slots=True)
class ExtraState:
    """An extra for users, and the state of its packages."""

    name: str
    """Name of the extra, as in `inlay[onnx]`."""
    purpose: str
    """Purpose of the extra."""
    packages: tuple[RequiredPackage, ...]
    """Its packages, also those of extras that it includes."""

    @property
    def is_usable(self) -> bool:
        """True if all packages are installed in versions that are accepted."""
        return all(package.is_usable for package in self.packages)

    @property
    def command(self) -> str:
        """The command that installs the extra."""
        return f"pip install 'inlay[{self.name}]'"

    def as_json(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        return {
            "extra": self.name,
            "purpose": self.purpose,
            "is_usable": self.is_usable,
            "packages": [package_document(package) for package in self.packages],
            "install": None if self.is_usable else self.command,
        }


def package_document(package: RequiredPackage) -> dict[str, Any]:
    """Return a package as a JSON object."""
    return {"name": package.name, "version": package.version, "least": package.least, "is_usable": package.is_usable}


def required_packages(requirements: Iterable[str] | None = None) -> tuple[RequiredPackage, ...]:
    """Return the packages that Inlay itself needs; `requirements` are those of its metadata by default."""
    return tuple(package for extra, package in _read(requirements) if extra is None and package.name != "inlay")


def extra_states(requirements: Iterable[str] | None = None) -> tuple[ExtraState, ...]:
    """Return the extras for users with their packages; `requirements` are those of the metadata by default.

    >>> [str(state.packages[0]) for state in extra_states(["numpy>=2", "nowhere>=1; extra == 'onnx'"])]
    ['nowhere is missing']
    """
    texts = _metadata_requirements() if requirements is None else list(requirements)
    packages: dict[str, list[RequiredPackage]] = {}
    for extra, package in _read(texts):
        if extra is not None:
            packages.setdefault(extra, []).append(package)
    included = _included_extras(texts)
    return tuple(
        ExtraState(
            name,
            purpose,
            tuple(
                dict.fromkeys(
                    package
                    for each in (name, *included.get(name, ()))
                    for package in packages.get(each, ())
                    if package.name != "inlay"
                )
            ),
        )
        for name, purpose in PURPOSES.items()
        if name in packages
    )


def _metadata_requirements() -> list[str]:
    """Return the requirements in the metadata of Inlay; empty if it is used without being installed."""
    from importlib import metadata  # it takes a tenth of the start-up time of other commands

    try:
        return metadata.requires("inlay") or []
    except metadata.PackageNotFoundError:
        return []


def _read(requirements: Iterable[str] | None) -> Iterable[tuple[str | None, RequiredPackage]]:
    """Yield each requirement with its extra, None for those of Inlay itself."""
    for text in _metadata_requirements() if requirements is None else requirements:
        parts = _REQUIREMENT.match(text)
        if parts is None:
            continue
        extra, least = _EXTRA.search(parts["marker"]), _LEAST.search(parts["bounds"])
        name = parts["name"]
        yield (
            None if extra is None else extra[1],
            RequiredPackage(name, None if least is None else least[1].rstrip("."), _installed_version(name)),
        )


def _included_extras(requirements: Iterable[str]) -> dict[str, list[str]]:
    """Return the extras that each extra includes, as `torch` includes `onnx` by `inlay[onnx]`."""
    included: dict[str, list[str]] = {}
    for text in requirements:
        parts = _REQUIREMENT.match(text)
        extra = None if parts is None else _EXTRA.search(parts["marker"])
        if parts is not None and extra is not None and parts["name"] == "inlay" and parts["extras"]:
            included.setdefault(extra[1], []).extend(each.strip() for each in parts["extras"].split(","))
    return included


def _installed_version(name: str) -> str | None:
    """Return the installed version of a distribution; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, without zeros at the end, so that 2 equals 2.0.

    >>> _release("1.19.0rc1") >= _release("1.19"), _release("0.9") < _release("0.10")
    (True, True)
    """
    leading = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    numbers = [int(part) for part in leading[0].split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
