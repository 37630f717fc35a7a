"""What the package says that operators mean, beside what their tests say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from arguments import Argument, substitute, tensor, weight
from check import Oracle, aten_oracle, draw_runs
from int8 import FULL, bias_of, parameters, random_int8
from live_case import LIVE
from live_cases import CASES
from operator_table import read_table
from test_quantized import DYNAMIC, LINEAR, dynamic, linear, packed, scales, sums
from test_quantized_affine import DECOMPOSED, eager
from test_quantized_conv import (
    CONV,
    DEPTHWISE,
    POINTWISE,
    SCALES,
    TRANSPOSED,
    convolution,
    depthwise,
    regular,
)
from test_quantized_q8 import ADD, TO_FLOATS, add, to_floats
from test_quantized_q8 import LINEAR as LINEAR_Q8
from test_quantized_q8 import linear as linear_q8
from test_resample import BILINEAR, NEAREST, PRIORS, nearest, priors
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

from pteron.ops import OPERATORS
from pteron.reference import find

_Q4 = (weight(values=packed(13, 64), dtype="u8"), scales(64, 32, 13))
_Q8 = random_int8(13, 36)
_REGULAR = regular(tensor("S", 8, "T", 11, **FULL), (8, 6), ([3, 5], [1, 2], [1, 2], [1, 1]), 2, "relu")
_POINTWISE = regular(tensor("S", 7, 5, "T", **FULL), (7, 5), ([1, 1], [1, 1], [0, 0], [1, 1]))
_DEPTHWISE = depthwise(tensor("S", 7, "T", 11, **FULL), 7, ([3, 3], [2, 1], [1, 1], [1, 1]))


def _transposed() -> tuple[tuple[Argument, ...], Oracle]:
    weights = random_int8(6, 8, 3, 2)
    rows = weights.reshape(2, 3, 8, 3, 2).transpose(0, 2, 3, 4, 1).reshape(16, -1)
    padded_rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    totals, _ = parameters(rows.sum(1), 16)
    _, shared = parameters(rows.sum(1), 8)
    window = ([3, 2], [2, 3], [1, 0], [0, 2], [1, 1])
    arguments = (
        *(tensor("S", 6, "T", 5, **FULL), *SCALES, weight(values=padded_rows, dtype="i8"), totals, shared),
        *(0.11, 4, bias_of(16), *window, 2, "none"),
    )
    return arguments, lambda *given: convolution(
        *given, weights=weights, transposed=True, output_padding=window[3]
    )


_STEPS = tensor("S", 5, dtype="i8", low=-128, high=127)
_ZERO = weight(values=[3], dtype="i32")
_SCALE = weight(values=[0.0173], dtype="f32")
# Operators whose shapes are fixed, or that the live cases have no room for.
MORE: dict[str, tuple[tuple[Argument, ...], Oracle | None]] = {
    LINEAR: ((tensor("S", 64), *_Q4, 32, weight(16)), linear),
    DYNAMIC: (
        (
            *(tensor("S", 64, low=-1, high=1), tensor("S", low=0.007, high=0.009)),
            *(tensor("S", dtype="i8", low=-20, high=20), _Q4[0], sums(13, 64, 32), _Q4[1], 32, weight(16)),
        ),
        dynamic,
    ),
    ADD: ((tensor(3, "S", **FULL), tensor("S", **FULL), 0.031, 5, 0.047, -4, 0.06, 7, 0.3), add),
    LINEAR_Q8: (
        (
            *(tensor("S", 36, **FULL), 0.02, 5, weight(values=_Q8, dtype="i8"), *parameters(_Q8.sum(1), 13)),
            *(0.05, -3, bias_of(13), "relu"),
        ),
        linear_q8,
    ),
    TO_FLOATS: (
        (
            *(tensor("S", 36, **FULL), 0.02, 5, weight(values=_Q8, dtype="i8"), *parameters(_Q8.sum(1), 13)),
            bias_of(13),
        ),
        to_floats,
    ),
    f"{DECOMPOSED}quantize_per_tensor.default": (
        (tensor("S", 5), 0.0173, 3, -128, 127, "i8"),
        eager("quantize_per_tensor"),
    ),
    f"{DECOMPOSED}quantize_per_tensor.tensor": (
        (tensor("S", 5), _SCALE, _ZERO, -128, 127, "i8"),
        eager("quantize_per_tensor"),
    ),
    f"{DECOMPOSED}dequantize_per_tensor.default": (
        (_STEPS, 0.0173, 3, -128, 127, "i8", None),
        eager("dequantize_per_tensor"),
    ),
    f"{DECOMPOSED}dequantize_per_tensor.tensor": (
        (_STEPS, _SCALE, _ZERO, -128, 127, "i8", None),
        eager("dequantize_per_tensor"),
    ),
    CONV: _REGULAR,
    POINTWISE: _POINTWISE,
    DEPTHWISE: _DEPTHWISE,
    TRANSPOSED: _transposed(),
    NEAREST: ((tensor("N", 3, "S", "T"), None, [2.3, 1.7]), nearest),
    BILINEAR: ((tensor("N", 3, "S", "T"), [7, 9], False, None), None),
    PRIORS: ((tensor("S", "T"), 8, 0.5), priors),
    LOSS: ((tensor("S", 13), tensor("S", dtype="i64", low=-2, high=12), 3.0), cross_entropy),
    WEIGHT_GRADIENT: ((tensor(2, "S", 5), tensor(2, "S", 7)), weight_gradient),
    INPUT_GRADIENT: (
        (tensor("S", 13), weight(values=packed(13, 64), dtype="u8"), weight(2, 16), 32),
        input_gradient,
    ),
    STEP: ((tensor("S"), tensor("S"), tensor("S", low=0, high=2), tensor("S"), *RATES), adamw),
    REQUANTIZE: ((tensor("S", 67), tensor(10, 12, low=0.05, high=0.9), 7), requantized),
}


def given_to(name: str) -> tuple[tuple[Argument, ...], dict[str, Any], Oracle, str]:
    """An operator's arguments, their live sizes, what its test says of it, and the type of its tensors."""
    if name in MORE:
        arguments, oracle = MORE[name]
        return arguments, LIVE, oracle or aten_oracle(name), "f32"
    case = CASES[name]
    options = case.again()
    oracle = options.get("oracle") or aten_oracle(name)
    dtype = next((kind for kind in case.dtypes or () if kind != "f16"), "f32")
    is_whole = "bitwise" in name
    return case.arguments, options["live"], oracle, "i32" if is_whole else dtype


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_a_reference_means_what_tests_of_its_operator_do(name: str) -> None:
    arguments, live, oracle, dtype = given_to(name)
    reference = find(name)
    assert reference is not None
    kept: dict[Any, Any] = {}  # constants, which may be caches that calls change
    for run in draw_runs(arguments, live, dtype):
        wide = {leaf: _wide(value) for leaf, value in run.items()}
        constants = {leaf: value for leaf, value in wide.items() if getattr(leaf, "is_constant", False)}
        kept = kept or {leaf: value.clone() for leaf, value in constants.items()}
        expected = _copied(arguments, wide)
        found = [substitute(argument, {**wide, **kept}) for argument in arguments]
        for wanted, actual in zip(_outputs(oracle(*expected)), _outputs(reference(*found)), strict=True):
            actual = torch.as_tensor(actual)
            assert actual.shape == wanted.shape
            np.testing.assert_allclose(actual.detach().double(), wanted.detach().double(), 1e-6, 1e-6)


