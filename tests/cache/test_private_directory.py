"""The cache directory: files that other users could have written are ignored, and no file causes a hang or an error."""

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

import inlay
from inlay import cache
from inlay.cache import private_directory
from inlay.errors import FileError
from inlay.graph.costs.timing_records import KernelTiming, RelativeTime, TimingRecords
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compiled
from inlay.reordering import target as target_module
from inlay.reordering.machine_code import ir_of
from inlay.reordering.target import compile_ir, host_target
from tests.support.cached_reorders import DST, SRC, forget_memory, reorder_is_right

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and permission bits are Unix's")
IS_ROOT = os.geteuid() == 0 if hasattr(os, "geteuid") else False
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root gives files to other users")
OTHER = 65534
KEY = "a" * 64
REMEDY = "set INLAY_CACHE_DIR to a directory in one that is yours alone"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A sound cache directory, and no code in memory."""
    folder = tmp_path / "parent" / "cache"
    (tmp_path / "parent").mkdir(mode=0o700)
    monkeypatch.setenv("INLAY_CACHE_DIR", str(folder))
    forget_memory(monkeypatch)
    yield folder
    find_reorder.cache_clear()


def refusal() -> str:
    with pytest.raises(FileError) as caught:
        cache.require_cache_directory()
    return str(caught.value)


def others_may_write(directory: Path, above: Path) -> str:
    text = f"the cache directory {directory} is in {above}, to which other users may write"
    return f"{text}: chmod go-w {above}, or {REMEDY}"


# Directories


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o757, 0o775])
@pytest.mark.parametrize("above", [1, 2])
def test_a_directory_that_others_could_exchange_is_not_used(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch, mode: int, above: int
) -> None:
    assert reorder_is_right()
    (kept,) = directory.iterdir()
    open_to_others = directory.parents[above - 1]
    before = stat.S_IMODE(open_to_others.stat().st_mode)
    open_to_others.chmod(mode)
    monkeypatch.setattr(private_directory, "_is_private_group", lambda group: False)
    forget_memory(monkeypatch)
    assert cache.read_object(kept.stem) is None
    assert refusal() == others_may_write(directory, open_to_others)
    assert reorder_is_right()
    open_to_others.chmod(before)
    assert cache.read_object(kept.stem) is not None


def test_the_sticky_bit_and_a_group_of_one_protect_what_is_in_a_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_object(KEY, b"code")
    directory.parent.chmod(0o1777)
    assert cache.read_object(KEY) == b"code"
    directory.parent.chmod(0o775)
    monkeypatch.setattr(private_directory, "_is_private_group", lambda group: group == directory.parent.stat().st_gid)
    assert cache.read_object(KEY) == b"code"


def test_a_group_of_one_has_the_name_of_the_user_and_no_other_member(monkeypatch: pytest.MonkeyPatch) -> None:
    grp, pwd = pytest.importorskip("grp"), pytest.importorskip("pwd")
    user = pwd.getpwuid(os.geteuid())
    for name, members, number, is_private in [
        (user.pw_name, [], user.pw_gid, True),
        (user.pw_name, [user.pw_name], user.pw_gid, True),
        (user.pw_name, [user.pw_name, "eve"], user.pw_gid, False),
        ("staff", [], user.pw_gid, False),
        (user.pw_name, [], user.pw_gid + 1, False),
    ]:
        entry = grp.struct_group((name, "x", number, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, entry=entry: entry)
        assert private_directory._is_private_group(number) is is_private
    monkeypatch.setattr(grp, "getgrgid", Mock(side_effect=KeyError))
    assert not private_directory._is_private_group(user.pw_gid)


@needs_root
@pytest.mark.parametrize(
    ("is_parent", "text"),
    [
        (True, f"is in {{parent}}, which belongs to another user: {REMEDY}"),
        (False, "belongs to another user, whose machine code is not run"),
    ],
)
def test_a_directory_of_another_user_is_not_used(directory: Path, is_parent: bool, text: str) -> None:
    cache.write_object(KEY, b"code")
    os.chown(directory.parent if is_parent else directory, OTHER, OTHER)
    assert cache.read_object(KEY) is None
    assert refusal() == f"the cache directory {directory} {text.format(parent=directory.parent)}"


def test_what_a_link_leads_to_is_checked(tmp_path: Path, directory: Path) -> None:
    above, real = tmp_path / "open", tmp_path / "open" / "real"
    above.mkdir()
    above.chmod(0o777)
    real.mkdir(mode=0o700)
    directory.symlink_to(real)
    assert refusal() == others_may_write(directory, above)
    above.chmod(0o700)
    cache.write_object(KEY, b"code")
    assert cache.read_object(KEY) == b"code"
    assert (real / f"{KEY}.o").exists()


def test_directories_that_are_made_on_the_way_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "one" / "two" / "three"))
    before = os.umask(0)
    try:
        cache.write_object(KEY, b"code")
    finally:
        os.umask(before)
    made = [tmp_path / path for path in ("one", "one/two", "one/two/three")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3
    assert cache.read_object(KEY) == b"code"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have other places")
def test_by_default_it_is_in_the_cache_directory_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INLAY_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.require_cache_directory() == tmp_path / ".cache" / "inlay"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert cache.require_cache_directory() == tmp_path / "other" / "inlay"


def test_very_many_directories_on_the_way_are_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = Path(str(tmp_path) + "/a" * 1500)
    monkeypatch.setenv("INLAY_CACHE_DIR", str(deep))
    cache.write_object(KEY, b"code")
    assert cache.read_object(KEY) == b"code"
    (deep / f"{KEY}.o").unlink()
    while deep != tmp_path:  # what removes pytest's directories goes no deeper than 1000
        deep.rmdir()
        deep = deep.parent


def test_whoever_exchanges_the_directory_meanwhile_changes_nothing(tmp_path: Path, directory: Path) -> None:
    cache.write_object(KEY, b"ours")
    sealed = (directory / f"{KEY}.o").read_bytes()
    with private_directory.PrivateDirectory(directory) as opened:
        directory.rename(tmp_path / "away")
        directory.mkdir(mode=0o700)
        (directory / f"{KEY}.o").write_bytes(b"theirs")
        assert opened.read(f"{KEY}.o", 1000) == sealed
        opened.write("new", b"content")
    assert (tmp_path / "away" / "new").read_bytes() == b"content"
    assert not (directory / "new").exists()


# Files


def _write_sealed(path: Path, mode: int = 0o600) -> None:
    path.write_bytes(cache._digest(KEY, b"code") + b"code")
    path.chmod(mode)


def _make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _link_to_a_sound_one(path: Path) -> None:
    elsewhere = path.parents[2] / "elsewhere"
    _write_sealed(elsewhere)
    path.symlink_to(elsewhere)


def _write_for_another_user(path: Path) -> None:
    _write_sealed(path)
    os.chown(path, OTHER, OTHER)


each_unsound_file = pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: os.mkfifo(path, 0o600), id="fifo"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), id="endless"),
        pytest.param(lambda path: _write_sealed(path, 0o666), id="writable by others"),
        pytest.param(_make_huge, id="huge"),
        pytest.param(Path.mkdir, id="directory"),
        pytest.param(_link_to_a_sound_one, id="link to a sound one"),
        pytest.param(_write_for_another_user, id="of another user", marks=needs_root),
    ],
)


@each_unsound_file
def test_a_file_that_is_not_ours_alone_is_as_good_as_none(directory: Path, make: Callable[[Path], None]) -> None:
    directory.mkdir(mode=0o700)
    path = directory / f"{KEY}.o"
    make(path)
    assert cache.read_object(KEY) is None
    cache.write_object(KEY, b"ours")
    if path.is_dir():
        assert [entry.name for entry in directory.iterdir()] == [path.name]
        return
    assert cache.read_object(KEY) == b"ours"
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600


@each_unsound_file
def test_every_reader_survives_such_a_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """Machine code and costs; tuned choices and the machine model are read by the same function."""
    assert reorder_is_right()
    book = TimingRecords("test")
    book.write_kernel("a", KernelTiming("jit:test", RelativeTime(1.5), 0, ()))
    book.save()
    for path in directory.iterdir():
        path.unlink()
        make(path)
    forget_memory(monkeypatch)
    assert reorder_is_right()
    again = TimingRecords("test")
    assert again.kernel("a") is None
    again.write_kernel("a", KernelTiming("jit:test", RelativeTime(2.5), 0, ()))
    again.save()
    assert again.kernel("a") == KernelTiming("jit:test", RelativeTime(2.5), 0, ())


def test_only_one_module_knows_the_directory() -> None:
    """The class of fault: a reader or writer that checks less than the others."""
    package = Path(inlay.__file__).parent
    naming = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in ("INLAY_CACHE_DIR", "XDG_CACHE_HOME", "cache_directory"))
    }
    assert naming == {"cache/__init__.py", "cache/private_directory.py"}


# Sealed, and not what LLVM can load


def sound_object() -> bytes:
    plan = compiled.compile_reorder(SRC, DST).plan
    assert plan is not None
    return compile_ir(ir_of(plan.kernel, host_target()), host_target())


SPOILS: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda data: b"garbage" * 100,
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "bad ELF": lambda data: data[:16] + bytes(48) + data[64:],
    "no symbols": lambda data: compile_ir("define void @other() { ret void }", host_target()),
}


@pytest.mark.parametrize("name", SPOILS)
def test_a_sealed_object_that_llvm_cannot_load_is_compiled_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    assert reorder_is_right()
    (kept,) = directory.iterdir()
    cache.write_object(kept.stem, SPOILS[name](sound_object()))
    forget_memory(monkeypatch)
    assert reorder_is_right()
    capfd.readouterr()
    forget_memory(monkeypatch)
    monkeypatch.setattr(
        target_module, "compile_ir", lambda text, target: pytest.fail("what is kept is not sound again")
    )
    assert reorder_is_right()


# Directories that cannot be written

PLAN = """
import os, sys, resource, signal
import inlay
from tests.support.network_runs import model_of, node

