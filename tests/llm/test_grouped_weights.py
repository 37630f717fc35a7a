"""8-bit weights in groups: programs of GGUF files have the weights of the file, in every type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from checkpoints import Golden, loaded, logits, write_mxfp4
from executorch_llama import logits_of, parameters_of, weights_of

import pteron
from pteron.errors import InputError
from pteron.format.records import DelegateGraph, VkTensor
from pteron.llm.adapters import linear_layers
from pteron.llm.export import export_llm, read_checkpoint
from pteron.llm.network.options import Options
from pteron.llm.network.program import BuiltProgram
from pteron.passes import prepare

gguf = pytest.importorskip("gguf")
pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")

FLOAT = Options(None, embedding_bits=None, max_seq_len=16, max_context_len=64, full_logits=True)
GROUPS = replace(FLOAT, quantize="8g", embedding_bits=8)
CHUNKS = [[16, 16, 8], [1, 1, 7, 16, 7, 8]]
NAMES = ["llama", "qwen3", "gemma2", "phi3", "gpt_neox", "mixtral"]
SHORT = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4"]  # types with blocks of 32
LONG = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"]  # of 256
MIXED, WITH_FLOATS = "Q4_K+Q6_K", "Q4_K+Q6_K+F16"
FACTORS = {"linear_q8gsw": 1, "embedding_q8gsw": 0, "experts_q8gsw": 2}  # where their weights begin


def golden_of(name: str, kind: str) -> Golden:
    golden = Golden.load(name)
    return golden.wide() if "_K" in kind or "XS" in kind else golden


def matrices(built: BuiltProgram) -> dict[str, npt.NDArray[np.float32]]:
    """All weights in groups, by the key of their integers, in float32 as kernels compute them."""
    graph, found = built.graph, {}
    for node in graph.nodes:
        kind = node.name.split(".")[1]
        if kind in FACTORS:
            weights, scales, minima, group = node.args[FACTORS[kind] : FACTORS[kind] + 4]
            size = graph.values[group]
            assert isinstance(size, int)
            key, integers = constant(built, graph, weights)
            matrix = integers * np.repeat(constant(built, graph, scales)[1].T, size, 1)
            if graph.values[minima] is not None:
                matrix = matrix + np.repeat(constant(built, graph, minima)[1].T, size, 1)
            found[key] = matrix
    return found


def constant(built: BuiltProgram, graph: DelegateGraph, id: int) -> tuple[str, npt.NDArray[Any]]:
    value = graph.values[id]
    assert isinstance(value, VkTensor)
    assert value.constant_id is not None
    key = graph.constants[value.constant_id].key
    assert key is not None
    data = built.named_data[key].read()
    return key, np.frombuffer(data, value.dtype.numpy).reshape(value.dims)


def check_weights(golden: Golden, kind: str, folder: Path) -> None:
    """Beside what the `gguf` package dequantises, as a checkpoint of floats."""
    checkpoint = read_checkpoint(golden.write_gguf(folder / "model.gguf", kind))
    expected = read_checkpoint(golden.write_folder(folder / "folder", kind)).program(FLOAT).named_data
    found = matrices(checkpoint.program(GROUPS))
    assert len(found) >= 3 * len(checkpoint.decoder.layers)
    for key, matrix in found.items():
        wanted = np.frombuffer(expected[key.removesuffix(".in_groups")].read(), np.float32)
        np.testing.assert_allclose(matrix, wanted.reshape(matrix.shape), 2**-23, err_msg=f"{kind} {key}")


@pytest.mark.long(every=8)
@pytest.mark.parametrize("name", [*NAMES, "falcon_40b", "gemma3", "granitemoe", "llama_biases", "qwen3_moe"])
def test_weights_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    """Also after rows of heads are permuted, matrices split and those of experts stacked."""
    for kind in SHORT:
        check_weights(Golden.load(name), kind, tmp_path)


@pytest.mark.long(every=6)
@pytest.mark.parametrize("kind", [*LONG, MIXED])
@pytest.mark.parametrize("name", ["llama", "mixtral", "phi3"])
def test_weights_of_long_blocks(name: str, kind: str, tmp_path: Path) -> None:
    check_weights(golden_of(name, kind), kind, tmp_path)


def check_logits(name: str, kind: str, folder: Path, options: Options = GROUPS) -> None:
    """Beside the program of floats, which `scripts/models --llm` compares with float64."""
    golden = golden_of(name, kind)
    checkpoint = read_checkpoint(golden.write_gguf(folder / "model.gguf", kind))
    with loaded(checkpoint, FLOAT, folder) as program:
        expected = logits(program, golden.prompt, CHUNKS[0])
    with loaded(checkpoint, options, folder) as program:
        for chunks in CHUNKS:
            found = logits(program, golden.prompt, chunks)
            assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.long(every=30)
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "Q5_0", "IQ4_NL", "MXFP4"])
@pytest.mark.parametrize("name", NAMES)
def test_logits(name: str, kind: str, tmp_path: Path) -> None:
    check_logits(name, kind, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", [*LONG, MIXED])
@pytest.mark.parametrize("name", ["gpt_neox", "mixtral"])
def test_logits_of_long_blocks(name: str, kind: str, tmp_path: Path) -> None:
    check_logits(name, kind, tmp_path)


@pytest.mark.long(every=9)
@pytest.mark.parametrize("kind", ["Q5_1", *LONG, MIXED])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_logits_in_float64(name: str, kind: str, tmp_path: Path) -> None:
    """Beside the dequantised weights in PyTorch; both checkpoints share the table with the output matrix."""
    pytest.importorskip("torch")
    golden = golden_of(name, kind)
    plain = read_checkpoint(golden.write_folder(tmp_path / "folder", kind))
    weights = {place: tensor.double() for place, tensor in weights_of(plain).items()}
    expected = logits_of(parameters_of(plain), weights, golden.prompt).numpy()
    checkpoint = read_checkpoint(golden.write_gguf(tmp_path / "model.gguf", kind))
    with loaded(checkpoint, GROUPS, tmp_path) as program:
        for chunks in CHUNKS:
            found = logits(program, golden.prompt, chunks)
            assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_shared_table_is_stored_once(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(Golden.load("llama").write_gguf(tmp_path / "model.gguf", "Q4_1"))
    tables = [key for key in checkpoint.program(GROUPS).named_data if key.startswith(("tok_emb", "output"))]
    assert [key.rpartition(".")[2] for key in tables] == ["in_groups", "group_scales", "group_minima"]


def rounding_bound(weights: npt.NDArray[np.float32], group: int) -> npt.NDArray[np.float32]:
    """The largest error of each weight: half a step, where a group's largest weight is 127 steps."""
    largest = np.abs(weights.reshape(len(weights), -1, group)).max(-1).repeat(group, 1)
    return np.asarray(largest * (1 + 1e-5) / 254)


