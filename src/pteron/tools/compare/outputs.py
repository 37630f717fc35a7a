"""Outputs of a whole program against those of a bundled program, or of a torch.export program."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.extras import need
from pteron.format.source import open_file
from pteron.runtime import Program, ValueSpec
from pteron.tools.accuracy import Rounding, Tolerances, measure
from pteron.tools.compare.calls import Calls
from pteron.tools.compare.report import NodeResult, Verdict
from pteron.tools.inputs import as_float, fill_inputs
from pteron.tools.run import plain_value


def expected_rows(program: Program, name: str, tolerances: Tolerances) -> list[NodeResult]:
    """The outputs of every bundled test case of a method, each on fresh states."""
    suites = program.bundle.suites if program.bundle else ()
    cases = [case for suite in suites if suite.method == name for case in suite.cases]
    if not cases:
        raise InputError(
            f"{program.file.name} has no expected outputs for {name}: it is not a bundled program (.bpte)"
        )
    rows: list[NodeResult] = []
    method = program[name]
    for index, case in enumerate(cases):
        method.reset()
        found = method(*map(plain_value, case.inputs))
        wanted = list(map(plain_value, case.outputs))
        rows += _rows(f"case {index}", found, wanted, method.outputs, tolerances)
    return rows


def exported_rows(
    program: Program, name: str, calls: Calls, path: str, tolerances: Tolerances
) -> list[NodeResult]:
    """The outputs of one call against those of the torch.export program that it was lowered from. Lowering
    rewrites the graph, so that nodes have no certain counterparts: only outputs are compared."""
    torch = need("torch", "an exported program", "host")
    if calls.tokens:
        raise InputError("an exported program is called once: give inputs, not tokens")
    try:
        open_file(Path(path)).close()  # PyTorch's own message for a missing file fills a page
        if not zipfile.is_zipfile(path):
            raise ValueError("not a zip archive")
        module = torch.export.load(path).module()
    except Exception as error:  # PyTorch raises many types for bad files and unknown operators
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: PyTorch cannot load it as an exported program: {reason}") from error
    method = program[name]
    inputs = fill_inputs(method.inputs, calls.inputs, calls.sizes, calls.seed)
    arguments = [
        _as_torch(given.value, spec, torch) for given, spec in zip(inputs, method.inputs, strict=True)
    ]
    try:
        with torch.no_grad():
            results = module(*arguments)
    except Exception as error:  # includes the program's own checks of its inputs
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path} does not take the inputs of {name}: {reason}") from error
    leaves = torch.utils._pytree.tree_leaves(results)
    wanted = [
        leaf.detach().float().numpy() if getattr(leaf, "dtype", None) == torch.bfloat16 else np.asarray(leaf)
        for leaf in leaves
    ]
    found = method(*(given.value for given in inputs))
    return list(_rows("", found, wanted, method.outputs, tolerances, bf16_as_bits=False))


def _rows(
    call: str,
    found: Sequence[Any],
    wanted: Sequence[Any],
    specs: Sequence[ValueSpec],
    tolerances: Tolerances,
    *,
    bf16_as_bits: bool = True,
) -> Iterator[NodeResult]:
    if len(found) != len(wanted):
        raise InputError(f"the reference has {len(wanted)} outputs, the program {len(found)}")
    for position, (actual, expected, spec) in enumerate(zip(found, wanted, specs, strict=True)):
        left, right = np.asarray(actual), np.asarray(expected)
        dtype = spec.dtype or DType.of(left.dtype) or DType.F64
        if dtype is DType.BF16:
            left = as_float(left, dtype)
            right = as_float(right, dtype) if bf16_as_bits else right
        errors = measure(left, right, dtype, tolerances.bound(Rounding.PROGRAM, dtype))
        verdict = Verdict.DEPARTS if errors.departs else Verdict.WITHIN
        output = f"output {position} {dtype}{list(left.shape)}"
        yield NodeResult(call, None, (), (), "", output, verdict, errors, errors.problem or "")


def _as_torch(value: Any, spec: ValueSpec, torch: Any) -> Any:
    if spec.dtype is None:
        return value
    array = np.array(value, spec.dtype.numpy)
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if spec.dtype is DType.BF16 else tensor
