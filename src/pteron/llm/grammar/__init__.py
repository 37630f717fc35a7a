"""Constrained decoding: a grammar gives a mask over the vocabulary for each token."""

from pteron.llm.grammar.grammar import Grammar
from pteron.llm.grammar.matcher import Matcher

__all__ = ["Grammar", "Matcher"]
