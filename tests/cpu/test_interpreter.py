"""Instructions on the host: values that are written, moved, updated in place, looped over; states; errors."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_machine import Machine, X, tensor

from pteron import DType, GraphError, HostError, ShapeError, StateLost
from pteron.format.records import (
    DelegateCall,
    EValue,
    FreeCall,
    IndexList,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
    TensorRecord,
)
from pteron.host.lookup import find_operator
from pteron.host.values import HostTensor
from pteron.runtime.dry_run import DryRun
from pteron.runtime.interpreter import Interpreter

ONE = np.ones(3, np.float32)


def test_updated_in_place_is_a_state() -> None:
    """A buffer without an initial value that an in-place operator changes, whichever operator it is."""
    machine = Machine([tensor(3), tensor(3), 1], ["aten::add_.Tensor"], [KernelCall(0, (1, 0, 2, 1))])
    for times in (1, 2, 3):
        np.testing.assert_array_equal(machine()[0], X * times)
    machine.interpreter.reset()
    np.testing.assert_array_equal(machine()[0], X)


def test_written_then_updated_is_none() -> None:
    """What an instruction before gives a value of its own starts anew at every call, at any size."""
    calls: list[Instruction] = [KernelCall(0, (0, 1, 1)), KernelCall(1, (1, 0, 2, 1))]
    machine = Machine([tensor(3), tensor(3), 1], ["aten::neg.out", "aten::add_.Tensor"], calls)
    for x in (X, X[:2], X):
        np.testing.assert_array_equal(machine(x)[0], np.zeros_like(x))


def test_a_state_starts_from_its_initial_value() -> None:
    values: list[EValue] = [tensor(3), tensor(3, data=[5, 6, 7]), False]
    machine = Machine(values, ["aten::copy_"], [KernelCall(0, (1, 0, 2, 1))])
    np.testing.assert_array_equal(machine()[0], X)
    machine = Machine(values, ["aten::copy_"], [])
    np.testing.assert_array_equal(machine()[0], [5, 6, 7])


def test_an_output_does_not_change_what_else_holds_the_old_value() -> None:
    """%1 = -x; %2 = %1; %1 = |x|: %2 is still -x."""
    calls: list[Instruction] = [KernelCall(0, (0, 1, 1)), MoveCall(1, 2), KernelCall(1, (0, 1, 1))]
    values: list[EValue] = [tensor(3), tensor(3), tensor(3)]
    machine = Machine(values, ["aten::neg.out", "aten::abs.out"], calls, (1, 2))
    first, second = machine()
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, -X)


@pytest.mark.parametrize("writeable", [True, False])
def test_inputs_are_the_callers(writeable: bool) -> None:
    """An update in place of an input, or of what an input was moved to, changes a copy."""
    x = ONE.copy()
    x.flags.writeable = writeable
    calls: list[Instruction] = [MoveCall(0, 1), KernelCall(0, (1, 0, 2, 1)), KernelCall(0, (0, 0, 2, 0))]
    machine = Machine([tensor(3), tensor(3), 1], ["aten::add_.Tensor"], calls, (0, 1))
    np.testing.assert_array_equal(machine(x), [[2, 2, 2], [2, 2, 2]])
    np.testing.assert_array_equal(x, ONE)
    machine = Machine([tensor(3), 1], ["aten::add_.Tensor"], [KernelCall(0, (0, 0, 1, 0))], (0,))
    np.testing.assert_array_equal(machine(x)[0], [2, 2, 2])
    np.testing.assert_array_equal(x, ONE)


def test_a_slice_at_a_live_integer_stays_within_its_dim() -> None:
    """%1 = table[p : p + 2], where PyTorch's operator gives fewer rows or those from the end. One live bound,
    and bounds made of sizes alone, follow Python's rules."""
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    stored = tensor(5, 2, data=table, is_constant=True)
    values: list[EValue] = [tensor(dtype=DType.I64), tensor(5, 2), stored, 0, 0, 0, 2, 1]
    slicing = KernelCall(2, (2, 3, 4, 5, 7, 1, 1))
    calls: list[Instruction] = [KernelCall(0, (0, 4)), KernelCall(1, (4, 6, 5)), slicing]
    operators = ["aten::_local_scalar_dense", "executorch_prim::add.Scalar", "aten::slice_copy.Tensor_out"]
    machine = Machine(values, operators, calls)
    for position in (0, 3):
        np.testing.assert_array_equal(machine(np.array(position))[0], table[position : position + 2])
    for position in (4, 5, -1, -3):
        message = f"instruction 2 aten::slice_copy.Tensor_out: a slice at {position} to {position + 2} leaves"
        with pytest.raises(ShapeError, match=f"written.pte, method forward, {message} its dim.* size 5"):
            machine(np.array(position))
    one_bound = KernelCall(2, (2, 3, 3, 4, 7, 1, 1))  # table[0:p]
    machine = Machine(values, operators, [*calls[:2], one_bound])
    for position in (3, 8, -1, -8):
        np.testing.assert_array_equal(machine(np.array(position))[0], table[:position])
    sizes: list[Instruction] = [KernelCall(0, (2, 3, 4)), KernelCall(1, (4, 6, 5))]
    sizes += [KernelCall(1, (4, 6, 4)), slicing]  # table[7:7]
    machine = Machine(values, ["aten::sym_size.int", *operators[1:]], sizes)
    assert machine(np.array(0))[0].shape == (0, 2)