def plan_graph(width):
    model = model_of([node("Relu", "x", "y")], {{"x": (1, 8, width, 6)}}, ["y"])
    return inlay.plan(inlay.load(model.SerializeToString()), costs="measured")

plan_graph(6)  # so that everything is loaded: another user may not read this Python
os.environ["INLAY_CACHE_DIR"] = sys.argv[1]
if os.geteuid() == 0:  # root may write everywhere
    os.setgid(65534)
    os.setuid(65534)
{limit}
plan = plan_graph(7)
print(plan.sources.unsaved if plan.sources else "")
"""


def plan_graph(folder: Path, limit: str = "") -> str:
    command = [sys.executable, "-c", PLAN.format(limit=limit), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that the user `OTHER` can reach, and owns where this is root; pytest's are root's alone."""
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        folder = Path(made) / "cache"
        folder.mkdir(mode=0o700)
        if IS_ROOT:
            os.chown(folder, OTHER, OTHER)
            os.chown(made, OTHER, OTHER)
        yield folder
        folder.chmod(0o700)


@pytest.mark.heavy
def test_a_plan_is_made_without_a_directory_that_can_be_written(public_directory: Path) -> None:
    public_directory.chmod(0o500)
    # The reference engine measures nothing, and then there is nothing that could be kept.
    assert plan_graph(public_directory) in (
        "",
        f"cannot write to the cache directory {public_directory}: permission denied; check who may use it",
    )


