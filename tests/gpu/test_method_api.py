"""What a caller meets: inputs accepted and refused, specs, tensors on the GPU, closing, memory."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import assert_outputs, read_cases

import pteron
from pteron import DeviceError, DType, DtypeError, GpuTensor, InputError, PteronError, ShapeError
from pteron.cli import main
from pteron.llm.names.models import BUNDLED
from pteron.runtime import plan_cache
from pteron.tools.inspect import inspect
from pteron.tools.inspect.report import ProgramReport

Load = Callable[[str], pteron.Method]


@pytest.fixture
def load(programs: Path) -> Iterator[Load]:
    """Methods by the names of their programs, closed after the test."""
    opened: list[pteron.Program] = []

    def load(name: str) -> pteron.Method:
        data = sorted(programs.glob(f"{name}.*.ptd"))
        opened.append(pteron.load(programs / f"{name}.pte", data=data))
        return opened[-1]["forward"]

    yield load
    for program in opened:
        program.close()


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


# Inputs -----------------------------------------------------------------------------------------


def test_scalars_of_any_kind(load: Load) -> None:
    """For an integer, and for a tensor of rank 0."""
    torch: Any = pytest.importorskip("torch")
    x, method = np.arange(55, dtype=np.float32).reshape(11, 5), load("symint_input")
    for count in (4, np.int64(4), np.int32(4), np.array(4)):
        np.testing.assert_array_equal(method(x, count)[0], x[:4] * x[:4])
    (found,) = method(torch.from_numpy(x), torch.tensor(4))
    np.testing.assert_array_equal(found.numpy(), x[:4] * x[:4])
    x, method = np.ones((2, 5), np.float32), load("symint_from_host")
    (expected,) = method(x, np.array(3, np.int64))
    for start in (3, np.int64(3), np.array(3)):
        np.testing.assert_array_equal(method(x, start)[0], expected)


def test_lists_take_the_declared_dtype(load: Load) -> None:
    (found,) = load("select_position")([[1, 2, 3, 4, 5]], [3])
    assert found.dtype == np.float32
    assert found.shape == (1, 5)


def test_memory_of_any_layout(load: Load) -> None:
    method, x = load("mlp_dynamic"), np.random.default_rng(0).normal(size=(14, 14)).astype(np.float32)
    for view in (x[::2, ::2], x[::-2, ::2], x.T[:7, :7].T, np.asfortranarray(x[:5, :7])):
        assert not view.flags.c_contiguous
        np.testing.assert_array_equal(method(view)[0], method(view.copy())[0])


def test_negative_strides_reach_host_operators(load: Load) -> None:
    x = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    method = load("host_only")
    np.testing.assert_array_equal(method(x[::-1])[0], method(x[::-1].copy())[0])


def test_outputs_belong_to_the_caller(load: Load) -> None:
    """Writing to an output changes neither inputs, constants nor states."""
    method, (x, y) = load("repeated_outputs"), (np.ones((2, 10), np.float32), np.ones((2, 2), np.float32))
    for _ in range(2):
        product, same_y, same_x, again, _ = method(x, y)
        for output in (product, same_y, same_x, again):
            assert (output == 1).all()
            output[:] = 7
        assert (again == 7).all()
    assert (x == 1).all()
    assert (y == 1).all()


class Image:
    """As Pillow's images describe themselves to NumPy."""

    pixels = np.zeros((3, 7), np.uint8)
    __array_interface__ = pixels.__array_interface__


