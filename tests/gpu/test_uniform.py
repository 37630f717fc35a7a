"""4-bit products and attention out of uniform arrays, as software adapters take them, against float64: tiles
that overlap, arrays in several launches, shapes that other kernels take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from attention_cases import CACHED, MASKS, OPTIONED, PLAIN, CachedAttention, OptionedAttention, cached
from check import check_op, each
from fused_cases import FUSED, factors, fused
from quantized_cases import (
    INT8,
    LINEAR,
    LINEAR_Q8,
    QCS4W,
    bytes_of,
    groups_of,
    packed,
    random_nibbles,
    scales,
    scales_of,
)

from pteron import Device
from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError
from pteron.families.attention import uniform as attention
from pteron.families.quantized import uniform
from pteron.families.quantized.formats import words_of
from pteron.graph import Constant, Tensor
from pteron.ops import AnyInt, Operand, OperandSlice, Target
from pteron.ops.dispatch import elements
from pteron.ops.operand import Slot, plain_weight
from pteron.ops.strided import Strided
from pteron.reference.products import linear_int8_weights

pytestmark = pytest.mark.kernels

CONTEXT = {"S": (9, 1, 3, 8, 1, 6, 31, 1, 1), "p": (0, 9, 10, 13, 21, 22, 28, 59, 92)}


@pytest.fixture
def software(device: Device) -> Target:
    if not device.target.broadcasts:
        pytest.skip("tensors can be uniform arrays on software adapters with subgroups alone")
    return device.target


def small(target: Target, bytes: int) -> Target:
    return replace(target, uniform_bytes_max=bytes)


@pytest.mark.long(every=24)
@pytest.mark.parametrize("columns", [1, 5, 37, 64, 203])
@pytest.mark.parametrize(("depth", "group"), [(64, 32), (24, 8), (80, 16), (128, 64), (40, 40)])
def test_products(columns: int, depth: int, group: int, software: Target, launched: set[str]) -> None:
    """Of tiles of eight, four and one rows that overlap at the end, by arrays of few columns."""
    arguments = (weight(values=packed(columns, depth), dtype="u8"), scales(depth, group, columns))
    x = tensor("M", depth, low=-1, high=1)
    live = {"M": (17, 1, 8, 3, 5)}
    target = small(software, 8 * 4 * depth)
    check_op(LINEAR, x, *arguments, group, None, live=live, target=target)
    assert {"q4_uniform"} == launched & {"q4_uniform", "q4_thread"}


@pytest.mark.long(every=18)
@pytest.mark.parametrize("columns", [1, 5, 64, 203])
@pytest.mark.parametrize("depth", [4, 20, 72, 576])
def test_products_of_bytes(columns: int, depth: int, software: Target, launched: set[str]) -> None:
    arguments = (tensor("M", depth, low=-1, high=1), bytes_of(columns, depth), scales_of(columns))
    target = small(software, max(8 * 4 * depth, 256))
    check_op(
        INT8, *arguments, oracle=linear_int8_weights, live={"M": (17, 1, 8, 3)}, target=target, tolerance=5e-5
    )
    assert "q4_uniform" in launched


@pytest.mark.long(every=24)
@pytest.mark.parametrize("minima", [False, True])
@pytest.mark.parametrize("columns", [1, 5, 203])
@pytest.mark.parametrize(("depth", "group"), [(64, 32), (20, 16), (80, 16), (576, 32)])
def test_products_of_groups_of_bytes(
    columns: int, depth: int, group: int, minima: bool, software: Target, launched: set[str]
) -> None:
    arguments = tensor("M", depth, low=-1, high=1), *groups_of(columns, depth, group, minima=minima), None
    target = small(software, max(8 * 4 * depth, 256))
    check_op(LINEAR_Q8, *arguments, live={"M": (17, 1, 8, 3)}, target=target, tolerance=5e-5)
    assert "q4_uniform" in launched


@pytest.mark.long(every=4)
@pytest.mark.parametrize("columns", [(64, 8, 33), (4, 4), (12, 200, 1)])
def test_windows_that_lie_in_several_matrices(
    columns: tuple[int, ...], software: Target, launched: set[str]
) -> None:
    arguments = (weight(64), 1e-5, *factors(64, *columns), None, 32, 4, None, None, False)
    x, live = tensor(1, "M", 64), {"M": (11, 1)}
    for target in (software, small(software, 2048)):
        check_op(FUSED, x, *arguments, oracle=fused, live=live, target=target, tolerance=5e-6)
    assert "q4_thread" not in launched


@pytest.mark.long(every=6)
@pytest.mark.parametrize(
    ("change", "depth", "columns"),
    [
        ({"broadcasts": False}, 64, (9,)),
        ({"uniform_bytes_max": 4 * 64 - 1}, 64, (9,)),  # not a row of x
        ({"uniform_alignment": 256}, 24, (9,)),  # a tile would start between two places
        ({}, 60, (9,)),  # half a word
        ({}, 64, (6, 9)),  # a block in two matrices
        ({"uniform_bytes_max": 2048}, 64, (4 * 48 * uniform.LAUNCHES_MAX // 2 + 1,)),  # too many launches
    ],
)
def test_what_other_kernels_take(
    change: dict[str, Any], depth: int, columns: tuple[int, ...], software: Target, launched: set[str]
) -> None:
    arguments = (None, 0.0, *factors(depth, *columns), None, 32, 4, None, None, False)
    target = replace(software, **change)
    check_op(FUSED, tensor("M", depth), *arguments, oracle=fused, live={"M": (9, 2)}, target=target)
    assert "q4_thread" in launched


@pytest.mark.long(every=2)
@pytest.mark.parametrize("depth", [64, 96])
def test_weights_of_another_layout(depth: int, software: Target, launched: set[str]) -> None:
    """Weights that store the high nibble first do not have the layout that q4_uniform needs."""
    x = tensor("M", depth, low=-1, high=1)
    arguments = (x, random_nibbles(9, depth), scales_of(9))
    check_op(QCS4W, *arguments, live={"M": (9, 2)}, target=software)
    assert "q4_uniform" not in launched


def test_a_grid_that_is_folded(software: Target, launched: set[str]) -> None:
    arguments = (weight(values=packed(203, 64), dtype="u8"), scales(64, 32, 203))
    x, target = tensor("M", 64, low=-1, high=1), replace(software, workgroups_max=3)
    check_op(LINEAR, x, *arguments, 32, None, live={"M": (9, 1)}, target=target)
    assert "q4_uniform" in launched


@each(("columns", "bytes"), [(1000, 1 << 12), (7, 1 << 16), (4096, 1 << 16), (129, 720)])
def test_windows_hold_every_column_once(columns: int, bytes: int) -> None:
    """Words and scales of all arrays are those of the matrix, in blocks of four columns."""
    random = np.random.default_rng(0)
    nibbles = random.integers(0, 256, (columns, 32), dtype=np.uint8)
    factors = random.normal(size=(2, columns)).astype(np.float32)
    parts = _operand(0, nibbles), _operand(1, factors)
    x = Operand(Tensor(9, DType.F32, (3, 64)), (3, 64), Storage.F32, Slot(0))
    target = Target(broadcasts=True, uniform_bytes_max=bytes)
    words = words_of(parts[0], parts[1], 32, 64)
    cut = uniform.choose(target, x, 3, words)
    assert cut is not None
    blocks = cut.columns.piece
    width = 4 * blocks
    packed = [uniform._array(words, first, blocks).pack() for first in range(0, columns, width)]
    assert all(array.nbytes <= bytes for array in packed)
    flat = [array.reshape(-1).view(np.uint32) for array in packed]
    matrix = np.concatenate([_rows(array[: width * 8], blocks) for array in flat])[:columns]
    scale = np.concatenate([_rows(array[width * 8 :], blocks) for array in flat])[:columns]
    np.testing.assert_array_equal(matrix, nibbles.view(np.uint32))
    np.testing.assert_array_equal(scale.view(np.float32), factors.T)


def _operand(id: int, array: np.ndarray[Any, Any]) -> Operand:
    dtype = DType.U8 if array.dtype == np.uint8 else DType.F32
    constant = Constant(f"{id}", dtype, array.shape, memoryview(array.tobytes()))
    storage = Target().storage(dtype)
    tensor = Tensor(id, dtype, array.shape, constant=constant)
    return Operand(tensor, array.shape, storage, plain_weight(constant, storage))


def _rows(array: np.ndarray[Any, Any], blocks: int) -> np.ndarray[Any, Any]:
    return array.reshape(blocks, -1, 4).swapaxes(1, 2).reshape(4 * blocks, -1)


@pytest.mark.long
@pytest.mark.parametrize(("heads", "key_heads"), [(3, 3), (6, 2), (4, 1), (18, 2), (11, 1)])
@pytest.mark.parametrize("causal", [True, False])
def test_attention(heads: int, key_heads: int, causal: bool, software: Target, launched: set[str]) -> None:
    """The context in one split, and in splits of 16 keys; a cache that is no multiple of a span."""
    arguments = (*cached(heads, key_heads, 16, capacity=93), 1, None, 0, causal, 0.3)
    for bytes in (1 << 16, 4 * 4 * 16 * heads):
        target = small(software, bytes)
        check_op(CACHED, *arguments, oracle=CachedAttention(), live=CONTEXT, target=target, tolerance=2e-5)
    assert "attention_uniform" in launched
    assert not {"attention_scores", "attention_values"} & launched


@pytest.mark.long
@pytest.mark.parametrize("width", [8, 20, 48, 128])
def test_attention_of_widths(width: int, software: Target, launched: set[str]) -> None:
    arguments = (*cached(4, 2, width, capacity=93), 1, None, 0, True, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=CONTEXT, target=software, tolerance=2e-5)
    assert "attention_uniform" in launched


@each("bytes", [1 << 16, 4 * 4 * 16 * 4])
def test_attention_with_sinks(bytes: int, software: Target, launched: set[str]) -> None:
    arguments = (*cached(4, 2, 16, capacity=93), None, None, None, weight(4), None, None)
    options: dict[str, Any] = {"oracle": OptionedAttention(), "live": CONTEXT, "tolerance": 2e-5}
    check_op(OPTIONED, *arguments, target=small(software, bytes), **options)
    assert "attention_uniform" in launched


@pytest.mark.parametrize(
    "change", [{"broadcasts": False}, {"uniform_bytes_max": 511}, {"uniform_alignment": 192}]
)
def test_attention_that_other_kernels_take(
    change: dict[str, Any], software: Target, launched: set[str]
) -> None:
    arguments = (*cached(4, 2, 16, capacity=93), 1, None, 0, True, None)
    target = replace(software, **change)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=CONTEXT, target=target, tolerance=2e-5)
    assert "attention_uniform" not in launched


def test_attention_of_too_many_launches(
    software: Target, launched: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step alone is worth them at any context, several only while they are few."""
    monkeypatch.setattr(attention, "LAUNCHES_MAX", 2)
    arguments = (*cached(4, 2, 16, capacity=93), 1, None, 0, True, None)
    target = small(software, 4 * 4 * 16 * 4)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=CONTEXT, target=target, tolerance=2e-5)
    assert {"attention_uniform", "attention_scores"} <= launched


