"""Why tests are skipped in a run of `scripts/test --all`, where all that they need is installed."""

from __future__ import annotations

import re

REASONS = {
    r"": "",
}


def is_listed(reason: str) -> bool:
    return any(re.match(pattern, reason) for pattern in REASONS)
