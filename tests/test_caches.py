"""The sizes of caches are read from the system's files, as far as these can be read."""

from pathlib import Path

import pytest

from inlay.reordering.caches import Cache, CacheSizes, machine_caches, sizes_of

FIRST = {"level": "1", "type": "Data", "size": "48K", "shared_cpu_list": "0,4"}
CODE = {"level": "1", "type": "Instruction", "size": "64M", "shared_cpu_list": "0,4"}
SECOND = {"level": "2", "type": "Unified", "size": "2048K", "shared_cpu_list": "0,4"}
THIRD = {"level": "3", "type": "Unified", "size": "36M", "shared_cpu_list": "0-7"}
COMMON = CacheSizes(1 << 20, 32 << 20)


def system(folder: Path, *caches: dict[str, str]) -> Path:
    """The system's files for these caches, in no order."""
    for i, files in enumerate(reversed(caches)):
        (folder / f"index{i}").mkdir()
        for name, text in files.items():
            (folder / f"index{i}" / name).write_text(f"{text}\n")
    return folder


def test_each_cache_is_read_nearest_first(tmp_path: Path) -> None:
    assert machine_caches(system(tmp_path, THIRD, CODE, SECOND, FIRST)) == (
        Cache(1, "Data", 48 << 10, (0, 4)),
        Cache(1, "Instruction", 64 << 20, (0, 4)),
        Cache(2, "Unified", 2 << 20, (0, 4)),
        Cache(3, "Unified", 36 << 20, tuple(range(8))),
    )


def test_the_last_cache_is_the_largest_that_holds_data(tmp_path: Path) -> None:
    assert sizes_of(machine_caches(system(tmp_path, FIRST, CODE, SECOND, THIRD))) == CacheSizes(2 << 20, 36 << 20)


def test_without_a_third_level_the_second_is_the_last(tmp_path: Path) -> None:
    assert sizes_of(machine_caches(system(tmp_path, FIRST, SECOND))) == CacheSizes(2 << 20, 2 << 20)


@pytest.mark.parametrize(
    "spoiled",
    [{"size": "a lot"}, {"size": "32"}, {"size": ""}, {"level": "two"}, {"shared_cpu_list": "0-x"}],
)
def test_what_cannot_be_read_is_left_out(tmp_path: Path, spoiled: dict[str, str]) -> None:
    assert sizes_of(machine_caches(system(tmp_path, SECOND | spoiled))) == COMMON


def test_a_system_that_says_nothing_has_common_caches(tmp_path: Path) -> None:
    (tmp_path / "index0").mkdir()
    assert machine_caches(tmp_path) == ()
    assert sizes_of(machine_caches(tmp_path)) == COMMON
