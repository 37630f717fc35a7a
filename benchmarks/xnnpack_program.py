"""A language model of stories15M's shape for ExecuTorch's XNNPACK backend, in f32 with random weights.

    python benchmarks/xnnpack_program.py stories15m_xnnpack.pte

ExecuTorch's own exporter makes it, with the same cache, attention and live number of tokens as the programs
that Pteron runs. Speed does not depend on what the weights are. Needs the [export] extra and two minutes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import torch

from pteron.llm.network.options import Options

sys.path.append(str(Path(__file__).parents[1] / "tests" / "llm"))
from executorch_llama import config_of

SHAPE = {
    "dim": 288,
    "n_layers": 6,
    "n_heads": 6,
    "n_kv_heads": 6,
    "vocab_size": 32000,
    "hidden_dim": 768,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", type=Path)
    arguments = parser.parse_args()
    from executorch.examples.models.llama.export_llama_lib import export_llama

    with tempfile.TemporaryDirectory() as folder:
        options = Options(quantize=None, embedding_bits=None, max_context_len=256, max_seq_len=128)
        config = config_of(SHAPE, weights(), options, Path(folder))
        config.backend.vulkan.enabled = False
        config.backend.xnnpack.enabled = True
        config.backend.xnnpack.extended_ops = True
        shutil.move(export_llama(config), arguments.program)
    print(f"{arguments.program}: {arguments.program.stat().st_size / 1e6:.1f} MB")


def weights() -> dict[str, torch.Tensor]:
    """Of a Llama of this shape."""
    width, hidden, vocabulary = int(SHAPE["dim"]), int(SHAPE["hidden_dim"]), int(SHAPE["vocab_size"])
    attention = {f"attention.{name}": (width, width) for name in ("wq", "wk", "wv", "wo")}
    shapes: dict[str, tuple[int, ...]] = {
        "tok_embeddings.weight": (vocabulary, width),
        "output.weight": (vocabulary, width),
        "norm.weight": (width,),
    }
    for layer in range(int(SHAPE["n_layers"])):
        matrices = attention | {
            "feed_forward.w1": (hidden, width),
            "feed_forward.w2": (width, hidden),
            "feed_forward.w3": (hidden, width),
        }
        shapes |= {f"layers.{layer}.{name}.weight": shape for name, shape in matrices.items()}
        shapes |= {f"layers.{layer}.{norm}.weight": (width,) for norm in ("attention_norm", "ffn_norm")}
    torch.manual_seed(0)
    return {
        name: torch.ones(shape) if len(shape) == 1 else 0.05 * torch.randn(shape)
        for name, shape in shapes.items()
    }


if __name__ == "__main__":
    main()
