"""Operators that exporters take out before a file is written."""

from pteron.families.exporter_removed import operators
