"""Products of one x with several matrices of 4-bit or 8-bit weights, with an RMS norm, int8 activations, a
gate or a residual: the launches by the number of rows and the device (docs/kernels-quantized.md).

Few rows take one launch if the device allows it. For many rows, norm and int8 conversion are one launch.
Software adapters launch the steps one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.families.elementwise.binary import apply_binary
from pteron.families.linear.product import ROWS_FEW
from pteron.families.norm.norm import rms_norm
from pteron.families.quantized import digits, tiled_q4
from pteron.families.quantized.epilogue import Epilogue, RopeEpilogue
from pteron.families.quantized.formats import FORMATS, check_bias, linear_shape, sums_of
from pteron.families.quantized.linear_q4 import linear_dq8ca_q4gsw, product
from pteron.families.quantized.packing import PackedWeights
from pteron.families.quantized.qparams import choose_rows
from pteron.families.quantized.tiled_q4 import Int8, can_quantize_rows, quantize_rows
from pteron.graph import Tensor
from pteron.ops import (
    OPERATORS,
    AnyInt,
    Dispatch,
    LiveShape,
    Operand,
    Scratch,
    Target,
    Weight,
    most,
    numel,
    op,
    require,
)
from pteron.ops.operand import joined
from pteron.ops.shapes import broadcast


@dataclass(frozen=True, slots=True)
class Products:
    """x, normed if there is a gain, times several matrices of one depth, with minima of their groups or
    without. With `weight_sums`, x becomes int8 by the extremes of each row, with scales of at least
    `least`."""

    x: Operand
    gain: Operand | None
    eps: float
    weights: Sequence[Operand]
    scales: Sequence[Operand]
    biases: Sequence[Operand] | None
    group_size: AnyInt
    bits: int = 4  # of a weight
    minima: Sequence[Operand] | None = None
    weight_sums: Sequence[Operand] | None = None
    least: float | None = None

    @property
    def factors(self) -> int:
        """Buffers: x, weights, scales and perhaps minima."""
        return 3 if self.minima is None else 4

    @property
    def bias(self) -> Operand | Weight | None:
        return _joined_biases(self.weights, self.biases)

    def in_one_launch(self, target: Target) -> PackedWeights | None:
        """All weights, if the kernel for few rows can run; or None."""
        packed = _joined_weights(self._matrices)
        return packed if self._are_few(packed, target) else None

    def launch(
        self,
        packed: PackedWeights,
        epilogue: Epilogue | RopeEpilogue,
        target: Target,
        splits: digits.Splits | None = None,
        *,
        is_gated: bool = False,
    ) -> Dispatch:
        """That launch, for x or for unmerged splits of attention."""
        least = self._least if self.weight_sums is not None else None
        options: dict[str, Any] = {"gain": self.gain, "eps": self.eps, "least": least, "is_gated": is_gated}
        return digits.product(splits or self.x, packed, epilogue, target, **options)

    def dispatches(
        self, outputs: tuple[Operand, ...], residual: Operand | None, target: Target, is_gated: bool = False
    ) -> Iterator[Dispatch]:
        """The launches for x on this device. Only a single product without a gate can have a residual."""
        if residual is None:
            return self._dispatches(outputs, None, target, is_gated)
        shape, (out,) = FORMATS[self.bits].shape(self.x, self.weights[0]), outputs
        return add_residual(
            shape, residual, out, lambda out, added: self._dispatches((out,), added, target, False)
        )

    def _dispatches(
        self, outputs: tuple[Operand, ...], residual: Operand | None, target: Target, is_gated: bool
    ) -> Iterator[Dispatch]:
        epilogue = Epilogue(outputs, self.bias, residual)
        matrices = self._matrices
        packed = _joined_weights(matrices)
        if self._are_few(packed, target):
            yield self.launch(packed, epilogue, target, is_gated=is_gated)
            return
        is_bound, is_tiled = packed.fits(target), self._rows > ROWS_FEW and not target.is_cpu
        sums = self._sums
        words = Int8(Scratch(2 * self._rows), None, sums, Scratch(self.x.numel // 4, Storage.U32))
        if is_bound and is_tiled and can_quantize_rows(target, self.x) and words.is_packed(packed):
            yield quantize_rows(self.x, self.gain, self.eps, self._least, words, target)
            yield from tiled_q4.product(self.x, packed, epilogue, target, words, is_gated=is_gated)
            return
        source = self.x
        if self.gain is not None:
            source = self.x.scratch()
            yield from rms_norm(self.x, self.gain, self.eps, source, target=target)
        int8 = None
        if self.weight_sums is not None:
            rows, depth = self._rows, self.x.shape[-1]
            scale, zero = (_row_scratch(dtype, rows, target) for dtype in (DType.F32, DType.I8))
            yield from choose_rows(source, rows, depth, (-128.0, 127.0), self._least, {}, scale, zero, target)
            int8 = Int8(scale, zero, sums)
        if is_bound and is_gated and is_tiled:
            yield from tiled_q4.product(source, packed, epilogue, target, int8, is_gated=True)
            return
        made = (outputs[0].scratch(), outputs[0].scratch()) if is_gated else outputs
        bound = sum(each is not None for each in (self.bias, residual, *made))
        bound += 5 if int8 else self.factors  # with int8 also the scales and zero points of x
        if is_bound and bound <= target.buffers_max:
            yield from product(source, packed, Epilogue(made, self.bias, residual), target, int8)
        else:  # matrix by matrix
            for index, (matrix, output) in enumerate(zip(matrices, made, strict=True)):
                alone = Epilogue((output,), self.biases[index] if self.biases else None, residual)
                yield from product(source, matrix, alone, target, int8 and Int8(int8.scales, int8.zeros))
        if is_gated:
            yield from OPERATORS["pteron.silu_mul"].compute(*made, *outputs)

    def _are_few(self, packed: PackedWeights, target: Target) -> bool:
        return packed.fits(target) and digits.suits(target, self._rows, packed)

    @property
    def _rows(self) -> AnyInt:
        return self.x.numel // self.x.shape[-1] if self.x.shape[-1] else 0

    @property
    def _matrices(self) -> list[PackedWeights]:
        minima: Sequence[Operand | None] = self.minima or [None] * len(self.weights)
        parts = zip(self.weights, self.scales, minima, strict=True)
        return [FORMATS[self.bits].packed(self.x, *part, self.group_size) for part in parts]

    @property
    def _sums(self) -> Weight | None:
        """The sums of all groups of weights, or None if some are unknown."""
        pairs = zip(self.weight_sums or (), self.weights, strict=self.weight_sums is not None)
        found = [sums_of(*pair, self.group_size, self.x.shape[-1]) for pair in pairs]
        known = [each for each in found if each is not None]
        return joined(known) if len(known) == len(self.weights) else None

    @property
    def _least(self) -> float:
        return float(np.finfo(np.float32).smallest_normal) if self.least is None else self.least


def _joined_weights(matrices: Sequence[PackedWeights]) -> PackedWeights:
    """Matrices of one depth, one below the other, as one."""
    weights, scales = [words.weights for words in matrices], [words.scales for words in matrices]
    minima = [words.minima for words in matrices if words.minima is not None]
    return replace(
        matrices[0],
        weights=joined(weights),
        scales=joined(scales),
        minima=joined(minima) if minima else None,
        columns=sum(words.columns for words in matrices),
    )


def _joined_biases(weights: Sequence[Operand], biases: Sequence[Operand] | None) -> Operand | Weight | None:
    if biases is None:
        return None
    pairs = list(zip(biases, weights, strict=True))
    for bias, matrix in pairs:
        check_bias(bias, matrix)
    if len(pairs) == 1:
        return biases[0]
    return joined([bias.part(0, 0, matrix.shape[0]) for bias, matrix in pairs])


def _row_scratch(dtype: DType, count: AnyInt, target: Target) -> Operand:
    """A value per row, between the launches of one call."""
    storage = target.storage(dtype)
    return Operand(Tensor(-1, dtype, (most(count),)), (count,), storage, Scratch(count, storage))


def sum_shape(product: LiveShape, addend: Operand) -> LiveShape:
    return broadcast(_at_rank_of(addend, product), addend.shape)


def add_residual(
    product: LiveShape,
    residual: Operand | None,
    out: Operand,
    launches: Callable[[Operand, Operand | None], Iterable[Dispatch]],
) -> Iterator[Dispatch]:
    """The launches of a product, which adds the residual in its epilogue. If one of both broadcasts against
    the other, the launches of the product alone, then of the sum."""
    shape = _at_rank_of(residual, product) if residual else product
    if residual is None or numel(shape) == residual.numel == out.numel:
        yield from launches(out, residual)
        return
    alone = out.scratch(shape)
    yield from launches(alone, None)
    yield from apply_binary("a + b", alone, residual, out)


def _at_rank_of(addend: Operand, product: LiveShape) -> LiveShape:
    """The product's shape at the rank of the addend: leading ones are added or removed."""
    extra = len(product) - addend.rank
    fits = all(size == 1 for size in product[: max(0, extra)])
    require(fits, f"a product {list(product)} must have {addend.rank} dims, as the addend", addend)
    return (1,) * -extra + product[max(0, extra) :]


