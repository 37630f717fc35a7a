"""Rotary position embeddings."""

from pteron.families.rope import rope