def test_floats_beside_blocks_are_rounded(tmp_path: Path) -> None:
    golden = Golden.load("llama").wide()
    checkpoint = read_checkpoint(golden.write_gguf(tmp_path / "model.gguf", WITH_FLOATS))
    found = matrices(checkpoint.program(GROUPS))
    assert len(found) == 7 * len(checkpoint.decoder.layers) + 1
    for key, matrix in found.items():
        wanted = checkpoint.tensors[key.removesuffix(".in_groups")].read()
        error = np.abs(matrix - wanted)
        if ".wo." in key:
            assert error.max() > 1e-4
            assert (error <= rounding_bound(wanted, 32)).all()
        else:
            np.testing.assert_allclose(matrix, wanted, 2**-23)


def test_queries_keys_and_values_have_groups_alike(tmp_path: Path) -> None:
    """In a file whose values have another type, so that one operator can compute all three."""
    golden = Golden.load("llama").wide()
    checkpoint = read_checkpoint(golden.write_gguf(tmp_path / "model.gguf", MIXED))
    kinds = [checkpoint.tensors[f"layers.0.attention.{kind}.weight"].groups for kind in ("wq", "wk", "wv")]
    assert len({(kind.size, kind.has_minima) for kind in kinds if kind}) == 2
    with loaded(checkpoint, GROUPS, tmp_path) as program:
        names = [call.operator.name for call in prepare(graph_of(program)).each]
    assert names.count("pteron.attention_q4") == len(checkpoint.decoder.layers)


def test_floats_without_whole_groups_stay_floats(tmp_path: Path) -> None:
    """Beside integers: 12 columns of each head, in a file of blocks of 32."""
    checkpoint = read_checkpoint(Golden.load("gemma").write_gguf(tmp_path / "model.gguf", "Q8_0"))
    names = [node.name for node in checkpoint.program(GROUPS).graph.nodes]
    layers = len(checkpoint.decoder.layers)
    assert names.count("aten.linear.default") == layers  # attention.wo of 48 columns
    assert names.count("pteron.linear_q8gsw.default") == 6 * layers + 1


