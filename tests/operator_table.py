"""The operators that ExecuTorch's exporter knows: tests/fixtures/operators.csv.

`inputs` and `outputs` are the element types of tensors, with "/" between those that one may have and ";"
between tensors; one entry may stand for all. `resizable` tells whether shapes may be live. `cpp_webgpu` tells
whether ExecuTorch's own WebGPU runtime has the operator: "live", "fixed" (shapes), or plain "yes" or "no".
"""

from __future__ import annotations

import csv
from pathlib import Path

TABLE = Path(__file__).parent / "fixtures" / "operators.csv"


def read_table() -> dict[str, dict[str, str]]:
    """The rows by the operator's name."""
    return {row["name"]: row for row in csv.DictReader(TABLE.read_text().splitlines())}
