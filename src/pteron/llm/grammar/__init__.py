"""Grammars: what a text may be, as masks over the vocabulary, token by token."""

from pteron.llm.grammar.grammar import Grammar
from pteron.llm.grammar.matcher import Matcher

__all__ = ["Grammar", "Matcher"]
