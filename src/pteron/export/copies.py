"""Copies of programs: the passes of PyTorch and ExecuTorch change their arguments. Weights are shared."""

from __future__ import annotations

import copy

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import SymIntArgument, TensorArgument
from torch.fx import GraphModule


def copied(exported: ExportedProgram) -> ExportedProgram:
    """A copy of a program."""
    module = copied_graph(exported.graph_module)
    signature = copy.deepcopy(exported.graph_signature)
    pairs = zip(exported.graph.nodes, module.graph.nodes, strict=True)
    names = {old.name: new.name for old, new in pairs}  # a copy renames nodes named like builtins
    for spec in (*signature.input_specs, *signature.output_specs):
        if isinstance(spec.arg, (TensorArgument, SymIntArgument)):
            spec.arg.name = names[spec.arg.name]
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=signature,
        state_dict=dict(exported.state_dict),
        range_constraints=dict(exported.range_constraints),
        module_call_graph=copy.deepcopy(exported.module_call_graph),
        constants=dict(exported.constants),
        verifiers=[exported.verifier],
    )


def copied_graph(module: GraphModule) -> GraphModule:
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return GraphModule(module, graph)
