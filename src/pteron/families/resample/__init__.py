"""Resampling of planes: upsampling and grid sampling."""

from pteron.families.resample import grid, upsample
