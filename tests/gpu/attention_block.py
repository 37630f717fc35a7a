"""A decoder layer up to its attention as one operator: arguments, oracle and check."""

from __future__ import annotations

from typing import Any

from arguments import Argument, Symbol, tensor, weight
from attention_cases import NO_OPTIONS, TurnedAttention
from check import check_op
from fused_cases import factors, fused, fused_int8
from int8_caches import empty_caches, floats_of
from quantized_cases import sums

from pteron.ops import Target

BLOCK = "pteron.attention_q4"
CAPACITY, DEPTH = 23, 96
NO_OUTPUT = (None,) * 9
# A chunk, decode, two and three steps, the last places of the cache.
LIVE = {"S": (5, 1, 1, 2, 3, 1, 2), "p": (0, 5, 6, 7, 9, 12, 21)}


class Oracle:
    """Products, a rotation, attention over caches that it keeps, the last product."""

    def __init__(self, rows: int | None = None) -> None:
        self.attention = TurnedAttention(rows)

    def __call__(self, x: Any, *arguments: Any) -> Any:
        *factors, form, cosines, sines, start, end = arguments[:15]
        caches_and_rest, output = arguments[15:-9], arguments[-9:]
        batch, _, _, width = floats_of(caches_and_rest[0]).shape
        made = products(x, *factors, None)
        q, k, v = (each.reshape(batch, -1, each.shape[-1] // width, width) for each in made)
        steps = q.shape[1]
        if form == "neighbours":
            start, end = caches_and_rest[2], caches_and_rest[2] + steps
        found = self.attention(q, k, v, form, cosines, sines, start, end, *caches_and_rest)
        out_weights, out_scales, bias, group, bits, minima, known, least, residual = output
        if out_weights is None:
            return found
        given = (out_weights, out_scales, bias, minima, known)
        *listed, minima, known = [None if each is None else [each] for each in given]
        rows = found.reshape(batch, steps, -1)
        return products(rows, None, 0.0, *listed, group, bits, minima, known, least, residual)[0]


def products(*arguments: Any) -> Any:
    """Products of x as int8 where there are sums of weights, or as it is."""
    *_, known, _, residual = arguments
    if known is not None:
        return fused_int8(*(*arguments[:7], *arguments[9:], False))
    return fused(*(*arguments[:9], residual, False))


def block(
    form: str,
    heads: int = 4,
    key_heads: int = 2,
    width: int = 32,
    batch: int = 1,
    depth: int = DEPTH,
    capacity: int = CAPACITY,
    **options: Any,
) -> tuple[Argument, ...]:
    """What the operator takes; options are a norm, biases, int8 with a smallest scale, a group size, norms of
    heads, the last product, a residual."""
    columns = (heads * width, key_heads * width, key_heads * width)
    gain = (weight(depth, low=0.5, high=2), 1e-5) if options.get("norm", True) else (None, 0.0)
    biases = [weight(count, low=-1, high=1) for count in columns] if options.get("biases") else None
    caches = (weight(batch, capacity, key_heads, width), weight(batch, capacity, key_heads, width))
    caches = empty_caches(batch, capacity, key_heads, width) if options.get("int8_caches") else caches
    norms = (weight(width), 1e-6, weight(width), 0.5) if options.get("head_norms") else (None,) * 4
    mask, causal = options.get("mask"), options.get("causal", True)
    int8, least, group = options.get("int8", ()), options.get("least"), options.get("group", 32)
    known = [sums(count, depth, group) for count in columns] if "first" in int8 else None
    output: tuple[Argument, ...] = NO_OUTPUT
    if count := options.get("output"):
        (out_weights,), (out_scales,) = factors(heads * width, count, group=group)
        bias = weight(count + 2, low=-1, high=1) if options.get("biases") else None
        out_known = sums(count, heads * width, group) if "last" in int8 else None
        output = (out_weights, out_scales, bias, group, 4, None, out_known, least, options.get("residual"))
    softmax = options.get("softmax", NO_OPTIONS)
    rest = (*caches, Symbol("p"), mask, causal, options.get("scale"), *softmax, *norms, *output)
    x = tensor(batch, "S", depth)
    return (
        x,
        *gain,
        *factors(depth, *columns, group=group),
        biases,
        group,
        4,
        None,
        known,
        least,
        form,
        *tables(form, heads, width, options.get("positions", capacity)),
        *rest,
    )


def tables(form: str, heads: int, width: int, capacity: int) -> tuple[Argument, ...]:
    """(cosines, sines, start, end), the last where only rows of a table are meant."""
    if form == "pairs":
        return weight(heads, width, low=-1, high=1), None, None, None
    columns = width // 2 if form == "neighbours" else width - 4
    both = (weight(capacity, columns, low=-1, high=1), weight(capacity, columns, low=-1, high=1))
    return (*both, Symbol("p"), Symbol("e") if form == "neighbours" else None)


def check(target: Target, arguments: tuple[Argument, ...], **options: Any) -> None:
    live = options.pop("live", LIVE)
    live = {**live, "e": tuple(p + live["S"][i % len(live["S"])] for i, p in enumerate(live["p"]))}
    options = {"tolerance": 3e-5, **options}
    check_op(BLOCK, *arguments, oracle=Oracle(options.pop("rows", None)), live=live, target=target, **options)
