"""HiddenStates: vectors of texts by a program that reads tokens through a cache, as language models do.

In: a language model whose `forward` gives hidden states instead of logits, or as a second output, or which
has a method `embed` or `hidden` of the same inputs that does. Out: the state of a text's last token, or the
mean of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pteron.errors import UnsupportedError
from pteron.gpu.fork import new_lock
from pteron.llm.model import LanguageModel
from pteron.llm.model_files import Pooling
from pteron.llm.reentrancy import device_guard
from pteron.llm.text_model import TextModel
from pteron.runtime import ValueSpec
from pteron.serving.embedder import Embedder

METHODS = ("embed", "hidden")  # of a program that has another for its logits


class HiddenStates(Embedder):
    """`sequence` gives a sequence of tokens that nobody else uses, when it is first needed; `output` says
    which of its method's outputs are the states."""

    def __init__(
        self,
        llm: TextModel,
        method: LanguageModel,
        output: int,
        *,
        vocabulary: int,
        sequence: Callable[[], LanguageModel] | None = None,
    ) -> None:
        self.program = llm.program
        self.vocabulary = vocabulary
        self.pooling: Pooling = llm.pooling or "last"
        self._context = method.context
        self._output = output
        self._width = method.method.outputs[output].shape_max[-1]
        self._made = method if sequence is None else None
        self._sequence = sequence
        self._encode = llm.tokenizer.encode_marked
        self._lock = new_lock()  # texts follow one another in one cache
        rows = int(np.prod(method.method.outputs[output].shape_max[:-1]))
        if self.pooling == "mean" and rows < method.steps_max:
            raise UnsupportedError(
                f"{self.program.file.name}: {method.method.name} gives the state of the last token "
                'alone, and the mean of all is asked for (pteron.json: "pooling": "mean")'
            )

    @property
    def tokens_max(self) -> int:
        return self._context or (1 << 31) - 1

    def encode(self, text: str) -> list[int]:
        return self._encode(text)

    def _state(self, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        total = np.zeros(self._width, np.float64)
        last = total
        with self._lock:
            model = self._own
            position = 0
            for chunk in model.chunks(ids):
                rows = self._read(model, chunk, position)
                total = total + rows.sum(0)
                last = rows[-1]
                position += len(chunk)
        return total / len(ids) if self.pooling == "mean" else last

    def _read(self, model: LanguageModel, chunk: list[int], position: int) -> npt.NDArray[np.float64]:
        """The states of a chunk's tokens, or of its last. Others may use the device between two chunks."""
        method = model.method
        tokens, place = (spec.dtype.numpy for spec in method.inputs if spec.dtype is not None)
        with model.device.lock, device_guard(model.device):
            if not position and model.row_bytes is None:
                method.reset()  # what the text before has left behind may be read: nobody knows
            method.settle()  # rows from the position on are written before they are read
            outputs = method(np.array([chunk], tokens), np.array([position], place))
        return np.asarray(outputs[self._output], np.float64).reshape(-1, self._width)

    @property
    def _own(self) -> LanguageModel:
        if self._made is None:
            assert self._sequence is not None
            self._made = self._sequence()
        return self._made


def hidden_states(llm: TextModel) -> HiddenStates | None:
    """What makes vectors beside a language model that writes; None where its program gives logits alone."""
    for name in METHODS:
        if name in llm.program:
            method = LanguageModel(llm.program, name)
            if not _is_states(method.method.outputs[0], method.steps_max):
                raise UnsupportedError(
                    f"{llm.program.file.name}: {name} gives {method.method.outputs[0]}, not hidden states "
                    f"[1, D] or [1, {method.steps_max}, D]"
                )
            return HiddenStates(llm, method, 0, vocabulary=llm.model.vocabulary)
    outputs = llm.model.method.outputs
    if len(outputs) > 1 and _is_states(outputs[1], llm.model.steps_max):
        return HiddenStates(llm, llm.model, 1, vocabulary=llm.model.vocabulary, sequence=llm.model.sequence)
    return None


def writes(llm: TextModel) -> bool:
    """Whether a program gives logits, so that it writes text. Hidden states are far narrower than any
    vocabulary; where they are not, the folder's pteron.json tells by naming their pooling."""
    if len(llm.model.method.outputs) > 1 or any(name in llm.program for name in METHODS):
        return True
    return llm.pooling is None and 2 * llm.model.vocabulary >= llm.tokenizer.vocab_size


def _is_states(spec: ValueSpec, steps: int) -> bool:
    shape = spec.shape_max
    is_real = spec.dtype is not None and np.issubdtype(spec.dtype.numpy, np.floating)
    return bool(is_real and len(shape) in (2, 3) and shape[0] == 1 and shape[1:-1] in ((), (steps,)))
