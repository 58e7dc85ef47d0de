"""Builds a release into `dist`, and checks it in a clean environment of every Python at hand.

    python -m tests.support.release                     all of it
    python -m tests.support.release --python 3.11 3.13  these Pythons only
    python -m tests.support.release --build-only        archives and their contents, no environments

The steps:

1. sdist from the working tree, wheel from the sdist, by `python -m build`; their version is `inlay.__version__`.
2. Contents: every tracked file of the package is in the wheel, and nothing else; the metadata is valid.
3. For each Python: a new environment with the wheel alone, in which `release_checks` runs and `pip check` finds no
   fault; then with `inlay[all]`, in which the examples of the README run. pip finds the packages of all other extras.
4. Notes of the release, from the fragments in `changes`.

Nothing is uploaded. The exit code is 1 if a check fails; `dist` then keeps its earlier files.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

LEAST = (3, 11)
"""Lowest version of Python that is supported."""
CHECKS = Path(__file__).with_name("release_checks.py")
INTERNAL_EXTRAS = ("demo", "test", "parity", "bench", "mutation", "release", "docs")
"""Extras of the checkout, not of users."""
NOT_RESOLVED = ("torch", "engine-sycl")
"""Extras of several GB, which are not looked up."""


class ReleaseFault(Exception):
    """A release that must not be published."""


@dataclass(frozen=True, slots=True)
class Archives:
    """The files of a release."""

    sdist: Path
    """Source distribution."""
    wheel: Path
    """Wheel."""
    version: str
    """Version of both."""


def declared_version() -> str:
    """The version, which is in one place: `__version__` of the package."""
    text = (ROOT / "src" / "inlay" / "__init__.py").read_text()
    (version,) = re.findall(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    return str(version)


def build_archives(folder: Path, *, isolated: bool = True) -> Archives:
    """Build both archives into a folder; without isolation, the build backend must be installed here."""
    if isolated:
        run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)])
    else:
        for kind in ("sdist", "wheel"):
            run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)], cwd=ROOT)
    version = declared_version()
    archives = Archives(folder / f"inlay-{version}.tar.gz", folder / f"inlay-{version}-py3-none-any.whl", version)
    built = sorted(path.name for path in folder.iterdir() if path.suffix in (".gz", ".whl"))
    if built != sorted([archives.sdist.name, archives.wheel.name]):
        raise ReleaseFault(
            f"the build made {', '.join(built)}: expected {archives.sdist.name} and {archives.wheel.name}"
        )
    return archives


def tracked_files(*folders: str) -> set[str]:
    """The paths of the files that git tracks in these folders."""
    done = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(filter(None, done.stdout.split("\0")))


def check_contents(archives: Archives, package: set[str], sources: set[str]) -> None:
    """Check that the wheel has the files of the package, the sdist has `sources`, and the metadata is valid.

    `package` are paths such as `inlay/errors.py`, `sources` are paths in the checkout.
    """
    with zipfile.ZipFile(archives.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        require_same("the wheel", {name for name in names if ".dist-info/" not in name}, package)
        information = f"inlay-{archives.version}.dist-info"
        for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"):
            if f"{information}/{name}" not in names:
                raise ReleaseFault(f"the wheel has no {information}/{name}")
        check_metadata(wheel.read(f"{information}/METADATA"), archives.version)
        if "Root-Is-Purelib: true" not in wheel.read(f"{information}/WHEEL").decode():
            raise ReleaseFault("the wheel is not pure Python")
    with tarfile.open(archives.sdist) as sdist:
        top = f"inlay-{archives.version}/"
        inside = {member.name.removeprefix(top) for member in sdist.getmembers() if member.isfile()}
    missing = sorted(sources - inside)
    if missing:
        raise ReleaseFault(f"the sdist lacks {len(missing)} files: {', '.join(missing[:5])}")


def require_same(name: str, found: set[str], expected: set[str]) -> None:
    """Check that an archive has the expected files and no others."""
    for word, paths in (("lacks", expected - found), ("has", found - expected)):
        if paths:
            others = "" if word == "lacks" else ", which git does not track in src"
            raise ReleaseFault(f"{name} {word} {len(paths)} files: {', '.join(sorted(paths)[:5])}{others}")


def check_metadata(data: bytes, version: str) -> None:
    """Check the metadata by the rules of the package index, and its version and lowest Python."""
    from packaging.metadata import Metadata

    metadata = Metadata.from_email(data, validate=True)
    expected = (version, f">={'.'.join(map(str, LEAST))}", "text/markdown")
    found = (str(metadata.version), str(metadata.requires_python), metadata.description_content_type)
    if found != expected:
        raise ReleaseFault(f"the metadata says {found}, not {expected}")


def user_extras() -> list[str]:
    """The extras for users, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [name for name in project["optional-dependencies"] if name not in INTERNAL_EXTRAS]


# Environments