def test_a_failed_call_leaves_states_as_they_were() -> None:
    """%1 += x succeeds and a sum along a missing dim fails: the next call starts from the old state."""
    values: list[EValue] = [tensor(3), tensor(3), 1, 0, None, tensor(3), tensor(3, data=[5, 6, 7]), False]
    calls: list[Instruction] = [
        KernelCall(0, (1, 0, 2, 1)),
        KernelCall(2, (6, 1, 7, 6)),
        KernelCall(1, (0, 3, 4, 5, 5)),
    ]
    machine = Machine(values, ["aten::add_.Tensor", "aten::cumsum.out", "aten::copy_"], calls, (1, 6))
    np.testing.assert_array_equal(machine(), [X, X])
    machine.interpreter._context.initial[3] = 7  # the dim, for one call
    for _ in range(2):
        with pytest.raises(HostError, match="has no dim"):
            machine()
    machine.interpreter._context.initial[3] = 0
    np.testing.assert_array_equal(machine(), [2 * X, 2 * X])


def test_a_state_keeps_what_a_call_leaves_and_not_its_inputs() -> None:
    """%1 is moved from x: the state has x's values, not x's memory."""
    values: list[EValue] = [tensor(3), tensor(3, data=[5, 6, 7]), tensor(3)]
    machine = Machine(values, ["aten::neg.out"], [KernelCall(0, (1, 2, 2)), MoveCall(0, 1)], (2,))
    x = X.copy()
    np.testing.assert_array_equal(machine(x)[0], [-5, -6, -7])
    x[:] = 0
    np.testing.assert_array_equal(machine(x)[0], -X)


class Stateful:
    """A delegate without inputs that changes a state of its own."""

    executable = SimpleNamespace(inputs=(), outputs=(), states={0: None})
    resets = 0

    def run(self, inputs: object, wanted: object, check: object) -> list[object]:
        return []

    def reset(self) -> None:
        self.resets += 1


@pytest.mark.parametrize("is_changed", [True, False])
def test_states_are_lost_where_a_call_failed_half_way(is_changed: bool) -> None:
    """A delegate's states are on the GPU and have no backup, so a call that fails after it loses them."""
    values = (tensor(3), tensor(3), 9, None)
    fails = KernelCall(0, (0, 2, 3, 1, 1))
    calls = (DelegateCall(0, ()), fails) if is_changed else (fails, DelegateCall(0, ()))
    operators = ("aten::cumsum.out",)
    found = find_operator(operators[0])
    if found is None:
        pytest.skip("needs PyTorch")
    record = MethodRecord("forward", values, (0,), (1,), calls, operators, ())
    delegate: Any = Stateful()
    interpreter = Interpreter("written.pte, method forward", record, [found], [delegate])
    with pytest.raises(HostError, match="has no dim"):
        interpreter.run([HostTensor(X, DType.F32)], keep=False)
    then = (StateLost, r"method forward: .*reset\(\)") if is_changed else (HostError, "has no dim")
    with pytest.raises(then[0], match=then[1]):
        interpreter.run([HostTensor(X, DType.F32)], keep=False)
    interpreter.reset()
    assert delegate.resets == 1
    with pytest.raises(HostError, match="has no dim"):
        interpreter.run([HostTensor(X, DType.F32)], keep=False)


