"""A module that ExecuTorch cannot lower as a whole, as a callable: programs, with PyTorch between them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from pteron.errors import LoweringError, ShapeError
from pteron.export.compiled import Report, TracedModule, as_torch, counted, listed, make_report
from pteron.export.signature import Signature
from pteron.export.steps import Part, Split, step_lines, torch_operators
from pteron.format.program import COMPILED_METHOD as METHOD
from pteron.gpu.fork import new_lock
from pteron.ops.requirement import RequirementError
from pteron.ops.shapes import check_live_slice
from pteron.runtime import GpuTensor, Program
from pteron.runtime.pending import Pending


class ProgramStep(torch.nn.Module):  # type: ignore[misc]  # untyped
    """A part of a module that runs as a program."""

    def __init__(self, program: Program, part: Part) -> None:
        super().__init__()
        self.program, self.live, self.returns_tuple = program, part.live, part.returns_tuple
        self.on_gpu = False  # whether outputs stay on the GPU, for another program

    def forward(self, *arguments: Any) -> Any:
        method = self.program[METHOD]
        outputs = method(*(arguments[position] for position in self.live), on_gpu=self.on_gpu)
        if self.on_gpu:
            return tuple(outputs)
        pairs = zip(outputs, method.outputs, strict=True)
        found = tuple(as_torch(value, spec.dtype) for value, spec in pairs)
        return found if self.returns_tuple else found[0]

    def describe(self) -> str:
        """How many operators run on the GPU and on the host."""
        report = make_report(self.program)
        on_gpu = counted(sum(uses.total() for uses in report.delegates), "operator")
        named = f" ({', '.join(report.host)})" if report.host else ""
        return f"program: {on_gpu} on the GPU, {report.host.total()} on the host{named}"


class SteppedModule(TracedModule):
    """A compiled module with operators that PyTorch runs, between programs. It cannot be saved."""

    def __init__(
        self,
        name: str,
        signature: Signature,
        split: Split,
        programs: Mapping[str, Program],  # of the parts
        states: Sequence[torch.Tensor],
        written: Sequence[int],
        *,
        was_cached: bool,
    ) -> None:
        super().__init__(name, signature, written, was_cached=was_cached)
        self._initial = tuple(state.clone() for state in states)
        self._states: Sequence[Any] = self._initial
        self._lock = new_lock()
        self._is_sequence = False
        self.graph_module, self._reasons = split.graph_module, split.reasons
        self.steps = {key: ProgramStep(program, split.parts[key]) for key, program in programs.items()}
        for key, step in self.steps.items():
            setattr(self.graph_module, key, step)
        _keep_on_gpu(self.graph_module, self.steps, len(states))
        for module in (self.graph_module, *self.graph_module.children()):
            if isinstance(module, GraphModule):
                _check_slices(name, module)

    def _run(self, leaves: Sequence[Any]) -> Pending[Sequence[Any]]:
        """New states stay on the GPU if a program computed them. PyTorch needs the outputs of programs, so
        the call ends before this returns."""
        given = [leaf.contiguous() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        with self._lock, torch.no_grad():  # calls share the states
            outputs = self.graph_module(*self._states, *given)
            found = _own_memory(outputs, [*self._states, *given, *self.graph_module.buffers()])
            self._states = found[: len(self._initial)]
        return Pending(lambda: found[len(self._initial) :])

    def reset(self) -> None:
        with self._lock:
            self._states = self._initial

    def sequence(self) -> SteppedModule:
        other = copy(self)
        other._states, other._lock, other._is_sequence = self._initial, new_lock(), True
        return other

    @property
    def program(self) -> Program:
        raise LoweringError(f"{self.name} is not one program; fullgraph=True lists the reasons")

    @property
    def report(self) -> Report:
        reports = [make_report(step.program) for step in self.steps.values()]
        between = "between operators that PyTorch runs"
        in_torch = torch_operators(self.graph_module)
        return Report.of_parts(reports, in_torch, lambda name: self._reasons.get(name, between))

    def save(self, path: str | os.PathLike[str]) -> None:
        names = ", ".join(torch_operators(self.graph_module))
        raise LoweringError(
            f"{self.name} cannot be saved: a .pte file cannot contain what PyTorch runs between its programs "
            f"({names}). Compile the module without these operators"
        )

    def close(self) -> None:
        if self._is_sequence:
            self._states = self._initial
            return
        for step in self.steps.values():
            step.program.close()

    def __str__(self) -> str:
        lines = [repr(self)]
        described = step_lines(self.graph_module, self._described)
        lines += [f"  step {index}   {line}" for index, line in enumerate(described)]
        lines += [f"    {reason}" for reason in self.report.reasons]
        how = "from the cache" if self.was_cached else "lowered now"
        if self.steps:
            lines.append(f"  programs     {len(self.steps)} ({how})")
        return "\n".join(lines)

    def summary(self) -> str:
        """What PyTorch runs, and why."""
        uses = torch_operators(self.graph_module)
        named = [f"{name}{f' ({reason})' if (reason := self._reasons.get(name)) else ''}" for name in uses]
        operators, programs = counted(uses.total(), "operator"), counted(len(self.steps), "program")
        return f"{programs}, and {operators} that PyTorch runs: {', '.join(named)}"

    def _described(self, name: str) -> str:
        if name in self.steps:
            return self.steps[name].describe()
        return f"PyTorch: {listed(torch_operators(getattr(self.graph_module, name)))}"


def _keep_on_gpu(module: GraphModule, steps: Mapping[str, ProgramStep], states: int) -> None:
    """Keep on the GPU what one program computes and another reads, and states. PyTorch's operators and the
    caller get copies in host memory."""
    graph = module.graph
    output = graph.output_node()
    returned = list(output.args[0])
    chained = set(returned[:states])

    def is_program(node: Node) -> bool:
        return node.op == "call_module" and node.target in steps

    copied = graph.find_nodes(op="placeholder")[:states]
    for node in filter(is_program, graph.nodes):
        items = list(node.users)
        if any(item in chained or any(map(is_program, item.users)) for item in items):
            steps[node.target].on_gpu = True
            copied += items
    for item in copied:
        users = [user for user in item.users if not is_program(user)]
        if not users:
            continue
        with graph.inserting_before(item.next):
            copy = graph.call_function(_in_host_memory, (item,))
        for user in users:
            if user is not output:
                user.replace_input_with(item, copy)
        returned[states:] = [copy if value is item else value for value in returned[states:]]
    output.args = (tuple(returned),)
    graph.eliminate_dead_code()
    module.recompile()


def _in_host_memory(value: Any) -> Any:
    return value.torch() if isinstance(value, GpuTensor) else value


def _check_slices(name: str, module: GraphModule) -> None:
    """Check slices between integers of tensors before PyTorch runs them: it would make them shorter, and the
    assertions of torch.export are removed."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and getattr(node.target, "_opname", "") in ("slice", "slice_scatter"):
            parameters = (argument.name for argument in node.target._schema.arguments)
            given = dict(zip(parameters, node.args, strict=False)) | dict(node.kwargs)
            bounds = [given.get(each) for each in ("start", "end")]
            if all(map(_is_live, bounds)):
                with module.graph.inserting_before(node):
                    where = f"{name}, {node.name} {node.target}"
                    arguments = (where, given["self"], given.get("dim", 0), *bounds)
                    module.graph.call_function(_check_slice, arguments)
    module.recompile()


def _is_live(bound: object) -> bool:
    return isinstance(bound, Node) and bool(free_unbacked_symbols(bound.meta.get("val")))


def _check_slice(where: str, x: torch.Tensor, dim: int, start: int, end: int) -> None:
    try:
        check_live_slice(x.shape[dim], start, end)
    except RequirementError as error:
        raise ShapeError(f"{where}: {error}") from None


def _own_memory(outputs: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The outputs, copied where they share memory with other tensors."""
    taken = {_address(other) for other in others if isinstance(other, torch.Tensor)}
    found = []
    for value in outputs:
        if isinstance(value, torch.Tensor) and value.numel():
            if _address(value) in taken:
                value = value.clone()
            taken.add(_address(value))
        found.append(value)
    return found


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())
