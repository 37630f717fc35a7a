"""Tiny checkpoints of every architecture, as their goldens describe them: a configuration, the names and
shapes of tensors, a prompt, and the logits that Hugging Face's model computes in float64.

The tensors' values follow from their names, so that a golden of a few KB is enough.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
from families import write_tokenizer

from pteron.llm.architectures import find_family
from pteron.llm.architectures.names import place_tensors
from pteron.llm.build.stored_tensor import StoredTensor

FOLDER = Path(__file__).parents[1] / "fixtures/llm/architectures"
NAMES = sorted(file.stem for file in FOLDER.glob("*.npz"))

SCALES = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "logits_scaling": "logit_scale",
    "residual_multiplier": "residual_scale",
}
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

    def write_folder(self, folder: Path) -> Path:
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        save_file(self.tensors(), folder / "model.safetensors", {"format": "pt"})
        write_tokenizer(folder)
        return folder

    def write_gguf(self, file: Path, kind: str = "F32") -> Path:
        """The same as a GGUF file, with matrices of a quantisation type."""
        import gguf

        config, name = self.config, self.config["model_type"]
        family = find_family("golden", name, gguf=True)
        writer = gguf.GGUFWriter(str(file), name)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        if "rms_norm_eps" in config:
            writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        else:
            writer.add_layer_norm_eps(config["norm_epsilon"])
        for key, theirs in SCALES.items():
            if key in config:
                writer.add_float32(f"{name}.{theirs}", config[key])
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
        if config.get("head_dim"):
            writer.add_key_length(config["head_dim"])
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(["<|end|>", *"abcdefghij", "ab"])
        writer.add_token_types([3] + [1] * 11)
        writer.add_token_merges(["a b"])
        writer.add_eos_token_id(0)
        stored = {name: StoredTensor.of(array) for name, array in self.tensors().items()}
        assert family.gguf_names is not None
        known = gguf_names(family.gguf_names)
        for place, tensor in place_tensors(stored, family.names, config).items():
            stem, _, ending = place.rpartition(".")
            layer, pattern = re.search(r"(?<=\.)\d+(?=\.)", stem), re.sub(r"\.\d+\.", ".{}.", stem)
            array = tensor.read()
            if pattern.endswith((".wq", ".wk")) and callable(family.gguf_names[known[pattern]]):
                heads = config["num_attention_heads" if pattern.endswith("q") else "num_key_value_heads"]
                array = array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
            renamed = f"{known[pattern].format(layer[0] if layer else '')}.{ending}"
            wanted = gguf.GGMLQuantizationType[kind]
            if array.ndim == 2 and kind != "F32":
                writer.add_tensor(renamed, gguf.quantize(array, wanted), raw_dtype=wanted)
            else:
                writer.add_tensor(renamed, np.ascontiguousarray(array))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return file


def gguf_names(table: Any) -> dict[str, str]:
    """GGUF names by place."""
    names = {rule: name for name, rule in table.items() if isinstance(rule, str)}
    for kind in ("q", "k"):
        names.setdefault(f"layers.{{}}.attention.w{kind}", f"blk.{{}}.attn_{kind}")
    return names


def values(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Random values of a tensor. Norms are around 1; matrices are large enough for positions to matter."""
    random = np.random.default_rng(crc32(name.encode())).standard_normal(shape)
    if len(shape) < 2:
        is_norm = "norm" in name and name.endswith("weight")
        return np.asarray(1 + 0.3 * random if is_norm else 0.2 * random, np.float32)
    return np.asarray(1.2 * random * shape[-1] ** -0.5, np.float32)
