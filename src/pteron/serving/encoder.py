"""Encoder: a program that turns a text into one vector, with its tokenizer.

In: a folder with a program and a tokenizer.json (or another tokenizer's file). The program's `forward` takes
tokens [S] or [1, S], and may take a mask of the same shape; it gives a vector [D] or [1, D], or a state for
each token, [S, D] or [1, S, D], whose mean is taken, or with `"pooling": "last"` in the folder's pteron.json
the last. Out: vectors of length one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pteron.errors import UnsupportedError
from pteron.extras import need
from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.llm.arguments import existing
from pteron.llm.model_files import Pooling, program_file, read_pooling
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.runtime import ValueSpec, load
from pteron.serving.embedder import Embedder


class Encoder(Embedder):
    """`tokenizer` is a file or a folder, by default the program's own folder."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        tokenizer: str | os.PathLike[str] | None = None,
        *,
        data: Sequence[str | os.PathLike[str]] = (),
        device: Device | str | None = None,
    ) -> None:
        path = existing(path)
        folder = path if path.is_dir() else path.parent
        self.pooling: Pooling = read_pooling(folder) or "mean"
        self.program = load(program_file(folder) if path.is_dir() else path, data, device)
        self.method = self.program["forward"]
        if not is_encoder(self.method.inputs, self.method.outputs):
            raise UnsupportedError(
                f"{self.program.file.name}: forward is no encoder: it takes "
                f"({', '.join(map(str, self.method.inputs))}), not tokens [S] and at most a mask"
            )
        self._encode, self.vocabulary = _encoding(folder if tokenizer is None else existing(tokenizer))
        self._lock = new_lock()  # calls of one method follow one another

    @property
    def tokens_max(self) -> int:
        return self.method.inputs[0].shape_max[-1]

    def encode(self, text: str) -> list[int]:
        return self._encode(text)

    def _state(self, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        inputs = []
        for place, spec in enumerate(self.method.inputs):
            assert spec.dtype is not None
            row = np.zeros(spec.shape_max[-1], spec.dtype.numpy)  # what a fixed length leaves over stays 0
            row[: len(ids)] = ids if place == 0 else 1
            if spec.dynamic[-1]:
                row = row[: len(ids)]
            inputs.append(row.reshape(*spec.shape_max[:-1], -1))
        with self._lock:
            result = np.array(self.method(*inputs)[0], np.float64)
        states = result.reshape(-1, result.shape[-1])[: len(ids)]
        state: npt.NDArray[np.float64] = states[-1] if self.pooling == "last" else states.mean(0)
        return state


def is_encoder(inputs: Sequence[ValueSpec], outputs: Sequence[ValueSpec]) -> bool:
    """Whether a method of these inputs and outputs turns tokens into a vector, or into one for each.
    Tokens of a fixed length come with a mask, which says where a text ends."""
    if len(inputs) not in (1, 2) or not outputs or inputs[0].dtype is None or outputs[0].dtype is None:
        return False
    shape, given = inputs[0].shape_max, outputs[0].shape_max
    is_row = len(shape) in (1, 2) and all(size == 1 for size in shape[:-1])
    is_like = all(spec.shape_max == shape and spec.dtype is not None for spec in inputs)
    has_end = len(inputs) == 2 or (is_row and inputs[0].dynamic[-1])
    is_whole = np.issubdtype(inputs[0].dtype.numpy, np.integer)
    is_real = np.issubdtype(outputs[0].dtype.numpy, np.floating)
    return bool(is_row and is_like and has_end and is_whole and is_real and 1 <= len(given) <= 3)


def _encoding(path: Path) -> tuple[Callable[[str], list[int]], int]:
    """How texts become tokens, and how many there are. A tokenizer.json adds the marks that encoders are
    trained with by itself."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.suffix != ".json" or not file.exists():
        tokenizer = load_tokenizer(path)
        return tokenizer.encode_marked, tokenizer.vocab_size
    library = need("tokenizers", f"reading {file.name}", "serve")
    from pteron.llm.model_files import as_format_error

    with as_format_error(f"{file.name} is not a tokenizer that `tokenizers` reads"):
        reader = library.Tokenizer.from_file(str(file))
        reader.no_padding()
        reader.no_truncation()
        size = 1 + max(reader.get_vocab().values())

    def encode(text: str) -> list[int]:
        with as_format_error(f"{file.name} cannot encode this text"):
            return list(reader.encode(text).ids)

    return encode, size
