"""Memory and its owners: weights are a device's, states a sequence's, all else is shared."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from golden import assert_outputs, read_cases

import pteron
from pteron import Device
from pteron.dtypes import DType
from pteron.graph import Constant, Graph, Node, Tensor
from pteron.host.tensors import HostResult
from pteron.ops import Target
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session


def test_sequences_have_states_of_their_own(programs: Path) -> None:
    golden = np.load(programs / "mutable_buffer.npz")
    x = golden["case0_input0"]
    with pteron.load(programs / "mutable_buffer.pte") as program:
        first, second = program["forward"], program.sequence()["forward"]
        (once,) = first(x)
        (twice,) = first(x)
        assert not np.array_equal(once, twice)
        np.testing.assert_array_equal(second(x)[0], once)
        np.testing.assert_array_equal(second(x)[0], twice)
        first.reset()
        np.testing.assert_array_equal(first(x)[0], once)
        assert not np.array_equal(second(x)[0], twice)


@pytest.mark.parametrize("name", ["mutable_buffer_written", "streaming_encoder"])
def test_sequences_of_states_that_nodes_write(
    name: str, programs: Path, device: Device, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once, one a call behind the other, before and after a reset."""
    monkeypatch.setattr(device, "target", replace(device.target, is_cpu=target.is_cpu))
    cases = read_cases(programs / f"{name}.npz")
    assert len(cases) == 6
    with pteron.load(programs / f"{name}.pte", device=device) as program:
        first, second = program["forward"], program.sequence()["forward"]
        for _ in range(2):
            assert_outputs(first(*cases[0].inputs), cases[0].outputs)
            for behind, ahead in pairwise(cases):
                assert_outputs(first(*ahead.inputs), ahead.outputs)
                assert_outputs(second(*behind.inputs), behind.outputs)
            first.reset()
            second.reset()


def test_a_sequence_of_host_states(programs: Path) -> None:
    pytest.importorskip("torch")
    golden = np.load(programs / "mutable_buffer_host.npz")
    x = golden["case0_input0"]
    with pteron.load(programs / "mutable_buffer_host.pte") as program:
        first, second = program["forward"], program.sequence()["forward"]
        outputs = [first(x)[0] for _ in range(3)]
        for output in outputs:
            np.testing.assert_array_equal(second(x)[0], output)


def test_another_sequence_costs_its_states_alone(models: Path, device: Device) -> None:
    with pteron.load(models / "tiny_llama_q4.pte", device=device) as program:
        method = program["forward"]
        gc.collect()
        before = device.buffer_bytes
        sequence = program.sequence()
        again = sequence["forward"]
        assert sequence.state_bytes == method.gpu_bytes["states"] > 0
        assert device.buffer_bytes - before == sequence.state_bytes
        assert again.gpu_bytes == method.gpu_bytes
        sequence.close()
        assert device.buffer_bytes == before


def test_programs_and_methods_share_weights(models: Path, device: Device) -> None:
    gc.collect()
    path = models / "tiny_llama_fp32.pte"
    with pteron.load(path, device=device) as first:
        weights = first["forward"].gpu_bytes["weights"]
        before = device.buffer_bytes
        with pteron.load(path.read_bytes(), device=device) as second:  # other memory, the same content
            own = second["forward"].gpu_bytes
            assert own["weights"] == weights
            assert device.buffer_bytes - before < own["states"] + own["activations"] + own["scratch"] + 65536
        assert device.buffer_bytes == before
        ids, position = np.array([[5, 6, 7]]), np.array([0])
        golden = first["forward"](ids, position)[0]
    with pteron.load(path, device=device) as third:
        np.testing.assert_array_equal(third["forward"](ids, position)[0], golden)


def test_a_forgotten_program_frees_its_memory(models: Path, device: Device) -> None:
    gc.collect()
    before = device.buffer_bytes, len(device.uploads)
    program = pteron.load(models / "tiny_llama_q4.pte", device=device)
    program["forward"]
    program.sequence()["forward"]
    assert device.buffer_bytes > before[0]
    del program
    gc.collect()
    assert (device.buffer_bytes, len(device.uploads)) == before


def test_a_closed_program_frees_its_sequences(models: Path, device: Device) -> None:
    """Also those that somebody still has."""
    gc.collect()
    before = device.buffer_bytes
    program = pteron.load(models / "tiny_llama_q4.pte", device=device)
    sequence = program.sequence()
    assert sequence["forward"].gpu_bytes["states"] > 0
    program.close()
    assert device.buffer_bytes == before
    with pytest.raises(pteron.DeviceError, match="closed"):
        sequence["forward"]


def test_a_closed_sequence(programs: Path) -> None:
    program = pteron.load(programs / "mutable_buffer.pte")
    with program.sequence() as sequence:
        method = sequence["forward"]
    x = np.load(programs / "mutable_buffer.npz")["case0_input0"]
    with pytest.raises(pteron.DeviceError, match="closed"):
        method(x)
    with pytest.raises(pteron.DeviceError, match="the sequence is closed"):
        sequence["forward"]
    program["forward"](x)  # the program's own goes on
    open_one = program.sequence()["forward"]
    program.close()
    with pytest.raises(pteron.DeviceError, match="closed"):
        open_one(x)


@pytest.mark.parametrize(("bytes_alike", "uploads"), [(True, 1), (False, 2)])
def test_graphs_share_what_is_equal(device: Device, bytes_alike: bool, uploads: int) -> None:
    """Two methods with one weight cost it once; a key alone proves nothing."""
    gc.collect()
    before = len(device.uploads)
    first = np.arange(6, dtype=np.float32)
    second = first.copy() if bytes_alike else first + 1
    delegates = []
    for values in (first, second):
        constant = Constant("one key", DType.F32, (6,), memoryview(values.tobytes()))
        x, out = Tensor(0, DType.F32, (6,)), Tensor(2, DType.F32, (6,))
        weight = Tensor(1, DType.F32, (6,), constant)
        graph = Graph("method", (Node(0, "aten.mul.Tensor", (x, weight, out)),), (x,), (out,))
        delegates.append(Delegate(Session.of(graph, device)))
    assert len(device.uploads) - before == uploads
    for delegate, values in zip(delegates, (first, second), strict=True):
        (result,) = delegate.run([np.full(6, 2, np.float32)], [Wanted(DType.F32, on_gpu=False)])
        assert isinstance(result, HostResult)
        np.testing.assert_array_equal(result.numpy(), 2 * values)
