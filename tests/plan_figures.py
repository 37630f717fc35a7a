"""Launches and memory of the plans of the suite's programs, for software adapters and GPUs.

    python tests/plan_figures.py

writes tests/fixtures/plan_figures.json, which tests/cpu/test_plan_figures.py compares with. It needs no
GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pteron
from pteron.ops import Target
from pteron.tools.inspect.figures import program_figures

FIXTURES = Path(__file__).parent / "fixtures"
FILE = FIXTURES / "plan_figures.json"
TARGETS = {
    "software": Target(broadcasts=True),
    "GPU": Target(is_cpu=False, workgroup_bytes_max=32768),
    "GPU, subgroups": Target(is_cpu=False, subgroup_size=32, workgroup_bytes_max=49152),
}
_PROGRAMS = "attention_cache images layout mlp_dynamic norms quantized_linear training vision"
PROGRAMS = {
    **{path.stem: path for path in sorted((FIXTURES / "models").glob("*.pte"))},
    **{name: FIXTURES / "programs" / f"{name}.pte" for name in _PROGRAMS.split()},
    "tiny_qwen3_full": FIXTURES / "decoders" / "tiny_qwen3_full.pte",
    "stories15m": Path(pteron.__file__).parent / "models" / "stories15m" / "model.pte",
}


def figures_of(name: str) -> dict[str, dict[str, Any]]:
    """Launches and bytes of memory of a program's plans, by target and plan."""
    found: dict[str, dict[str, Any]] = {}
    for target, about in TARGETS.items():
        plans = program_figures(PROGRAMS[name], about, traffic=False).items()
        found[target] = {title: {"launches": each.launches, "memory": each.memory} for title, each in plans}
    return found


if __name__ == "__main__":
    content = {name: figures_of(name) for name in PROGRAMS}
    FILE.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    print(f"{FILE}: {len(content)} programs")