class Export:
    """A tensor of a library that speaks nothing but DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def test_tensors_of_other_libraries(load: Load) -> None:
    x = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    np.testing.assert_array_equal(load("mlp")(Export(x))[0], load("mlp")(x)[0])


REFUSED: list[tuple[str, list[object], type[Exception], list[str]]] = [
    ("mlp_dynamic", [zeros(5)], ShapeError, ["input 0: expected rank 2, f32[≤17, 7], got [5]"]),
    ("mlp_dynamic", [zeros(1, 5, 7)], ShapeError, ["input 0", "rank 2", "[1, 5, 7]"]),
    ("mlp_dynamic", [zeros(18, 7)], ShapeError, ["input 0: dim 0 is 18, expected at most 17", "[≤17, 7]"]),
    ("mlp_dynamic", [zeros(17, 8)], ShapeError, ["input 0: dim 1 is 8, expected 7", "[17, 8]"]),
    ("mlp_dynamic", [zeros(17, 6)], ShapeError, ["dim 1 is 6, expected 7", "[17, 6]", "node 1 aten.linear"]),
    ("mlp", [zeros(2, 7)], ShapeError, ["input 0", "[3, 7]", "[2, 7]"]),
    ("mlp", [np.zeros((3, 7))], DtypeError, ["input 0", "f32", "f64"]),
    ("mlp", [np.zeros((3, 7), np.int64)], DtypeError, ["input 0", "f32", "i64"]),
    ("mlp", [np.zeros((3, 7), np.complex64)], DtypeError, ["input 0", "f32", "complex64"]),
    ("mlp", [np.zeros((3, 7), object)], DtypeError, ["input 0", "f32", "object"]),
    ("mlp", [np.zeros((3, 7), ">f4")], DtypeError, ["f32, got >f4; x.astype(np.float32) converts it"]),
    ("mlp", [np.zeros((3, 7), [("a", "f4")])], DtypeError, ["input 0: expected f32, got [('a', '<f4')]"]),
    ("mlp", ["text"], DtypeError, ["input 0: expected f32, got a str; pass an array, a tensor or"]),
    ("mlp", [None], DtypeError, ["input 0: expected f32, got None; pass an array, a tensor or"]),
    ("mlp", [Image()], DtypeError, ["input 0: expected f32, got u8; np.asarray(x, np.float32) converts it"]),
    ("mlp", [Export(np.zeros((3, 7)))], DtypeError, ["f32, got f64; np.asarray(x, np.float32) converts it"]),
    ("vision", [zeros(0, 3, 17, 16)], ShapeError, ["input 0: dim 0 is 0, expected 1", "[0, 3, 17, 16]"]),
    ("mlp", [[[1.0, 2.0], [3.0]]], DtypeError, ["input 0"]),
    ("mlp", [[[10**400] * 7] * 3], DtypeError, ["input 0: expected f32, got [[1000"]),
    ("mlp", [], InputError, ["1 inputs", "got 0"]),
    ("mlp", [zeros(3, 7), zeros(3, 7)], InputError, ["1 inputs", "got 2"]),
    ("select_position", [zeros(4, 5), np.array([1], np.int32)], DtypeError, ["input 1", "i64", "i32"]),
    ("select_position", [zeros(4, 5), [1.5]], DtypeError, ["input 1", "i64", "1.5"]),
    ("select_position", [zeros(4, 5), np.array([20])], ShapeError, ["node 4", "size 23", "integer %7 is 20"]),
    ("select_position", [zeros(4, 5), np.array([1 << 31])], InputError, ["2147483648", "32 bits"]),
    ("symint_input", [zeros(11, 5), 12.5], DtypeError, ["input 1", "integer", "12.5"]),
    ("symint_input", [zeros(11, 5), None], DtypeError, ["input 1", "integer"]),
    ("symint_input", [zeros(11, 5), "4"], DtypeError, ["input 1", "integer"]),
    ("symint_input", [zeros(11, 5), [4]], DtypeError, ["input 1", "scalar"]),
    ("symint_input", [zeros(11, 5), 1 << 40], InputError, ["1099511627776", "32 bits"]),
]


def test_refused_before_anything_ran(load: Load) -> None:
    methods = {name: load(name) for name in {name for name, *_ in REFUSED}}
    for name, inputs, error, words in REFUSED:
        before = methods[name].counters
        with pytest.raises(error) as caught:
            methods[name](*inputs)
        message = str(caught.value)
        assert all(word in message for word in (f"{name}.pte", *words)), message
        assert len(message) < 600
        after = methods[name].counters
        assert after.dispatches == before.dispatches, message
        assert after.bytes_uploaded == before.bytes_uploaded, message
        assert after.bytes_read == before.bytes_read, message


def test_torch_tensors_of_other_kinds(load: Load) -> None:
    torch: Any = pytest.importorskip("torch")
    method, x = load("mlp"), torch.zeros(3, 7)
    for refused in (x.to(torch.complex64), x.half(), x.to(torch.float8_e5m2), x.int()):
        with pytest.raises(DtypeError, match="input 0"):
            method(refused)
    for sparse in (x.to_sparse(), x.to_sparse_csr(), x.bfloat16().to_sparse(), torch.zeros(0, 7).to_sparse()):
        with pytest.raises(DtypeError, match=r"input 0: a tensor of layout torch.sparse.*to_dense"):
            method(sparse)
    for empty in (x.to("meta"), x.bfloat16().to("meta")):
        with pytest.raises(
            DtypeError, match=r"input 0: a meta tensor has a shape, \[3, 7\], but no elements"
        ):
            method(empty)
    with pytest.raises(DtypeError, match=r"input 0: .*cannot be read"):
        method(torch.quantize_per_tensor(x, 1.0, 0, torch.quint8))
    with pytest.raises(DtypeError, match="input 1: a meta tensor"):
        load("symint_input")(torch.zeros(11, 5), torch.tensor(4, device="meta"))
    parameter = torch.nn.Parameter(x)
    assert isinstance(method(parameter)[0], torch.Tensor)
    assert torch.equal(method(x.t().contiguous().t())[0], method(x)[0])


def test_integers_beyond_32_bits(load: Load, programs: Path) -> None:
    case, method = read_cases(programs / "dtypes.npz")[0], load("dtypes")
    for value in (1 << 31, -(1 << 31) - 1, 1 << 62):
        inputs = [array.copy() for array in case.inputs]
        inputs[0][1, 2] = value
        before = method.counters
        with pytest.raises(DtypeError, match=f"32 bits.*{value}"):
            method(*inputs)
        assert method.counters.dispatches == before.dispatches
        assert method.counters.bytes_uploaded == before.bytes_uploaded
        assert_outputs(method(*case.inputs), case.outputs)


def test_refused_calls_leave_states_alone(load: Load, programs: Path) -> None:
    method = load("attention_cache")
    for case in read_cases(programs / "attention_cache.npz"):
        for wrong, error in (
            ([*case.inputs[:3], np.array([13])], ShapeError),
            ([*case.inputs[:3], np.array([0], np.int32)], DtypeError),
            ([case.inputs[0], zeros(1, 6, 2, 4), *case.inputs[2:]], ShapeError),
            (case.inputs[:3], InputError),
        ):
            with pytest.raises(error):
                method(*wrong)
        assert_outputs(method(*case.inputs), case.outputs)


# Specs ------------------------------------------------------------------------------------------


def test_specs(load: Load) -> None:
    cache = "f32[1, ≤5, 2, 4]"
    for name, inputs, outputs in (
        ("mlp", ["f32[3, 7]"], ["f32[3, 5]"]),
        ("mlp_dynamic", ["f32[≤17, 7]"], ["f32[≤17, 11]"]),
        ("select_position", ["f32[≤11, 5]", "i64[1]"], ["f32[≤11, 5]"]),
        ("symint_input", ["f32[11, 5]", "int"], ["f32[≤11, 5]"]),
        ("symint_output", ["f32[≤11, ≤5]"], ["f32[≤11, ≤5]", "int"]),
        ("attention_cache", ["f32[1, ≤5, 4, 4]", cache, cache, "i64[1]"], ["f32[1, ≤5, 4, 4]"]),
        ("tight_bounds", ["f32[1, 1, ≤32, ≤64]"], ["f32[1, 1, ≤16, ≤32]"]),
        ("two_delegates", ["f32[≤13, 7]"], ["f32[≤13, 3]", "i64[≤13, 5]"]),
        ("host_only", ["f32[≤13, 7]"], ["f32[≤13, 5]"]),
        ("vision", ["f32[1, 3, 3..17, 3..16]"], ["f32[1, 5]", "f32[1, 4, 2..8, 2..8]"]),
        ("image_steps", ["f32[1, 3, ≤40 by 4, ≤40 by 4]"], ["f32[1, 2, ≤40 by 4, ≤40 by 4]"]),
        ("image_batch", ["f32[≤8, 3, ≤24 by 4, ≤16 by 4]"], ["f32[≤8, 2, ≤24 by 4, ≤16 by 4]"]),
        ("cond", ["bool[]", "f32[2, 7]"], ["f32[2, 3]"]),
    ):
        method = load(name)
        assert [str(spec) for spec in method.inputs] == inputs
        assert [str(spec) for spec in method.outputs] == outputs


def test_a_spec_is_enough_to_call(programs: Path) -> None:
    """Every program takes zeros at its maximum shapes."""
    for path in sorted(programs.glob("*.pte")):
        with pteron.load(path, data=sorted(programs.glob(f"{path.stem}.*.ptd"))) as program:
            for name in program:
                method = program[name]
                inputs = [
                    np.zeros(spec.shape_max, spec.dtype.numpy) if spec.dtype else spec.value
                    for spec in method.inputs
                ]
                outputs = method(*inputs)
                for spec, output in zip(method.outputs, outputs, strict=True):
                    if spec.dtype:
                        assert output.dtype == spec.dtype.numpy
                        dims = zip(output.shape, spec.shape_max, spec.dynamic, strict=True)
                        assert all(size == most or (free and size < most) for size, most, free in dims)


def test_bounds_are_those_of_the_delegates(load: Load, programs: Path) -> None:
    """The file bounds the method at 20 rows, and its delegate at 32."""
    method = load("tight_bounds")
    assert method(zeros(1, 1, 32, 64))[0].shape == (1, 1, 16, 32)
    with pytest.raises(ShapeError, match="input 0: dim 2 is 33, expected at most 32"):
        method(zeros(1, 1, 33, 64))
    examined = inspect(programs / "tight_bounds.pte")
    assert isinstance(examined, ProgramReport)
    (report,) = examined.methods
    assert (report.inputs, report.outputs) == (method.inputs, method.outputs)


def test_dims_in_steps(load: Load, programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs at each size that it shows, other sizes are errors that say the steps; channels are fixed."""
    for name, cases in (("image_steps", 4), ("image_batch", 3)):
        found = read_cases(programs / f"{name}.npz")
        assert len(found) == cases
        for case in found:
            assert_outputs(load(name)(*case.inputs), case.outputs)
    method = load("image_steps")
    (spec,) = method.inputs
    assert (spec.dynamic, spec.shape_min) == ((False, False, True, True), (1, 3, 0, 0))
    assert (spec.shape_step, spec.shape_least) == ((1, 1, 4, 4), (1, 3, 4, 4))
    with pytest.raises(
        ShapeError, match="input 0: dim 2 is 10, expected at most 40 in steps of 4: the input"
    ):
        method(zeros(1, 3, 10, 24))
    assert main(["run", str(programs / "image_steps.pte"), "--dim", "0.2=8"]) == 0
    assert "[1, 2, 8, 40]" in capsys.readouterr().out
    with pytest.raises(ShapeError, match="dim 0 of input 1 depends on it and must be 5, got 4"):
        load("layout")(zeros(5, 3, 7), zeros(4, 3, 7))


