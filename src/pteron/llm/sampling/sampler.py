"""Choosing the next token: the settings of a sampler, and the sampler on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.errors import InputError
from pteron.gpu import Buffer, Copy, Device, Recording
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, ValueList
from pteron.llm.sampling.operator import SAMPLE
from pteron.ops.operand import State
from pteron.runtime.session import Counters, Session


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. The default is greedy: always the likeliest.

    A temperature above 0 draws from the softmax of logits / temperature, narrowed to the `top_k` likeliest,
    then to the likeliest whose probabilities reach `top_p`, then to those at least `min_p` times as likely
    as the likeliest. `repetition_penalty` above 1 makes tokens less likely that were already there. Equal
    seeds give equal tokens.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks = {
            "temperature must not be negative": self.temperature >= 0,
            "top_k must not be negative": self.top_k >= 0,
            "top_p must be above 0 and at most 1": 0 < self.top_p <= 1,
            "min_p must be from 0 to 1": 0 <= self.min_p <= 1,
            "repetition_penalty must be above 0": self.repetition_penalty > 0,
            "seed must be from 0 to 2147483647": 0 <= self.seed < 1 << 31,
        }
        for message, holds in checks.items():
            if not holds:
                raise InputError(f"{message}: {self}")


class Sampler:
    """Draws a token from logits that are on the GPU, and leaves it there."""

    def __init__(self, device: Device, vocabulary: int, sampling: Sampling, dtype: DType = DType.F32) -> None:
        self.sampling = sampling
        self._vocabulary = vocabulary
        self.logits = Tensor(0, dtype, (1, vocabulary))
        self._seed, self._step = SymInt(1), SymInt(2)
        zeros = np.zeros(vocabulary, np.bool_)
        self._seen = Tensor(
            3,
            DType.BOOL,
            (vocabulary,),
            Constant("seen", DType.BOOL, (vocabulary,), memoryview(zeros.tobytes())),
        )
        self.token, self.logprob = Tensor(4, DType.I32, (1, 1)), Tensor(5, DType.F32, (1,))
        arguments = (
            self.logits,
            self._seen,
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            sampling.min_p,
            sampling.repetition_penalty,
            self._seed,
            self._step,
            ValueList(6, (self.token, self.logprob)),
        )
        graph = Graph(
            "sampler",
            (Node(0, SAMPLE, arguments),),
            inputs=(self.logits, self._seed, self._step),
            outputs=(self.token, self.logprob),
        )
        self._session = Session(graph, device, Counters())

    def remember(self, tokens: list[int]) -> None:
        """Tokens that the repetition penalty counts as seen, in place of those before."""
        if self.sampling.repetition_penalty == 1.0:
            return
        seen = np.zeros(self._vocabulary, np.uint32)
        seen[[token for token in tokens if 0 <= token < self._vocabulary]] = 1
        self._session.device.write(self._session.memory[State(self._seen.id)], seen)

    def commands(self, logits: Buffer, offset: int, step: int) -> list[Copy | Recording]:
        """What draws the token of a step from logits that start at a byte offset of a buffer."""
        values = {self._seed.id: self.sampling.seed, self._step.id: step}
        ready = self._session.ready(((1, self._vocabulary), None, None), values)
        size = self._vocabulary * self.storage.itemsize
        return [Copy(logits, self._session.buffer(self.logits), size, source_offset=offset), ready]

    @property
    def storage(self) -> Storage:
        """The element type of the logits on the GPU."""
        return self._session.storage(self.logits)

    def buffer(self, tensor: Tensor) -> Buffer:
        return self._session.buffer(tensor)

    def close(self) -> None:
        self._session.close()
