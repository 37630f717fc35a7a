"""Networks written here: recurrent, graph, diffusion, generative, time series, recommendation and others.

Each is a small form of a published architecture, for what it does with operators.
"""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from zoo.model import Model


class SelfAttention2d(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.attention = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, x):
        rows = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(rows, rows, rows, need_weights=False)[0].transpose(1, 2).reshape(x.shape)


class TimedBlock(nn.Module):
    """A residual block of a diffusion network; the time's embedding is added between its convolutions."""

    def __init__(self, channels_in, channels, time):
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(4, channels_in), nn.SiLU(), nn.Conv2d(channels_in, channels, 3, padding=1)
        )
        self.time = nn.Linear(time, channels)
        self.second = nn.Sequential(
            nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )
        self.shortcut = nn.Conv2d(channels_in, channels, 1) if channels_in != channels else nn.Identity()

    def forward(self, x, time):
        y = self.first(x) + self.time(F.silu(time))[:, :, None, None]
        return self.second(y) + self.shortcut(x)


def embed_time(time, width):
    """Sines and cosines of a time step, as in DDPM."""
    frequencies = torch.exp(-math.log(10000) * torch.arange(width // 2, device=time.device) / (width // 2))
    angles = time[:, None].float() * frequencies
    return torch.cat([angles.cos(), angles.sin()], -1)


class DiffusionUNet(nn.Module):
    """Ho et al. 2020, with the cross-attention of Rombach et al. 2022."""

    def __init__(self, width=16, context=24):
        super().__init__()
        self.width = width
        self.embed = nn.Sequential(nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, 64))
        self.stem = nn.Conv2d(4, width, 3, padding=1)
        self.down = TimedBlock(width, width, 64)
        self.halve = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = TimedBlock(2 * width, 2 * width, 64)
        self.attend = SelfAttention2d(2 * width)
        self.cross = nn.MultiheadAttention(2 * width, 4, kdim=context, vdim=context, batch_first=True)
        self.up = TimedBlock(3 * width, width, 64)
        self.head = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, x, time, context):
        time = self.embed(embed_time(time, self.width).to(x.dtype))
        skip = self.down(self.stem(x), time)
        y = self.attend(self.middle(self.halve(skip), time))
        rows = y.flatten(2).transpose(1, 2)
        rows = rows + self.cross(rows, context, context, need_weights=False)[0]
        y = F.interpolate(rows.transpose(1, 2).reshape(y.shape), scale_factor=2.0, mode="nearest")
        return self.head(self.up(torch.cat([y, skip], 1), time))


class DiffusionTransformer(nn.Module):
    """Peebles and Xie 2022: norms whose scale and shift come from time and class."""

    def __init__(self, width=32, patch=4):
        super().__init__()
        self.patch, self.width = patch, width
        self.embed = nn.Conv2d(4, width, patch, patch)
        self.label = nn.Embedding(10, width)
        self.condition = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 6 * width))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(approximate="tanh"), nn.Linear(64, width))
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.head = nn.Linear(width, patch * patch * 4)

    def forward(self, x, time, label):
        given = embed_time(time, self.width).to(x.dtype) + self.label(label)
        shift1, scale1, gate1, shift2, scale2, gate2 = self.condition(given)[:, None].chunk(6, -1)
        grid = self.embed(x)
        rows = grid.flatten(2).transpose(1, 2)
        y = self.norm(rows) * (1 + scale1) + shift1
        rows = rows + gate1 * self.attention(y, y, y, need_weights=False)[0]
        rows = rows + gate2 * self.mlp(self.norm(rows) * (1 + scale2) + shift2)
        batch, _, height, width = grid.shape
        tiles = self.head(rows).view(batch, height, width, self.patch, self.patch, 4)
        return torch.einsum("bhwpqc->bchpwq", tiles).reshape(x.shape)


class AutoencoderKL(nn.Module):
    """The autoencoder of latent diffusion: the mean, the variance and the image again."""

    def __init__(self, width=16):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            SelfAttention2d(width),
            nn.Conv2d(width, 8, 1),
        )
        self.decode = nn.Sequential(
            nn.Conv2d(4, width, 3, padding=1),
            SelfAttention2d(width),
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.GroupNorm(4, width),
            nn.SiLU(),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, 1)
        return mean, log_variance.clamp(-30, 20).exp(), self.decode(mean)


class VectorQuantizer(nn.Module):
    """van den Oord et al. 2017: the nearest entry of a codebook."""

    def __init__(self, codes=32, width=8):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )
        self.codes = nn.Embedding(codes, width)
        self.decode = nn.ConvTranspose2d(width, 3, 4, 2, 1)

    def forward(self, x):
        y = self.encode(x).permute(0, 2, 3, 1)
        distance = (
            y.square().sum(-1, keepdim=True)
            - 2 * y @ self.codes.weight.t()
            + self.codes.weight.square().sum(1)
        )
        index = distance.argmin(-1)
        return self.decode(self.codes(index).permute(0, 3, 1, 2)), index


