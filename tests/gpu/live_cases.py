"""One case an operator: the arguments with which it meets live shapes. "S" is a live size or integer."""

from __future__ import annotations

from typing import Any

import torch
from arguments import Argument, Symbol, tensor, weight
from attention_cases import (
    CACHED,
    CUSTOM,
    DECODE,
    PLAIN,
    POSITIONS,
    ROPE,
    ROPE_HF,
    ROPE_INTERLEAVED,
    CachedAttention,
    cached,
)
from live_case import FLOATS, Case, case, indices
from live_planes import PLANE_CASES
from live_quantized import QUANTIZED_CASES
from plane_cases import embedding

MOVED = ("i8", "u8", "f64")  # types that layout operators support although no exporter uses them


def moved(*arguments: Argument, **options: Any) -> Case:
    return case(*arguments, more=MOVED, **options)


def kept(x: Any, *_: Any) -> Any:
    return x.clone()


def numbers_from(start: int, end: int, step: int, *_: Any) -> Any:
    return torch.arange(start, end, step)


X, Y = tensor("S", 5), tensor("S", 5)
POSITIVE = tensor("S", 5, low=0.1, high=3)
UNARY = [
    "abs",
    "cos",
    "exp",
    "hardswish",
    "neg",
    "relu",
    "sigmoid",
    "sin",
    "tanh",
    "round",
    "logical_not",
    "bitwise_not",
]
BINARY = [
    "bitwise_and.Tensor",
    "bitwise_or.Tensor",
    "logical_and.default",
    "logical_or.default",
    "minimum.default",
]
COMPARISONS = ["eq", "lt", "le", "gt", "ge"]

