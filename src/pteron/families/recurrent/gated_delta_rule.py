"""The gated delta rule of Qwen3-Next: linear attention with a state that decays, and that replaces the value
of a key."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.recurrent.recurrence import Sequences, recurrent
from pteron.ops import Dispatch, LiveShape, Operand, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)
WIDTH_MAX = 256  # of keys: an invocation keeps a column of the state


def _shape(
    q: Operand, k: Operand, v: Operand, g: Operand, beta: Operand, state: Operand, *rest: object
) -> LiveShape:
    require(q.rank == v.rank == 4 and q.shape[0] == 1, "q, k and v must be [1, steps, heads, width]", q, k, v)
    require(q.shape == k.shape, "queries and keys must have one shape", q, k)
    _, steps, heads, width = v.shape
    fits = q.shape[:2] == v.shape[:2] and q.shape[2] > 0 and heads % q.shape[2] == 0
    require(fits, "heads of values must be a multiple of those of keys, for the same steps", q, v)
    for each in (g, beta):
        require(each.shape == (1, steps, heads), "g and beta must be [1, steps, heads]", each, v)
    fits = state.shape[1:] == (heads, k.shape[3], width) and 0 < k.shape[3] <= WIDTH_MAX
    require(
        fits, f"state must be [1, heads, width of keys (up to {WIDTH_MAX}), width of values]", state, k, v
    )
    return v.shape


@recurrent("pteron.gated_delta_rule", "q k v g beta -> out", shape=_shape)
def gated_delta_rule(
    q: Operand,
    k: Operand,
    v: Operand,
    g: Operand,
    beta: Operand,
    state: Operand,
    sequences: Sequences,
    out: Operand,
) -> Iterator[Dispatch]:
    """For each step and head, with a state S [width of keys, width of values]:

        S ← exp(g) · S;  S ← S + k ⊗ beta · (v - k·S);  out = q·S

    `heads of v / heads of k` neighbouring heads share a key and a query.
    """
    _, steps, heads, width = v.shape
    sequences.check(state, steps)
    if v.numel == 0:
        return
    rows = 1 if sequences.places is None else steps
    yield Dispatch(
        kernel("gated_delta_rule"),
        KEY_WIDTH=k.shape[3],
        q=q,
        k=k,
        v=v,
        g=g,
        beta=beta,
        out=out,
        rows=rows,
        steps=steps // rows,
        heads=heads,
        key_heads=k.shape[2],
        width=width,
        threads=rows * heads * width,
        **sequences.arguments(state),
    )