class Generator(nn.Sequential):
    """Radford et al. 2015: noise to an image."""

    def __init__(self, width=8):
        super().__init__(
            nn.ConvTranspose2d(20, 4 * width, 4, 1, 0, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.ReLU(True),
            nn.ConvTranspose2d(4 * width, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )


class CycleGenerator(nn.Sequential):
    """Zhu et al. 2017: reflections at the border, instance norms, transposed convolutions."""

    def __init__(self, width=8):
        super().__init__(
            nn.ReflectionPad2d(3),
            nn.Conv2d(3, width, 7),
            nn.InstanceNorm2d(width),
            nn.ReLU(True),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.InstanceNorm2d(2 * width, affine=True),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 3, stride=2, padding=1, output_padding=1),
            nn.LeakyReLU(0.2, True),
            nn.ReflectionPad2d(3),
            nn.Conv2d(width, 3, 7),
            nn.Tanh(),
        )


class ModulatedConvolution(nn.Module):
    """Karras et al. 2019 (StyleGAN2): a kernel of its own for each image, as a grouped convolution."""

    def __init__(self, width=8, style=12):
        super().__init__()
        self.mapping = nn.Sequential(nn.Linear(style, style), nn.LeakyReLU(0.2), nn.Linear(style, width))
        self.weight = nn.Parameter(torch.randn(width, width, 3, 3))
        self.start = nn.Parameter(torch.randn(1, width, 8, 8))

    def forward(self, z):
        style = self.mapping(z * (z.square().mean(1, keepdim=True) + 1e-8).rsqrt())
        weight = self.weight * (style[:, None, :, None, None] + 1)
        weight = weight * weight.square().sum((2, 3, 4), keepdim=True).add(1e-8).rsqrt()
        batch, out, channels, height, width = weight.shape
        x = self.start.expand(batch, -1, -1, -1).reshape(1, batch * channels, 8, 8)
        y = F.conv2d(x, weight.reshape(batch * out, channels, height, width), padding=1, groups=batch)
        return F.interpolate(y.view(batch, out, 8, 8), scale_factor=2, mode="bilinear", align_corners=False)


class SuperResolution(nn.Module):
    """Dense residual blocks, then pixel shuffle."""

    def __init__(self, width=12):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.dense = nn.ModuleList(nn.Conv2d(width * (i + 1), width, 3, padding=1) for i in range(3))
        self.up = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        rows = [self.stem(x)]
        for layer in self.dense:
            rows.append(F.leaky_relu(layer(torch.cat(rows, 1)), 0.2))
        return self.up(rows[0] + 0.2 * rows[-1]) + F.interpolate(x, scale_factor=2, mode="bicubic")


class AttentionDecoder(nn.Module):
    """Bahdanau et al. 2014: a GRU decoder that attends over an LSTM encoder."""

    def __init__(self, tokens=30, width=16):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.encoder = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(3 * width, width)
        self.query, self.score = nn.Linear(3 * width, width), nn.Linear(width, 1)
        self.out = nn.Linear(width, tokens)

    def forward(self, source, target):
        memory, (hidden, _) = self.encoder(self.embed(source))
        state, logits = hidden[0], []
        for token in self.embed(target).unbind(1):
            spread = state[:, None].expand(-1, memory.shape[1], -1)
            score = self.score(torch.tanh(self.query(torch.cat([memory, spread], -1))))
            state = self.cell(torch.cat([token, (score.softmax(1) * memory).sum(1)], -1), state)
            logits.append(self.out(state))
        return torch.stack(logits, 1)


class ConvLSTM(nn.Module):
    """Shi et al. 2015: an LSTM whose products are convolutions."""

    def __init__(self, channels=3, width=8):
        super().__init__()
        self.width = width
        self.gates = nn.Conv2d(channels + width, 4 * width, 3, padding=1)

    def forward(self, frames):
        hidden = frames.new_zeros(frames.shape[0], self.width, *frames.shape[3:])
        cell = torch.zeros_like(hidden)
        for frame in frames.unbind(1):
            i, f, o, g = self.gates(torch.cat([frame, hidden], 1)).chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
        return hidden


class Recurrent(nn.Module):
    """A recurrent layer, with outputs and last states."""

    def __init__(self, layer, **options):
        super().__init__()
        self.layer = layer(8, 16, batch_first=True, **options)
        self.head = nn.Linear(16 * (2 if options.get("bidirectional") else 1), 5)

    def forward(self, x):
        rows, state = self.layer(x)
        return self.head(rows), state


class GraphConvolution(nn.Module):
    """Kipf and Welling 2016, with a dense adjacency matrix."""

    def __init__(self, width=12):
        super().__init__()
        self.first, self.second = nn.Linear(7, width), nn.Linear(width, 4)

    def forward(self, x, adjacency):
        adjacency = adjacency + torch.eye(adjacency.shape[-1])
        degree = adjacency.sum(-1).clamp_min(1).rsqrt()
        adjacency = degree[..., None] * adjacency * degree[..., None, :]
        return (adjacency @ self.second(F.relu(adjacency @ self.first(x)))).log_softmax(-1)


class GraphAttention(nn.Module):
    """Velickovic et al. 2017, over a dense mask."""

    def __init__(self, width=8, heads=3):
        super().__init__()
        self.heads, self.width = heads, width
        self.project = nn.Linear(7, heads * width, bias=False)
        self.left, self.right = (nn.Parameter(torch.randn(heads, width)) for _ in range(2))

    def forward(self, x, adjacency):
        y = self.project(x).view(*x.shape[:-1], self.heads, self.width)
        left, right = (y * self.left).sum(-1), (y * self.right).sum(-1)
        score = F.leaky_relu(left.transpose(1, 2)[..., None] + right.transpose(1, 2)[:, :, None], 0.2)
        weights = score.masked_fill(adjacency[:, None] == 0, -1e9).softmax(-1)
        return F.elu((weights @ y.transpose(1, 2)).transpose(1, 2).flatten(2))


class MessagePassing(nn.Module):
    """Gilmer et al. 2017: messages along a list of edges, summed, averaged and maximised at their target."""

    def __init__(self, width=12):
        super().__init__()
        self.embed = nn.Linear(7, width)
        self.message = nn.Sequential(nn.Linear(2 * width + 2, width), nn.SiLU(), nn.Linear(width, width))
        self.update = nn.GRUCell(3 * width, width)
        self.out = nn.Linear(width, 3)

    def forward(self, x, source, target, edges):
        h = self.embed(x)
        for _ in range(2):
            m = self.message(torch.cat([h[source], h[target], edges], -1))
            index = target[:, None].expand_as(m)
            total = torch.zeros_like(h).index_add(0, target, m)
            mean = torch.zeros_like(h).scatter_reduce(0, index, m, "mean", include_self=False)
            most = torch.zeros_like(h).scatter_reduce(0, index, m, "amax", include_self=False)
            h = self.update(torch.cat([total, mean, most], -1), h)
        return self.out(h), h.sum(0)


class GraphSage(nn.Module):
    """Hamilton et al. 2017: means over sampled neighbours, by a table of their indices."""

    def __init__(self, width=12):
        super().__init__()
        self.first, self.second = nn.Linear(14, width), nn.Linear(2 * width, 5)

    def forward(self, x, neighbours):
        h = F.normalize(F.relu(self.first(torch.cat([x, x[neighbours].mean(1)], -1))), dim=-1)
        return self.second(torch.cat([h, h[neighbours].mean(1)], -1))


class ContinuousFilter(nn.Module):
    """Schuett et al. 2017 (SchNet): filters from distances between atoms."""

    def __init__(self, width=12, kernels=10):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.register_buffer("centres", torch.linspace(0, 5, kernels))
        self.filter = nn.Sequential(nn.Linear(kernels, width), nn.Softplus(), nn.Linear(width, width))
        self.inside, self.out = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, kinds, positions):
        h = self.embed(kinds)
        offsets = positions[:, :, None] - positions[:, None]
        distance = (offsets.square().sum(-1) + 1e-8).sqrt()
        basis = torch.exp(-10 * (distance[..., None] - self.centres).square())
        cutoff = 0.5 * (torch.cos(distance * math.pi / 5) + 1) * (distance < 5)
        h = h + (self.filter(basis) * cutoff[..., None] * self.inside(h)[:, None]).sum(2)
        return self.out(h).sum(1)


