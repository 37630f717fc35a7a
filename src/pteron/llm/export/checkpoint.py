"""A checkpoint in the form that all readers here produce and the lowering takes.

Weights have the names of ExecuTorch's Llama module (`layers.0.attention.wq.weight`, ...), and `parameters`
are fields of its `ModelArgs`. Shapes are known before weights are read, so unsupported checkpoints fail
early.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.model_files import as_format_error

Weights: TypeAlias = dict[str, Any]  # torch tensors by name
EMBEDDING, OUTPUT = "tok_embeddings.weight", "output.weight"
IN_EVERY_LAYER = (
    "attention_norm",
    *(f"attention.{kind}" for kind in ("wq", "wk", "wv", "wo")),
    "ffn_norm",
    *(f"feed_forward.{kind}" for kind in ("w1", "w2", "w3")),
)


@dataclass
class Vocabulary:
    """The tokenizer's files for the exported folder, and the ids that begin and end a text."""

    tokenizer: str
    files: dict[str, bytes]
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    adds_bos: bool = False
    chat_template: str | None = None


@dataclass
class Checkpoint:
    name: str
    parameters: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    read_weights: Callable[[], Weights]
    context_length: int  # that the model was trained for
    vocabulary: Vocabulary
    licence: str | None = None
    notices: dict[str, bytes] = field(default_factory=dict)  # licence files, by name

    @property
    def parameter_count(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    def check_complete(self) -> None:
        """Raise if a weight that the parameters require is missing."""
        layers = self.parameters["n_layers"]
        if not 0 < layers <= len(self.shapes):
            raise FormatError(f"{self.name}: {layers} layers, but only {len(self.shapes)} weights")
        kinds = IN_EVERY_LAYER
        if self.parameters.get("use_qk_norm"):
            kinds += ("attention.q_norm_fn", "attention.k_norm_fn")
        expected = [EMBEDDING, "norm.weight"]
        for layer in range(layers):
            expected += [f"layers.{layer}.{kind}.weight" for kind in kinds]
        missing = [name for name in expected if name not in self.shapes]
        if missing:
            raise FormatError(f"{self.name}: {len(missing)} weights are missing, the first is {missing[0]}")

    def weights(self) -> Weights:
        """All weights as float32. Without an output matrix, the embedding table is used as one."""
        weights = {name: weight.float() for name, weight in self.read_weights().items()}
        weights.setdefault(OUTPUT, weights[EMBEDDING])
        return weights


@contextmanager
def as_config_error(name: str) -> Iterator[None]:
    """Turn errors while a configuration is read into a FormatError."""
    with as_format_error(f"{name}: its configuration is invalid"):
        try:
            yield
        except KeyError as error:
            raise FormatError(f"{name}: its configuration lacks {error}") from error


_ROTARY_MAX = 1 << 16


def rope_parameters(config: dict[str, Any], head_dim: int, name: str) -> dict[str, Any]:
    """ExecuTorch's parameters for a Hugging Face configuration, in its older form (rope_theta, rope_scaling)
    or its newer one (rope_parameters).

    A scaled embedding divides each frequency by a factor; ExecuTorch takes any list of such factors.
    """
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    partial = float(rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    parameters: dict[str, Any] = {"use_hf_rope": True, "rope_theta": theta}
    if partial != 1.0:
        parameters["partial_rotary_factor"] = partial
    rotary = int(head_dim * partial)
    if not 0 < rotary <= _ROTARY_MAX:
        raise FormatError(f"{name}: {rotary} rotary dimensions per head; must be 1 to {_ROTARY_MAX}")
    if kind == "linear":
        parameters["rope_scaling_short_factor"] = [float(rope["factor"])] * (rotary // 2)
    elif kind == "llama3":
        parameters["rope_scaling_short_factor"] = llama3_factors(rope, rotary, theta)
    elif kind != "default":
        raise UnsupportedError(f"{name}: rotary embedding scaled by {kind!r}; known are linear, llama3")
    return parameters


def llama3_factors(rope: dict[str, Any], rotary: int, theta: float) -> list[float]:
    """Llama 3.1's rule: frequencies with many periods in the original context are kept, those with few are
    divided by the factor, with a linear transition between."""
    factor = float(rope["factor"])
    slow, fast = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    context = float(rope["original_max_position_embeddings"])
    factors = []
    for index in range(rotary // 2):
        frequency = theta ** (-2 * index / rotary)
        turns = context * frequency / (2 * math.pi)
        share = min(max((turns - slow) / (fast - slow), 0.0), 1.0)  # 1: kept, 0: divided by the factor
        factors.append(1 / (share + (1 - share) / factor))
    return factors