# Tensors on the GPU -----------------------------------------------------------------------------


def test_outputs_stay_on_the_gpu(load: Load, device: pteron.Device) -> None:
    method, x = load("mlp_dynamic"), np.ones((5, 7), np.float32)
    (expected,) = method(x)
    read = method.counters.bytes_read
    wanted: Any = "yes"  # any value that is true
    (kept,) = method(x, on_gpu=wanted)
    assert isinstance(kept, GpuTensor)
    assert (kept.shape, kept.dtype, kept.device, kept.nbytes) == ((5, 11), DType.F32, device, 5 * 11 * 4)
    assert "f32[5, 11]" in repr(kept)
    assert method.counters.bytes_read == read
    np.testing.assert_array_equal(kept.numpy(), expected)
    np.testing.assert_array_equal(np.asarray(kept), expected)
    np.testing.assert_array_equal(np.asarray(kept, np.float64), expected.astype(np.float64))
    method(x * 2)
    np.testing.assert_array_equal(kept.numpy(), expected)  # later calls do not change it


def test_one_element_on_the_gpu_is_a_number(load: Load) -> None:
    x = np.random.default_rng(0).normal(size=(1, 1, 7)).astype(np.float32)
    expected, kept = load("norms")(x), load("norms")(x, on_gpu=True)
    both = zip(kept, expected, strict=True)
    pairs = [(one, array.item()) for one, array in both if isinstance(one, GpuTensor) and array.size == 1]
    assert {tensor.dtype for tensor, _ in pairs} > {DType.F32}
    for tensor, number in pairs:
        assert (float(tensor), int(tensor), bool(tensor)) == (float(number), int(number), bool(number))
        assert tensor.item() == number
    for convert in (float, int, bool):
        with pytest.raises(ShapeError, match=r"f32\[1, 1, 7\].* has 7 elements"):
            convert(kept[0])


