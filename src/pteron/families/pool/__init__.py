"""Pooling: planes and volumes under sliding windows."""

from pteron.families.pool import adaptive, pool, volumes
