"""The graphs of samplers: one call each, over the states that a sampler owns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.llm.sampling.form import Form
from pteron.llm.sampling.logits_rows import SETTINGS_WORDS
from pteron.llm.sampling.operator import SAMPLE, SAMPLE_ROWS, mask_words
from pteron.llm.sampling_options import OPTIONS
from pteron.plan.advance import GROWTHS

# Value ids. In a batch, STEPS are positions.
LOGITS, STEPS, SEEN, BIAS, MASK, TOKEN, DRAWN, RESULTS, GROWING, WORDS, SLOTS, SETTINGS = range(12)
NUMBERS = range(20, 20 + len(OPTIONS))  # in the order of form.numbers


def sampler_graph(vocabulary: int, form: Form, dtype: DType, rows: int = 1) -> Graph:
    """The draw of one sequence, from the last of up to `rows` rows. Inputs: the logits and the numbers of the
    settings. States: token counts, biases, mask, draws, and the words that grow with each step. A state that
    the form does not need has one word."""
    logits = Tensor(LOGITS, dtype, (rows, vocabulary))
    seed, *others = (SymInt(id) for id in NUMBERS)
    token, drawn = _state(TOKEN, (1, 1)), _state(DRAWN, (form.pairs, 2))
    arguments: tuple[Value, ...] = (
        logits,
        *_processor_tensors(form, vocabulary),
        _state(STEPS, (1,)),
        form.flags,
        seed,
        *others,
        _state(GROWING, (GROWTHS, 2)),
        _state(WORDS, (1,)),
        ValueList(RESULTS, (token, drawn)),
    )
    inputs: tuple[Tensor | SymInt, ...] = (logits, seed, *others)
    return Graph("sampler", (Node(0, SAMPLE, arguments),), inputs, (token, drawn), is_internal=True)


def batch_graph(vocabulary: int, slots: int, form: Form, dtype: DType) -> Graph:
    """The draws of a batch of up to `slots` rows. Inputs: the logits and the slot of each row."""
    logits, chosen = Tensor(LOGITS, dtype, (slots, vocabulary)), Tensor(SLOTS, DType.I32, (slots,))
    drawn = _state(DRAWN, (slots, form.pairs, 2))
    arguments: tuple[Value, ...] = (
        logits,
        chosen,
        _state(SETTINGS, (slots, SETTINGS_WORDS)),
        *_processor_tensors(form, vocabulary, slots),
        _state(TOKEN, (slots,)),
        _state(STEPS, (slots,)),
        form.flags,
        drawn,
    )
    node = Node(0, SAMPLE_ROWS, arguments)
    return Graph("rows", (node,), inputs=(logits, chosen), outputs=(drawn,), is_internal=True)


def processor_states(form: Form) -> list[int]:
    """The states that a form's logits processors read."""
    used = {SEEN: form.counts_tokens, BIAS: form.has_biases, MASK: form.has_mask}
    return [id for id, is_used in used.items() if is_used]


def to_mask_words(mask: npt.NDArray[np.uint32], vocabulary: int) -> npt.NDArray[np.uint32]:
    """The mask of a grammar, cut or filled with zeros: tokens without a bit are not allowed."""
    words = np.zeros(mask_words(vocabulary), np.uint32)
    given = mask[: words.size]
    words[: given.size] = given
    return words


def _processor_tensors(form: Form, vocabulary: int, slots: int = 1) -> list[Tensor]:
    used = processor_states(form)
    sizes = {SEEN: vocabulary, BIAS: vocabulary, MASK: mask_words(vocabulary)}
    return [
        _state(id, (slots * size,) if id in used else (1,), DType.F32 if id == BIAS else DType.I32)
        for id, size in sizes.items()
    ]


def _state(id: int, shape: tuple[int, ...], dtype: DType = DType.I32) -> Tensor:
    zeros = memoryview(np.zeros(shape, dtype.numpy).tobytes())
    return Tensor(id, dtype, shape, Constant(f"sampler {id}", dtype, shape, zeros))
