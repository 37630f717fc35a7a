"""A module that torch.export cannot trace, as a callable: its Python code runs, and Dynamo captures the
graphs between branches on values. Each is compiled as `torch.compile(backend="pteron")` does."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from pteron.errors import LoweringError
from pteron.export.compiled import CompiledModule, Report
from pteron.export.dynamo import CapturedGraph, backend
from pteron.export.lowering import in_inference
from pteron.runtime import Program
from pteron.runtime.pending import Pending


class CapturedModule(CompiledModule):
    """A compiled module whose Python code runs in each call. It writes to the buffers of the original module,
    and cannot be saved."""

    was_cached = False

    def __init__(self, module: torch.nn.Module, options: Mapping[str, Any], reason: str) -> None:
        self.name, self.reason, self._module = type(module).__name__, reason, module
        self.graphs: list[CapturedGraph] = []

        def keep(graph_module: torch.fx.GraphModule, example_inputs: Sequence[object]) -> CapturedGraph:
            self.graphs.append(backend(graph_module, example_inputs, options=options))
            return self.graphs[-1]

        self._call = torch.compile(module, backend=keep)

    def submit(self, *args: object, **kwargs: object) -> Pending[Any]:
        """Its Python code needs the outputs of graphs, so the call ends before this returns."""
        with torch.no_grad(), in_inference(self._module):
            found = self._call(*args, **kwargs)
        return Pending(lambda: found)

    @property
    def compiled(self) -> list[CompiledModule]:
        """The programs of all graphs."""
        return [compiled for graph in self.graphs for compiled in graph.programs]

    @property
    def program(self) -> Program:
        raise LoweringError(f"{self.name} is not one program: {self.reason}")

    @property
    def report(self) -> Report:
        reports = [compiled.report for compiled in self.compiled]
        eager: Counter[str] = Counter()
        for graph in self.graphs:
            if graph.is_eager:
                eager.update(graph.capture.operators)
        return Report.of_parts(reports, eager, lambda _: "its graph cannot be lowered")

    def save(self, path: str | os.PathLike[str]) -> None:
        raise LoweringError(f"{self.name} cannot be saved: {self.reason}")

    def reset(self) -> None:
        """Do nothing: the buffers are the module's."""

    def sequence(self) -> CompiledModule:
        raise LoweringError(
            f"{self.name} writes to the module's own buffers, so it is one sequence: {self.reason}"
        )

    def close(self) -> None:
        for compiled in self.compiled:
            compiled.close()

    def __str__(self) -> str:
        return f"{self!r}\n  {self.summary()}\n{self.report}"

    def summary(self) -> str:
        """How many graphs run on the GPU, and why there are several."""
        graphs = f"{len(self.graphs)} graph{'' if len(self.graphs) == 1 else 's'}"
        return f"Python code with {graphs}: {self.reason}"


def capture(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
    failure: LoweringError,
) -> CapturedModule:
    """The module, called once with the example inputs. Raises `failure` if it does not run in eager mode."""
    made = CapturedModule(module, options, str(failure))
    buffers = [
        (part, name, buffer, buffer.clone())
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
    ]
    try:
        args, kwargs = tree_map_only(torch.Tensor, torch.clone, (tuple(args), dict(kwargs)))
        made(*args, **kwargs)
    except Exception as error:
        raise failure from error
    finally:
        with torch.no_grad():
            for part, name, buffer, before in buffers:  # Dynamo may replace buffers that are written to
                setattr(part, name, buffer.copy_(before))
    return made
