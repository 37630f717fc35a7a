"""An execution plan's table enters; a method record leaves: values and instructions, all indices checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pteron.format.flatbuffer import INT8, INT64, UINT32, UINT64, Table
from pteron.format.records import (
    DelegateCall,
    DelegateRecord,
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
from pteron.format.stored import StoredData
from pteron.format.tensor_layout import read_layout

_NULL, _TENSOR = 1, 5
_EXTERNAL = 1
_DYNAMISM: dict[int, Literal["static", "bound", "unbound"]] = {0: "static", 1: "bound", 2: "unbound"}


def read_method(plan: Table, stored: StoredData) -> MethodRecord:
    name = plan.text(0, "name")
    if not name:
        raise plan.error("name", "the method has no name")
    value_tables = plan.tables(2, "values")
    value_count = len(value_tables)
    operators = tuple(_operator(table) for table in plan.tables(6, "operators"))
    delegates = tuple(_delegate(table, stored) for table in plan.tables(7, "delegates"))
    values = tuple(_value(table, value_count, stored) for table in value_tables)
    for table, value in zip(value_tables, values, strict=True):
        _check_members(table, value, values)
    containers = plan.table(1, "container_meta_type")
    inputs = plan.indices(3, "inputs", value_count, "values")
    if len(set(inputs)) < len(inputs):
        raise plan.error("inputs", f"{list(inputs)} has a value twice")
    return MethodRecord(
        name=name,
        values=values,
        inputs=inputs,
        outputs=plan.indices(4, "outputs", value_count, "values"),
        instructions=_instructions(plan, value_count, len(operators), len(delegates)),
        operators=operators,
        delegates=delegates,
        input_tree=containers.text(0, "encoded_inp_str") if containers else "",
        output_tree=containers.text(1, "encoded_out_str") if containers else "",
    )


def _check_members(table: Table, value: EValue, values: tuple[EValue, ...]) -> None:
    """A list in a list could contain itself, or double at every level."""
    if isinstance(value, IndexList):
        for id in value.items:
            if id >= 0 and isinstance(values[id], (IndexList, tuple)):
                raise table.error("val", f"a list contains value {id}, which is a list")


def _operator(table: Table) -> str:
    name, overload = table.text(0, "name"), table.text(1, "overload")
    return f"{name}.{overload}" if overload else name


def _delegate(table: Table, stored: StoredData) -> DelegateRecord:
    backend = table.text(0, "id")
    if not backend:
        raise table.error("id", "the delegate names no backend")
    return DelegateRecord(backend, stored.delegate(table.required_table(1, "processed")))


def _instructions(plan: Table, values: int, operators: int, delegates: int) -> tuple[Instruction, ...]:
    """The instructions of a method with this number of values, operators and delegates."""
    chains = plan.tables(5, "chains")
    if len(chains) > 1:
        raise plan.error("chains", f"{len(chains)} chains of instructions; one is possible")
    tables = chains[0].tables(2, "instructions") if chains else ()

    def instruction(table: Table) -> Instruction:
        kind, call = table.union(0, "instr_args")
        if call is not None:
            match kind:
                case 1:
                    operator = call.index(0, "op_index", operators, "operators")
                    return KernelCall(operator, call.indices(1, "args", values, "values"))
                case 2:
                    delegate = call.index(0, "delegate_index", delegates, "delegates")
                    return DelegateCall(delegate, call.indices(1, "args", values, "values"))
                case 3:
                    source = call.index(0, "move_from", values, "values")
                    return MoveCall(source, call.index(1, "move_to", values, "values"))
                case 4:
                    condition = call.index(0, "cond_value_index", values, "values")
                    end = len(tables) + 1  # a jump to one past the last instruction ends the method
                    return JumpFalseCall(
                        condition, call.index(1, "destination_instruction", end, "places to jump to")
                    )
                case 5:
                    return FreeCall(call.index(0, "value_index", values, "values"))
        raise table.error("instr_args", f"no instruction of a known kind (type {kind})")

    return tuple(map(instruction, tables))


def _value(table: Table, count: int, stored: StoredData) -> EValue:
    """One of a method's `count` values."""
    kind, value = table.union(0, "val")
    if kind == _NULL:
        return None
    if value is not None:
        if kind == _TENSOR:
            return _tensor(value, stored)
        if kind in _SIMPLE_VALUES:
            return _SIMPLE_VALUES[kind](value, count)
    raise table.error("val", f"no value of a known kind (type {kind})")


_SIMPLE_VALUES: dict[int, Callable[[Table, int], EValue]] = {
    2: lambda table, _: table.integer(0, "int_val", INT64),
    3: lambda table, _: table.boolean(0, "bool_val"),
    4: lambda table, _: table.double(0, "double_val"),
    6: lambda table, _: table.text(0, "string_val"),
    7: lambda table, count: IndexList("int", table.indices(0, "items", count, "values", INT64)),
    8: lambda table, _: table.doubles(0, "items"),
    9: lambda table, _: table.booleans(0, "items"),
    10: lambda table, count: IndexList("tensor", table.indices(0, "items", count, "values")),
    11: lambda table, count: IndexList(
        "optional_tensor", table.indices(0, "items", count, "values", lowest=-1)
    ),
}


def _tensor(table: Table, stored: StoredData) -> TensorRecord:
    """A tensor with its bytes, if the program has any for it."""
    layout = read_layout(table, dtype_slot=0, sizes_slot=2, dim_order_slot=3)
    if table.integer(1, "storage_offset") != 0:
        raise table.error("storage_offset", "only 0 is possible")
    dynamism = _DYNAMISM.get(table.integer(8, "shape_dynamism", INT8))
    if dynamism is None:
        raise table.error("shape_dynamism", "not static, bound or unbound")

    buffer = table.integer(5, "data_buffer_idx", UINT32)
    allocation = table.table(6, "allocation_info")
    has_storage = allocation is not None
    extra = table.table(9, "extra_tensor_info")
    name = extra.text(1, "fully_qualified_name") if extra else ""
    is_external = extra is not None and extra.integer(2, "location", INT8) == _EXTERNAL
    if is_external and not name:
        raise table.error("extra_tensor_info", "an external tensor has no name to find it by")

    data: memoryview | None = None
    if buffer > 0 and not is_external:
        if has_storage:
            group = extra.integer(0, "mutable_data_segments_idx", UINT64) if extra else 0
            data = stored.initial_value(table, group, buffer)
        else:
            data = stored.constant(table, buffer)
        if len(data) < layout.byte_size:
            raise table.error("data_buffer_idx", f"{len(data)} bytes where {layout.byte_size} are needed")
        data = data[: layout.byte_size]

    has_data = data is not None or is_external
    return TensorRecord(
        dtype=layout.dtype,
        sizes=layout.sizes,
        dim_order=layout.dim_order,
        dynamism=dynamism,
        data=data,
        is_constant=has_data and not has_storage,
        is_mutable=has_data and has_storage,
        name=name or None,
        is_external=is_external,
        allocation=_allocation(allocation) if allocation else None,
    )


def _allocation(table: Table) -> tuple[int, int]:
    """An arena and an offset of 64 bits, which files store in halves."""
    low, high = table.integer(1, "memory_offset_low", UINT32), table.integer(2, "memory_offset_high", UINT32)
    return table.integer(0, "memory_id", UINT32), high << 32 | low
