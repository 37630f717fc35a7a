"""A family of language models: how a configuration becomes a decoder, and where its tensors are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pteron.errors import UnsupportedError
from pteron.llm.architectures.names import Config, Names
from pteron.llm.architectures.parts import Decoder
from pteron.llm.architectures.vision import Vision


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

    def normalized(self, config: Config) -> Config:
        """A configuration with common names of keys; that of the text model in one of several modalities."""
        if isinstance(config.get("text_config"), dict):
            text = config["text_config"]
            # Hugging Face's multimodal models ignore a false of the text model: what is stored decides.
            tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings") or None)
            config = {**text, "tie_word_embeddings": tied}
        if isinstance(kinds := config.get("layers_block_type"), list):
            config = {"num_hidden_layers": len(kinds), **config}
        own_keys = {common: config.get(own) for common, own in self.keys.items()}
        return {**config, **{common: value for common, value in own_keys.items() if value is not None}}


def require_settings(config: Config, **expected: Any) -> None:
    """Refuse settings of a configuration that change what a model computes."""
    for key, value in expected.items():
        if config.get(key, value) != value:
            raise UnsupportedError(f"{key} is {config[key]!r}; only {value!r} is supported")
