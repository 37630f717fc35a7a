"""Structures and dims of compiled modules, without lowering: JSON, names, expressions, stored metadata."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import replace
from typing import Any

import pytest

from pteron.dtypes import DType
from pteron.errors import FormatError, InputError
from pteron.export.dims import evaluate
from pteron.export.signature import Signature
from pteron.export.trees import from_json, leaf_names, to_json
from pteron.format.program import _with_ports
from pteron.format.records import MethodRecord, TensorRecord

torch = pytest.importorskip("torch")

Point = namedtuple("Point", ["x", "y"])


def structure(value: object) -> Any:
    from torch.utils._pytree import tree_structure

    return tree_structure(value)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (1, ["out"]),
        ((1, [2, 3]), ["out_0", "out_1_0", "out_1_1"]),
        ({"a": 1, "b": (2,)}, ["a", "b_0"]),
        (OrderedDict(a=Point(1, {})), ["a_x"]),
        (Point(1, 2), ["x", "y"]),
        (defaultdict(int, a=1), ["a"]),
        (torch.return_types.topk((1, 2)), ["values", "indices"]),
    ],
)
def test_json_and_names(value: Any, names: list[str]) -> None:
    spec = structure(value)
    assert from_json(to_json(spec), is_input=True) == spec
    assert leaf_names(spec, "out") == names


def test_classes_that_are_not_imported() -> None:
    tree = {**to_json(structure(Point(1, 2))), "class": "unknown_package.Point"}
    with pytest.raises(InputError, match=r"an input is a unknown_package\.Point: import its module"):
        from_json(tree, is_input=True)
    made = from_json(tree, is_input=False).unflatten([3, 4])
    assert (made.x, made.y) == (3, 4)
    for name in ("os.system", "builtins.str", "torch.return_types.all_return_types", "torch.nn.Linear"):
        with pytest.raises(InputError, match="import its module"):
            from_json({**tree, "class": name}, is_input=True)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("n", 3),
        ("2*n + m - 1", 10),
        ("(n//2)", 1),
        ("-n", -3),
        ("n//0", None),
        ("k", None),
        ("n**9", None),
        ("f(n)", None),
        ("(" * 300, None),
        ("'n'", None),
    ],
)
def test_expressions(expression: str, value: int | None) -> None:
    assert evaluate(expression, {"n": 3, "m": 5}) == value


INPUTS: list[dict[str, Any]] = [
    {"name": "x", "dtype": "float32", "dims": ["n", 3], "min": [2, 3]},
    {"name": "mode", "value": "sum"},
]
TREES = {"in_tree": to_json(structure(((0, 0), {}))), "out_tree": None}
METADATA: dict[str, Any] = {
    "states": [], "written": [], "arguments": ["x", "mode"], "inputs": INPUTS,
    "outputs": [{"name": "output", "dtype": "float32", "dims": ["n"], "min": [2]}],
    "dims": {"n": [2, 8]}, **TREES,
}  # fmt: skip


def method() -> MethodRecord:
    tensor = TensorRecord(DType.F32, (8, 3), (0, 1), "bound", None, False, False, None, False)
    output = replace(tensor, sizes=(8,), dim_order=(0,))
    return MethodRecord("forward", (tensor, "sum", output), (0, 1), (2,), (), (), ())


def test_stored_signature() -> None:
    signature = Signature.from_metadata(METADATA)
    assert {**METADATA, **signature.metadata()} == METADATA
    assert signature.flatten((torch.zeros(2, 3),), {"mode": "sum"})[1] == "sum"
    ports = _with_ports("file", method(), METADATA).input_ports
    assert [(port.name, port.shape_min) for port in ports] == [("x", (2, 3)), ("mode", None)]
    with pytest.raises(InputError, match=r"pteron\.compile did not write this program; use pteron\.load"):
        Signature.from_metadata({})


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": INPUTS[:1]},
        {"inputs": [{**INPUTS[0], "min": [9, 3]}, INPUTS[1]]},
        {"inputs": [{**INPUTS[0], "min": [2]}, INPUTS[1]]},
        {"inputs": [{**INPUTS[0], "min": "x"}, INPUTS[1]]},
        {"inputs": [{}, {}]},
        {"inputs": 3},
        {"written": [7]},
        {"outputs": None},
    ],
)
def test_invalid_ports(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=r"^file: .*pteron\.json"):
        _with_ports("file", method(), {**METADATA, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"dims": {"n": 3}},
        {"inputs": [{**INPUTS[0], "dtype": "nn"}]},
        {"in_tree": {"class": "tuple"}},
        {"out_tree": {"class": "tuple", "context": None, "keys": [], "children": 3}},
        {"arguments": None},
    ],
)
def test_invalid_signatures(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="the stored signature is invalid"):
        Signature.from_metadata({**METADATA, **change})