def find_pythons(wanted: Sequence[str] = ()) -> dict[str, str]:
    """The programs of the Pythons on this machine by version, such as `3.12`: those on the path and those of pyenv.

    For each version it is the first program that runs and has `venv`; `wanted` leaves out other versions.
    """
    found: dict[str, str] = {}
    for program in _candidates():
        call = [program, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        version = done.stdout.strip()
        if done.returncode == 0 and re.fullmatch(r"3\.\d+", version) and _is_supported(version):
            found.setdefault(version, program)
    return {version: found[version] for version in sorted(found, key=_key) if not wanted or version in wanted}


def _candidates() -> Iterator[str]:
    """Programs that may be a Python, each once."""
    names = [f"python3.{minor}" for minor in range(LEAST[1], LEAST[1] + 10)] + ["python3", "python"]
    programs = [sys.executable, *filter(None, map(shutil.which, names))]
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions", Path("/opt/python")]
    for root in roots:
        programs += map(str, sorted(root.glob("*/bin/python3")))
    return iter(dict.fromkeys(programs))


def _key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _is_supported(version: str) -> bool:
    return _key(version) >= LEAST


def check_environment(archives: Archives, version: str, program: str, folder: Path) -> list[str]:
    """Check a release in a new environment of a Python; return lines on what was checked."""
    run([program, "-m", "venv", str(folder)])
    python = str(next(path for path in (folder / "bin/python", folder / "Scripts/python.exe") if path.exists()))
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run([*pip, "install", str(archives.wheel)])
    run([python, "-m", "pip", "--disable-pip-version-check", "check"])
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("INLAY_", "PYTHON"))}
    environment["INLAY_CACHE_DIR"] = str(folder / "cache")
    run([python, str(CHECKS), archives.version], cwd=elsewhere, env=environment)
    lines = [f"Python {version}: the wheel alone"]
    run([*pip, "install", f"{archives.wheel}[all]"])
    readme = elsewhere / "README.md"
    readme.write_bytes((ROOT / "README.md").read_bytes())
    doctest = [python, "-m", "doctest", "-o", "NORMALIZE_WHITESPACE", "-o", "ELLIPSIS", str(readme)]
    run(doctest, cwd=elsewhere, env=environment)
    lines.append(f"Python {version}: inlay[all], and the examples of README.md")
    for extra in user_extras():
        if extra != "all" and extra not in NOT_RESOLVED:
            run([*pip, "install", "--dry-run", "--only-binary", ":all:", f"{archives.wheel}[{extra}]"])
            lines.append(f"Python {version}: pip finds the packages of inlay[{extra}]")
    return lines


def write_notes(path: Path, version: str) -> None:
    """Write the notes of the release, as `towncrier build` would move them into CHANGES.md."""
    call = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", version]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseFault(f"towncrier: {done.stderr.strip() or done.stdout.strip()}")
    path.write_text(done.stdout)


def run(call: Sequence[str], **options: object) -> None:
    """Run a command, whose text is shown only if it fails."""
    done = subprocess.run(call, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise ReleaseFault(f"{' '.join(call)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def make_release(wanted: Sequence[str], target: Path, *, build_only: bool) -> Iterator[str]:
    """Build and check a release, and write it into a folder; yield a line for each check that passed."""
    with tempfile.TemporaryDirectory(prefix="inlay-release-") as name:
        folder = Path(name)
        archives = build_archives(folder / "dist")
        yield f"built {archives.sdist.name} and {archives.wheel.name}"
        package = {path.removeprefix("src/") for path in tracked_files("src")}
        check_contents(archives, package, tracked_files("src", "tests", "docs", "examples", "benchmarks", "LICENSE"))
        yield f"{len(package)} files of the package, and the metadata"
        if not build_only:
            yield from check_pythons(archives, wanted, folder)
        notes = folder / f"inlay-{archives.version}-notes.md"
        write_notes(notes, archives.version)
        target.mkdir(exist_ok=True)
        for path in (archives.sdist, archives.wheel, notes):
            shutil.copy(path, target / path.name)
            yield f"wrote {target.name}/{path.name}"


def check_pythons(archives: Archives, wanted: Sequence[str], folder: Path) -> Iterator[str]:
    """Check a release in an environment of each Python; yield lines on what was checked."""
    pythons = find_pythons(wanted)
    missing = sorted({*wanted} - {*pythons})
    if missing or not pythons:
        raise ReleaseFault(f"no Python {', '.join(missing) or '3.11 or newer'} with venv is at hand")
    for version, program in pythons.items():
        yield f"Python {version} is {program}"
        yield from check_environment(archives, version, program, folder / version)


def main(arguments: Iterable[str]) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.release", description="Build and check a release.")
    parser.add_argument("--python", nargs="+", default=[], metavar="VERSION", help="check these Pythons only")
    parser.add_argument("--build-only", action="store_true", help="check no environments")
    options = parser.parse_args(list(arguments))
    try:
        for line in make_release(options.python, ROOT / "dist", build_only=options.build_only):
            print(line, flush=True)
    except ReleaseFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    print("every check passed; next: `make changelog`, commit, tag, upload the files of dist")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
