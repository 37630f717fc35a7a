"""Families of language models, by `model_type` of config.json or `general.architecture` of a GGUF file.

A new family is a file here with a function from configuration to parts and, if names differ, a table of
tensor names; then its module in `_MODULES`.
"""

from __future__ import annotations

from pteron.errors import UnsupportedError
from pteron.llm.architectures import (
    cohere,
    deepseek,
    ernie_moe,
    gemma,
    glm_moe,
    gpt_oss,
    granite,
    granite_moe,
    llama,
    llama4,
    mistral,
    mixtral,
    olmo2,
    phi3,
    qwen,
    qwen_moe,
    smollm3,
    starcoder2,
)
from pteron.llm.architectures.family import Family

__all__ = ["FAMILIES", "Family", "find_family"]

_MODULES = (
    cohere,
    deepseek,
    ernie_moe,
    glm_moe,
    gpt_oss,
    gemma,
    granite,
    granite_moe,
    llama,
    llama4,
    mistral,
    mixtral,
    olmo2,
    phi3,
    qwen,
    qwen_moe,
    smollm3,
    starcoder2,
)
FAMILIES: dict[str, Family] = {
    name: family for module in _MODULES for name, family in module.FAMILIES.items()
}


def find_family(name: str, model_type: object, *, gguf: bool = False) -> Family:
    """The family of a checkpoint called `name`, or an error that lists the known ones."""
    known = {kind: family for kind, family in FAMILIES.items() if not gguf or family.gguf_names is not None}
    if not isinstance(model_type, str) or model_type not in known:
        what = "architecture" if gguf else "model type"
        raise UnsupportedError(f"{name}: {what} {model_type!r}; known are {', '.join(sorted(known))}")
    return known[model_type]
