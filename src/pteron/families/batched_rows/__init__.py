"""Batched decode: one row per sequence, each with its own position and cache slot."""

from pteron.families.batched_rows import attention, locate, rope
