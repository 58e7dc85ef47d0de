"""A program that creates and runs the same primitives in many orders, each order in a fork that has used nothing yet.

    python -m tests.support.process_histories COUNT SEED

It prints one line of JSON for each order: by call, the implementation and each descriptor with its strides. The calls
differ in how unit axes are spelled (nchw or nhwc of one channel), which equality of descriptors ignores. Each primitive
is run, so that oneDNN's cache has it too.
"""

import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.memory import Memory

ONE_CHANNEL, ONE_PIXEL, ONE_ROW = (2, 1, 8, 8), (3, 16, 1, 1), (1, 3, 9, 1)


def _described(dims: tuple[int, ...], tag: str, data_type: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, data_type, tag)


def _convolution(src: MemoryDesc, data_type: str, tag: str) -> p.Primitive:
    weights_type = "s8" if data_type == "u8" else data_type
    weights = MemoryDesc((16, src.dims[1], 1, 1), weights_type, "any")
    dst = MemoryDesc((src.dims[0], 16, *src.dims[2:]), "f32" if data_type == "u8" else data_type, tag)
    return p.Convolution(src, weights, dst=dst)


ON_ONE: Mapping[str, Callable[[MemoryDesc], p.Primitive]] = {
    "relu": lambda src: p.Eltwise(src, algorithm="relu"),
    "pooling": lambda src: p.Pooling(src, algorithm="max", kernel=1),
    "normalization": lambda src: p.BatchNormalization(src, epsilon=1e-3),
    "lrn": lambda src: p.LRN(src, local_size=3, alpha=1.0, beta=0.75),
    "softmax": lambda src: p.Softmax(src, axis=3),
    "layer": lambda src: p.LayerNormalization(src, epsilon=1e-3),
    "sum": lambda src: p.Sum([src, src]),
    "concat": lambda src: p.Concat([src, src], axis=1),
    "blocked": lambda src: p.Reorder(src, MemoryDesc(src.dims, "bf16", "nChw8c")),
    "dense": lambda src: p.InnerProduct(src, MemoryDesc((8, *src.dims[1:]), "f32", "any")),
    "shuffle": lambda src: p.Shuffle(src, axis=1, group_size=1),
}


def calls() -> Iterator[tuple[str, Callable[[], p.Primitive]]]:
    """Each call by name."""
    for dims, tag in product((ONE_CHANNEL, ONE_PIXEL, ONE_ROW), ("nchw", "nhwc")):
        for name, make in ON_ONE.items():
            yield f"{name} {dims} {tag}", partial(make, _described(dims, tag))
        for dst, data_type in product(("any", "nchw", "nhwc", "nChw16c"), ("f32", "u8")):
            yield (
                f"convolution {data_type} {dims} {tag} to {dst}",
                partial(_convolution, _described(dims, tag, data_type), data_type, dst),
            )
    heads, weights = (1, 1, 8, 8), (1, 1, 8, 4)
    for left, right in product(("abcd", "acdb", "bacd"), repeat=2):
        yield (
            f"matmul {left} {right}",
            partial(p.MatMul, _described(heads, left), _described(weights, right)),
        )


def described(primitive: p.Primitive) -> list[Any]:
    """What is compared: how it computes, and every descriptor as it is spelled."""
    return [primitive.impl, {name: primitive.desc(name).to_json() for name in primitive.arguments}]


def history(seed: int) -> dict[str, Any]:
    """What each call gives, in an order of this seed."""
    every = list(calls())
    random.Random(seed).shuffle(every)
    found = {}
    for name, make in every:
        primitive = make()
        primitive(**{argument: Memory(primitive.desc(argument)) for argument in primitive.arguments})
        found[name] = described(primitive)
    return found


def main(count: int, first: int) -> None:
    """Print what each history gives."""
    for seed in range(first, first + count):
        child = os.fork()
        if child == 0:
            sys.stdout.write(json.dumps(history(seed)) + "\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"the history of seed {seed} ended with {status}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
