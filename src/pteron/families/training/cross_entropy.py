"""Cross entropy of logits and labels, and its gradient, in one operator.

A row with a negative label is ignored: it adds nothing to the loss, and its gradient is zero. A label past
the last class makes the loss NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.families.reduce.fold import LARGEST, SUM, fold, strided_rows
from pteron.ops import Dispatch, Indices, LiveShape, Operand, Scratch, Target, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _loss_shapes(logits: Operand, labels: Operand, n_valid: float) -> tuple[LiveShape, LiveShape]:
    require(logits.rank == 2, "logits must be [rows, classes]", logits)
    require(labels.shape == logits.shape[:1], "there must be one label per row", logits, labels)
    return (), logits.shape


@op("et_vk.fused_ce.default", "logits labels n_valid:float -> loss dlogits", shape=_loss_shapes)
def fused_ce(
    logits: Operand, labels: Operand, n_valid: float, loss: Operand, dlogits: Operand, *, target: Target
) -> Iterator[Dispatch | Indices]:
    """loss = Σ (log Σ exp(row) - row[label]) / n_valid, over rows, and
    dlogits = (softmax(row) - onehot(label)) / n_valid, their derivative."""
    rows, classes = logits.shape
    require(not labels.dtype.is_float, "labels must be integers", labels)
    require(classes > 0 or rows == 0, "logits must have at least one class", logits)
    yield Indices(labels, -(1 << 31), classes - 1)
    rows_of_logits = strided_rows(logits, rows, classes)
    most, total, losses = (Scratch(max(rows, 1)) for _ in range(3))
    yield from fold(rows_of_logits, most, target, LARGEST)
    yield from fold(rows_of_logits, total, target, SUM, take="exp(value - of_row[row])", of_row=most)
    given: dict[str, Any] = {
        "logits": logits,
        "labels": labels,
        "most": most,
        "total": total,
        "rows": rows,
        "classes": classes,
        "n_valid": n_valid,
    }
    yield Dispatch(kernel("cross_entropy"), losses=losses, count=rows, **given, threads=rows)
    yield from fold(strided_rows(losses, 1, rows), loss, target, SUM)
    yield Dispatch(
        kernel("cross_entropy"),
        slopes=dlogits,
        count=logits.numel,
        **given,
        threads=logits.numel,
    )
