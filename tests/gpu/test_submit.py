"""Calls that are submitted and read later: `submit`, `map`, `out=`, `device.upload`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import Failing
from golden import Array, assert_outputs, read_cases

import pteron
from pteron import Device, DeviceError, DtypeError, InputError, Method, Pending, ShapeError, StateLost

IN_FLIGHT = 4
# One delegate, several, host operators in front, between and behind, states on both sides, all element types.
PROGRAMS = [
    "dtypes", "host_only", "mlp_dynamic", "mutable_buffer", "mutable_buffer_host", "repeated_outputs",
    "scalars", "symint_host", "symint_output", "trivial_host", "two_delegates", "value_list", "zero_dim",
]  # fmt: skip


@pytest.fixture
def dynamic(programs: Path, device: Device) -> Iterator[Method]:
    with pteron.load(programs / "mlp_dynamic.pte", device=device) as program:
        yield program["forward"]


@pytest.fixture
def counting(programs: Path, device: Device) -> Iterator[Method]:
    """It adds its input to a state, and gives twice the state."""
    with pteron.load(programs / "mutable_buffer.pte", device=device) as program:
        yield program["forward"]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The submissions that somebody waits for; None: all of them."""
    seen, poll = list[int | None](), Device.poll

    def noted(device: Device, *, wait: bool, submission: int | None = None) -> None:
        if wait:
            seen.append(submission)
        poll(device, wait=wait, submission=submission)

    monkeypatch.setattr(Device, "poll", noted)
    return seen


def rows(*counts: int) -> list[Array]:
    random = np.random.default_rng(0)
    return [random.normal(size=(count, 7)).astype(np.float32) for count in counts]


def changed(array: Array) -> None:
    array[...] = np.ones((), array.dtype)


# Results ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_results(programs: Path, name: str) -> None:
    """As of calls, although the inputs change after the submission, and calls follow before the reading."""
    with pteron.load(programs / f"{name}.pte") as program:
        cases = [case for case in read_cases(programs / f"{name}.npz") if case.method == "forward"]
        method, pending = program["forward"], list[Pending[Any]]()
        for case in cases:
            given = [array.copy() for array in case.inputs]
            pending.append(method.submit(*given))
            for array in given:
                changed(array)
        for case, each in reversed([*zip(cases, pending, strict=True)]):
            assert_outputs(each.result(), case.outputs)
            assert each.result() is each.result()


@pytest.mark.parametrize("name", PROGRAMS)
def test_out(programs: Path, name: str) -> None:
    """Outputs are in the caller's arrays, and nowhere else; scalars have none."""
    with pteron.load(programs / f"{name}.pte") as program:
        method = program["forward"]
        for index, case in enumerate(each for each in read_cases(programs / f"{name}.npz")):
            pairs = zip(method.outputs, case.outputs, strict=True)
            out = [np.zeros_like(array) if spec.kind == "tensor" else None for spec, array in pairs]
            if index % 2:
                found = method(*case.inputs, out=out)
            else:
                pending = method.submit(*case.inputs, out=out)
                found = pending.result()
            for value, given in zip(found, out, strict=True):
                assert given is None or value is given
            assert_outputs(found, case.outputs)


def test_out_of_other_kinds(dynamic: Method) -> None:
    torch: Any = pytest.importorskip("torch")
    (x,) = rows(3)
    (expected,) = dynamic(x)
    tensor, wide = torch.zeros(3, 11), np.zeros((3, 22), np.float32)
    assert dynamic(x, out=[tensor])[0] is tensor
    np.testing.assert_array_equal(tensor.numpy(), expected)
    dynamic.submit(x, out=[wide[:, ::2]]).result()  # not contiguous
    np.testing.assert_array_equal(wide[:, ::2], expected)
    assert not wide[:, 1::2].any()
    (fresh,) = dynamic(x, out=(None,))
    np.testing.assert_array_equal(fresh, expected)