class PointNet(nn.Module):
    """Qi et al. 2016: a transform of the points, then a maximum over them."""

    def __init__(self):
        super().__init__()
        self.transform = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.features = nn.Sequential(
            nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 48, 1)
        )
        self.out = nn.Linear(48, 5)

    def forward(self, points):
        matrix = self.matrix(self.transform(points).max(-1).values).view(-1, 3, 3) + torch.eye(3)
        return self.out(self.features(torch.bmm(matrix, points)).amax(-1)).log_softmax(-1)


class EdgeConvolution(nn.Module):
    """Wang et al. 2018 (DGCNN): features of the nearest neighbours, found in the feature space."""

    def __init__(self, neighbours=5):
        super().__init__()
        self.neighbours = neighbours
        self.layer = nn.Sequential(nn.Conv2d(6, 16, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2))
        self.out = nn.Linear(16, 5)

    def forward(self, points):
        rows = points.transpose(1, 2)
        square = rows.square().sum(-1)
        distance = square[:, :, None] + square[:, None] - 2 * rows @ points
        index = distance.topk(self.neighbours, dim=-1, largest=False).indices
        batch = torch.arange(points.shape[0])[:, None, None]
        near = rows[batch, index]
        middle = rows[:, :, None].expand_as(near)
        edges = torch.cat([near - middle, middle], -1).permute(0, 3, 1, 2)
        return self.out(self.layer(edges).amax((2, 3)))


class TemporalConvolution(nn.Module):
    """Bai et al. 2018: causal convolutions whose dilation doubles."""

    def __init__(self, width=12):
        super().__init__()
        sizes = [(3, width), (width, width), (width, width)]
        self.layers = nn.ModuleList(nn.Conv1d(i, o, 3, dilation=2**n) for n, (i, o) in enumerate(sizes))
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        for layer in self.layers:
            y = F.relu(layer(F.pad(x, (2 * layer.dilation[0], 0))))
            x = x + y if x.shape == y.shape else y
        return self.out(x[..., -1])


