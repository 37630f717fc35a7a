"""Slices and elements picked, written and added by index."""

from pteron.families.index import gather, scatter
