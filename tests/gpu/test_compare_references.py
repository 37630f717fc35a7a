"""References of the package beside oracles that do not use them: PyTorch's operators, formulas of tests.

Kernels of all other operators are compared with their references directly (check.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from affine_cases import DECOMPOSED, eager
from arguments import Argument, substitute, tensor, weight
from check import Oracle, draw_runs, each
from live_case import LIVE
from live_cases import CASES
from operator_table import read_table

from pteron.ops import OPERATORS
from pteron.reference import find
from pteron.reference.table import aten_reference

_STEPS = tensor("S", 5, dtype="i8", low=-128, high=127)
_ZERO = weight(values=[3], dtype="i32")
_SCALE = weight(values=[0.0173], dtype="f32")
_QUANTIZE, _DEQUANTIZE = (eager(f"{name}_per_tensor") for name in ("quantize", "dequantize"))
MORE: dict[str, tuple[tuple[Argument, ...], Oracle]] = {
    f"{DECOMPOSED}quantize_per_tensor.default": ((tensor("S", 5), 0.0173, 3, -128, 127, "i8"), _QUANTIZE),
    f"{DECOMPOSED}quantize_per_tensor.tensor": ((tensor("S", 5), _SCALE, _ZERO, -128, 127, "i8"), _QUANTIZE),
    f"{DECOMPOSED}dequantize_per_tensor.default": ((_STEPS, 0.0173, 3, -128, 127, "i8", None), _DEQUANTIZE),
    f"{DECOMPOSED}dequantize_per_tensor.tensor": (
        (_STEPS, _SCALE, _ZERO, -128, 127, "i8", None),
        _DEQUANTIZE,
    ),
}


def given_to(name: str) -> tuple[tuple[Argument, ...], dict[str, Any], Oracle | None, str]:
    """An operator's arguments, their live sizes, its oracle, and the type of its tensors."""
    if name in MORE:
        return MORE[name][0], LIVE, MORE[name][1], "f32"
    case = CASES[name]
    options = case.again()
    dtype = next((kind for kind in case.dtypes or () if kind != "f16"), "f32")
    oracle = options.get("oracle") or aten_reference(name)
    return case.arguments, options["live"], oracle, "i32" if "bitwise" in name else dtype


@each("name", [*CASES, *MORE])
def test_a_reference_gives_what_another_oracle_does(name: str) -> None:
    arguments, live, oracle, dtype = given_to(name)
    reference = find(name)
    assert reference is not None
    if oracle is None:
        return
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


_ROWS, _DEPTH, _GROUP = 5, 8, 4  # of a stored matrix
_X, _BYTES, _STORED, _GROUPED, _PER_ROW, _MINIMA = (
    tensor(3, _DEPTH),
    weight(_ROWS, _DEPTH // 2, dtype="u8", low=0, high=255),
    weight(_ROWS, _DEPTH, dtype="i8", low=-128, high=127),
    weight(_DEPTH // _GROUP, _ROWS),
    weight(_ROWS),
    weight(_DEPTH // _GROUP, _ROWS),
)
# Products whose weights may be stored with padding: words past the depth, scales of rows that do not exist.
PADDED: dict[str, tuple[Argument, ...]] = {
    "et_vk.linear_q4gsw.default": (_X, _BYTES, _GROUPED, _GROUP, None),
    "et_vk.linear_dq8ca_q4gsw.default": (
        *(_X, tensor(3, low=0.1, high=1), tensor(3, dtype="i8", low=-9, high=9)),
        *(_BYTES, None, _GROUPED, _GROUP, None),
    ),
    "et_vk.linear_qcs4w.default": (_X, _BYTES, _PER_ROW),
    "aten._weight_int8pack_mm.default": (_X, _STORED, _PER_ROW),
    "pteron.linear_q8gsw.default": (_X, _STORED, _GROUPED, _MINIMA, _GROUP, None),
}


@each("name", PADDED)
def test_padding_of_stored_weights_changes_nothing(name: str) -> None:
    reference, random = find(name), np.random.default_rng(1)
    assert reference is not None
    (run,) = draw_runs(PADDED[name], {}, "f32")
    plain = {leaf: _wide(value) for leaf, value in run.items()}
    padded = dict(plain)
    for leaf in (_BYTES, _GROUPED, _PER_ROW, _MINIMA):
        if leaf in plain:
            more = (*plain[leaf].shape[:-1], 3)
            padded[leaf] = torch.cat([plain[leaf], torch.from_numpy(random.integers(1, 255, more))], -1)
    wanted, found = (
        reference(*(substitute(argument, leaves) for argument in PADDED[name])) for leaves in (plain, padded)
    )
    assert wanted.shape == (3, _ROWS)
    np.testing.assert_array_equal(found, wanted)


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


def _wide(value: Any) -> Any:
    wide = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}
    return torch.from_numpy(value.astype(wide[value.dtype.kind])) if isinstance(value, np.ndarray) else value


def _copied(arguments: tuple[Argument, ...], wide: dict[Any, Any]) -> list[Any]:
    """Arguments of one's own: some operators change theirs."""
    own = {leaf: value.clone() if isinstance(value, torch.Tensor) else value for leaf, value in wide.items()}
    return [substitute(argument, own) for argument in arguments]


def _outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]
