"""The methods of a program -> prepared graphs with the names of their inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.errors import InputError, UnsupportedError
from pteron.format.records import DelegateCall, KernelCall, MethodRecord
from pteron.graph import Shape, Tensor
from pteron.ops import Target
from pteron.passes import Prepared, prepare
from pteron.plan import Compiled, Executable, Shapes
from pteron.runtime import Program, ValueSpec
from pteron.runtime.specs import describe

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class WebMethod:
    """A method that is one delegate. `taken` has the position of the method's input for each input of the
    delegate, `given` the position of the delegate's output for each output of the method."""

    name: str
    prepared: Prepared
    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    taken: tuple[int, ...]
    given: tuple[int, ...]

    @property
    def shapes_max(self) -> dict[str, Shape]:
        """The maximum shape of each tensor, by name."""
        return {spec.name: spec.shape_max for spec in self.inputs if spec.kind == "tensor"}

    def shapes(self, by_name: Mapping[str, Shape]) -> Shapes:
        """The shapes of the delegate's inputs, where inputs that are not named have their maximum shape."""
        live = self.shapes_max | {name: tuple(shape) for name, shape in by_name.items()}
        for spec in self.inputs:
            problem = spec.misfit(live[spec.name]) if spec.name in live else None
            if problem:
                raise InputError(f"{self.name}, {spec.name}: {problem}")
        graph = self.prepared.graph
        return tuple(
            live[self.inputs[position].name] if isinstance(value, Tensor) else None
            for value, position in zip(graph.inputs, self.taken, strict=True)
        )

    def planned(self, plans: Iterable[Shapes]) -> dict[str, list[Shape]]:
        """The different shapes of each input among those that have plans, by name."""
        listed = list(plans)
        names = [self.inputs[position].name for position in self.taken]
        found = {name: dict.fromkeys(each[at] for each in listed) for at, name in enumerate(names)}
        return {name: [shape for shape in shapes if shape is not None] for name, shapes in found.items()}

    def to_json(self, executable: Executable) -> Json:
        """What the index says of it: inputs with their planned shapes, outputs, the number of states."""
        planned = self.planned(executable.plans)
        return {
            "inputs": [
                _spec(spec, spec.name) | ({"planned": planned[spec.name]} if planned.get(spec.name) else {})
                for spec in self.inputs
            ],
            "outputs": [
                _spec(spec, spec.name or f"output_{place}") for place, spec in enumerate(self.outputs)
            ],
            "states": len(executable.states),
            "taken": self.taken,
            "given": self.given,
        }


def _spec(spec: ValueSpec, name: str) -> Json:
    if spec.kind != "tensor":
        return {"name": name, "kind": spec.kind}
    return {
        "name": name,
        "kind": "tensor",
        "dtype": str(spec.dtype),
        "shape": spec.shape_max,
        "dynamic": [dim for dim, is_free in enumerate(spec.dynamic) if is_free],
        "type": str(spec),
    }


def web_methods(program: Program, names: Sequence[str] | None) -> list[WebMethod]:
    """The methods that are named; by default all that are one delegate, at least one."""
    records = {name: program.record(name) for name in program.methods}
    unknown = [name for name in names or () if name not in records]
    if unknown:
        raise InputError(f"{program.file.name} has no method {unknown[0]!r}; it has {', '.join(records)}")
    problems = {name: _problem(record) for name, record in records.items()}
    wanted = [name for name in records if (name in names if names else problems[name] is None)]
    failing = names or (
        [] if wanted else [name for name, record in records.items() if record.inputs] or list(records)
    )
    for name in failing:
        if problems[name]:
            raise UnsupportedError(f"{program.file.name}, method {name}: {problems[name]}")
    return [_method(program, records[name]) for name in wanted]


def _problem(record: MethodRecord) -> str | None:
    """Why a method cannot run in a browser."""
    hosted = sorted(
        {record.operators[call.operator] for call in record.instructions if isinstance(call, KernelCall)}
    )
    if hosted:
        return (
            f"these operators run on the CPU, and a page has none of them: {', '.join(hosted)}; "
            "pteron.compile leaves fewer there"
        )
    if len(record.instructions) != 1 or not isinstance(record.instructions[0], DelegateCall):
        return "a page runs methods that are one delegate; this one has other instructions"
    return None


def _method(program: Program, record: MethodRecord) -> WebMethod:
    (call,) = record.instructions
    assert isinstance(call, DelegateCall)
    graph = program.graphs(record.name)[call.delegate]
    prepared = prepare(graph)
    if computed := [source for source in prepared.sources if source.program]:
        raise UnsupportedError(
            f"{program.file.name}, method {record.name}: an integer is computed from {computed[0]}; a page "
            "takes such integers straight from an input: pass this one as an input of the method"
        )
    inputs, outputs = describe(
        record, [Compiled(prepared, Target(shader_f16=True, binding_bytes_max=(1 << 32) - 4))]
    )
    taken, made = call.args[: len(graph.inputs)], call.args[len(graph.inputs) :]
    if not set(taken) <= set(record.inputs) or not set(record.outputs) <= set(made):
        raise UnsupportedError(
            f"{program.file.name}, method {record.name}: its delegate takes constants of the method, or an "
            "output is not the delegate's; export it with all of it in one delegate"
        )
    return WebMethod(
        record.name,
        prepared,
        inputs,
        outputs,
        tuple(record.inputs.index(id) for id in taken),
        tuple(made.index(id) for id in record.outputs),
    )
