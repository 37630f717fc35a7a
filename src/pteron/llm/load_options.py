"""LoadOptions: how a model is loaded. Names of other libraries' arguments -> what to write instead."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches

from pteron.errors import InputError, UnsupportedError
from pteron.format.records import ProgramFile
from pteron.gpu import Device
from pteron.graph import Graph
from pteron.llm.cache.options import CacheOptions
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.runtime import Program
from pteron.runtime.loaded_method import PRODUCTS_VARIABLE, Precision

EXACT, QUICK = Precision(), Precision(digits=2, products="f16")
# Operators whose weights have 4 or 8 bits.
_QUANTIZED = ("linear_q", "linear_dq", "q8ta_linear", "_weight_int8pack_mm", "experts_q", "experts_int8")


@dataclass(frozen=True, slots=True)
class LoadOptions(CacheOptions):
    """The options of `LLM`, which documents them, with those of its KV caches."""

    tokenizer: str | os.PathLike[str] | Tokenizer | None = None
    data: Sequence[str | os.PathLike[str]] = ()
    device: Device | str | None = None
    digits: int | None = None
    products: str | None = None
    sequences: int | None = None
    cache_bytes: int | None = None
    speculate: object = None
    adapters: Mapping[str, str | os.PathLike[str]] | None = None
    warm: bool = True

    def __post_init__(self) -> None:
        CacheOptions.__post_init__(self)
        if self.adapters is not None and not isinstance(self.adapters, Mapping):
            raise InputError(
                "adapters must be a dict of names and paths, as in "
                f'adapters={{"sql": "adapters/sql"}}, not {self.adapters!r}'
            )

    def precision(self, program: Program) -> Precision:
        """How exactly products of a program are computed. Where weights are quantised and matrix cores are
        used, QUICK is the default: it changed perplexity by less than 0.1 % (docs/language-models.md)."""
        has_matrices = program.device.target.has_matrices
        is_quantized = any(_is_quantized(graph) for method in program for graph in program.graphs(method))
        quick = QUICK if has_matrices and is_quantized else None
        return Precision.chosen(self.digits, self.products, quick)

    def adapt(self, file: ProgramFile, graph: Graph) -> Graph:
        """A graph of the file with these caches. Where weights are quantised and the GPU computes with 16
        bits, caches have 16 bits too, unless products are to be exact."""
        if self.cache is None and _is_quantized(graph) and not self._is_exact and self._has_halves:
            with suppress(UnsupportedError):  # the file says otherwise
                return CacheOptions.adapt(replace(self, cache="f16"), file, graph)
        return CacheOptions.adapt(self, file, graph)

    @property
    def _is_exact(self) -> bool:
        return (self.products or os.environ.get(PRODUCTS_VARIABLE, "").strip()) == EXACT.products

    @property
    def _has_halves(self) -> bool:
        target = Device.begin(self.device).target
        return target.shader_f16 and not target.is_cpu


def _is_quantized(graph: Graph) -> bool:
    """Whether weights of layers have 4 or 8 bits; an embedding alone makes no product."""
    names = (node.name.partition(".")[2] for node in graph.nodes)
    return any(name.startswith(_QUANTIZED) for name in names)


_CONTEXT = "context= is the number of tokens of a KV cache"
_CACHE = 'cache="f16" halves the KV cache, cache="int8" takes 28 % of f32'
_DEVICE = "device= chooses the GPU"
_ALL_ON_GPU = f"all layers run on the GPU, and {_DEVICE}"
_WEIGHTS = "`pteron export llm --quantize` chooses the type of weights, cache= that of the KV cache"
_SEQUENCES = "sequences= limits how many run at once"
_MEMORY = "cache_bytes= limits the memory of KV caches"
_ONE_GPU = "a model runs on one GPU; `pteron serve --ray --replicas` uses several"
_ADAPTERS = 'adapters={"name": path} are LoRA adapters'
_SPECULATE = 'speculate= is "lookup" or a smaller model'
_REQUEST = "it is an option of each request, as in llm.generate(prompt, temperature=0.7)"
_CHUNK = "`pteron export llm --max-seq-len` chooses the tokens of one call"

# Of llama.cpp (llama-cpp-python), vLLM and transformers.
OTHER_NAMES = {
    **dict.fromkeys(("n_ctx", "num_ctx", "max_model_len", "max_seq_len", "max_context_len"), _CONTEXT),
    **dict.fromkeys(("kv_cache_dtype", "type_k", "type_v"), _CACHE),
    "swa_full": "rings=False keeps all tokens of layers with a sliding window",
    **dict.fromkeys(("device_map", "main_gpu"), _DEVICE),
    **dict.fromkeys(("n_gpu_layers", "gpu_layers", "cpu_offload_gb", "n_threads"), _ALL_ON_GPU),
    **dict.fromkeys(
        ("dtype", "torch_dtype", "quantization", "quantize", "load_in_4bit", "load_in_8bit"), _WEIGHTS
    ),
    **dict.fromkeys(("max_num_seqs", "n_seq_max", "n_parallel"), _SEQUENCES),
    **dict.fromkeys(("gpu_memory_utilization", "swap_space"), _MEMORY),
    **dict.fromkeys(("tensor_parallel_size", "pipeline_parallel_size", "tensor_split"), _ONE_GPU),
    **dict.fromkeys(("enable_lora", "lora", "lora_path", "lora_modules", "loras"), _ADAPTERS),
    **dict.fromkeys(("draft_model", "speculative_config", "speculative_model"), _SPECULATE),
    **dict.fromkeys(("temperature", "top_p", "top_k", "seed", "max_tokens", "max_new_tokens"), _REQUEST),
    **dict.fromkeys(("n_batch", "max_num_batched_tokens"), _CHUNK),
    **dict.fromkeys(("model_path", "name", "filename"), "the model is the first argument"),
}


def check_no_others(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for arguments that a model does not have."""
    names = sorted(known)
    for name in (name for name in given if name not in names):
        near = get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]}=?" if near else f"known are {', '.join(names)}"
        raise InputError(f"unknown argument {name!r}: {OTHER_NAMES.get(name, hint)}")
