"""Tiny checkpoints of every architecture, as their goldens describe them: a configuration, the names and
shapes of tensors, a prompt, and the logits that Hugging Face's model computes in float64.

The tensors' values follow from their names, so that a golden of a few KB is enough.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
from families import write_tokenizer

import pteron
from pteron.llm.export.checkpoint import Checkpoint
from pteron.llm.network.options import Options
from pteron.runtime import Program
from pteron.runtime.sequence import Sequence

FOLDER = Path(__file__).parents[1] / "fixtures/llm/architectures"
NAMES = sorted(file.stem for file in FOLDER.glob("*.npz"))

Tensors = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Golden:
    config: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    prompt: list[int]
    logits: npt.NDArray[np.float64]  # [tokens, vocabulary]

    @classmethod
    def load(cls, name: str) -> Golden:
        with np.load(FOLDER / f"{name}.npz") as file:
            about = json.loads(str(file["about"]))
            shapes = {name: tuple(shape) for name, shape in about["shapes"].items()}
            return cls(about["config"], shapes, about["prompt"], file["logits"].astype(np.float64))

    def save(self, name: str) -> None:
        about = {"config": self.config, "shapes": self.shapes, "prompt": self.prompt}
        np.savez_compressed(
            FOLDER / f"{name}.npz", about=json.dumps(about), logits=self.logits.astype(np.float32)
        )

    def tensors(self) -> Tensors:
        return {name: values(name, shape) for name, shape in self.shapes.items()}

    def write_folder(self, folder: Path, kind: str = "F32") -> Path:
        """A Hugging Face folder; with the values of matrices in a type of GGUF files."""
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        tensors = self.tensors() if kind == "F32" else self.dequantized(kind)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        write_tokenizer(folder)
        return folder

    def write_gguf(self, file: Path, kind: str = "F32") -> Path:
        """The same as a GGUF file; matrices in a quantisation type have values of their own."""
        from gguf_writer import write_gguf

        return write_gguf(self, file, kind)

    def wide(self) -> Golden:
        """The same with sizes eight times as large, for types with blocks of 256 weights; without logits."""
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "head_dim")
        config = self.config | {key: 8 * self.config[key] for key in sizes if self.config.get(key)}
        shapes = {
            name: tuple(8 * size if size >= 16 else size for size in shape)
            for name, shape in self.shapes.items()
        }
        return Golden(config, shapes, self.prompt, np.zeros(0))

    def dequantized(self, kind: str) -> Tensors:
        """The tensors whose matrices `write_gguf` writes in a quantisation type."""
        from gguf_blocks import dequantized_values

        return {name: dequantized_values(kind, name, shape) for name, shape in self.shapes.items()}


def values(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Random values of a tensor. Norms are around 1; matrices are large enough for positions to matter."""
    if name.endswith((".beta", ".eps")):  # of activations
        return np.full(shape, 0.5 if name.endswith("beta") else -1e-6, np.float32)
    random = np.random.default_rng(crc32(name.encode())).standard_normal(shape)
    if len(shape) < 2:
        is_norm = re.search(r"norm|\bln_", name) is not None and name.endswith("weight")
        return np.asarray(1 + 0.3 * random if is_norm else 0.2 * random, np.float32)
    return np.asarray(1.2 * random * shape[-1] ** -0.5, np.float32)


def write_mxfp4(golden: Golden, folder: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """A folder of gpt-oss whose experts are random numbers in MXFP4; its tensors, and the same as floats."""
    from safetensors.numpy import save_file

    random = np.random.default_rng(3)
    blocks, plain = golden.tensors(), golden.tensors()
    kinds = [0.0, 0.5, 1, 1.5, 2, 3, 4, 6]
    kinds += [-number for number in kinds]
    for name in [name for name in plain if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        count, columns, rows = plain[name].shape
        numbers = random.integers(0, 16, (count, rows, columns // 32, 32))
        powers = random.integers(120, 126, (count, rows, columns // 32))
        values = np.array(kinds)[numbers] * 2.0 ** (powers[..., None] - 127)
        plain[name] = np.ascontiguousarray(values.reshape(count, rows, columns).swapaxes(1, 2), np.float32)
        del blocks[name]
        packed = numbers[..., ::2] | numbers[..., 1::2] << 4
        blocks[f"{name}_blocks"] = packed.astype(np.uint8)
        blocks[f"{name}_scales"] = powers.astype(np.uint8)
    save_file(blocks, golden.write_folder(folder) / "model.safetensors", {"format": "pt"})
    return folder, blocks, plain


@contextmanager
def loaded(checkpoint: Checkpoint, options: Options, folder: Path) -> Iterator[Program]:
    checkpoint.program(options).write(folder / "model.pte")
    with pteron.load(folder / "model.pte") as program:
        yield program


def logits(program: Program | Sequence, ids: list[int], chunks: list[int]) -> npt.NDArray[np.float64]:
    """The logits of all tokens, [tokens, vocabulary], of calls with these numbers of tokens."""
    found, position = [], 0
    for count in chunks:
        (result,) = program["forward"](np.array([ids[position : position + count]]), np.array([position]))
        found.append(np.asarray(result, np.float64)[0])
        position += count
    assert position == len(ids)
    return np.concatenate(found)
