"""A language model: a program's forward method, its cache, and what its constant methods say of it.

The cache lives on the GPU, inside the program. `position` is how many tokens it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import InputError, UnsupportedError
from pteron.gpu import Buffer, Command, Copy, PassTimer, submit
from pteron.graph import Tensor
from pteron.runtime import Method, Program

Logits = npt.NDArray[np.float32]


class LanguageModel:
    """Runs `forward(tokens [1, steps], input_pos [1]) -> logits` as ExecuTorch's exporter makes it."""

    def __init__(self, program: Program, method: str = "forward") -> None:
        self.program = program
        self.method: Method = program[method]
        inputs, outputs = self.method.inputs, self.method.outputs
        if len(inputs) != 2 or len(outputs) < 1 or len(inputs[0].shape_max) != 2:
            raise UnsupportedError(
                f"{program.file.name}: {method} is not a language model with a cache: it takes "
                f"({', '.join(map(str, inputs))}), not (tokens [1, steps], input_pos [1])"
            )
        self.steps_max = inputs[0].shape_max[1]
        self.is_dynamic = inputs[0].dynamic[1]
        self.vocabulary = outputs[0].shape_max[-1]
        self.context = self._constant("get_max_context_len", self._constant("get_max_seq_len", 0))
        self.bos_id = self._constant("get_bos_id", None)
        self.eos_ids = self._constants("get_eos_ids")
        self.position = 0
        self.session = self.method.sole_session
        self.device = program.device
        self.timer: PassTimer | None = None

    def reset(self) -> None:
        """Forget everything. The cache need not be cleared: what lies beyond the position is never read."""
        self.position = 0

    def prefill(self, ids: Sequence[int]) -> Logits:
        """Read tokens in chunks as long as the program takes; the logits after the last of them."""
        self.check_room(len(ids))
        logits = np.zeros(self.vocabulary, np.float32)
        for chunk in self.chunks(ids):
            (result, *_) = self.method(np.array([chunk], np.int64), np.array([self.position], np.int64))
            self.position += len(chunk)
            logits = np.asarray(result, np.float32).reshape(-1, self.vocabulary)[-1]
        return logits

    def decode_one_token(self, token: int) -> Logits:
        """The logits after one more token."""
        return self.prefill([token])

    def check_room(self, count: int) -> None:
        if self.context and self.position + count > self.context:
            raise InputError(
                f"{self.program.file.name}: {self.position} + {count} tokens exceed the context, "
                f"which holds {self.context}"
            )

    def chunks(self, ids: Sequence[int]) -> Iterator[list[int]]:
        """Tokens in pieces that the program takes at once."""
        outside = [token for token in ids if not 0 <= token < self.vocabulary]
        if outside:
            raise InputError(f"token {outside[0]} is outside the vocabulary of {self.vocabulary}")
        size = self.steps_max if self.is_dynamic else 1
        if not self.is_dynamic and self.steps_max != 1:
            raise UnsupportedError(
                f"{self.program.file.name}: takes exactly {self.steps_max} tokens at a time; "
                "export with a dynamic shape, or one token at a time"
            )
        for start in range(0, len(ids), size):
            yield list(ids[start : start + size])

    # Without waiting ----------------------------------------------------------------------------

    def launch(self, tokens: list[int] | Buffer, then: Sequence[Command] = ()) -> int:
        """Run tokens (or the one that a GPU buffer holds) through the model and then further commands."""
        session = self.session
        assert session is not None
        tokens_input, position_input = session.graph.inputs
        assert isinstance(tokens_input, Tensor)
        assert isinstance(position_input, Tensor)
        count = len(tokens) if isinstance(tokens, list) else 1
        values = {source.symbol: self.position for source in session.prepared.sources}
        with self.device.lock:
            recording = session.ready(((1, count), (1,)), values)
            before: list[Command] = []
            if isinstance(tokens, list):
                self.device.write(session.buffer(tokens_input), np.array(tokens, np.int32))
            else:
                before.append(Copy(tokens, session.buffer(tokens_input), 4))
            self.device.write(session.buffer(position_input), np.array([self.position], np.int32))
            self.position += count
            return submit(self.device, [*before, recording, *then], self.timer)

    def logits_place(self, count: int) -> tuple[Buffer, int]:
        """Where the last logits lie after `count` tokens were launched: a buffer and a byte offset."""
        assert self.session is not None
        output = self.session.graph.outputs[0]
        assert isinstance(output, Tensor)
        rows = count if len(output.shape_max) > 2 and output.shape_max[-2] > 1 else 1
        itemsize = self.session.storage(output).itemsize
        return self.session.buffer(output), itemsize * (rows - 1) * self.vocabulary

    @property
    def logits_dtype(self) -> DType:
        """The element type of the logits inside the program: f16 where it was exported so."""
        output = self.session.graph.outputs[0] if self.session else None
        return output.dtype if isinstance(output, Tensor) else DType.F32

    @property
    def is_resident(self) -> bool:
        """Whether steps can follow one another on the GPU without the host: the model is one delegate, its
        live integers come from the position alone, and the logits of every row start at a whole word."""
        if self.session is None or len(self.session.graph.inputs) != 2:
            return False
        positioned = all(source.input == 1 for source in self.session.prepared.sources)
        return positioned and self.logits_place(2)[1] % 4 == 0

    def _constant(self, name: str, default: int | None) -> int | None:
        values = self._constants(name)
        return values[0] if values else default

    def _constants(self, name: str) -> tuple[int, ...]:
        if name not in self.program:
            return ()
        return tuple(int(value) for value in self.program[name]())