CASES: dict[str, Case] = {
    **PLANE_CASES,
    **QUANTIZED_CASES,
    # One element from one, from two.
    **{f"aten.{name}.default": case(X) for name in UNARY},
    **{f"aten.{name}.default": case(POSITIVE, tolerance=3e-3) for name in ("sqrt", "rsqrt", "log10")},
    "aten.gelu.default": case(X, "tanh"),
    "aten.hardshrink.default": case(X, 0.5),
    "aten.hardtanh.default": case(X, -1, 2),
    "aten.leaky_relu.default": case(X, 0.01),
    "aten.clamp.default": case(X, -1, 2),
    "aten.pow.Tensor_Scalar": case(POSITIVE, 1.5, tolerance=3e-3),
    **{f"aten.{name}": case(X, tensor("S", 1)) for name in BINARY},
    **{f"aten.{name}.Tensor": case(X, tensor("S", 1)) for name in COMPARISONS},
    **{f"aten.{name}.Scalar": case(X, 1) for name in (*COMPARISONS, "ne")},
    **{f"aten.{name}.Tensor": case(X, tensor(5), 2) for name in ("add", "sub")},
    "aten.mul.Tensor": case(X, tensor("S", 1)),
    "aten.div.Tensor": case(X, tensor("S", 1, low=1, high=3)),
    "aten.div.Tensor_mode": case(X, tensor("S", 1, low=1, high=3), "floor"),
    "aten.pow.Tensor_Tensor": case(tensor("S", 5, low=1), tensor(5, low=0), tolerance=3e-3),
    "aten.where.self": case(tensor("S", 1, dtype="bool"), X, tensor(5), dtypes=FLOATS),
    # Elements that move.
    **{f"aten.{name}.default": moved(tensor(2, "S", 3), [2, 0, -2]) for name in ("permute", "permute_copy")},
    "aten.view_copy.default": moved(tensor("S", 6), [-1, 2, 3]),
    "aten.squeeze_copy.dims": moved(tensor(1, "S", 1, 5), [0, -2]),
    "aten.unsqueeze_copy.default": moved(X, -2),
    "aten.clone.default": moved(X, None),
    "aten.alias_copy.default": moved(X),
    "aten.copy.default": moved(Y, X, False),
    "aten._to_copy.default": moved(X, *(None,) * 4, False, None, oracle=kept),
    "dim_order_ops._to_dim_order_copy.default": moved(X, *(None,) * 4, False, None, oracle=kept),
    "dim_order_ops._clone_dim_order.default": moved(X, False, None, oracle=kept),
    "aten.unfold_copy.default": moved(tensor("S", 11), 1, 3, 2),
    "aten.cat.default": moved([X, tensor(2, 5), Y], 0),
    "aten.select_copy.int": moved(tensor("S", 3, 5), 1, -1),
    "aten.slice_copy.Tensor": moved(tensor("S", 11), -1, 1, 10, 3),
    "aten.split_with_sizes_copy.default": moved(tensor(7, "S"), [3, 4], 0),
    "aten.constant_pad_nd.default": moved(X, [1, 2, 0, 3], 1),
    "aten.gather.default": moved(tensor(5, 7), 0, indices(5, "S", 3), False),
    "aten.index.Tensor": moved(tensor(5, 7), [None, indices(7, "S")]),
    # Numbers.
    "aten.arange.start_step": case(
        2, Symbol("S"), 1, *(None,) * 4, oracle=numbers_from, live={"S": (31, 3, 9, 17)}
    ),
    "aten.scalar_tensor.default": case(
        Symbol("S"), *(None,) * 4, oracle=lambda s, *_: torch.tensor(s), live={"S": (31, 3, -9, 17)}
    ),
    # Rows.
    "aten.mean.dim": case(tensor("S", 5, 3), [0, -1], True, None),
    "aten.sum.dim_IntList": case(tensor("S", 5, 3), [1], False, None),
    "aten.amax.default": case(tensor("S", 5, 3), [0, -1], False),
    "aten.amin.default": case(tensor("S", 5, 3), [-2], True),
    "aten.argmax.default": case(tensor(3, "S"), -1, False),
    "aten.argmin.default": case(tensor(3, "S"), 1, True),
    "aten._softmax.default": case(tensor(3, "S"), -1, False),
    "aten._log_softmax.default": case(tensor("S", 5, 3), 1, False),
    "aten.native_layer_norm.default": case(
        tensor("S", 13), [13], weight(13), weight(13), 1e-5, tolerance=3e-3
    ),
    "et_vk.rms_norm.default": case(tensor("S", 13), weight(13), 1e-5, tolerance=3e-3),
    # Products.
    "aten.mm.default": case(tensor(5, "S"), tensor("S", 3), tolerance=1e-2),
    "aten.bmm.default": case(tensor("S", 5, 7), tensor("S", 7, 3), tolerance=1e-2),
    "aten.addmm.default": case(tensor(3), tensor("S", 5), tensor(5, 3), 1, 1, tolerance=1e-2),
    "aten.linear.default": case(tensor(2, "S", 5), weight(3, 5), weight(3), tolerance=1e-2),
    # Language models.
    "aten.embedding.default": case(
        weight(13, 5), indices(13, "S"), -1, False, False, oracle=embedding, dtypes=FLOATS
    ),
    CACHED: case(
        *(*cached(4, 2, 8), 1, None, 0, True, None), oracle=CachedAttention, live=DECODE, tolerance=1e-2
    ),
    CUSTOM: case(
        *(tensor(1, "S", 4, 8), tensor(1, 23, 2, 8), tensor(1, 23, 2, 8), Symbol("p"), None, 0, True, None),
        live=DECODE,
        tolerance=1e-2,
    ),
    PLAIN: case(
        *(tensor(1, 2, "S", 8), tensor(1, 2, 5, 8), tensor(1, 2, 5, 8), None, None),
        tolerance=1e-2,
    ),
    ROPE: case(
        *(tensor(2, "S", 3, 6), tensor(2, "S", 1, 6), tensor("S", 3), tensor("S", 3)),
        tolerance=1e-2,
    ),
    ROPE_HF: case(
        *(tensor(2, "S", 3, 10), tensor(2, "S", 1, 10), weight(23, 6), weight(23, 6), Symbol("p")),
        live=POSITIONS,
        tolerance=1e-2,
    ),
    ROPE_INTERLEAVED: case(*(tensor(2, "S", 6), tensor("S", 6)), tolerance=1e-2),
}
