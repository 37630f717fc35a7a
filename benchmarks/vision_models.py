"""The vision models that are timed: [1, 3, 224, 224] in, 1000 scores out."""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import sys
from pathlib import Path

from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from models.efficientnet import EfficientNet


def convolution(channels_in, channels_out, kernel=1, stride=1, groups=1, activation=None):
    """A convolution that keeps the plane's size but for its stride, its norm and its activation."""
    layer = nn.Conv2d(channels_in, channels_out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(channels_out), *([activation] if activation else []))


class ResidualBlock(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.first = convolution(channels_in, channels_out, 3, stride, activation=nn.ReLU())
        self.second = convolution(channels_out, channels_out, 3)
        is_same = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if is_same else convolution(channels_in, channels_out, 1, stride)
        self.activation = nn.ReLU()

    def forward(self, x):
        return self.activation(self.second(self.first(x)) + self.shortcut(x))


def resnet18(classes=1000):
    """He et al., "Deep Residual Learning for Image Recognition" (2015)."""
    stem = convolution(3, 64, 7, 2, activation=nn.ReLU())
    widths = (64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [
        ResidualBlock(before, after, 1 if before == after else 2)
        for before, after in zip((64, *widths), widths, strict=False)
    ]
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)
    return nn.Sequential(stem, nn.MaxPool2d(3, 2, 1), *blocks, *head)


class SqueezeExcitation(nn.Module):
    def __init__(self, channels):
        super().__init__()
        narrow = max(8, (channels // 4 + 4) // 8 * 8)
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, narrow, 1),
            nn.ReLU(),
            nn.Conv2d(narrow, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x):
        return x * self.scale(x)


class InvertedBlock(nn.Module):
    def __init__(self, channels_in, kernel, wide, channels_out, excites, activation, stride):
        super().__init__()
        self.is_residual = stride == 1 and channels_in == channels_out
        widen = [convolution(channels_in, wide, activation=activation)] if wide != channels_in else []
        self.layers = nn.Sequential(
            *widen,
            convolution(wide, wide, kernel, stride, groups=wide, activation=activation),
            *([SqueezeExcitation(wide)] if excites else []),
            convolution(wide, channels_out),
        )

    def forward(self, x):
        return x + self.layers(x) if self.is_residual else self.layers(x)


# Channels in, kernel, widened to, channels out, whether channels are excited, activation, stride.
MOBILENET_BLOCKS = (
    (16, 3, 16, 16, True, nn.ReLU, 2),
    (16, 3, 72, 24, False, nn.ReLU, 2),
    (24, 3, 88, 24, False, nn.ReLU, 1),
    (24, 5, 96, 40, True, nn.Hardswish, 2),
    (40, 5, 240, 40, True, nn.Hardswish, 1),
    (40, 5, 240, 40, True, nn.Hardswish, 1),
    (40, 5, 120, 48, True, nn.Hardswish, 1),
    (48, 5, 144, 48, True, nn.Hardswish, 1),
    (48, 5, 288, 96, True, nn.Hardswish, 2),
    (96, 5, 576, 96, True, nn.Hardswish, 1),
    (96, 5, 576, 96, True, nn.Hardswish, 1),
)


def mobilenet_v3_small(classes=1000):
    """Howard et al., "Searching for MobileNetV3" (2019)."""
    blocks = [
        InvertedBlock(before, kernel, wide, after, excites, activation(), stride)
        for before, kernel, wide, after, excites, activation, stride in MOBILENET_BLOCKS
    ]
    return nn.Sequential(
        convolution(3, 16, 3, 2, activation=nn.Hardswish()),
        *blocks,
        convolution(96, 576, activation=nn.Hardswish()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(576, 1024),
        nn.Hardswish(),
        nn.Linear(1024, classes),
    )


MODELS = {
    "resnet18": resnet18,
    "mobilenet_v3_small": mobilenet_v3_small,
    "efficientnet_lite0": EfficientNet,
}
