"""Constrained decoding: a grammar gives a mask over the vocabulary for each token."""

from pteron.llm.grammar.grammar import Grammar, Matcher

__all__ = ["Grammar", "Matcher"]
