"""`rearrange`, `repeat`, `transpose`, `ascontiguous` against loops, and the texts of mistakes."""

import runpy
from collections.abc import Callable
from itertools import pairwise, permutations, product
from math import inf, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InlayError
from inlay.rearranging.rearrangement import _calls
from tests.support.paths import ROOT

DTYPES = ("u1", "f2", "f4", "f8", "c16", "?", ">i4", "datetime64[s]", "U3", "O", "i2")


def expected_rearrangement(x: Any, left: list[list[str]], right: list[list[str]], lengths: dict[str, int]) -> Any:
    """Return the rearrangement of `x` coordinate by coordinate; groups are lists of names."""
    result = np.empty([prod(lengths[name] for name in group) for group in right], x.dtype)
    names = sorted({name for group in left + right for name in group})
    for values in product(*(range(lengths[name]) for name in names)):
        at = dict(zip(names, values, strict=True))
        src, dst = (tuple(_join(group, at, lengths) for group in side) for side in (left, right))
        result[dst] = x[src]
    return result


def _join(group: list[str], at: dict[str, int], lengths: dict[str, int]) -> int:
    """Return the coordinate along a group."""
    index = 0
    for name in group:
        index = index * lengths[name] + at[name]
    return index


def side_text(groups: list[list[str]]) -> str:
    """Return one side of a pattern."""
    return " ".join(group[0] if len(group) == 1 else f"({' '.join(group)})" for group in groups)


@st.composite
def rearrangements(draw: Any, *, adds: bool) -> tuple[list[list[str]], list[list[str]], dict[str, int]]:
    """Draw both sides of a pattern and the lengths of its names."""
    names = list("abcdef"[: draw(st.integers(0, 5))])
    lengths = {name: draw(st.integers(1, 4)) for name in names}
    added = {f"new{i}": draw(st.integers(1, 3)) for i in range(draw(st.integers(0, 2)) if adds else 0)}
    right = draw(st.permutations([*names, *added]))
    return _grouped(draw, names), _grouped(draw, list(right)), lengths | added


def _grouped(draw: Any, names: list[str]) -> list[list[str]]:
    """Cut names into groups, of which some may be empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(names)), min_size=1 if names else 0, max_size=4)))
    bounds = [0, *cuts, len(names)]
    return [names[a:b] for a, b in pairwise(bounds)]


def strided(x: Any, flips: list[bool], order: list[int]) -> Any:
    """Return an array equal to `x` whose memory has another order, with some axes reversed."""
    stored = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order).tolist() or None)
    where = tuple(slice(None, None, -1) if flip else slice(None) for flip in flips)
    return np.copy(stored[where], order="K")[where] if x.ndim else stored


@pytest.mark.parametrize("least", [0.0, inf], ids=["machine code", "framework"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), adds=st.booleans())
def test_the_elements_are_where_the_pattern_says(
    monkeypatch: pytest.MonkeyPatch, least: float, data: st.DataObject, adds: bool
) -> None:
    """Views, moves in both ways that are timed, and `out` give what loops over coordinates give."""
    monkeypatch.setattr("inlay.rearranging.array_calls._CLEARLY", least)
    _calls.clear()
    left, right, lengths = data.draw(rearrangements(adds=adds))
    shape = [prod(lengths[name] for name in group) for group in left]
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    plain = np.arange(prod(shape)).reshape(shape).astype(dtype)
    flips = [data.draw(st.booleans()) for _ in shape]
    x = strided(plain, flips, data.draw(st.permutations(range(len(shape)))))
    operation = inlay.repeat if adds else inlay.rearrange
    pattern = f"{side_text(left)} -> {side_text(right)}"
    expected = expected_rearrangement(plain, left, right, lengths)
    for _ in range(2):  # the second call is a remembered one
        for copy in (None, True):
            result = operation(x, pattern, copy=copy, **lengths)
            assert result.dtype == dtype
            assert np.array_equal(result, expected)
            assert copy is None or not np.shares_memory(result, x)
        out = np.empty(expected.shape, dtype)[...]
        assert operation(x, pattern, out=out, **lengths) is out
        assert np.array_equal(out, expected)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_values_are_scaled_and_converted(data: st.DataObject) -> None:
    """The result is the product in f32, rounded and saturated, with a number and with an array of scales."""
    left, right, lengths = data.draw(rearrangements(adds=False))
    shape = [prod(lengths[name] for name in group) for group in left]
    x = np.arange(prod(shape)).reshape(shape).astype(np.float32) * 3 - 20
    moved = expected_rearrangement(x, left, right, lengths)
    counts = [n if data.draw(st.booleans()) else 1 for n in moved.shape]
    scale = np.arange(1, 1 + prod(counts)).reshape(counts).astype(np.float32) / 4
    pattern = f"{side_text(left)} -> {side_text(right)}"
    for factor in (scale, 0.5):
        result = inlay.rearrange(x, pattern, dtype="s8", scale=factor, **lengths)
        assert np.array_equal(result, np.clip(np.rint(moved * np.float32(factor)), -128, 127).astype(np.int8))


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 5))
def test_transpose_and_ascontiguous(data: st.DataObject, ndim: int) -> None:
    """Both equal NumPy's, and their memory is in the order that was asked for."""
    x = np.arange(prod(range(2, 2 + ndim))).reshape(range(2, 2 + ndim))
    axes = data.draw(st.permutations(range(ndim)))
    result = inlay.transpose(x, axes)
    assert np.array_equal(result, x.transpose(axes))
    assert result.flags.c_contiguous
    ordered = inlay.ascontiguous(x, axes)
    assert np.array_equal(ordered, x)
    assert ordered.transpose(axes).flags.c_contiguous
    assert inlay.ascontiguous(ordered, axes) is ordered
    assert inlay.ascontiguous(x, "F").flags.f_contiguous


