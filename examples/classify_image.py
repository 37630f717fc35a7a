"""Names what is in photographs: EfficientNet-lite0, trained on ImageNet, on the GPU.

    python examples/classify_image.py [PHOTOGRAPH ...]

Without photographs, the two that scikit-learn carries are named.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models.efficientnet import IMAGE, trained
from PIL import Image

import pteron
from pteron.package_files import PackageFiles, fetch_files

PHOTOGRAPHS = PackageFiles(
    "scikit-learn",
    "1.9.1",
    {
        "sklearn/datasets/images/flower.jpg": (
            "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638"
        ),
        "sklearn/datasets/images/china.jpg": (
            "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29"
        ),
    },
    ("scikit_learn-1.9.1.dist-info/licenses/COPYING",),
)
# ImageNet's classes by WordNet number, in the order of the model's scores, and what the numbers mean.
CLASSES = PackageFiles(
    "timm",
    "1.0.30",
    {
        "timm/data/_info/imagenet_synsets.txt": (
            "70002b0ff5de60a3a17a82dbfcff291931f96225ddf941ad2e182fc39e183d15"
        ),
        "timm/data/_info/imagenet_synset_to_lemma.txt": (
            "1b8babda187421a4bde0c9c5a197c36f6bdda962f7ca11ffb2813806cbb2178f"
        ),
    },
    ("timm-1.0.30.dist-info/licenses/LICENSE",),
)
MARGIN = 7 / 8  # of the shorter side is looked at


@dataclass(frozen=True)
class Answer:
    """What was seen: the likeliest classes, best first, and how the scores differ from PyTorch's."""

    classes: list[int]
    probabilities: list[float]
    difference_max: float
    same_first: bool


def class_names() -> list[str]:
    folder = fetch_files(CLASSES, print)
    lines = (folder / "imagenet_synset_to_lemma.txt").read_text("utf-8").splitlines()
    names = dict(line.split("\t", 1) for line in lines)
    return [names[number] for number in (folder / "imagenet_synsets.txt").read_text("utf-8").split()]


def read_photograph(path: Path) -> torch.Tensor:
    """The middle of a photograph, [1, 3, IMAGE, IMAGE], with bytes brought to about -1 to 1."""
    with Image.open(path) as photograph:
        width, height = photograph.size
        side = min(width, height) * MARGIN
        middle = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
        small = photograph.convert("RGB").resize((IMAGE, IMAGE), Image.Resampling.BICUBIC, box=middle)
    pixels = (np.asarray(small, np.float32) - 127) / 128
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous()


@torch.no_grad()
def classify(model: Any, compiled: Any, image: torch.Tensor, count: int = 3) -> Answer:
    """The `count` likeliest classes by the compiled model, beside the model itself in PyTorch."""
    scores, expected = compiled(image), model(image)
    best = scores.softmax(-1)[0].topk(count)
    return Answer(
        best.indices.tolist(),
        best.values.tolist(),
        float((scores - expected).abs().max()),
        bool(scores.argmax() == expected.argmax()),
    )


def main(arguments: Sequence[str]) -> None:
    photographs = [Path(argument) for argument in arguments] or sorted(
        fetch_files(PHOTOGRAPHS, print).glob("*.jpg")
    )
    names, model = class_names(), trained()
    compiled = pteron.compile(model, (torch.zeros(1, 3, IMAGE, IMAGE),))
    print(compiled)
    for photograph in photographs:
        answer = classify(model, compiled, read_photograph(photograph))
        seen = zip(answer.classes, answer.probabilities, strict=True)
        print(f"{photograph.name}: " + "; ".join(f"{names[i]} {probability:.0%}" for i, probability in seen))
        print(
            f"  beside PyTorch: scores differ by {answer.difference_max:.1e} at most, "
            f"the first name is {'the same' if answer.same_first else 'another'}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
