"""Encoder: a program that turns a text into one vector, with its tokenizer.

In: a folder with a program and a tokenizer.json (or another tokenizer's file). The program's `forward` takes
tokens [S] or [1, S], and may take a mask of the same shape; it gives a vector [D] or [1, D], or a state for
each token, [S, D] or [1, S, D], whose mean is taken. Out: vectors of length one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError, UnsupportedError
from pteron.extras import need
from pteron.gpu import Device
from pteron.gpu.forking import new_lock
from pteron.llm.given import existing
from pteron.llm.settings import program_file
from pteron.llm.vocabularies.load import load_tokenizer
from pteron.runtime import ValueSpec, load

Vector = npt.NDArray[np.float32]


class Encoder:
    """Texts in, vectors out, each of length one."""

    def __init__(self, path: str | os.PathLike[str], *, device: Device | str | None = None) -> None:
        path = existing(path)
        folder = path if path.is_dir() else path.parent
        self.program = load(program_file(folder) if path.is_dir() else path, device=device)
        self.method = self.program["forward"]
        if not is_encoder(self.method.inputs, self.method.outputs):
            raise UnsupportedError(
                f"{self.program.file.name}: forward is no encoder: it takes "
                f"({', '.join(map(str, self.method.inputs))}), not tokens [S] and at most a mask"
            )
        self._encode = _encoding(folder)
        self._lock = new_lock()  # calls of one method follow one another

    @property
    def tokens_max(self) -> int:
        return self.method.inputs[0].shape_max[-1]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that mark its beginning and end."""
        return self._encode(text)

    def embed(self, ids: Sequence[int]) -> Vector:
        """The vector [D] of a text's tokens."""
        if not 0 < len(ids) <= self.tokens_max:
            raise InputError(f"the text has {len(ids)} tokens; from 1 to {self.tokens_max} are taken")
        inputs = []
        for place, spec in enumerate(self.method.inputs):
            assert spec.dtype is not None
            row = np.zeros(spec.shape_max[-1], spec.dtype.numpy)  # what a fixed length leaves over stays 0
            row[: len(ids)] = ids if place == 0 else 1
            if spec.dynamic[-1]:
                row = row[: len(ids)]
            inputs.append(row.reshape(*spec.shape_max[:-1], -1))
        with self._lock:
            result = np.array(self.method(*inputs)[0], np.float32)
        states = result.reshape(-1, result.shape[-1])
        mean = states[: len(ids)].mean(0)
        vector: Vector = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return vector

    def close(self) -> None:
        self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def _encoding(folder: Path) -> Callable[[str], list[int]]:
    """How texts become tokens. A tokenizer.json adds the marks that encoders are trained with by itself."""
    file = folder / "tokenizer.json"
    if not file.exists():
        tokenizer = load_tokenizer(folder)
        return lambda text: tokenizer.encode(text, bos=tokenizer.adds_bos)
    library = need("tokenizers", f"reading {file.name}", "serve")
    from pteron.llm.foreign import naming

    with naming(f"{file.name} is not a tokenizer that `tokenizers` reads"):
        reader = library.Tokenizer.from_file(str(file))
        reader.no_padding()
        reader.no_truncation()

    def encode(text: str) -> list[int]:
        with naming(f"{file.name} cannot encode this text"):
            return list(reader.encode(text).ids)

    return encode
