"""A program that creates primitives of dims up to 2^40 and says which creations end or stop the process.

    python -m tests.support.large_dims [KIND ...]       the kinds of `KINDS`, or some of them

Every kind is created in 12 sizes along 4 axes, with formats that are `any` and row-major: 34 x 12 x 4 x 2 = 3,264
creations. A child creates one after the other; where it dies, the next child goes on behind that one. For each creation
that did not return or raise an error of Inlay one line is printed.
"""

import os
import resource
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import make_engine
from inlay.errors import InlayError

SIZES = (*(2**k for k in (15, 20, 24, 26, 28, 29, 30, 31, 32, 36, 40)), 2**31 - 1)
IMAGE = (1, 8, 8, 8)
MOST_BYTES = 6 << 30
"""Of address space: a creation that takes more is stopped."""
SECONDS = 60.0
"""After which a creation counts as one that hangs."""

Make = Callable[[int, int, str | None, Any], Any]


def large(size: int, axis: int, format: str | None, data_type: str = "f32") -> MemoryDesc:
    """An image with one large axis."""
    return MemoryDesc(tuple(size if i == axis else n for i, n in enumerate(IMAGE)), data_type, format)


def _convolving(cls: Any, data_type: str = "f32", weights_type: str = "f32", gradient: Any = None) -> Make:
    def make(size: int, axis: int, format: str | None, engine: Any) -> Any:
        weights = MemoryDesc((8, size if axis == 1 else 8, 3, 3), weights_type, "any")
        purpose = "forward_inference" if gradient is None else "forward_training"
        src = large(size, axis, format, data_type)
        made = cls(src, weights, padding_l=1, prop_kind=purpose, engine=engine)
        return made if gradient is None else gradient(hint_forward=made, engine=engine)

    return make


def _large_weights(size: int, axis: int, format: str | None, engine: Any) -> Any:
    extent = 8 if axis < 2 else size + 8
    weights = MemoryDesc(tuple(size if i == axis else n for i, n in enumerate((8, 8, 3, 3))), "f32", format)
    src = MemoryDesc((1, size if axis == 1 else 8, extent, extent), "f32", "any")
    return p.Convolution(src, weights, engine=engine)


def _depthwise(size: int, axis: int, format: str | None, engine: Any) -> Any:
    weights = MemoryDesc((size if axis == 1 else 8, 1, 1, 3, 3), "f32", "any")
    return p.Convolution(large(size, axis, format), weights, padding_l=1, engine=engine)


def _inner_product(size: int, axis: int, format: str | None, engine: Any) -> Any:
    src = large(size, axis, format)
    return p.InnerProduct(src, MemoryDesc((8, *src.dims[1:]), "f32", "any"), engine=engine)


def _outputs(size: int, axis: int, format: str | None, engine: Any) -> Any:
    weights = large(size, axis, format)
    return p.InnerProduct(MemoryDesc((4, *weights.dims[1:]), "f32", "any"), weights, engine=engine)


def _matmul(size: int, axis: int, format: str | None, engine: Any) -> Any:
    src = large(size, axis, format)
    return p.MatMul(src, MemoryDesc((*src.dims[:2], src.dims[3], 8), "f32", "any"), engine=engine)


def _right(size: int, axis: int, format: str | None, engine: Any) -> Any:
    weights = large(size, axis, format)
    return p.MatMul(MemoryDesc((*weights.dims[:2], 8, weights.dims[2]), "f32", "any"), weights, engine=engine)


def _recurrent(cls: Any, gates: int, **more: Any) -> Make:
    def make(size: int, axis: int, format: str | None, engine: Any) -> Any:
        times, batch, inputs, channels = (size if i == axis else n for i, n in enumerate((5, 2, 8, 8)))
        weights = [MemoryDesc((1, 1, n, gates, channels), "f32", "any") for n in (inputs, channels)]
        return cls(MemoryDesc((times, batch, inputs), "f32", format), *weights, engine=engine, **more)

    return make


def _plain(call: Callable[..., Any]) -> Make:
    """A kind whose source arrives in a format: both halves of its creations are row-major."""
    return lambda size, axis, format, engine: call(large(size, axis, None), axis, engine=engine)


def _row(src: MemoryDesc, axis: int) -> MemoryDesc:
    return MemoryDesc(tuple(1 if i == axis else n for i, n in enumerate(IMAGE)), "f32")


