"""The architectures of the zoo: how each is built, the inputs that it reads, and the axes that may be open.

Each has two scales: `small`, for tests of results, and `real`, for figures (see `real_sizes`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from inlay.graph.op_graph import Array
from tests.zoo import cnns, detectors, generative, language, recurrent, vision_transformers
from tests.zoo.real_sizes import REAL_SIZES

Scale: TypeAlias = Literal["small", "real"]
DEFAULT_SIZES: Mapping[str, int] = MappingProxyType({"batch": 1, "length": 16, "written": 12, "texts": 4})
"""Sizes of axes that have a name, where neither the architecture nor the caller specifies them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An example input of an architecture."""

    name: str
    """Name of the input in the exported file."""
    dims: tuple[int | str, ...]
    """Sizes of the axes; a name stands for a size that may be open."""
    kind: str = "normal"
    """Key of `DRAWS`, the function that draws the elements."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture, its inputs and its family."""

    build: Callable[..., Any]
    """Function that builds the PyTorch module with weights of the current random state."""
    samples: tuple[Sample, ...]
    """Inputs in the order of the arguments of `forward`."""
    family: str
    """Kind of network: the name of the module that defines it."""
    open_axes: tuple[str, ...] = ()
    """Names of axes that a second export leaves open; empty if there is no second export."""
    has_suppression: bool = False
    """True if NonMaxSuppression is appended to the two outputs, boxes and scores."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of named axes, where `DEFAULT_SIZES` has none or another."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `build` beside its defaults, such as widths and depths."""


def draw_normal(rng: np.random.Generator, dims: tuple[int, ...]) -> Array:
    """Return float32 numbers of a normal distribution."""
    return rng.standard_normal(dims, np.float32)


def draw_ids(rng: np.random.Generator, dims: tuple[int, ...]) -> Array:
    """Return ids of tokens, 0 to 99."""
    return rng.integers(0, 100, dims)