@pytest.mark.parametrize("shape", [(3, 4, 5), (30, 40, 50), (3, 0, 5), (3, 1, 5), ()], ids=str)
@pytest.mark.parametrize("kind", ["f4", ">i4", "O", "torch", "differentiated"])
def test_ascontiguous_stores_any_order(kind: str, shape: tuple[int, ...]) -> None:
    """New and remembered calls return equal arrays of the shape, dense in the order, for each way to copy."""
    values: Any = np.arange(prod(shape)).reshape(shape).astype("f4" if kind[0] in "td" else kind)
    x: Any = values
    if kind in ("torch", "differentiated"):
        x = pytest.importorskip("torch").from_numpy(values.copy()).requires_grad_(kind == "differentiated")
    for order in permutations(range(len(shape))):
        for result in (inlay.ascontiguous(x, order), inlay.ascontiguous(x, order)):
            assert type(result) is type(x)
            held = result.detach().numpy() if hasattr(result, "detach") else result
            assert held.transpose(order).flags.c_contiguous
            assert held.dtype == values.dtype
            assert np.array_equal(held, values)
            if kind == "differentiated":
                x.grad = None
                (result * result).sum().backward()
                assert np.array_equal(x.grad.numpy(), 2 * values)


def test_a_view_is_returned_where_strides_suffice() -> None:
    """A view shares memory; a list and a scattered group do not; `copy` decides where it is given."""
    x = np.arange(24).reshape(2, 3, 4)
    assert np.shares_memory(inlay.rearrange(x, "a b c -> c (a b)"), x)
    assert not np.shares_memory(inlay.rearrange(x, "a b c -> (c a) b"), x)
    assert np.shares_memory(inlay.rearrange(x, "a b c -> (a b) c", copy=False), x)
    assert inlay.repeat(x, "a b c -> a b c 7").strides[-1] == 0
    assert np.array_equal(inlay.rearrange(list(x), "a b c -> c a b"), x.transpose(2, 0, 1))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_remembered_call_leaves_transforms_of_torch_intact() -> None:
    """After a call with a plain tensor of the same form, batches, tangents and gradients are those of its own steps."""
    torch = pytest.importorskip("torch")
    x = torch.arange(24.0).reshape(2, 3, 4)
    for pattern, order in (("a b c -> c a b", (2, 0, 1)), ("a b c -> (c a) b", (2, 0, 1))):

        def move(t: Any, pattern: str = pattern) -> Any:
            return inlay.rearrange(t, pattern)

        expected = x.permute(order).reshape(move(x).shape)
        assert torch.equal(torch.vmap(move)(torch.stack([x, x + 1])), torch.stack([expected, expected + 1]))
        assert torch.equal(torch.func.jvp(move, (x,), (2 * x,))[1], 2 * expected)
        assert torch.equal(torch.func.grad(lambda t, move=move: (move(t) ** 2).sum())(x), 2 * x)
        forward = torch.autograd.forward_ad
        with forward.dual_level():
            assert torch.equal(forward.unpack_dual(move(forward.make_dual(x, 3 * x))).tangent, 3 * expected)


