"""Embeddings from a language model's hidden states, and which kind of model a path holds.

HiddenStates takes a language model whose `forward` returns hidden states, instead of logits or as a second
output, or which has a method `embed` or `hidden` that takes the same inputs and returns them. A text's vector
is the state of its last token, or the mean of all. `open_served` opens a path as a language model, as an
embedder or as a transcriber of sound.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.embeddings.encoder import Embedder, Encoder
from pteron.errors import UnsupportedError
from pteron.extras import check_installed
from pteron.gpu.fork import new_lock
from pteron.llm import LLM
from pteron.llm.engine import Engine
from pteron.llm.model import LanguageModel
from pteron.llm.names.model_names import locate_program
from pteron.llm.text_model import TextModel
from pteron.runtime import ValueSpec
from pteron.speech import Transcriber, is_transcriber

METHODS = ("embed", "hidden")  # methods for states in a program whose `forward` gives logits


class HiddenStates(Embedder):
    """`output` is the index of the states among the method's outputs. `new_sequence` creates a sequence for
    the embedder's own use when it is first needed; without it, `method` itself is used."""

    def __init__(
        self,
        llm: TextModel,
        method: LanguageModel,
        output: int,
        *,
        vocabulary: int,
        new_sequence: Callable[[], LanguageModel] | None = None,
    ) -> None:
        self.program = llm.program
        self.vocabulary = vocabulary
        self.pooling = llm.pooling or "last"
        self._context = method.context
        self._output = output
        self._width = method.method.outputs[output].shape_max[-1]
        self._new_sequence = new_sequence or (lambda: method)
        self._encode = llm.tokenizer.encode_marked
        self._lock = new_lock()  # the cache holds one text at a time
        rows = int(np.prod(method.method.outputs[output].shape_max[:-1]))
        if self.pooling == "mean" and rows < method.steps_max:
            raise UnsupportedError(
                f"{self.program.file.name}: {method.method.name} gives the state of the last token only, but "
                'pteron.json has "pooling": "mean", which needs all of them'
            )

    @property
    def tokens_max(self) -> int:
        return self._context or (1 << 31) - 1

    @cached_property
    def _sequence(self) -> LanguageModel:
        return self._new_sequence()

    def _state(self, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        total = np.zeros(self._width, np.float64)
        last = total
        with self._lock:
            position = 0
            for chunk in self._sequence.chunks(ids):
                rows = self._read(self._sequence, chunk, position)
                total = total + rows.sum(0)
                last = rows[-1]
                position += len(chunk)
        return total / len(ids) if self.pooling == "mean" else last

    def _read(self, model: LanguageModel, chunk: list[int], position: int) -> npt.NDArray[np.float64]:
        """The states of a chunk's tokens, or of its last. The device is free for others between chunks."""
        method = model.method
        tokens, place = (spec.dtype.numpy for spec in method.inputs if spec.dtype is not None)
        with model.device.lock:
            if not position and model.row_layout is None:
                method.reset()  # the cache layout is unknown: the text before might be visible
            method.accept_states()  # also after a failed call: rows are written before they are read
            outputs = method(np.array([chunk], tokens), np.array([position], place))
        return np.asarray(outputs[self._output], np.float64).reshape(-1, self._width)


def hidden_states(llm: TextModel) -> HiddenStates | None:
    """The embedder of a language model that also generates text; None where its program gives logits only."""
    for name in METHODS:
        if name in llm.program:
            method = LanguageModel(llm.program, name, context=llm.model.context or None)
            if not _are_states(method.method.outputs[0], method.steps_max):
                raise UnsupportedError(
                    f"{llm.program.file.name}: {name} gives {method.method.outputs[0]}, not hidden states "
                    f"[1, D] or [1, {method.steps_max}, D]"
                )
            return HiddenStates(llm, method, 0, vocabulary=llm.model.vocabulary)
    model, outputs = llm.model, llm.model.method.outputs
    if len(outputs) > 1 and _are_states(outputs[1], model.steps_max):
        return HiddenStates(llm, model, 1, vocabulary=model.vocabulary, new_sequence=model.sequence)
    return None


def generates_text(llm: TextModel) -> bool:
    """Whether `forward` returns logits. If it has a single output, that output is taken for hidden states if
    it is less than half as wide as the vocabulary, or if the folder's pteron.json names a pooling."""
    if len(llm.model.method.outputs) > 1 or any(name in llm.program for name in METHODS):
        return True
    return llm.pooling is None and 2 * llm.model.vocabulary >= llm.tokenizer.vocab_size


def _are_states(spec: ValueSpec, steps: int) -> bool:
    shape = spec.shape_max
    is_real = spec.dtype is not None and np.issubdtype(spec.dtype.numpy, np.floating)
    return bool(is_real and len(shape) in (2, 3) and shape[0] == 1 and shape[1:-1] in ((), (steps,)))


def open_served(
    path: str | os.PathLike[str],
    tokenizer: str | None = None,
    *,
    data: Sequence[str] = (),
    device: str | None = None,
    **settings: Any,
) -> LLM | Embedder | Transcriber:
    """Open the model at a path; `settings` are those of an LLM: digits, sequences, cache_bytes, context,
    cache, speculate, adapters. For an unsupported kind, the error says why it is not a language model."""
    located = locate_program(path, context=settings.get("context"))
    if located.path.is_dir() and is_transcriber(located.folder):
        check_installed(("python_multipart", "soundfile"), "transcribing sound", "audio")
        return Transcriber(located.folder, device=device)
    try:
        return llm_or_embedder(LLM(located, tokenizer, data=data, device=device, **settings))
    except UnsupportedError as error:
        if settings.get("adapters"):
            raise
        try:
            return Encoder(located, tokenizer, data=data, device=device)
        except UnsupportedError:
            raise error from None


@contextmanager
def in_engine(
    model: LLM | Embedder | Transcriber, *, running: int | None = None, waiting: int
) -> Generator[Engine | Embedder | Transcriber, None, None]:
    """The model, a language model in an engine; it is closed with the context."""
    with model:
        if isinstance(model, LLM):
            with Engine(model, running=running, waiting=waiting) as engine:
                yield engine
        else:
            yield model


def llm_or_embedder(llm: LLM) -> LLM | Embedder:
    """The model itself if it generates text, else the embedder of its hidden states."""
    if generates_text(llm):
        return llm
    return HiddenStates(llm, llm.model, 0, vocabulary=llm.tokenizer.vocab_size)
