"""Findings that are kept, and which of them are open: by the key of the fault that they show."""

from __future__ import annotations

from pathlib import Path

FINDINGS = Path(__file__).parent / "findings"

# Whoever mends one takes its line away: the tests of it are expected to fail as long as it stands here.
OPEN: dict[str, str] = {}
