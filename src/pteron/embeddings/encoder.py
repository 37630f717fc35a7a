"""Embedders: texts in, vectors of length one out. Encoder is the embedder for encoder programs.

An encoder's folder has a program and a tokenizer.json (or the file of another tokenizer). The program's
`forward` takes tokens [S] or [1, S], and optionally a mask and token types of the same shape. It gives a
vector [D] or [1, D], or a state per token, [S, D] or [1, S, D]. States are averaged; with `"pooling": "last"`
in the folder's pteron.json the last one is used. A program that gives a single number is a cross-encoder: it
reads two texts at once, and the number is the logit of their relevance to each other.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError, UnsupportedError
from pteron.extras import need
from pteron.folders import existing
from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.llm.names.model_names import locate_program
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.names.model_files import Pooling
from pteron.runtime import Program, ValueSpec, load

Vector = npt.NDArray[np.float32]


class Embedder(ABC):
    """A program with its tokenizer. Calls from several threads run one after the other."""

    program: Program
    vocabulary: int  # number of token ids
    pooling: Pooling
    scores_pairs: bool = False  # a cross-encoder, which makes no vectors
    _encode: Callable[[str], list[int]]

    @property
    @abstractmethod
    def tokens_max(self) -> int:
        """The maximum length of a text, in tokens."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that mark its beginning and end."""
        return self._encode(text)

    @abstractmethod
    def _state(self, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """The pooled state [D] of a text, not normalised."""

    def embed(self, ids: Sequence[int]) -> Vector:
        """The vector [D] of a text's tokens."""
        self._check(ids)
        state = self._state(ids)
        return (state / max(float(np.linalg.norm(state)), 1e-12)).astype(np.float32)

    def _check(self, ids: Sequence[int]) -> None:
        if not 0 < len(ids) <= self.tokens_max:
            raise InputError(f"the text has {len(ids)} tokens; it must have from 1 to {self.tokens_max}")
        if not 0 <= min(ids) <= max(ids) < self.vocabulary:
            raise InputError(f"token ids must be from 0 to {self.vocabulary - 1}")

    def close(self) -> None:
        self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        located = locate_program(path)
        self.pooling = located.folder.pooling or "mean"
        self.program = load(located.program, data or located.data, device)
        self.method = self.program["forward"]
        if not is_encoder(self.method.inputs, self.method.outputs):
            raise UnsupportedError(
                f"{self.program.file.name}: forward is not an encoder: it takes "
                f"({', '.join(map(str, self.method.inputs))}), not tokens [S] and optionally a mask "
                "and token types"
            )
        self.scores_pairs = int(np.prod(self.method.outputs[0].shape_max)) == 1
        found = _load_encoding(located.folder.path if tokenizer is None else existing(tokenizer))
        self._encode, self._encode_pair, self.vocabulary = found
        if self.scores_pairs and self._encode_pair is None:
            raise UnsupportedError(
                f"{self.program.file.name} scores pairs of texts, which needs a tokenizer.json"
            )
        self._lock = new_lock()  # a method runs one call at a time

    @property
    def tokens_max(self) -> int:
        return self.method.inputs[0].shape_max[-1]

    def score(self, query: str, text: str) -> tuple[float, int]:
        """The relevance of a text to a query by a cross-encoder, from 0 to 1, and the tokens of both."""
        assert self._encode_pair is not None
        ids, types = self._encode_pair(query, text)
        self._check(ids)
        logit = float(self._run(ids, types).reshape(()))
        return float(np.exp(-np.logaddexp(0.0, -logit))), len(ids)

    def _state(self, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        result = self._run(ids, [0] * len(ids))
        states = result.reshape(-1, result.shape[-1])[: len(ids)]
        state: npt.NDArray[np.float64] = states[-1] if self.pooling == "last" else states.mean(0)
        return state

    def _run(self, ids: Sequence[int], types: Sequence[int]) -> npt.NDArray[np.float64]:
        inputs = []
        for given, spec in zip((ids, [1] * len(ids), types), self.method.inputs, strict=False):
            assert spec.dtype is not None
            row = np.zeros(spec.shape_max[-1], spec.dtype.numpy)  # a fixed length is padded with 0
            row[: len(ids)] = given
            if spec.dynamic[-1]:
                row = row[: len(ids)]
            inputs.append(row.reshape(*spec.shape_max[:-1], -1))
        with self._lock:
            return np.array(self.method(*inputs)[0], np.float64)


def is_encoder(inputs: Sequence[ValueSpec], outputs: Sequence[ValueSpec]) -> bool:
    """Whether a method maps tokens to a vector, or to a state per token. Tokens of a fixed length need a mask
    as a second input, which marks the end of the text; token types are the third."""
    if len(inputs) not in (1, 2, 3) or not outputs or inputs[0].dtype is None or outputs[0].dtype is None:
        return False
    shape, output_shape = inputs[0].shape_max, outputs[0].shape_max
    is_row = len(shape) in (1, 2) and all(size == 1 for size in shape[:-1])
    same_shapes = all(spec.shape_max == shape and spec.dtype is not None for spec in inputs)
    has_end = len(inputs) > 1 or (is_row and inputs[0].dynamic[-1])
    is_whole = np.issubdtype(inputs[0].dtype.numpy, np.integer)
    is_real = np.issubdtype(outputs[0].dtype.numpy, np.floating)
    return bool(is_row and same_shapes and has_end and is_whole and is_real and 1 <= len(output_shape) <= 3)


_Pair = tuple[list[int], list[int]]  # token ids of two texts in one, and which text each is of


def _load_encoding(
    path: Path,
) -> tuple[Callable[[str], list[int]], Callable[[str, str], _Pair] | None, int]:
    """The functions from one text and from two to tokens, and the size of the vocabulary. A tokenizer.json
    adds the special tokens that its encoder was trained with; others know no pairs."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.suffix != ".json" or not file.exists():
        tokenizer = load_tokenizer(path)
        return tokenizer.encode_marked, None, tokenizer.vocab_size
    library = need("tokenizers", f"reading {file.name}", "serve")
    from pteron.names.model_files import as_format_error

    with as_format_error(f"{file.name} is not a tokenizer that `tokenizers` reads"):
        reader = library.Tokenizer.from_file(str(file))
        reader.no_padding()
        reader.no_truncation()
        size = 1 + max(reader.get_vocab().values())

    def encode(*texts: str) -> Any:
        with as_format_error(f"{file.name} cannot encode this text"):
            return reader.encode(*texts)

    def encode_pair(query: str, text: str) -> _Pair:
        found = encode(query, text)
        return list(found.ids), list(found.type_ids)

    return lambda text: list(encode(text).ids), encode_pair, size
