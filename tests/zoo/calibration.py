"""Networks of the zoo whose batch normalizations have the statistics of seeded samples.

The networks of `exporting.build_lively` have statistics drawn at random, which is enough to compare two runtimes.
After quantization their margins would say nothing: the ranges of activations would not be those of normalized ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlay.graph.op_graph import Array
from tests.zoo.architectures import DEFAULT_SIZES, DRAWS, Architecture
from tests.zoo.blocks import nn, torch
from tests.zoo.exporting import build_lively, export_module

SAMPLES = 4
"""Samples by which statistics and ranges are calibrated."""


def draw_sample(architecture: Architecture, seed: int, batch: int = 1) -> dict[str, Array]:
    """Return an input of an architecture by name; another for each seed."""
    rng, sizes = np.random.default_rng((17, seed)), {**DEFAULT_SIZES, **architecture.sizes, "batch": batch}
    return {
        sample.name: DRAWS[sample.kind](rng, tuple(sizes[d] if isinstance(d, str) else d for d in sample.dims))
        for sample in architecture.samples
    }


def export_calibrated(architecture: Architecture, batch: int = 1, samples: int = SAMPLES) -> bytes:
    """Return the ONNX file of an architecture with calibrated statistics."""
    example = draw_sample(architecture, 0, batch)
    module = build_lively(architecture, example)
    calibrate(module, [draw_sample(architecture, seed, 4) for seed in range(samples)])
    return export_module(module, architecture, example)


def calibrate(module: Any, samples: Sequence[Mapping[str, Array]]) -> None:
    """Set the statistics of all batch normalizations to those of the samples, from the first layer to the last."""
    layers = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all samples
        layer.train()
    with torch.no_grad():
        for sample in samples if layers else ():
            module(*map(torch.from_numpy, sample.values()))
    for layer in layers:
        layer.eval()
