"""Import of descriptors of a loaded oneDNN by its queries, without calls that could crash it."""

import ctypes
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from inlay.data_type import DATA_TYPES
from inlay.descriptor import Extras, MemoryDesc, Opaque
from inlay.descriptor.onednn_import import DescriptorHandle
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME  # noqa: F401  calls of the file name it
from inlay.notation.format_tag import ENUMERATED, FormatTag
from inlay.testing import draw_any_kind, draw_blocked, draw_flagged
from inlay.testing.cases import Scope
from inlay.testing.choices import Seeded
from tests.oracles import extras as poked
from tests.oracles import onednn
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.refusals import raises_exactly

pytestmark = pytest.mark.skipif(onednn.why_unavailable() is not None, reason=str(onednn.why_unavailable()))

LIVE = onednn.why_unavailable() is None
MODERN = LIVE and onednn.version() >= (3, 13)
BLOBS = LIVE and poked.has_blobs()
blobs = pytest.mark.skipif(not BLOBS, reason="this oneDNN has no blobs of descriptors")
TYPES = [t for t in DATA_TYPES.values() if LIVE and onednn.knows(t.code)]
SCOPE = Scope(
    data_types=TYPES, encodings=("csr", "coo", "packed") if MODERN else ("csr",), host_scalar=MODERN, huge=False
)
INT8 = Extras(1, compensation_mask=1)


def import_desc(source: Any, **said: Any) -> MemoryDesc:
    return MemoryDesc.from_onednn(source, onednn.library(), **said)


def sources(desc: onednn.Desc) -> list[Any]:
    """A descriptor of the library in every form that is read."""
    forms = [desc.handle, desc.handle.value]
    return [*forms, poked.blob(desc), bytearray(poked.blob(desc))] if BLOBS else forms


def test_every_kind_comes_back() -> None:
    choose, seen = Seeded(21), Counter[str]()
    for _ in range(1500):
        desc = draw_blocked(choose, SCOPE) if choose.pick((True, False)) else draw_any_kind(choose, SCOPE)
        if desc.kind == "sparse" and desc.sparse_encoding == "csr" and desc.ndims == 1:
            # The type of pointers that point to no rows cannot be asked.
            continue
        its = onednn.mirror(desc)
        for source in sources(its):
            mine = import_desc(source)
            assert mine == desc
            assert mine.layout == desc.layout
            assert str(mine) == str(desc)
        seen[desc.kind] += 1
    assert {"undef", "any", "blocked", "sparse"} <= set(seen)
    assert not MODERN or "host_scalar" in seen


def test_what_the_library_creates_itself_is_what_inlay_creates() -> None:
    count = 0
    for text, code in ENUMERATED.items():
        dims = (17, 3, 5, 2, 2, 3, 2, 2, 2, 2, 2, 2)[: FormatTag.parse(text).ndims]
        ours = MemoryDesc(dims, "f32", text)
        try:
            its = onednn.by_tag(dims, 3, code)
        except onednn.Refused:
            continue
        # 3.2 has other codes for some tags.
        if its == onednn.by_string_tag(dims, 3, text):
            assert import_desc(its.handle) == ours
            count += 1
    assert count > 750


def test_the_handle_stays_the_callers() -> None:
    its = onednn.by_strides((4, 6), 3, (8, 1))
    for _ in range(3):
        assert import_desc(its.handle).strides == (8, 1)
    assert its.strides == (8, 1)


def test_other_users_of_the_library_see_no_change() -> None:
    library = ctypes.CDLL(onednn.library()._name)
    its = onednn.by_strides((4, 6), 3, None)
    before = library.dnnl_memory_desc_get_size.restype, library.dnnl_memory_desc_query.argtypes
    assert MemoryDesc.from_onednn(its.handle, library).size == 96
    assert (library.dnnl_memory_desc_get_size.restype, library.dnnl_memory_desc_query.argtypes) == before


# Extras


def test_extras_are_noticed_and_taken_from_the_caller() -> None:
    choose, seen = Seeded(22), 0
    text = (
        "this descriptor of oneDNN has extra flags, such as compensation, for which it has no query: give them "
        "as extras=inlay.Extras(...)"
    )
    for _ in range(300):
        desc = draw_flagged(choose)
        if desc.kind != "blocked" or desc.data_type not in TYPES or not desc.extras:
            continue
        its = poked.flagged(onednn.mirror(desc), desc.extras)
        assert import_desc(its.handle, extras=desc.extras) == desc
        with raises_exactly(Unimplemented, text):
            import_desc(its.handle)
        seen += 1
    assert seen > 100


@pytest.mark.skipif(not MODERN, reason="3.2 counts the buffers of extras several times")
def test_extras_of_another_size_are_refused() -> None:
    its = poked.flagged(onednn.by_strides((32, 6), 5, None), INT8)
    text = (
        "MemoryDesc((32, 6), 's8', 'ab', extras=Extras(flags=1, compensation_mask=0b10)) has 216 bytes, but oneDNN "
        "says 320: it is not the same"
    )
    with raises_exactly(InvalidArguments, text):
        import_desc(its.handle, extras=Extras(1, compensation_mask=2))


