"""Slices and elements picked by index."""

from pteron.families.index import gather