def test_out_that_does_not_fit(counting: Method) -> None:
    """The call does not run."""
    x = np.ones((3, 5), np.float32)
    (once,) = counting(x)
    read_only = np.zeros((3, 5), np.float32)
    read_only.flags.writeable = False
    for out, error, message in (
        ([], InputError, "out is 0 items, expected a list with an array or None for each of the 1 outputs"),
        (np.zeros((3, 5), np.float32), InputError, "out is a ndarray"),
        ([[0.0]], InputError, r"out 0: a list cannot be filled with f32\[3, 5\]"),
        ([np.zeros((3, 5))], DtypeError, "out 0: expected f32, got float64"),
        ([np.zeros((3, 4), np.float32)], ShapeError, r"out 0: expected f32\[3, 5\], got \[3, 4\]"),
        ([read_only], InputError, "out 0: the array is read-only"),
    ):
        for call in (counting, counting.submit):
            with pytest.raises(error, match=message):
                call(x, out=out)
    with pytest.raises(InputError, match="on the GPU"):
        counting(x, on_gpu=True, out=[np.zeros((3, 5), np.float32)])
    assert np.array_equal(counting(x)[0], once + 2)


def check_goes_on(method: Method, calls: list[list[Array]]) -> None:
    """A call whose `out` has another shape does not run, even if outputs of other sizes have that shape: what
    follows is as without it."""
    expected = [[np.array(output) for output in method(*call)] for call in calls]
    for start in (method, method.submit):
        method.reset()
        for call, outputs in zip(calls, expected, strict=True):
            wrong = [
                np.full(spec.shape_least if output.shape == spec.shape else spec.shape, 7, output.dtype)
                for spec, output in zip(method.outputs, outputs, strict=True)
            ]
            with pytest.raises(ShapeError, match=r"out \d: the output is .*, the array .*"):
                start(*call, out=wrong)
            assert all((out == 7).all() for out in wrong)
            assert_outputs(method(*call), outputs)


@pytest.mark.parametrize("name", ["mutable_buffer_written", "attention_cache", "two_delegates"])
def test_out_of_another_live_shape(programs: Path, name: str) -> None:
    cases = [case.inputs for case in read_cases(programs / f"{name}.npz")]
    with pteron.load(programs / f"{name}.pte") as program:
        check_goes_on(program["forward"], cases)


def test_out_of_another_live_shape_after_host_operators() -> None:
    """No plan has the shapes of all outputs: the states are kept."""
    torch: Any = pytest.importorskip("torch")

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sum", torch.ones(4))

        def forward(self, x: Any) -> Any:
            self.sum.add_(x[0])
            return torch.erf(x * self.sum)

    rows = torch.export.Dim("rows", min=1, max=8)
    options: Any = {"partitioner": "vulkan", "use_cache": False}  # leaves erf on the host
    inputs = [np.full((count, 4), 0.1, np.float32) for count in (3, 8, 5)]
    example = (torch.from_numpy(inputs[0]),)
    with pteron.compile(Module(), example, dynamic_shapes=({0: rows},), **options) as compiled:
        check_goes_on(compiled.program["forward"], [[x] for x in inputs])


# What waits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "two_delegates"])
def test_a_read_waits_for_its_own_submission(
    programs: Path, device: Device, name: str, waits: list[int | None]
) -> None:
    """Copies to the host are part of the call: reading submits nothing, and waits for no later call."""
    (case, *_) = read_cases(programs / f"{name}.npz")
    with pteron.load(programs / f"{name}.pte", device=device) as program:
        method = program["forward"]
        method(*case.inputs)
        before = device.submissions
        first = method.submit(*case.inputs)
        of_a_call = device.submissions - before
        pending = [method.submit(*case.inputs) for _ in range(2)]
        assert device.submissions == before + 3 * of_a_call
        waits.clear()
        first.result()
        own = [*waits]
        assert_outputs(pending[1].result(), case.outputs)
        last = [*waits][len(own) :]
        assert device.submissions == before + 3 * of_a_call
        assert None not in waits
        assert max((number for number in own if number), default=0) < max(number or 0 for number in last)


def test_calls_in_flight(dynamic: Method, waits: list[int | None]) -> None:
    """A further one waits for the oldest that is not read, and for none if all are read."""
    (x,) = rows(5)
    dynamic.submit(x).result()
    waits.clear()
    pending = [dynamic.submit(x) for _ in range(IN_FLIGHT)]
    assert not waits
    pending.append(dynamic.submit(x))
    assert len(waits) == 1
    pending[1].result()
    count = len(waits)
    pending.append(dynamic.submit(x))
    assert len(waits) == count, "one was read"
    for each in pending:
        each.result()
    count = len(waits)
    dynamic.submit(x)
    assert len(waits) == count