@pytest.mark.long(every=3)
@each("mask", MASKS, every=3)
def test_attention_of_encoders(mask: tuple[int | str, ...], software: Target, launched: set[str]) -> None:
    """Heads before steps, several sequences, with a mask; the keys in one split, and in splits of 32."""
    keys = (tensor(2, 3, "T", 32), tensor(2, 3, "T", 32))
    live = {"S": (37, 11, 64), "T": (5, 71, 32)}
    for bytes in (1 << 16, 4 * 8 * 32 * 3):
        target = small(software, bytes)
        check_op(PLAIN, tensor(2, 3, "S", 32), *keys, tensor(*mask), 0.2, live=live, target=target)
    assert "attention_uniform" in launched
    assert "attention_scores" not in launched


def test_attention_of_keys_that_fill_no_array(software: Target, launched: set[str]) -> None:
    """The last arrays would begin past the 77 keys that there may be."""
    x = tensor(1, 16, "T", 64)
    check_op(PLAIN, x, x, x, None, None, live={"T": (77, 65, 76)}, target=software, tolerance=2e-5)
    assert "attention_uniform" in launched


@each("dtype", ["f32", "bool"])
@each("bytes", [1 << 16, 4 * 4 * 8 * 3])
def test_attention_of_hidden_keys(dtype: str, bytes: int, software: Target, launched: set[str]) -> None:
    """One query sees no key."""
    shown = np.tril(np.ones((19, 23), bool), -1)
    mask = tensor(values=shown if dtype == "bool" else np.where(shown, 0.0, -np.inf), dtype=dtype)
    arguments = (tensor(2, 3, 19, 8), tensor(2, 3, 23, 8), tensor(2, 3, 23, 8), mask, None)
    check_op(PLAIN, *arguments, target=small(software, bytes))
    assert "attention_uniform" in launched


