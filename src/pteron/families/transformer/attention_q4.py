"""An attention layer with 4-bit or 8-bit weights as one operator: the products that compute queries, keys
and values from x (optionally with an RMS norm and int8 activations), RoPE, the update of the KV caches,
attention, and optionally the output product and a residual.

Few rows take three launches if the device allows it: the first product also rotates and writes the caches,
and the last product also merges the splits of attention. Otherwise each step has its own launches, with
scratch memory between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pteron.families.attention.int8 import head_width
from pteron.families.attention.options import Options
from pteron.families.attention.rope_sdpa import checked_angles, head_norms, rotate_into_caches
from pteron.families.attention.sdpa import KVCache
from pteron.families.quantized import digits
from pteron.families.quantized.epilogue import Epilogue, RopeEpilogue
from pteron.families.quantized.formats import FORMATS
from pteron.families.quantized.products import Products, add_residual, sum_shape
from pteron.families.rope.rotate import Norm, Rotation
from pteron.ops import Dispatch, LiveShape, Operand, Target, numel, op, require

SPLITS_MAX = 16  # splits of attention: every workgroup of the last product merges all of them


def _query_shape(x: Operand, weights: Operand, bits: int, cache: Operand) -> LiveShape:
    """[batch, steps, heads, width], by the cache and the columns of queries."""
    require(cache.rank == 4, "caches are [batch, capacity, heads, width]", cache)
    batch, width = cache.shape[0], head_width(cache)
    shape = FORMATS[bits].shape(x, weights)
    rows, columns = numel(shape[:-1]), shape[-1]
    fits = batch > 0 and width > 0 and rows % batch == columns % width == 0
    require(fits, "x must have rows for each batch of the caches, and whole heads", x, weights, cache)
    return (batch, rows // batch, columns // width, width)


def _shape(*inputs: Any) -> LiveShape:
    x, _, _, (weights, *_), _, _, _, bits, *_ = inputs
    cache, o_weights, residual = inputs[16], inputs[-9], inputs[-1]
    query = _query_shape(x, weights, bits, cache)
    if o_weights is None:
        return query
    batch, steps, *_ = query
    shape = (batch, steps, o_weights.shape[0])
    assert residual is None or isinstance(residual, Operand)
    return shape if residual is None else sum_shape(shape, residual)


@op(
    "pteron.attention_q4",
    "x gain? eps:float weights:tensors scales:tensors biases:tensors? group_size:int bits:int "
    "minima:tensors? weight_sums:tensors? least:number? "
    "form:str cosines sines? start:int? end:int? key_cache! value_cache! start_pos:int "
    "attn_mask? is_causal:bool scale:float? window:int? softcap:float? sinks? slopes? "
    "query_weight? query_eps:float? key_weight? key_eps:float? "
    "out_weights? out_scales? out_bias? out_group_size:int? out_bits:int? out_minima? out_weight_sums? "
    "out_least:number? residual? "
    "-> out",
    shape=_shape,
)
def attention_q4(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """Attention over the results of the first three products, then the output product if there are weights
    for it. With `weight_sums`, products take x as int8, as in `pteron.linear_dq8ca_q4`."""
    products, rotation = Products(*arguments[:11]), Rotation(*arguments[11:16])
    mask, is_causal, options = *arguments[19:21], Options(*arguments[21:26])
    keys, values, start = arguments[16:19]
    cache = KVCache(keys, values, start, options.window)
    norms = head_norms(*arguments[26:30])
    *out_product, residual, out = arguments[30:]
    x, has_output = products.x, out_product[0] is not None
    rotated = x.scratch(_query_shape(x, products.weights[0], products.bits, cache.keys))
    yield from _project(products, rotated, rotation, cache, norms, target)
    batch, steps, heads, width = rotated.shape
    attended = x.scratch(rotated.shape) if has_output else out
    attention = cache.attention(rotated, mask, is_causal, options, attended)
    if not has_output:
        yield from attention.dispatches(target)
        return
    weights, scales, bias, group_size, bits, least_weights, sums, least = out_product
    rows = replace(attended, shape=(batch, steps, heads * width))
    biases, minima, known = (None if each is None else [each] for each in (bias, least_weights, sums))
    last = Products(rows, None, 0.0, [weights], [scales], biases, group_size, bits, minima, known, least)
    packed = last.in_one_launch(target)
    splits = attention.in_splits(target, SPLITS_MAX) if packed and width % 8 == 0 else None
    if packed is None or splits is None:
        yield from attention.dispatches(target)
        yield from last.dispatches((out,), residual, target)
        return
    dispatch, parts, count = splits
    yield dispatch
    source = digits.Splits(parts, count, width, steps)

    def launch(out: Operand, added: Operand | None) -> list[Dispatch]:
        return [last.launch(packed, Epilogue((out,), last.bias, added), target, source)]

    yield from add_residual((batch, steps, weights.shape[0]), residual, out, launch)


def _project(
    products: Products,
    rotated: Operand,
    rotation: Rotation,
    cache: KVCache,
    norms: tuple[Norm, Norm] | None,
    target: Target,
) -> Iterator[Dispatch]:
    """Write queries to `rotated`, and keys and values to the caches."""
    key = replace(rotated, shape=(*rotated.shape[:2], cache.keys.shape[2], rotated.shape[3]))
    of_keys, of_values = (matrix.shape[0] for matrix in products.weights[1:])
    fits = of_keys == of_values == numel(key.shape[2:])
    require(fits, "keys and values must have the columns of their caches", *products.weights, cache.keys)
    by = checked_angles(rotated, key, key, rotation, cache)
    landed = cache.landing(key)
    epilogue = RopeEpilogue(by, rotated, landed.keys, landed.values, landed.start, landed.ring, products.bias)
    buffers = products.factors + (products.gain is not None) + epilogue.buffers
    can_rotate = norms is None and rotated.shape[3] % 2 == 0 and buffers <= target.buffers_max
    packed = products.in_one_launch(target) if can_rotate else None
    if packed:
        yield products.launch(packed, epilogue, target)
        yield from cache.pack(landed)
        return
    shapes = rotated.shape, key.shape, key.shape
    made = tuple(products.x.scratch((*shape[:2], shape[2] * shape[3])) for shape in shapes)
    yield from products.dispatches(made, None, target)
    query, keys, values = (replace(each, shape=shape) for each, shape in zip(made, shapes, strict=True))
    yield from rotate_into_caches(query, keys, values, rotated, by, cache, norms, target)
