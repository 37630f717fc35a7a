"""How many there may be of what takes memory or time, unless a caller says otherwise."""

from __future__ import annotations

SEQUENCES_MAX = 16  # of a model
WAITING_MAX = 64  # requests that an engine lets wait