def test_a_tensor_is_fetched_before_later_calls(dynamic: Method, waits: list[int | None]) -> None:
    (x,) = rows(5)
    (kept,) = dynamic(x, on_gpu=True)
    later = kept.fetch()
    dynamic(x, on_gpu=True)
    waits.clear()
    np.testing.assert_array_equal(later.numpy(), dynamic(x)[0])
    assert None not in waits


# Order, states, errors --------------------------------------------------------------------------


def test_states_follow_the_order_of_submissions(counting: Method) -> None:
    x = np.ones((3, 5), np.float32)
    expected = [counting(x)[0] for _ in range(7)]
    counting.reset()
    pending = [counting.submit(x) for _ in range(6)]
    np.testing.assert_array_equal(counting(x)[0], expected[6])
    for each, answer in reversed([*zip(pending, expected, strict=False)]):
        np.testing.assert_array_equal(each.result()[0], answer)
    counting.submit(x)
    counting.reset()
    np.testing.assert_array_equal(counting(x)[0], expected[0])


def test_a_failed_submission(counting: Method) -> None:
    x = np.ones((3, 5), np.float32)
    (once,), (twice,) = counting(x), counting(x)
    counting.reset()
    first = counting.submit(x)
    with Failing(1, DeviceError("lost"), after=True, only="submit_locked"), pytest.raises(DeviceError):
        counting.submit(x)
    np.testing.assert_array_equal(first.result()[0], once)
    with pytest.raises(StateLost):
        counting.submit(x)
    counting.reset()
    pending = [counting.submit(x) for _ in range(2)]
    for step in ("begin", "fill"):
        with (
            Failing(1, DeviceError("no map"), after=False, only=step),
            pytest.raises(DeviceError, match="map"),
        ):
            pending[1].result()
    np.testing.assert_array_equal(pending[1].result()[0], twice)  # it can be read again


def test_closed_while_in_flight(programs: Path) -> None:
    (case, *_) = read_cases(programs / "mlp.npz")
    program = pteron.load(programs / "mlp.pte")
    read, unread = (program["forward"].submit(*case.inputs) for _ in range(2))
    assert_outputs(read.result(), case.outputs)
    program.close()
    assert_outputs(read.result(), case.outputs)
    with pytest.raises(DeviceError, match="the program is closed"):
        unread.result()


def test_device_closed_while_in_flight(programs: Path, device: Device) -> None:
    (case, *_) = read_cases(programs / "mlp.npz")
    own = Device(device.adapter)
    pending = pteron.load(programs / "mlp.pte", device=own)["forward"].submit(*case.inputs)
    own.close()
    with pytest.raises(DeviceError, match="closed"):
        pending.result()


def test_threads(dynamic: Method) -> None:
    """One thread submits, others read, in any order."""
    inputs = rows(*range(1, 18)) * 3
    expected = [dynamic(x)[0] for x in inputs]
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(dynamic.submit(x).result) for x in inputs]
        for each, answer in zip(found, expected, strict=True):
            np.testing.assert_array_equal(each.result(60)[0], answer)
        both = [pool.submit(lambda x=x: dynamic.submit(x).result()) for x in inputs]  # type: ignore[misc]
        for each, answer in zip(both, expected, strict=True):
            np.testing.assert_array_equal(each.result(60)[0], answer)


# Loops ------------------------------------------------------------------------------------------


def test_map(dynamic: Method) -> None:
    """In order, with batches taken two results ahead; tuples and names."""
    inputs, taken = rows(*range(1, 12)), list[int]()

    def batches() -> Iterator[Any]:
        for index, x in enumerate(inputs):
            taken.append(index)
            yield [x, (x,), {"input_0": x}][index % 3]

    found = dynamic.map(batches())
    assert not taken
    for index, x in enumerate(inputs):
        np.testing.assert_array_equal(next(found)[0], dynamic(x)[0])
        assert len(taken) == min(index + 3, len(inputs))
    assert next(found, None) is None
    assert list(dynamic.map([])) == []


def test_map_fills_the_same_arrays(dynamic: Method) -> None:
    inputs, out = rows(5, 5, 5, 5, 5), [np.zeros((5, 11), np.float32)]
    for x, found in zip(inputs, dynamic.map(inputs, out=out), strict=True):
        assert found[0] is out[0]
        np.testing.assert_array_equal(out[0], dynamic(x)[0])


