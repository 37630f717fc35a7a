"""Whole graphs of attention with options: prompts in chunks, steps, rows of a batch, fused or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pteron
from pteron import Device
from pteron.dtypes import DType
from pteron.graph import Constant, Graph, Tensor
from pteron.host.tensors import HostResult
from pteron.llm.cache.layout import Rows, of_graph
from pteron.ops import Target
from pteron.ops.operand import State
from pteron.passes.batched import batch
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session

PLAIN, OPTIONED, PREPACK = "sdpa_with_kv_cache.default", "pteron.attention.default", "et_vk.prepack.default"
TOKENS = np.random.default_rng(3).integers(0, 512, 29)
pytestmark = pytest.mark.kernels
UNCHANGED: Mapping[str, Any] = {}
WANTED = [Wanted(DType.F32, on_gpu=False)]


def constant(id: int, values: Any) -> Tensor:
    data = np.asarray(values, np.float32)
    return Tensor(
        id, DType.F32, data.shape, Constant(f"of {id}", DType.F32, data.shape, memoryview(data.tobytes()))
    )


def optioned(graph: Graph, dtype: DType = DType.F32, changes: Mapping[str, Any] = UNCHANGED) -> Graph:
    """The graph with options in every attention, some of them changed, and caches of an element type."""
    heads = next(node.args[0].shape_max[2] for node in graph.nodes if node.name == PLAIN)  # type: ignore[union-attr]
    options = {
        "scale": None,
        "window": 7,
        "softcap": 4.0,
        "sinks": constant(9001, np.linspace(-1, 2, heads)),
        "slopes": constant(9002, np.linspace(0, 0.5, heads)),
        **changes,
    }
    caches = _caches(graph, dtype)

    def now(value: Any) -> Any:
        return caches.get(value.id, value) if isinstance(value, Tensor) else value

    nodes = []
    for node in graph.nodes:
        args = tuple(map(now, node.args))
        if node.name == PLAIN:
            args = (*args[:6], *options.values(), None, args[-1])
        nodes.append(replace(node, name=OPTIONED if node.name == PLAIN else node.name, args=args))
    return replace(graph, nodes=tuple(nodes))


def _caches(graph: Graph, dtype: DType) -> dict[int, Tensor]:
    """The caches of the graph, and what they begin with, in another element type."""
    found = {value.id for node in graph.nodes if node.name == PLAIN for value in node.args[3:5]}  # type: ignore[union-attr]
    starts = [node.args for node in graph.nodes if node.name == PREPACK and node.args[-1].id in found]  # type: ignore[union-attr]
    tensors = [value for args in starts for value in (args[0], args[-1])]
    tensors += [value for node in graph.nodes if node.name == PLAIN for value in node.args[3:5]]

    def of_type(tensor: Any) -> Tensor:
        size = dtype.numpy.itemsize * int(np.prod(tensor.shape_max))
        old = tensor.constant
        new = old and replace(old, dtype=dtype, data=memoryview(bytes(size)))
        made: Tensor = replace(tensor, dtype=dtype, constant=new)
        return made

    return {tensor.id: of_type(tensor) for tensor in tensors if isinstance(tensor, Tensor)}


@dataclass
class Running:
    """A graph at work on one sequence."""

    graph: Graph
    device: Device
    target: Target

    def logits(self, chunks: list[int]) -> npt.NDArray[Any]:
        """Those after the last token of every chunk."""
        session = Session.of(self.graph, self.device, target=self.target)
        states, position, found = session.states(), 0, []
        for count in chunks:
            tokens = TOKENS[position : position + count].reshape(1, -1)
            (result,) = session.run([tokens, np.array([position])], WANTED, states)
            assert isinstance(result, HostResult)
            found.append(result.numpy().reshape(-1, 512)[-1])
            position += count
        states.close()
        session.close()
        return np.array(found)


def close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.fixture(scope="module")
def graph(models: Path) -> Graph:
    return pteron.load(models / "tiny_llama_fp32.pte").graphs("forward")[0]


def test_chunks_are_steps(graph: Graph, device: Device, target: Target) -> None:
    running = Running(optioned(graph), device, target)
    steps = running.logits([1] * len(TOKENS))
    for chunks in ([16, 13], [5, 1, 1, 9, 13], [7, 8, 14]):
        ends = np.cumsum(chunks) - 1
        close(running.logits(chunks), steps[ends])


def test_options_change_the_result(graph: Graph, device: Device, target: Target) -> None:
    """Each of them: none is dropped on the way."""
    chunks = [16, 1]
    every = Running(optioned(graph), device, target).logits(chunks)
    for name in ("window", "softcap", "sinks", "slopes"):
        other = Running(optioned(graph, changes={name: None}), device, target).logits(chunks)
        assert np.abs(other - every).max() > 1e-3 * np.abs(every).max()


def test_without_options_it_is_the_plain_operator(graph: Graph, device: Device, target: Target) -> None:
    chunks, none = [5, 1, 7], dict.fromkeys(("window", "softcap", "sinks", "slopes"))
    plain = Running(graph, device, target).logits(chunks)
    np.testing.assert_array_equal(
        Running(optioned(graph, changes=none), device, target).logits(chunks), plain
    )


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny_llama_q4", "tiny_llama_fp32", "tiny_qwen3_fp32", "tiny_llama_8da4w"])
def test_with_and_without_rewrites(
    name: str, models: Path, device: Device, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = optioned(pteron.load(models / f"{name}.pte").graphs("forward")[0])
    chunks = [9, 1, 1, 5]
    fused = Running(graph, device, target).logits(chunks)
    monkeypatch.setenv("PTERON_REWRITES", "none")
    close(fused, Running(graph, device, target).logits(chunks), 5e-2 if "8da4w" in name else 1e-4)


def test_caches_of_half_the_size(graph: Graph, device: Device, target: Target) -> None:
    chunks = [9, 1, 1, 5]
    expected = Running(optioned(graph), device, target).logits(chunks)
    close(Running(optioned(graph, DType.F16), device, target).logits(chunks), expected, 5e-3)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_rows_of_a_batch(dtype: DType, graph: Graph, device: Device, target: Target) -> None:
    """Sequences at different positions, in any order of slots, give what each gives alone."""
    single = optioned(graph, dtype)
    steps = Running(single, device, target).logits([1] * len(TOKENS))
    made = batch(single, 5)
    session = Session.of(made.graph, device, target=target)
    states = session.states()
    positions = np.zeros(5, np.int32)
    tolerance = 2e-5 if dtype is DType.F32 else 5e-3
    for round in range(12):
        rows = [[3, 0, 4], [0, 4], [3, 1, 0, 4]][round % 3]
        device.write(states[State(made.tokens)], TOKENS[positions].astype(np.int32))
        device.write(states[State(made.positions)], positions)
        slots = np.array(rows, np.int32)
        context = int(positions.max()) + 1
        (result,) = session.run([slots, context], WANTED, states)
        assert isinstance(result, HostResult)
        close(result.numpy(), steps[positions[slots]], tolerance)
        positions[slots] += 1
    states.close()
    session.close()


def test_a_cache_has_a_row_per_token(graph: Graph, device: Device) -> None:
    half = optioned(graph, DType.F16)
    for each in (graph, optioned(graph), half):
        session = Session.of(each, device)
        found = of_graph(each, session.executable, 64)
        assert found == {id: Rows(spec.bytes // 64) for id, spec in session.executable.states.items()}
        session.close()
