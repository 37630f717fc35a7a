"""A program and expected outputs, those of its test cases or of a torch.export program -> what differs; the
results as lines."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.extras import need
from pteron.format.bundled import BundledTensor, BundledValue
from pteron.format.source import open_file
from pteron.runtime import Program, ValueSpec
from pteron.tools.accuracy import Errors, Rounding, Tolerances, measure
from pteron.tools.inputs import as_float, fill_inputs
from pteron.tools.text import Line, Style, columns, counted
from pteron.tools.workload import Selection, method_name


@dataclass(frozen=True, slots=True)
class CaseReport:
    """A test case: the largest difference of its outputs, and the problem if it failed."""

    method: str
    case: int
    largest_difference: float
    problem: str | None


def check_bundle(program: Program, method: str | None = None) -> tuple[CaseReport, ...]:
    """Run each test case of a bundled program on fresh state and compare the outputs."""
    if program.bundle is None:
        raise InputError(f"{program.file.name} has no test cases: it is not a bundled program (.bpte)")
    suites = [suite for suite in program.bundle.suites if method in (None, suite.method)]
    if not any(suite.cases for suite in suites):
        raise InputError(f"{program.file.name} has no test cases{f' for {method!r}' if method else ''}")
    found = []
    for suite in suites:
        run = program[method_name(program, suite.method)]
        for index, case in enumerate(suite.cases):
            run.reset()
            outputs = run(*map(_plain, case.inputs))
            kinds = [value.dtype if isinstance(value, BundledTensor) else None for value in case.outputs]
            wanted = list(map(_plain, case.outputs))
            found.append(_compared(run.name, index, wanted, outputs, kinds))
    return tuple(found)


def check_exported(program: Program, path: str, selection: Selection) -> tuple[CaseReport, ...]:
    """Compare the outputs of one call with those of the torch.export program that it was lowered from."""
    torch = need("torch", "an exported program", "host")
    try:
        open_file(Path(path)).close()  # PyTorch's own message for a missing file fills a page
        if not zipfile.is_zipfile(path):
            raise ValueError("not a zip archive")
        module = torch.export.load(path).module()
    except Exception as error:  # PyTorch raises many types for bad files and unknown operators
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: PyTorch cannot load it as an exported program: {reason}") from error
    method = program[method_name(program, selection.method)]
    inputs = fill_inputs(method.inputs, selection.inputs, selection.sizes, selection.seed)
    arguments = [
        _as_torch(given.value, spec, torch) for given, spec in zip(inputs, method.inputs, strict=True)
    ]
    try:
        with torch.no_grad():
            results = module(*arguments)
    except Exception as error:  # includes the program's own checks of its inputs
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path} does not take the inputs of {method.name}: {reason}") from error
    wanted = [_of_torch(leaf, torch) for leaf in torch.utils._pytree.tree_leaves(results)]
    outputs = method(*(given.value for given in inputs))
    return (_compared(method.name, 0, wanted, outputs, [spec.dtype for spec in method.outputs]),)


def difference(expected: Any, actual: Any, dtype: DType | None = None) -> Errors:
    """Compare outputs of a program; `dtype` is the element type where NumPy has none (bf16)."""
    kind = dtype or DType.of(np.asarray(expected).dtype) or DType.F64
    wanted, found = (as_float(np.asarray(each), kind) for each in (expected, actual))
    return measure(found, wanted, kind, Tolerances().bound(Rounding.PROGRAM, kind))


def check_lines(program: str, device: str, cases: Sequence[CaseReport]) -> Iterator[str]:
    """One line per test case, then how many passed."""
    yield Line(f"{program} on {device}", "title")
    rows = []
    for case in cases:
        passed_by = f"ok, largest difference {case.largest_difference:.2g}"
        rows.append([f"{case.method} {case.case}", Line(case.problem, "bad") if case.problem else passed_by])
    yield from columns(rows, indent=2)
    passed = sum(case.problem is None for case in cases)
    style: Style = "good" if passed == len(cases) else "bad"
    yield Line(f"{passed} of {counted(len(cases), 'test case')} passed", style)


def _compared(
    method: str, case: int, wanted: Sequence[Any], found: Sequence[Any], dtypes: Sequence[DType | None]
) -> CaseReport:
    if len(found) != len(wanted):
        return CaseReport(method, case, np.inf, f"{len(found)} outputs instead of {len(wanted)}")
    errors = list(map(difference, wanted, found, dtypes))
    problems = [f"output {index}: {each.problem}" for index, each in enumerate(errors) if each.departs]
    return CaseReport(
        method, case, max((each.max_abs for each in errors), default=0.0), "; ".join(problems) or None
    )


def _plain(value: BundledValue) -> Any:
    """A value of a test case as a method takes it."""
    return value.array if isinstance(value, BundledTensor) else value


def _as_torch(value: Any, spec: ValueSpec, torch: Any) -> Any:
    if spec.dtype is None:
        return value
    tensor = torch.from_numpy(np.array(value, spec.dtype.numpy))
    return tensor.view(torch.bfloat16) if spec.dtype is DType.BF16 else tensor


def _of_torch(value: Any, torch: Any) -> Any:
    """A result as methods return it: bf16 as its bits."""
    if getattr(value, "dtype", None) == torch.bfloat16:
        return value.detach().view(torch.int16).numpy().view(np.uint16)
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value