def test_an_error_in_map_comes_after_the_results_before_it(dynamic: Method) -> None:
    inputs = rows(1, 2, 3, 4)
    for broken, error in ((np.zeros((3, 6), np.float32), ShapeError), (None, ZeroDivisionError)):
        results = dynamic.map(x if x is not None else 1 / 0 for x in [*inputs, broken])
        for x in inputs:
            np.testing.assert_array_equal(next(results)[0], dynamic(x)[0])
        with pytest.raises(error):
            next(results)


def test_a_map_that_is_closed(counting: Method, waits: list[int | None]) -> None:
    """Nothing is waited for; calls that were submitted have run."""
    x = np.ones((3, 5), np.float32)
    expected = [counting(x)[0] for _ in range(4)]
    counting.reset()
    results = counting.map(x for _ in range(100))
    next(results)
    waits.clear()
    results.close()  # type: ignore[attr-defined]  # it is a generator
    assert not waits
    np.testing.assert_array_equal(counting(x)[0], expected[3])


def test_awaited(dynamic: Method) -> None:
    inputs = rows(*range(1, 10))

    async def use() -> list[Any]:
        dropped = asyncio.create_task(dynamic.run_async(inputs[0]))
        await asyncio.sleep(0)
        dropped.cancel()
        pending = [dynamic.submit(x) for x in inputs]
        found = [await each for each in pending]
        mixed = await asyncio.gather(*(dynamic.run_async(x, out=None) for x in inputs))
        return [*found, *mixed]

    for x, (found,) in zip(inputs * 2, asyncio.run(use()), strict=True):
        np.testing.assert_array_equal(found, dynamic(x)[0])


def test_memory_is_level(dynamic: Method, device: Device) -> None:
    """Of calls that are read, filled, dropped, and in loops that end early."""

    def staged() -> int:
        from wgpu.backends.wgpu_native._helpers import generate_report

        gc.collect()
        device.wait()
        return int(generate_report()["hub"]["buffers"]["kept"])

    if device.library.name != "wgpu-native":
        pytest.skip("wgpu-native's report counts its own buffers alone")
    inputs, out = rows(9, 9, 9, 9), [np.zeros((9, 11), np.float32)]

    def use(turn: int) -> None:
        results = dynamic.map(inputs)
        next(results)
        del results
        kept = [dynamic.submit(x) for x in inputs]
        kept[turn % 4].result()
        dynamic.submit(inputs[0], out=out).result()
        device.upload(inputs[1])

    for turn in range(8):
        use(turn)
    before, buffers = staged(), device.buffer_bytes
    for turn in range(200 // 8):
        use(turn)
    assert staged() <= before + 2
    assert device.buffer_bytes == buffers


# Uploads ----------------------------------------------------------------------------------------


def test_an_uploaded_array(dynamic: Method, device: Device) -> None:
    (x,) = rows(5)
    uploaded = device.upload(x)
    expected, x[...] = dynamic(x)[0], 0
    before = dynamic.counters.bytes_uploaded
    for _ in range(2):
        np.testing.assert_array_equal(dynamic(uploaded)[0], expected)
    assert dynamic.counters.bytes_uploaded == before
    np.testing.assert_array_equal(dynamic.submit(uploaded).result()[0], expected)


@pytest.mark.parametrize(
    "dtype", [*filter(lambda dtype: dtype is not pteron.DType.BF16, pteron.DType)], ids=str
)
def test_uploads_of_every_type(device: Device, dtype: pteron.DType) -> None:
    for shape in ((3, 5), (), (0, 2), (7,)):
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype.numpy)
        found = device.upload(array)
        assert (found.dtype, found.shape) == (dtype, shape)
        np.testing.assert_array_equal(found.numpy(), array)


def test_uploads_of_other_kinds(device: Device) -> None:
    torch: Any = pytest.importorskip("torch")
    tensor = torch.randn(3, 5).T.bfloat16()
    assert torch.equal(device.upload(tensor).torch(), tensor)
    with pytest.raises(DtypeError, match="beyond 32 bits"):
        device.upload(np.array([1 << 40]))
    with pytest.raises(DtypeError, match="arrays of complex64 cannot be uploaded"):
        device.upload(np.zeros(3, np.complex64))
