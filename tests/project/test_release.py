"""A release: its archives have all files, its version is in one place, and faults of it are found."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import inlay
from inlay.cli.extras import PURPOSES
from tests.support.paths import ROOT
from tests.support.release import (
    INTERNAL_EXTRAS,
    Archives,
    ReleaseFault,
    build_archives,
    check_contents,
    declared_version,
    find_pythons,
    make_release,
    tracked_files,
    user_extras,
)

SOURCES = ("src", "tests", "docs", "examples", "benchmarks", "LICENSE")


def is_checkout() -> bool:
    """True if the tree is one of git, as `tracked_files` needs."""
    call = ["git", "rev-parse", "--is-inside-work-tree"]
    return subprocess.run(call, cwd=ROOT, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Archives that are built from this tree, by the build backend that is installed here."""
    pytest.importorskip("hatchling")
    pytest.importorskip("packaging")
    if not is_checkout():
        pytest.skip("git does not track this tree")
    return build_archives(tmp_path_factory.mktemp("dist"), isolated=False)


def package_files() -> set[str]:
    """The files of the package that git tracks, as paths in a wheel."""
    return {path.removeprefix("src/") for path in tracked_files("src")}


def test_the_archives_have_every_file(archives: Archives) -> None:
    assert archives.wheel.name == f"inlay-{inlay.__version__}-py3-none-any.whl"
    check_contents(archives, package_files(), tracked_files(*SOURCES))


def test_a_file_that_is_not_in_the_wheel_is_found(archives: Archives) -> None:
    with pytest.raises(ReleaseFault, match=r"^the wheel lacks 1 files: inlay/data/new\.toml$"):
        check_contents(archives, package_files() | {"inlay/data/new.toml"}, set())
    with pytest.raises(
        ReleaseFault, match=r"^the wheel has 1 files: inlay/py\.typed, which git does not track in src$"
    ):
        check_contents(archives, package_files() - {"inlay/py.typed"}, set())
    with pytest.raises(ReleaseFault, match=r"^the sdist lacks 1 files: docs/new\.md$"):
        check_contents(archives, package_files(), {"docs/new.md"})


def test_the_wheel_works_outside_the_checkout(archives: Archives, tmp_path: Path) -> None:
    with zipfile.ZipFile(archives.wheel) as wheel:
        wheel.extractall(tmp_path)
    show = "sys.exit(main(['show', 'nChw8c', '1x8x1x2']))"
    program = f"import inlay, sys; from inlay.cli import main; print(inlay.__file__); {show}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path / 'inlay' / '__init__.py'}\nnChw8c")


def test_the_sdist_builds_the_same_wheel(archives: Archives, tmp_path: Path) -> None:
    with tarfile.open(archives.sdist) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    call = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(call, cwd=folder, capture_output=True, check=True)
    (again,) = (tmp_path / "again").iterdir()
    assert again.read_bytes() == archives.wheel.read_bytes()


def test_the_version_is_in_one_place() -> None:
    version = declared_version()
    assert version == inlay.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]
    places = [
        path
        for path in tracked_files("src", "docs", "examples", "benchmarks", "pyproject.toml", "Makefile", "README.md")
        if re.search(rf"(?<![\w.]){re.escape(version)}(?![\w.])", (ROOT / path).read_text(errors="replace"))
    ]
    assert places == ["src/inlay/__init__.py"]


def test_every_extra_is_for_users_or_for_the_checkout() -> None:
    users = {*user_extras()} - {"all", "engine-sycl"}
    assert users <= {*PURPOSES}
    assert not {*PURPOSES} & {*INTERNAL_EXTRAS}


def test_this_python_is_found() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    call = [sys.executable, "-c", "import venv, ensurepip"]
    has_venv = subprocess.run(call, capture_output=True, check=False).returncode == 0
    assert (version in find_pythons([version])) or not has_venv


@pytest.mark.heavy
@pytest.mark.long
def test_a_release_passes_its_checks_on_this_python(tmp_path: Path) -> None:
    pytest.importorskip("build")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = list(make_release([version], tmp_path / "dist", build_only=False))
    assert f"Python {version}: inlay[all], and the examples of README.md" in lines
