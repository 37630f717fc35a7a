"""What becomes of the sums of a product with weights of few bits (lib/q4_result.wgsl): what is added to
them, and the outputs that they go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pteron.ops import Operand, Weight

# Where columns beyond those of the first output go, by the number of outputs less two.
_OTHERS = (
    "out_b[m * WIDTH_B + n] = R(value);",
    "if (n < WIDTH_B) { out_b[m * WIDTH_B + n] = R(value); } "
    "else { out_c[m * (OTHERS - WIDTH_B) + n - WIDTH_B] = R(value); }",
)


@dataclass(frozen=True, slots=True)
class Ends:
    """One output or up to three, whose columns lie side by side, and what is added on the way there."""

    outputs: tuple[Operand, ...]
    bias: Operand | Weight | None = None
    residual: Operand | None = None  # of the shape of the only output

    @property
    def count(self) -> int:
        """Elements of all outputs."""
        return sum(out.numel for out in self.outputs)

    @property
    def declarations(self) -> dict[str, Any]:
        terms = ["f32(bias[n])"] if self.bias else []
        terms += ["f32(residual[m * params.columns + n])"] if self.residual else []
        declarations: dict[str, Any] = {"added": " + ".join(terms) or "0.0"}
        if len(self.outputs) > 1:
            _, *others = (out.shape[-1] for out in self.outputs)
            declarations |= {
                "OTHERS": sum(others),
                "WIDTH_B": others[0],
                "store_other": _OTHERS[len(others) - 1],
            }
        return declarations

    @property
    def operands(self) -> dict[str, Any]:
        outputs = dict(zip(("out", "out_b", "out_c"), self.outputs, strict=False))
        return {**outputs, "bias": self.bias, "residual": self.residual}
