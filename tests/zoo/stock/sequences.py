"""Networks for text, sound, images from noise, tables and graphs."""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import torch
from networks.layers import Attention, Encoder
from networks.sequences import AudioEncoder, Bert
from torch import nn
from torch.export import Dim
from torch.nn import functional as F  # noqa: N812  # as everywhere

from zoo.networks import MODELS, Recurrent
from zoo.stock.quantized import quantize_4w, quantize_8da4w, quantize_8w
from zoo.stock.recipe import Recipe, of_model, random, sized, tokens

LENGTH = Dim("length", min=2, max=24)


class MiniLm(nn.Module):
    """A sentence as a unit vector: the mean of its rows, without the padding."""

    def __init__(self, width=32):
        super().__init__()
        self.bert = Bert(width=width, heads=2, blocks=1)

    def forward(self, tokens, mask):
        rows, _ = self.bert(tokens, torch.zeros_like(tokens), mask)
        share = mask[..., None].to(rows.dtype)
        return F.normalize((rows * share).sum(1) / share.sum(1).clamp_min(1e-9), dim=-1)


def rotate(x, base=10000.0):
    """Rotary places, halves of a head as real and imaginary parts (Su et al. 2021). The rates are a constant:
    operators that have nothing but constants would be a delegate without inputs (`NO_INPUTS`)."""
    half = x.shape[-1] // 2
    rates = torch.tensor([base ** (-i / half) for i in range(half)], dtype=x.dtype)
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * rates
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class RootMeanSquare(nn.Module):
    """A norm by the root of the mean square."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class RotaryBlock(nn.Module):
    """A transformer block with rotary places and a gated perceptron. `window` hides rows that are further
    away, `is_causal` later ones; `shared` is how many heads share keys."""

    def __init__(
        self, width=32, heads=4, shared=1, window=0, is_causal=False, norm=RootMeanSquare, gate=F.silu
    ):
        super().__init__()
        self.heads, self.window, self.is_causal, self.gate = heads, window, is_causal, gate
        self.kept, self.shared = heads // shared, shared
        self.before, self.between = norm(width), norm(width)
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, width // shared, bias=False) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        y = self.before(x)
        q = rotate(self.query(y).unflatten(-1, (self.heads, -1)).transpose(1, 2))
        k = rotate(self.key(y).unflatten(-1, (self.kept, -1)).transpose(1, 2))
        v = self.value(y).unflatten(-1, (self.kept, -1)).transpose(1, 2)
        k, v = (each.repeat_interleave(self.shared, 1) if self.shared > 1 else each for each in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(x))
        x = x + self.out(y.transpose(1, 2).flatten(2))
        a, b = self.up(self.between(x)).chunk(2, -1)
        return x + self.down(self.gate(a) * b)

    def mask(self, x):
        if not (self.window or self.is_causal):
            return None
        place = torch.arange(x.shape[1])
        distance = place[:, None] - place
        hidden = distance < 0 if self.is_causal else distance.abs() > self.window
        return torch.zeros_like(distance, dtype=x.dtype).masked_fill(hidden, -1e4)


class RotaryNetwork(nn.Module):
    """Tokens through rotary blocks: ModernBERT, EmbeddingGemma, a decoder's prompt."""

    def __init__(self, blocks, width=32, vocabulary=50, gives_logits=False):
        super().__init__()
        self.embed, self.blocks, self.norm = nn.Embedding(vocabulary, width), blocks, RootMeanSquare(width)
        self.gives_logits = gives_logits

    def forward(self, tokens):
        rows = self.norm(self.blocks(self.embed(tokens)))
        return rows @ self.embed.weight.t() if self.gives_logits else F.normalize(rows.mean(1), dim=-1)


def modern_bert():
    layers = [RotaryBlock(window=w, norm=nn.LayerNorm, gate=F.gelu) for w in (0, 3)]
    return RotaryNetwork(nn.Sequential(*layers))


def embedding_gemma():
    return RotaryNetwork(nn.Sequential(RotaryBlock(shared=4, gate=lambda x: F.gelu(x, approximate="tanh"))))


def decoder():
    return RotaryNetwork(nn.Sequential(RotaryBlock(shared=2, is_causal=True)), gives_logits=True)