def draw_mask(rng: np.random.Generator, dims: tuple[int, ...]) -> Array:
    """Return 1 for tokens that are attended; the last quarter of the last row is 0."""
    mask = np.ones(dims, np.int64)
    mask[-1, -(dims[1] // 4) :] = 0
    return mask


def draw_steps(rng: np.random.Generator, dims: tuple[int, ...]) -> Array:
    """Return time steps of diffusion, 0 to 999."""
    return rng.integers(0, 1000, dims)


DRAWS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = MappingProxyType(
    {"normal": draw_normal, "ids": draw_ids, "mask": draw_mask, "steps": draw_steps}
)
"""Function that draws the elements of an input, for each kind."""


def draw_inputs(architecture: Architecture, sizes: Mapping[str, int] = MappingProxyType({})) -> dict[str, Array]:
    """Return the inputs of an architecture by name; `sizes` has the sizes of named axes that are not the defaults."""
    rng, every = np.random.default_rng(0), {**DEFAULT_SIZES, **architecture.sizes, **sizes}
    return {
        sample.name: DRAWS[sample.kind](rng, tuple(every[d] if isinstance(d, str) else d for d in sample.dims))
        for sample in architecture.samples
    }


def _images(channels: int = 3) -> tuple[Sample, ...]:
    return (Sample("image", ("batch", channels, "extent", "extent")),)


IDS = Sample("ids", ("batch", "length"), "ids")
TEXT = (IDS,)


def _vision(build: Callable[..., Any], family: str, extent: int = 64, *open_axes: str) -> Architecture:
    return Architecture(build, _images(), family, open_axes, sizes={"extent": extent})


def _detector(build: Callable[..., Any]) -> Architecture:
    return Architecture(build, _images(), "detectors", has_suppression=True, sizes={"extent": 96})


def _text(build: Callable[..., Any], family: str, *more: Sample, is_open: bool = True) -> Architecture:
    return Architecture(build, (*TEXT, *more), family, ("batch", "length") if is_open else ())


ZOO: Mapping[str, Architecture] = MappingProxyType(
    {
        "resnet18": _vision(cnns.resnet18, "cnns", 64, "batch"),
        "resnext": _vision(cnns.resnext, "cnns"),
        "densenet": _vision(cnns.densenet, "cnns"),
        "mobilenet_v2": _vision(cnns.mobilenet_v2, "cnns", 64, "batch"),
        "mobilenet_v3": _vision(cnns.mobilenet_v3, "cnns"),
        "shufflenet_v2": _vision(cnns.shufflenet_v2, "cnns", 64, "batch"),
        "squeezenet": _vision(cnns.squeezenet, "cnns"),
        "efficientnet": _vision(cnns.efficientnet, "cnns"),
        "inception_v3": _vision(cnns.inception_v3, "cnns", 96),
        "regnet": _vision(cnns.regnet, "cnns"),
        "convnext": _vision(cnns.convnext, "cnns", 64, "batch"),
        "ghostnet": _vision(cnns.ghostnet, "cnns"),
        "mnasnet": _vision(cnns.mnasnet, "cnns"),
        "hrnet": _vision(cnns.HRNet, "cnns"),
        "vgg": _vision(cnns.vgg, "cnns"),
        "yolo": _detector(detectors.Yolo),
        "ssd": _detector(detectors.SSD),
        "retinanet": _detector(detectors.RetinaNet),
        "deeplab": _vision(detectors.DeepLab, "detectors"),
        "fcn": _vision(detectors.FCN, "detectors"),
        "unet": _vision(generative.UNet, "generative", 64, "batch"),
        "espcn": Architecture(generative.espcn, _images(1), "generative", sizes={"extent": 32}),
        "dcgan": Architecture(
            generative.dcgan, (Sample("latent", ("batch", "latent")),), "generative", sizes={"latent": 64}
        ),
        "dncnn": Architecture(generative.DnCNN, _images(1), "generative", sizes={"extent": 48}),
        "diffusion_unet": Architecture(
            generative.DiffusionUNet,
            (
                Sample("latent", ("batch", 4, "extent", "extent")),
                Sample("step", ("batch",), "steps"),
                Sample("context", ("batch", "length", "context")),
            ),
            "generative",
            sizes={"extent": 16, "length": 7, "context": 48},
        ),
        "lstm_tagger": _text(recurrent.LSTMTagger, "recurrent", is_open=False),
        "gru_tagger": _text(recurrent.GRUTagger, "recurrent", is_open=False),
        "bert": _text(language.Bert, "language", Sample("attended", ("batch", "length"), "mask")),
        "gpt2": _text(language.GPT2, "language"),
        "t5": Architecture(
            language.T5,
            (IDS, Sample("written", ("batch", "written"), "ids")),
            "language",
            ("batch", "length", "written"),
        ),
        "llama": _text(language.Llama, "language"),
        "qwen3": _text(language.qwen3, "language"),
        "whisper": Architecture(
            language.WhisperEncoder,
            (Sample("spectrum", ("batch", "bands", "frames")),),
            "language",
            sizes={"bands": 40, "frames": 100},
        ),
        "wav2vec2": Architecture(
            language.Wav2Vec2, (Sample("samples", ("batch", "count")),), "language", sizes={"count": 3200}
        ),
        "clip": Architecture(
            vision_transformers.CLIP,
            (*_images(), Sample("ids", ("texts", "length"), "ids")),
            "vision_transformers",
            sizes={"extent": 64},
        ),
        "vit": _vision(vision_transformers.ViT, "vision_transformers", 64, "batch"),
        "swin": _vision(vision_transformers.Swin, "vision_transformers", 64, "batch"),
        "segformer": _vision(vision_transformers.SegFormer, "vision_transformers"),
        "detr": _vision(vision_transformers.DETR, "vision_transformers"),
        "maxvit": _vision(vision_transformers.maxvit, "vision_transformers"),
    }
)
"""Each architecture by name, small."""
SCALES: Mapping[Scale, Mapping[str, Architecture]] = MappingProxyType(
    {
        "small": ZOO,
        "real": {
            name: replace(ZOO[name], sizes={**ZOO[name].sizes, **sizes}, options=options)
            for name, (sizes, options) in REAL_SIZES.items()
        },
    }
)
"""The architectures of each scale by name."""
