"""Networks for sequences: an audio encoder as Whisper's, an LSTM and a BERT."""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from networks.layers import Attention, Encoder


class AudioEncoder(nn.Module):
    """Radford et al. 2022: two convolutions over a spectrogram, then transformer blocks over its frames."""

    def __init__(self, bands=20, frames=50, width=48, heads=3, blocks=2):
        super().__init__()
        self.first = nn.Conv1d(bands, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        steps = torch.arange(frames // 2)[:, None] * torch.exp(
            -math.log(10000) / (width // 2 - 1) * torch.arange(width // 2)
        )
        self.register_buffer("positions", torch.cat([steps.sin(), steps.cos()], dim=1))
        self.blocks = nn.Sequential(*(Encoder(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = gelu(self.second(gelu(self.first(spectrogram)))).transpose(1, 2)
        return self.norm(self.blocks(x + self.positions))


class Tagger(nn.Module):
    """Token embeddings through two layers of LSTM, a label for each token and the last states."""

    def __init__(self, tokens=50, width=12, hidden=16, labels=5):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True)
        self.label = nn.Linear(hidden, labels)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, (hidden, cell) = self.lstm(self.embed(tokens))
        return self.label(rows), hidden, cell


class BertBlock(nn.Module):
    """A transformer block with its norms after attention and perceptron."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm_attention, self.norm_mlp = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm_attention(x + self.attention(x, mask))
        return self.norm_mlp(x + self.shrink(gelu(self.grow(x))))


class Bert(nn.Module):
    """Devlin et al. 2018: every token's row, and a pooled row for the whole; hidden tokens have mask 0."""

    def __init__(self, tokens=60, length=24, width=48, heads=4, blocks=2):
        super().__init__()
        self.tokens, self.kinds = nn.Embedding(tokens, width), nn.Embedding(2, width)
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.ModuleList(BertBlock(width, heads) for _ in range(blocks))
        self.pool = nn.Linear(width, width)

    def forward(self, tokens: Tensor, kinds: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        position = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.tokens(tokens) + self.kinds(kinds) + self.positions(position))
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for block in self.blocks:
            x = block(x, hidden)
        return x, torch.tanh(self.pool(x[:, 0]))
