"""Without PyTorch: importing does without it, delegated programs run, others say what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hidden_torch import run


def test_importing_does_not_import_torch() -> None:
    script = "import sys, pteron; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["mlp", "trivial_host"])
def test_running_a_program_does_not_import_torch(programs: Path, name: str) -> None:
    """Though it is installed: importing it takes seconds. What NumPy can run outside a delegate, it runs."""
    script = """
import sys
import numpy as np
import pteron
pteron.load(sys.argv[1])["forward"](np.zeros((3, 7), np.float32))
print("torch" in sys.modules)
"""
    command = [sys.executable, "-c", script, str(programs / f"{name}.pte")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_delegated_programs_run(programs: Path) -> None:
    script = """
for path in sys.argv[1:]:
    with np.load(path.removesuffix("pte") + "npz") as goldens, pteron.load(path) as program:
        inputs = sorted(key for key in goldens if key.startswith("case0_input"))
        outputs = sorted(key for key in goldens if key.startswith("case0_output"))
        found = program["forward"](*(goldens[key] for key in inputs))
        for output, key in zip(found, outputs, strict=True):
            np.testing.assert_allclose(output, goldens[key], atol=1e-5)
        print(path)
assert "torch" not in sys.modules
"""
    names = ["mlp", "mlp_dynamic", "select_position", "symint_input", "symint_output", "value_list"]
    printed = run(script, *(programs / f"{name}.pte" for name in names))
    assert len(printed.splitlines()) == len(names)


def test_host_operators_of_executorch_run(programs: Path) -> None:
    """symint_from_host reads its position by aten::_local_scalar_dense, which needs no PyTorch."""
    script = """
with np.load(sys.argv[2]) as goldens, pteron.load(sys.argv[1]) as program:
    for case in range(4):
        (found,) = program["forward"](goldens[f"case{case}_input0"], goldens[f"case{case}_input1"])
        np.testing.assert_allclose(found, goldens[f"case{case}_output0"], atol=1e-5)
"""
    run(script, programs / "symint_from_host.pte", programs / "symint_from_host.npz")


def test_simple_host_operators_run(programs: Path) -> None:
    """Of ATen, by NumPy: any, logical_not, multiplication by a number and so on."""
    script = """
for path in sys.argv[1:]:
    with np.load(path.removesuffix("pte") + "npz") as goldens, pteron.load(path) as program:
        assert any(name.startswith("aten::") for name in program.file.methods[0].operators)
        for case in range(3):
            inputs = [goldens[key] for key in sorted(goldens) if key.startswith(f"case{case}_input")]
            outputs = [goldens[key] for key in sorted(goldens) if key.startswith(f"case{case}_output")]
            found = program["forward"](*(each.item() if each.ndim == 0 else each for each in inputs))
            for output, expected in zip(found, outputs, strict=True):
                np.testing.assert_allclose(output, expected, atol=1e-5)
assert "torch" not in sys.modules
"""
    run(script, *(programs / f"{name}.pte" for name in ("trivial_host", "symint_host")))


def test_arguments_that_numpy_does_not_take(programs: Path) -> None:
    """They say so when the program runs: which they are is not known before."""
    script = """
from pteron.host.lookup import find_operator
from pteron.host.values import HostTensor, UnsetTensor
half = HostTensor(np.ones(2, np.float16), pteron.DType.F16)
try:
    find_operator("aten::add.out").estimate_cost([half, half, 1, UnsetTensor(pteron.DType.F16)])
except pteron.HostError as error:
    print(error)
"""
    assert run(script).strip() == "arithmetic of f16 needs PyTorch: pip install 'pteron[host]'"


def test_all_missing_host_operators_in_one_error(programs: Path) -> None:
    script = """
for path in sys.argv[1:]:
    try:
        pteron.load(path)
    except pteron.UnsupportedError as error:
        print(error)
"""
    names = {
        # What NumPy runs among their operators is not listed.
        "two_delegates": ["aten::erf.out", "aten::sort.values"],
        "host_only": ["aten::addmm.out", "aten::gelu.out"],
    }
    lines = run(script, *(programs / f"{name}.pte" for name in names)).splitlines()
    assert len(lines) == len(names)
    for line, (name, operators) in zip(lines, names.items(), strict=True):
        assert f"{name}.pte" in line
        assert "pteron[host]" in line
        assert f"operators {', '.join(operators)} run outside the delegates and need PyTorch" in line


def test_compiling_says_what_it_needs() -> None:
    script = """
try:
    pteron.compile(None)
except pteron.PteronError as error:
    print(error)
"""
    assert "pip install 'pteron[export]'" in run(script)


def test_a_gpu_tensor_needs_torch_only_for_torch(programs: Path) -> None:
    script = """
(kept,) = pteron.load(sys.argv[1])["forward"](np.zeros((3, 7), np.float32), on_gpu=True)
assert kept.numpy().shape == (3, 5)
try:
    kept.torch()
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run(script, programs / "mlp.pte").strip() == "torch"


def test_only_the_float64_reference_of_compare_needs_torch(programs: Path) -> None:
    script = """
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
    needs, route, rewrites, imported = run(script, programs / "mlp.pte").splitlines()
    assert needs == "a float64 reference needs the Python package 'torch': pip install 'pteron[host]'"
    assert (route, rewrites) == ("route=hardware True 5", "rewrites True 0")
    assert imported == "False"
