"""The same inputs give the same bits: in other processes, and after plans were forgotten."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_files import ROOT

import pteron
from pteron.runtime import plan_cache

# Prints a digest of the bits of what every model in a folder gives, for prompts of several lengths.
DIGEST = """
import hashlib, sys
from pathlib import Path
import numpy as np
import pteron
for file in sorted(Path(sys.argv[1]).glob("*.pte")):
    digest = hashlib.sha256()
    with pteron.load(file) as program:
        method = program["forward"]
        longest = method.inputs[0].shape_max[1]
        for length in (longest, 1, 7, 2):
            method.reset()
            position = 0
            for tokens in (min(length, longest), 1, 1):
                ids = np.random.default_rng(position).integers(0, 500, (1, tokens))
                (logits,) = method(ids, np.array([position]))
                digest.update(logits.tobytes())
                position += tokens
    print(file.stem, digest.hexdigest())
"""


@pytest.mark.long
def test_three_processes_give_the_same_bits(models: Path) -> None:
    command = [sys.executable, "-c", DIGEST, str(models)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [process.communicate(timeout=250)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    assert len(printed[0].splitlines()) == len(list(models.glob("*.pte")))
    assert printed[0] == printed[1] == printed[2]


@pytest.mark.long(every=2)
@pytest.mark.parametrize("name", ["tiny_llama_fp32", "tiny_llama_q4"])
def test_plans_that_were_forgotten_give_the_same_bits(
    name: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_cache, "PLAN_BYTES_MAX", 0)
    lengths = [5, 1, 17, 5, 1, 17]
    with pteron.load(models / f"{name}.pte") as program:
        digests = list[str]()
        for length in lengths:
            program["forward"].reset()
            ids = np.random.default_rng(length).integers(0, 500, (1, length))
            (logits,) = program["forward"](ids, np.array([0]))
            digests.append(hashlib.sha256(logits.tobytes()).hexdigest())
        assert program["forward"].counters.plans >= len(lengths)  # each was planned again
    half = len(lengths) // 2
    assert digests[:half] == digests[half:]


def test_no_kernel_adds_floats_in_an_order_of_chance() -> None:
    """Atomics are of integers, whose sums and extremes do not depend on any order."""
    found = set[str]()
    for file in ROOT.rglob("*.wgsl"):
        kinds = re.findall(r"atomic<(\w+)>", file.read_text("utf-8"))
        assert set(kinds) <= {"u32", "i32"}, file.name
        found |= set(kinds)
    assert found  # the sampler's
