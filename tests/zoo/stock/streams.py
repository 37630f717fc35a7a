"""Modules that keep buffers between calls, as sensors, sound and decoders need them.

A new value that would be read again later as the old one is written as `copy_(value * 1.0)`: ExecuTorch gives
both the same tensor, and the product is a node of its own at the place of the write.
"""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F  # noqa: N812  # as everywhere

from zoo.stock.recipe import STREAMS, Recipe, sized, streaming


class Stream(nn.Module):
    """Zeroed buffers by name."""

    def __init__(self, **shapes):
        super().__init__()
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))


class Average(Stream):
    """An exponential moving average."""

    def forward(self, x):
        self.mean.copy_(0.9 * self.mean + 0.1 * x)
        return x - self.mean


class Statistics(Stream):
    """The running mean and deviation, with a count (Welford)."""

    def forward(self, x):
        self.count.copy_(self.count + 1)
        change = x - self.mean
        mean = self.mean + change / self.count
        self.squares.copy_((self.squares + change * (x - mean)) * 1.0)
        self.mean.copy_(mean * 1.0)
        return (x - self.mean) * torch.rsqrt(self.squares / self.count + 1e-3)


class Delay(Stream):
    """A delay line: a comb filter over the last rows."""

    def forward(self, x):
        line = torch.cat([self.line[:, x.shape[1] :], x], 1)
        self.line.copy_(line * 1.0)
        return x + 0.5 * self.line[:, : x.shape[1]]


class Biquad(Stream):
    """A recursive filter of second order, one sample of each channel a call."""

    def forward(self, x):
        y = 0.3 * x + self.first
        first, second = 0.2 * x - 0.4 * y + self.second, 0.1 * x - 0.2 * y
        self.first.copy_(first * 1.0)
        self.second.copy_(second * 1.0)
        return y


class Kalman(Stream):
    """Position and speed from noisy positions: a matrix of covariances as state."""

    def __init__(self):
        super().__init__(state=(2, 1), spread=(2, 2))
        self.spread += torch.eye(2)
        self.register_buffer("move", torch.tensor([[1.0, 0.1], [0.0, 1.0]]))
        self.register_buffer("noise", 0.01 * torch.eye(2))

    def forward(self, measured):
        state = self.move @ self.state
        spread = self.move @ self.spread @ self.move.t() + self.noise
        gain = spread[:, :1] / (spread[:1, :1] + 0.1)
        self.state.copy_((state + gain * (measured - state[:1])) * 1.0)
        self.spread.copy_((spread - gain @ spread[:1]) * 1.0)
        return self.state * 1.0


class Gru(Stream):
    """A layer over a few rows a call."""

    def __init__(self):
        super().__init__(hidden=(1, 1, 12))
        self.layer, self.out = nn.GRU(6, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x):
        rows, hidden = self.layer(x, self.hidden)
        self.hidden.copy_(hidden)
        return self.out(rows)


class Lstm(Stream):
    """Two layers, and a probability from the last row, as Silero's voice detector has it."""

    def __init__(self):
        super().__init__(hidden=(2, 1, 8), cell=(2, 1, 8))
        self.features = nn.Sequential(nn.Conv1d(1, 8, 16, 8), nn.ReLU())
        self.layer, self.out = nn.LSTM(8, 8, 2, batch_first=True), nn.Linear(8, 1)

    def forward(self, sound):
        rows = self.features(sound[:, None]).transpose(1, 2)
        rows, (hidden, cell) = self.layer(rows, (self.hidden, self.cell))
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        return self.out(rows[:, -1]).sigmoid()


class ConvolutionTails(Stream):
    """A streaming encoder: each causal convolution keeps the last inputs, as Voxtral's and Mimi's do."""

    def __init__(self):
        super().__init__(first=(1, 4, 2), second=(1, 8, 4))
        self.narrow, self.wide = nn.Conv1d(4, 8, 3), nn.Conv1d(8, 8, 3, dilation=2, groups=4)

    def forward(self, x):
        x = torch.cat([self.first, x], 2)
        self.first.copy_(x[:, :, -2:])
        y = torch.cat([self.second, F.gelu(self.narrow(x))], 2)
        self.second.copy_(y[:, :, -4:])
        return self.wide(y)