class WaveNet(nn.Module):
    """van den Oord et al. 2016: gated causal convolutions, skips summed."""

    def __init__(self, width=12):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4))
        self.out = nn.Conv1d(width, 256, 1)

    def forward(self, samples):
        x = self.embed(samples).transpose(1, 2)
        total = 0
        for gate, skip in zip(self.gates, self.skips, strict=True):
            a, b = gate(F.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            y = skip(a.tanh() * b.sigmoid())
            total, x = total + y, x + y
        return self.out(F.relu(total))


class ConvTasNet(nn.Module):
    """Luo and Mesgarani 2018: masks over a learned basis separate speakers."""

    def __init__(self, basis=24, width=16):
        super().__init__()
        self.encode = nn.Conv1d(1, basis, 16, stride=8, bias=False)
        self.norm = nn.GroupNorm(1, basis, eps=1e-8)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(basis, width, 1),
                nn.PReLU(),
                nn.GroupNorm(1, width),
                nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i, groups=width),
                nn.PReLU(),
                nn.Conv1d(width, basis, 1),
            )
            for i in range(3)
        )
        self.mask = nn.Conv1d(basis, 2 * basis, 1)
        self.decode = nn.ConvTranspose1d(basis, 1, 16, stride=8, bias=False)

    def forward(self, sound):
        rows = self.encode(sound[:, None])
        y = self.norm(rows)
        for block in self.blocks:
            y = y + block(y)
        masks = self.mask(y).sigmoid().unflatten(1, (2, -1))
        parts = (masks * rows[:, None]).flatten(0, 1)
        return self.decode(parts).view(sound.shape[0], 2, -1)


class HifiGan(nn.Module):
    """Kong et al. 2020: transposed convolutions and dilated residual blocks, from mel bands to sound."""

    def __init__(self, bands=20, width=16):
        super().__init__()
        weight_norm = nn.utils.parametrizations.weight_norm
        self.stem = weight_norm(nn.Conv1d(bands, width, 7, padding=3))
        self.up = nn.ModuleList(
            weight_norm(nn.ConvTranspose1d(width >> i, width >> (i + 1), 8, 4, 2)) for i in range(2)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                weight_norm(nn.Conv1d(width >> (i + 1), width >> (i + 1), 3, padding=d, dilation=d))
                for d in (1, 3)
            )
            for i in range(2)
        )
        self.out = nn.Conv1d(width >> 2, 1, 7, padding=3)

    def forward(self, bands):
        x = self.stem(bands)
        for up, block in zip(self.up, self.blocks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            for layer in block:
                x = x + layer(F.leaky_relu(x, 0.1))
        return torch.tanh(self.out(F.leaky_relu(x)))


class Demucs(nn.Module):
    """Defossez et al. 2019: gated convolutions around an LSTM, with skips."""

    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv1d(2, width, 8, 4), nn.ReLU(), nn.Conv1d(width, 2 * width, 1), nn.GLU(1)
        )
        self.lstm = nn.LSTM(width, width, bidirectional=True)
        self.join = nn.Linear(2 * width, width)
        self.up = nn.Sequential(
            nn.Conv1d(width, 2 * width, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(width, 4, 8, 4)
        )

    def forward(self, sound):
        scale = sound.std(dim=-1, keepdim=True).mean(1, keepdim=True) + 1e-3
        skip = self.down(sound / scale)
        y = self.join(self.lstm(skip.permute(2, 0, 1))[0]).permute(1, 2, 0)
        return self.up(y + skip) * scale


class SpeechRecognizer(nn.Module):
    """Amodei et al. 2015 (Deep Speech 2): convolutions over a spectrogram, a GRU, letters."""

    def __init__(self):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 8, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20)
        )
        self.gru = nn.GRU(8 * 10, 16, bidirectional=True, batch_first=True)
        self.out = nn.Linear(32, 29)

    def forward(self, spectrogram):
        y = self.convolutions(spectrogram[:, None]).permute(0, 3, 1, 2).flatten(2)
        return self.out(self.gru(y)[0]).log_softmax(-1)