def test_lists_of_outputs() -> None:
    values: list[EValue] = [
        tensor(3),
        tensor(1),
        tensor(2),
        1,
        2,
        0,
        IndexList("int", (3, 4)),
        IndexList("tensor", (1, 2)),
    ]
    calls: list[Instruction] = [KernelCall(0, (0, 6, 5, 7, 7))]
    first, second = Machine(values, ["aten::split_with_sizes_copy.out"], calls, (1, 2))()
    np.testing.assert_array_equal(first, X[:1])
    np.testing.assert_array_equal(second, X[1:])


def test_a_loop() -> None:
    """Rows x, 2x, 3x: the count goes up until it is 3, each step's result becomes a row."""
    values: list[EValue] = [tensor(3), tensor(3, 3), tensor(3), 0, 1, False, 3, tensor(3), 1, 0]
    calls: list[Instruction] = [
        KernelCall(0, (9, 4, 3)),  # the first count is 1
        KernelCall(1, (0, 3, 7, 7)),  # step = x * count
        KernelCall(2, (3, 4, 9)),  # row = count - 1
        KernelCall(3, (1, 7, 9)),  # rows[row] = step
        KernelCall(0, (3, 4, 3)),
        KernelCall(4, (3, 6, 5)),  # done = count > 3
        JumpFalseCall(5, 1),
    ]
    operators = [
        "executorch_prim::add.Scalar",
        "aten::mul.Scalar_out",
        "executorch_prim::sub.Scalar",
        "executorch_prim::et_copy_index.tensor",
        "executorch_prim::gt.Scalar",
    ]
    machine = Machine(values, operators, calls)
    for _ in range(2):
        np.testing.assert_array_equal(machine()[0], [X, 2 * X, 3 * X])


def test_a_loop_without_an_end() -> None:
    """Loading a program runs it dry, for the shapes alone: that ends, without any."""
    record = MethodRecord("forward", (tensor(3), False), (0,), (0,), (JumpFalseCall(1, 0),), (), ())
    assert DryRun(record, []).outputs({}) is None


@pytest.mark.parametrize("condition", [[True, True], [True, False], [False, False]])
def test_a_jump_on_several_booleans(condition: list[bool]) -> None:
    """It goes on if all are true, as ExecuTorch does."""
    flags = tensor(2, dtype=DType.BOOL, data=np.array(condition), is_constant=True)
    calls: list[Instruction] = [MoveCall(0, 1), JumpFalseCall(2, 3), KernelCall(0, (0, 1, 1))]
    (found,) = Machine([tensor(3), tensor(3), flags], ["aten::neg.out"], calls)()
    np.testing.assert_array_equal(found, np.negative(X) if all(condition) else X)


def test_a_jump_on_a_number() -> None:
    with pytest.raises(GraphError, match="method forward, instruction 0: a jump on int, not a boolean"):
        Machine([tensor(3), 1], [], [JumpFalseCall(1, 0)], (0,))()


def test_read_before_written() -> None:
    machine = Machine([tensor(3), tensor(3), tensor(3)], ["aten::neg.out"], [KernelCall(0, (2, 1, 1))])
    with pytest.raises(GraphError, match=r"instruction 0 aten::neg\.out: self .*nothing has written"):
        machine()


def test_freed_is_gone() -> None:
    calls: list[Instruction] = [KernelCall(0, (0, 2, 2)), FreeCall(2), KernelCall(0, (2, 1, 1))]
    machine = Machine([tensor(3), tensor(3), tensor(3)], ["aten::neg.out"], calls)
    with pytest.raises(GraphError, match=r"instruction 2 aten::neg\.out"):
        machine()


