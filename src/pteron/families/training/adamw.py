"""A step of the optimiser AdamW: decoupled weight decay, bias-corrected moments.

The parameter and its moments are updated in place; the outputs are their new values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.ops import Dispatch, LiveShape, Operand, define, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _adamw_shape(param: Operand, m: Operand, v: Operand, grad: Operand, *_: float) -> tuple[LiveShape, ...]:
    same = param.shape == m.shape == v.shape == grad.shape
    require(same, "a parameter, its moments and its gradient must have one shape", param, m, v, grad)
    return param.shape, m.shape, v.shape


def adamw_step(param: Operand, m: Operand, v: Operand, grad: Operand, *arguments: Any) -> Iterator[Dispatch]:
    lr, beta1, beta2, eps, weight_decay, bias_correction1, bias_correction2, *outputs = arguments
    param_out, m_out, v_out = outputs
    require(bias_correction1 != 0 and bias_correction2 != 0, "a bias correction is a divisor and cannot be 0")
    yield Dispatch(
        kernel("adamw_step"),
        param=param,
        m=m,
        v=v,
        grad=grad,
        param_out=param_out,
        m_out=m_out,
        v_out=v_out,
        count=param.numel,
        decay=1 - lr * weight_decay,
        beta_first=beta1,
        rest_first=1 - beta1,
        beta_second=beta2,
        rest_second=1 - beta2,
        step=lr / bias_correction1,
        scale_second=1 / bias_correction2,
        epsilon=eps,
        threads=param.numel,
    )


# Exported graphs drop the namespace of operators that change tensors in place; runtimes register it.
for _name in ("et_vk.adamw_step.default", "adamw_step.default"):
    define(
        _name,
        "param! m! v! grad lr:float beta1:float beta2:float eps:float weight_decay:float "
        "bias_correction1:float bias_correction2:float -> param_out m_out v_out",
        shape=_adamw_shape,
        compute=adamw_step,
    )
