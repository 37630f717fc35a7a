"""Programs that Pteron builds have the nodes, constants and kernels of those that ExecuTorch exports."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pteron.dtypes import DType
from pteron.format.delegate import read_delegate
from pteron.format.program import read_program
from pteron.format.program_writer import write_program
from pteron.format.records import DelegateGraph, VkSymInt, VkTensor, VkValueList
from pteron.format.stored_tensor import StoredTensor
from pteron.graph import build
from pteron.llm.architectures import FAMILIES
from pteron.llm.export.checkpoint import Checkpoint, Vocabulary, assemble
from pteron.llm.network.graph import GraphBuilder
from pteron.llm.network.options import Options
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled

MODELS = Path(__file__).parents[1] / "fixtures/models"
QUERY_NORMS = ["attention.q_norm_fn", "attention.k_norm_fn"]
LLAMA = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_interleaved": True,
}
QWEN3 = LLAMA | {
    "hidden_size": 128,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_interleaved": False,
}
FLOAT = Options(None, 32, None, 31, 64)


def graph_of(source: Path | bytes) -> DelegateGraph:
    program = read_program(source)
    return read_delegate(program.methods[0].delegates[0].blob, "delegate", program.named_data.get)


def built(checkpoint: Checkpoint, options: Options) -> bytes:
    program, file = checkpoint.program(options), io.BytesIO()
    write_program(file, program.methods, program.named_data)
    return file.getvalue()


def checkpoint_of(name: str, family: str, config: dict[str, Any]) -> Checkpoint:
    """The float32 weights in an exported program, which uses them in this order."""
    graph = graph_of(MODELS / f"{name}.pte")
    inner = QUERY_NORMS if family == "qwen3" else []
    layer = ["attention_norm", *(f"attention.w{kind}" for kind in "qkv"), *inner, "attention.wo", "ffn_norm"]
    layer += [f"feed_forward.w{kind}" for kind in (1, 3, 2)]
    places = ["tok_embeddings", *(f"layers.{index}.{kind}" for index in range(2) for kind in layer)]
    used = [
        graph.values[argument]
        for node in graph.nodes
        if node.name.startswith(("aten.embedding", "aten.linear", "et_vk.rms_norm"))
        for argument in node.args[:2]
    ]
    constants = [value for value in used if isinstance(value, VkTensor) and value.constant_id is not None]
    tensors = {
        f"{place}.weight": StoredTensor.of(array_of(graph, constant))
        for place, constant in zip([*places, "norm", "output"], constants, strict=True)
    }
    vocabulary = Vocabulary("", {}, bos_id=1, eos_ids=(2,))
    return assemble(name, config, FAMILIES[family], tensors, None, vocabulary)


def array_of(graph: DelegateGraph, tensor: VkTensor) -> np.ndarray[Any, Any]:
    assert tensor.constant_id is not None
    data = graph.constants[tensor.constant_id].data
    assert data is not None
    return np.frombuffer(data, tensor.dtype.numpy).reshape(tensor.dims)


def described(graph: DelegateGraph) -> Iterator[tuple[Any, ...]]:
    """Nodes with their arguments; tensors and live integers are numbered in the order of their use."""
    numbers: dict[int, int] = {}

    def describe(id: int) -> Any:
        value = graph.values[id]
        match value:
            case VkTensor(dtype, dims, constant, _):
                return dtype, dims, "constant" if constant is not None else number(id)
            case VkSymInt():
                return "live", number(id)
            case VkValueList(items):
                return tuple(map(describe, items))
        return value

    def number(id: int) -> int:
        return numbers.setdefault(id, len(numbers))

    for node in graph.nodes:
        yield node.name, *map(describe, node.args)


def constants_of(graph: DelegateGraph) -> Iterator[np.ndarray[Any, Any]]:
    for node in graph.nodes:
        for id in node.args:
            value = graph.values[id]
            if isinstance(value, VkTensor) and value.constant_id is not None:
                yield array_of(graph, value)


CASES = [
    ("tiny_llama_fp32", "tiny_llama_fp32", FLOAT),
    ("tiny_llama_fp32", "tiny_llama_q4", Options("4w", 32, None, 31, 64)),
    ("tiny_llama_fp32", "tiny_llama_q4_emb4", Options("4w", 32, 4, 31, 64)),
    ("tiny_llama_fp32", "tiny_llama_q4_fp16", Options("4w", 32, None, 31, 64, force_fp16=True)),
    ("tiny_llama_fp32", "tiny_llama_q4_full", Options("4w", 32, None, 31, 64, full_logits=True)),
    ("tiny_qwen3_fp32", "tiny_qwen3_fp32", FLOAT),
]


@pytest.mark.parametrize(("source", "name", "options"), CASES, ids=[case[1] for case in CASES])
def test_nodes_and_constants_are_the_exporters(source: str, name: str, options: Options) -> None:
    is_qwen = source == "tiny_qwen3_fp32"
    checkpoint = checkpoint_of(source, "qwen3" if is_qwen else "llama", QWEN3 if is_qwen else LLAMA)
    ours, theirs = graph_of(built(checkpoint, options)), graph_of(MODELS / f"{name}.pte")
    assert list(described(ours)) == list(described(theirs))
    for found, expected in zip(constants_of(ours), constants_of(theirs), strict=True):
        assert_alike(found, expected)


def assert_alike(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    """Equal up to rounding. Of two scales for which a group's error is nearly the same, another processor may
    choose the other, and weights between two integers follow."""
    assert found.shape == expected.shape
    if found.dtype.kind == "f":  # rotary tables, and sums of 32 products, may be rounded otherwise
        is_near = np.isclose(found, expected, rtol=2e-6, atol=2e-6 if found.itemsize == 4 else 1e-3)
        np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-3)
    else:
        is_near = found == expected
        nibbles = [np.stack([each & 15, each >> 4]).astype(int) for each in (found, expected)]
        assert np.abs(nibbles[0] - nibbles[1]).max() <= 1
    assert np.mean(~is_near) <= 5e-3


def test_methods_are_the_exporters() -> None:
    checkpoint = checkpoint_of("tiny_llama_fp32", "llama", LLAMA)
    ours = {method.name: method for method in read_program(built(checkpoint, FLOAT)).methods}
    for method in read_program(MODELS / "tiny_llama_fp32.pte").methods:
        found = ours[method.name]
        assert (found.values, found.inputs, found.outputs) == (method.values, method.inputs, method.outputs)
        assert (found.instructions, found.input_tree) == (method.instructions, method.input_tree)


def launched(graph: DelegateGraph, tokens: int, target: Target) -> list[str]:
    compiled = Compiled(prepare(build(graph)), target)
    sources = [source.symbol for source in compiled.prepared.sources]
    plan = compiled.plan(((1, tokens), (1,)), dict.fromkeys(sources, 5))
    return [launch.module.source for launch in plan.launches]


@pytest.mark.parametrize("is_cpu", [True, False])
def test_the_kernels_with_8_bit_activations_are_the_same(is_cpu: bool) -> None:
    """Here the exporter leaves out some views that change nothing, and orders nodes otherwise."""
    target = Target(is_cpu=is_cpu)
    ours = graph_of(
        built(checkpoint_of("tiny_llama_fp32", "llama", LLAMA), Options("8da4w", 32, None, 31, 64))
    )
    theirs = graph_of(MODELS / "tiny_llama_8da4w.pte")
    for tokens in (1, 7):
        assert sorted(launched(ours, tokens, target)) == sorted(launched(theirs, tokens, target))
    ours_4, theirs_4 = (
        [array for array in constants_of(graph) if array.dtype.kind in "iu" and array.size > 64]
        for graph in (ours, theirs)
    )
    assert len(ours_4) == len(theirs_4)
    for array in ours_4:
        others = [other for other in theirs_4 if other.shape == array.shape and other.dtype == array.dtype]
        assert min(np.mean(array != other) for other in others) <= 0.02  # sums of weights follow the weights


def test_activations_share_memory() -> None:
    """About as many bytes as in the exporter's plan, and no two tensors at the same time in one object."""
    checkpoint = checkpoint_of("tiny_llama_fp32", "llama", LLAMA)
    sizes = []
    for graph in (graph_of(built(checkpoint, FLOAT)), graph_of(MODELS / "tiny_llama_fp32.pte")):
        compiled = Compiled(prepare(build(graph)), Target())
        sizes.append(sum(compiled.executable.slots))
    assert sizes[0] <= 1.2 * sizes[1]


def test_dtypes_of_activations_are_those_of_the_options() -> None:
    checkpoint = checkpoint_of("tiny_llama_fp32", "llama", LLAMA)
    graph = checkpoint.program(Options(None, 32, None, 31, 64, force_fp16=True)).graph
    found = {value.dtype for value in graph.values if isinstance(value, VkTensor)}
    assert found == {DType.F16, DType.I32}


def test_types_of_scalars_are_kept() -> None:
    """Python's True, 1 and 1.0 are equal, but other runtimes refuse a scalar of another type."""
    builder = GraphBuilder()
    given = (1, True, 1.0, 0.0, False, 0, None, "1")
    x = builder.input(DType.F32, (2,))
    for scalar in given * 2:
        builder.call("test.call.default", x, scalar, out=(2,))
    graph = builder.finish("graph", ())
    stored = [graph.values[node.args[1]] for node in graph.nodes]
    assert [(type(value), value) for value in stored] == [(type(value), value) for value in given * 2]
    assert len({node.args[1] for node in graph.nodes}) == len(given)
