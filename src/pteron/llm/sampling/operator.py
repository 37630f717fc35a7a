"""Choosing the next token on the GPU: not an exported operator, but one the language-model loop uses."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, op, require
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

SAMPLE = "pteron.sample"
LANES = 256
BLOCK = 2048  # tokens per workgroup


def _shapes(logits: Operand, *_: object) -> tuple[Shape, Shape]:
    require(logits.rank >= 1 and logits.numel > 0, "logits must be [..., vocabulary]", logits)
    return (1, 1), (1,)


@op(
    SAMPLE,
    "logits seen! temperature:float top_k:int top_p:float min_p:float penalty:float seed:int step:int "
    "-> token logprob",
    shape=_shapes,
)
def sample(
    logits: Operand,
    seen: Operand,
    temperature: float,
    top_k: AnyInt,
    top_p: float,
    min_p: float,
    penalty: float,
    seed: AnyInt,
    step: AnyInt,
    token: Operand,
    logprob: Operand,
) -> Iterator[Dispatch]:
    vocabulary = logits.shape[-1]
    base = logits.numel - vocabulary
    count = -(-vocabulary // BLOCK)
    blocks, picks, threshold = Scratch(4 * count), Scratch(2 * count), Scratch(1)
    remembers = penalty != 1.0
    seen_or_none = seen if remembers else None
    forgetful = {} if remembers else {"was_seen": "false"}
    rows = {"LANES": LANES, "ROWS": 1}
    is_filtered = temperature > 0 and (int(top_k) > 0 or top_p < 1.0)
    yield Dispatch(
        kernel("sample_scan", **rows, **forgetful),
        logits=logits,
        seen=seen_or_none,
        blocks=blocks,
        vocabulary=vocabulary,
        base=base,
        block=BLOCK,
        penalty=penalty,
        groups=(count, 1, 1),
    )
    if is_filtered:
        yield Dispatch(
            kernel("sample_filter", **rows, **forgetful),
            logits=logits,
            seen=seen_or_none,
            blocks=blocks,
            threshold=threshold,
            vocabulary=vocabulary,
            base=base,
            block_count=count,
            top_k=top_k,
            top_p=top_p,
            temperature=temperature,
            penalty=penalty,
            groups=(1, 1, 1),
        )
    unfiltered = {} if is_filtered else {"least_kept": "-3.4028234e38"}
    yield Dispatch(
        kernel("sample_pick", GREEDY=temperature <= 0, **rows, **forgetful, **unfiltered),
        logits=logits,
        seen=seen_or_none,
        blocks=blocks,
        threshold=threshold if is_filtered else None,
        picks=picks,
        vocabulary=vocabulary,
        base=base,
        block=BLOCK,
        block_count=count,
        seed=seed,
        step=step,
        temperature=temperature,
        min_p=min_p if temperature > 0 else 0.0,
        penalty=penalty,
        groups=(count, 1, 1),
    )
    yield Dispatch(
        kernel("sample_merge") if remembers else kernel("sample_merge", remember=";"),
        logits=logits,
        blocks=blocks,
        picks=picks,
        seen=seen_or_none,
        token=token,
        logprob=logprob,
        base=base,
        block_count=count,
        groups=(1, 1, 1),
    )
