"""Verifier: runs consecutive tokens of a sequence through its model in one step, with the logits of each.

In: the tokens that a sequence may continue with. Out: logits [rows, vocabulary] on the GPU, also of programs
whose own logits are those of the last token only. The model runs as a batch whose rows are tokens of one
sequence (passes/batched), over the sequence's own KV cache.
"""

from __future__ import annotations

import numpy as np

from pteron.errors import UnsupportedError
from pteron.llm.derived_graph import DerivedGraph
from pteron.llm.model import LanguageModel
from pteron.llm.sampling.form import ROWS_MAX
from pteron.passes.batched import consecutive_rows
from pteron.runtime.session import OutputCommands
from pteron.runtime.staging import Input

ROWS = (2, 4, 8, ROWS_MAX)  # numbers of rows that have a plan; fewer tokens are padded
CONTEXT = 256  # tokens, of the plans that `compile` makes; those of other contexts have nearly all kernels


class Verifier:
    """Runs up to ROWS_MAX tokens of any sequence of a model."""

    def __init__(self, model: LanguageModel) -> None:
        name = model.program.file.name
        if not model.can_rewind:
            raise UnsupportedError(
                f"{name} cannot speculate: its state cannot be rewound to an earlier token"
            )
        if model.delegate is None or not model.is_resident:
            raise UnsupportedError(f"{name} cannot speculate: its steps pass through the host")
        (graph,) = model.program.graphs(model.method.name)
        try:
            rows, caches = consecutive_rows(graph, ROWS_MAX)
        except UnsupportedError as error:
            raise UnsupportedError(f"{name} cannot speculate: {error}") from None
        self._device = model.device
        self._graph = DerivedGraph(model, rows, caches)

    def compile(self, context: int) -> None:
        """Make the plans of all numbers of rows and compile their kernels, for a model of this context: at
        load, so that no request waits for it."""
        with self._device.lock:
            for rows in ROWS:
                self._graph.session.find_recording(_inputs([0] * rows, rows, min(CONTEXT, context) - rows))

    def submit(self, sequence: LanguageModel, tokens: list[int], then: OutputCommands) -> int:
        """Submit tokens from the sequence's position on, then the commands that `then` makes from their
        logits. Returns the submission's number. The caller holds the device lock."""
        inputs = _inputs(tokens, self.rows_for(len(tokens)), sequence.position)
        return self._graph.submit(sequence, tokens, inputs, then)

    @staticmethod
    def rows_for(count: int) -> int:
        """The rows of the plan for a number of tokens."""
        return next(size for size in ROWS if size >= count)

    def close(self) -> None:
        with self._device.lock:
            self._graph.close()


def _inputs(tokens: list[int], rows: int, position: int) -> tuple[Input, ...]:
    """The inputs of tokens from a position on, padded to a number of rows."""
    count = len(tokens)
    ids, places = np.zeros((1, rows), np.int32), np.full((rows, 2), -1, np.int32)
    ids[0, :count] = tokens
    places[:count] = [(position + row, 0) for row in range(count)]
    return ids, places, position + count
