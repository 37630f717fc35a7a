"""Families of language models, by `model_type` of config.json or `general.architecture` of a GGUF file.

A new family is a file here with a function from configuration to parts and, if names differ, a table of
tensor names; then its module in `_MODULES`.
"""

from __future__ import annotations

from pteron.errors import UnsupportedError
from pteron.llm.architectures import (
    apertus,
    bloom,
    cohere,
    deepseek,
    dense,
    falcon,
    falcon_h1,
    gemma,
    gpt2,
    gpt_neox,
    gpt_oss,
    granite_hybrid,
    idefics3,
    lfm2,
    llama4,
    mamba2,
    opt,
    qwen_next,
    sparse,
    stablelm,
)
from pteron.llm.architectures.family import Family

__all__ = ["ARCHITECTURES", "FAMILIES", "Family", "find_family"]

_MODULES = (
    *(dense, apertus, bloom, cohere, falcon, gemma, gpt2, gpt_neox, idefics3, opt, stablelm),
    *(sparse, deepseek, gpt_oss, llama4),
    *(falcon_h1, granite_hybrid, lfm2, mamba2, qwen_next),
)
FAMILIES: dict[str, Family] = {
    name: family for module in _MODULES for name, family in module.FAMILIES.items()
}


ARCHITECTURES = {  # by the name in GGUF files
    family.architecture or name: family for name, family in FAMILIES.items() if family.gguf is not None
}


def find_family(name: str, model_type: object, *, gguf: bool = False) -> Family:
    """The family of a checkpoint called `name`, or an error that lists the known ones."""
    known = ARCHITECTURES if gguf else FAMILIES
    if not isinstance(model_type, str) or model_type not in known:
        what = "architecture" if gguf else "model type"
        raise UnsupportedError(
            f"{name}: {what} {model_type!r} is not supported; known are {', '.join(sorted(known))}"
        )
    return known[model_type]