class Attending(Stream):
    """Attention of a step over rows that are kept; `place` says which row the step writes. By `index_copy_`,
    as the static caches of transformers do, or by a choice between old and new rows."""

    def __init__(self, rows=8, width=16, heads=2, is_ring=False, is_indexed=False):
        super().__init__(keys=(1, heads, rows, width // heads), values=(1, heads, rows, width // heads))
        self.rows, self.heads, self.is_ring, self.is_indexed = rows, heads, is_ring, is_indexed
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, place):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        row = torch.arange(self.rows)
        if self.is_indexed:
            self.keys.index_copy_(2, place, k)
            self.values.index_copy_(2, place, v)
        else:
            here = (row == (place % self.rows if self.is_ring else place))[:, None]
            self.keys.copy_(torch.where(here, k, self.keys))
            self.values.copy_(torch.where(here, v, self.values))
        hidden = torch.where(row <= place, 0.0, -1e4).to(x.dtype)  # of a full ring, none
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=hidden[None, :])
        return self.out(y.transpose(1, 2).flatten(2))


class SlidingRows(Stream):
    """A cache that moves: the oldest row leaves, the new one joins at the end."""

    def __init__(self, rows=6, width=16):
        super().__init__(kept=(1, rows, width))
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        self.kept.copy_(torch.cat([self.kept[:, 1:], x], 1) * 1.0)
        return self.attend(x, self.kept, self.kept, need_weights=False)[0]


class Retention(Stream):
    """RetNet's recurrent form (Sun et al. 2023): a matrix that decays and gathers products."""

    def __init__(self, width=16, heads=2):
        super().__init__(total=(1, heads, width // heads, width // heads))
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("decay", (1 - 2.0 ** (-3 - torch.arange(heads).float()))[:, None, None])

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        self.total.copy_(self.decay * self.total + k.transpose(2, 3) @ v)
        return self.out((q @ self.total).transpose(1, 2).flatten(2))


class Background(Stream):
    """What moves in front of a fixed camera: the running mean of the picture, a mask, features of it."""

    def __init__(self):
        super().__init__(mean=(1, 3, 16, 24))
        self.features = nn.Conv2d(4, 6, 3, 2, 1)

    def forward(self, photo):
        change = (photo - self.mean).abs().mean(1, keepdim=True)
        self.mean.copy_(self.mean + 0.05 * (photo - self.mean))
        return (change > 0.7), self.features(torch.cat([photo, change], 1))


class Recursive(Stream):
    """Video super-resolution: the last result, made small, is part of the next frame's input."""

    def __init__(self):
        super().__init__(last=(1, 12, 12, 16))
        self.body = nn.Sequential(nn.Conv2d(15, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1))

    def forward(self, frame):
        y = self.body(torch.cat([frame, self.last], 1))
        self.last.copy_(torch.tanh(y))
        return F.pixel_shuffle(y, 2)


def _attending(count, **options):
    return Recipe(
        STREAMS,
        lambda: Attending(**options),
        lambda: [(torch.randn(1, 1, 16), torch.tensor([place])) for place in range(count)],
        options={"alias_buffer_mutations": True},
    )


_LENGTH = Dim("length", min=3, max=12)

RECIPES = {
    "average": streaming(lambda: Average(mean=(1, 5)), (1, 5)),
    "statistics": streaming(lambda: Statistics(count=(1,), mean=(1, 7), squares=(1, 7)), (1, 7)),
    "delay_line": streaming(lambda: Delay(line=(1, 9, 4)), (1, 3, 4)),
    "biquad": streaming(lambda: Biquad(first=(1, 6), second=(1, 6)), (1, 6)),
    "kalman": streaming(Kalman, (1, 1)),
    "gru": streaming(Gru, (1, 2, 6)),
    "voice_lstm": streaming(Lstm, (1, 32)),
    "convolution_tails": streaming(ConvolutionTails, (1, 4, 6)),
    "convolution_tails_lengths": Recipe(
        STREAMS,
        ConvolutionTails,
        sized(lambda length: (torch.randn(1, 4, length),), 12, 5, 3, 11, 12),
        shapes=({2: _LENGTH},),
        options={"alias_buffer_mutations": True},
    ),
    "kv_cache": _attending(6),
    "ring_cache": _attending(11, rows=4, is_ring=True),
    "static_cache": _attending(6, is_indexed=True),
    "sliding_rows": streaming(SlidingRows, (1, 1, 16), count=8),
    "retention": streaming(Retention, (1, 1, 16)),
    "background": streaming(Background, (1, 3, 16, 24)),
    "video_recursion": streaming(Recursive, (1, 3, 12, 16)),
}