# What is refused


@pytest.mark.parametrize("library", [None, "libdnnl.so.3", {}, ctypes.CDLL(None)])
def test_what_is_no_onednn_is_refused(library: Any) -> None:
    remedy = "give a loaded oneDNN 3, as ctypes.CDLL('libdnnl.so.3')"
    with raises_exactly(InvalidArguments, f"library is {library!r}, which has no dnnl_memory_desc_query: {remedy}"):
        MemoryDesc.from_onednn(plain().handle, library)
    with raises_exactly(InvalidArguments, f"library is {library!r}: {remedy}"):
        MemoryDesc.from_onednn(bytes(768), library)


@pytest.mark.skipif(BLOBS, reason="this oneDNN has blobs")
def test_a_library_without_blobs_is_named() -> None:
    text = "this oneDNN has no blobs of descriptors: they came with 3.3; give the handle itself"
    with raises_exactly(Unimplemented, text):
        import_desc(bytes(768))


@blobs
@pytest.mark.parametrize("edit", [lambda b: b"", lambda b: b[:-1], lambda b: b + b"\0", lambda b: b[:8]])
def test_a_blob_of_another_length_never_reaches_the_library(edit: Callable[[bytes], bytes]) -> None:
    blob = poked.blob(plain())
    text = f"the blob has {len(edit(blob))} bytes, this oneDNN writes {len(blob)}: another one wrote it"
    with raises_exactly(InvalidArguments, text):
        import_desc(edit(blob))


@blobs
def test_inlays_own_blob_is_no_blob_of_onednn() -> None:
    with pytest.raises(InvalidArguments, match="another one wrote it"):
        import_desc(MemoryDesc((4, 6), "f32").to_blob())
    with pytest.raises(InvalidArguments, match=r"a blob of oneDNN is read by MemoryDesc\.from_onednn"):
        MemoryDesc.from_blob(poked.blob(plain()))


def plain() -> onednn.Desc:
    return onednn.by_strides((4, 6), 3, None)


# A query whose result is inside the library's structure, and bytes from there to a field: the number of dims stands
# before the dims, the type follows them, and the kind follows the padded offsets and offset0.
NDIMS, TYPE = (onednn._DIMS, -4), (onednn._DIMS, 8 * onednn.MAX_NDIMS)
OFFSETS, KIND = (onednn._PADDED_OFFSETS, 0), (onednn._PADDED_OFFSETS, 8 * (onednn.MAX_NDIMS + 1))


def poke(field: tuple[int, int], before: int, after: int) -> onednn.Desc:
    """A descriptor with another number in a field of its structure."""
    its = plain()
    number = ctypes.c_int.from_address(ctypes.addressof(its._entries(field[0])) + field[1])
    assert number.value == before
    number.value = after
    return its


def read(its: onednn.Desc, **options: Any) -> MemoryDesc:
    """Import a descriptor of the library, which lives meanwhile."""
    return import_desc(its.handle, **options)


@pytest.mark.parametrize(("call", "error"), read_mistakes("onednn_import"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, globals())


def test_a_type_of_no_elements_is_refused() -> None:
    with raises_exactly(Unimplemented, f"oneDNN's data type of code 99 cannot be stored: {', '.join(DATA_TYPES)} can"):
        read(poke(TYPE, 3, 99))


@pytest.mark.parametrize("ask", [lambda h: h.query_int(9999), lambda h: h.query_dims(9999, 1)])
def test_a_query_that_the_library_does_not_answer_is_named(ask: Callable[[DescriptorHandle], object]) -> None:
    its = plain()
    with raises_exactly(InvalidArguments, "oneDNN fails at query 9999 of this descriptor: its status is 3"):
        ask(DescriptorHandle(onednn.library(), its.handle.value or 0))


def test_an_opaque_format_is_a_name_and_a_size() -> None:
    its = poke(KIND, 2, 3)
    mine = import_desc(its.handle)
    assert mine.kind == "opaque"
    assert mine.layout == Opaque("opaque", its.size)


# Untrusted blobs: in a process of their own, which must live

FUZZ = """
import random, sys
sys.path[:0] = {path!r}
from tests.oracles import extras, onednn
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.testing import draw_blocked
from inlay.testing.cases import Scope
from inlay.testing.choices import Seeded

rng, choose, accepted = random.Random(0), Seeded(0), 0
for _ in range(3000):
    blob = bytearray(extras.blob(onednn.mirror(draw_blocked(choose, Scope()))))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(blob))
        blob[at] = rng.choice((0, 1, 4, 255, 128, rng.randrange(256)))
    try:
        desc = MemoryDesc.from_onednn(bytes(blob), onednn.library())
    except InlayError:
        continue
    assert MemoryDesc.from_json(desc.to_json()) == desc
    accepted += 1
print(accepted)
"""


@blobs
def test_3000_spoiled_blobs_crash_nothing() -> None:
    """Blocks of 0 elements, a hundred dims, overlapping strides: the library's arithmetic is given none of that."""
    code = FUZZ.format(path=sys.path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 100
