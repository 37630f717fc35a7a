"""Language models: text in, a stream of text out."""

import pteron.gpu  # noqa: F401  # first: drivers load while Python imports the rest

# isort: split
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