def _shapes(*inputs: Any) -> list[LiveShape]:
    x, _, _, weights, _, _, _, bits, *_, residual, gated = inputs
    found = [FORMATS[bits].shape(x, matrix) for matrix in weights]
    if residual is not None:
        (shape,) = found
        return [sum_shape(shape, residual)]
    alike = all(shape == found[0] for shape in found[1:])
    require(not gated or (alike and len(found) > 1), "gate and value must have one shape", x, *weights)
    return found[:1] if gated else found


@op(
    "pteron.linear_q4",
    "x gain? eps:float weights:tensors scales:tensors biases:tensors? group_size:int bits:int "
    "minima:tensors? residual? gated:bool -> out:tensors",
    shape=_shapes,
)
def linear_q4(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """x, normalised if there is a gain, times each matrix, plus its bias; if gated, silu(first) · second.
    Only a single product without a gate can have a residual."""
    residual, is_gated, *outputs = arguments[9:]
    yield from Products(*arguments[:9]).dispatches(tuple(outputs), residual, target, is_gated=is_gated)


@op(
    "pteron.linear_dq8ca_q4",
    "x gain? eps:float weights:tensors scales:tensors biases:tensors? group_size:int weight_sums:tensors "
    "least:float? residual? gated:bool -> out:tensors",
    shape=lambda *inputs: _shapes(*inputs[:7], 4, *inputs[7:]),
)
def linear_dq8ca_q4(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """The same with x as int8 by the extremes of each row; `least` is the smallest scale."""
    residual, is_gated, *outputs = arguments[9:]
    products = Products(*(*arguments[:7], 4, None, *arguments[7:9]))
    yield from products.dispatches(tuple(outputs), residual, target, is_gated=is_gated)


@op(
    "pteron.linear_dq8ca_q4_add",
    "x x_scales x_zeros weights weight_sums weight_scales group_size:int bias? residual -> out",
    shape=lambda x, x_scales, x_zeros, weights, *rest: sum_shape(linear_shape(x, weights), rest[-1]),
)
def linear_dq8ca_q4_add(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """The product of x as int8, by given scales and zero points, plus a residual."""
    *inputs, residual, out = arguments
    yield from add_residual(
        linear_shape(inputs[0], inputs[3]),
        residual,
        out,
        lambda out, added: linear_dq8ca_q4gsw(*inputs, out, added, target=target),
    )
