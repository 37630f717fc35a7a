"""Two programs of one module: `inspect --diff` and `compare --reference program=` name the node at fault."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pteron
from pteron.cli import main
from pteron.dtypes import DType
from pteron.format.delegate_writer import write_delegate
from pteron.format.program_writer import StreamedData, write_program
from pteron.format.records import (
    ConstantRecord,
    DelegateCall,
    DelegateGraph,
    DelegateRecord,
    MethodRecord,
    NodeRecord,
    TensorRecord,
    VkTensor,
    VkValueList,
)
from pteron.tools.compare import Prompt
from pteron.tools.inspect.difference import difference
from pteron.tools.local_adapter import find_adapter

_RANDOM = np.random.default_rng(0)
_SCALE, _BIAS, _WEIGHT = (_RANDOM.standard_normal(shape).astype(np.float32) for shape in ((8,), (8,), (8, 8)))


def write(
    path: Path,
    *,
    eps: float = 1e-5,
    weight: npt.NDArray[Any] = _WEIGHT,
    order: tuple[int, int] = (4, 1),
    last: str = "aten.sub.Tensor",
    with_clone: bool = False,
    call: tuple[int, int] = (0, 1),
) -> Path:
    """linear(layer_norm(x)) - y, as exporters write it; `order` are the values that `last` takes, `call` the
    method's values that the delegate takes."""
    rows = partial(VkTensor, DType.F32, constant_id=None, memory_id=None)
    constants = {"norm.weight": _SCALE, "norm.bias": _BIAS, "linear.weight": weight}
    held = [VkTensor(DType.F32, array.shape, index, None) for index, array in enumerate(constants.values())]
    values = (
        *(rows((5, 8)) for _ in range(5)),  # 0: x, 1: y, 2: a clone of x, 3: normalized, 4: the product
        *(rows((5, 8)), rows((5, 1)), rows((5, 1)), VkValueList((3, 6, 7))),
        *(*held, (8,), eps, None, 1),  # from 9 on
    )
    x = 2 if with_clone else 0
    nodes: list[tuple[str, tuple[int, ...]]] = [
        ("aten.clone.default", (0, 14, 2)),
        ("aten.native_layer_norm.default", (x, 12, 9, 10, 13, 8)),
        ("aten.linear.default", (3, 11, 14, 4)),
        (last, (*order, 15, 5)),
    ]
    graph = DelegateGraph(
        name="forward",
        nodes=tuple(NodeRecord(*node) for node in nodes[not with_clone :]),
        values=values,
        input_ids=(0, 1),
        output_ids=(5,),
        constants=tuple(ConstantRecord(key, array.nbytes, None) for key, array in constants.items()),
    )
    port = TensorRecord(DType.F32, (5, 8), (0, 1), "static", None, False, False, None, False)
    delegate = DelegateRecord("VulkanBackend", memoryview(write_delegate(graph)))
    calls = (DelegateCall(0, (*call, 2)),)
    method = MethodRecord("forward", (port,) * 3, (0, 1), (2,), calls, (), (delegate,))
    data = {key: StreamedData(each.nbytes, partial(list, [each])) for key, each in constants.items()}
    with path.open("wb") as file:
        write_program(file, [method], data)
    return path


NORM, LINEAR, SUB = "aten.native_layer_norm.default", "aten.linear.default", "aten.sub.Tensor"
ONE_OFF = np.where(np.arange(64).reshape(8, 8) == 21, _WEIGHT + np.float32(0.25), _WEIGHT)
HELD = "weight: constant linear.weight f32[8, 8] → constant linear.weight f32[8, 8]"
# The fault, the node (one later if a node was inserted), its operator, what differs in it.
FAULTS: dict[str, tuple[dict[str, Any], int, str, list[str]]] = {
    "epsilon": ({"eps": 1e-3}, 0, NORM, ["eps: 1e-05 → 0.001"]),
    "a transposed weight": ({"weight": _WEIGHT.T.copy()}, 1, LINEAR, [f"{HELD}, transposed"]),
    "one element": (
        {"weight": ONE_OFF},
        1,
        LINEAR,
        [f"{HELD}, 1 of 64 elements differ, the most by 0.25 at [2, 5]"],
    ),
    "swapped inputs": (
        {"order": (1, 4)},
        2,
        SUB,
        [f"self: node 1 {LINEAR} → input 1", f"other: input 1 → node {{}} {LINEAR}"],
    ),
    "another operator": ({"last": "aten.add.Tensor"}, 2, "aten.add.Tensor", []),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("inserted", [0, 1])
def test_one_command_names_the_node(
    name: str, inserted: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault, index, operator, arguments = FAULTS[name]
    node = f"node {index + inserted} {operator}"
    arguments = [each.format(1 + inserted) for each in arguments]
    good, bad = write(tmp_path / "good.pte"), write(tmp_path / "bad.pte", with_clone=bool(inserted), **fault)
    assert main(["compare", str(bad), "--reference", f"program={good}"]) == 1
    text = capsys.readouterr().out
    culprit = next(line for line in text.splitlines() if line.startswith("  from "))
    assert culprit.startswith(f"  from {node}: ")
    assert culprit.endswith(", ".join(arguments) or f"node 2 {SUB} there")
    assert "the largest difference is " in text
    assert main(["inspect", str(good), "--diff", str(bad)]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.endswith(node) and "only" not in line)
    assert {f"    {each}" for each in arguments} <= {*lines[at + 1 :]}
    assert (f"  node 0 aten.clone.default, only in {bad.name}" in lines) == bool(inserted)


def test_programs_that_do_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An inserted copy is named, and has no reference; nothing departs."""
    good, longer = write(tmp_path / "good.pte"), write(tmp_path / "longer.pte", with_clone=True)
    report = pteron.compare(longer, reference=f"program={good}")
    assert report.is_right
    assert (report.nodes, report.checked) == (4, 3)
    assert dict(report.unchecked) == {"node 0 aten.clone.default": "good.pte has no such node"}
    assert pteron.compare(good, reference=f"program={longer}").checked == 3
    assert main(["inspect", str(good), "--diff", str(good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == []


def test_the_order_of_a_methods_inputs(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.pte"), write(tmp_path / "bad.pte", call=(1, 0))
    report = difference(good, bad, find_adapter().planning_target)
    (change,) = report.nodes
    assert change.before == "node 0 delegate 0"
    assert [str(each) for each in change.arguments] == [
        "argument 0: input 0 → input 1",
        "argument 1: input 1 → input 0",
    ]
    assert "input 0 → input 1" in report._repr_html_()
    first = pteron.compare(bad, reference=f"program={good}").first
    assert first is not None
    assert first.operators == (NORM,)


@pytest.mark.long
def test_language_models(models: Path) -> None:
    """Each call is compared with the same call of the reference."""
    path = models / "tiny_llama_q4_static.pte"
    report = pteron.compare(path, Prompt([5, 17]), reference=f"program={path}")
    assert report.is_right
    assert report.checked + report.idle == report.nodes
    assert {row.call for row in report.rows} == {"prefill", "prefill at 1"}
    assert all(row.errors is None or row.errors.max_abs == 0 for row in report.rows)