# Other tests define operators of their own.
OUR_OPERATORS = {
    name: operator
    for name, operator in OPERATORS.items()
    if operator.compute.__module__.startswith("pteron.")
}


def test_every_operator_of_the_table_has_a_reference() -> None:
    named = [name for name in read_table() if name in OPERATORS]
    assert len(named) > 140
    assert [name for name in named if find(name) is None] == []
    files_hold = [name for name, operator in OUR_OPERATORS.items() if not operator.is_internal]
    assert [name for name in files_hold if find(name) is None] == []


def test_every_reference_is_tried() -> None:
    tried = {*CASES, *MORE}
    apart = {name for name in OPERATORS if "." not in name}  # integers: tests/gpu/test_compare.py
    aliases = {
        "adamw_step.default": STEP,
        "et_vk.q8ta_linear_gemv.default": LINEAR_Q8,
        "sym_size.int": "",
        "et_vk.select_as_symint.default": "",
        "et_vk.prepack.default": "",
        "update_cache.default": "",
    }
    untried = {
        name
        for name, operator in OUR_OPERATORS.items()
        if not operator.is_internal and name not in tried | apart and name not in aliases
    }
    assert {name for name in untried if not name.startswith("aten.")} == set()
    for name, other in aliases.items():
        assert find(name) is not None
        assert not other or find(name) is find(other)


def _wide(value: Any) -> Any:
    wide = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}
    return torch.from_numpy(value.astype(wide[value.dtype.kind])) if isinstance(value, np.ndarray) else value


def _copied(arguments: tuple[Argument, ...], wide: dict[Any, Any]) -> list[Any]:
    """Arguments of one's own: some operators change theirs."""
    own = {leaf: value.clone() if isinstance(value, torch.Tensor) else value for leaf, value in wide.items()}
    return [substitute(argument, own) for argument in arguments]


def _outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]
