"""Properties of vocabularies, live integers and written graphs, for inputs that Hypothesis generates."""

from __future__ import annotations

import itertools
import struct
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sketch import Sketch

from fuzz.draft import Draft
from fuzz.executed import draw_inputs
from fuzz.folder import written
from pteron.dtypes import DType
from pteron.format.records import VkSymInt, VkTensor, VkValueList
from pteron.llm.tokenizers.llama2c import merge_pairs
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.ops.terms import Affine, Product, Quotient, Symbol, evaluate
from pteron.passes import prepare

# The same examples at every run, and no verdict on how fast a loaded machine is.
same = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=60
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)


@same
@given(st.lists(st.tuples(st.floats(width=32, allow_nan=True), st.binary(max_size=6)), max_size=20))
def test_llama2c_vocabularies(pieces: list[tuple[float, bytes]]) -> None:
    """Whatever pieces a file holds after the first 259, a text comes back."""
    first = [(0.0, b"x")] * 259
    data = bytes(4) + b"".join(
        struct.pack("<fi", score, len(piece)) + piece for score, piece in [*first, *pieces]
    )
    with written({"tokenizer.bin": data}) as folder:
        tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode("a house, naïve 😀")
    assert all(0 <= id < tokenizer.vocab_size for id in ids)
    assert tokenizer.decode(ids) == "a house, naïve 😀"


@same
@given(
    st.lists(st.binary(min_size=1, max_size=2)),
    st.dictionaries(st.binary(min_size=2, max_size=4), st.integers()),
)
def test_merging_keeps_every_byte(symbols: list[bytes], ranks: dict[bytes, int]) -> None:
    merged = merge_pairs(symbols, ranks.get)
    assert b"".join(merged) == b"".join(symbols)
    assert all(a + b not in ranks for a, b in itertools.pairwise(merged))


@same
@given(st.integers(-(2**20), 2**20), st.integers(-(2**20), 2**20), st.integers(-9, 9), st.integers(-9, 9))
def test_live_integers_are_what_python_computes(x: int, y: int, factor: int, constant: int) -> None:
    left, right = Affine(constant, ((0, factor),)), Affine(0, ((1, 1),))
    tape = (Symbol(7), Symbol(8), Product(left, right), Quotient(left, right))
    numbers = evaluate(tape, {7: x, 8: y})
    value = constant + factor * x
    assert numbers == [x, y, value * y, value // y if y else 0]
    assert left.plus(right, factor).evaluate(numbers) == value + factor * y


_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | TEXT
    | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)
    | st.builds(VkSymInt, st.integers(-(2**31), 2**31 - 1))
)


@same
@given(st.lists(_VALUES, min_size=1, max_size=8), st.data())
def test_what_is_written_of_a_graph_is_read(values: list[Any], data: Any) -> None:
    ids = st.integers(0, len(values) - 1)
    values.append(VkValueList(tuple(data.draw(st.lists(ids, max_size=4)))))
    node = (
        data.draw(TEXT),
        data.draw(st.lists(ids, min_size=1)),
    )
    draft = Draft(
        [node], values, data.draw(st.lists(ids)), data.draw(st.lists(ids)), [data.draw(st.binary())]
    )
    assert Draft.of(draft.blob()) == draft
    assert not any(isinstance(value, VkTensor) for value in draft.values)


def test_inputs_hold_whatever_integers_are_drawn() -> None:
    """Live integers may come from bytes, which hold no -1: what they hold instead is drawn."""
    for dtype in (DType.U8, DType.I8, DType.BOOL, DType.I64):
        sketch = Sketch()
        x, integer = sketch.tensor(1, dtype=dtype), sketch.symbol()
        sketch.node("et_vk.select_as_symint.default", x, 0, 0, integer)
        prepared = prepare(sketch.graph([x], [integer]))
        (array,) = draw_inputs(prepared, ((1,),), {integer.id: -1}, Random(0))
        assert isinstance(array, np.ndarray)
        assert array.dtype == dtype.numpy