def test_an_output_never_written() -> None:
    with pytest.raises(GraphError, match="forward: nothing wrote the output %1"):
        Machine([tensor(3), tensor(3)], [], [])()


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (tensor(2), r"f32\[3\] to %1, which is a tensor f32\[2\]"),
        (tensor(3, 1), r"f32\[3\] to %1, which is a tensor f32\[3, 1\]"),
        (tensor(4, dynamism="static"), r"f32\[3\] to %1, which is a tensor f32\[4\]"),
    ],
)
def test_written_otherwise_than_declared(declared: TensorRecord, words: str) -> None:
    machine = Machine([tensor(3), declared], ["aten::neg.out"], [KernelCall(0, (0, 1, 1))])
    with pytest.raises(GraphError, match=rf"instruction 0 aten::neg\.out wrote a tensor {words}"):
        machine()


def test_moved_to_what_is_declared_otherwise() -> None:
    machine = Machine([tensor(3), tensor(2)], [], [MoveCall(0, 1)])
    with pytest.raises(GraphError, match=r"instruction 0: a tensor f32\[3\] is moved to %1"):
        machine()
    with pytest.raises(GraphError, match=r"instruction 0: int is moved to %0, which is a tensor f32\[3\]"):
        Machine([tensor(3), 5], [], [MoveCall(1, 0)], (0,))()


def test_values_that_do_not_fit_are_host_errors() -> None:
    """The program is valid but the values are not, which only the call can detect."""
    calls: list[Instruction] = [KernelCall(0, (2, 3, 4))]
    machine = Machine([tensor(3), 0, 1, 0, 0], ["executorch_prim::floordiv.Scalar"], calls, (4,))
    with pytest.raises(HostError, match=r"instruction 0 executorch_prim::floordiv\.Scalar: .*zero"):
        machine()
    machine = Machine([tensor(3), tensor(3), 5, None], ["aten::cumsum.out"], [KernelCall(0, (0, 2, 3, 1, 1))])
    with pytest.raises(HostError, match=r"instruction 0 aten::cumsum\.out: .*has no dim"):
        machine()


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("ceil", [2.25], 3), ("ceil", [-1.5], -1), ("ceil", [4], 4), ("round", [2.5], 2),
        ("round", [-1.5], -2), ("trunc", [-1.5], -1), ("trunc", [9.99], 9), ("sym_float", [3], 3.0),
        ("neg", [2], -2), ("neg", [2.5], -2.5), ("floordiv", [-7, 2], -4), ("floordiv", [7.0, 2], 3.0),
        ("truediv", [6, 3], 2.0), ("mod", [7, 4], 3), ("sub", [2, 5], -3),
        ("sym_max", [2, 5], 5), ("sym_max", [5, 2], 5), ("sym_min", [2, 5], 2), ("sym_min", [5, 2], 2),
        ("lt", [2, 2], False), ("lt", [2, 5], True), ("le", [2, 2], True), ("le", [5, 2], False),
        ("gt", [2, 2], False), ("gt", [5, 2], True), ("ge", [2, 2], True), ("ge", [2, 5], False),
    ],
)  # fmt: skip
def test_scalar_functions_give_the_types_of_executorch(
    name: str, values: list[float], expected: float
) -> None:
    """`ceil`, `round` and `trunc` of a float are integers."""
    output = len(values) + 1
    calls: list[Instruction] = [KernelCall(0, tuple(range(1, output + 1)))]
    machine = Machine([tensor(3), *values, 0], [f"executorch_prim::{name}.Scalar"], calls, (output,))
    (found,) = machine()
    assert (type(found), found) == (type(expected), expected)


CHANNELS_LAST = (0, 2, 3, 1)


