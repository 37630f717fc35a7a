"""How far two tensors are apart, and how far they may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pteron.dtypes import DType
from pteron.errors import FormatError, InputError
from pteron.tools.accuracy import Bound, Errors, Rounding, held_type, measure, rounding_of, rounding_of_all
from pteron.tools.compare import Tolerances, replay
from pteron.tools.compare.comparison import Reference
from pteron.tools.compare.report import Comparison, NodeResult, Verdict, compare_lines

EXACT = Bound(0.0, 0.0)
DOCS = Path(__file__).parents[2] / "docs" / "compare.md"


def test_the_measures() -> None:
    wanted = np.array([3.0, -4.0, 0.0])
    found = np.array([3.0, -4.5, 0.25], np.float32)
    errors = measure(found, wanted, DType.F32, Bound(0.1, 0.0))
    assert errors.max_abs == 0.5
    assert errors.mean_abs == 0.25
    assert errors.relative == 0.125
    assert errors.cosine == pytest.approx(27 / (5 * math.sqrt(9 + 4.5**2 + 0.0625)))
    assert errors.of_tolerance == math.inf  # nothing is allowed beside a zero
    assert errors.problem == "2 of 3 values exceed the tolerance, the worst at [2]: 0.25 instead of 0"
    near = measure(np.array([1 + 2**-23, 2.0], np.float32), np.array([1.0, 2.0]), DType.F32, EXACT)
    assert near.ulp == 1.0
    half = measure(np.array([1 + 2**-9], np.float16), np.array([1.0]), DType.F16, EXACT)
    assert half.ulp == 2.0
    brain = measure(np.array([1 + 2**-6], np.float32), np.array([1.0]), DType.BF16, EXACT)
    assert brain.ulp == 2.0


def test_numbers_that_are_none() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert not measure(special.astype(np.float32), special, DType.F32, EXACT).departs
    for wrong in ([0, np.inf, -np.inf, 1], [np.nan, -np.inf, -np.inf, 1], [np.nan, np.inf, -np.inf, np.nan]):
        errors = measure(np.array(wrong, np.float32), special, DType.F32, Bound(1e6, 1e6))
        assert errors.departs
        assert errors.max_abs == math.inf
    huge = measure(np.array([3e38], np.float32), np.array([1e300]), DType.F32, Bound(0.1, 0))
    assert huge.departs
    assert huge.cosine == pytest.approx(1.0)


def test_shapes_and_nothing() -> None:
    assert measure(np.zeros((2, 3)), np.zeros((3, 2)), DType.F32, EXACT).problem == (
        "shape [2, 3] instead of [3, 2]"
    )
    assert not measure(np.zeros((0, 3)), np.zeros((0, 3)), DType.F32, EXACT).departs
    assert measure(np.zeros(3), np.zeros(3), DType.F32, EXACT).cosine == 1.0
    assert measure(np.ones(3), np.zeros(3), DType.F32, EXACT).cosine == 0.0


def test_what_is_allowed() -> None:
    default = Tolerances()
    assert default.bound(Rounding.MOVED, DType.F32) == EXACT
    assert default.bound(Rounding.SUMS, DType.I32) == EXACT
    assert default.bound(Rounding.STEPS, DType.I8).steps == 1.0
    assert default.bound(Rounding.STEPS, DType.BOOL).steps == 0.0
    assert default.bound(Rounding.SUMS, DType.F16).relative > default.bound(Rounding.SUMS, DType.F32).relative
    chosen = Tolerances.of(["1e-2", "sums=0.5"])
    assert chosen.bound(Rounding.ELEMENTS, DType.F32).relative == 1e-2
    assert chosen.bound(Rounding.SUMS, DType.F16).relative == 0.5
    assert chosen.bound(Rounding.MOVED, DType.F32) == EXACT
    assert Tolerances.of(["moved=1e-3"]).bound(Rounding.MOVED, DType.F32) == Bound(1e-3, 1.0)
    assert Tolerances.of(["sums=1", "2e-3"]).bound(Rounding.SUMS, DType.F32).relative == 2e-3  # the last
    for rounding in Rounding:
        assert default.bound(rounding, DType.F64) == default.bound(rounding, DType.F32)
    assert default.bound(Rounding.SUMS, DType.F16).steps == 2**-24  # below what a half float can be normal
    assert default.bound(Rounding.SUMS, DType.F32).steps == 0.0
    for wrong in ("", "x", "sums=", "sums=x", "-1", "nan", "inf", "other=1"):
        with pytest.raises(InputError, match="expected a number such as 1e-3, or one of moved=1e-3"):
            Tolerances.of([wrong])


def test_tolerances_are_those_of_the_docs() -> None:
    section = DOCS.read_text("utf-8").partition("\n## Tolerances\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    stated = {row[0].strip(" `"): [float(each) for each in row[2:]] for row in rows if "moved" not in row[0]}
    assert set(stated) == {rounding.value for rounding in Rounding} - {"moved"}
    for name, (share, *relative) in stated.items():
        bounds = [Tolerances().bound(Rounding(name), dtype) for dtype in (DType.F32, DType.F16, DType.BF16)]
        assert [(bound.relative, bound.share) for bound in bounds] == [(each, share) for each in relative]


def test_what_operators_do() -> None:
    assert rounding_of("aten.view_copy.default") is Rounding.MOVED
    assert rounding_of("update_cache.default") is Rounding.MOVED
    assert rounding_of("aten.add.Tensor") is Rounding.ELEMENTS
    assert rounding_of("et_vk.linear_q4gsw.default") is Rounding.SUMS
    assert rounding_of("quantized_decomposed.quantize_per_token.default") is Rounding.STEPS
    assert rounding_of("quantized_decomposed.dequantize_per_token.default") is Rounding.SUMS
    assert rounding_of("et_vk.linear_dq8ca_q4gsw.default") is Rounding.STEPS
    assert rounding_of_all(["aten.view_copy.default", "aten.mul.Tensor"]) is Rounding.ELEMENTS
    assert rounding_of_all(["aten.mul.Tensor", "aten.mul.Tensor"]) is Rounding.SUMS
    assert rounding_of_all(["aten.linear.default", "et_vk.q8ta_add.default"]) is Rounding.STEPS


def test_references_by_name() -> None:
    assert Reference.of("float64") == Reference("float64")
    assert Reference.of("adapter=a=b") == Reference("adapter", "a=b")
    for wrong in ("", "adapter", "adapter=", "float64=1", "route=slow", "expected=x", "other"):
        with pytest.raises(InputError, match="expected one of float64, adapter=NAME"):
            Reference.of(wrong)


def test_nodes_in_a_table() -> None:
    def where(*nodes: int) -> str:
        return NodeResult("", 0, nodes, (), "", "", Verdict.WITHIN).where

    assert where(7) == "7"
    assert where(3, 4, 5) == "3-5"
    assert where(6, 7, 15, 17, 18) == "6-7+15+17-18"
    assert where() == ""


def test_folders_that_are_no_departure(tmp_path: Path) -> None:
    for content in ("", "{}", '{"form": 2}', "[]"):
        (tmp_path / "node.json").write_text(content)
        with pytest.raises(FormatError, match="not a folder of `pteron compare --save`"):
            replay(tmp_path)


def test_half_floats_are_judged_by_what_holds_them() -> None:
    """In 32 bits on both sides as floats of 32 bits; where one of them is a half float, as such."""
    half, single, double = (np.zeros(2, kind) for kind in (np.float16, np.float32, np.float64))
    assert held_type(DType.F16, single, double) is DType.F32
    assert held_type(DType.F16, half, double) is held_type(DType.F16, single, half) is DType.F16
    assert held_type(DType.F32, single, double) is DType.F32


def result(node: int, verdict: Verdict, of_tolerance: float = 0.0, **more: Any) -> NodeResult:
    errors = Errors(0.5, 0.25, 0.125, 1.0, 2.0, of_tolerance) if of_tolerance else None
    return NodeResult("", 0, (node,), (f"op{node}",), "", "%1 f32[1]", verdict, errors, **more)


def comparison(*rows: NodeResult, **more: Any) -> Comparison:
    counts: dict[str, Any] = {"checked": 3, "idle": 0, "unchecked": {}, "host_operators": {}}
    rest = {"culprit": None, "saved": None, "seconds": 2.5}
    return Comparison("m.pte", "forward", "a GPU", "float64", rows, nodes=9, **counts | rest | more)


def test_what_a_comparison_says() -> None:
    """The worst rows first: departures, rows without a reference, the others by their error."""
    within = [result(node, Verdict.WITHIN, node / 10) for node in (1, 3, 2)]
    rows = [*within, result(4, Verdict.IDLE), result(5, Verdict.UNCHECKED, reason="no reference")]
    wrong = replace(result(6, Verdict.DEPARTS, 10.0, reason="far off"), nodes=(6, 7), delegate=1)
    whys = {f"node {node} x": "none" for node in range(5)}
    report = comparison(
        *rows, wrong, unchecked=whys, idle=1, culprit="node 2", saved="there", host_operators={"aten::erf": 2}
    )
    lines = list(compare_lines(report))
    assert lines[2:7] == [
        "first departure: delegate 1, nodes 6-7, op6, %1 f32[1]",
        "  far off",
        "  the largest difference is 0.5, 0.12 of the largest expected value",
        "  from node 2",
        "  saved to there: replay.py there runs it again",
    ]

    def order(lines: Sequence[str]) -> list[str]:
        return [name for line in lines[8:] for name in line.split() if name.startswith("op")][1:]

    assert order(lines) == ["op6", "op5", "op3", "op2", "op1"]
    assert order(list(compare_lines(report, in_order=True))) == ["op1", "op3", "op2", "op5", "op6"]
    few = list(compare_lines(report, rows=2))
    assert order(few) == ["op6", "op5"]
    assert "  … and 3 rows more (use --all)" in few
    assert not any("use --all" in line for line in lines)
    assert [line.split()[-2:] for line in lines if "op6" in line or "op3" in line][1:] == [
        ["10x", "departs"],
        ["2.0", "30.0%"],
    ]
    assert lines[-6:] == [
        "3 of 9 nodes checked, 1 departure; 1 ran no kernel (constants, live integers); 5 nodes not checked; "
        "2.50 s",
        *(f"  not checked: node {node} x: none" for node in range(3)),
        "  not checked: 2 nodes more (--json lists all)",
        "  not checked, on the host: 2x aten::erf",
    ]


def test_when_a_comparison_is_right() -> None:
    """If something was compared, or there is nothing."""
    within, unchecked = result(1, Verdict.WITHIN), result(2, Verdict.UNCHECKED)
    wrong = result(3, Verdict.DEPARTS)
    verdicts = [(within, unchecked), (unchecked,), (within, wrong), ()]
    assert [comparison(*rows).is_right for rows in verdicts] == [True, False, False, True]
    assert comparison(within, wrong, replace(wrong, nodes=(4,))).first == wrong
