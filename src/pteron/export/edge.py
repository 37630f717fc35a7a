"""An exported program in Core ATen -> ExecuTorch's edge dialect, in place.

ExecuTorch's own conversion traces the program anew for each of its passes, which takes most of the time of
lowering. The changes are local, so this one edits the nodes.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import torch
from executorch.exir import EdgeCompileConfig
from executorch.exir.passes.replace_aten_with_edge_pass import aten_to_edge, should_lower_to_edge
from executorch.exir.program._program import _generate_edge_program, _get_updated_graph_signature
from executorch.exir.verification.verifier import EXIREdgeDialectVerifier
from torch._export.passes.replace_view_ops_with_view_copy_ops_pass import get_view_copy_of_view_op
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch.export import ExportedProgram

from pteron.export.constants import add_constant

if TYPE_CHECKING:
    from torch.fx import Node

CONFIG = EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)
_aten = torch.ops.aten
_TO_FLOAT = (_aten.div.Tensor, _aten.atan2.default)  # of integers
_CAST_TO_FIRST = (_aten.copy.default, _aten.fill.Tensor)  # results have the first operand's type
_KINDS = ELEMENTWISE_TYPE_PROMOTION_KIND


def to_edge(functional: ExportedProgram) -> ExportedProgram:
    """The program in the edge dialect: views are copies, operands are tensors of one type. Changes its
    argument."""
    if next(functional.graph_module.children(), None) is not None:  # branches of control flow
        return _generate_edge_program(CONFIG, functional)
    constants = _Constants(functional)
    for node in list(functional.graph.nodes):
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            _convert(node, constants)
    functional.graph.eliminate_dead_code()
    for node in functional.graph.nodes:
        if hasattr(builtins, node.name):  # copies of a graph rename such nodes, but not the signature
            node._rename(f"{node.name}_1")
    functional.graph_module.recompile()
    signature = _get_updated_graph_signature(functional.graph_signature, functional.graph_module)
    return ExportedProgram(
        root=functional.graph_module,
        graph=functional.graph,
        graph_signature=signature,
        state_dict=functional.state_dict,
        range_constraints=functional.range_constraints,
        module_call_graph=functional.module_call_graph,
        example_inputs=functional.example_inputs,
        constants=functional.constants,
        verifiers=[EXIREdgeDialectVerifier(edge_compile_config=CONFIG, class_only=True)],
    )


def _convert(node: Node, constants: _Constants) -> None:
    node.target = get_view_copy_of_view_op(node.target._schema) or node.target
    _promote(node, constants)
    if should_lower_to_edge(node.target):
        node.target = aten_to_edge(node.target)


def _promote(node: Node, constants: _Constants) -> None:
    """Make numbers tensors, and give the operands of an elementwise operator the type that it computes in."""
    operands = _tensor_arguments(node)
    is_number = [not isinstance(_value(operand), torch.Tensor) for operand in operands.values()]
    if torch.Tag.pointwise in node.target.tags and len(operands) > 1 and node.target not in _CAST_TO_FIRST:
        kind = _KINDS.INT_TO_FLOAT if node.target in _TO_FLOAT else _KINDS.DEFAULT
        _, dtype = elementwise_dtypes(*map(_value, operands.values()), type_promotion_kind=kind)
    elif any(is_number):
        dtype = None
    else:
        return
    for name, operand in operands.items():
        value = _value(operand)
        if not isinstance(operand, torch.fx.Node):
            replacement = constants.of(operand, dtype or torch.tensor(operand).dtype)
        elif not isinstance(value, torch.Tensor):
            # Not a scalar_tensor, which ExecuTorch does not make an edge operator.
            replacement = _inserted(node, _aten.full.default, [], operand, dtype=dtype or torch.int64)
        elif dtype is not None and value.dtype != dtype:
            replacement = _inserted(node, _aten._to_copy.default, operand, dtype=dtype)
        else:
            continue
        if isinstance(name, int):
            node.update_arg(name, replacement)
        else:
            node.update_kwarg(name, replacement)


def _tensor_arguments(node: Node) -> dict[int | str, Any]:
    """The arguments in the places of tensors, by position or name; without the condition of `where`."""
    found: dict[int | str, Any] = {}
    for position, argument in enumerate(node.target._schema.arguments):
        if not isinstance(argument.type, torch.TensorType) or argument.name == "condition":
            continue
        if argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        elif position < len(node.args):
            found[position] = node.args[position]
    return found


def _value(operand: Any) -> Any:
    return operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand


def _inserted(node: Node, target: Any, *args: Any, dtype: torch.dtype) -> Node:
    """A conversion of an operand, the last of `args`, before its use."""
    with node.graph.inserting_before(node):
        made = node.graph.call_function(aten_to_edge(target), args, {"dtype": dtype})
    value = _value(args[-1])
    if isinstance(value, torch.Tensor):
        made.meta = {**node.meta, "val": target(value, dtype=dtype)}
    else:  # running the operator would fix the size of a dynamic dim
        made.meta = {**node.meta, "val": node.meta["val"].new_empty((), dtype=dtype)}
    return made


class _Constants:
    """Numbers as constant tensors of a program, each once."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._made: dict[tuple[str, torch.dtype], Node] = {}

    def of(self, value: bool | int | float, dtype: torch.dtype) -> Node:
        key = (repr(value), dtype)
        if key not in self._made:
            number = torch.tensor(value, dtype=dtype)
            node = add_constant(self._program, f"number_{len(self._program.constants)}", number)
            node.meta["val"].constant = number  # patterns read numbers: the epsilon of an RMS norm
            self._made[key] = node
        return self._made[key]
