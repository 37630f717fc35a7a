"""Detectors, as they are published for phones: YOLO with its heads, BlazeFace, PP-OCR, CRNN, RT-DETR."""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from zoo.stock.recipe import Recipe, random


class Conv(nn.Sequential):
    """Convolution, norm, activation."""

    def __init__(self, channels_in, channels, kernel=1, stride=1, groups=1, activation=nn.SiLU):
        super().__init__(
            nn.Conv2d(channels_in, channels, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(channels),
            activation(),
        )


class Split(nn.Module):
    """YOLO's C2f: one half passes through a bottleneck, all parts are joined."""

    def __init__(self, channels_in, channels):
        super().__init__()
        half = channels // 2
        self.first, self.last = Conv(channels_in, channels), Conv(half * 3, channels)
        self.body = nn.Sequential(Conv(half, half, 3), Conv(half, half, 3))

    def forward(self, x):
        a, b = self.first(x).chunk(2, 1)
        return self.last(torch.cat([a, b, b + self.body(b)], 1))


class Pyramid(nn.Module):
    """YOLO's SPPF: maxima of growing windows."""

    def __init__(self, channels):
        super().__init__()
        self.first, self.last = Conv(channels, channels // 2), Conv(channels * 2, channels)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class AreaAttention(nn.Module):
    """The attention of YOLO 10 to 26: values pass through a depthwise convolution, too."""

    def __init__(self, channels, heads=2):
        super().__init__()
        self.heads, self.key = heads, channels // heads // 2
        self.qkv, self.out = nn.Conv2d(channels, channels * 2, 1), nn.Conv2d(channels, channels, 1)
        self.place = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x):
        batch, channels, height, width = x.shape
        qkv = self.qkv(x).view(batch, self.heads, -1, height * width)
        q, k, v = qkv.split([self.key, self.key, channels // self.heads], 2)
        weights = ((q.transpose(2, 3) @ k) * self.key**-0.5).softmax(-1)
        y = (v @ weights.transpose(2, 3)).view(x.shape)
        return x + self.out(y + self.place(v.reshape(x.shape)))


class Yolo(nn.Module):
    """Two strides; boxes as distributions over distances, classes, and optionally masks or keypoints.
    `best` keeps that many boxes inside, as YOLO 10 and 26 do."""

    def __init__(self, width=8, classes=4, masks=0, points=0, attends=False, best=0, bins=8):
        super().__init__()
        self.classes, self.points, self.best, self.bins = classes, points, best, bins
        w = width
        self.stem = nn.Sequential(Conv(3, w, 3, 2), Conv(w, 2 * w, 3, 2), Split(2 * w, 2 * w))
        self.deep = nn.Sequential(Conv(2 * w, 4 * w, 3, 2), Split(4 * w, 4 * w), Pyramid(4 * w))
        self.attend = AreaAttention(4 * w) if attends else nn.Identity()
        self.join = Split(6 * w, 2 * w)
        self.boxes = nn.ModuleList(nn.Conv2d(c, 4 * bins, 1) for c in (2 * w, 4 * w))
        extra = classes + masks + 3 * points
        self.rest = nn.ModuleList(
            nn.Sequential(Conv(c, c, 3, groups=c), nn.Conv2d(c, extra, 1)) for c in (2 * w, 4 * w)
        )
        self.masks = nn.Sequential(nn.ConvTranspose2d(2 * w, w, 2, 2), Conv(w, masks, 3)) if masks else None

    def forward(self, x):
        shallow = self.stem(x)
        deep = self.attend(self.deep(shallow))
        near = self.join(torch.cat([F.interpolate(deep, scale_factor=2.0, mode="nearest"), shallow], 1))
        found = torch.cat([self.level(i, y, 4 << i) for i, y in enumerate((near, deep))], 2)
        if self.best:
            rows = found.transpose(1, 2)
            score, index = rows[..., 4:].amax(-1).topk(self.best, 1)
            return rows.gather(1, index[..., None].expand(-1, -1, rows.shape[2])), score
        return (found, self.masks(near)) if self.masks is not None else found

    def level(self, index, y, stride):
        boxes, rest = self.boxes[index](y), self.rest[index](y).flatten(2)
        rows, columns = (torch.arange(n, dtype=y.dtype) + 0.5 for n in y.shape[2:])
        centre = torch.stack(torch.meshgrid(columns, rows, indexing="xy")).flatten(1)[None]
        share = boxes.view(y.shape[0], 4, self.bins, -1).softmax(2)
        low, high = (share * torch.arange(self.bins, dtype=y.dtype).view(-1, 1)).sum(2).chunk(2, 1)
        box = torch.cat([centre + (high - low) / 2, low + high], 1) * stride
        parts = [box, rest[:, : self.classes].sigmoid()]
        if self.points:
            place, seen = rest[:, self.classes :].split([2 * self.points, self.points], 1)
            place = (place.unflatten(1, (self.points, 2)) * 2 + centre[:, None]) * stride
            parts.append(torch.cat([place, seen[:, :, None].sigmoid()], 2).flatten(1, 2))
        elif self.masks is not None:
            parts.append(rest[:, self.classes :])
        return torch.cat(parts, 1)


class BlazeFace(nn.Module):
    """Bazarevsky et al. 2019: padded depthwise blocks, boxes relative to fixed anchors."""

    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 5, 2, 2)
        sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1)]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, i, 5, s, 2, groups=i), nn.Conv2d(i, o, 1)) for i, o, s in sizes
        )
        self.score, self.place = nn.Conv2d(2 * width, 2, 1), nn.Conv2d(2 * width, 32, 1)
        self.register_buffer("anchors", torch.rand(1, 128, 2))

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.blocks:
            y = block(x)
            if y.shape != x.shape:
                x = F.pad(F.max_pool2d(x, 2), (0, 0, 0, 0, 0, y.shape[1] - x.shape[1]))
            x = F.relu(x + y)
        score = self.score(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 1)
        place = self.place(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 16)
        points = place.unflatten(2, (8, 2)) / 16 + self.anchors[:, :, None]
        return score.clamp(-100, 100).sigmoid(), points.flatten(2)


