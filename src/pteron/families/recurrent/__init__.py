"""Layers with a state of fixed size that every token changes: short convolutions, the gated delta rule."""

from pteron.families.recurrent import gated_delta_rule, short_conv