class SpectrogramClassifier(nn.Module):
    """A short-time Fourier transform, its magnitude in mel bands, and convolutions."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("bands", torch.rand(33, 12))
        self.net = nn.Sequential(
            nn.Conv1d(12, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 5)
        )

    def forward(self, sound):
        spectrum = torch.stft(sound, 64, 16, window=self.window.to(sound.dtype), return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        return self.net((power.transpose(1, 2) @ self.bands).clamp_min(1e-5).log().transpose(1, 2))


class NBeats(nn.Module):
    """Oreshkin et al. 2019: each block takes its backcast away."""

    def __init__(self, length=24, horizon=6):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(length, 32), nn.ReLU(), nn.Linear(32, length + horizon)) for _ in range(3)
        )
        self.length = length

    def forward(self, x):
        forecast = 0
        for block in self.blocks:
            y = block(x)
            x, forecast = x - y[:, : self.length], forecast + y[:, self.length :]
        return forecast


class DLinear(nn.Module):
    """Zeng et al. 2022: trend by a moving mean, a linear layer for each part."""

    def __init__(self, length=36, horizon=12):
        super().__init__()
        self.trend, self.season = nn.Linear(length, horizon), nn.Linear(length, horizon)

    def forward(self, x):
        x = x.transpose(1, 2)
        padded = torch.cat([x[..., :1].repeat(1, 1, 4), x, x[..., -1:].repeat(1, 1, 4)], -1)
        trend = F.avg_pool1d(padded, 9, 1)
        return (self.trend(trend) + self.season(x - trend)).transpose(1, 2)


class InvertedTransformer(nn.Module):
    """Liu et al. 2023 (iTransformer): attention between variables, after reversible norm."""

    def __init__(self, length=24, horizon=6, width=16):
        super().__init__()
        self.embed = nn.Linear(length, width)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.out = nn.Linear(width, horizon)

    def forward(self, x):
        mean, deviation = x.mean(1, keepdim=True), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        y = self.out(self.encoder(self.embed(((x - mean) / deviation).transpose(1, 2))))
        return y.transpose(1, 2) * deviation + mean


class GatedResidual(nn.Module):
    """Lim et al. 2019 (TFT): variable selection and gated residual units around an LSTM."""

    def __init__(self, variables=5, width=12):
        super().__init__()
        self.embed = nn.ModuleList(nn.Linear(1, width) for _ in range(variables))
        self.select = nn.Linear(variables * width, variables)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.gate, self.norm = nn.Linear(width, 2 * width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        parts = torch.stack([embed(x[..., i : i + 1]) for i, embed in enumerate(self.embed)], -2)
        weights = self.select(parts.flatten(-2)).softmax(-1)
        y = (weights[..., None] * parts).sum(-2)
        y = self.norm(y + F.glu(self.gate(self.lstm(y)[0])))
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.out(y + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0])


class Recommender(nn.Module):
    """Naumov et al. 2019 (DLRM): bags of categories, and all pairs of their products."""

    def __init__(self, width=8):
        super().__init__()
        self.bags = nn.ModuleList(nn.Embedding(50, width) for _ in range(3))
        self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, width))
        self.top = nn.Sequential(nn.Linear(width + 6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, numbers, categories):
        dense = self.bottom(numbers)
        rows = torch.stack([dense, *(bag(categories[:, i]).sum(1) for i, bag in enumerate(self.bags))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        first, second = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([dense, products[:, first, second]], 1))


class FactorizationMachine(nn.Module):
    """Guo et al. 2017 (DeepFM): second-order products beside a perceptron, over embedding bags."""

    def __init__(self, width=6):
        super().__init__()
        self.bag = nn.EmbeddingBag(60, width, mode="mean")
        self.embed, self.linear = nn.Embedding(60, width), nn.Embedding(60, 1)
        self.deep = nn.Sequential(nn.Linear(5 * width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, fields):
        rows = self.embed(fields)
        pairs = 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.linear(fields).sum(1) + pairs + self.deep(rows.flatten(1))), self.bag(
            fields
        )


class RadianceField(nn.Module):
    """Mildenhall et al. 2020: encoded points to colours, composed along rays."""

    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3 + 24, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, points, steps):
        angles = points[..., None] * 2.0 ** torch.arange(4)
        encoded = torch.cat([points, angles.sin().flatten(-2), angles.cos().flatten(-2)], -1)
        y = self.net(encoded)
        alpha = 1 - torch.exp(-F.softplus(y[..., 3]) * steps)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return ((alpha * through)[..., None] * y[..., :3].sigmoid()).sum(1)


class SineField(nn.Module):
    """Sitzmann et al. 2020 (SIREN)."""

    def __init__(self, width=24):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 3)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.sin(3 * layer(x))
        return self.layers[-1](x)


class Capsules(nn.Module):
    """Sabour et al. 2017: routing by agreement."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 16, 9, stride=4)
        self.weight = nn.Parameter(0.1 * torch.randn(1, 5, 32, 6, 8))

    @staticmethod
    def squash(x):
        square = x.square().sum(-1, keepdim=True)
        return square / (1 + square) * x / (square + 1e-8).sqrt()

    def forward(self, x):
        primary = self.squash(self.convolution(x).flatten(1).view(x.shape[0], -1, 8))
        votes = (self.weight @ primary[:, None, :, :, None]).squeeze(-1)
        logits = torch.zeros_like(votes[..., :1])
        for _ in range(3):
            capsules = self.squash((logits.softmax(1) * votes).sum(2, keepdim=True))
            logits = logits + (votes * capsules).sum(-1, keepdim=True)
        return capsules.squeeze(2).norm(dim=-1)


class OrdinaryDifferential(nn.Module):
    """Chen et al. 2018: a network integrated in time, in steps of Runge-Kutta 4."""

    def __init__(self, width=8, steps=5):
        super().__init__()
        self.steps = steps
        self.field = nn.Sequential(nn.Linear(width + 1, 16), nn.Tanh(), nn.Linear(16, width))

    def forward(self, y):
        step = 1 / self.steps

        def f(t, y):
            return self.field(torch.cat([y, torch.full_like(y[:, :1], t)], 1))

        for i in range(self.steps):
            t = i * step
            a = f(t, y)
            b = f(t + step / 2, y + step / 2 * a)
            c = f(t + step / 2, y + step / 2 * b)
            y = y + step / 6 * (a + 2 * b + 2 * c + f(t + step, y + step * c))
        return y


