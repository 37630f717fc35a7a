"""Normalisation: of rows, and of channels by statistics of their own."""

from pteron.families.norm import norm
