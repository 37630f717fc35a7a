"""Programs that contradict themselves are refused when they are loaded, by an error that names the place."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pteron
from pteron import DType, GraphError, UnsupportedError
from pteron.extras import why_refused
from pteron.families.exporter_removed import REMOVED_BY_EXPORTER
from pteron.format.records import (
    ConstantRecord,
    DelegateCall,
    DelegateGraph,
    EValue,
    Instruction,
    KernelCall,
    MethodRecord,
    MoveCall,
    NodeRecord,
    TensorRecord,
    VkSymInt,
    VkTensor,
    VkValue,
    VkValueList,
)
from pteron.graph import Graph, build
from pteron.host.lookup import find_operator
from pteron.passes import is_available, prepare
from pteron.runtime.checks import check_method, with_bounds_of_delegates

# Delegates --------------------------------------------------------------------------------------


def tensor(*dims: int, dtype: DType = DType.F32, constant: int | None = None) -> VkTensor:
    return VkTensor(dtype, dims, constant, None)


X = tensor(2, 3)


def delegate(
    values: Sequence[VkValue],
    nodes: Sequence[tuple[str, Sequence[int]]],
    inputs: Sequence[int] = (0,),
    outputs: Sequence[int] = (1,),
    constants: Sequence[ConstantRecord] = (),
) -> DelegateGraph:
    return DelegateGraph(
        name="written.pte, forward, delegate 0",
        nodes=tuple(NodeRecord(name, tuple(args)) for name, args in nodes),
        values=tuple(values),
        input_ids=tuple(inputs),
        output_ids=tuple(outputs),
        constants=tuple(constants),
    )


def stored(count: int, key: str | None = None) -> ConstantRecord:
    return ConstantRecord(key, 4 * count, memoryview(bytes(4 * count)))


def integers(*values: int) -> ConstantRecord:
    """A constant of these i64 elements."""
    data = struct.pack(f"<{len(values)}q", *values)
    return ConstantRecord(None, len(data), memoryview(data))


def product(other: VkValue, *constants: ConstantRecord) -> DelegateGraph:
    """x times another value."""
    return delegate([X, tensor(2, 3), other], [("aten.mul.Tensor", (0, 2, 1))], constants=constants)


def load(record: DelegateGraph) -> Graph:
    """What loading does with a delegate, up to the device."""
    graph = build(record)
    prepare(graph)
    return graph


RELU = "aten.relu.default"
PREPACK = "et_vk.prepack.default"

WRONG: dict[str, tuple[DelegateGraph, list[str]]] = {
    "a constant without data": (
        product(tensor(2, 3, constant=0), ConstantRecord("layer.weight", 24, None)),
        ["node 0 aten.mul.Tensor", "%2", "'layer.weight'", "data=[...]"],
    ),
    "a constant too small for its dims": (
        product(tensor(2, 3, constant=0), stored(5)),
        ["node 0 aten.mul.Tensor", "%2:f32[2, 3]", "needs 24 bytes", "has 20"],
    ),
    "prepack of unequal shapes": (
        delegate([X, tensor(3, 2), tensor(2, 3, constant=0)], [(PREPACK, (2, 1))], constants=[stored(6)]),
        ["node 0 et_vk.prepack.default", "%2:f32[2, 3]", "%1:f32[3, 2]"],
    ),
    "prepack of what is no constant": (
        delegate([X, tensor(2, 3)], [(PREPACK, (0, 1))]),
        ["node 0 et_vk.prepack.default", "%0", "not a constant"],
    ),
    "a number for a tensor": (
        product(7),
        ["node 0 aten.mul.Tensor", "other: a tensor", "int"],
    ),
    "a tensor for a number": (
        delegate([X, tensor(2, 3)], [("aten.unsqueeze_copy.default", (0, 0, 1))]),
        ["node 0 aten.unsqueeze_copy.default", "dim: an integer", "Tensor"],
    ),
    "None for a tensor": (
        product(None),
        ["node 0 aten.mul.Tensor", "other: a tensor", "NoneType"],
    ),
    "a number for an output": (
        delegate([X, tensor(2, 3), 7], [(RELU, (0, 2))]),
        ["node 0 aten.relu.default", "outputs", "7"],
    ),
    "too few arguments": (
        delegate([X, tensor(2, 3)], [(RELU, (0, 1)), ("aten.mul.Tensor", (0, 1))]),
        ["node 1 aten.mul.Tensor", "expected 3 arguments, found 2"],
    ),
    "too many arguments": (
        delegate([X, tensor(2, 3)], [(RELU, (0, 0, 1))]),
        ["node 0 aten.relu.default", "expected 2 arguments, found 3"],
    ),
    "too few outputs": (
        delegate(
            [X, tensor(2, 3), (3,), None, 1e-5, VkValueList((1,))],
            [("aten.native_layer_norm.default", (0, 2, 3, 3, 4, 5))],
        ),
        ["node 0 aten.native_layer_norm.default", "outputs"],
    ),
    "a tensor read before it is written": (
        delegate([X, tensor(2, 3), tensor(2, 3)], [("aten.mul.Tensor", (0, 2, 1)), (RELU, (0, 2))]),
        ["node 0 aten.mul.Tensor", "reads %2:f32[2, 3]", "before"],
    ),
    "an output that nothing writes": (
        delegate([X, tensor(2, 3), tensor(2, 3)], [(RELU, (0, 1))], outputs=(1, 2)),
        ["nothing computes the output %2:f32[2, 3]"],
    ),
    "a SymInt output that nothing computes": (
        delegate([X, tensor(2, 3), VkSymInt(1)], [(RELU, (0, 1))], outputs=(1, 2)),
        ["output", "%2:SymInt"],
    ),
    "a list that contains itself": (
        delegate([X, tensor(2, 3), VkValueList((0, 2)), 0], [("aten.cat.default", (2, 3, 1))]),
        ["list %2 contains %2, a list"],
    ),
    "a list for a tensor at the border": (
        delegate([VkValueList((1,)), tensor(2, 3)], [], inputs=(0,), outputs=(1,)),
        ["input 0", "%0", "neither a tensor nor a SymInt"],
    ),
    "a SymInt of floats": (
        delegate([X, tensor(2, 3), 0, VkSymInt(0)], [("et_vk.select_as_symint.default", (0, 2, 2, 3))]),
        ["node 0 et_vk.select_as_symint.default", "integers, not f32"],
    ),
    "a SymInt along a live dim": (
        delegate(
            [tensor(2, dtype=DType.I32), tensor(2), 0, VkSymInt(0)],
            [("et_vk.select_as_symint.default", (0, 3, 2, 3))],
        ),
        ["node 0 et_vk.select_as_symint.default"],
    ),
    "a cache that is also read": (
        delegate(
            [tensor(1, 5, 2, 4), tensor(1), tensor(1, 5, 2, 4, constant=0), 0],
            [("update_cache.default", (2, 2, 3, 1))],
            constants=[stored(40)],
        ),
        ["node 0 update_cache.default", "updated in place and also read"],
    ),
    "a SymInt of several elements": (
        delegate(
            [tensor(2, 5, dtype=DType.I32), VkSymInt(0), 1, 3],
            [("et_vk.select_as_symint.default", (0, 2, 3, 1))],
        ),
        ["node 0 et_vk.select_as_symint.default", "%0:i32[2, 5] has several elements 3 along dim 1"],
    ),
    "a value that is two inputs": (
        delegate([X, tensor(2, 3), X], [(RELU, (0, 1))], inputs=(0, 2, 0)),
        ["inputs 0 and 2 are both %0:f32[2, 3]"],
    ),
    "a constant beyond 32 bits": (
        delegate(
            [*[tensor(2, dtype=DType.I64)] * 2, tensor(2, dtype=DType.I64, constant=0), 1],
            [("aten.add.Tensor", (0, 2, 3, 1))],
            constants=[integers(-7, 1 << 31)],
        ),
        ["node 0 aten.add.Tensor", "%2:i64[2]", "from -7 to 2147483648", "32 bits"],
    ),
    "an input that is a constant": (
        delegate([tensor(2, 3, constant=0), tensor(2, 3)], [(RELU, (0, 1))], constants=[stored(6)]),
        ["the input %0:f32[2, 3] is a constant"],
    ),
    "more elements than can be addressed": (
        delegate([X, tensor(1 << 20, 1 << 20)], [(RELU, (0, 1))]),
        ["%1:f32[1048576, 1048576]", "more elements"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_graph_is_refused(what: str) -> None:
    record, words = WRONG[what]
    with pytest.raises(GraphError) as caught:
        load(record)
    message = str(caught.value)
    assert "written.pte, forward, delegate 0" in message
    assert all(word in message for word in words), message


def test_right_graphs_are_not() -> None:
    """Numbers may arrive in the other kind: exporters keep one value for 1 and 1.0."""
    assert load(product(tensor(2, 3, constant=0), stored(6))).nodes
    load(delegate([X, tensor(2, 1, 3), 1.0], [("aten.unsqueeze_copy.default", (0, 2, 1))]))
    int64 = tensor(2, dtype=DType.I64)
    ends = integers(-(1 << 31), (1 << 31) - 1)
    constant = replace(int64, constant_id=0)
    load(delegate([int64, int64, constant, 1], [("aten.add.Tensor", (0, 2, 3, 1))], constants=[ends]))


def test_unsupported_operators_of_a_graph_are_all_listed() -> None:
    record = delegate([X, tensor(2, 3)], [("aten.bogus.default", (0, 1)), (RELU, (0, 1)), ("a.b.c", (0, 1))])
    nodes = (*record.nodes, NodeRecord("a.b.c", (0, 1)))
    with pytest.raises(UnsupportedError, match=r"a\.b\.c \(2x\), aten\.bogus\.default \(1x\)"):
        load(replace(record, nodes=nodes))


# Files ------------------------------------------------------------------------------------------


def patched(path: Path, replacements: Mapping[bytes, bytes]) -> bytes:
    data = path.read_bytes()
    for old, new in replacements.items():
        assert len(old) == len(new)
        assert old in data
        data = data.replace(old, new)
    return data


def test_everything_unsupported_in_one_error(programs: Path) -> None:
    """Of several delegates, and outside of them."""
    replaced = {b"mul.Tensor": b"mol.Tensor", b"linear": b"lineal", b"cumsum": b"cumsim", b"::erf": b"::orf"}
    with pytest.raises(UnsupportedError) as caught:
        pteron.load(patched(programs / "mutable_buffer_host.pte", replaced))
    for name in ("aten.mol.Tensor", "aten.lineal.default", "aten::cumsim", "aten::orf"):
        assert str(caught.value).count(name) == 1


def test_several_methods_in_one_error(programs: Path) -> None:
    data = patched(
        programs / "multi_method.pte", {b"aten.tanh.": b"aten.tinh.", b"aten.linear": b"aten.lineal"}
    )
    with pytest.raises(UnsupportedError, match=r"aten\.lineal\.default, aten\.tinh\.default"):
        pteron.load(data)


def test_another_backend(programs: Path) -> None:
    data = patched(programs / "two_delegates.pte", {b"VulkanBackend": b"OthersBackend"})
    message = "forward: delegates for OthersBackend; only those for .* run here: re-export the model with"
    with pytest.raises(UnsupportedError, match=message):
        pteron.load(data)


def test_missing_weight_files(programs: Path) -> None:
    with pytest.raises(
        GraphError, match=r"node \d+ aten\.linear\.default.*key '\w+' is neither in the program"
    ) as caught:
        pteron.load(programs / "external_weights.pte")
    assert "load(..., data=[...])" in str(caught.value)
    (first, *_) = sorted(programs.glob("external_weights.*.ptd"))
    with pytest.raises(GraphError, match="key"):
        pteron.load(programs / "external_weights.pte", data=first)
    with pytest.raises(GraphError, match=r"forward: tensor '[\w.]+' is not in the weight files"):
        pteron.load(programs / "external_host.pte")


def test_weight_files_that_disagree(programs: Path) -> None:
    (path,) = programs.glob("external_host.*.ptd")
    data = bytearray(path.read_bytes())
    data[-1] ^= 0xFF
    with pytest.raises(pteron.FormatError, match="differs from the one in another weight file"):
        pteron.load(programs / "external_host.pte", data=[path, bytes(data)])


def test_what_is_no_program(tmp_path: Path, programs: Path) -> None:
    empty = tmp_path / "empty.pte"
    empty.touch()
    sources: list[tuple[Path | bytes, str]] = [
        (tmp_path / "missing.pte", "no such file"),
        (empty, "empty"),
        (b"", "empty"),
        (b"text, not a program, however long it may be", "a text file"),
        (sorted(programs.glob("*.ptd"))[0], "identifier"),
    ]
    for source, words in sources:
        with pytest.raises(pteron.FormatError, match=words) as caught:
            pteron.load(source)
        assert str(source if isinstance(source, Path) else "") in str(caught.value)
    with pytest.raises(pteron.FormatError, match="not a weight file"):
        pteron.load(programs / "mlp.pte", data=programs / "mlp.pte")


# Instructions -----------------------------------------------------------------------------------


def value(*sizes: int, dtype: DType = DType.F32, constant: bool = False) -> TensorRecord:
    data = memoryview(bytes(1024)) if constant else None
    order = tuple(range(len(sizes)))
    return TensorRecord(dtype, sizes, order, "bound", data, constant, False, None, False)


def method(
    values: Sequence[EValue], instructions: Sequence[Instruction], operators: Sequence[str] = ()
) -> MethodRecord:
    return MethodRecord(
        name="forward",
        values=tuple(values),
        inputs=(0,),
        outputs=(1,),
        instructions=tuple(instructions),
        operators=tuple(operators),
        delegates=(),
    )


def test_a_host_call_with_too_few_arguments() -> None:
    name = "executorch_prim::add.Scalar"
    add = find_operator(name)
    assert add is not None
    with pytest.raises(
        GraphError, match=f"here, instruction 0: {name}: expected at least 3 arguments, found 2"
    ):
        check_method("here", method([1, 2], [KernelCall(0, (0, 1))], [name]), [add], [])
    for enough in ((0, 1, 2), (0, 1, 2, 2)):
        check_method("here", method([1, 2, 3], [KernelCall(0, enough)], [name]), [add], [])


def graph_of(inputs: Sequence[VkValue], outputs: Sequence[VkValue]) -> Graph:
    count = len(inputs)
    values = [*inputs, *outputs]
    return build(delegate(values, [], range(count), range(count, len(values))))


WRONG_BORDERS: dict[str, tuple[list[EValue], Graph, str]] = {
    "mutated buffers among the outputs": (
        [value(2, 3), value(2, 3)],
        graph_of([X], [X, X]),
        "1 inputs and 2 outputs, but is given 2 values.*alias_buffer_mutations",
    ),
    "a larger tensor": (
        [value(2, 4), value(2, 3)],
        graph_of([X], [X]),
        r"input 0 .*%0 is a tensor f32\[2, 4\]",
    ),
    "a number for a tensor": ([3, value(2, 3)], graph_of([X], [X]), "input 0 .*%0 is 3, not a tensor"),
    "a vector for a SymInt": (
        [value(2, 3), value(2, dtype=DType.I64)],
        graph_of([X], [VkSymInt(0)]),
        "output 0 .*not one integer",
    ),
    "a fixed output that is smaller": (
        [value(2, 1), replace(value(2, 1), dynamism="static")],
        graph_of([X], [X]),
        r"output 0 .*%1 is a tensor f32\[2, 1\], and its shape is fixed",
    ),
    "a constant output": (
        [value(2, 3), value(2, 3, constant=True)],
        graph_of([X], [X]),
        "output 0 .*%1 is written, but is a constant",
    ),
}


@pytest.mark.parametrize("what", WRONG_BORDERS)
def test_a_wrong_delegate_call_is_refused(what: str) -> None:
    values, graph, words = WRONG_BORDERS[what]
    with pytest.raises(GraphError, match=f"here, instruction 0: .*{words}"):
        check_method("here", method(values, [DelegateCall(0, (0, 1))]), [], [graph])


TIGHT, CALL = value(2, 1), DelegateCall(0, (0, 1))
ABS = KernelCall(0, (0, 1, 1))


@pytest.mark.parametrize(
    ("instructions", "values", "found"),
    [
        ([CALL], [TIGHT, TIGHT], [(2, 3), (2, 3)]),
        ([CALL], [replace(TIGHT, dynamism="static"), TIGHT], [(2, 1), (2, 3)]),
        ([CALL, DelegateCall(0, (1, 2))], [TIGHT] * 3, [(2, 3)] * 3),
        ([CALL, DelegateCall(1, (1, 2))], [TIGHT] * 3, [(2, 1)] * 3),  # the delegates disagree
        ([CALL, ABS], [TIGHT] * 2, [(2, 1)] * 2),  # nobody knows how much a host operator writes
        ([CALL, MoveCall(1, 2)], [TIGHT] * 3, [(2, 1)] * 3),
    ],
)
def test_a_method_may_have_tighter_bounds_than_its_delegates(
    instructions: Sequence[Instruction], values: Sequence[EValue], found: Sequence[tuple[int, ...]]
) -> None:
    """It takes what its delegates take, if they alone write dynamic tensors and agree."""
    name, narrow = "aten::abs.out", tensor(2, 2)
    graphs, operators = [graph_of([X], [X]), graph_of([narrow], [narrow])], [find_operator(name)]
    record = method(values, instructions, [name])
    assert operators[0] is not None
    check_method("here", record, [operators[0]], graphs)
    widened = with_bounds_of_delegates(record, [operators[0]], graphs)
    assert [each.sizes for each in widened.values if isinstance(each, TensorRecord)] == list(found)


def test_integers_at_the_border() -> None:
    graph = graph_of([VkSymInt(0), tensor(2, dtype=DType.I32)], [VkSymInt(0)])
    for first in (None, 7, value(dtype=DType.I64)):
        values = [first, value(2, dtype=DType.I64), value(1, dtype=DType.I64)]
        check_method("here", method(values, [DelegateCall(0, (0, 1, 2))]), [], [graph])


REFUSED = ["_assert_scalar.default", "getitem", "sym_constrain_range_for_size.default"]


def test_operators_that_exporters_remove() -> None:
    """Some work all the same, the others are refused with a reason."""
    assert sorted(name for name in REMOVED_BY_EXPORTER if not is_available(name)) == REFUSED
    for name in REFUSED:
        reason = f"{name} (no file should contain it: {REMOVED_BY_EXPORTER[name]}) (1x)"
        with pytest.raises(UnsupportedError, match=re.escape(f"unsupported operators: {reason}")):
            load(delegate([X, tensor(2, 3)], [(name, (0, 1))]))


def test_operators_of_exporters_are_refused_by_name() -> None:
    reason = why_refused("llama::gated_delta_rule.out", "custom::thing.out")
    assert "llama::gated_delta_rule.out (linear attention: export the model with pteron.compile)" in reason
    assert reason.endswith("custom::thing.out") or "custom::thing.out runs outside" in reason
    for name in ("quantized_moe_ffn", "custom_quantized_sdpa", "fast_hadamard_transform"):
        assert "export" in why_refused(f"llama::{name}.out")
    assert "a KV cache outside the program" in why_refused("kvcache::update_and_attend.out")


def test_other_formats_are_refused_by_name(tmp_path: Path) -> None:
    for entry, message in (("program.ptg", "native backend .*re-export"), ("data.pkl", "pteron.compile")):
        path = tmp_path / f"{entry}.zip"
        with zipfile.ZipFile(path, "w") as package:
            package.writestr(entry, b"content")
        with pytest.raises(UnsupportedError, match=message):
            pteron.load(path)
    with pytest.raises(UnsupportedError, match="native backend"):
        pteron.load(b"\x10\0\0\0NPTG" + bytes(64))


@pytest.mark.export
@pytest.mark.long
def test_a_package_of_the_native_backend_is_refused_by_name(tmp_path: Path) -> None:
    """As ExecuTorch writes it: graph and weights in a zip named .ptn."""
    torch: Any = pytest.importorskip("torch")
    native: Any = pytest.importorskip("executorch.exir.native")
    path = tmp_path / "model.ptn"
    native.to_native(torch.export.export(torch.nn.Linear(3, 4), (torch.zeros(2, 3),))).save(str(path))
    with pytest.raises(UnsupportedError, match=r"model\.ptn.*native backend \(\.ptn\).*re-export"):
        pteron.load(path)