def test_attention_of_few_queries_copies_no_keys(software: Target, launched: set[str]) -> None:
    """Heads lie before keys, which arrays do not take in place."""
    keys = (tensor(1, 3, 23, 8), tensor(1, 3, 23, 8))
    check_op(PLAIN, tensor(1, 3, "S", 8), *keys, None, None, live={"S": (7, 1)}, target=software)
    assert {"attention_uniform", "copy"} & launched == set()


def test_positions_past_the_context_are_not_read(software: Target, launched: set[str]) -> None:
    """Caches that hold no numbers where nothing has been written."""
    holes = [weight(values=np.full((1, 93, 2, 16), np.nan, np.float32)) for _ in "kv"]
    query, key, value, _, _, place = cached(4, 2, 16, capacity=93)
    arguments = (query, key, value, *holes, place, 1, None, 0, True, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=CONTEXT, target=software, tolerance=2e-5)
    assert "attention_uniform" in launched


def test_a_window_has_what_follows_its_first_element() -> None:
    tensor = Tensor(0, DType.F32, (8, 16))
    operand = Operand(tensor, (5, 16), Storage.F32, Slot(0))
    array = OperandSlice(operand, 32)
    assert elements(array) == 48
    assert array.start == 128


@each("change", [{"broadcasts": False}, {"uniform_bytes_max": 1 << 14}, {"uniform_alignment": 64}])
def test_a_device_without_what_windows_need(change: dict[str, Any]) -> None:
    planned = Target(broadcasts=True, uniform_alignment=16)
    planned.check_runs_on(planned)
    with pytest.raises(DeviceError, match=r"planned for a device with (values passed|uniform arrays)"):
        planned.check_runs_on(replace(planned, **change))


def test_spans_fit_a_cache() -> None:
    """An array holds no more keys than a cache, or than a binding takes."""

    def span(capacity: int, width: int, bytes: int) -> AnyInt:
        shape = (1, capacity, 2, width)
        cache = Operand(Tensor(0, DType.F32, shape), shape, Storage.F32, Slot(0))
        return attention._span(Strided.of(cache), Target(uniform_bytes_max=bytes))

    assert span(93, 16, 1 << 16) == attention.SPAN_MAX
    assert span(23, 16, 1 << 16) == 20
    assert span(93, 16, 1000) == 4
    assert span(3, 16, 1 << 16) == 0
