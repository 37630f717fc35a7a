"""Graphs of linear layers whose products rewrites fuse, and the names of their operators."""

from __future__ import annotations

from typing import Any

from sketch import Sketch, plan_at

from pteron.dtypes import DType
from pteron.graph import Tensor
from pteron.ops import Target

LINEAR, FUSED, NORM = "et_vk.linear_q4gsw.default", "pteron.linear_q4", "et_vk.rms_norm.default"
DYNAMIC, QPARAMS = "et_vk.linear_dq8ca_q4gsw.default", "torchao.choose_qparams_affine.default"
FUSED_DYNAMIC = "pteron.linear_dq8ca_q4"
ADD, MUL, SIGMOID = "aten.add.Tensor", "aten.mul.Tensor", "aten.sigmoid.default"
VIEW, RELU, CLONE = "aten.view_copy.default", "aten.relu.default", "aten.clone.default"
GPU = Target(is_cpu=False, subgroup_size=32, workgroup_bytes_max=49152)


class Layer(Sketch):
    """Parts of a layer with rows of 64, three of them at most."""

    def __init__(self) -> None:
        super().__init__()
        self.x = self.tensor(1, 3, 64)

    def norm(self, x: Tensor) -> Tensor:
        out = self.tensor(*x.shape_max)
        self.node(NORM, x, self.constant(x.shape_max[-1]), 1e-5, out)
        return out

    def product(self, x: Tensor, columns: int = 64, group: int = 32, bias: Tensor | None = None) -> Tensor:
        depth = x.shape_max[-1]
        weights = self.constant(columns, depth // 2, dtype=DType.U8)
        scales = self.constant(depth // group, columns)
        out = self.tensor(*x.shape_max[:-1], columns)
        self.node(LINEAR, x, weights, scales, group, bias, out)
        return out

    def dynamic(
        self, x: Tensor, columns: int = 64, mapping: str = "ASYMMETRIC", bounds: tuple[int, int] = (-128, 127)
    ) -> Tensor:
        """A product of x as int8, with a scale and a zero point per row of its own."""
        rows, depth = x.shape_max[:-1], x.shape_max[-1]
        found = self.tensor(*rows), self.tensor(*rows, dtype=DType.I8)
        blocks = (1, 1, depth)
        rest = None, *bounds, None, None, None, False
        self.node(QPARAMS, x, mapping, blocks, *rest, self.list(*found))
        weights = self.constant(columns, depth // 2, dtype=DType.U8)
        sums = self.constant(2, columns, dtype=DType.I32)
        out = self.tensor(*rows, columns)
        self.node(DYNAMIC, x, *found, weights, sums, self.constant(depth // 32, columns), 32, None, out)
        return out

    def view(self, x: Tensor, *shape: int) -> Tensor:
        out = self.tensor(*shape)
        self.node(VIEW, x, shape, out)
        return out

    def apply(self, name: str, *inputs: Any) -> Tensor:
        out = self.tensor(*inputs[0].shape_max)
        self.node(name, *inputs, out)
        return out

    def gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return self.apply(MUL, self.apply(MUL, gate, self.apply(SIGMOID, gate)), up)

    def names(self, *outputs: Tensor) -> list[str]:
        """The operators of its calls, views left out; each plan is proven on the way."""
        compiled = self.prepare([self.x], outputs, GPU)
        plan_at(compiled)
        calls = compiled.prepared.each
        return [call.operator.name for call in calls if call.operator.name not in (VIEW, CLONE)]
