"""Random recurrent networks: of every kind, direction and choice of optional arguments, with seeded distinct values.

A `Case` has the arrays of each argument by name and makes the primitive; gradients that arrive come with it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.memory import Memory, reorder
from inlay.primitives import Primitive, Reorder
from inlay.primitives.attributes import RecurrentScales
from tests.support.primitive_runs import pack_any

CLASSES = {
    "vanilla_rnn": "VanillaRNN",
    "lstm": "LSTM",
    "gru": "GRU",
    "lbr_gru": "LBRGRU",
    "augru": "AUGRU",
    "lbr_augru": "LBRAUGRU",
}
FORWARD: Mapping[str, Any] = {kind: getattr(p, name) for kind, name in CLASSES.items()}
BACKWARD: Mapping[str, Any] = {kind: getattr(p, f"{name}Backward") for kind, name in CLASSES.items()}
GATES = {"vanilla_rnn": 1, "lstm": 4, "gru": 3, "lbr_gru": 3, "augru": 3, "lbr_augru": 3}
DIRECTIONS = ("left2right", "right2left", "concat", "sum")

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """One network with the values of its arguments."""

    kind: str
    direction: str
    arrays: Arrays
    """Values of the arguments of forward, by name."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Activation and alpha."""
    states: bool = True
    """True if the final states are written."""
    data_type: str = "f32"
    """Data type of all arguments except c, bias and peepholes, which are f32."""

    def __str__(self) -> str:
        """A name for a test."""
        sizes = "x".join(map(str, (*self.arrays["src_layer"].shape, *self.arrays["weights_layer"].shape[::4])))
        extras = [name for name in ("peephole", "projection") if f"weights_{name}" in self.arrays]
        lacks = [text for text, has in (("unbiased", "bias" in self.arrays), ("stateless", self.states)) if not has]
        return "-".join([self.kind, self.direction, sizes, *map(str, self.parameters.values()), *extras, *lacks])

    def type_of(self, name: str) -> str:
        """The data type of an argument."""
        plain = name.removeprefix("diff_") in ("bias", "src_iter_c", "dst_iter_c", "weights_peephole")
        if plain or name.startswith("diff_"):
            return "f32"
        return "s8" if name.startswith("weights") and self.data_type == "u8" else self.data_type

    def forward(self, prop_kind: str = "forward_training", engine: Any = "reference", **more: Any) -> Primitive:
        """The forward primitive, every format `any`."""
        descs = {name: MemoryDesc(array.shape, self.type_of(name), "any") for name, array in self.arrays.items()}
        states = {"dst_iter": "any"} | ({"dst_iter_c": "any"} if self.kind == "lstm" else {}) if self.states else {}
        options = {**self.parameters, **states, "prop_kind": prop_kind, "engine": engine, **more}
        primitive: Primitive = FORWARD[self.kind](**descs, **options, direction=self.direction)
        return primitive

    def backward(self, forward: Primitive, **more: Any) -> Primitive:
        """The backward primitive of `forward`."""
        primitive: Primitive = BACKWARD[self.kind](hint_forward=forward, **more)
        return primitive

    def gradients(self, forward: Primitive, seed: int = 1) -> Arrays:
        """Gradients of everything that `forward` writes."""
        rng = np.random.default_rng(seed)
        names = [name for name in forward.arguments if name.startswith("dst_")]
        return {f"diff_{name}": rng.standard_normal(forward.desc(name).dims).astype(np.float32) for name in names}


def pack_arguments(primitive: Primitive, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Memory]:
    """Pack the arrays of the arguments of `primitive`; its engine reorders to opaque formats."""
    return {name: pack_any(arrays[name], primitive.desc(name)) for name in primitive.arguments if name in arrays}


def reorder_to(memory: Memory, primitive: Primitive, name: str) -> Memory:
    """Reorder memory to the format of an argument of `primitive`."""
    desc = primitive.desc(name)
    if memory.desc == desc:
        return memory
    if desc.kind != "opaque":
        return reorder(memory, desc)
    into: Memory = Reorder(memory.desc, desc, engine=primitive.engine)(src=memory)
    return into


def run_forward(primitive: Primitive, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Memory]:
    """Run forward, and return its results by name."""
    written = primitive(**pack_arguments(primitive, arrays))
    return {"dst_layer": written} if isinstance(written, Memory) else dict(written)


def run_backward(
    forward: Primitive, backward: Primitive, arrays: Mapping[str, npt.NDArray[Any]], gradients: Arrays
) -> Arrays:
    """Run forward and backward, and return the gradients."""
    kept = run_forward(forward, arrays)
    read = pack_arguments(backward, {**arrays, **gradients})
    read |= {name: reorder_to(memory, backward, name) for name, memory in kept.items()}
    return {name: memory.unpack() for name, memory in backward(**read).items()}


