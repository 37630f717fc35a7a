"""An attention layer with 4-bit weights as one operator: the products that compute queries, keys and values
from x (optionally with an RMS norm and int8 activations), RoPE, the update of the KV caches, attention, and
optionally the output product and a residual.

Few rows take three launches if the device allows it: the first product also rotates and writes the caches,
and the last product also merges the splits of attention. Otherwise each step has its own launches, with
scratch memory between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pteron.families.attention.kernels import Attention
from pteron.families.attention.rope_sdpa import head_norms, rotate_into_caches
from pteron.families.attention.sdpa import check_cached
from pteron.families.quantized import digits
from pteron.families.quantized.ends import Ends, RotatedEnds
from pteron.families.quantized.linear_q4 import linear_shape
from pteron.families.quantized.products import Products, apart, sum_shape
from pteron.families.rope.rotate import Norm, Rotation
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import AnyInt, Dispatch, Operand, Target, op, require

SPLITS_MAX = 16  # splits of attention: every workgroup of the last product merges all of them


def _query_shape(x: Operand, weights: Operand, cache: Operand) -> Shape:
    """[batch, steps, heads, width], by the cache and the columns of queries."""
    require(cache.rank == 4, "caches are [batch, capacity, heads, width]", cache)
    batch, _, _, width = cache.shape
    shape = linear_shape(x, weights)
    rows, columns = numel(shape[:-1]), shape[-1]
    fits = batch > 0 and width > 0 and rows % batch == columns % width == 0
    require(fits, "x must have rows for each batch of the caches, and whole heads", x, weights, cache)
    return (batch, rows // batch, columns // width, width)


def _shape(*inputs: Any) -> Shape:
    x, _, _, (weights, *_), *_ = inputs
    cache, o_weights, residual = inputs[14], inputs[-7], inputs[-1]
    query = _query_shape(x, weights, cache)
    if o_weights is None:
        return query
    batch, steps, *_ = query
    shape = (batch, steps, o_weights.shape[0])
    assert residual is None or isinstance(residual, Operand)
    return shape if residual is None else sum_shape(shape, residual)


@op(
    "pteron.attention_q4",
    "x gain? eps:float weights:tensors scales:tensors biases:tensors? group_size:int "
    "weight_sums:tensors? least:number? "
    "form:str cosines sines? start:int? end:int? key_cache! value_cache! start_pos:int "
    "attn_mask? is_causal:bool scale:float? query_weight? query_eps:float? key_weight? key_eps:float? "
    "out_weights? out_scales? out_bias? out_group_size:int? out_weight_sums? out_least:number? residual? "
    "-> out",
    shape=_shape,
)
def attention_q4(
    x: Operand,
    gain: Operand | None,
    eps: float,
    weights: Sequence[Operand],
    scales: Sequence[Operand],
    biases: Sequence[Operand] | None,
    group_size: AnyInt,
    weight_sums: Sequence[Operand] | None,
    least: float | None,
    form: str,
    cosines: Operand,
    sines: Operand | None,
    start: AnyInt | None,
    end: AnyInt | None,
    key_cache: Operand,
    value_cache: Operand,
    start_pos: AnyInt,
    attn_mask: Operand | None,
    is_causal: bool,
    scale: float | None,
    query_weight: Operand | None,
    query_eps: float | None,
    key_weight: Operand | None,
    key_eps: float | None,
    out_weights: Operand | None,
    out_scales: Operand | None,
    out_bias: Operand | None,
    out_group_size: AnyInt | None,
    out_weight_sums: Operand | None,
    out_least: float | None,
    residual: Operand | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """Attention over the results of the first three products, then the output product if there are weights
    for it. With `weight_sums`, products take x as int8, as in `pteron.linear_dq8ca_q4`."""
    products = Products(x, gain, eps, weights, scales, biases, group_size, weight_sums, least)
    rotated = x.scratch(_query_shape(x, weights[0], key_cache))
    rotation = Rotation(form, cosines, sines, start, end)
    norms = head_norms(query_weight, query_eps, key_weight, key_eps)
    yield from _project(products, rotated, rotation, key_cache, value_cache, start_pos, norms, target)
    batch, steps, heads, width = rotated.shape
    attended = x.scratch(rotated.shape) if out_weights is not None else out
    attention = Attention(
        rotated, key_cache, value_cache, attended, start_pos + steps, attn_mask, scale, start_pos, is_causal
    )
    if out_weights is None:
        yield from attention.dispatches(target)
        return
    assert out_scales is not None
    assert out_group_size is not None
    rows = replace(attended, shape=(batch, steps, heads * width))
    factors = ([out_weights], [out_scales], None if out_bias is None else [out_bias], out_group_size)
    out_sums = None if out_weight_sums is None else [out_weight_sums]
    last = Products(rows, None, 0.0, *factors, out_sums, out_least)
    packed = last.in_one_launch(target)
    splits = attention.in_splits(target, SPLITS_MAX) if packed and width % 8 == 0 else None
    if packed is None or splits is None:
        yield from attention.dispatches(target)
        yield from last.into((out,), residual, target)
        return
    dispatch, parts, count = splits
    yield dispatch
    source = digits.Splits(parts, count, width, steps)
    shape = (batch, steps, out_weights.shape[0])
    if residual and (by_itself := apart(shape, residual, out)):
        alone, total = by_itself
        yield last.launch(packed, Ends((alone,), last.bias), target, source)
        yield from total
    else:
        yield last.launch(packed, Ends((out,), last.bias, residual), target, source)


def _project(
    products: Products,
    rotated: Operand,
    rotation: Rotation,
    key_cache: Operand,
    value_cache: Operand,
    place: AnyInt,
    norms: tuple[Norm, Norm] | None,
    target: Target,
) -> Iterator[Dispatch]:
    """Write queries to `rotated`, and keys and values to the caches from step `place` on."""
    key = replace(rotated, shape=(*rotated.shape[:2], *key_cache.shape[2:]))
    of_keys, of_values = (matrix.shape[0] for matrix in products.weights[1:])
    fits = of_keys == of_values == numel(key.shape[2:])
    require(fits, "keys and values must have the columns of their caches", *products.weights, key_cache)
    check_cached(rotated, key, key, key_cache, value_cache, place)
    by = rotation.angles(rotated)
    rotation.angles(key)  # the same, but for its checks
    ends = RotatedEnds(by, rotated, key_cache, value_cache, place, products.bias)
    buffers = 3 + (products.gain is not None) + ends.buffers  # x, weights and scales besides
    can_rotate = norms is None and rotated.shape[3] % 2 == 0 and buffers <= target.buffers_max
    packed = products.in_one_launch(target) if can_rotate else None
    if packed:
        yield products.launch(packed, ends, target)
        return
    shapes = rotated.shape, key.shape, key.shape
    made = tuple(products.x.scratch((*shape[:2], shape[2] * shape[3])) for shape in shapes)
    yield from products.into(made, None, target)
    query, keys, values = (replace(each, shape=shape) for each, shape in zip(made, shapes, strict=True))
    yield from rotate_into_caches(
        query, keys, values, rotated, rotation, key_cache, value_cache, place, norms, target
    )