@pytest.mark.parametrize(
    ("operator", "dim_order"),
    [
        ("dim_order_ops::_empty_dim_order.out", None),
        ("dim_order_ops::_empty_dim_order.out", (0, 1)),
        ("dim_order_ops::_empty_dim_order.out", (1, 0)),
        ("aten::empty.out", None),
        ("aten::empty.out", 0),
    ],
)
def test_memory_to_be_filled(operator: str, dim_order: tuple[int, ...] | int | None) -> None:
    """An empty tensor has the requested size (below the declared maximum) and the output's element type."""
    size = (2, 3)
    values: list[EValue] = [tensor(3), tensor(4, 3, dtype=DType.I32), size, dim_order]
    machine = Machine(values, [operator], [KernelCall(0, (2, 3, 1, 1))])
    (output,) = machine()
    assert (output.shape, output.dtype) == (size, np.int32)
    assert not output.any()


@pytest.mark.parametrize("operator", ["_to_dim_order_copy", "_clone_dim_order"])
def test_dim_orders_do_not_change_what_an_element_is(operator: str) -> None:
    values: list[EValue] = [tensor(1, 2, 3, 2), tensor(1, 2, 3, 2), False, CHANNELS_LAST]
    machine = Machine(values, [f"dim_order_ops::{operator}.out"], [KernelCall(0, (0, 2, 3, 1, 1))])
    x = np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2)
    np.testing.assert_array_equal(machine(x)[0], x)


def test_conversion_to_and_from_bf16() -> None:
    """Its bits are the upper half of f32's: rounded to the nearest, of two as near to the even one."""
    bits = np.array([0x3F80_7FFF, 0x3F80_8000, 0x3F81_8000, 0x7F7F_FFFF, 0x7F80_0001, 0xFFFF_FFFF], np.uint32)
    expected = [0x3F80, 0x3F80, 0x3F82, 0x7F80, 0x7FC0, 0x7FC0]
    values: list[EValue] = [tensor(6), tensor(6, dtype=DType.BF16), False, (0,)]
    narrowed = Machine(values, ["dim_order_ops::_to_dim_order_copy.out"], [KernelCall(0, (0, 2, 3, 1, 1))])
    np.testing.assert_array_equal(narrowed(bits.view(np.float32))[0], expected)
    values[:2] = tensor(3, dtype=DType.BF16), tensor(3)
    widened = Machine(values, ["dim_order_ops::_to_dim_order_copy.out"], [KernelCall(0, (0, 2, 3, 1, 1))])
    given = HostTensor(np.array([0x3F80, 0xC020, 0x7F80], np.uint16), DType.BF16)
    (output,) = widened.interpreter.run([given], keep=False)
    assert isinstance(output, HostTensor)
    np.testing.assert_array_equal(output.array, np.array([1, -2.5, np.inf], np.float32))


def test_a_constant_in_channels_last_order() -> None:
    """Its bytes are stored in its dim order; an operator sees the logical shape."""
    stored = np.arange(12, dtype=np.float32)
    record = replace(tensor(1, 2, 3, 2, data=stored, is_constant=True), dim_order=CHANNELS_LAST)
    values: list[EValue] = [tensor(1, 2, 3, 2), tensor(1, 2, 3, 2), record, 1]
    machine = Machine(values, ["aten::add.out"], [KernelCall(0, (0, 2, 3, 1, 1))])
    x = np.zeros((1, 2, 3, 2), np.float32)
    np.testing.assert_array_equal(machine(x)[0], stored.reshape(1, 3, 2, 2).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("dim_order", [(0,), (0, 0), (1, 2)])
def test_what_is_no_dim_order(dim_order: tuple[int, ...]) -> None:
    values: list[EValue] = [tensor(2, 3), tensor(2, 3), False, dim_order, (2, 3)]
    x = np.zeros((2, 3), np.float32)
    copied = Machine(values, ["dim_order_ops::_clone_dim_order.out"], [KernelCall(0, (0, 2, 3, 1, 1))])
    with pytest.raises(HostError, match=r"_clone_dim_order.*is not an order of 2 dims"):
        copied(x)
    empty = Machine(values, ["dim_order_ops::_empty_dim_order.out"], [KernelCall(0, (4, 3, 1, 1))])
    with pytest.raises(HostError, match=r"_empty_dim_order.*is not an order of 2 dims"):
        empty(x)
