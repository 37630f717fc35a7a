"""Networks for images: classifiers, segmentation, depth, masks on request, super-resolution, two towers."""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import torch
from networks.layers import Attention, Encoder
from networks.vision import InvertedResidual, MobileNetV3Small, ResNet18, UNet, VisionTransformer
from torch import nn
from torch.export import Dim
from torch.nn import functional as F  # noqa: N812  # as everywhere

from zoo.networks import MODELS
from zoo.stock.detection import Conv
from zoo.stock.quantized import int8_activations, int8_weights
from zoo.stock.recipe import NO_INPUTS, Recipe, of_model, random, sized


def rows_of(x):
    return x.flatten(2).transpose(1, 2)


def image_of(rows, like):
    return rows.transpose(1, 2).reshape(rows.shape[0], -1, *like.shape[2:])


class EfficientNet(nn.Module):
    """Tan and Le 2019: inverted residuals that excite channels, with SiLU."""

    def __init__(self, width=8, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            Conv(3, width, 3, 2),
            InvertedResidual(width, 3, 4 * width, width, True, nn.SiLU, 1),
            InvertedResidual(width, 5, 4 * width, 2 * width, True, nn.SiLU, 2),
            Conv(2 * width, 4 * width),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classify = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


class DenseBlock(nn.Module):
    """A block of Real-ESRGAN (Wang et al. 2021): every convolution reads all before it."""

    def __init__(self, width, grown=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(width + i * grown, grown, 3, padding=1) for i in range(3))
        self.last = nn.Conv2d(width + 3 * grown, width, 3, padding=1)

    def forward(self, x):
        parts = [x]
        for layer in self.layers:
            parts.append(F.leaky_relu(layer(torch.cat(parts, 1)), 0.2))
        return x + 0.2 * self.last(torch.cat(parts, 1))


class RealEsrgan(nn.Module):
    """Nearest neighbours twice, each followed by a convolution."""

    def __init__(self, width=8):
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, width, 3, padding=1), nn.Sequential(*map(DenseBlock, [width] * 2))
        self.up = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.body(x)
        for layer in self.up:
            x = F.leaky_relu(layer(F.interpolate(x, scale_factor=2.0, mode="nearest")), 0.2)
        return self.last(x)


class CompactSuperResolution(nn.Module):
    """Real-ESRGAN's general x4v3: convolutions with PReLU, pixel shuffle, the enlarged image added."""

    def __init__(self, width=8, scale=4):
        super().__init__()
        self.scale = scale
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, padding=1),
            nn.PReLU(width),
            nn.Conv2d(width, 3 * scale**2, 3, padding=1),
        )

    def forward(self, x):
        near = F.interpolate(x, scale_factor=float(self.scale), mode="nearest")
        return F.pixel_shuffle(self.body(x), self.scale) + near


class DepthAnything(nn.Module):
    """Yang et al. 2024: a vision transformer with layer scale; features of two depths, enlarged and fused."""

    def __init__(self, width=16, patch=4, size=(6, 8)):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, size[0] * size[1] + 1, width))
        self.blocks = nn.ModuleList(Encoder(width, 2) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(width))
        self.norm = nn.LayerNorm(width)
        self.enlarge = nn.ModuleList([nn.ConvTranspose2d(width, 8, 2, 2), nn.Conv2d(width, 8, 1)])
        self.fuse = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.out = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1), nn.Sigmoid())

    def forward(self, x):
        patches = self.patches(x)
        rows = torch.cat([self.token.expand(x.shape[0], -1, -1), rows_of(patches)], 1) + self.places
        levels = []
        for block, enlarge in zip(self.blocks, self.enlarge, strict=True):
            rows = rows + self.scale * block(rows)
            levels.append(enlarge(image_of(self.norm(rows)[:, 1:], patches)))
        fine, coarse = levels
        y = F.interpolate(coarse, size=fine.shape[2:], mode="bilinear", align_corners=True)
        y = self.fuse[0](F.relu(y)) + self.fuse[1](F.relu(fine))
        y = F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=True)
        return self.out(y)[:, 0]