@pytest.mark.filterwarnings("ignore")
def test_torch_compiles_whole_graphs() -> None:
    """A function that is allowed in graphs is compiled without a break, for any lengths, and differentiated."""
    torch = pytest.importorskip("torch")
    torch.compiler.allow_in_graph(inlay.rearrange)

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)  # type: ignore[untyped-decorator, unused-ignore]
    def move(x: Any) -> Any:
        return inlay.rearrange(x * 2, "b (h p) c -> (b h) (p c)", p=2) + 1

    for shape in ((2, 4, 3), (3, 6, 5)):
        x = torch.arange(float(prod(shape))).reshape(shape).requires_grad_()
        expected = (2 * x.detach()).reshape(shape[0] * shape[1] // 2, 2 * shape[2]) + 1
        moved = move(x)
        assert torch.equal(moved, expected)
        moved.sum().backward()
        assert torch.equal(x.grad, torch.full(shape, 2.0))


def test_views_and_copies_of_tensors_begin_where_the_tensor_does() -> None:
    """A tensor that is a part of another is rearranged from its own first element, in every call."""
    torch = pytest.importorskip("torch")
    for part in torch.arange(96.0).reshape(4, 24).reshape(4, 2, 3, 4)[:, :, 1:]:
        values = part.numpy()
        for pattern in ("a b (c d) -> d a c b", "a b (c d) -> (d c) (b a)"):
            expected = inlay.rearrange(values.copy(), pattern, d=2)
            assert np.array_equal(inlay.rearrange(part, pattern, d=2).numpy(), expected)
        for _ in range(2):
            ordered = inlay.ascontiguous(part, "F")
            assert np.array_equal(ordered.numpy(), values)
            assert ordered.permute(2, 1, 0).is_contiguous()


def test_options_that_are_axes_of_the_pattern_are_lengths() -> None:
    """`copy=2` is the length of the axis `copy`."""
    x = np.arange(6).reshape(2, 3)
    for _ in range(2):
        assert np.array_equal(inlay.repeat(x, "a b -> (a copy) b", copy=2), np.repeat(x, 2, 0))


def test_elements_at_odd_addresses_are_moved() -> None:
    """An array need not begin at a multiple of its elements; `out` must."""
    raw = np.arange(4 * 24 + 1).astype(np.uint8)
    x = raw[1:].view(np.float32).reshape(2, 3, 4)
    for _ in range(2):
        assert inlay.rearrange(x, "a b c -> (c a) b").tobytes() == x.transpose(2, 0, 1).tobytes()
    with pytest.raises(inlay.InvalidArguments, match="no multiple of the 4 bytes"):
        inlay.rearrange(x.copy(), "a b c -> a b c", out=x)


X = np.zeros((2, 6), np.float32)
MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("a b", {}, "the pattern has no arrow: write 'axes -> axes'\n    a b\n    ~~~^"),
    ("a b -> b -> a", {}, "the pattern has a second arrow\n    a b -> b -> a\n    ~~~~~~~~~^^"),
    ("(a (b)) -> a b", {}, "a group is inside another: groups have one level\n    (a (b)) -> a b\n    ~~~^"),
    ("a) b -> a b", {}, "')' closes no group\n    a) b -> a b\n    ~^"),
    ("(a b -> a b", {}, "'(' is never closed\n    (a b -> a b\n    ^"),
    ("a a -> a", {}, "'a' occurs twice on one side\n    a a -> a\n    ~~^"),
    ("... b ... -> b", {}, "'...' occurs twice on one side\n    ... b ... -> b\n    ~~~~~~^^^"),
    ("a 0 -> a", {}, "an anonymous axis has length 0: give 1 or more\n    a 0 -> a\n    ~~^"),
    (
        "a _b -> a _b",
        {},
        "'_b' names no axis: a name is letters, digits and inner underscores and begins with a letter; or write a "
        "length or '...'\n    a _b -> a _b\n    ~~^^",
    ),
    (
        "a b -> a",
        {},
        "an axis of the left is not on the right, and rearrange drops none: write it on the right too\n"
        "    a b -> a\n    ~~^",
    ),
    (
        "a 6 -> a",
        {},
        "an axis of the left is not on the right, and rearrange drops none: give it a name, and write that on the "
        "right too\n    a 6 -> a\n    ~~^",
    ),
    (
        "a b -> a b 3",
        {},
        "an axis of the right is not on the left: inlay.repeat adds axes, rearrange does not\n"
        "    a b -> a b 3\n    ~~~~~~~~~~~^",
    ),
    (
        "a b -> a b ...",
        {},
        "'...' is on the right only: write it on the left too\n    a b -> a b ...\n    ~~~~~~~~~~~^^^",
    ),
    (
        "(...) -> (...)",
        {},
        "'...' is in a group left of the arrow, where its lengths are unknown\n    (...) -> (...)\n    ~^^^",
    ),
    (
        "a b c -> a b c",
        {},
        "the left side has 3 axes, and the array has 2: its shape is (2, 6)\n    a b c -> a b c\n    ^^^^^",
    ),
    (
        "a b c ... -> a b c ...",
        {},
        "the left side has at least 3 axes, and the array has 2: its shape is (2, 6)\n"
        "    a b c ... -> a b c ...\n    ^^^^^^^^^",
    ),
    (
        "a (b c) -> a b c",
        {},
        "a second length of this group is unknown: give all but one by name\n    a (b c) -> a b c\n    ~~~~~^",
    ),
    (
        "a (b c) -> a b c",
        {"b": 4},
        "axis 1 of the array has length 6, which 4 does not divide\n    a (b c) -> a b c\n    ~~^^^^^",
    ),
    ("a b -> b a", {"b": 5}, "axis 1 of the array has length 6, and this group has 5\n    a b -> b a\n    ~~^"),
    ("a b -> b a", {"c": 5}, "the length of 'c' was passed, but 'a b -> b a' has no such axis"),
    ("a b -> b a", {"b": "6"}, "the length of 'b' is '6': give an integer"),
    ("a b -> b a", {"copy": 3}, "copy is 3: give True or False"),
    (
        "a b -> (b a)",
        {"copy": False},
        "copy is False, but no view of the array is the result, which must move them: leave copy out",
    ),
    ("a b -> b a", {"out": X}, "out has shape (2, 6), but the result has (6, 2): give an array of that"),
    (
        "a b -> a b",
        {"out": X},
        "out shares bytes with the array: a rearrangement is not done in place, give another",
    ),
    ("a b -> a b", {"scale": [1, 2, 3]}, "scale has shape (3,), which is not broadcast to the result's shape (2, 6)"),
    (
        "a b -> a b",
        {"dtype": "complex64"},
        "elements of float32 are never converted to complex64: convert the array first",
    ),
]


