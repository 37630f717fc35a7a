"""Language models: text in, a stream of text out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pteron.llm.generate import Drawn, LoopCounters, generate_step
    from pteron.llm.llm import LLM, Piece, Statistics
    from pteron.llm.model import LanguageModel
    from pteron.llm.sampling import Sampler, Sampling
    from pteron.llm.tokenizer import Tokenizer
    from pteron.llm.vocabularies.load import load_tokenizer

__all__ = [
    "LLM",
    "Drawn",
    "LanguageModel",
    "LoopCounters",
    "Piece",
    "Sampler",
    "Sampling",
    "Statistics",
    "Tokenizer",
    "generate_step",
    "load_tokenizer",
]

# The modules of these names, imported when they are first asked for.
_HOMES = {
    **dict.fromkeys(("Drawn", "LoopCounters", "generate_step"), "generate"),
    **dict.fromkeys(("LLM", "Piece", "Statistics"), "llm"),
    "LanguageModel": "model",
    **dict.fromkeys(("Sampler", "Sampling"), "sampling"),
    "Tokenizer": "tokenizer",
    "load_tokenizer": "vocabularies.load",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module("pteron.gpu")  # first: drivers load while Python imports the rest
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
