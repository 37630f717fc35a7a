"""Why tests are skipped in a run of `scripts/test --all`, where all that they need is installed. With
--strict-skips a test that is skipped for another reason fails."""

from __future__ import annotations

import re

REASONS = (
    # It does not apply: to a case, or to this adapter.
    "other models take fewer numbers of rows",
    "any text is a value",
    ".* has too little workgroup memory",
    "this adapter has half floats",
    "subgroups of .* are narrower than the .* lanes of q4_rows",
    # Other commands install it.
    "needs the extra `ray`: scripts/test --ray",
    r"mkdocs is not installed \(scripts/docs installs it\)",
    # Shells that a machine may lack.
    "(zsh|fish) is not installed",
)


def is_listed(reason: str) -> bool:
    return any(re.fullmatch(pattern, reason) for pattern in REASONS)
