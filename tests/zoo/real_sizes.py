"""Sizes at which the architectures of the zoo are measured: for each the sizes of its named axes, and its options.

They are those of the published models, named in a comment, where the file stays below 150 MB and a run of an image or
text below 0.3 s on two cores; else a part of the widths or depths, as the comment states. Classes and words stay few:
their tables are rows that are copied, and one product at the end.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_GHOSTNET = (
    (16, 16, 16, 3, 1, False), (16, 48, 24, 3, 2, False), (24, 72, 24, 3, 1, False), (24, 72, 40, 5, 2, True),
    (40, 120, 40, 5, 1, True), (40, 240, 80, 3, 2, False), (80, 200, 80, 3, 1, False), (80, 184, 80, 3, 1, False),
    (80, 184, 80, 3, 1, False), (80, 480, 112, 3, 1, True), (112, 672, 112, 3, 1, True), (112, 672, 160, 5, 2, True),
    (160, 960, 160, 5, 1, False), (160, 960, 160, 5, 1, True), (160, 960, 160, 5, 1, False),
    (160, 960, 160, 5, 1, True),
)  # fmt: skip
_IMAGE = {"extent": 224}
_TEXT = {"length": 128}
_LAYERS = {"width": 384, "heads": 6, "layers": 12}
_LLAMA = {"width": 512, "heads": 8, "layers": 8}

REAL_SIZES: Mapping[str, tuple[Mapping[str, int], Mapping[str, Any]]] = MappingProxyType(
    {
        "resnet18": (_IMAGE, {}),
        # ResNeXt-50 32x4d
        "resnext": (_IMAGE, {"stem": 64, "width": 128, "depths": (3, 4, 6, 3), "groups": 32}),
        # DenseNet-121
        "densenet": (_IMAGE, {"growth": 32, "depths": (6, 12, 24, 16)}),
        # MobileNet v2 1.0
        "mobilenet_v2": (
            _IMAGE,
            {"widths": (32, 16, 24, 32, 64, 96, 160, 320, 1280), "depths": (1, 2, 3, 4, 3, 3, 1)},
        ),
        # MobileNet v3 small
        "mobilenet_v3": (_IMAGE, {"head": 1024}),
        # ShuffleNet v2 1.0
        "shufflenet_v2": (_IMAGE, {"width": 116, "depths": (4, 8, 4), "head": 1024}),
        # SqueezeNet 1.1
        "squeezenet": (_IMAGE, {}),
        # EfficientNet B0
        "efficientnet": (
            _IMAGE,
            {"widths": (32, 16, 24, 40, 80, 112, 192, 320, 1280), "depths": (1, 2, 2, 3, 3, 4, 1)},
        ),
        # Inception v3, with a shorter stem and the last blocks half as wide
        "inception_v3": ({"extent": 299}, {"factor": 4, "stem": 64, "depths": (3, 4, 2)}),
        # RegNetY-400MF
        "regnet": (_IMAGE, {"stem": 32, "widths": (48, 104, 208, 440), "depths": (1, 3, 6, 6)}),
        # ConvNeXt-T
        "convnext": (_IMAGE, {"width": 96, "depths": (3, 3, 9, 3)}),
        # GhostNet 1.0
        "ghostnet": (_IMAGE, {"blocks": _GHOSTNET, "last": 960, "head": 1280}),
        # MnasNet 1.0
        "mnasnet": (
            _IMAGE,
            {"widths": (32, 16, 24, 40, 80, 96, 192, 320, 1280), "depths": (3, 3, 3, 2, 4, 1)},
        ),
        # HRNet-W32 with three of four branches and a block for each
        "hrnet": (_IMAGE, {"width": 32}),
        # VGG-11, pooled to 2x2 places in place of 7x7 before its linear layers
        "vgg": (_IMAGE, {"width": 64, "head": 4096}),
        # YOLOv8n
        "yolo": ({"extent": 640}, {"size": 640, "classes": 80, "widths": (32, 64, 128, 256)}),
        # SSD300, half as wide, three of six levels
        "ssd": ({"extent": 320}, {"size": 320, "width": 32, "depths": (2, 2, 3, 3), "classes": 21}),
        # RetinaNet on half of ResNet-18, three of five levels
        "retinanet": ({"extent": 320}, {"size": 320, "width": 64, "side": 256, "classes": 80, "best": 300}),
        # DeepLab v3 on three of four stages of ResNet-50, half as wide from the second on
        "deeplab": ({"extent": 256}, {"w": 64, "depths": (3, 4, 6), "classes": 21}),
        # FCN-8s with a quarter of the last widths
        "fcn": (_IMAGE, {"widths": (64, 128, 256, 512, 512), "wide": 1024, "classes": 21}),
        # U-Net, half as wide, four of five levels
        "unet": ({"extent": 256}, {"widths": (32, 64, 128, 256)}),
        "espcn": ({"extent": 128}, {}),
        "dcgan": ({"latent": 100}, {"latent": 100, "width": 1024}),
        "dncnn": ({"extent": 128}, {"depth": 17, "width": 64}),
        # Stable Diffusion 1, less than half as wide, two of four levels
        "diffusion_unet": ({"extent": 32, "length": 77, "context": 768}, {"width": 128, "context": 768}),
        "lstm_tagger": ({"length": 64}, {"width": 256}),
        "gru_tagger": ({"length": 64}, {"width": 256}),
        # BERT-base and GPT-2, half as wide
        "bert": (_TEXT, {**_LAYERS, "longest": 512}),
        "gpt2": (_TEXT, {**_LAYERS, "longest": 1024}),
        # T5-small, three quarters as wide
        "t5": ({"length": 128, "written": 32}, {"width": 384, "heads": 6, "layers": 6}),
        # Qwen3-0.6B and Llama 3.2 1B, half and a quarter as wide, 8 of 28 and 16 layers
        "llama": (_TEXT, _LLAMA),
        "qwen3": (_TEXT, _LLAMA),
        # Whisper tiny
        "whisper": (
            {"bands": 80, "frames": 3000},
            {"bands": 80, "width": 384, "layers": 4, "heads": 6, "length": 1500},
        ),
        # wav2vec 2.0 base, half as wide, a second of sound
        "wav2vec2": (
            {"count": 16000},
            {**_LAYERS, "channels": 512, "kernels": (10, 3, 3, 3, 3, 2, 2), "near": 128},
        ),
        # CLIP ViT-B/32, a third as wide
        "clip": (
            {"extent": 224, "length": 77},
            {"width": 256, "heads": 4, "layers": 12, "patch": 32, "places": 50, "length": 77},
        ),
        # ViT-S/16
        "vit": (_IMAGE, {**_LAYERS, "size": 224, "patch": 16}),
        # Swin-T
        "swin": (_IMAGE, {"width": 96, "depths": (2, 2, 6, 2), "size": 224, "window": 7, "head": 32}),
        # SegFormer B0, images a quarter as large
        "segformer": (
            {"extent": 256},
            {"widths": (32, 64, 160, 256), "heads": (1, 2, 5, 8), "ratios": (8, 4, 2, 1), "depth": 2, "head": 256},
        ),
        # DETR on half of ResNet-18, feed-forwards a quarter as wide
        "detr": (
            {"extent": 512},
            {"width": 256, "queries": 100, "stages": (64, 128, 256, 512), "heads": 8, "layers": 6, "size": 512},
        ),
        # MaxViT-T
        "maxvit": (
            _IMAGE,
            {"inner": 64, "widths": (64, 128, 256, 512), "depths": (2, 2, 5, 2), "window": 7, "head": 32},
        ),
    }
)
"""For each architecture the sizes of its named axes that are not those of the small one, and the options of `build`."""