@pytest.mark.heavy
def test_a_plan_is_made_where_no_file_may_be_written(public_directory: Path) -> None:
    limit = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] != 0
    unsaved = plan_graph(public_directory, limit)
    assert unsaved == "" or unsaved.startswith(f"cannot write to the cache directory {public_directory}: ")
    assert [path.name for path in public_directory.iterdir() if path.suffix != ".lock"] == []


def test_where_nothing_can_be_opened_relative_to_a_directory_paths_are_used(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_directory, "_RELATIVE", False)
    monkeypatch.setattr(private_directory, "_HAS_OWNERS", False)
    cache.write_object(KEY, b"code")
    assert cache.read_object(KEY) == b"code"
    assert reorder_is_right()
    forget_memory(monkeypatch)
    assert reorder_is_right()


@pytest.mark.heavy
@needs_root
def test_no_content_of_another_user_is_read_while_he_exchanges_the_directory(
    public_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His loop exchanges two directories; the parent is his, so all that the directory holds may be his."""
    ctypes = pytest.importorskip("ctypes")
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("the system exchanges no two names at once")
    monkeypatch.setenv("INLAY_CACHE_DIR", str(public_directory))
    monkeypatch.setattr(private_directory, "_require_safe_parents", lambda *_: None)  # the last defense alone
    os.chown(public_directory, 0, 0)
    cache.write_object(KEY, b"ours")
    evil = public_directory.parent / "evil"
    evil.mkdir(mode=0o700)
    (evil / f"{KEY}.o").write_bytes(cache._digest(KEY, b"theirs") + b"theirs")
    for path in (evil / f"{KEY}.o", evil):
        os.chown(path, OTHER, OTHER)
    code = (
        "import ctypes, os, sys, time\n"
        "os.setuid(65534)\n"
        "libc, end = ctypes.CDLL(None, use_errno=True), time.monotonic() + 4\n"
        "one, other = (os.fsencode(path) for path in sys.argv[1:])\n"
        "while time.monotonic() < end:\n"
        "    assert libc.renameat2(-100, one, -100, other, 2) == 0, os.strerror(ctypes.get_errno())\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code, str(public_directory), str(evil)])
    found = set()
    while run.poll() is None:
        found.add(cache.read_object(KEY))
    assert run.returncode == 0
    assert found <= {None, b"ours"}