@pytest.mark.long(every=3)
@pytest.mark.parametrize("kind", ["F32", "F16", "folder"])
def test_floats_are_rounded(kind: str, tmp_path: Path) -> None:
    """To 127 steps of the largest weight of each group: the error is half a step."""
    golden = Golden.load("llama_biases")
    folder = golden.write_folder(tmp_path / "folder")
    source = folder if kind == "folder" else golden.write_gguf(tmp_path / "model.gguf", kind)
    checkpoint = read_checkpoint(source)
    for key, matrix in matrices(checkpoint.program(replace(GROUPS, group_size=16))).items():
        wanted = checkpoint.tensors[key.removesuffix(".in_groups")].read()
        assert (np.abs(matrix - wanted) <= rounding_bound(wanted, 16)).all()
    with loaded(checkpoint, GROUPS, tmp_path) as program:
        found = logits(program, golden.prompt, CHUNKS[1])
    assert np.abs(found - golden.logits).max() <= 0.1 * np.abs(golden.logits).max()


def test_adapters_find_all_layers(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(Golden.load("llama").write_gguf(tmp_path / "model.gguf", "Q4_1"))
    places = []
    for options in (FLOAT, GROUPS):
        with loaded(checkpoint, options, tmp_path) as program:
            places.append({place: len(nodes) for place, nodes in linear_layers(graph_of(program)).items()})
    assert places[0] == places[1]


def graph_of(program: Any) -> Any:
    (graph,) = program.graphs("forward")
    return graph


@pytest.mark.long(every=2)
@pytest.mark.parametrize(("name", "kind"), [("llama", "Q4_1"), ("mixtral", "Q8_0")])
def test_batches_draw_the_same_tokens(name: str, kind: str, tmp_path: Path) -> None:
    golden = Golden.load(name)
    source = golden.write_gguf(tmp_path / "model.gguf", kind)
    export_llm(source, tmp_path / "made", max_seq_len=16, max_context_len=64)
    options: dict[str, Any] = {"max_new_tokens": 20, "stop_ids": (), "temperature": 0}
    prompts = [golden.prompt[:5], golden.prompt[3:20]]
    with pteron.llm.LLM(tmp_path / "made") as llm:
        alone = [[piece.token for piece in llm.generate(prompt, **options)] for prompt in prompts]
        together = llm.generate_batch(prompts, **options)
    assert [[piece.token for piece in each.pieces] for each in together] == alone


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("Q4_1", {}, ("8g", 8)),
        ("Q4_1", {"quantize": "4w"}, ("4w", 4)),
        ("Q4_1", {"embedding_bits": None}, ("8g", None)),
        ("F16", {}, ("4w", 4)),
        ("F16", {"quantize_floats": "8w"}, ("8w", 4)),
        ("F32", {"quantize": "8g"}, ("8g", 8)),
    ],
)
def test_defaults(
    kind: str, options: Mapping[str, Any], expected: tuple[str, int | None], tmp_path: Path
) -> None:
    source = Golden.load("llama").write_gguf(tmp_path / "model.gguf", kind)
    export_llm(source, tmp_path / "made", max_seq_len=16, max_context_len=64, **options)
    manifest = json.loads((tmp_path / "made" / "pteron.json").read_text())
    assert (manifest["quantize"], manifest["embedding_bits"]) == expected


def test_mxfp4_of_folders(tmp_path: Path) -> None:
    """The experts of gpt-oss are exact, all other matrices are rounded."""
    source = write_mxfp4(Golden.load("gpt_oss"), tmp_path / "source")[0]
    checkpoint = read_checkpoint(source)
    for key, matrix in matrices(checkpoint.program(GROUPS)).items():
        wanted = checkpoint.tensors[key.removesuffix(".in_groups")].read()
        if ".experts." in key:
            np.testing.assert_array_equal(matrix, wanted)
        else:
            assert (np.abs(matrix - wanted) <= rounding_bound(wanted, 32)).all()
    export_llm(source, tmp_path / "made", max_seq_len=16, max_context_len=64)
    assert json.loads((tmp_path / "made" / "pteron.json").read_text())["quantize"] == "8g"


def test_refusals(tmp_path: Path) -> None:
    source = Golden.load("llama").write_folder(tmp_path / "source")
    with pytest.raises(InputError, match="a multiple of 8, not 12"):
        read_checkpoint(source).program(replace(GROUPS, group_size=12))
    with pytest.raises(InputError, match="group_size 24 does not divide"):
        read_checkpoint(source).program(replace(GROUPS, group_size=24))
