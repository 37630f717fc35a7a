"""The graphs of a sampler: one call each, over the states that a sampler has to itself."""

from __future__ import annotations

import numpy as np

from pteron.dtypes import DType
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.llm.sampling.form import Form
from pteron.llm.sampling.operator import RING, SAMPLE, SAMPLE_PEAKS, pairs_of
from pteron.plan.advance import GROWTHS

# Value ids.
LOGITS, STEPS, SEEN, BIAS, MASK, TOKEN, DRAWN, RESULTS, GROWING, WORDS, PEAKS = range(11)
NUMBERS = range(20, 29)  # as form.numbers gives them


def mask_words(vocabulary: int) -> int:
    """How many words hold a bit for each token."""
    return -(-vocabulary // 32)


def sampler_graph(vocabulary: int, form: Form, dtype: DType) -> Graph:
    """One call of the sampling operator, over states for what was seen and drawn, what changes logits, and a
    word that grows by nothing. Its inputs are the logits and the numbers of its settings. What the form does
    without is one word."""
    logits = Tensor(LOGITS, dtype, (1, vocabulary))
    seed, *others = (SymInt(id) for id in NUMBERS)
    tokens_seen = vocabulary if form.remembers else 1
    token, drawn = _state(TOKEN, DType.I32, (1, 1)), _state(DRAWN, DType.I32, (pairs_of(form), 2))
    arguments: tuple[Value, ...] = (
        logits,
        _state(SEEN, DType.I32, (tokens_seen,)),
        _state(BIAS, DType.F32, (vocabulary if form.biases else 1,)),
        _state(MASK, DType.I32, (mask_words(vocabulary) if form.masks else 1,)),
        _state(STEPS, DType.I32, (1,)),
        form.words,
        seed,
        *others,
        _state(GROWING, DType.I32, (GROWTHS, 2)),
        _state(WORDS, DType.I32, (1,)),
        ValueList(RESULTS, (token, drawn)),
    )
    return Graph(
        "sampler",
        (Node(0, SAMPLE, arguments),),
        inputs=(logits, seed, *others),
        outputs=(token, drawn),
        is_internal=True,
    )


def graph_of_peaks(blocks: int) -> Graph:
    """A call that draws the likeliest token from the peaks of so many blocks, over states as above."""
    peaks, steps = Tensor(PEAKS, DType.I32, (blocks, 4)), _state(STEPS, DType.I32, (1,))
    token, drawn = _state(TOKEN, DType.I32, (1, 1)), _state(DRAWN, DType.I32, (RING, 2))
    growths, words = _state(GROWING, DType.I32, (GROWTHS, 2)), _state(WORDS, DType.I32, (1,))
    arguments = peaks, steps, growths, words, ValueList(RESULTS, (token, drawn))
    node = Node(0, SAMPLE_PEAKS, arguments)
    return Graph("peaks", (node,), inputs=(peaks,), outputs=(token, drawn), is_internal=True)


def _state(id: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    zeros = memoryview(np.zeros(shape, dtype.numpy).tobytes())
    return Tensor(id, dtype, shape, Constant(f"sampler {id}", dtype, shape, zeros))
