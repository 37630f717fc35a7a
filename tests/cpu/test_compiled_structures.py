"""Structures and dims of compiled modules, without lowering: JSON, names, expressions, stored metadata."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import replace
from typing import Any

import pytest

from pteron.dtypes import DType
from pteron.errors import DtypeError, FormatError, InputError, ShapeError
from pteron.export.dims import evaluate
from pteron.export.signature import Signature
from pteron.export.trees import difference, from_json, leaf_names, to_json
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
    stepped = {**METADATA, "inputs": [{**INPUTS[0], "dims": ["16*n - 1", "n//2"]}, INPUTS[1]]}
    (port, _) = _with_ports("file", method(), stepped).input_ports
    assert (port.shape_step, port.symbols) == ((16, 1), ("n", "n//2"))
    with pytest.raises(InputError, match=r"pteron\.compile did not write this program; use pteron\.load"):
        Signature.from_metadata({})


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": INPUTS[:1]},
        {"inputs": [{**INPUTS[0], "min": [9, 3]}, INPUTS[1]]},
        {"inputs": [{**INPUTS[0], "min": [2]}, INPUTS[1]]},
        {"inputs": [{**INPUTS[0], "dims": [2]}, INPUTS[1]]},
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


# Calls ------------------------------------------------------------------------------------------


def signature() -> Signature:
    """forward(x, *, y, z, scale): x [rows, 3], y [2 rows, columns], z [rows], and a number."""
    tensors = [("x", ["rows", 3], [2, 3]), ("y", ["2*rows", "columns"], [4, 1]), ("z", ["rows"], [2])]
    inputs = [{"name": name, "dtype": "float32", "dims": dims, "min": least} for name, dims, least in tensors]
    return Signature.from_metadata(
        {
            "arguments": ["x", "y", "z", "scale"],
            "inputs": [*inputs, {"name": "scale", "value": 2}],
            "outputs": [
                {"name": "flag", "value": True},
                {"name": "sum", "dtype": "float32", "dims": [], "min": []},
            ],
            "dims": {"rows": [2, 8], "2*rows": [4, 16], "columns": [1, 5]},
            "in_tree": to_json(structure(((0,), {"y": 0, "z": 0, "scale": 0}))),
            "out_tree": to_json(structure({"flag": 0, "sum": 0})),
        }
    )


def call(x: Any = None, **changed: Any) -> list[Any]:
    """The checked leaves of a call, some of whose arguments are others."""
    given = {"y": torch.zeros(6, 2), "z": torch.zeros(3), "scale": 2} | changed
    made = signature()
    return made.check(made.flatten((torch.zeros(3, 3) if x is None else x,), given))


def test_arguments_are_bound_as_in_python() -> None:
    x, y, z = torch.zeros(3, 3), torch.zeros(6, 2), torch.zeros(3)
    made = signature()
    assert all(
        found is given
        for found, given in zip(made.flatten((x,), {"scale": 2, "z": z, "y": y}), (x, y, z, 2), strict=True)
    )
    assert made.flatten((), {"scale": 2, "z": z, "y": y, "x": x})[0] is x
    for args, kwargs, says in (
        ((x, y), {"z": z, "scale": 2}, r"expected 1 positional arguments \(x\), got 2"),
        ((x,), {"x": x, "y": y, "z": z, "scale": 2}, "x is given by position and by name"),
        ((x,), {"y": y, "scale": 2}, "missing: z"),
        ((x,), {"y": y, "z": z, "scale": 2, "other": 1}, "not in the example: other"),
        (([x],), {"y": y, "z": z, "scale": 2}, "the call differs from the example"),
    ):
        with pytest.raises(InputError, match=says):
            made.flatten(args, kwargs)
    assert made.unflatten([None, 5]) == {"flag": True, "sum": 5}


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"x": torch.zeros(9, 3)}, ShapeError, r"x: dim 0 \(rows\) of \[9, 3\] must be from 2 to 8"),
        ({"x": torch.zeros(1, 3)}, ShapeError, r"x: dim 0 \(rows\) of \[1, 3\] must be from 2 to 8"),
        ({"x": torch.zeros(3, 4)}, ShapeError, r"x: dim 1 of \[3, 4\] must be 3"),
        ({"x": torch.zeros(3)}, ShapeError, r"x: expected \[rows, 3\], got \[3\]"),
        ({"y": torch.zeros(5, 2)}, ShapeError, r"y: dim 0 of \[5, 2\] must be 2\*rows = 6"),
        ({"y": torch.zeros(6, 6)}, ShapeError, r"y: dim 1 \(columns\) of \[6, 6\] must be from 1 to 5"),
        ({"z": torch.zeros(4)}, ShapeError, r"z: dim 0 \(rows\) of \[4\] must be 3, as dim 0 of x"),
        ({"z": torch.zeros(3).double()}, DtypeError, "z: expected torch.float32, got torch.float64"),
        ({"z": [0.0] * 3}, InputError, "the call differs from the example"),
        ({"z": 3}, InputError, "z: expected a tensor, got int"),
        ({"z": torch.zeros(3, requires_grad=True)}, InputError, "z requires grad"),
        ({"z": torch.zeros(3, device="meta")}, InputError, "z: expected a CPU tensor, got one on meta"),
        ({"scale": 2.0}, InputError, "scale: the module was compiled for 2, got 2.0"),
        ({"scale": 3}, InputError, "scale: the module was compiled for 2, got 3"),
    ],
)
def test_calls_are_checked(changed: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(**changed)


def test_calls_that_are_right() -> None:
    assert call()[3] == 2
    (x, *_) = call(torch.zeros(3, 3).numpy(), scale=torch.tensor(2))
    assert (x.dtype, tuple(x.shape)) == (torch.float32, (3, 3))
    with torch.no_grad():
        call(z=torch.zeros(3, requires_grad=True))
    made = signature()
    for rows in (2, 8, 2):  # sizes that were checked before are not taken for others
        leaves = [torch.zeros(rows, 3), torch.zeros(2 * rows, 5), torch.zeros(rows), 2]
        assert made.fits(leaves)
        assert not made.fits([leaves[0][:1], *leaves[1:]])


def test_a_class_of_the_same_name_is_another() -> None:
    from torch.utils._pytree import tree_structure

    classes: list[Any] = [namedtuple("Point", "x y") for _ in range(2)]
    one, other = classes
    given = tree_structure([one(1, 2)])
    assert difference(given, tree_structure([one(3, 4)]), "points") is None
    assert difference(given, tree_structure([other(1, 2)]), "points") == "points[0]: another Point"
