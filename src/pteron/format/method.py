"""An execution plan's table enters; a method record leaves, all of its indices checked."""

from __future__ import annotations

from dataclasses import dataclass

from pteron.format.evalues import read_value
from pteron.format.flatbuffer import INT64, Table
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
)
from pteron.format.stored import StoredData


def read_method(plan: Table, stored: StoredData) -> MethodRecord:
    name = plan.text(0, "name")
    if not name:
        raise plan.error("name", "the method has no name")
    value_tables = plan.tables(2, "values")
    value_count = len(value_tables)
    operators = tuple(_operator(table) for table in plan.tables(6, "operators"))
    delegates = tuple(_delegate(table, stored) for table in plan.tables(7, "delegates"))
    buffer_sizes = plan.integers(8, "non_const_buffer_sizes", INT64)
    if any(size < 0 for size in buffer_sizes):
        raise plan.error("non_const_buffer_sizes", f"{min(buffer_sizes)} bytes is not a size")
    values = tuple(read_value(table, value_count, stored) for table in value_tables)
    for table, value in zip(value_tables, values, strict=True):
        _check_members(table, value, values)
    containers = plan.table(1, "container_meta_type")
    return MethodRecord(
        name=name,
        values=values,
        inputs=plan.indices(3, "inputs", value_count, "values"),
        outputs=plan.indices(4, "outputs", value_count, "values"),
        instructions=_instructions(plan, value_count, len(operators), len(delegates)),
        operators=operators,
        delegates=delegates,
        buffer_sizes=buffer_sizes,
        input_tree=containers.text(0, "encoded_inp_str") if containers else "",
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


@dataclass(frozen=True, slots=True)
class _Limits:
    """How many of each thing an instruction can point at."""

    values: int
    operators: int
    delegates: int
    instructions: int


def _instructions(plan: Table, values: int, operators: int, delegates: int) -> tuple[Instruction, ...]:
    chains = plan.tables(5, "chains")
    if len(chains) > 1:
        raise plan.error("chains", f"{len(chains)} chains of instructions; one is possible")
    tables = chains[0].tables(2, "instructions") if chains else ()
    limits = _Limits(values, operators, delegates, len(tables))
    return tuple(_instruction(table, limits) for table in tables)


def _instruction(table: Table, limits: _Limits) -> Instruction:
    kind, call = table.union(0, "instr_args")
    if call is not None:
        match kind:
            case 1:
                operator = call.index(0, "op_index", limits.operators, "operators")
                return KernelCall(operator, call.indices(1, "args", limits.values, "values"))
            case 2:
                delegate = call.index(0, "delegate_index", limits.delegates, "delegates")
                return DelegateCall(delegate, call.indices(1, "args", limits.values, "values"))
            case 3:
                source = call.index(0, "move_from", limits.values, "values")
                return MoveCall(source, call.index(1, "move_to", limits.values, "values"))
            case 4:
                condition = call.index(0, "cond_value_index", limits.values, "values")
                # A jump to one past the last instruction ends the method.
                end = limits.instructions + 1
                return JumpFalseCall(
                    condition, call.index(1, "destination_instruction", end, "places to jump to")
                )
            case 5:
                return FreeCall(call.index(0, "value_index", limits.values, "values"))
    raise table.error("instr_args", f"no instruction of a known kind (type {kind})")