class NormalizingFlow(nn.Module):
    """Dinh et al. 2016 (RealNVP): affine couplings, permutations and the log of the determinant."""

    def __init__(self, width=6):
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(width // 2, 16), nn.ReLU(), nn.Linear(16, width)) for _ in range(3)
        )
        self.register_buffer("order", torch.randperm(width))

    def forward(self, x):
        total = 0
        for net in self.nets:
            a, b = x[:, self.order].chunk(2, 1)
            scale, shift = net(a).chunk(2, 1)
            x, total = (
                torch.cat([a, b * torch.tanh(scale).exp() + shift], 1),
                total + torch.tanh(scale).sum(1),
            )
        return x, total - 0.5 * x.square().sum(1)


class SetTransformer(nn.Module):
    """Lee et al. 2018: induced points attend to a set; the set attends to them."""

    def __init__(self, width=16):
        super().__init__()
        self.points = nn.Parameter(torch.randn(1, 4, width))
        self.embed = nn.Linear(3, width)
        self.inward, self.outward = (nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(2))
        self.out = nn.Linear(width, 4)

    def forward(self, x, is_padding):
        x = self.embed(x)
        points = self.points.expand(x.shape[0], -1, -1)
        inside = self.inward(points, x, x, key_padding_mask=is_padding)[0]
        y, weights = self.outward(x, inside, inside)
        return self.out(y.masked_fill(is_padding[..., None], 0).sum(1)), weights


class LinearAttention(nn.Module):
    """Katharopoulos et al. 2020: causal attention as running sums."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        total = torch.einsum("bthd,bthe->bthde", k, v).cumsum(1)
        y = torch.einsum("bthd,bthde->bthe", q, total) / (q * k.cumsum(1)).sum(-1, keepdim=True)
        return self.out(y.flatten(2))


class Retention(nn.Module):
    """Sun et al. 2023 (RetNet): products decay with distance."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkvg, self.out = nn.Linear(width, 4 * width), nn.Linear(width, width)
        self.norm = nn.GroupNorm(heads, width)
        self.register_buffer("decay", 1 - 2.0 ** (-5 - torch.arange(heads)))

    def forward(self, x):
        q, k, v, gate = self.qkvg(x).chunk(4, -1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        position = torch.arange(x.shape[1])
        distance = position[:, None] - position
        decay = torch.where(distance >= 0, self.decay[:, None, None] ** distance.clamp_min(0), 0)
        y = (q @ k.transpose(2, 3) * decay) @ v
        y = self.norm(y.transpose(1, 2).flatten(2).flatten(0, 1)).view_as(x)
        return self.out(F.silu(gate) * y)


class StateSpace(nn.Module):
    """Gu et al. 2022 (S4D, real): a diagonal state space as one long convolution."""

    def __init__(self, width=8, states=4, length=20):
        super().__init__()
        self.rate = nn.Parameter(torch.rand(width, states))
        self.mix = nn.Parameter(torch.randn(width, states))
        self.skip, self.out = nn.Parameter(torch.randn(width)), nn.Linear(width, 2 * width)

    def forward(self, x):
        length = x.shape[1]
        kernel = torch.einsum(
            "ws,wsl->wl", self.mix, torch.exp(-self.rate.exp()[..., None] * torch.arange(length))
        )
        y = F.conv1d(F.pad(x.transpose(1, 2), (length - 1, 0)), kernel.flip(-1)[:, None], groups=x.shape[-1])
        return F.glu(self.out(F.gelu(y.transpose(1, 2) + x * self.skip)))


class FourierOperator(nn.Module):
    """Li et al. 2020: products in the frequency domain."""

    def __init__(self, width=6, modes=5):
        super().__init__()
        self.lift, self.out = nn.Linear(2, width), nn.Linear(width, 1)
        self.weight = nn.Parameter(torch.randn(width, width, modes, 2))
        self.modes = modes

    def forward(self, x):
        y = self.lift(x).transpose(1, 2)
        spectrum = torch.fft.rfft(y)[..., : self.modes]
        product = torch.einsum("bim,iom->bom", spectrum, torch.view_as_complex(self.weight))
        return self.out(F.gelu(torch.fft.irfft(product, n=y.shape[-1]) + y).transpose(1, 2))


class MixtureOfExperts(nn.Module):
    """Shazeer et al. 2017: the two best experts of each token, by dense products."""

    def __init__(self, width=12, experts=4):
        super().__init__()
        self.route = nn.Linear(width, experts)
        self.grow = nn.Parameter(0.2 * torch.randn(experts, width, 24))
        self.shrink = nn.Parameter(0.2 * torch.randn(experts, 24, width))

    def forward(self, x):
        scores, index = self.route(x).topk(2, -1)
        gates = torch.zeros_like(self.route(x)).scatter(-1, index, scores.softmax(-1))
        y = F.gelu(torch.einsum("btw,ewh->bteh", x, self.grow))
        return torch.einsum("bteh,ehw,bte->btw", y, self.shrink, gates)


class SpatialTransformer(nn.Module):
    """Jaderberg et al. 2015: an image sampled at a grid that the network finds."""

    def __init__(self):
        super().__init__()
        self.locate = nn.Sequential(
            nn.Conv2d(1, 4, 7),
            nn.MaxPool2d(2, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
            nn.Linear(36, 6),
        )

    def forward(self, x):
        theta = self.locate(x).view(-1, 2, 3)
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)


class VolumeUNet(nn.Module):
    """Cicek et al. 2016 (3D U-Net)."""

    def __init__(self, width=4):
        super().__init__()

        def block(i, o):
            return nn.Sequential(nn.Conv3d(i, o, 3, padding=1), nn.BatchNorm3d(o), nn.ReLU())

        self.down, self.middle = block(1, width), block(width, 2 * width)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.out = nn.Sequential(block(2 * width, width), nn.Conv3d(width, 2, 1))

    def forward(self, x):
        skip = self.down(x)
        return self.out(torch.cat([self.up(self.middle(F.max_pool3d(skip, 2))), skip], 1))


class Detector(nn.Module):
    """A one-stage detector: a feature pyramid, boxes decoded from a grid, the best candidates."""

    def __init__(self, width=16, classes=3):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.SiLU(), nn.Conv2d(width, width, 3, 2, 1), nn.SiLU()
        )
        self.deep = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.SiLU())
        self.lateral = nn.Conv2d(width, width, 1)
        self.head = nn.Conv2d(width, 4 + 1 + classes, 1)

    def forward(self, x):
        shallow = self.stem(x)
        deep = self.deep(shallow)
        fine = self.lateral(shallow) + F.interpolate(deep, size=shallow.shape[-2:], mode="nearest")
        rows = []
        for level, stride in ((fine, 4), (deep, 8)):
            y = self.head(level)
            height, width = y.shape[-2:]
            grid = torch.stack(torch.meshgrid(torch.arange(width), torch.arange(height), indexing="xy"))
            centre = (y[:, :2].sigmoid() * 2 - 0.5 + grid) * stride
            size = y[:, 2:4].exp() * stride
            rows.append(torch.cat([centre - size / 2, centre + size / 2, y[:, 4:].sigmoid()], 1).flatten(2))
        boxes = torch.cat(rows, -1).transpose(1, 2)
        score = boxes[..., 4] * boxes[..., 5:].amax(-1)
        best, index = score.topk(10)
        return boxes.gather(1, index[..., None].expand(-1, -1, boxes.shape[-1])), best