class MaskDecoder(nn.Module):
    """SAM 2 (Ravi et al. 2024): points as random Fourier features, attention both ways, masks from a
    perceptron of each mask's token."""

    def __init__(self, width=16, masks=3):
        super().__init__()
        self.register_buffer("frequencies", torch.randn(2, width // 2))
        self.labels, self.tokens = nn.Embedding(4, width), nn.Embedding(masks + 1, width)
        self.within, self.inward, self.outward = (
            nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(3)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.up = nn.ConvTranspose2d(width, 8, 2, 2)
        self.hyper = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))
        self.quality = nn.Linear(width, masks)

    def forward(self, image, points, labels):
        angle = 2 * torch.pi * ((2 * points - 1) @ self.frequencies)
        sparse = torch.cat([angle.sin(), angle.cos()], -1) + self.labels(labels)
        tokens = self.tokens.weight[None].expand(sparse.shape[0], -1, -1)
        rows, memory = torch.cat([tokens, sparse], 1), rows_of(image)
        rows = self.norms[0](rows + self.within(rows, rows, rows, need_weights=False)[0])
        rows = self.norms[1](rows + self.inward(rows, memory, memory, need_weights=False)[0])
        memory = self.norms[2](memory + self.outward(memory, rows, rows, need_weights=False)[0])
        large = F.gelu(self.up(image_of(memory, image)))
        masks = self.hyper(rows[:, 1 : self.tokens.num_embeddings]) @ large.flatten(2)
        return masks.view(masks.shape[0], -1, *large.shape[2:]), self.quality(rows[:, 0]).sigmoid()


class WindowAttention(nn.Module):
    """Attention inside windows, with a learned bias for each distance: TinyViT, Swin (`shift` rolls)."""

    def __init__(self, width, window=4, shift=0, heads=2):
        super().__init__()
        self.window, self.shift, self.heads = window, shift, heads
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.bias = nn.Parameter(torch.randn(heads, (2 * window - 1) ** 2))
        place = torch.stack(torch.meshgrid(*[torch.arange(window)] * 2, indexing="ij")).flatten(1)
        offset = place[:, :, None] - place[:, None] + window - 1
        self.register_buffer("index", offset[0] * (2 * window - 1) + offset[1])

    def forward(self, x):
        batch, channels, height, width = x.shape
        w = self.window
        y = torch.roll(x, (-self.shift, -self.shift), (2, 3)) if self.shift else x
        y = y.view(batch, channels, height // w, w, width // w, w).permute(0, 2, 4, 3, 5, 1)
        y = self.norm(y.reshape(-1, w * w, channels))
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias[:, self.index])
        y = self.out(y.transpose(1, 2).flatten(2)).view(batch, height // w, width // w, w, w, channels)
        y = y.permute(0, 5, 1, 3, 2, 4).reshape(x.shape)
        return x + (torch.roll(y, (self.shift, self.shift), (2, 3)) if self.shift else y)


class TinyViT(nn.Module):
    """Wu et al. 2022: a convolution stem, an inverted residual, windows, and local convolutions between."""

    def __init__(self, width=16, classes=5, shift=0):
        super().__init__()
        self.stem = nn.Sequential(Conv(3, 8, 3, 2, activation=nn.GELU), Conv(8, width, 3, 2))
        self.local = InvertedResidual(width, 3, 4 * width, width, False, nn.GELU, 1)
        self.windows = nn.Sequential(
            WindowAttention(width),
            Conv(width, width, 3, groups=width, activation=nn.Identity),
            WindowAttention(width, shift=shift),
        )
        self.norm, self.classify = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        y = self.windows(self.local(self.stem(x)))
        return self.classify(self.norm(y.mean((2, 3))))


class ConvNeXt(nn.Module):
    """Liu et al. 2022: a 7x7 depthwise convolution, then a perceptron over channels, which come last."""

    def __init__(self, width=16, classes=5):
        super().__init__()
        self.stem, self.depth = nn.Conv2d(3, width, 4, 4), nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.scale = nn.LayerNorm(width), nn.Parameter(torch.ones(width))
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.classify = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.scale * self.shrink(F.gelu(self.grow(y)))
        return self.classify((x + y.permute(0, 3, 1, 2)).mean((2, 3)))


class DeepLab(nn.Module):
    """Chen et al. 2017: convolutions with several dilations beside a global mean; bilinear to the image."""

    def __init__(self, width=8, classes=4):
        super().__init__()
        self.stem = nn.Sequential(Conv(3, width, 3, 2), Conv(width, width, 3, 2))
        self.wide = nn.ModuleList(nn.Conv2d(width, width, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.whole, self.out = nn.Conv2d(width, width, 1), nn.Conv2d(4 * width, classes, 1)

    def forward(self, x):
        y = self.stem(x)
        whole = F.relu(self.whole(F.adaptive_avg_pool2d(y, 1)))
        whole = F.interpolate(whole, size=y.shape[2:], mode="bilinear", align_corners=False)
        y = self.out(torch.cat([*(F.relu(layer(y)) for layer in self.wide), whole], 1))
        scores = F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)
        return scores, scores.argmax(1)


class SegFormer(nn.Module):
    """Xie et al. 2021: attention to keys from a reduced image, a depthwise convolution in the perceptron."""

    def __init__(self, width=16, classes=4):
        super().__init__()
        self.patches, self.reduce = nn.Conv2d(3, width, 7, 4, 3), nn.Conv2d(width, width, 2, 2)
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.grow, self.shrink = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.depth = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        grid = self.patches(x)
        rows = self.norms[0](rows_of(grid))
        few = self.norms[1](rows_of(self.reduce(image_of(rows, grid))))
        rows = rows + self.attend(rows, few, few, need_weights=False)[0]
        y = F.gelu(rows_of(self.depth(image_of(self.grow(self.norms[2](rows)), grid))))
        y = self.out(image_of(rows + self.shrink(y), grid))
        return F.interpolate(y, scale_factor=4.0, mode="bilinear", align_corners=False)


class Clip(nn.Module):
    """Radford et al. 2021: an image and texts as unit vectors, and their products. A text's vector stands at
    its last token, which has the largest number."""

    def __init__(self, width=16, length=9, vocabulary=50):
        super().__init__()
        self.image = VisionTransformer(image=16, patch=4, width=width, heads=2, blocks=1, classes=width)
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, 2)
        self.project = nn.Linear(width, width, bias=False)
        self.register_buffer("mask", torch.full((length, length), -1e4).triu(1))
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, image, text):
        rows = self.words(text) + self.places.weight
        rows = self.norm(rows + self.attention(rows, self.mask))
        texts = self.project(rows[torch.arange(text.shape[0]), text.argmax(-1)])
        images, texts = (F.normalize(each, dim=-1) for each in (self.image(image), texts))
        return self.scale.exp() * images @ texts.t(), images, texts


class AttentionPool(nn.Module):
    """SigLIP's image tower (Zhai et al. 2023): a learned query gathers all patches."""

    def __init__(self, width=16):
        super().__init__()
        self.patches, self.block = nn.Conv2d(3, width, 4, 4), Encoder(width, 2)
        self.probe = nn.Parameter(torch.randn(1, 1, width))
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        rows = self.block(rows_of(self.patches(x)))
        probe = self.probe.expand(x.shape[0], -1, -1)
        return self.attend(probe, rows, rows, need_weights=False)[0][:, 0]


class TokenMerging(nn.Module):
    """SAM 2's encoder (Hiera, Ryali et al. 2023): queries are maxima over windows, places enlarged."""

    def __init__(self, width=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 7, 4, 3)
        self.places = nn.Parameter(torch.randn(1, width, 3, 3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        x = self.patches(x)
        x = x + F.interpolate(self.places, size=x.shape[2:], mode="bicubic", align_corners=False)
        q, k, v = self.qkv(x.permute(0, 2, 3, 1)).chunk(3, -1)
        q = F.max_pool2d(q.permute(0, 3, 1, 2), 2)
        rows = F.scaled_dot_product_attention(
            rows_of(q)[:, None], k.flatten(1, 2)[:, None], v.flatten(1, 2)[:, None]
        )
        return image_of(self.out(rows[:, 0]), q)


def _photos(step, *sizes):
    """Photos whose sides are multiples of a step, up to the first size."""
    high, wide = (
        step * Dim(name, min=1, max=most // step) for name, most in zip("hw", sizes[0], strict=True)
    )
    return {
        "calls": sized(lambda *size: (torch.randn(1, 3, *size),), *sizes),
        "shapes": ({2: high, 3: wide},),
    }


def _vision(make, *shapes, **options):
    return Recipe("vision", make, random(*(shapes or ((1, 3, 32, 32),))), **options)


def _prompts():
    return [
        (torch.randn(1, 16, 6, 6), torch.rand(1, points, 2), torch.randint(0, 4, (1, points)))
        for points in (3, 3)
    ]


RECIPES = {
    "mobilenet_v3": _vision(MobileNetV3Small),
    "vit_int8_weights": _vision(lambda: VisionTransformer(blocks=1), quantize=int8_weights),
    "efficientnet_int8": _vision(EfficientNet, quantize=int8_activations),
    "resnet_int8": _vision(lambda: ResNet18(width=4), quantize=int8_activations),
    "resnet_photos": Recipe("vision", lambda: ResNet18(width=4), **_photos(32, (96, 64), (32, 64), (64, 32))),
    "unet": _vision(lambda: UNet(width=4), (1, 1, 24, 32)),
    "deeplab": _vision(DeepLab),
    "deeplab_photos": Recipe("vision", DeepLab, **_photos(8, (48, 64), (16, 24), (40, 8))),
    "segformer": _vision(SegFormer),
    "depth_anything": _vision(DepthAnything, (1, 3, 24, 32)),
    "sam2_mask_decoder": Recipe("vision", MaskDecoder, _prompts),
    "sam2_encoder": _vision(TokenMerging, fault=NO_INPUTS),
    "tiny_vit": _vision(TinyViT),
    "swin": _vision(lambda: TinyViT(shift=2)),
    "convnext": _vision(ConvNeXt),
    "vit": _vision(VisionTransformer),
    "clip": Recipe(
        "vision", Clip, lambda: [(torch.randn(2, 3, 16, 16), torch.randint(1, 50, (3, 9))) for _ in range(2)]
    ),
    "siglip": _vision(AttentionPool),
    "real_esrgan": _vision(RealEsrgan, (1, 3, 8, 10)),
    "real_esrgan_x4v3": _vision(CompactSuperResolution, (1, 3, 8, 10)),
    "real_esrgan_x4v3_photos": Recipe(
        "vision", CompactSuperResolution, **_photos(1, (20, 24), (7, 13), (1, 24))
    ),
    "style_transfer": of_model("vision", MODELS["cyclegan"]),
    "raft": of_model("vision", MODELS["raft_correlation"]),
}
