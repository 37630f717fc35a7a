"""Pooling: planes under sliding windows."""

from pteron.families.pool import pool
