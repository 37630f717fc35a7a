"""Inputs by name, shapes checked at the door, specs for NumPy, DLPack, event loops, notebooks."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check import each
from golden import assert_outputs, read_cases

import pteron
from pteron import DtypeError, GpuTensor, InputError
from pteron.dtypes import DType
from pteron.format.records import MethodRecord, TensorRecord
from pteron.llm import LLM
from pteron.runtime.specs import describe, input_names, table


@pytest.fixture
def named(programs: Path) -> Iterator[pteron.Method]:
    with pteron.load(programs / "named_inputs.pte") as program:
        yield program["forward"]


@pytest.fixture
def dynamic(programs: Path) -> Iterator[pteron.Method]:
    with pteron.load(programs / "mlp_dynamic.pte") as program:
        yield program["forward"]


# Names ------------------------------------------------------------------------------------------


def test_inputs_by_name(named: pteron.Method, programs: Path) -> None:
    assert [spec.name for spec in named.inputs] == ["input_0", "first", "second", "scale"]
    (case,) = read_cases(programs / "named_inputs.npz")
    x, first, second, scale = case.inputs
    pair: dict[str, Any] = {"second": second, "first": first}
    for outputs in (
        named(x, first, second, scale),
        named(x, scale=scale, **pair),
        named(x, first, scale=scale, second=second),
        named(input_0=x, input_1=first, input_2=second, input_3=scale),
        named({"input_0": x, "scale": scale, **pair}),
        named({"input_0": x, **pair}, scale=scale),
    ):
        assert_outputs(outputs, case.outputs)
    (kept,) = named(x, scale=scale, on_gpu=True, **pair)
    assert isinstance(kept, GpuTensor)


def test_names_that_are_wrong(named: pteron.Method) -> None:
    x = np.zeros((2, 3), np.float32)
    for inputs, names, words in (
        ((x,), {"size": x}, r"no input 'size'; it has input_0, first, second, scale"),
        ((x,), {"input_0": x}, "input 'input_0' is given twice"),
        ((), {"first": x, "input_1": x}, "'input_1' is given twice"),
        (({"first": x},), {"first": x}, "input 'first' is given twice"),
        ((x,), {"first": x}, r"takes 4 inputs .*got 2: second, scale missing"),
        ((x, x), {}, r"takes 4 inputs .*got 2: second, scale missing"),
        ((x,) * 5, {}, r"takes 4 inputs .*got 5"),
        ((x, x.astype(np.float64), x, x), {}, r"input 1 \(first\): expected f32, got f64"),
    ):
        with pytest.raises(InputError, match=words):
            named(*inputs, **names)  # type: ignore[arg-type]


def record(tree: str, inputs: int) -> MethodRecord:
    return MethodRecord("forward", (None,) * inputs, tuple(range(inputs)), (), (), (), (), tree)


def node(kind: str | None, children: list[Any] = [], context: object = None) -> dict[str, Any]:  # noqa: B006
    return {"type": kind, "context": json.dumps(context), "children_spec": children}


LEAF = node(None)


def tree(arguments: list[Any], named: dict[str, Any]) -> str:
    by_name = node("builtins.dict", list(named.values()), list(named))
    return json.dumps([1, node("builtins.tuple", [node("builtins.tuple", arguments), by_name])])


@each(
    ("text", "count", "names"),
    [
        (tree([LEAF], {"mask": LEAF}), 2, ["input_0", "mask"]),
        (tree([LEAF], {"mask": LEAF}), 3, ["input_0", "input_1", "input_2"]),
        (tree([node("builtins.list", [LEAF, LEAF])], {}), 2, ["0", "1"]),
        (tree([], {"a": node("builtins.dict", [LEAF], ["b"])}), 1, ["a.b"]),
        (tree([node("builtins.dict", [LEAF], ["a"])] * 2, {}), 2, ["input_0", "input_1"]),  # twice the same
        (tree([LEAF, LEAF], {"input_0": LEAF}), 3, ["input_0", "input_1", "input_2"]),
        ("", 1, ["input_0"]),
        ("[1]", 1, ["input_0"]),
        ("[1, null]", 1, ["input_0"]),
        ("[" * 100_000, 1, ["input_0"]),
        (tree([node("builtins.dict", [LEAF], "no list")], {}), 1, ["0"]),
        (tree([node("builtins.dict", [LEAF], [])], {}), 1, ["input_0"]),
    ],
)
def test_names_that_files_keep(text: str, count: int, names: list[str]) -> None:
    """Whatever a file has there, every input has a name, and no two the same."""
    assert list(input_names(record(text, count))) == names


@each(
    ("tree", "names"),
    [
        (node("builtins.dict", [LEAF, LEAF], ["a", "b"]), ["a", "b"]),
        (node("builtins.tuple", [LEAF, node("builtins.dict", [LEAF], ["a"])]), ["", "a"]),
        (node("builtins.tuple", [node("builtins.dict", [LEAF], ["a"])] * 2), ["", ""]),  # twice the same
        (node("builtins.dict", [LEAF], ["a"]), ["", ""]),  # of one output
        (None, ["", ""]),
    ],
)
def test_names_of_outputs(tree: object, names: list[str]) -> None:
    tensor = TensorRecord(DType.F32, (2,), (0,), "static", None, False, False, None, False)
    made = replace(record("", 0), values=(tensor, tensor), outputs=(0, 1), output_tree=json.dumps([1, tree]))
    assert [spec.name for spec in describe(made, ())[1]] == names


# The door ---------------------------------------------------------------------------------------


def test_another_type_comes_with_a_remedy(dynamic: pteron.Method) -> None:
    with pytest.raises(
        DtypeError, match=r"input 0: expected f32, got f64; x\.astype\(np\.float32\) converts it"
    ):
        dynamic(np.zeros((4, 7)))
    torch: Any = pytest.importorskip("torch")
    with pytest.raises(DtypeError, match=r"expected f32, got f64; x\.to\(torch\.float32\) converts it"):
        dynamic(torch.zeros((4, 7), dtype=torch.float64))


# Specs and tensors ------------------------------------------------------------------------------


def test_specs_as_numpy_takes_them(dynamic: pteron.Method) -> None:
    (spec,) = dynamic.inputs
    array = np.empty(spec.shape, spec.dtype)
    assert array.shape == (17, 7)
    assert array.dtype == np.float32
    for dtype in pteron.DType:
        assert np.dtype(dtype) == dtype.numpy
    assert dynamic(np.ones(spec.shape, spec.dtype))[0].shape == dynamic.outputs[0].shape


def test_dlpack(dynamic: pteron.Method) -> None:
    (kept,) = dynamic(np.ones((5, 7), np.float32), on_gpu=True)
    assert kept.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(kept), kept.numpy())
    with pytest.raises(BufferError, match="copied to the CPU"):
        kept.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copied to the CPU"):
        kept.__dlpack__(copy=False)
    torch: Any = pytest.importorskip("torch")
    taken = torch.from_dlpack(kept)
    np.testing.assert_array_equal(taken.numpy(), kept.numpy())
    taken += 1  # it is a copy
    assert (torch.from_dlpack(kept) < 1).all()


# Event loops ------------------------------------------------------------------------------------


def test_awaited(dynamic: pteron.Method) -> None:
    """Several at once, while the loop goes on."""
    x = np.random.default_rng(0).normal(size=(17, 7)).astype(np.float32)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def use() -> list[Any]:
        ticking = asyncio.create_task(tick())
        found = await asyncio.gather(*(dynamic.run_async(x[:rows]) for rows in range(1, 9)))
        ticking.cancel()
        return found

    for rows, (found,) in enumerate(asyncio.run(use()), 1):
        np.testing.assert_array_equal(found, dynamic(x[:rows])[0])
    assert ticks > 8
    with pytest.raises(InputError, match="missing"):
        asyncio.run(dynamic.run_async())


def test_cancelled(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits is never run; one that has begun ends, and what it left is whole."""
    with pteron.load(programs / "mutable_buffer.pte") as program:
        method, x = program["forward"], np.ones((3, 5), np.float32)
        once, twice = method(x)[0], method(x)[0]
        assert not np.array_equal(once, twice)
        method.reset()
        begun, go = threading.Event(), threading.Event()
        run = method._interpreter.run

        def wait_and_run(*inputs: Any, **options: Any) -> Any:
            begun.set()
            assert go.wait(20)
            return run(*inputs, **options)

        async def use() -> None:
            first, second = (asyncio.create_task(method.run_async(x)) for _ in range(2))
            await asyncio.to_thread(begun.wait, 20)
            second.cancel()
            first.cancel()
            for task in (first, second):
                with pytest.raises(asyncio.CancelledError):
                    await task
            go.set()

        monkeypatch.setattr(method._interpreter, "run", wait_and_run)
        asyncio.run(use())
        monkeypatch.undo()
        np.testing.assert_array_equal(method(x)[0], twice)  # after the first, and not after two


