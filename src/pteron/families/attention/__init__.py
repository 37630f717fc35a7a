"""Scaled dot-product attention."""

from pteron.families.attention import rope_sdpa, sdpa, views