KINDS: Mapping[str, Make] = {
    "convolution": _convolving(p.Convolution),
    "convolution u8": _convolving(p.Convolution, "u8", "s8"),
    "convolution bf16": _convolving(p.Convolution, "bf16", "bf16"),
    "convolution backward data": _convolving(p.Convolution, gradient=p.ConvolutionBackwardData),
    "convolution backward weights": _convolving(p.Convolution, gradient=p.ConvolutionBackwardWeights),
    "convolution by large weights": _large_weights,
    "depthwise convolution": _depthwise,
    "deconvolution": _convolving(p.Deconvolution),
    "inner product": _inner_product,
    "inner product of many outputs": _outputs,
    "matmul": _matmul,
    "matmul by large weights": _right,
    "vanilla_rnn": _recurrent(p.VanillaRNN, 1, activation="relu"),
    "lstm": _recurrent(p.LSTM, 4),
    "gru": _recurrent(p.GRU, 3),
    "lbr_gru": _recurrent(p.LBRGRU, 3),
    "max pooling": _plain(lambda src, axis, **more: p.Pooling(src, algorithm="max", kernel=2, **more)),
    "global pooling": _plain(
        lambda src, axis, **more: p.Pooling(src, algorithm="avg_include_padding", kernel=src.dims[2:], **more)
    ),
    "eltwise": _plain(lambda src, axis, **more: p.Eltwise(src, algorithm="relu", **more)),
    "softmax": _plain(lambda src, axis, **more: p.Softmax(src, axis=axis, **more)),
    "lrn": _plain(lambda src, axis, **more: p.LRN(src, local_size=5, alpha=1.0, beta=0.75, **more)),
    "batch normalization": _plain(lambda src, axis, **more: p.BatchNormalization(src, epsilon=1e-3, **more)),
    "batch normalization in training": _plain(
        lambda src, axis, **more: p.BatchNormalization(src, epsilon=1e-3, prop_kind="forward_training", **more)
    ),
    "layer normalization": _plain(lambda src, axis, **more: p.LayerNormalization(src, epsilon=1e-3, **more)),
    "group normalization": _plain(lambda src, axis, **more: p.GroupNormalization(src, groups=1, epsilon=1e-3, **more)),
    "shuffle": _plain(lambda src, axis, **more: p.Shuffle(src, axis=axis, group_size=1, **more)),
    "prelu": _plain(lambda src, axis, **more: p.PReLU(src, MemoryDesc((1, src.dims[1], 1, 1), "f32", "any"), **more)),
    "resampling": _plain(lambda src, axis, **more: p.Resampling(src, factors=2.0, algorithm="linear", **more)),
    "resampling to few": _plain(
        lambda src, axis, **more: p.Resampling(src, MemoryDesc((*src.dims[:2], 4, 4), "f32", "any"), **more)
    ),
    "reduction": _plain(lambda src, axis, **more: p.Reduction(src, _row(src, axis), algorithm="sum", **more)),
    "concat": _plain(lambda src, axis, **more: p.Concat([src, src], axis=axis, **more)),
    "sum": _plain(lambda src, axis, **more: p.Sum([src, src], **more)),
    "binary": _plain(lambda src, axis, **more: p.Binary(src, _row(src, axis), algorithm="add", **more)),
    "reorder": _plain(lambda src, axis, **more: p.Reorder(src, MemoryDesc(src.dims, "bf16", "nChw16c"), **more)),
}


def attempts(kinds: tuple[str, ...]) -> Iterator[tuple[str, int, int, str | None]]:
    """Kind, size, large axis and format of each creation."""
    return product(kinds, SIZES, range(4), ("any", None))


def attempt(engine: Any, kind: str, size: int, axis: int, format: str | None) -> str:
    """Nothing, or what came out that is no error of Inlay."""
    try:
        made = KINDS[kind](size, axis, format, engine)
        if "--whole" in sys.argv:
            made.implementation.create_primitive()
    except InlayError:
        pass
    except (AttributeError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def work(every: list[tuple[str, int, int, str | None]], first: int, writing: int) -> None:
    """Attempt all from `first` on; after each one write a line, what came out."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    engine = make_engine()
    for one in every[first:]:
        os.write(writing, (attempt(engine, *one) + "\n").encode())


def survey(kinds: tuple[str, ...]) -> Iterator[str]:
    """A line for each creation that ended or stopped the process, or raised something of the inside."""
    every, begun = list(attempts(kinds)), 0
    while begun < len(every):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            work(every, begun, writing)
            os._exit(0)
        os.close(writing)
        why, pending = "", b""
        while not why and begun < len(every):
            ready, _, _ = select.select([reading], [], [], SECONDS)
            chunk = os.read(reading, 1 << 16) if ready else b""
            why = "" if chunk else "ends the process" if ready else f"takes more than {SECONDS} s"
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield f"{every[begun]} {line.decode()}"
                begun += 1
        os.close(reading)
        os.kill(child, 9)
        _, status = os.waitpid(child, 0)
        if begun < len(every):
            yield f"{every[begun]} {why}, status {status}"
            begun += 1


if __name__ == "__main__":
    named = tuple(name for name in sys.argv[1:] if not name.startswith("--"))
    for fault in survey(named or tuple(KINDS)):
        sys.stdout.write(fault + "\n")
        sys.stdout.flush()
