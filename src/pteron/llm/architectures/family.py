"""A family of language models: how a configuration becomes a decoder, and where its tensors are.

Most families are a call of `stack` with the parts that are not those of Llama, and a table of names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.errors import UnsupportedError
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.names import Names
from pteron.llm.architectures.parts import Block, Decoder, Part
from pteron.llm.architectures.vision import Vision

Layers: TypeAlias = Part | Sequence[Part]  # a part of all layers, or one for each


def stack(
    config: Config,
    attention: Layers | None = None,
    mlp: Layers | None = None,
    norm: Part | None = None,
    **of_block: Any,
) -> Decoder:
    """Blocks with these parts, or those of the configuration; the norm is also that after the last layer.
    `of_block` are options of `Block`."""
    norm = norm or config.norm
    options = {"input_norm": norm, **of_block}
    attentions, mlps = (
        part if isinstance(part, Sequence) else [part] * len(config.layers)
        for part in (attention or config.attention(), mlp or config.mlp)
    )
    return Decoder(tuple(Block(*parts, **options) for parts in zip(attentions, mlps, strict=True)), norm)


@dataclass(frozen=True)
class Family:
    """A family is called by the `model_type` of its Hugging Face checkpoints. `decoder` takes a configuration
    in their terms; a GGUF file's metadata is translated first."""

    decoder: Callable[[Config], Decoder]
    hugging_face: Names  # of tensors in Hugging Face checkpoints, and of modules in PEFT adapters
    gguf: Names | None = None  # of tensors in GGUF files; None: they are not supported
    keys: Mapping[str, str] = field(default_factory=dict)  # the configuration's own names of common keys
    context: int = 2048  # tokens, if the configuration states no number
    architecture: str | None = None  # the `general.architecture` of GGUF files; None: the family's name
    # A GGUF file's configuration in Hugging Face's terms, where one key does not say what another does.
    from_gguf: Callable[[Config], Config] = lambda config: config
    vision: Vision | None = None  # the part that reads images, of Hugging Face checkpoints

    def normalized(self, config: Mapping[str, Any]) -> Config:
        """A configuration with common names of keys; that of the text model in one of several modalities."""
        if isinstance(config.get("text_config"), dict):
            text = config["text_config"]
            # Hugging Face's multimodal models ignore a false of the text model: what is stored decides.
            tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings") or None)
            config = {**text, "tie_word_embeddings": tied}
        if isinstance(kinds := config.get("layers_block_type"), list):
            config = {"num_hidden_layers": len(kinds), **config}
        own = {common: config[own] for common, own in self.keys.items() if config.get(own) is not None}
        return Config({**config, **own})


def require_settings(config: Mapping[str, Any], **expected: Any) -> None:
    """Refuse settings of a configuration that change what a model computes."""
    for key, value in expected.items():
        if config.get(key, value) != value:
            raise UnsupportedError(f"{key} is {config[key]!r}; only {value!r} is supported")