@pytest.mark.parametrize(("pattern", "arguments", "text"), MISTAKES)
def test_a_mistake_is_named_with_its_place(pattern: str, arguments: dict[str, Any], text: str) -> None:
    """The whole text of each error."""
    remembered = dict(_calls)
    with pytest.raises(InlayError) as error:
        inlay.rearrange(X, pattern, **arguments)
    assert str(error.value) == text
    assert remembered == _calls or "out shares" in text, "a refused form is not remembered"


def test_a_new_axis_needs_a_length() -> None:
    """The place of the axis is marked."""
    with pytest.raises(InlayError) as error:
        inlay.repeat(X, "a b -> a b c")
    text = "the length of a new axis is unknown: give it as c=...\n    a b -> a b c\n    ~~~~~~~~~~~^"
    assert str(error.value) == text


def test_arrays_and_destinations_that_are_refused() -> None:
    """Each text names the object and the remedy."""
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: inlay.rearrange([], "a -> a"), "the list of arrays is empty: give at least one array"),
        (lambda: inlay.rearrange([X, X[0]], "a ... -> a ..."), "array 1 of the list is a ndarray of shape (6,)"),
        (lambda: inlay.rearrange(3, "-> 1"), "x of type int cannot be wrapped"),
        (lambda: inlay.rearrange(X, "a b -> b a", out=b"x"), "out is a bytes, which cannot be written in place"),
        (lambda: inlay.rearrange(X, "a b -> a b", out=np.broadcast_to(X[:1], (2, 6))), "elements of the destination"),
        (lambda: inlay.transpose(X, (0, 0)), "axes is (0, 0): give each of the 2 axes of the array once"),
        (lambda: inlay.ascontiguous(X, (0, 0)), "order is (0, 0): give each of the 2 axes of the array once"),
        (lambda: inlay.ascontiguous(X, "nhwc"), "order is 'nhwc', but the array has 2 axes and no blocks"),
        (lambda: inlay.ascontiguous(X, "aB8b"), "order is 'aB8b', but the array has 2 axes and no blocks"),
        (lambda: inlay.repeat(X, "a b -> (a n) b", n=2**62), "the result of shape"),
    ]
    for call, text in cases:
        with pytest.raises(InlayError) as error:
            call()
        assert str(error.value).startswith(text)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The script in examples prints that images survive the way to patches and back."""
    runpy.run_path(str(ROOT / "examples" / "rearrange.py"), run_name="__main__")
    assert "equal to the images: True" in capsys.readouterr().out