class TextDetector(nn.Module):
    """PP-OCR's detector: hard-swish blocks, a feature pyramid, a differentiable threshold (Liao 2019)."""

    def __init__(self, width=8):
        super().__init__()
        act = nn.Hardswish
        self.stem = Conv(3, width, 3, 2, activation=act)
        self.down = nn.ModuleList(
            nn.Sequential(Conv(w, w, 5, 2, w, act), Conv(w, 2 * w, activation=act))
            for w in (width, 2 * width)
        )
        self.flat = nn.ModuleList(nn.Conv2d(w, width, 1) for w in (width, 2 * width, 4 * width))
        self.heads = nn.ModuleList(
            nn.Sequential(
                Conv(width, width, 3, activation=nn.ReLU),
                nn.ConvTranspose2d(width, width, 2, 2),
                nn.ReLU(),
                nn.Conv2d(width, 1, 1),
                nn.Sigmoid(),
            )
            for _ in range(2)
        )

    def forward(self, x):
        levels = [self.stem(x)]
        for block in self.down:
            levels.append(block(levels[-1]))
        y = None
        for flat, level in zip(reversed(self.flat), reversed(levels), strict=True):
            side = flat(level)
            y = side if y is None else side + F.interpolate(y, scale_factor=2.0, mode="nearest")
        shrunk, threshold = (head(y) for head in self.heads)
        return shrunk, threshold, torch.reciprocal(1 + torch.exp(-50 * (shrunk - threshold)))


class Crnn(nn.Module):
    """Shi et al. 2015: columns of features through an LSTM in both directions."""

    def __init__(self, width=8, letters=12):
        super().__init__()
        self.features = nn.Sequential(
            Conv(1, width, 3, activation=nn.ReLU),
            nn.MaxPool2d(2),
            Conv(width, 2 * width, 3, activation=nn.ReLU),
            nn.MaxPool2d((2, 1)),
        )
        self.lstm = nn.LSTM(2 * width * 4, 16, bidirectional=True, batch_first=True)
        self.out = nn.Linear(32, letters)

    def forward(self, x):
        y = self.features(x).flatten(1, 2).transpose(1, 2)
        return self.out(self.lstm(y)[0]).log_softmax(-1)


class DeformableDecoder(nn.Module):
    """RT-DETR's decoder layer: queries sample the feature map where they point (Zhu et al. 2020)."""

    def __init__(self, width=16, heads=2, points=3, queries=7):
        super().__init__()
        self.heads, self.points = heads, points
        self.stem = Conv(3, width, 3, 4)
        self.query, self.anchor = (nn.Parameter(torch.randn(1, queries, n)) for n in (width, 4))
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.offset, self.weight = nn.Linear(width, heads * points * 2), nn.Linear(width, heads * points)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 4 + 3)

    def forward(self, x):
        memory = self.stem(x)
        batch, width = memory.shape[:2]
        rows = self.query.expand(batch, -1, -1)
        rows = self.norm(rows + self.attend(rows, rows, rows, need_weights=False)[0])
        box = self.anchor.sigmoid()
        offset = self.offset(rows).unflatten(-1, (self.heads, self.points, 2))
        grid = 2 * (box[:, :, None, None, :2] + offset / self.points * box[:, :, None, None, 2:] / 2) - 1
        values = memory.view(batch * self.heads, width // self.heads, *memory.shape[2:])
        sampled = F.grid_sample(values, grid.transpose(1, 2).flatten(0, 1), align_corners=False)
        weight = self.weight(rows).unflatten(-1, (self.heads, self.points)).softmax(-1)
        y = (sampled * weight.transpose(1, 2).flatten(0, 1)[:, None]).sum(-1)
        rows = rows + y.view(batch, width, -1).transpose(1, 2)
        return self.out(rows)


IMAGE = (1, 3, 32, 48)


def _detector(make, *shape):
    return Recipe("detection", make, random(shape or IMAGE))


RECIPES = {
    "yolo_detect": _detector(Yolo),
    "yolo_attention": _detector(lambda: Yolo(attends=True)),
    "yolo_segment": _detector(lambda: Yolo(masks=6)),
    "yolo_pose": _detector(lambda: Yolo(points=5)),
    "yolo_best": _detector(lambda: Yolo(attends=True, best=9)),
    "blazeface": _detector(BlazeFace, 1, 3, 32, 32),
    "pp_ocr_detector": _detector(TextDetector, 1, 3, 32, 64),
    "crnn": _detector(Crnn, 1, 1, 16, 32),
    "rt_detr_decoder": _detector(DeformableDecoder, 1, 3, 32, 32),
}