class FlowCorrelation(nn.Module):
    """Teed and Deng 2020 (RAFT): a correlation volume, its pyramid, and lookups."""

    def __init__(self, width=12):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 7, 4, 3), nn.InstanceNorm2d(width), nn.ReLU())
        self.out = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, first, second):
        a, b = self.features(first), self.features(second)
        batch, channels, height, width = a.shape
        volume = torch.einsum("bchw,bcij->bhwij", a, b) / math.sqrt(channels)
        coarse = F.avg_pool2d(volume.flatten(1, 2), 2)
        return self.out(torch.stack([volume.amax((3, 4)), coarse.amax((2, 3)).view(batch, height, width)], 1))


class SeqToSeq(nn.Module):
    """Vaswani et al. 2017, with PyTorch's own layers and a causal mask."""

    def __init__(self, tokens=30, width=16):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.net = nn.Transformer(width, 2, 1, 1, 32, batch_first=True)
        self.out = nn.Linear(width, tokens)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        padding = source == 0
        rows = self.net(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.out(rows)


class TextConvolution(nn.Module):
    """Kim 2014: convolutions of several widths over words, the largest of each."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 12, padding_idx=0)
        self.layers = nn.ModuleList(nn.Conv1d(12, 8, k) for k in (2, 3, 4))
        self.out = nn.Linear(24, 3)

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        return self.out(torch.cat([F.relu(layer(x)).max(-1).values for layer in self.layers], 1))


class QNetwork(nn.Module):
    """Wang et al. 2015: a dueling network; values, advantages and the best action."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 8, 8, 4),
            nn.ReLU(),
            nn.Conv2d(8, 16, 4, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(24),
        )
        self.value, self.advantage = nn.Linear(24, 1), nn.Linear(24, 6)
        self.features(torch.zeros(1, 4, 44, 44))

    def forward(self, x):
        y = F.relu(self.features(x / 255))
        advantage = self.advantage(y)
        q = self.value(y) + advantage - advantage.mean(1, keepdim=True)
        return q, q.argmax(1)


def tokens(count=30, *shape):
    return torch.randint(1, count, shape)


def graph(nodes=11):
    return torch.randn(2, nodes, 7), (torch.rand(2, nodes, nodes) > 0.6).float()


def edges(nodes=11, count=29):
    return torch.randn(nodes, 7), *torch.randint(0, nodes, (2, count)), torch.randn(count, 2)


def _model(group, module, *inputs):
    """The module and inputs, each made anew by a function."""
    return Model(group, lambda: (module(), tuple(each() for each in inputs), {}))


def _random(*shape):
    return lambda: torch.randn(shape)


def _unpacked(group, module, inputs):
    return Model(group, lambda: (module(), tuple(inputs()), {}))


_padding = lambda: torch.arange(9)[None] >= torch.tensor([[9], [6]])  # noqa: E731
_sound = _random(2, 400)
MODELS = {
    "transformer_seq2seq": _model("attention", SeqToSeq, lambda: tokens(30, 2, 9), lambda: tokens(30, 2, 7)),
    "set_transformer": _model("attention", SetTransformer, _random(2, 9, 3), _padding),
    "linear_attention": _model("attention", LinearAttention, _random(2, 11, 16)),
    "retnet": _model("attention", Retention, _random(2, 11, 16)),
    "moe_dense": _model("attention", MixtureOfExperts, _random(2, 7, 12)),
    "s4d": _model("attention", StateSpace, _random(2, 20, 8)),
    "text_cnn": _model("text", TextConvolution, lambda: tokens(40, 2, 13)),
    "diffusion_unet": _model(
        "diffusion", DiffusionUNet, _random(2, 4, 16, 16), lambda: torch.tensor([3, 500]), _random(2, 5, 24)
    ),
    "dit": _model(
        "diffusion",
        DiffusionTransformer,
        _random(2, 4, 16, 16),
        lambda: torch.tensor([3, 500]),
        lambda: tokens(10, 2),
    ),
    "autoencoder_kl": _model("diffusion", AutoencoderKL, _random(2, 3, 16, 16)),
    "vq_vae": _model("generative", VectorQuantizer, _random(2, 3, 16, 16)),
    "dcgan": _model("generative", Generator, _random(2, 20, 1, 1)),
    "cyclegan": _model("generative", CycleGenerator, _random(2, 3, 24, 24)),
    "stylegan2": _model("generative", ModulatedConvolution, _random(2, 12)),
    "esrgan": _model("generative", SuperResolution, _random(2, 3, 12, 12)),
    "realnvp": _model("generative", NormalizingFlow, _random(2, 6)),
    "neural_ode": _model("generative", OrdinaryDifferential, _random(2, 8)),
    "gcn": _unpacked("graph", GraphConvolution, graph),
    "gat": _unpacked("graph", GraphAttention, graph),
    "mpnn": _unpacked("graph", MessagePassing, edges),
    "graphsage": _model("graph", GraphSage, _random(11, 7), lambda: torch.randint(0, 11, (11, 4))),
    "schnet": _model("graph", ContinuousFilter, lambda: tokens(10, 2, 7), _random(2, 7, 3)),
    "pointnet": _model("points", PointNet, _random(2, 3, 40)),
    "dgcnn": _model("points", EdgeConvolution, _random(2, 3, 40)),
    "tcn": _model("time series", TemporalConvolution, _random(2, 3, 20)),
    "nbeats": _model("time series", NBeats, _random(2, 24)),
    "dlinear": _model("time series", DLinear, _random(2, 36, 3)),
    "itransformer": _model("time series", InvertedTransformer, _random(2, 24, 5)),
    "tft": _model("time series", GatedResidual, _random(2, 9, 5)),
    "wavenet": _model("audio", WaveNet, lambda: tokens(256, 2, 40)),
    "conv_tasnet": _model("audio", ConvTasNet, _sound),
    "hifigan": _model("audio", HifiGan, _random(2, 20, 12)),
    "demucs": _model("audio", Demucs, _random(2, 2, 72)),
    "deepspeech2": _model("audio", SpeechRecognizer, _random(2, 20, 24)),
    "stft_classifier": _model("audio", SpectrogramClassifier, _sound),
    "dlrm": _model("recommendation", Recommender, _random(2, 6), lambda: tokens(50, 2, 3, 4)),
    "deepfm": _model("recommendation", FactorizationMachine, lambda: tokens(60, 2, 5)),
    "nerf": _model("fields", RadianceField, _random(6, 8, 3), lambda: torch.rand(6, 8)),
    "siren": _model("fields", SineField, _random(30, 2)),
    "fourier_operator": _model("fields", FourierOperator, _random(2, 16, 2)),
    "capsules": _model("vision", Capsules, _random(2, 1, 24, 24)),
    "spatial_transformer": _model("vision", SpatialTransformer, _random(2, 1, 20, 20)),
    "unet_3d": _model("vision", VolumeUNet, _random(2, 1, 8, 8, 8)),
    "one_stage_detector": _model("detection", Detector, _random(2, 3, 32, 32)),
    "raft_correlation": _model("vision", FlowCorrelation, _random(2, 3, 32, 32), _random(2, 3, 32, 32)),
    "dueling_dqn": _model("control", QNetwork, lambda: torch.rand(2, 4, 44, 44) * 255),
    "lstm": _model("recurrent", lambda: Recurrent(nn.LSTM, num_layers=2), _random(2, 10, 8)),
    "gru_bidirectional": _model(
        "recurrent", lambda: Recurrent(nn.GRU, bidirectional=True), _random(2, 10, 8)
    ),
    "rnn_relu": _model("recurrent", lambda: Recurrent(nn.RNN, nonlinearity="relu"), _random(2, 10, 8)),
    "lstm_projected": _model("recurrent", lambda: nn.LSTM(8, 16, proj_size=5), _random(6, 2, 8)),
    "lstm_long": _model("recurrent", lambda: Recurrent(nn.LSTM), _random(2, 200, 8)),
    "conv_lstm": _model("recurrent", ConvLSTM, _random(2, 4, 3, 16, 16)),
    "bahdanau": _model("recurrent", AttentionDecoder, lambda: tokens(30, 2, 7), lambda: tokens(30, 2, 5)),
}
