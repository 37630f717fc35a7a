"""Resampling: planes on another grid."""

from pteron.families.resample import grid, shuffle, upsample
