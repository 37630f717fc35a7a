"""LoRA adapters of tiny checkpoints, as PEFT folders and GGUF files; their values follow from names."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from checkpoints import Golden, values

FOLDER = Path(__file__).parents[1] / "fixtures/llm/adapters"
MODELS = ("llama", "gpt2", "phi3", "falcon_40b", "qwen3")
_TABLES = re.compile(r"embed|wte|wpe")
_BY_COLUMNS = re.compile(r"\.c_(attn|proj|fc)\.weight")  # matrices stored as [columns, rows]


@dataclass(frozen=True)
class LoraFiles:
    """An adapter of the modules whose names match `targets`."""

    name: str
    targets: str
    rank: int
    alpha: float
    settings: dict[str, Any] = field(default_factory=dict)  # further ones of adapter_config.json

    def matrices(self, golden: Golden) -> dict[str, tuple[npt.NDArray[np.float32], ...]]:
        """lora_A and lora_B by module."""
        found: dict[str, tuple[npt.NDArray[np.float32], ...]] = {}
        for name, shape in golden.shapes.items():
            if len(shape) == 2 and re.search(self.targets, name) and not _TABLES.search(name):
                rows, columns = shape[::-1] if _BY_COLUMNS.search(name) else shape
                module = name.removesuffix(".weight")
                a = values(f"{self.name}.{module}.a", (self.rank, columns))
                b = values(f"{self.name}.{module}.b", (rows, self.rank))
                found[module] = (a, b * np.float32(0.5))
        assert found, self.targets
        return found

    def scale(self, module: str) -> float:
        patterns = self.settings.get("alpha_pattern", {})
        alpha = next((value for key, value in patterns.items() if module.endswith(key)), self.alpha)
        return alpha / (sqrt(self.rank) if self.settings.get("use_rslora") else self.rank)

    def merged(self, golden: Golden) -> dict[str, npt.NDArray[np.float64]]:
        """The checkpoint's tensors with the adapter added, in float64."""
        tensors = {name: tensor.astype(np.float64) for name, tensor in golden.tensors().items()}
        for module, (a, b) in self.matrices(golden).items():
            added = self.scale(module) * b.astype(np.float64) @ a.astype(np.float64)
            name = f"{module}.weight"
            tensors[name] += added.T if _BY_COLUMNS.search(name) else added
        return tensors

    def write_peft(self, golden: Golden, folder: Path, **settings: Any) -> Path:
        from safetensors.numpy import save_file

        folder.mkdir(parents=True)
        config = {"peft_type": "LORA", "r": self.rank, "lora_alpha": self.alpha, "bias": "none"}
        (folder / "adapter_config.json").write_text(json.dumps(config | self.settings | settings))
        tensors = {
            f"base_model.model.{module}.lora_{kind}.weight": np.ascontiguousarray(matrix)
            for module, pair in self.matrices(golden).items()
            for kind, matrix in zip("AB", pair, strict=True)
        }
        save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
        return folder


ADAPTERS = (
    LoraFiles("attention", r"attn|attention", 4, 8.0),
    LoraFiles("all", r"weight", 7, 2.0, {"use_rslora": True, "alpha_pattern": {"mlp.down_proj": 5.0}}),
    LoraFiles("one", r"[hs]\.1\.mlp", 1, 1.5),
)


def golden_logits(model: str) -> npt.NDArray[np.float64]:
    """The logits of each of ADAPTERS, [adapters, tokens, vocabulary]."""
    with np.load(FOLDER / f"{model}.npz") as file:
        return np.asarray(file["logits"], np.float64)


def write_gguf_adapter(files: LoraFiles, golden: Golden, path: Path) -> Path:
    """An adapter as llama.cpp's converter writes it: lora_b has its rows in the order of the model's file."""
    import gguf
    from gguf_writer import ARCHITECTURES, _converted

    kind = golden.config["model_type"]
    name = ARCHITECTURES.get(kind, kind)
    writer = gguf.GGUFWriter(str(path), name)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    if files.alpha:
        writer.add_float32("adapter.lora.alpha", files.alpha)
    architecture = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(architecture, golden.config["num_hidden_layers"])
    for module, (a, b) in files.matrices(golden).items():
        ((_, rows),) = _converted({f"{module}.weight": b}, name, golden.config, writer)
        renamed = names.get_name(module)
        assert renamed is not None, module
        writer.add_tensor(f"{renamed}.weight.lora_a", a)
        writer.add_tensor(f"{renamed}.weight.lora_b", np.ascontiguousarray(rows))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