class T5Encoder(nn.Module):
    """Raffel et al. 2019: attention without scaling, a bias for buckets of distances."""

    def __init__(self, width=32, heads=4, length=11):
        super().__init__()
        self.embed, self.norm, self.heads = nn.Embedding(50, width), RootMeanSquare(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.bias = nn.Embedding(8, heads)
        place = torch.arange(length)
        distance = place - place[:, None]
        small = distance.abs().clamp(max=3)
        self.register_buffer("bucket", small + 4 * (distance > 0))

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(2, 3) + self.bias(self.bucket).permute(2, 0, 1)
        return x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class WhisperDecoder(nn.Module):
    """Radford et al. 2022: causal attention over tokens, then over the encoder's rows."""

    def __init__(self, width=32, vocabulary=50, length=32):
        super().__init__()
        self.embed, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.within, self.across = Attention(width, 4), nn.MultiheadAttention(width, 4, batch_first=True)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.full((length, length), -1e4).triu(1))

    def forward(self, tokens, sound):
        length = tokens.shape[1]
        x = self.embed(tokens) + self.places.weight[:length]
        x = x + self.within(self.norms[0](x), self.mask[:length, :length])
        x = x + self.across(self.norms[1](x), sound, sound, need_weights=False)[0]
        x = x + self.shrink(F.gelu(self.grow(self.norms[2](x))))
        return self.norms[3](x) @ self.embed.weight.t()


class Wav2Vec(nn.Module):
    """Baevski et al. 2020: strided convolutions over the wave, places by a grouped convolution."""

    def __init__(self, width=16, letters=7):
        super().__init__()
        self.first, self.norm = nn.Conv1d(1, width, 10, 5, bias=False), nn.GroupNorm(width, width)
        self.rest = nn.Sequential(
            nn.Conv1d(width, width, 3, 2), nn.GELU(), nn.Conv1d(width, width, 2, 2), nn.GELU()
        )
        self.places = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(width, width, 4, padding=2, groups=4), dim=2
        )
        self.block, self.letters = Encoder(width, 2), nn.Linear(width, letters)

    def forward(self, wave):
        y = self.rest(F.gelu(self.norm(self.first(wave[:, None]))))
        y = y + F.gelu(self.places(y)[..., :-1])
        return self.letters(self.block(y.transpose(1, 2))).log_softmax(-1)


class Conformer(nn.Module):
    """Gulati et al. 2020: half a perceptron, attention, a gated depthwise convolution, half a perceptron."""

    def __init__(self, width=16):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.halves = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
            for _ in range(2)
        )
        self.attend = Attention(width, 2)
        self.convolve = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, 7, padding=3, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )

    def forward(self, x):
        x = x + 0.5 * self.halves[0](self.norms[0](x))
        x = x + self.attend(self.norms[1](x))
        x = x + self.convolve(self.norms[2](x).transpose(1, 2)).transpose(1, 2)
        return self.norms[4](x + 0.5 * self.halves[1](self.norms[3](x)))


