"""Language models: text in, a stream of text out."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.llm.engine import Stream
    from pteron.llm.engine.generate import LoopCounters, generate_step
    from pteron.llm.grammar import Grammar, Matcher
    from pteron.llm.llm import LLM
    from pteron.llm.model import LanguageModel
    from pteron.llm.output import Completion, Piece, Statistics
    from pteron.llm.sampling import Drawn, Sampler, Sampling
    from pteron.llm.tokenizers.load import load_tokenizer
    from pteron.llm.tokenizers.tokenizer import Tokenizer

__all__ = [
    "LLM",
    "Completion",
    "Drawn",
    "Grammar",
    "LanguageModel",
    "LoopCounters",
    "Matcher",
    "Piece",
    "Sampler",
    "Sampling",
    "Statistics",
    "Stream",
    "Tokenizer",
    "generate_step",
    "load_tokenizer",
]

# The module of each name, imported at its first use.
_HOMES = {
    **dict.fromkeys(("LoopCounters", "generate_step"), "engine.generate"),
    **dict.fromkeys(("Grammar", "Matcher"), "grammar"),
    "LLM": "llm",
    "LanguageModel": "model",
    **dict.fromkeys(("Completion", "Piece", "Statistics"), "output"),
    **dict.fromkeys(("Drawn", "Sampler", "Sampling"), "sampling"),
    "Stream": "engine",
    "Tokenizer": "tokenizers.tokenizer",
    "load_tokenizer": "tokenizers.load",
}
__getattr__, __dir__ = lazy(__name__, _HOMES, driving={*_HOMES.values()})
