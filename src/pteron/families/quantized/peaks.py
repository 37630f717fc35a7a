"""Products with 4-bit weights that are outputs of a graph, such as a language model's logits. For a single
row the kernel for few rows also writes the maximum of each block of columns (its peak), so that greedy
sampling (`pteron.llm.sampling`) reads the peaks and not all logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.families.quantized import digits
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.formats import FORMATS
from pteron.families.quantized.products import Products
from pteron.graph import Constant, Tensor, ValueList
from pteron.ops import OPERATORS, Call, Dispatch, Target, op
from pteron.ops.rewrite import Flow, Replacement, rewrite

COLUMNS_MIN = 4096  # for fewer, reading all logits is fast enough
BLOCKS_MAX = 1024  # with more, peaks save nothing
PEAK_BYTES = 16  # of a subgroup's peak in workgroup memory


@op(
    "pteron.linear_q4_peaks",
    "x gain? eps:float weights scales bias? group_size:int bits:int minima? peaks! -> out",
    shape=lambda x, _, eps, weights, *rest: FORMATS[rest[3]].shape(x, weights),
)
def linear_q4_peaks(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """`pteron.linear_q4` of one matrix. `peaks` is only written if the kernel for few rows computes a single
    row; `Recording.peaks` knows this from the plan. f16 results have no peaks: a compiler may compare with
    more bits than it stores, so equal stored values could differ."""
    x, gain, eps, *factors, group_size, bits, least, peaks, out = arguments
    weights, scales, biases, minima = (None if each is None else [each] for each in (*factors, least))
    bias = factors[-1]
    products = Products(x, gain, eps, weights or [], scales or [], biases, group_size, bits, minima)
    packed = products.in_one_launch(target, PEAK_BYTES)
    if packed and x.numel == x.shape[-1] and out.storage is Storage.F32:
        blocks = -(-packed.columns // digits.layout_of(target, packed, 1).columns_at_once)
        if blocks <= min(peaks.shape[0], target.workgroups_max):
            yield products.launch(packed, Epilogue((out,), bias, peaks=peaks), target)
            return
    yield from products.dispatches((out,), None, target)


@rewrite("linear_peaks")
def linear_peaks(flow: Flow) -> Iterator[Replacement]:
    """A product that is an output of the graph and has as many columns as a vocabulary."""
    for call in flow.of("pteron.linear_q4"):
        (*inputs, residual, gated), outputs = call.inputs, call.outputs
        x, gain, eps, weights, scales, biases, group_size, bits, minima = inputs
        out = outputs[0]
        if len(outputs) > 1 or residual is not None or gated or not isinstance(out, Tensor):
            continue
        if out.id in flow.outputs and out.shape_max[-1] >= COLUMNS_MIN:
            *parts, least = (
                each.items[0] if isinstance(each, ValueList) else None
                for each in (weights, scales, biases, minima)
            )
            new = (x, gain, eps, *parts, group_size, bits, least, _state(flow.new_id()))
            yield Replacement((call,), Call(call.node, OPERATORS["pteron.linear_q4_peaks"], new, outputs))


def _state(id: int) -> Tensor:
    """A state for the peaks of at most BLOCKS_MAX blocks."""
    shape = (BLOCKS_MAX, 4)
    zeros = memoryview(np.zeros(shape, np.int32).tobytes())
    return Tensor(id, DType.I32, shape, Constant("peaks", DType.I32, shape, zeros))
