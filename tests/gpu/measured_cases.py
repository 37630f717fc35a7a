"""What is measured: operators and small language models that together launch every kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arguments import Argument, Symbol, tensor, weight
from check import check_op
from quantized_cases import quantized_cases
from test_attention import CACHED, CHUNKS, CachedAttention, cached
from test_convolution import CONVOLUTION
from test_convolution import numbers as numbers_of_convolution
from test_norm import _rms_norm
from test_quantized import LINEAR, linear, packed, scales
from test_resample import nearest, priors
from test_rope import ROPE_HF, _rope_hf
from test_training import (
    INPUT_GRADIENT,
    LOSS,
    RATES,
    REQUANTIZE,
    STEP,
    WEIGHT_GRADIENT,
    adamw,
    cross_entropy,
    input_gradient,
    requantized,
    weight_gradient,
)

from pteron.llm.sampling import Sampling
from pteron.ops import Target

LIVE = {"S": (7, 1, 5)}
LONG = 1009  # elements of a row that has more of them than lanes
DEEP = 20_011  # more than one invocation walks
EITHER = ("software", "hardware")


@dataclass(frozen=True)
class Case:
    """An operator at work, and the kernels that must be among its launches on each kind of device."""

    name: str
    arguments: tuple[Argument, ...]
    kernels: str
    kinds: tuple[str, ...]
    options: dict[str, Any]

    def check(self, target: Target) -> None:
        options = {"tolerance": 1e-4, **self.options}
        if isinstance(options.get("oracle"), type):  # one that keeps caches
            options["oracle"] = options["oracle"]()
        check_op(self.name, *self.arguments, target=target, **options)


def case(name: str, *arguments: Argument, kernels: str, on: tuple[str, ...] = EITHER, **options: Any) -> Case:
    return Case(name, arguments, kernels, on, {"live": LIVE, **options})


def attention(width: int, causal: bool, kernels: str, on: str) -> Case:
    arguments = (*cached(4, 2, width, batch=2, capacity=142), 1, None, 0, causal, None)
    return case(CACHED, *arguments, kernels=kernels, on=(on,), oracle=CachedAttention, live=CHUNKS)


def product(rows: tuple[int, ...], kernels: str, on: str, depth: int = 67) -> Case:
    arguments = tensor("M", depth), weight(131, depth), weight(131)
    return case("aten.linear.default", *arguments, kernels=kernels, on=(on,), live={"M": rows})


def product_q4(rows: tuple[int, ...], kernels: str, on: str, depth: int = 100, columns: int = 67) -> Case:
    weights = weight(values=packed(columns, depth), dtype="u8"), scales(depth, 32, columns)
    x, bias = tensor("M", depth, low=-1, high=1), weight(-(-columns // 4) * 4)
    return case(LINEAR, x, *weights, 32, bias, kernels=kernels, on=(on,), oracle=linear, live={"M": rows})


def convolution(
    channels: int, filters: int, kernels: str, on: tuple[str, ...] = EITHER, groups: int = 1, size: int = 7
) -> Case:
    weights = weight(filters, channels // groups, 3, 3, low=-0.5, high=0.5), weight(filters)
    arguments = tensor("S", channels, size, size, low=-1, high=1), *weights
    numbers = numbers_of_convolution(stride=2, padding=1, groups=groups)
    return case(CONVOLUTION, *arguments, *numbers, kernels=kernels, on=on)


def input_product(rows: tuple[int, ...], kernels: str, on: str) -> Case:
    weights = weight(values=packed(131, 72), dtype="u8"), weight(3, 132, low=0.01, high=0.2)
    x = tensor("M", 131, low=-1, high=1)
    return case(
        INPUT_GRADIENT, x, *weights, 32, kernels=kernels, on=(on,), oracle=input_gradient, live={"M": rows}
    )


CASES = [
    case("aten.add.Tensor", tensor(3, "S", 5), tensor("S", 1), 2, kernels="binary"),
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
        kernels="layer_norm",
    ),
    case("aten._softmax.default", tensor("S", DEEP), -1, False, kernels="softmax_write", on=("software",)),
    case(
        "aten.native_layer_norm.default",
        *(tensor("S", DEEP), [DEEP], weight(DEEP), weight(DEEP), 1e-5),
        kernels="layer_norm_write",
        on=("software",),
    ),
    case(
        "aten.native_group_norm.default",
        *(tensor("S", 6, 13, 7), weight(6), weight(6), Symbol("S"), 6, 91, 2, 1e-5),
        kernels="layer_norm",
    ),
    case(
        "aten._native_batch_norm_legit_no_training.default",
        *(tensor("S", 5, 7), weight(5), weight(5), weight(5), weight(5, low=0.5, high=2), 0.1, 1e-5),
        kernels="batch_norm",
    ),
    case(
        "aten.avg_pool2d.default",
        *(tensor(2, 3, "S", 13), [3, 5], [2, 1], [1, 2], True, False, None),
        kernels="average_pool",
    ),
    case(
        "aten.avg_pool2d.default",
        *(tensor("S", 1, 31, 37), [17, 19], [3, 2], [8, 9], True, True, None),
        kernels="average_pool",
    ),
    case(
        "aten.avg_pool2d.default", tensor("S", 3, 13, 7), [13, 7], [], [0], False, True, 5, kernels="reduce"
    ),
    case(
        "aten.max_pool2d.default",
        *(tensor(3, "S", 13), [2, 3], [1, 2], [1, 1], [1, 2], True),
        kernels="largest_pool",
    ),
    case(
        "aten.max_pool2d_with_indices.default",
        *(tensor("S", 1, 31, 37), [13, 11], [3, 2], [6, 5], [2, 3], True),
        kernels="largest_pool",
    ),
    case(
        "aten.upsample_nearest2d.vec",
        *(tensor(1, 2, "S", 13), None, [1.7, 2.3]),
        kernels="upsample_nearest",
        oracle=nearest,
    ),
    case(
        "aten.upsample_bilinear2d.vec",
        *(tensor(1, 2, "S", 13), [11, 17], False, None),
        kernels="upsample_bilinear",
    ),
    case("aten.pixel_shuffle.default", tensor(2, 12, "S", 5), 2, kernels="copy"),
    *(
        case(
            "aten.grid_sampler_2d.default",
            *(tensor(2, 3, "S", 5), tensor(2, 7, "S", 2, low=-3), mode, padding, False),
            kernels="grid_sampler",
        )
        for mode in range(3)
        for padding in range(3)
    ),
    case("et_vk.grid_priors.default", tensor(1, 3, "S", 5), 8, 0.5, kernels="grid_priors", oracle=priors),
    case(
        "et_vk.rms_norm.default",
        *(tensor("S", DEEP), weight(DEEP), 1e-5),
        kernels="rms_norm_write",
        on=("software",),
        oracle=_rms_norm,
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
        oracle=_rope_hf,
        live={"S": (5, 1, 7), "p": (0, 5, 16)},
    ),
    product((67, 1, 33), "matmul_thread", "software"),
    product((3, 1, 2), "matvec", "hardware", LONG),
    product((67, 33), "matmul_tiled", "hardware"),
    convolution(5, 13, "convolution_direct", ("software",)),
    convolution(5, 67, "convolution_tiled", ("hardware",)),
    convolution(10, 10, "convolution_direct", ("hardware",), groups=2),
    convolution(6, 12, "convolution_depthwise", groups=6),
    convolution(67, 5, "convolution_lanes", ("hardware",), size=1),
    convolution(1031, 9, "convolution_direct convolution_merge", ("software",), size=3),
    convolution(257, 67, "convolution_tiled convolution_merge", ("hardware",)),
    case(
        CONVOLUTION,
        *(tensor("S", 5, 7, 7), tensor(13, 5, 3, 3), None, *numbers_of_convolution(extra=None)),
        kernels="convolution_pack",
    ),
    case(
        CONVOLUTION,
        *(tensor("S", 5, 7, 7), weight(5, 13, 3, 3), None, *numbers_of_convolution(extra=1, stride=2)),
        kernels="",
    ),
    case("aten.bmm.default", tensor(3, "S", 5), tensor(3, 5, 13), kernels=""),
    product_q4((67, 1, 33), "q4_thread", "software"),
    product_q4((3, 1, 2), "q4_matvec", "hardware", 324),
    product_q4((67, 33), "q4_tiled", "hardware"),
    product((5, 1), "matmul_thread matmul_merge", "software", DEEP),
    product_q4((3, 1), "q4_thread q4_merge", "software", 80_000, 5),
    *quantized_cases(case),
    case(
        LOSS,
        *(tensor("S", 13), tensor("S", dtype="i64", low=-1, high=12), 3.0),
        kernels="cross_entropy",
        oracle=cross_entropy,
    ),
    case(WEIGHT_GRADIENT, tensor("S", 67), tensor("S", 5), kernels="", oracle=weight_gradient),
    input_product((67, 1, 33), "matmul_thread", "software"),
    input_product((67, 3, 33), "matmul_tiled matmul_thread", "hardware"),
    case(
        STEP,
        *(tensor("S", 5), tensor("S", 5), tensor("S", 5, low=0), tensor("S", 5), *RATES),
        kernels="adamw_step",
        oracle=adamw,
    ),
    case(
        REQUANTIZE,
        *(tensor("S", 67), weight(3, 8, low=0.1), 32),
        kernels="q4_requant",
        oracle=requantized,
        out="u8",
    ),
    attention(6, True, "attention_scores attention_values", "software"),
    attention(64, True, "attention_tiled attention_split attention_merge", "hardware"),
    attention(12, False, "attention_tiled attention_split attention_merge", "hardware"),
]

# Models, and the kernels that no case above launches. A call is (tokens, position).
CALLS = ((31, 0), (5, 31), (1, 36), (1, 37), (2, 62))
MODELS = {
    "tiny_llama_fp32": "rms_norm rope",
    "tiny_llama_8da4w": "choose_qparams",
    "tiny_llama_q4_emb4": "embedding_q4",
    "tiny_qwen3_fp32": "",
}
SAMPLERS = {
    Sampling(): "sample_scan sample_pick sample_merge",
    Sampling(0.7, 5, 0.9, 0.1, 1.3): "sample_scan sample_tally sample_narrow sample_pick sample_merge",
}
