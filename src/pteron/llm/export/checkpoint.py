"""A checkpoint on its way to a program: the form that every reader here produces and the lowering takes.

Weights carry the names of ExecuTorch's Llama module (`layers.0.attention.wq.weight`, ...), and `parameters`
are fields of its `ModelArgs`. Shapes are known before the weights are read, so that what cannot be exported
is refused at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from pteron.errors import FormatError
from pteron.llm.foreign import naming

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
    """What a tokenizer needs, as files of the exported folder, and the ids that begin and end a text."""

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
    context_length: int  # what the model was trained for
    vocabulary: Vocabulary
    licence: str | None = None
    notices: dict[str, bytes] = field(default_factory=dict)  # licence files, by name

    @property
    def parameter_count(self) -> int:
        return sum(prod(shape) for shape in self.shapes.values())

    def check_complete(self) -> None:
        """Every weight that the parameters ask for is there."""
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
            raise FormatError(
                f"{self.name}: {len(missing)} weights are missing, the first being {missing[0]}"
            )

    def weights(self) -> Weights:
        """All weights as float32. Where the output matrix is missing, the embedding table serves as one."""
        weights = {name: weight.float() for name, weight in self.read_weights().items()}
        weights.setdefault(OUTPUT, weights[EMBEDDING])
        return weights


@contextmanager
def naming_what_is_missing(name: str) -> Iterator[None]:
    """Say which entry a configuration lacks, or that one makes no sense."""
    with naming(f"{name}: its configuration makes no sense"):
        try:
            yield
        except KeyError as error:
            raise FormatError(f"{name}: its configuration lacks {error}") from error
