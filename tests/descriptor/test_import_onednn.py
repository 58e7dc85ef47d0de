"""Import of descriptors of a loaded oneDNN by its queries, without calls that could crash it."""

import ctypes
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any

import pytest

from inlay.data_type import DATA_TYPES
from inlay.descriptor import Extras, MemoryDesc, Opaque
from inlay.descriptor.onednn_import import DescriptorHandle
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.layout import RUNTIME
from inlay.notation.format_tag import ENUMERATED, FormatTag
from inlay.testing import draw_any_kind, draw_blocked, draw_flagged
from inlay.testing.cases import Scope
from inlay.testing.choices import Seeded
from tests.oracles import extras as poked
from tests.oracles import onednn

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


def test_runtime_entries_come_back() -> None:
    its = onednn.by_strides((RUNTIME, 6), 3, (RUNTIME, 1))
    assert import_desc(its.handle) == MemoryDesc((RUNTIME, 6), "f32", strides=(RUNTIME, 1))


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
    for _ in range(300):
        desc = draw_flagged(choose)
        if desc.kind != "blocked" or desc.data_type not in TYPES or not desc.extras:
            continue
        its = poked.flagged(onednn.mirror(desc), desc.extras)
        assert import_desc(its.handle, extras=desc.extras) == desc
        with pytest.raises(Unimplemented) as caught:
            import_desc(its.handle)
        assert str(caught.value) == (
            "this descriptor of oneDNN has extra flags, such as compensation, for which it has no query: give them "
            "as extras=inlay.Extras(...)"
        )
        seen += 1
    assert seen > 100


def test_extras_that_are_not_there_are_refused() -> None:
    its = onednn.by_strides((4, 6), 5, None)
    with pytest.raises(InvalidArguments) as caught:
        import_desc(its.handle, extras=INT8)
    assert str(caught.value) == (
        "Extras(flags=1, compensation_mask=0b1) was passed, but this descriptor of oneDNN has no extra flags"
    )
    for its in (onednn.by_tag((4, 6), 5, onednn.TAG_ANY), onednn.zero(), onednn.by_strides((RUNTIME, 6), 5, None)):
        with pytest.raises(InvalidArguments, match="has no extra flags"):
            import_desc(its.handle, extras=INT8)


@pytest.mark.skipif(not MODERN, reason="3.2 counts the buffers of extras several times")
def test_extras_of_another_size_are_refused() -> None:
    its = poked.flagged(onednn.by_strides((32, 6), 5, None), INT8)
    with pytest.raises(InvalidArguments) as caught:
        import_desc(its.handle, extras=Extras(1, compensation_mask=2))
    assert str(caught.value) == (
        "MemoryDesc((32, 6), 's8', 'ab', extras=Extras(flags=1, compensation_mask=0b10)) has 216 bytes, but oneDNN "
        "says 320: it is not the same"
    )


# What is refused

NOT_ONEDNN = "which has no dnnl_memory_desc_query: give a loaded oneDNN 3, as ctypes.CDLL('libdnnl.so.3')"


@pytest.mark.parametrize("source", [None, 0, c_void_p(), c_void_p(0)])
def test_null_is_refused(source: Any) -> None:
    with pytest.raises(InvalidArguments) as caught:
        import_desc(source)
    assert str(caught.value) == ("the handle of oneDNN is NULL: give one that a create function of oneDNN wrote")


@pytest.mark.parametrize("source", ["handle", 1.5, True, -1, 2**64, [1], memoryview(b"x")])
def test_what_is_no_handle_is_refused(source: Any) -> None:
    with pytest.raises(InvalidArguments) as caught:
        import_desc(source)
    assert str(caught.value) == (
        f"source is a {type(source).__name__}: give a dnnl_memory_desc_t as ctypes.c_void_p or as its address, or a "
        "blob as bytes"
    )


@pytest.mark.parametrize("library", [None, "libdnnl.so.3", {}, ctypes.CDLL(None)])
def test_what_is_no_onednn_is_refused(library: Any) -> None:
    its = onednn.by_strides((4, 6), 3, None)
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc.from_onednn(its.handle, library)
    assert str(caught.value) == f"library is {library!r}, {NOT_ONEDNN}"
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc.from_onednn(bytes(768), library)
    assert str(caught.value) == f"library is {library!r}: give a loaded oneDNN 3, as ctypes.CDLL('libdnnl.so.3')"


@pytest.mark.skipif(BLOBS, reason="this oneDNN has blobs")
def test_a_library_without_blobs_is_named() -> None:
    with pytest.raises(Unimplemented) as caught:
        import_desc(bytes(768))
    assert str(caught.value) == "this oneDNN has no blobs of descriptors: they came with 3.3; give the handle itself"