class Vits(nn.Module):
    """Kim et al. 2021: text to means and deviations of a latent, noise through an inverse flow, then sound.
    Durations and noise are inputs."""

    def __init__(self, width=16):
        super().__init__()
        self.embed, self.block = nn.Embedding(50, width), Encoder(width, 2)
        self.project = nn.Conv1d(width, 2 * width, 1)
        self.flow = nn.ModuleList(nn.Conv1d(width // 2, 2 * width, 3, padding=1) for _ in range(2))
        self.couple = nn.ModuleList(nn.Conv1d(width, width // 2, 1) for _ in range(2))
        self.up = nn.Sequential(
            nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(width, 8, 8, 4, 2),
            nn.LeakyReLU(0.1),
            nn.Conv1d(8, 1, 7, padding=3),
        )

    def forward(self, tokens, spread, noise):
        rows = self.block(self.embed(tokens)).transpose(1, 2)
        mean, deviation = (self.project(rows) @ spread).chunk(2, 1)
        z = mean + noise * deviation.clamp(-4, 4).exp()
        for layer, couple in zip(self.flow, self.couple, strict=True):
            kept, moved = z.flip(1).chunk(2, 1)
            gate, filled = layer(kept).chunk(2, 1)
            z = torch.cat([kept, moved - couple(gate.tanh() * filled.sigmoid())], 1)
        return torch.tanh(self.up(z))


class TinyAutoencoder(nn.Module):
    """TAESD's decoder: a soft limit, residual convolutions, nearest neighbours."""

    def __init__(self, width=8):
        super().__init__()

        def block():
            layers = [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
            return nn.Sequential(*layers)

        self.stem, self.blocks = nn.Conv2d(4, width, 3, padding=1), nn.ModuleList(block() for _ in range(2))
        self.up = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.stem(torch.tanh(x / 3) * 3))
        for block in self.blocks:
            x = self.up(F.interpolate(F.relu(x + block(x)), scale_factor=2.0, mode="nearest"))
        return self.out(x)


def _lengths(make, inputs, *sizes, kind="text", shapes=None, **options):
    return Recipe(kind, make, sized(inputs, *sizes), shapes=shapes or ({1: LENGTH},), **options)


def _sentence(length):
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[0, length // 2 + 1 :] = 0
    return tokens(1, length), mask


def _bert(quantize=None):
    def calls():
        return [(*_sentence(13),) for _ in range(2)]

    return Recipe("text", MiniLm, calls, quantize=quantize)


def _text(length):
    return (tokens(1, length),)


def _speech():
    return [(tokens(1, 7), torch.eye(7).repeat_interleave(3, 1), torch.randn(1, 16, 21)) for _ in range(2)]


def _written(length):
    return tokens(1, length), torch.randn(1, 10, 32)


_TRIANGLE = "`tril_indices` is not decomposed, and ExecuTorch's edge dialect does not have it"

RECIPES = {
    "minilm": _lengths(MiniLm, _sentence, 24, 2, 13, shapes=({1: LENGTH}, {1: LENGTH})),
    "bert_4w": _bert(quantize_4w),
    "bert_8w": _bert(quantize_8w),
    "bert_8da4w": _bert(quantize_8da4w),
    "modernbert": _lengths(modern_bert, _text, 24, 5, 17),
    "embedding_gemma": _lengths(embedding_gemma, _text, 24, 2, 19),
    "decoder_prompt": _lengths(decoder, _text, 24, 2, 23),
    "decoder_prompt_8da4w": Recipe("text", decoder, sized(_text, 13, 13), quantize=quantize_8da4w),
    "t5_encoder": Recipe("text", T5Encoder, sized(_text, 11, 11)),
    "text_cnn": of_model("text", MODELS["text_cnn"]),
    "whisper_encoder": Recipe("sound", lambda: AudioEncoder(width=24, blocks=1), random((1, 20, 50))),
    "whisper_decoder": _lengths(WhisperDecoder, _written, 24, 2, 9, kind="sound", shapes=({1: LENGTH}, None)),
    "wav2vec": Recipe("sound", Wav2Vec, random((1, 400))),
    "conformer": Recipe("sound", Conformer, random((1, 19, 16))),
    "vits": Recipe("sound", Vits, _speech),
    "hifigan": of_model("sound", MODELS["hifigan"]),
    "conv_tasnet": of_model("sound", MODELS["conv_tasnet"]),
    "wavenet": of_model("sound", MODELS["wavenet"]),
    "lstm": Recipe("sound", lambda: Recurrent(nn.LSTM), random((2, 5, 8))),
    "unet_of_diffusion": of_model("diffusion", MODELS["diffusion_unet"]),
    "diffusion_transformer": of_model("diffusion", MODELS["dit"]),
    "vae": of_model("diffusion", MODELS["autoencoder_kl"]),
    "taesd": Recipe("diffusion", TinyAutoencoder, random((1, 4, 6, 8))),
    "recommender": of_model("tables, graphs, series", MODELS["dlrm"], fault=_TRIANGLE),
    "graph_convolution": of_model("tables, graphs, series", MODELS["gcn"]),
    "graph_attention": of_model("tables, graphs, series", MODELS["gat"]),
    "temporal_convolution": of_model("tables, graphs, series", MODELS["tcn"]),
    "inverted_transformer": of_model("tables, graphs, series", MODELS["itransformer"]),
}
