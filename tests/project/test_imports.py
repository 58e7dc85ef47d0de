"""`import inlay` loads few modules, all public names exist, and no name is both a function and a module."""

import importlib
import importlib.metadata as metadata
import pkgutil
import subprocess
import sys
import types
from functools import cache

import pytest

import inlay

HEAVY = {
    "llvmlite",
    "rich",
    "typer",
    "safetensors",
    "onnx",
    "torch",
    "jax",
    "dask",
    "scipy",
    "hypothesis",
    "PIL",
    "difflib",
}

_PLAIN_TEXT = ("interrupts", "errors", "lazy_names", "arguments", "data_type", "notation")
DESCRIBING = tuple(f"inlay.{room}" for room in (*_PLAIN_TEXT, "layout", "descriptor"))
LATE_FORMS = ("serialization", "blob", "onednn_import")

LOADED = """
import sys
import {module}
print(" ".join(sorted({{name.split(".")[0] for name in sys.modules}})))
print(" ".join(sorted(name for name in sys.modules if name.startswith("inlay"))))
"""


@cache
def loaded_by(module: str) -> tuple[set[str], set[str]]:
    """The packages, and the modules of Inlay, that a fresh Python holds after importing `module`."""
    result = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)], capture_output=True, text=True, check=True, timeout=60
    )
    packages, modules = result.stdout.splitlines()
    return set(packages.split()), set(modules.split())


def test_importing_inlay_loads_numpy_and_ml_dtypes_and_nothing_heavier() -> None:
    packages, modules = loaded_by("inlay")
    assert {"numpy", "ml_dtypes"} <= packages
    assert packages.isdisjoint(HEAVY)
    assert {".".join(name.split(".")[:2]) for name in modules} == {"inlay", *DESCRIBING}


def test_importing_inlay_leaves_what_few_descriptors_need_for_later() -> None:
    _, modules = loaded_by("inlay")
    assert "inlay.descriptor.memory_desc" in modules
    assert modules.isdisjoint(f"inlay.descriptor.{name}" for name in LATE_FORMS)


def test_importing_inlay_adds_little_of_the_standard_library_to_numpy() -> None:
    ours, _ = loaded_by("inlay")
    theirs, _ = loaded_by("numpy, ml_dtypes")
    assert "dataclasses" in ours
    assert (ours - theirs).isdisjoint(
        {"hashlib", "fractions", "decimal", "difflib", "tempfile", "subprocess", "asyncio"}
    )


def test_the_command_line_draws_and_explains_without_a_compiler() -> None:
    packages, modules = loaded_by("inlay.cli")
    assert packages.isdisjoint({"llvmlite", "safetensors", "onnx"})
    assert "inlay.render" in modules


def test_a_heavy_import_would_be_seen() -> None:
    packages, _ = loaded_by("llvmlite.binding, inlay.data_type")
    assert "llvmlite" in packages


@pytest.mark.parametrize("name", dir(inlay))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(inlay, name) is not None


def test_public_names_are_those_of_all() -> None:
    assert set(dir(inlay)) == {*inlay.__all__, "__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'inlay' has no attribute 'packed'$"):
        inlay.packed  # noqa: B018  the access is what is tested


def test_no_public_name_is_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(inlay.__path__)}
    assert "layout" in modules
    assert modules.isdisjoint(inlay.__all__)
    assert not [name for name in inlay.__all__ if isinstance(getattr(inlay, name), types.ModuleType)]


def test_no_room_hides_one_of_its_files() -> None:
    rooms = [importlib.import_module(m.name) for m in pkgutil.walk_packages(inlay.__path__, "inlay.") if m.ispkg]
    assert {"inlay.storage", "inlay.layout"} <= {room.__name__ for room in rooms}
    for room in rooms:
        for file in pkgutil.iter_modules(room.__path__):
            assert isinstance(getattr(room, file.name, importlib), types.ModuleType), f"{room.__name__}.{file.name}"


def test_strategies_without_hypothesis_name_the_command_that_installs_it() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import inlay.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    text = "inlay.testing needs Hypothesis, which is not installed: pip install hypothesis"
    assert done.stderr.splitlines()[-1] == f"inlay.errors.MissingExtra: {text}"


def test_a_late_name_is_the_one_of_its_module() -> None:
    assert inlay.Memory is importlib.import_module("inlay.memory").Memory
    assert inlay.show is importlib.import_module("inlay.render").show


def test_the_version_is_the_one_installed() -> None:
    try:
        installed = metadata.version("inlay")
    except metadata.PackageNotFoundError:
        pytest.skip("inlay runs from its sources here: nothing is installed to compare with")
    assert inlay.__version__ == installed


def test_primitives_are_a_room_that_is_loaded_late() -> None:
    assert "inlay.primitives" not in loaded_by("inlay")[1]
    assert inlay.primitives is importlib.import_module("inlay.primitives")
    assert "primitives" not in inlay.__all__


WITHOUT_SAVED_PLANS = (
    *("reordering.compiled", "memory.padding", "rearranging", "graph.passes.simplification", "graph.planner"),
    *("graph.planning", "graph.costs.measuring", "graph.numpy_operators.evaluation", "graph.fallback.sessions"),
    *("graph.onnx", "graph.profiling", "engines.onednn", "engines.reference"),
)
"""Modules that a session of a saved plan loads only if its program needs them."""


def test_a_session_loads_neither_planner_nor_compiler_of_reorders() -> None:
    packages, modules = loaded_by("inlay.graph.session")
    assert "inlay.graph.saved_plans.plan_file" in modules
    assert modules.isdisjoint(f"inlay.{name}" for name in WITHOUT_SAVED_PLANS)
    assert packages.isdisjoint(HEAVY - {"llvmlite"} | {"concurrent", "logging"})


@pytest.mark.parametrize("package", ["memory", "reordering", "graph.costs", "graph.passes", "graph.profiling"])
def test_lazy_names_of_a_package_are_those_of_all(package: str) -> None:
    code = (
        f"import inlay.{package} as p; print(set(p.__all__) <= set(dir(p)), {{n for n in p.__all__ if n in vars(p)}})"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == "True set()\n"
    module = importlib.import_module(f"inlay.{package}")
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"^module 'inlay.{package}' has no attribute 'pakc'$"):
        module.pakc  # noqa: B018  the access is what is tested


def test_primitives_load_no_engine() -> None:
    packages, modules = loaded_by("inlay.primitives")
    assert not any(name.startswith("inlay.engines") for name in modules)
    assert packages.isdisjoint({"torch", "onnx"})
