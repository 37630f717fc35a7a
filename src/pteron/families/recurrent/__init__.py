"""Layers with a state of fixed size that every token changes: short convolutions, the gated delta rule,
the scan of Mamba-2."""

from pteron.families.recurrent import gated_delta_rule, short_conv, ssm_scan