def test_after_close(programs: Path) -> None:
    """The same error as other calls after `close`, whether or not run_async was used before."""
    x = np.ones((3, 7), np.float32)
    for is_used in (False, True):
        with pteron.load(programs / "mlp.pte") as program:
            method = program["forward"]
            if is_used:
                asyncio.run(method.run_async(x))
        with pytest.raises(pteron.DeviceError, match="the program is closed"):
            asyncio.run(method.run_async(x))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_copies(programs: Path, duplicate: Callable[[object], object]) -> None:
    with pteron.load(programs / "mlp.pte") as program, program.sequence() as sequence:
        for each in (program, program["forward"], sequence):
            with pytest.raises(TypeError, match=f"a {type(each).__name__} cannot be copied or pickled"):
                duplicate(each)


# Notebooks --------------------------------------------------------------------------------------


def test_what_a_notebook_shows(programs: Path) -> None:
    with pteron.load(programs / "named_inputs.pte") as program:
        assert "named_inputs.pte" in program._repr_html_()
        method = program["forward"]
        shown = method._repr_html_()
        assert all(f">{name}</td>" in shown for name in ("input_0", "first", "second", "scale"))
        assert "scale: f32[2, 3]" in repr(method)
        assert method.inputs[3]._repr_html_() == "<code>scale: f32[2, 3]</code>"
        (kept,) = method(*(np.zeros((2, 3), np.float32),) * 4, on_gpu=True)
        assert "&lt;pteron.GpuTensor f32[2, 3]" in kept._repr_html_()


