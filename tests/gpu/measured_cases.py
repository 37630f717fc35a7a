"""What is measured: operators and small language models that together launch every kernel."""

from __future__ import annotations

from operator import add
from typing import Any

import numpy as np
from arguments import Symbol, tensor, weight
from attention_block import BLOCK, Oracle, block
from attention_cases import (
    CACHED,
    CHUNKS,
    OPTIONED,
    PLAIN,
    ROPE_HF,
    CachedAttention,
    OptionedAttention,
    cached,
)
from int8_caches import int8_cache
from measured_case import DEEP, LONG, Case, case
from measured_experts import EXPERT_CASES
from measured_joins import JOINED_CASES
from measured_order import ORDER_CASES
from measured_planes import PLANE_CASES
from measured_quantized import QUANTIZED_CASES
from measured_recurrent import RECURRENT_CASES
from measured_rows import ROW_CASES
from measured_training import TRAINING_CASES
from row_cases import WORDS, added

from pteron.llm.sampling import Sampling


def optioned(width: int, value_width: int, kernels: str, on: str, *, is_int8: bool = False) -> Case:
    """With a window, a soft cap, sinks, slopes and values of another width."""
    q, k, _, k_cache, *_, position = cached(6, 2, width, capacity=142)
    v, v_cache = tensor(1, "S", 2, value_width), weight(1, 142, 2, value_width)
    if is_int8:
        k_cache, v_cache = (int8_cache(np.zeros((1, 142, 2, each))) for each in (width, value_width))
    options = (None, 37, 9.0, weight(6), weight(6), None)
    arguments = (q, k, v, k_cache, v_cache, position, *options)
    return case(OPTIONED, *arguments, kernels=kernels, on=(on,), oracle=OptionedAttention, live=CHUNKS)


class RingAttention(OptionedAttention):
    """With a row for each position of the chunks."""

    def __init__(self) -> None:
        super().__init__(142)


def ring(width: int, kernels: str, on: str, *, is_int8: bool = False) -> Case:
    """Caches that have just room for a window of 37 keys and the longest chunk."""
    q, k, v, *caches, position = cached(6, 2, width, capacity=103)
    if is_int8:
        caches = [int8_cache(np.zeros((1, 103, 2, width))) for _ in range(2)]
    arguments = (q, k, v, *caches, position, None, 37, None, None, None, None)
    return case(OPTIONED, *arguments, kernels=kernels, on=(on,), oracle=RingAttention, live=CHUNKS)


def attention(
    width: int, causal: bool, kernels: str, on: str, heads: int = 4, batch: int = 2, **options: Any
) -> Case:
    live = options.pop("live", CHUNKS)
    capacity = max(map(add, live["S"], live["p"]))
    arguments = (*cached(heads, 2, width, batch, capacity), 1, None, 0, causal, None)
    return case(CACHED, *arguments, kernels=kernels, on=(on,), oracle=CachedAttention, live=live, **options)


def product(rows: tuple[int, ...], kernels: str, on: str, depth: int = 67, **options: Any) -> Case:
    arguments = tensor("M", depth), weight(131, depth), weight(131)
    return case("aten.linear.default", *arguments, kernels=kernels, on=(on,), live={"M": rows}, **options)


FAR = {"S": (5, 1), "p": (0, 642)}  # a context that is split