_PRODUCTS = ("weights_layer", "weights_iter", "weights_projection")


def _values(shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> Arrays:
    """Numbers of moderate size, and attention between 0 and 1."""
    arrays = {
        name: (rng.standard_normal(shape) * (1.2 / shape[2] ** 0.5 if name in _PRODUCTS else 0.6)).astype(np.float32)
        for name, shape in shapes.items()
    }
    if "attention" in arrays:
        arrays["attention"] = rng.uniform(0.1, 0.9, shapes["attention"]).astype(np.float32)
    return arrays


def make_case(
    kind: str,
    direction: str = "left2right",
    *,
    times: int = 3,
    batch: int = 2,
    inputs: int | None = None,
    channels: int = 5,
    layers: int = 1,
    projection: int | None = None,
    peephole: bool = False,
    bias: bool = True,
    states: bool = True,
    parameters: Mapping[str, Any] | None = None,
    data_type: str = "f32",
    seed: int = 0,
) -> Case:
    """A network with random values of moderate size, so that no gate saturates."""
    rng = np.random.default_rng(seed)
    both, gates, outputs = (layers, 2 if direction in ("concat", "sum") else 1), GATES[kind], projection or channels
    entering = outputs if layers > 1 else inputs or channels + 2
    is_attentive = kind in ("augru", "lbr_augru")
    shapes = {
        "src_layer": (times, batch, entering),
        "src_iter": (*both, batch, outputs) if states else None,
        "src_iter_c": (*both, batch, channels) if states and kind == "lstm" else None,
        "attention": (times, batch, 1) if is_attentive else None,
        "weights_layer": (*both, entering, gates, channels),
        "weights_iter": (*both, outputs, gates, channels),
        "weights_peephole": (*both, 3, channels) if peephole else None,
        "weights_projection": (*both, channels, projection) if projection else None,
        "bias": (*both, gates + kind.startswith("lbr_"), channels) if bias else None,
    }
    arrays = _values({name: shape for name, shape in shapes.items() if shape is not None}, rng)
    activation = {"activation": "tanh"} if kind == "vanilla_rnn" else {}
    return Case(kind, direction, arrays, activation if parameters is None else parameters, states, data_type)


def small_cases() -> Iterator[Case]:
    """Every kind in every direction with one layer and two, and each optional argument with and without."""
    for seed, (kind, direction, layers) in enumerate(product(GATES, DIRECTIONS, (1, 2))):
        if kind in ("augru", "lbr_augru") and (direction, layers) != ("left2right", 1):
            continue
        yield make_case(kind, direction, layers=layers, seed=seed)
    for kind in GATES:
        yield make_case(kind, bias=False, seed=100)
        yield make_case(kind, states=False, seed=101)
        yield make_case(kind, times=1, batch=1, channels=1, inputs=1, seed=102)
        yield make_case(kind, times=2, batch=3, channels=17, inputs=33, seed=103)
    for direction, layers in product(DIRECTIONS, (1, 2)):
        yield make_case("lstm", direction, layers=layers, peephole=True, seed=104)
        yield make_case("lstm", direction, layers=layers, projection=3, seed=105)
    yield make_case("lstm", "concat", layers=2, peephole=True, projection=7, seed=106)
    for activation in ({"activation": "logistic"}, {"activation": "relu"}, {"activation": "relu", "alpha": 0.2}):
        yield make_case("vanilla_rnn", "sum", layers=2, parameters=activation, seed=107)


def quantize(arrays: Arrays, scales: RecurrentScales, states: str) -> tuple[Arrays, Arrays]:
    """Quantize the arguments of a network; return the integers, and the numbers that they represent."""
    codes, meant = dict(arrays), dict(arrays)
    for name, array in arrays.items():
        if name in ("src_layer", "src_iter"):
            code = np.clip(np.rint(array * scales.scale + scales.shift), 0, 255)
            meant[name] = (code - scales.shift) / scales.scale
            codes[name] = array if (name, states) == ("src_iter", "f32") else code.astype(np.uint8)
        elif name.startswith("weights"):
            factors = np.array(scales.projection if name == "weights_projection" else scales.weights)
            if len(factors) not in (1, array.shape[-1]):
                factors = factors.reshape(array.shape[3:])
            codes[name] = np.clip(np.rint(array * factors), -128, 127).astype(np.int8)
            meant[name] = codes[name] / factors
    return codes, meant