@blobs
@pytest.mark.parametrize("edit", [lambda b: b"", lambda b: b[:-1], lambda b: b + b"\0", lambda b: b[:8]])
def test_a_blob_of_another_length_never_reaches_the_library(edit: Callable[[bytes], bytes]) -> None:
    blob = poked.blob(onednn.by_strides((4, 6), 3, None))
    with pytest.raises(InvalidArguments) as caught:
        import_desc(edit(blob))
    assert str(caught.value) == (
        f"the blob has {len(edit(blob))} bytes, this oneDNN writes {len(blob)}: another one wrote it"
    )


@blobs
def test_inlays_own_blob_is_no_blob_of_onednn() -> None:
    with pytest.raises(InvalidArguments, match="another one wrote it"):
        import_desc(MemoryDesc((4, 6), "f32").to_blob())
    with pytest.raises(InvalidArguments, match=r"a blob of oneDNN is read by MemoryDesc\.from_onednn"):
        MemoryDesc.from_blob(poked.blob(onednn.by_strides((4, 6), 3, None)))


def test_padding_before_the_data_is_refused() -> None:
    its = onednn.by_strides((4, 6), 3, None)
    its._entries(onednn._PADDED_OFFSETS)[0] = 1
    with pytest.raises(Unimplemented) as caught:
        import_desc(its.handle)
    assert str(caught.value) == ("this descriptor of oneDNN has padding before its data: padding follows the data here")


def test_a_block_of_no_axis_is_refused() -> None:
    """oneDNN's reshape creates such a descriptor if it drops a blocked unit axis."""
    its = onednn.mirror(MemoryDesc((8, 4), "f32", "Ba8b").submemory((8, 1), (0, 0))).reshape((8,))
    with pytest.raises(Unimplemented) as caught:
        import_desc(its.handle)
    assert str(caught.value) == "this descriptor of oneDNN has a block of 8 along axis 1 of 1 dims"


def test_a_type_of_no_elements_is_refused() -> None:
    its = onednn.by_strides((4, 6), 3, None)
    # The type follows the dims in the library's structure.
    code = ctypes.c_int.from_address(ctypes.addressof(its._entries(onednn._DIMS)) + 8 * onednn.MAX_NDIMS)
    assert code.value == 3
    code.value = 99
    with pytest.raises(Unimplemented) as caught:
        import_desc(its.handle)
    assert str(caught.value) == f"oneDNN's data type of code 99 cannot be stored: {', '.join(DATA_TYPES)} can"


def test_a_structure_that_is_no_descriptor_is_refused() -> None:
    its = onednn.by_strides((4, 6), 3, None)
    # Their number stands before the dims in the library's structure.
    ndims = ctypes.c_int.from_address(ctypes.addressof(its._entries(onednn._DIMS)) - 4)
    assert ndims.value == 2
    ndims.value = 13
    with pytest.raises(InvalidArguments) as caught:
        import_desc(its.handle)
    assert str(caught.value) == "oneDNN returns 13 dims: the handle is not a descriptor of this library"


def test_a_kind_that_inlay_has_not_is_named() -> None:
    its = onednn.by_strides((4, 6), 3, None)
    kind = ctypes.addressof(its._entries(onednn._PADDED_OFFSETS)) + 8 * (onednn.MAX_NDIMS + 1)
    ctypes.c_int.from_address(kind).value = 77
    with pytest.raises(Unimplemented) as caught:
        import_desc(its.handle)
    assert str(caught.value) == ("descriptors of oneDNN's format kind 77 have no counterpart: give one of another kind")


@pytest.mark.parametrize("ask", [lambda h: h.query_int(9999), lambda h: h.query_dims(9999, 1)])
def test_a_query_that_the_library_does_not_answer_is_named(ask: Callable[[DescriptorHandle], object]) -> None:
    its = onednn.by_strides((4, 6), 3, None)
    with pytest.raises(InvalidArguments) as caught:
        ask(DescriptorHandle(onednn.library(), its.handle.value or 0))
    assert str(caught.value) == "oneDNN fails at query 9999 of this descriptor: its status is 3"


def test_strides_that_overlap_are_refused() -> None:
    its = onednn.by_strides((4, 6), 3, None).poke(strides=(3, 1))
    with pytest.raises(InvalidArguments, match="stride 3 of axis 0"):
        import_desc(its.handle)


def test_an_opaque_format_is_a_name_and_a_size() -> None:
    its = onednn.by_strides((4, 6), 3, None)
    kind = ctypes.addressof(its._entries(onednn._PADDED_OFFSETS)) + 8 * (onednn.MAX_NDIMS + 1)
    assert ctypes.c_int.from_address(kind).value == 2
    ctypes.c_int.from_address(kind).value = 3
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


def test_errors_are_inlays() -> None:
    assert issubclass(InvalidArguments, InlayError)
    assert issubclass(Unimplemented, InlayError)
