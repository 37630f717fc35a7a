"""Comparisons where PyTorch is not installed: those that need it say so, the others do without."""

from __future__ import annotations

from pathlib import Path

from hidden_torch import run

SCRIPT = """
path = sys.argv[1]
try:
    pteron.compare(path)
except pteron.PteronError as error:
    print(error)
for reference in ("route=hardware", "rewrites"):
    report = pteron.compare(path, reference=reference)
    print(reference, report.is_right, report.checked)
print("torch" in sys.modules)
"""


def test_only_float64_needs_torch(programs: Path) -> None:
    needs, route, rewrites, imported = run(SCRIPT, programs / "mlp.pte").splitlines()
    assert needs == "a float64 reference needs the Python package 'torch': pip install 'pteron[host]'"
    assert (route, rewrites) == ("route=hardware True 5", "rewrites True 0")
    assert imported == "False"
