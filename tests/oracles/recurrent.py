"""Recurrent networks: the formulas of the specification in Python's floats, one element at a time.

No code is shared with the reference engine: there are no axes of gates, every sum is a loop, directions are sequences
of times. `slope` uses no formula of backward propagation: it is a difference quotient of a sum of the outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp, tanh
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]
Vector = list[float]


def logistic(a: float) -> float:
    return 1.0 / (1.0 + exp(-a)) if a > -700.0 else 0.0


def _relu(alpha: float) -> Callable[[float], float]:
    return lambda a: a if a > 0 else alpha * a


def _same(state: float) -> float:
    return state


def network(
    kind: str, direction: str, arrays: Arrays, told: Mapping[str, Any], keep: Callable[[float], float] = _same
) -> dict[str, npt.NDArray[np.float64]]:
    """`dst_layer`, `dst_iter` and for LSTM `dst_iter_c`; `keep` is what a number of a state is once it is stored."""
    times, batch = arrays["src_layer"].shape[:2]
    layers = arrays["weights_layer"].shape[0]
    ways = {"left2right": [1], "right2left": [-1]}.get(direction, [1, -1])
    tops: list[dict[int, list[Vector]]] = []
    states: dict[tuple[int, int], tuple[list[Vector], list[Vector]]] = {}
    for d, way in enumerate(ways):
        below = {t: [list(map(float, row)) for row in arrays["src_layer"][t]] for t in range(times)}
        for layer in range(layers):
            cell = _Cell(kind, arrays, (layer, d), told, keep)
            h = [cell.first("src_iter", n, arrays["weights_iter"].shape[2]) for n in range(batch)]
            c = [cell.first("src_iter_c", n, arrays["weights_layer"].shape[4]) for n in range(batch)]
            above = {}
            for t in range(times)[::way]:
                a = [float(arrays["attention"][t, n, 0]) if "attention" in arrays else 0.0 for n in range(batch)]
                both = [cell.step(below[t][n], h[n], c[n], a[n]) for n in range(batch)]
                h, c = [one[0] for one in both], [one[1] for one in both]
                above[t] = h
            states[layer, d] = h, c
            below = above
        tops.append(below)
    joined = [[_joined(direction, [top[t][n] for top in tops]) for n in range(batch)] for t in range(times)]
    found = {"dst_layer": np.array(joined)}
    for i, name in enumerate(("dst_iter", "dst_iter_c")[: 1 + (kind == "lstm")]):
        found[name] = np.array([[states[layer, d][i] for d in range(len(ways))] for layer in range(layers)])
    return found


def _joined(direction: str, tops: Sequence[Vector]) -> Vector:
    if direction == "sum":
        return [sum(values) for values in zip(*tops, strict=True)]
    return [value for top in tops for value in top]


class _Cell:
    """The cell of one layer and direction."""

    def __init__(
        self, kind: str, arrays: Arrays, at: tuple[int, int], told: Mapping[str, Any], keep: Callable[[float], float]
    ) -> None:
        self.kind, self.arrays, self.at, self.told, self.keep = kind, arrays, at, told, keep
        self.channels = arrays["weights_layer"].shape[4]

    def first(self, name: str, n: int, count: int) -> Vector:
        return [float(v) for v in self.arrays[name][self.at][n]] if name in self.arrays else [0.0] * count

    def _from(self, name: str, values: Vector, gate: int, o: int) -> float:
        weights = self.arrays[name][self.at]
        return sum(value * float(weights[i, gate, o]) for i, value in enumerate(values))

    def _bias(self, gate: int, o: int) -> float:
        return float(self.arrays["bias"][self.at][gate, o]) if "bias" in self.arrays else 0.0

    def _peephole(self, gate: int, o: int) -> float:
        return float(self.arrays["weights_peephole"][self.at][gate, o]) if "weights_peephole" in self.arrays else 0.0

    def _gate(self, x: Vector, h: Vector, gate: int, o: int) -> float:
        return self._from("weights_layer", x, gate, o) + self._from("weights_iter", h, gate, o) + self._bias(gate, o)

    def step(self, x: Vector, h: Vector, c: Vector, attention: float) -> tuple[Vector, Vector]:
        if self.kind == "vanilla_rnn":
            table = {"tanh": tanh, "logistic": logistic, "relu": _relu(self.told.get("alpha", 0.0))}
            function = table[self.told["activation"]]
            return [self.keep(function(self._gate(x, h, 0, o))) for o in range(self.channels)], c
        if self.kind == "lstm":
            return self._lstm(x, h, c)
        return self._gru(x, h, attention), c

    def _lstm(self, x: Vector, h: Vector, c: Vector) -> tuple[Vector, Vector]:
        fresh, out = [], []
        for o in range(self.channels):
            i = logistic(self._gate(x, h, 0, o) + self._peephole(0, o) * c[o])
            f = logistic(self._gate(x, h, 1, o) + self._peephole(1, o) * c[o])
            fresh.append(f * c[o] + i * tanh(self._gate(x, h, 2, o)))
            gate = logistic(self._gate(x, h, 3, o) + self._peephole(2, o) * fresh[o])
            out.append(self.keep(gate * tanh(fresh[o])))
        if "weights_projection" in self.arrays:
            matrix = self.arrays["weights_projection"][self.at]
            sums = [sum(v * float(matrix[o, p]) for o, v in enumerate(out)) for p in range(matrix.shape[1])]
            out = [self.keep(value) for value in sums]
        return out, fresh

    def _gru(self, x: Vector, h: Vector, attention: float) -> Vector:
        r = [logistic(self._gate(x, h, 1, o)) for o in range(self.channels)]
        out = []
        for o in range(self.channels):
            u = (1.0 - attention) * logistic(self._gate(x, h, 0, o))
            from_x = self._from("weights_layer", x, 2, o) + self._bias(2, o)
            if self.kind.startswith("lbr_"):
                new = tanh(from_x + r[o] * (self._from("weights_iter", h, 2, o) + self._bias(3, o)))
            else:
                reset = [self.keep(a * b) for a, b in zip(r, h, strict=True)]
                new = tanh(from_x + self._from("weights_iter", reset, 2, o))
            out.append(self.keep(u * h[o] + (1.0 - u) * new))
        return out


def slope(
    weighed: Callable[[Arrays], float], arrays: Arrays, name: str, way: npt.NDArray[np.float64], step: float = 1e-5
) -> float:
    """The change of a number along `way` of one argument, by central differences."""
    above, below = ({**arrays, name: arrays[name] + sign * step * way} for sign in (1.0, -1.0))
    return (weighed(above) - weighed(below)) / (2.0 * step)
