"""A LoRA adapter's files -> its matrices, by the names of modules in the checkpoint.

In: a folder of Hugging Face's PEFT (adapter_config.json, adapter_model.safetensors) or a GGUF adapter
(`general.type` adapter). What an adapter needs beyond plain LoRA is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from pteron.errors import FormatError, UnsupportedError
from pteron.extras import need
from pteron.folders import existing
from pteron.format.gguf import MAGIC, read_header
from pteron.format.gguf_tensors import read_tensor
from pteron.format.safetensors import read_safetensors
from pteron.format.source import open_bytes, open_file
from pteron.format.stored_tensor import StoredTensor
from pteron.llm.architectures import FAMILIES, find_family
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.names import Names
from pteron.names.cache import HubModel
from pteron.names.download import download_adapter
from pteron.names.kinds import ADAPTER_FILES
from pteron.names.model_files import as_format_error, read_json

CONFIG, WEIGHTS = ADAPTER_FILES
# Settings of PEFT that change what an adapter computes, with the values that do not.
_PLAIN: Mapping[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (None, False),
    "bias": (None, "none"),
    "lora_bias": (None, False),
    "modules_to_save": (None, []),
    "layer_replication": (None, []),
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (None, False),
    "arrow_config": (None,),
}
# Starts that change the model's own weights too: without them the adapter is not complete.
_CHANGED_WEIGHTS = ("pissa", "olora", "corda", "loftq", "lora_ga")
_PEFT_NAME = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
_GGUF_NAME = re.compile(r"(.+)\.weight\.lora_([ab])")


@dataclass(frozen=True, slots=True)
class LoraPair:
    """What is added to a module's matrix [rows, columns]: scale · b · a."""

    a: StoredTensor  # [rank, columns]
    b: StoredTensor  # [rows, rank]
    scale: float


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's matrices by module; `architecture` is that of a GGUF file."""

    name: str
    modules: Mapping[str, LoraPair]
    architecture: str | None = None

    def __post_init__(self) -> None:
        for module, pair in self.modules.items():
            if not abs(pair.scale) <= float(np.finfo(np.float32).max):  # NaN too
                raise FormatError(
                    f"adapter {self.name}, {module}: its factor (alpha by rank) is {pair.scale:g}"
                )

    def names(self, config: Config) -> Names:
        """The table from its modules to places in a decoder with this configuration."""
        where = f"adapter {self.name}"
        if self.architecture is not None:
            names = find_family(where, self.architecture, gguf=True).gguf
            assert names is not None
            return names
        # A program built from a GGUF file has its architecture as model type.
        kind = config.get("model_type")
        return find_family(where, kind, gguf=kind not in FAMILIES).hugging_face


def read_adapter(name: str, path: object) -> Adapter:
    """The adapter in a folder or a GGUF file, or of a hub as "owner/name"."""
    model = HubModel.parse(path) if isinstance(path, str) and not Path(path).exists() else None
    source = existing(path) if model is None else download_adapter(model)
    where = f"adapter {name} ({source})"
    with as_format_error(f"{where} cannot be read"):
        if (source / CONFIG).exists():
            return _read_peft(name, source, where)
        if source.is_file():
            with open_file(source) as file:
                magic = file.read(len(MAGIC))
            if magic == MAGIC:
                return _read_gguf(name, source, where)
    raise FormatError(f"{where} is neither a folder with {CONFIG} nor a GGUF adapter")


def _read_peft(name: str, folder: Path, where: str) -> Adapter:
    config = read_json(folder / CONFIG)
    for key, plain in _PLAIN.items():
        if config.get(key) not in plain:
            raise UnsupportedError(f"{where}: {key} {config.get(key)!r} is not supported, only plain LoRA is")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.startswith(_CHANGED_WEIGHTS):
        raise UnsupportedError(
            f"{where}: init_lora_weights {start!r} changes the model's own weights; save the adapter as "
            "plain LoRA (PEFT's save_pretrained with path_initial_model_for_weight_conversion)"
        )
    if not (folder / WEIGHTS).exists():
        raise FormatError(f"{where} has no {WEIGHTS}; save it with safe_serialization=True")

    def scale(module: str, rank: int) -> float:
        alpha = float(_by_pattern(config.get("alpha_pattern"), module, config.get("lora_alpha", 8)))
        return alpha / (sqrt(rank) if config.get("use_rslora") else rank)

    pairs = _pairs(read_safetensors(folder / WEIGHTS), _PEFT_NAME, where)
    return Adapter(name, {module: LoraPair(a, b, scale(module, a.rows)) for module, (a, b) in pairs.items()})


def _by_pattern(patterns: Any, module: str, default: Any) -> Any:
    """The value of the first pattern that matches a module or the end of its name, as in PEFT."""
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default


def _read_gguf(name: str, path: Path, where: str) -> Adapter:
    library = need("gguf", f"reading {path.name}")
    file, header = open_bytes(path, path.name), read_header(path)
    fields = header.fields
    kinds = fields.get("general.type"), fields.get("adapter.type")
    if kinds != ("adapter", "lora"):
        raise FormatError(
            f"{where} is no LoRA adapter: its general.type is {kinds[0]!r}, adapter.type {kinds[1]!r}"
        )
    if fields.get("adapter.alora.invocation_tokens"):
        raise UnsupportedError(
            f"{where}: adapter.alora.invocation_tokens is not supported, only plain LoRA is"
        )
    tensors = {info.name: read_tensor(library, info, file) for info in header.tensors}
    alpha = float(fields.get("adapter.lora.alpha") or 0)
    pairs = _pairs(tensors, _GGUF_NAME, where)
    # As in llama.cpp, no alpha means no factor.
    modules = {module: LoraPair(a, b, alpha / a.rows if alpha else 1.0) for module, (a, b) in pairs.items()}
    return Adapter(name, modules, str(fields.get("general.architecture")))


def _pairs(
    tensors: Mapping[str, StoredTensor], pattern: re.Pattern[str], where: str
) -> dict[str, tuple[StoredTensor, StoredTensor]]:
    """Both matrices of each module."""
    found: dict[str, dict[str, StoredTensor]] = {}
    for name, tensor in tensors.items():
        matched = pattern.fullmatch(name)
        if not matched:
            raise UnsupportedError(
                f"{where}: tensor {name} is not supported, only matrices of plain LoRA are (no embeddings, "
                "biases, magnitudes or whole modules)"
            )
        found.setdefault(matched[1], {})[matched[2].lower()] = tensor
    pairs = {}
    for module, both in found.items():
        a, b = both.get("a"), both.get("b")
        if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2 or not a.rows == b.shape[1] > 0:
            shapes = ", ".join(f"lora_{kind} {list(tensor.shape)}" for kind, tensor in sorted(both.items()))
            raise FormatError(
                f"{where}, {module}: {shapes}; needed are lora_a [rank, columns], lora_b [rows, rank]"
            )
        pairs[module] = (a, b)
    if not pairs:
        raise FormatError(f"{where} has no matrices")
    return pairs