def test_a_language_model_in_a_notebook(tiny_llm: LLM) -> None:
    shown = tiny_llm._repr_html_()
    assert f">{tiny_llm.context:,} tokens; vocabulary {tiny_llm.model.vocabulary:,}</td>" in shown
    assert ">greedy</td>" in shown
    weights = tiny_llm.model.method.gpu_bytes["weights"]
    assert f"weights {weights / 1e6:,.1f} MB" in shown


def test_nothing_shown_is_taken_for_html() -> None:
    shown = table("<script>", ("&",), [("<b>",)])
    assert "<script>" not in shown
    assert "<b>&lt;script&gt;</b>" in shown
    assert ">&lt;b&gt;</td>" in shown


def test_methods_are_attributes(programs: Path) -> None:
    with pteron.load(programs / "multi_method.pte") as program:
        assert {*program.methods} <= {*dir(program)}
        assert program._ipython_key_completions_() == list(program.methods)
        assert program.encode is program["encode"]  # type: ignore[attr-defined]
        assert not hasattr(program, "decode_nothing")
        assert not hasattr(program, "_repr_png_")
        assert callable(program.close)


# Integers ---------------------------------------------------------------------------------------


def test_integers_wrap_at_32_bits(programs: Path) -> None:
    """dtypes.pte adds its first input, i64, to itself."""
    (case, *_) = read_cases(programs / "dtypes.npz")
    large = [case.inputs[0].copy(), *case.inputs[1:]]
    large[0][0, 0] = 1 << 30
    with pteron.load(programs / "dtypes.pte") as program:
        (found, *_) = program["forward"](*large)
        assert found[0, 0] == -(1 << 31)
