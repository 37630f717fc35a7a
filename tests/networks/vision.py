"""Networks for images: ResNet-18, MobileNetV3-small, a vision transformer and a U-Net.

Each is the published architecture; `width` and the image make it small enough for a software adapter.
"""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import torch
from torch import Tensor, nn

from networks.layers import Encoder


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut = nn.Identity()
        if stride > 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """He et al. 2015; the published width is 64."""

    def __init__(self, width=16, classes=10):
        super().__init__()
        layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, 1))
        channels = width
        for stage in range(4):
            for block in range(2):
                stride = 2 if stage and not block else 1
                layers.append(BasicBlock(channels, width << stage, stride))
                channels = width << stage
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classify = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))


class Excite(nn.Module):
    """Scales channels by what a global mean of them says."""

    def __init__(self, channels, squeezed):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.down, self.up = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.up(torch.relu(self.down(self.pool(x))))
        return x * nn.functional.hardsigmoid(scale)


class InvertedResidual(nn.Module):
    def __init__(self, channels_in, kernel, expanded, channels, excite, activation, stride):
        super().__init__()
        layers = []
        if expanded != channels_in:
            layers += [
                nn.Conv2d(channels_in, expanded, 1, bias=False),
                nn.BatchNorm2d(expanded),
                activation(),
            ]
        layers += [
            nn.Conv2d(expanded, expanded, kernel, stride, kernel // 2, groups=expanded, bias=False),
            nn.BatchNorm2d(expanded),
            activation(),
        ]
        if excite:
            layers.append(Excite(expanded, max(8, (expanded // 4 + 4) // 8 * 8)))
        layers += [nn.Conv2d(expanded, channels, 1, bias=False), nn.BatchNorm2d(channels)]
        self.body = nn.Sequential(*layers)
        self.is_residual = stride == 1 and channels_in == channels

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.is_residual else self.body(x)


class MobileNetV3Small(nn.Module):
    """Howard et al. 2019, table 2."""

    # kernel, expanded, channels, excite, activation, stride
    ROWS = (
        (3, 16, 16, True, nn.ReLU, 2),
        (3, 72, 24, False, nn.ReLU, 2),
        (3, 88, 24, False, nn.ReLU, 1),
        (5, 96, 40, True, nn.Hardswish, 2),
        (5, 240, 40, True, nn.Hardswish, 1),
        (5, 240, 40, True, nn.Hardswish, 1),
        (5, 120, 48, True, nn.Hardswish, 1),
        (5, 144, 48, True, nn.Hardswish, 1),
        (5, 288, 96, True, nn.Hardswish, 2),
        (5, 576, 96, True, nn.Hardswish, 1),
        (5, 576, 96, True, nn.Hardswish, 1),
    )

    def __init__(self, classes=10):
        super().__init__()
        layers = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()]
        channels = 16
        for kernel, expanded, out, excite, activation, stride in self.ROWS:
            layers.append(InvertedResidual(channels, kernel, expanded, out, excite, activation, stride))
            channels = out
        layers += [nn.Conv2d(channels, 576, 1, bias=False), nn.BatchNorm2d(576), nn.Hardswish()]
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classify = nn.Sequential(
            nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))


class VisionTransformer(nn.Module):
    """Dosovitskiy et al. 2020: patches, a class token, pre-norm blocks."""

    def __init__(self, image=32, patch=8, width=48, heads=3, blocks=3, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Encoder(width, heads) for _ in range(blocks)))
        self.norm, self.classify = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], dim=1) + self.positions
        return self.classify(self.norm(self.blocks(x))[:, 0])


def double_convolution(channels_in, channels):
    """Two 3x3 convolutions, each with a norm and a relu."""
    layers = []
    for count in (channels_in, channels):
        layers += [nn.Conv2d(count, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Ronneberger et al. 2015, with padding; one way up is transposed convolutions, the other bilinear."""

    def __init__(self, width=8, depth=3, bilinear=False):
        super().__init__()
        self.first = double_convolution(1, width)
        self.pool = nn.MaxPool2d(2)
        self.down, self.grow, self.up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for level in range(depth):
            few, many = width << level, width << (level + 1)
            self.down.append(double_convolution(few, many))
            grow = (
                nn.Sequential(
                    nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(many, few, 1)
                )
                if bilinear
                else nn.ConvTranspose2d(many, few, 2, 2)
            )
            self.grow.append(grow)
            self.up.append(double_convolution(many, few))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(self.pool(kept[-1])))
        x = kept.pop()
        for grow, up in zip(reversed(self.grow), reversed(self.up), strict=True):
            x = up(torch.cat([kept.pop(), grow(x)], dim=1))
        return self.last(x)
