"""Inputs of a run: from files, from the command line, at random; and how results are compared and shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pteron.dtypes import DType
from pteron.errors import DtypeError, InputError, ShapeError
from pteron.runtime import ValueSpec
from pteron.runtime.specs import misfit_between
from pteron.tools.check import difference
from pteron.tools.inputs import Input, LiveSize, fill_inputs, live_shapes, read_inputs
from pteron.tools.text import columns, counted, features_text, human_bytes, human_time, json_text

TOKENS = ValueSpec("tensor", DType.I64, (1, 31), (False, True))
POSITION = ValueSpec("tensor", DType.I64, (1,), (False,))
FEATURES = ValueSpec("tensor", DType.BF16, (31, 4), (True, False))
COUNT = ValueSpec("int", value=5)


def test_values_and_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    np.savez(tmp_path / "y.npz", first=np.zeros(2), second=np.ones(2))
    (tmp_path / "z.json").write_text("[[1, 2]]")
    files = [str(tmp_path / name) for name in ("x.npy", "y.npz", "z.json")]
    inputs = read_inputs([*files, "3", "2.5", "true"])
    assert [given.origin for given in inputs[:3]] == ["x.npy", "y.npz first", "y.npz second"]
    assert [given.value for given in inputs[3:]] == [[[1, 2]], 3, 2.5, True]


@pytest.mark.parametrize("name", ["gone.npy", "text.npy", "text.npz", "text.json", "word"])
def test_what_cannot_be_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.startswith("text"):
        path.write_text("not what the name says")
    with pytest.raises(InputError, match=name):
        read_inputs([str(path)])


def test_sizes_of_every_dynamic_dim_or_of_one() -> None:
    specs = [TOKENS, POSITION, FEATURES]
    assert live_shapes(specs, []) == [(1, 31), (1,), (31, 4)]
    assert live_shapes(specs, [LiveSize(7)]) == [(1, 7), (1,), (7, 4)]
    assert live_shapes(specs, [LiveSize(7), LiveSize(5, 0, 1)]) == [(1, 5), (1,), (7, 4)]


@pytest.mark.parametrize("size", [LiveSize(32), LiveSize(32, 0, 1)])
def test_a_size_beyond_the_maximum(size: LiveSize) -> None:
    with pytest.raises(ShapeError, match=r"dim .*: dim 1 of input 0 is at most 31"):
        live_shapes([TOKENS], [size])


def test_a_size_below_the_minimum() -> None:
    spec = replace(TOKENS, shape_min=(1, 2))
    assert str(spec) == "i64[1, 2..31]"
    with pytest.raises(ShapeError, match=r"dim 1: dim 1 of input 0 is from 2 to 31 \(i64\[1, 2\.\.31\]\)"):
        live_shapes([spec], [LiveSize(1)])


def test_sizes_in_steps_and_of_dims_that_depend_on_each_other() -> None:
    image = replace(TOKENS, shape_max=(8, 320), dynamic=(True, True), shape_min=(0, 64), shape_step=(1, 16))
    image = replace(image, symbols=("0.0", ""))
    double = replace(FEATURES, shape_max=(16, 4), shape_step=(2, 1), symbols=("0.0", ""))
    assert (str(image), image.shape_least) == ("i64[≤8, 64..320 by 16]", (1, 64))
    assert live_shapes([image, double], [LiveSize(3, 0, 0)]) == [(3, 320), (6, 4)]
    with pytest.raises(ShapeError, match="dim 1 of input 0 is from 64 to 320 in steps of 16"):
        live_shapes([image, double], [LiveSize(72, 0, 1)])
    assert misfit_between([image, double], [(3, 64), (6, 4)]) is None
    assert "dim 0 of input 1 depends on it and must be 6, got 4" in str(
        misfit_between([image, double], [(3, 64), (4, 4)])
    )


@pytest.mark.parametrize("size", [LiveSize(7, 0, 0), LiveSize(7, 1, 0), LiveSize(7, 9, 0)])
def test_a_size_of_a_dim_that_is_not_dynamic(size: LiveSize) -> None:
    with pytest.raises(InputError, match=r"the method has 0\.1 \(input\.dim\)"):
        live_shapes([TOKENS, POSITION], [size])
    with pytest.raises(InputError, match="no dynamic dims"):
        live_shapes([POSITION], [LiveSize(7)])


def test_random_inputs_are_small_and_repeatable() -> None:
    specs = [TOKENS, POSITION, FEATURES, COUNT]
    tokens, position, features, count = fill_inputs(specs, [], [LiveSize(7)], seed=3)
    assert tokens.value.shape == (1, 7)
    assert tokens.value.min() >= 0
    assert tokens.value.max() < 8
    assert position.value.tolist() == [0]
    assert features.value.dtype == np.uint16
    assert count.value == 5
    again = fill_inputs(specs, [], [LiveSize(7)], seed=3)
    np.testing.assert_array_equal(again[2].value, features.value)
    other = fill_inputs(specs, [], [LiveSize(7)], seed=4)
    assert (other[2].value != features.value).any()
    mask, short = (ValueSpec("tensor", dtype, (99,), (False,)) for dtype in (DType.BOOL, DType.I8))
    drawn = [given.value for given in fill_inputs([mask, short], [], [], seed=0)]
    assert (drawn[0].dtype, {*drawn[0].tolist()}) == (np.bool_, {False, True})
    assert (drawn[1].dtype, {*drawn[1].tolist()}) == (np.int8, {*range(8)})


def test_given_inputs_come_first() -> None:
    given = Input(np.ones((1, 2)), "x.npy")
    inputs = fill_inputs([TOKENS, POSITION], [given], [], seed=0)
    assert inputs[0] is given
    assert inputs[1].origin == "zero"
    drawn = fill_inputs([TOKENS, FEATURES], [], [], seed=0)
    np.testing.assert_array_equal(fill_inputs([TOKENS, FEATURES], [given], [], 0)[1].value, drawn[1].value)
    half = ValueSpec("tensor", DType.F16, (1, 2), (False, False))
    with pytest.raises(DtypeError, match=r"input 1 \(x\.npy\): .* array\.astype\(numpy\.float16\)"):
        fill_inputs([FEATURES, half], [Input(np.ones(1, np.float32), "y.npy"), given], [], seed=0)


def test_results_are_compared_by_their_element_type() -> None:
    x = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)
    assert difference(x, x * np.float32(1 + 1e-6)).problem is None
    worse = x.copy()
    worse[1, 0] += 0.5
    problem = "1 of 6 values exceed the tolerance, the worst at [1, 0]: 2.1 instead of 1.6"
    assert difference(x, worse).problem == problem
    assert difference(x, x[0]).problem == "shape [3] instead of [2, 3]"
    assert difference(np.array([1, 2]), np.array([1, 3])).problem is not None
    special = np.array([np.nan, np.inf, -np.inf])
    assert difference(special, special).max_abs == 0
    assert difference(np.zeros(3), special).problem is not None
    assert (
        difference(np.array([0x3F80], np.uint16), np.array([0x3F81], np.uint16), DType.BF16).problem is None
    )
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))).problem is None
    assert difference(3, 3).problem is None


def test_text() -> None:
    assert [human_bytes(n) for n in (0, 999, 1000, 5140, 999_960, 847_984_000)] == [
        "0 B", "999 B", "1.0 kB", "5.1 kB", "1.0 MB", "848.0 MB",
    ]  # fmt: skip
    assert [human_time(t) for t in (2.5, 1, 0.0123, 1e-3, 9.9e-4)] == [
        "2.50 s", "1.00 s", "12.3 ms", "1 ms", "990 µs",
    ]  # fmt: skip
    assert json.loads(json_text({"a": [float("nan"), -float("inf"), 0.5], "b": DType.F32})) == {
        "a": [None, None, 0.5], "b": "f32",
    }  # fmt: skip
    assert [counted(1, "node"), counted(2, "node"), counted(2, "entry", "entries")] == [
        "1 node", "2 nodes", "2 entries",
    ]  # fmt: skip
    assert columns([("1", "a", ""), ("10", "bb", "c")], indent=2, align=">") == ["   1  a", "  10  bb  c"]
    assert columns([]) == []
    assert features_text({"f16": True, "timestamps": False, "subgroups": True}) == (
        "f16, subgroups; lacks timestamps"
    )
    assert [features_text({"f16": has}) for has in (True, False)] == ["f16", "none; lacks f16"]