def test_torch_from_the_gpu(load: Load) -> None:
    torch: Any = pytest.importorskip("torch")
    method, x = load("mlp_dynamic"), np.ones((5, 7), np.float32)
    (kept,) = method(x, on_gpu=True)
    assert isinstance(kept.torch(), torch.Tensor)
    np.testing.assert_array_equal(kept.torch().numpy(), method(x)[0])


def test_chained_calls_read_nothing_back(load: Load) -> None:
    """mutable_buffer gives a tensor of the shape it takes."""
    method = load("mutable_buffer")
    other = load("mutable_buffer")
    x: Any = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    on_host = x
    for _ in range(5):
        (x,) = method(x, on_gpu=True)
        (on_host,) = other(on_host)
    assert method.counters.bytes_read == 0
    assert method.counters.bytes_uploaded == 3 * 5 * 4  # the first input only
    np.testing.assert_array_equal(x.numpy(), on_host)


def test_a_gpu_tensor_at_other_shapes(load: Load) -> None:
    first, second = load("zero_dim"), load("two_delegates")
    for rows in (3, 1, 13, 0):
        (kept,) = first(np.ones((rows, 7), np.float32), on_gpu=True)
        assert kept.shape == (rows, 5)
    with pytest.raises(ShapeError, match=r"input 0: dim 1 is 5, expected 7.*got \[0, 5\]"):
        second(kept)


