"""Without PyTorch: importing does without it, delegated programs run, others say what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pteron.extras import pip_install

# Hides PyTorch and everything that would bring it in, also from importlib.util.find_spec.
HIDE_TORCH = """
import importlib.abc, importlib.util, sys

HIDDEN = "torch", "torchao", "executorch"

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
find_spec = importlib.util.find_spec

def find_nothing(name, package=None):
    return None if name.partition(".")[0] in HIDDEN else find_spec(name, package)

importlib.util.find_spec = find_nothing

import numpy as np
import pteron

assert "torch" not in sys.modules
"""


def run(script: str, *arguments: object) -> str:
    """What a script prints that runs where PyTorch is not installed; its failure fails the test."""
    command = [sys.executable, "-c", HIDE_TORCH + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_running_a_program_does_not_import_torch(programs: Path) -> None:
    """Though it is installed: importing it takes seconds. What NumPy can run outside a delegate, it runs."""
    script = """
import sys
import numpy as np
import pteron
for path in sys.argv[1:]:
    pteron.load(path)["forward"](np.zeros((3, 7), np.float32))
print("torch" in sys.modules)
"""
    command = [
        sys.executable,
        "-c",
        script,
        *(str(programs / f"{name}.pte") for name in ("mlp", "trivial_host")),
    ]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_programs_run(programs: Path) -> None:
    """Delegated ones; symint_from_host, whose position aten::_local_scalar_dense reads; and two whose ATen
    operators NumPy runs: any, logical_not, multiplication by a number and so on."""
    script = """
for path in sys.argv[1:]:
    with np.load(path.removesuffix("pte") + "npz") as goldens, pteron.load(path) as program:
        cases = {key.partition("_")[0] for key in goldens if key.startswith("case")}
        for case in sorted(cases):
            inputs = [goldens[key] for key in sorted(goldens) if key.startswith(f"{case}_input")]
            outputs = [goldens[key] for key in sorted(goldens) if key.startswith(f"{case}_output")]
            found = program["forward"](*(each.item() if each.ndim == 0 else each for each in inputs))
            for output, expected in zip(found, outputs, strict=True):
                np.testing.assert_allclose(output, expected, atol=1e-5)
        print(path)
(kept,) = pteron.load(sys.argv[1])["forward"](np.zeros((3, 7), np.float32), on_gpu=True)
assert kept.numpy().shape == (3, 5)
try:
    kept.torch()
except ModuleNotFoundError as error:
    print(error.name)
assert "torch" not in sys.modules
"""
    names = [
        "mlp",
        "mlp_dynamic",
        "select_position",
        "select_position_computed",
        "symint_input",
        "symint_output",
        "value_list",
    ]
    names += ["symint_from_host", "trivial_host", "symint_host"]
    printed = run(script, *(programs / f"{name}.pte" for name in names)).splitlines()
    assert len(printed) == len(names) + 1
    assert printed[-1] == "torch"


def test_what_needs_torch_says_so(programs: Path) -> None:
    """Arguments that NumPy does not take, operators that it does not run, compiling, a float64 reference."""
    script = """
from pteron.host.lookup import find_operator
from pteron.host.values import HostTensor, UnsetTensor
half = HostTensor(np.ones(2, np.float16), pteron.DType.F16)
mlp, *others = sys.argv[1:]
for work in (
    lambda: find_operator("aten::add.out").run([half, half, 1, UnsetTensor(pteron.DType.F16)]),
    lambda: pteron.compile(None),
    lambda: pteron.compare(mlp),
    *(lambda path=path: pteron.load(path) for path in others),
):
    try:
        work()
    except pteron.PteronError as error:
        print(error)
for reference in ("route=hardware", "rewrites"):
    report = pteron.compare(mlp, reference=reference)
    print(reference, report.is_right, report.checked)
assert "torch" not in sys.modules
"""
    names = {
        # What NumPy runs among their operators is not listed.
        "two_delegates": ["aten::erf.out", "aten::sort.values"],
        "host_only": ["aten::addmm.out", "aten::gelu.out"],
    }
    paths = [programs / f"{name}.pte" for name in ("mlp", *names)]
    argument, compiled, compared, *loaded, route, rewrites = run(script, *paths).splitlines()
    assert argument == f"arithmetic of f16 needs PyTorch: {pip_install('host')}"
    assert pip_install("export") in compiled
    assert compared == f"a float64 reference needs the Python package 'torch': {pip_install('host')}"
    assert (route, rewrites) == ("route=hardware True 5", "rewrites True 4")
    for line, (name, operators) in zip(loaded, names.items(), strict=True):
        assert f"{name}.pte" in line
        assert pip_install("host") in line
        assert f"operators {', '.join(operators)} run outside the delegates and need PyTorch" in line
