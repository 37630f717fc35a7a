"""A graph that Dynamo captured -> its kinds of inputs, and a module for torch.export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule


class Capture:
    """A captured graph; inputs are identified by position."""

    def __init__(self, graph_module: GraphModule) -> None:
        import torch

        self.graph_module = graph_module
        self.name = graph_module._get_name()
        self._placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self._examples = [node.meta.get("example_value") for node in self._placeholders]
        # Symbol of a dynamic dim -> (position, dim) of a tensor that has it.
        self._sizes: dict[Any, tuple[int, int]] = {}
        for position, example in enumerate(self._examples):
            if isinstance(example, torch.Tensor):
                for dim, size in enumerate(example.shape):
                    if isinstance(size, torch.SymInt):
                        self._sizes.setdefault(size.node.expr, (position, dim))

    def constants(self, inputs: Sequence[Any]) -> dict[int, bool]:
        """Positions of parameters (True) and buffers (False). Inference tensors are neither: they have no
        version counter."""
        import torch

        return {
            position: isinstance(value, torch.nn.Parameter)
            for position, (node, value) in enumerate(zip(self._placeholders, inputs, strict=True))
            if isinstance(value, torch.Tensor)
            and not value.is_inference()
            and "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})
        }

    def live_tensors(self, inputs: Sequence[Any], constants: Sequence[int]) -> list[int]:
        """Positions of tensors that are inputs of each call."""
        import torch

        known = set(constants)
        return [
            position
            for position, value in enumerate(inputs)
            if isinstance(value, torch.Tensor) and position not in known
        ]

    def size_of(self, position: int) -> tuple[int, int] | None:
        """The (position, dim) of a tensor whose size this integer input is."""
        import torch

        example = self._examples[position]
        return self._sizes.get(example.node.expr) if isinstance(example, torch.SymInt) else None

    def free_numbers(self, inputs: Sequence[Any]) -> dict[int, int]:
        """Integers that are not the size of a tensor: they are constants of a program."""
        import torch

        return {
            position: value
            for position, value in enumerate(inputs)
            if not isinstance(value, torch.Tensor) and self.size_of(position) is None
        }

    def dynamic_dims(self, position: int, tensor: torch.Tensor) -> dict[int, Any]:
        """torch.export's description of dims that Dynamo marked as dynamic. The default maximum is twice the
        current size, rounded up to a power of two: above it the graph is lowered again."""
        import torch
        from torch.export import Dim
        from torch.utils._sympy.numbers import int_oo

        example = self._examples[position]
        dims = {}
        for dim, (known, size) in enumerate(zip(example.shape, tensor.shape, strict=True)):
            if isinstance(known, torch.SymInt):
                range = known.node.shape_env.bound_sympy(known.node.expr)
                most = 1 << (2 * size - 1).bit_length() if range.upper >= int_oo else int(range.upper)
                dims[dim] = Dim.AUTO(min=int(range.lower), max=max(most, size))
        return dims


def buffer_name(position: int) -> str:
    return f"constant_{position}"


def buffer_position(name: str) -> int:
    return int(name.removeprefix("constant_"))


def make_module(
    capture: Capture, inputs: Sequence[Any], constants: Sequence[int], live: Sequence[int]
) -> torch.nn.Module:
    """The graph as a module whose inputs are the live tensors: constants are buffers, sizes are read from the
    tensors, other integers are constants."""
    import torch

    sizes = {
        position: size
        for position in range(len(inputs))
        if (size := capture.size_of(position)) is not None and size[0] in live
    }

    class Captured(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.graph = capture.graph_module
            for position in constants:
                self.register_buffer(buffer_name(position), inputs[position].detach())

        def forward(self, *tensors: torch.Tensor) -> Any:
            arguments = list(inputs)
            for position in constants:
                arguments[position] = getattr(self, buffer_name(position))
            for position, tensor in zip(live, tensors, strict=True):
                arguments[position] = tensor
            for position, (tensor_position, dim) in sizes.items():
                arguments[position] = arguments[tensor_position].shape[dim]
            return self.graph(*arguments)

    return Captured()