def test_a_gpu_tensor_of_another_dtype(load: Load) -> None:
    (_, order) = load("two_delegates")(np.ones((3, 7), np.float32), on_gpu=True)
    assert isinstance(order, np.ndarray)  # a host operator made it, so it is no GPU tensor
    kept = load("norms")(np.ones((2, 3, 7), np.float32), on_gpu=True)
    indices = kept[13]
    assert isinstance(indices, GpuTensor)
    assert indices.dtype is DType.I64
    assert indices.numpy().dtype == np.int64
    with pytest.raises(DtypeError, match="input 0: expected f32, got i64"):
        load("mlp_dynamic")(indices)


def test_a_gpu_tensor_of_another_device(load: Load, programs: Path, device: pteron.Device) -> None:
    other = pteron.Device(device.adapter)
    try:
        with pteron.load(programs / "mutable_buffer.pte", device=other) as program:
            (kept,) = program["forward"](zeros(3, 5), on_gpu=True)
            assert kept.device is other
            with pytest.raises(InputError, match=r"input 0.*another device"):
                load("mutable_buffer")(kept)
            program["forward"](kept)
    finally:
        other.close()
    with pytest.raises(DeviceError, match="closed"):
        kept.numpy()


def test_zero_sized_dims(load: Load) -> None:
    method = load("zero_dim")
    for _ in range(2):
        (found,) = method(zeros(0, 7))
        assert found.shape == (0, 5)
        assert found.dtype == np.float32
    (kept,) = method(zeros(0, 7), on_gpu=True)
    assert kept.numpy().shape == (0, 5)
    assert method(zeros(2, 7))[0].shape == (2, 5)


# States -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mutable_buffer", "mutable_buffer_host", "update_cache", "attention_cache"])
def test_reset_brings_states_back(load: Load, programs: Path, name: str) -> None:
    method, cases = load(name), read_cases(programs / f"{name}.npz")
    for _ in range(3):
        for case in cases:
            assert_outputs(method(*case.inputs), case.outputs)
        method.reset()


# Plans ------------------------------------------------------------------------------------------


def test_shapes_seen_before_are_not_planned_again(load: Load) -> None:
    method = load("mlp_dynamic")
    for rows in range(1, 18):
        method(zeros(rows, 7))
    plans = method.counters.plans
    assert plans < 17  # the maximum was planned at load, and a plan suits several lengths
    for rows in (17, 1, 9, 3, 3):
        method(zeros(rows, 7))
    assert method.counters.plans == plans