CASES = [
    *EXPERT_CASES,
    *JOINED_CASES,
    *ORDER_CASES,
    *PLANE_CASES,
    *QUANTIZED_CASES,
    *RECURRENT_CASES,
    *ROW_CASES,
    *TRAINING_CASES,
    case("aten.add.Tensor", tensor(3, "S", 5), tensor("S", 1), 2, kernels="binary"),
    case("aten.add.Tensor", tensor(3, "S", 5), tensor(3, "S", 5), 2, kernels="binary_alike"),
    case("aten.add.Tensor", tensor(3, "S", 4), tensor("S", 1), 2, kernels="binary_quads", on=("software",)),
    case("aten.add.Tensor", tensor(5), tensor(4, "S", 5), 2, kernels="binary_quads", on=("software",)),
    case("aten.gelu.default", tensor("S", 13), "none", kernels="unary"),
    case("aten.where.self", tensor("S", 1, dtype="bool"), tensor("S", 3), tensor(3), kernels="where"),
    case("aten.permute_copy.default", tensor(2, "S", 3), [2, 0, 1], kernels="copy"),
    case("aten.slice_copy.Tensor", tensor(2, "S", 13), 2, 1, 12, 3, kernels="copy"),
    case("aten.flip.default", tensor(2, "S", 3), [0, 2], kernels="copy"),
    case("aten.full.default", [3, Symbol("S")], 2.5, None, None, None, None, kernels="fill"),
    case("aten.sum.dim_IntList", tensor(5, "S", LONG), [0, 2], False, None, kernels="reduce", tolerance=1e-3),
    case("aten.amax.default", tensor("S", 3, 5), [1], False, kernels="reduce"),
    case("aten.argmax.default", tensor(3, "S", 5), 1, False, kernels="reduce_index"),
    case("aten._softmax.default", tensor("S", LONG), -1, False, kernels="softmax"),
    case("aten._log_softmax.default", tensor("S", 5, 3), 1, False, kernels="softmax"),
    case(
        "aten.native_layer_norm.default",
        *(tensor("S", LONG), [LONG], weight(LONG), weight(LONG), 1e-5),
        kernels="norm",
    ),
    case(
        "aten.native_group_norm.default",
        *(tensor("S", 6, 13, 7), weight(6), weight(6), Symbol("S"), 6, 91, 2, 1e-5),
        kernels="norm",
    ),
    case("aten._softmax.default", tensor("S", DEEP), -1, False, kernels="softmax_write", on=("software",)),
    case(
        "aten.native_layer_norm.default",
        *(tensor("S", DEEP), [DEEP], weight(DEEP), weight(DEEP), 1e-5),
        kernels="norm_write",
        on=("software",),
    ),
    case(
        "aten.native_layer_norm.default",
        *(tensor("S", 776), [776], weight(776), weight(776), 1e-5),
        kernels="norm_registers",
        on=("hardware",),
    ),
    case(
        "et_vk.rms_norm.default",
        *(tensor("S", DEEP), weight(DEEP), 1e-5),
        kernels="norm_write",
        on=("software",),
    ),
    case(
        "et_vk.rms_norm.default",
        *(tensor("S", 2088), weight(2088), 1e-5),
        kernels="norm_registers",
        on=("hardware",),
    ),
    case(
        "aten.index_select.default",
        tensor(5, "S"),
        0,
        tensor(3, dtype="i64", low=0, high=4),
        kernels="gather",
    ),
    case(
        "aten.gather.default",
        tensor(5, 7),
        0,
        tensor("S", 3, dtype="i64", low=0, high=4),
        False,
        kernels="gather_each",
    ),
    case(
        ROPE_HF,
        tensor(2, "S", 3, 10),
        tensor(2, "S", 1, 10),
        weight(23, 6),
        weight(23, 6),
        Symbol("p"),
        kernels="rope",
        live={"S": (5, 1, 7), "p": (0, 5, 16)},
    ),
    product((67, 1, 33), "matmul_thread", "software", 61),
    product((67, 1, 33), "matmul_thread", "software", 60),
    product((5, 1), "matmul_uniform matmul_merge", "software", DEEP + 1),
    product((3, 1, 2), "matvec", "hardware", LONG),
    product((67, 33), "matmul_tiled", "hardware"),
    product((67, 33), "matmul_matrix", "matrices", 131, tolerance=0.05),
    case(
        *("aten.linear.default", tensor("S", 1009), weight(12, 1009), weight(12)),
        kernels="matmul_tiled matmul_merge",
        live={"S": (67, 33)},
        on=("hardware",),
    ),
    case("aten.bmm.default", tensor(3, "S", 5), tensor(3, 5, 13), kernels=""),
    product((5, 1), "matmul_uniform matmul_merge", "software", DEEP),
    case("test.advance", *WORDS, kernels="advance", oracle=added, dtype="i32"),
    attention(6, True, "attention_scores attention_values", "software"),
    attention(64, True, "attention_uniform", "software", batch=1),
    attention(20, False, "attention_uniform", "software", heads=6, batch=1),
    case(
        PLAIN,
        *(tensor(2, 3, "S", 16), tensor(2, 3, "T", 16), tensor(2, 3, "T", 16), tensor(2, 1, "S", "T"), None),
        kernels="copy attention_uniform",
        on=("software",),
        live={"S": (13, 9), "T": (37, 71)},
    ),
    attention(64, True, "attention_tiled attention_split attention_merge", "hardware"),
    attention(12, False, "attention_tiled attention_split attention_merge", "hardware"),
    attention(16, True, "attention_matrix", "matrices", tolerance=0.05),
    attention(64, True, "attention_decode", "subgroups"),
    attention(64, True, "attention_decode attention_merge", "subgroups", live=FAR),
    attention(20, False, "attention_decode attention_merge", "subgroups", heads=10, live=FAR),
    optioned(6, 10, "attention_scores attention_values", "software"),
    optioned(20, 12, "attention_tiled attention_split attention_merge", "hardware"),
    optioned(12, 36, "attention_decode attention_tiled", "subgroups"),
    ring(6, "write_rows attention_scores attention_values", "software"),
    ring(20, "write_rows attention_tiled attention_split", "hardware"),
    ring(12, "write_int8 attention_decode attention_tiled", "subgroups", is_int8=True),
    optioned(40, 36, "write_int8 attention_scores attention_values", "software", is_int8=True),
    optioned(20, 64, "write_int8 attention_tiled attention_split", "hardware", is_int8=True),
    optioned(12, 36, "write_int8 attention_decode attention_tiled", "subgroups", is_int8=True),
    case(
        BLOCK,
        *block("halves", batch=2, capacity=142, biases=True, output=13, residual=tensor(2, "S", 13)),
        kernels="q4_digits attention_decode",
        on=("subgroups",),
        oracle=Oracle,
        live={"S": (2, 1, 1), "p": (0, 2, 140)},
    ),
    case(
        BLOCK,
        *block("pairs", 3, 3, 24, capacity=142, output=13, int8=("first", "last")),
        kernels="q4_digits attention_decode",
        on=("subgroups",),
        oracle=Oracle,
        live={"S": (4, 1, 3), "p": (0, 4, 137)},
    ),
]

# Models, and the kernels that no case above launches. A call is (tokens, position).
CALLS = ((31, 0), (5, 31), (1, 36), (1, 37), (2, 62))
MODELS = {
    "tiny_llama_fp32": "norm rope",
    "tiny_llama_8da4w": "choose_qparams",
    "tiny_llama_q4_emb4": "embedding_q4",
    "tiny_qwen3_fp32": "rope_norm",
}
SAMPLERS = {
    Sampling(): "sample_scan sample_merge",
    Sampling(0.7, 5, 0.9, 0.1, 1.3): "sample_scan sample_tally sample_narrow sample_pick sample_merge",
    Sampling(top_logprobs=20): "sample_scan sample_list sample_list_merge sample_merge",
    Sampling(0.7, 5, 0.9, 0.1, 1.3, 1, 0.5, 0.5, {5002: 3.0}): "sample_change sample_scan sample_pick",
}
ROWS = (
    "sample_change sample_scan sample_tally sample_narrow sample_pick sample_list sample_list_merge "
    "sample_merge"
)
