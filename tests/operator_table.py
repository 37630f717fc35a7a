"""The operators that ExecuTorch's exporter knows: tests/fixtures/operators.csv.

`inputs` and `outputs` are the element types of tensors: "/" separates the types that one tensor may have, ";"
separates tensors; a single entry applies to all. `resizable`: whether shapes may be live. `cpp_webgpu`:
whether ExecuTorch's own WebGPU runtime has the operator: "live", "fixed" (shapes), or plain "yes" or "no".
"""

from __future__ import annotations

import csv
from pathlib import Path

TABLE = Path(__file__).parent / "fixtures" / "operators.csv"


def read_table() -> dict[str, dict[str, str]]:
    """The rows by the operator's name."""
    return {row["name"]: row for row in csv.DictReader(TABLE.read_text().splitlines())}
