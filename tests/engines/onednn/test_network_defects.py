"""What oneDNN is known to compute wrongly, or to crash on, is declined; what stands beside it is computed."""

from typing import Any

import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from tests.oracles import onednn as oracle

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

TRAIN: Any = {"prop_kind": "forward_training", "engine": "onednn"}
LATER = oracle.why_unavailable() is None and oracle.version() >= (3, 3)


def plain(*dims: int) -> MemoryDesc:
    return MemoryDesc(dims, "f32")


GAPS = MemoryDesc((2, 3, 4, 4), "f32", strides=(60, 20, 5, 1))
IMAGE = plain(2, 3, 4, 4)


def lrn(local_size: int) -> Any:
    return p.LRN(IMAGE, local_size=local_size, alpha=1.0, beta=0.75, **TRAIN)


def norm(src: MemoryDesc) -> Any:
    return p.BatchNormalization(src, epsilon=1e-3, flags="fuse_norm_relu", **TRAIN)


def pool(src: MemoryDesc) -> Any:
    return p.Pooling(src, algorithm="max", kernel=2, **TRAIN)


def prelu(src: MemoryDesc, *weights: int) -> Any:
    return p.PReLU(src, plain(*weights), **TRAIN)


def dense(outputs: int) -> Any:
    return p.InnerProduct(plain(2, 16), plain(outputs, 16), **TRAIN)


def resampled(extent: int) -> Any:
    return p.Resampling(plain(2, 3, extent), factors=4, **TRAIN)


@pytest.mark.parametrize(
    ("declined", "text"),
    [
        (lambda: lrn(1), "safe gradient of LRN with a local_size of 1"),
        (lambda: norm(GAPS), "safe gradient of batch_normalization of a view with gaps"),
        (lambda: pool(GAPS), "safe gradient of pooling of a view with gaps"),
        (lambda: prelu(GAPS, 1, 3, 1, 1), "safe gradient of prelu of a view with gaps"),
        (lambda: prelu(plain(0, 3, 4, 4), 1, 3, 1, 1), "safe PReLU of tensors without elements"),
    ],
)
def test_what_no_release_does_rightly_is_declined(declined: Any, text: str) -> None:
    with pytest.raises(Unimplemented) as refusal:
        declined()
    assert text in str(refusal.value)


@pytest.mark.parametrize("later", [lambda: prelu(IMAGE, 1, 3, 4, 1), lambda: dense(1), lambda: resampled(1)])
def test_what_only_releases_after_3_2_get_wrong_3_2_computes(later: Any) -> None:
    if not LATER:
        assert later().engine.name.startswith("onednn")
        return
    with pytest.raises(Unimplemented, match=r"has no (correct|safe)"):
        later()


@pytest.mark.parametrize(
    "right",
    [
        lambda: lrn(3),
        lambda: norm(IMAGE),
        lambda: pool(IMAGE),
        lambda: prelu(IMAGE, 1, 3, 1, 1),
        lambda: dense(2),
        lambda: resampled(2),
    ],
)
def test_what_stands_beside_them_is_computed(right: Any) -> None:
    assert right().engine.name.startswith("onednn")


def test_descriptors_that_are_forgotten_live_until_the_library_has_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # With room for one descriptor each is forgotten when the next argument is described.
    monkeypatch.setattr("inlay.engines.onednn.descs._MAX_CACHED", 1)
    for width in range(1, 60):
        sources = [MemoryDesc((2, width), "f32", tag) for tag in ("ab", "ba", "ab")]
        assert p.Sum(sources, engine="onednn").dst_desc.dims == (2, width)
