"""Pooling: planes and volumes under sliding windows."""

from pteron.families.pool import pool, volumes