def test_kept_plans_are_bounded(load: Load, device: pteron.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """More distinct shapes than are kept: still right, and no memory is gathered."""
    monkeypatch.setattr(plan_cache, "PLAN_BYTES_MAX", 0)  # the latest is kept anyway
    gc.collect()  # what other tests left, and will not be freed in the middle
    method, x = load("mlp_dynamic"), np.random.default_rng(0).normal(size=(17, 7)).astype(np.float32)
    (expected,) = method(x)
    used = [device.buffer_bytes]
    for rows in [*range(1, 18), *range(17, 0, -1), *range(1, 18)]:
        (found,) = method(x[:rows])
        np.testing.assert_allclose(found, expected[:rows], atol=1e-6)
        used.append(device.buffer_bytes)
    largest = max(after - before for before, after in pairwise(used))  # of all plans
    assert 0 < max(used) - used[0] <= (1 + 4) * largest  # four are of calls that were recorded ahead and wait
    assert method.counters.plans > 9  # some were forgotten and made again
    plans = method.counters.plans
    for _ in range(3):
        method(x)
    assert method.counters.plans == plans  # the latest was kept


def test_kept_plans_of_one_shape_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decode step has one shape, and a plan for each bucket of positions."""
    monkeypatch.setattr(plan_cache, "PLAN_BYTES_MAX", 0)
    with pteron.load(BUNDLED["stories15m"] / "model.pte") as program:
        method = program["forward"]
        for position in (0, 64, 128, 192, 64):
            method(np.array([[5]]), np.array([position]))
        assert method.counters.plans == 5  # one was made at load, one twice


# Ahead of the first call -------------------------------------------------------------------------


def test_prepared_calls_plan_and_compile_nothing(programs: Path) -> None:
    lines: list[str] = []
    with pteron.load(programs / "vision.pte") as program:
        method = program["forward"]
        method.prepare([(1, 3, 17, 9), (1, 3, 11, 16)], progress=lines.append)
        before = method.counters
        for shape in ((1, 3, 17, 9), (1, 3, 11, 16)):
            method(np.ones(shape, np.float32))
        after = method.counters
        assert (after.plans, after.kernels) == (before.plans, before.kernels)
    assert [line.split(":")[0] for line in lines] == [
        "prepared 1 of 2, (1, 3, 17, 9)",
        "prepared 2 of 2, (1, 3, 11, 16)",
    ]
    assert "new plans" in lines[0]


VISION: list[tuple[int, ...]] = [(1, 3, height, width) for height in range(5, 18) for width in range(5, 17)]
BY_BUCKET: dict[str, tuple[list[tuple[int, ...]], list[tuple[int, ...]], int]] = {
    "vision": ([(1, 3, 17, 16), (1, 3, 16, 16), (1, 3, 9, 16), (1, 3, 8, 9), (1, 3, 16, 8)], VISION, 7),
    "mlp_dynamic": ([(17, 7), (16, 7), (8, 7), (4, 7), (2, 7), (1, 7)], [(n, 7) for n in range(1, 18)], 8),
    "norms": ([(13, 3, 7), (8, 2, 7), (4, 1, 7)], [(n, k, 7) for n in range(1, 14) for k in (1, 2, 3)], 6),
}


@pytest.mark.long(every=4)
@pytest.mark.parametrize("name", BY_BUCKET)
def test_sizes_of_known_buckets_need_no_kernel(programs: Path, name: str) -> None:
    """After a few sizes all others, in any order, compile nothing; few plans suit them all, beside the plan
    at the maximum."""
    first, sizes, plans_most = BY_BUCKET[name]
    sizes = random.Random(0).sample(sizes, min(len(sizes), 40))
    with pteron.load(programs / f"{name}.pte") as program:
        method = program["forward"]
        for shape in first:
            method(zeros(*shape))
        kernels = method.counters.kernels
        for shape in sizes:
            method(zeros(*shape))
        assert method.counters.kernels == kernels
        assert method.counters.plans <= plans_most


def test_preparing_leaves_states(programs: Path) -> None:
    (case, *_) = read_cases(programs / "mutable_buffer.npz")
    with pteron.load(programs / "mutable_buffer.pte") as program:
        method = program["forward"]
        method.prepare([(3, 5), ((3, 5),), (np.zeros((3, 5), np.float32),), {"input_0": (3, 5)}])
        assert_outputs(method(*case.inputs), case.outputs)


def test_prepared_calls_of_several_inputs(programs: Path) -> None:
    with pteron.load(programs / "select_position.pte") as program:
        method = program["forward"]
        method.prepare([((4, 5), np.array([1])), {"input_0": (3, 5), "input_1": (1,)}])
        plans = method.counters.plans
        method(zeros(4, 5), np.array([1]))
        method(zeros(3, 5), np.array([0]))
        assert method.counters.plans == plans
        with pytest.raises(InputError, match="takes 2 inputs"):
            method.prepare([((4, 5),)])
        with pytest.raises(ShapeError, match="input 0"):
            method.prepare([((4, 5, 6), np.array([1]))])
    with pytest.raises(DeviceError, match="closed"):
        method.prepare([])


def test_a_call_that_compiles_many_kernels_is_logged(
    programs: Path, device: pteron.Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device, "recent_kernel_bytes", 0)
    caplog.set_level("INFO", "pteron.runtime.session")
    gc.collect()
    with pteron.load(programs / "vision.pte", device=device) as program:
        method = program["forward"]
        at_load = method.counters.kernels
        for _ in range(2):
            method(zeros(1, 3, 17, 9))
        kernels = method.counters.kernels - at_load
        assert kernels > 4
    assert len(caplog.messages) == 1
    assert f"compiled {kernels} kernels in" in caplog.messages[0]
    assert "inputs of [1, 3, 17, 9]; Method.prepare" in caplog.messages[0]


# Closing ----------------------------------------------------------------------------------------


def test_closed_programs_refuse(programs: Path) -> None:
    with pteron.load(programs / "mlp.pte") as program:
        method = program["forward"]
        method(zeros(3, 7))
    for use in (
        lambda: method(zeros(3, 7)),
        lambda: program["forward"],
        method.reset,
    ):
        with pytest.raises(DeviceError, match="closed"):
            use()
    program.close()
    program.close()
    method.close()


def test_tensors_outlive_their_program(programs: Path) -> None:
    with pteron.load(programs / "mlp.pte") as program:
        (expected,) = program["forward"](zeros(3, 7))
        (kept,) = program["forward"](zeros(3, 7), on_gpu=True)
    np.testing.assert_array_equal(kept.numpy(), expected)


def test_closed_devices_refuse(programs: Path, device: pteron.Device) -> None:
    own = pteron.Device(device.adapter)
    program = pteron.load(programs / "mlp.pte", device=own)
    method = program["forward"]
    (kept,) = method(zeros(3, 7), on_gpu=True)
    own.close()
    own.close()
    assert "closed" in repr(own)
    for use in (lambda: method(zeros(3, 7)), kept.numpy, method.reset, own.check_open):
        with pytest.raises(DeviceError, match="closed"):
            use()
    with pytest.raises(DeviceError, match="closed"):
        pteron.load(programs / "mlp.pte", device=own)
    program.close()  # gives nothing back, and says nothing


@pytest.mark.long(every=2)
@pytest.mark.parametrize("name", ["mlp", "mutable_buffer", "two_delegates", "attention_cache", "norms"])
def test_memory_is_given_back(programs: Path, device: pteron.Device, name: str) -> None:
    gc.collect()
    before = device.buffer_bytes
    cases = read_cases(programs / f"{name}.npz")
    with pteron.load(programs / f"{name}.pte") as program:
        assert device.buffer_bytes == before  # nothing is uploaded before a method is looked up
        method = program["forward"]
        for case in cases:
            outputs = method(*case.inputs, on_gpu=True)
        assert device.buffer_bytes > before
        assert sum(method.gpu_bytes.values()) > 0
        del outputs
    gc.collect()
    assert device.buffer_bytes == before


# Errors -----------------------------------------------------------------------------------------


def test_public_names() -> None:
    assert pteron.__all__ == sorted(pteron.__all__)
    for name in pteron.__all__:
        assert hasattr(pteron, name)


def test_every_error_is_a_pteron_error() -> None:
    from pteron import errors

    found = [value for value in vars(errors).values() if isinstance(value, type)]
    assert len(found) > 8
    for error in found:
        assert issubclass(error, PteronError)
        assert error.__name__ in pteron.__all__
        assert error.__doc__
        assert error.__name__ in (errors.__doc__ or "")


def test_unknown_methods(programs: Path) -> None:
    with pteron.load(programs / "multi_method.pte") as program:
        assert "encode" in program
        assert "forward" not in program
        assert len(program) == len(program.methods)
        with pytest.raises(pteron.MethodError, match=r"no method 'forward'; it has .*encode") as caught:
            program["forward"]
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value, InputError)
