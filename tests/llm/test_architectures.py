"""Programs built from checkpoints of each architecture: their logits are those of Hugging Face's own models
in float64, whatever the lengths of calls."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from checkpoints import NAMES, Golden, loaded, logits, values
from gguf_writer import NOT_IN_GGUF
from test_batched import LENGTHS, alone, begin, end, poison

import pteron
from pteron.errors import FormatError, UnsupportedError
from pteron.format.gguf import read_header
from pteron.format.stored_tensor import StoredTensor
from pteron.graph import Graph
from pteron.llm import LanguageModel
from pteron.llm.architectures import FAMILIES
from pteron.llm.architectures.defaults import FILE, with_defaults
from pteron.llm.architectures.parts import Attention, Block, Decoder, RmsNorm
from pteron.llm.architectures.rotary import rotary_of
from pteron.llm.engine.batched_model import BatchedModel, BatchRow
from pteron.llm.export import export_llm, gguf_file, read_checkpoint
from pteron.llm.export.gguf_file import read_rope
from pteron.llm.network.options import Options
from pteron.llm.network.program import build_program
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime import Program
from pteron.tools.compare.float64 import float64
from pteron.tools.compare.steps import StepRecord, constants_of, integers_of, steps_of

safetensors_numpy = pytest.importorskip("safetensors.numpy")
pytest.importorskip("tokenizers")

FLOAT = Options(None, embedding_bits=None, max_seq_len=16, max_context_len=64, full_logits=True)
CHUNKS = [[16, 16, 8], [1, 1, 7, 16, 7, 8]]


def assert_close(found: npt.NDArray[Any], expected: npt.NDArray[Any], tolerance: float) -> None:
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def logits_in_float64(graph: Graph, ids: list[int]) -> npt.NDArray[Any]:
    """The logits of a prompt's first call, by the references of the graph's operators."""
    compiled = Compiled(prepare(graph), Target())
    prepared, shapes = compiled.prepared, ((1, len(ids)), (1,))
    values = {source.symbol: 0 for source in prepared.sources}
    walked, plan = compiled.walk(shapes, values), compiled.plan(shapes, values)
    constants, integers = constants_of(compiled), integers_of(walked, values)
    tokens, position = (value.id for value in prepared.graph.inputs)
    known: dict[int, Any] = {tokens: np.array([ids]), position: np.array([0])}
    for step in steps_of(prepared.graph, prepared.once, prepared.each, plan):
        read = {tensor.id for tensor in (*step.reads, *step.reads_besides)} & known.keys()
        before = {id: known[id] for id in read}
        known |= float64(
            StepRecord(prepared.graph, step, before, {}, (), constants, integers, walked.plain_shapes)
        )
    (out,) = prepared.graph.outputs
    return np.asarray(known[out.id][0])


def by_model_type() -> Iterator[Any]:
    """All names; those after the first of a model type are of the long tail."""
    seen = set[object]()
    for name in NAMES:
        kind = Golden.load(name).config.get("model_type")
        yield pytest.param(name, marks=[pytest.mark.long] if kind in seen else [])
        seen.add(kind)


@pytest.mark.parametrize("name", by_model_type())
def test_graphs_compute_what_hugging_face_computes(name: str, tmp_path: Path) -> None:
    """Every architecture, without the time that its kernels take to compile."""
    golden = Golden.load(name)
    read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT).write(tmp_path / "model.pte")
    (graph,) = pteron.load(tmp_path / "model.pte").graphs("forward")
    first = CHUNKS[0][0]
    assert_close(logits_in_float64(graph, golden.prompt[:first]), golden.logits[:first], 1e-5)


@pytest.mark.long(every=14)
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_hugging_face(name: str, tmp_path: Path) -> None:
    golden = Golden.load(name)
    checkpoint = read_checkpoint(golden.write_folder(tmp_path))
    with loaded(checkpoint, FLOAT, tmp_path) as program:
        for chunks in CHUNKS:
            assert_close(logits(program, golden.prompt, chunks), golden.logits, 1e-5)


@pytest.mark.long(every=8)
@pytest.mark.parametrize(
    "name",
    [
        *("qwen2_moe", "gpt_oss", "deepseek_v3"),  # experts
        *("lfm2", "qwen3_5", "mamba2", "falcon_h1", "granitehybrid_moe"),  # recurrent
    ],
)
def test_batches(name: str, tmp_path: Path) -> None:
    options = replace(FLOAT, full_logits=False)
    checkpoint = read_checkpoint(Golden.load(name).write_folder(tmp_path))
    with loaded(checkpoint, options, tmp_path) as program:
        model = LanguageModel(program)
        expected = alone(model, 4, 6)
        batched = BatchedModel(model, len(LENGTHS))
        poison(batched)
        sequences, rows = begin(batched, expected.prompts)
        try:
            for step in range(6):
                now = [
                    BatchRow(row.slot, row.position + step, tokens[step - 1] if step else row.token)
                    for row, tokens in zip(rows, expected.tokens, strict=True)
                ]
                for row, found in enumerate(batched.logits(now)):  # norms of small groups enlarge rounding
                    assert_close(found, expected.logits[row][step], 3e-5)
        finally:
            end(batched, sequences)


@pytest.mark.long(every=5)
@pytest.mark.parametrize("name", sorted(set(NAMES) - NOT_IN_GGUF))
def test_a_gguf_file_means_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    golden = Golden.load(name)
    found = read_checkpoint(golden.write_gguf(tmp_path / "model.gguf"))
    expected = read_checkpoint(golden.write_folder(tmp_path))
    for place in found.tensors.keys() & expected.tensors.keys():
        close = (found.tensors[place].read(), expected.tensors[place].read())
        np.testing.assert_allclose(*close, 1e-6, err_msg=place)
    # Programs that are the same need not run: most are, but for numbers that are rounded in another order.
    if found.program(FLOAT).graph != expected.program(FLOAT).graph:
        with loaded(found, FLOAT, tmp_path) as program:
            assert_close(logits(program, golden.prompt, CHUNKS[1]), golden.logits, 1e-5)


@pytest.mark.long(every=4)
@pytest.mark.parametrize(
    "name", ["falcon_40b", "gemma3", "glm4_moe", "gpt_neox", "llama_biases", "mixtral", "phi3", "qwen3"]
)
def test_types_of_gguf_files_are_read_exactly(name: str, tmp_path: Path) -> None:
    """`scripts/models --llm` compares logits of such files, and of types with longer blocks."""
    pytest.importorskip("gguf")
    golden = Golden.load(name)
    for kind in ("F16", "Q8_0", "Q4_0", "Q5_1", "IQ4_NL", "MXFP4"):
        found = read_checkpoint(golden.write_gguf(tmp_path / "model.gguf", kind))
        expected = read_checkpoint(golden.write_folder(tmp_path, kind))
        for place in found.tensors.keys() & expected.tensors.keys():
            close = (found.tensors[place].read(), expected.tensors[place].read())
            np.testing.assert_allclose(*close, 1e-6, err_msg=place)


@pytest.mark.long(every=3)
@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v2_lite", "deepseek_v3_same_mscale"])
def test_older_files_have_keys_and_values_in_one_matrix(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    golden = Golden.load(name)
    golden.config["merged_kv_b"] = True
    merged = read_checkpoint(golden.write_gguf(tmp_path / "model.gguf"))
    with loaded(merged, FLOAT, tmp_path) as program:
        assert_close(logits(program, golden.prompt, CHUNKS[1]), golden.logits, 1e-5)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("deepseek2.expert_gating_func", 3, "scoring_func is 'function 3'; only 'softmax' is supported"),
        ("llama4.attention.sliding_window", 0, "Llama 4 without attention in chunks"),
    ],
)
def test_settings_of_gguf_files_that_no_part_computes(
    key: str, value: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    golden = Golden.load("llama4" if key.startswith("llama4") else "deepseek_v2")
    file = golden.write_gguf(tmp_path / "model.gguf")
    header = read_header(file)
    changed = replace(header, fields=header.fields | {key: value})
    monkeypatch.setattr(gguf_file, "read_header", lambda _: changed)
    with pytest.raises(UnsupportedError, match=message):
        read_checkpoint(file)


@pytest.mark.parametrize(
    "setting",
    [
        {"hidden_activation": ["gelu"]},
        {"sliding_window": "8"},
        {"final_logit_softcapping": {"a": 1}},
        {"attn_logit_softcapping": ["a"]},
    ],
    ids=str,
)
def test_settings_of_wrong_types(setting: dict[str, Any], tmp_path: Path) -> None:
    golden = Golden.load("gemma2")
    golden.config.update(setting)
    with pytest.raises(FormatError, match=f"{tmp_path.name}: its configuration is invalid"):
        read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT)


@pytest.mark.long(every=4)
@pytest.mark.parametrize(
    ("quantize", "bits", "tolerance"), [("8w", None, 0.05), ("8w", 4, 0.5), ("4w", 4, 0.7), ("8da4w", 4, 0.7)]
)
def test_quantised_programs_are_near(
    quantize: str, bits: int | None, tolerance: float, tmp_path: Path
) -> None:
    golden = Golden.load("llama_biases")
    options = Options(quantize, 16, bits, max_seq_len=16, max_context_len=64, full_logits=True)
    with loaded(read_checkpoint(golden.write_folder(tmp_path)), options, tmp_path) as program:
        assert_close(logits(program, golden.prompt, CHUNKS[0]), golden.logits, tolerance)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("name", ["llama_biases", "mixtral"])
def test_q4_0_stays_exact(name: str, tmp_path: Path) -> None:
    """4-bit weights in groups of 32 have room for the values of this GGUF type."""
    pytest.importorskip("gguf")
    golden = Golden.load(name)
    checkpoint = read_checkpoint(golden.write_gguf(tmp_path / "model.gguf", "Q4_0"))
    with loaded(checkpoint, FLOAT, tmp_path) as program:
        expected = logits(program, golden.prompt, CHUNKS[0])
    options = replace(FLOAT, quantize="4w", group_size=32)
    with loaded(checkpoint, options, tmp_path) as program:
        assert_close(logits(program, golden.prompt, CHUNKS[0]), expected, 1e-5)


def test_half_precision(tmp_path: Path) -> None:
    golden = Golden.load("qwen3")
    options = Options(None, 32, None, 16, 64, force_fp16=True, full_logits=True)
    with loaded(read_checkpoint(golden.write_folder(tmp_path)), options, tmp_path) as program:
        assert_close(logits(program, golden.prompt, CHUNKS[0]), golden.logits, 0.02)


def test_half_precision_tensors(tmp_path: Path) -> None:
    """bf16 and f16 checkpoints are read as what they store."""
    golden = Golden.load("llama")
    folder = golden.write_folder(tmp_path)
    checkpoint = read_checkpoint(folder)
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        stored = {name: torch.from_numpy(array).to(dtype) for name, array in golden.tensors().items()}
        save_file(stored, folder / "model.safetensors")
        place = "layers.0.attention.wq.weight"
        expected = stored["model.layers.0.self_attn.q_proj.weight"].float().numpy()
        np.testing.assert_array_equal(read_checkpoint(folder).tensors[place].read(), expected)
        assert checkpoint.tensors[place].shape == expected.shape


def test_weights_that_a_family_does_not_use_are_refused(tmp_path: Path) -> None:
    golden = Golden.load("llama")
    golden.shapes["model.layers.0.self_attn.q_norm.weight"] = (8,)
    with pytest.raises(
        UnsupportedError, match=r"does not use here, the first is layers\.0\.attention\.q_norm"
    ):
        read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT)
    golden.shapes["model.layers.0.experts.weight"] = (8,)
    with pytest.raises(UnsupportedError, match=r"unknown tensor model\.layers\.0\.experts\.weight"):
        read_checkpoint(golden.write_folder(tmp_path))


def test_shapes_must_be_those_of_the_configuration(tmp_path: Path) -> None:
    golden = Golden.load("llama")
    golden.shapes["model.layers.1.self_attn.q_proj.weight"] = (64, 32)
    with pytest.raises(FormatError, match=r"wq\.weight is \[64, 32\], .* requires \[32, 32\]"):
        read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT)


def test_norms_of_heads_have_a_weight_for_each_head(tmp_path: Path) -> None:
    golden = Golden.load("cohere_norms")
    golden.shapes["model.layers.1.self_attn.q_norm.weight"] = (1, 8)
    with pytest.raises(FormatError, match=r"q_norm_fn is \[1, 8\], but the configuration requires \[4, 8\]"):
        read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT)


def test_a_window_below_the_context_needs_the_operator(tmp_path: Path) -> None:
    golden = Golden.load("mistral_window")
    checkpoint = read_checkpoint(golden.write_folder(tmp_path))
    graph = checkpoint.program(FLOAT).graph
    assert sum(node.name == "pteron.attention.default" for node in graph.nodes) == 3
    short = Options(None, embedding_bits=None, max_seq_len=4, max_context_len=8)
    program = checkpoint.program(short)
    assert not any(node.name.startswith("pteron.") for node in program.graph.nodes)
    assert program.methods[0].delegates[0].backend == "VulkanBackend"


def test_a_program_runs_without_a_file(tmp_path: Path) -> None:
    golden = Golden.load("llama_biases")
    made = read_checkpoint(golden.write_folder(tmp_path)).program(replace(FLOAT, max_context_len=44))
    with Program(made.records("golden"), {}, None) as program:
        assert_close(logits(program, golden.prompt, CHUNKS[0]), golden.logits, 1e-5)


def test_executorch_loads_it(tmp_path: Path) -> None:
    """Its runtime knows no such delegate, but reads the program and runs the constant methods."""
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    read_checkpoint(Golden.load("qwen2").write_folder(tmp_path)).program(FLOAT).write(tmp_path / "model.pte")
    program = runtime.load_program(tmp_path / "model.pte")
    assert {"forward", "get_vocab_size"} <= program.method_names
    assert list(program.load_method("get_vocab_size").execute([])) == [32]
    about = program.metadata("forward")
    assert [about.input_tensor_meta(index).sizes() for index in range(about.num_inputs())] == [(1, 16), (1,)]
    assert about.output_tensor_meta(0).sizes() == (1, 16, 32)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (FLOAT, ["tok_embeddings.weight"]),
        (Options("4w", 16), ["tok_embeddings.weight.4_bits"]),
        (Options("8w", 16), ["tok_embeddings.weight.4_bits", "output.weight.8_bits"]),
        (Options("8w", 16, None), ["tok_embeddings.weight", "output.weight.8_bits"]),
    ],
    ids=str,
)
def test_a_tied_table_is_stored_once(options: Options, expected: list[str], tmp_path: Path) -> None:
    checkpoint = read_checkpoint(Golden.load("llama").write_folder(tmp_path))
    data = checkpoint.program(options).named_data
    tables = [key for key in data if key.startswith(("tok_embeddings.weight", "output.weight"))]
    assert tables == expected


def test_memory_stays_small(tmp_path: Path) -> None:
    """A checkpoint of 134 MB becomes a program without ever being in memory as a whole."""
    rows = np.random.default_rng(0).standard_normal((1 << 14, 2048)).astype(np.float32)
    tensors = {"output.weight": rows, "tok_embeddings.weight": rows, "norm.weight": np.ones(2048, np.float32)}
    file = tmp_path / "model.pte"
    stored = {name: StoredTensor.of(array) for name, array in tensors.items()}
    for options in (Options("8w", embedding_bits=None), Options("4w", rounding="extremes")):
        decoder = Decoder((), RmsNorm(1e-5))
        program = build_program(decoder, stored, options, {})
        tracemalloc.start()
        program.write(file)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert file.stat().st_size > 1 << 24
        assert peak < 1 << 26


@pytest.mark.parametrize(
    ("name", "model_type", "prefix"),
    [
        ("gemma3", "gemma3", "language_model.model."),
        ("gemma3", "gemma3", "model.language_model."),
        ("llama4", "llama4", "language_model.model."),
        ("ministral3", "mistral3", "model.language_model."),
        ("qwen3_5", "qwen3_5", "model.language_model."),
    ],
)
def test_the_text_model_of_a_multimodal_checkpoint(
    name: str, model_type: str, prefix: str, tmp_path: Path
) -> None:
    """A model with images: its text model, whatever form the names have."""
    text = Golden.load(name)
    tied = text.config["tie_word_embeddings"]
    config = {"model_type": model_type, "text_config": text.config, "tie_word_embeddings": tied}
    replace(text, config=config).write_folder(tmp_path)
    outer = prefix.removesuffix("model.") if prefix.endswith(".model.") else ""
    stored = {
        prefix + name.removeprefix("model.") if name.startswith("model.") else outer + name: array
        for name, array in text.tensors().items()
    }
    others = {"llama4": "vision_model.class_embedding", "qwen3_5": "model.visual.patch_embed.weight"}
    stored[others.get(name, "vision_tower.patch_embedding.weight")] = np.zeros((2, 3), np.float32)
    safetensors_numpy.save_file(stored, tmp_path / "model.safetensors")
    found = read_checkpoint(tmp_path).program(FLOAT).graph
    expected = read_checkpoint(text.write_folder(tmp_path / "text")).program(FLOAT).graph
    assert found == expected


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layer"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        ("apertus", {"hidden_act": "silu"}, "hidden_act is 'silu'; only 'xielu' is supported"),
        ("phi", {"hidden_act": "mish"}, "activation 'mish'"),
        ("exaone4", {"sliding_window_pattern": "LLLG", "layer_types": None}, "'LLLG' without layer_types"),
        ("mpt", {"attn_config": {"prefix_lm": True}}, "prefix_lm is True"),
        ("llama", {"rope_scaling": {"type": "other"}, "rope_parameters": None}, "scaled by 'other'; known"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, but models of type llama"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
            "partial_rotary_factor is 0.5, but models of type llama",
        ),
    ],
)
def test_settings_that_no_part_computes_are_refused(
    name: str, setting: dict[str, Any], message: str, tmp_path: Path
) -> None:
    golden = Golden.load(name)
    golden.config.update(setting)
    with pytest.raises(UnsupportedError, match=message):
        read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT)


@pytest.mark.parametrize("name", ["llama_dynamic", "gpt2"])
def test_contexts_beyond_the_positions_are_refused(name: str, tmp_path: Path) -> None:
    """Dynamic NTK changes frequencies with the length beyond the trained one; learned positions end."""
    checkpoint = read_checkpoint(Golden.load(name).write_folder(tmp_path))
    checkpoint.program(replace(FLOAT, max_context_len=128))
    with pytest.raises(UnsupportedError, match="max_context_len must be at most 128"):
        checkpoint.program(replace(FLOAT, max_context_len=129))


def test_factors_of_attention_in_gguf_files() -> None:
    scaling = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    for usual in (1.1386, 1.0):
        assert read_rope(scaling | {"rope.scaling.attn_factor": usual}, {})["rope_type"] == "yarn"
    with pytest.raises(UnsupportedError, match=r"attn_factor is 0\.7; only 1 and 1\.1386 are supported"):
        read_rope(scaling | {"rope.scaling.attn_factor": 0.7}, {})


@pytest.mark.parametrize(
    ("values", "kind", "factor"),
    [
        ({}, "default", None),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, "default", 4.0),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, "linear", 4.0),
        ({"rope.scaling.factor": 4.0}, "linear", 4.0),
        ({"rope.scale_linear": 4.0}, "linear", 4.0),
    ],
)
def test_linear_scaling_in_gguf_files(values: dict[str, Any], kind: str, factor: float | None) -> None:
    """Without a type it is linear, as in llama.cpp; old files have another key."""
    found = read_rope(values, {})
    assert (found["rope_type"], found["factor"]) == (kind, factor)


@pytest.mark.parametrize(
    ("outer", "inner", "is_tied"),
    [
        ({}, {}, False),
        ({}, {"tie_word_embeddings": False}, False),
        ({}, {"tie_word_embeddings": True}, True),
        ({"tie_word_embeddings": True}, {"tie_word_embeddings": False}, True),
        ({"tie_word_embeddings": False}, {}, False),
    ],
)
def test_a_stored_output_matrix_is_used_unless_tables_are_tied(
    outer: dict[str, bool], inner: dict[str, bool], is_tied: bool, tmp_path: Path
) -> None:
    """As in Mistral Small 3.1: its configuration has no tie_word_embeddings, its file has lm_head."""
    text = Golden.load("ministral3")
    untied = {key: value for key, value in text.config.items() if key != "tie_word_embeddings"}
    config = {"model_type": "mistral3", "text_config": untied | inner, **outer}
    folder = replace(text, config=config).write_folder(tmp_path)
    stored = text.tensors()
    stored["lm_head.weight"] = values("lm_head.weight", stored["model.embed_tokens.weight"].shape)
    safetensors_numpy.save_file(stored, folder / "model.safetensors")
    placed = read_checkpoint(folder).tensors
    expected = stored["model.embed_tokens.weight" if is_tied else "lm_head.weight"]
    np.testing.assert_array_equal(placed["output.weight"].read(), expected)
    if "tie_word_embeddings" not in outer:  # what the text model says is a default only
        del stored["lm_head.weight"]
        safetensors_numpy.save_file(stored, folder / "model.safetensors")
        placed = read_checkpoint(folder).tensors
        assert placed["output.weight"] is placed["tok_embeddings.weight"]


@pytest.mark.parametrize(
    ("name", "missing"), [("qwen2", r"lm_head\.weight"), ("gpt_neox", r"embed_out\.weight")]
)
def test_untied_tables_need_an_output_matrix(name: str, missing: str, tmp_path: Path) -> None:
    golden = Golden.load(name)
    golden.config["tie_word_embeddings"] = False
    folder = golden.write_folder(tmp_path)
    stored = safetensors_numpy.load_file(folder / "model.safetensors")
    kept = {key: array for key, array in stored.items() if key not in ("lm_head.weight", "embed_out.weight")}
    safetensors_numpy.save_file(kept, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(FormatError, match=f"is false, but the checkpoint has no {missing}"):
        read_checkpoint(folder)
    del golden.config["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(golden.config))
    tensors = read_checkpoint(folder).tensors
    assert tensors["output.weight"] is tensors["tok_embeddings.weight"]


# Of Hugging Face's configuration classes.
DEFAULTS = [
    ("phi", "partial_rotary_factor", 0.5),
    ("stablelm", "partial_rotary_factor", 0.25),
    ("glm", "partial_rotary_factor", 0.5),
    ("glm4", "partial_rotary_factor", 0.5),
    ("nemotron", "partial_rotary_factor", 0.5),
    ("gpt_neox", "partial_rotary_factor", 0.25),
    ("qwen3_next", "partial_rotary_factor", 0.25),
    ("qwen3_5_text", "partial_rotary_factor", 0.25),
    ("bamba", "partial_rotary_factor", 0.5),
    ("mixtral", "rope_theta", 1e6),
    ("smollm3", "rope_theta", 2e6),
    ("ernie4_5", "rope_theta", 5e5),
    ("lfm2", "rope_theta", 1e6),
    ("cohere", "rope_theta", 5e5),
    ("gemma3_text", "rope_theta", 1e6),
    ("gemma3_text", "rope_local_base_freq", 1e4),
    ("llama", "rope_theta", 1e4),
    ("gemma2", "query_pre_attn_scalar", 256),
    ("mistral", "sliding_window", 4096),
    ("deepseek_v3", "routed_scaling_factor", 2.5),
    ("qwen2", "max_window_layers", 28),
    ("llama4_text", "use_qk_norm", True),
    ("gptj", "rotary_dim", 64),
]


@pytest.mark.parametrize(("model_type", "key", "value"), DEFAULTS)
def test_keys_left_out_have_the_defaults_of_the_family(model_type: str, key: str, value: object) -> None:
    assert with_defaults({"model_type": model_type})[key] == value
    assert with_defaults({"model_type": model_type, key: None})[key] is None
    own = FAMILIES[model_type].keys.get(key, key)
    stated = with_defaults({"model_type": model_type, own: 7})
    assert FAMILIES[model_type].normalized(stated)[key] == 7


def test_defaults_of_text_models() -> None:
    for text, window in (({}, 4096), ({"sliding_window": None}, None), ({"model_type": "ministral3"}, 0)):
        found = with_defaults({"model_type": "mistral3", "text_config": text})["text_config"]
        assert found.get("sliding_window", 0) == window
    assert found["rope_parameters"]["llama_4_scaling_beta"] == 0.1


def test_defaults_of_scaled_rotary_embeddings() -> None:
    """They are a whole: a file that states some parameters states all but theta."""
    default = {"model_type": "gpt_oss"}
    for rope in ({}, {"rope_scaling": None}, {"rope_parameters": None}):
        assert with_defaults(default | rope)["rope_parameters"]["rope_type"] == "yarn"
    for key in ("rope_scaling", "rope_parameters"):
        stated = with_defaults(default | {key: {"rope_type": "linear", "factor": 2.0}})
        rotary = rotary_of(stated, 8)
        assert rotary.theta == 150000
        assert rotary.frequencies[0] == 0.5


@pytest.mark.parametrize("place", ["partial_rotary_factor", "rope_parameters", "rope_scaling"])
def test_a_part_of_each_head_is_rotated_only_where_the_family_has_it(place: str) -> None:
    """Implementations differ in the others: some ignore the key."""

    def stated(kind: str, part: float) -> dict[str, Any]:
        given = part if place == "partial_rotary_factor" else {"partial_rotary_factor": part}
        return with_defaults({"model_type": kind, place: given})

    assert stated("llama", 1.0)["model_type"] == "llama"
    assert stated("glm", 0.25)["model_type"] == "glm"
    with pytest.raises(
        UnsupportedError, match=r"factor is 0\.5, but models of type llama rotate whole heads"
    ):
        stated("llama", 0.5)


def test_a_checkpoint_is_read_with_defaults(tmp_path: Path) -> None:
    golden = Golden.load("glm")
    del golden.config["rope_parameters"]
    block = read_checkpoint(golden.write_folder(tmp_path)).decoder.layers[0]
    assert isinstance(block, Block)
    assert isinstance(block.attention, Attention)
    assert block.attention.rotary is not None
    assert 4 * len(block.attention.rotary.frequencies) == block.attention.head_dim


def test_scalings_of_another_form(tmp_path: Path) -> None:
    golden = Golden.load("llama")
    golden.config.update(rope_parameters="linear")
    with pytest.raises(FormatError, match="its configuration is invalid"):
        read_checkpoint(golden.write_folder(tmp_path))


def test_defaults_are_those_of_transformers() -> None:
    pytest.importorskip("transformers")
    script = Path(__file__).parents[1] / "fixtures/llm/configuration_defaults.py"
    assert json.loads(FILE.read_text()) == runpy.run_path(str(script))["made"]()


@pytest.mark.parametrize(
    ("name", "key", "own"), [("bloom", "hidden_size", "n_embed"), ("gpt2", "num_hidden_layers", "n_layer")]
)
def test_names_of_keys_in_older_files(name: str, key: str, own: str) -> None:
    family, config = FAMILIES[name], {"model_type": name}
    for stated in ({own: 3}, {key: 3}, {key: 3, own: None}):
        assert family.normalized(config | stated)[key] == 3


SLIDING = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    ("model_type", "kinds", "windowed"),
    [
        ("qwen2", None, [2, 3]),
        ("qwen2", SLIDING, [1, 3]),
        ("qwen3", None, [2, 3]),
        ("qwen2_moe", None, [0]),
        ("qwen2_moe", SLIDING, [1, 3]),
        ("qwen3_moe", None, [0, 1, 2, 3]),
        ("qwen3_moe", SLIDING, [0, 1, 2, 3]),  # which its model ignores
        ("smollm3", None, [2]),  # the layer without positions
        ("smollm3", SLIDING, [1, 3]),
    ],
)
def test_which_layers_have_windows(model_type: str, kinds: list[str] | None, windowed: list[int]) -> None:
    """As in Hugging Face's models, which differ from family to family."""
    config = {"model_type": model_type, "hidden_size": 64, "num_hidden_layers": 4, "num_experts": 8}
    config |= {"max_window_layers": 2, "layer_types": kinds, "sliding_window": 8, "head_dim": 8}
    config |= {"no_rope_layers": [1, 1, 0, 1]} if model_type == "smollm3" else {}
    for is_on, expected in ((True, windowed), (False, [])):
        stated = with_defaults(config | {"use_sliding_window": is_on})
        family = FAMILIES[model_type]
        layers = family.decoder(family.normalized(stated)).layers
        attentions = [layer.attention for layer in layers if isinstance(layer, Block)]
        windows = [each.window for each in attentions if isinstance(each, Attention)]
        assert windows == [8 if index in expected else None for index in range(4)]


@pytest.mark.parametrize("name", ["gelu_fast", "gelu_pytorch_tanh"])
def test_names_of_the_approximation_by_tanh(name: str, tmp_path: Path) -> None:
    golden = Golden.load("gpt_neox")
    graphs = [
        read_checkpoint(
            replace(golden, config=golden.config | {"hidden_act": act}).write_folder(tmp_path / act)
        )
        .program(FLOAT)
        .graph
        for act in (name, "gelu_new", "gelu")
    ]
    assert graphs[0] == graphs[1] != graphs[2]


def test_masks_of_booleans_are_left_out(tmp_path: Path) -> None:
    golden = Golden.load("gpt2")
    folder = golden.write_folder(tmp_path)
    stored = safetensors_numpy.load_file(folder / "model.safetensors")
    name = next(name for name in stored if name.endswith("h.0.ln_1.weight"))
    stored[name.replace("ln_1.weight", "attn.bias")] = np.tril(np.ones((1, 1, 8, 8), np.bool_))
    safetensors_numpy.save_file(stored, folder / "model.safetensors", {"format": "pt"})
    with loaded(read_checkpoint(folder), FLOAT, tmp_path) as program:
        assert_close(logits(program, golden.prompt, CHUNKS[0]), golden.logits, 1e-5)


def test_a_model_without_positions_has_a_long_context(tmp_path: Path) -> None:
    assert read_checkpoint(Golden.load("mamba2").write_folder(tmp_path)).context_length > 4096


def test_a_short_context_shortens_calls(tmp_path: Path) -> None:
    folder = Golden.load("llama").write_folder(tmp_path / "source")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 48}))
    export_llm(folder, tmp_path / "made", quantize=None, embedding_bits=None)
    with pteron.llm.LLM(tmp_path / "made") as llm:
        assert (llm.model.context, llm.model.steps_max) == (48, 47)


@pytest.mark.long(every=6)
@pytest.mark.parametrize("name", ["cohere2", "gpt2", "ministral3", "olmo3", "phi3"])
def test_batches_draw_the_same_tokens(name: str, tmp_path: Path) -> None:
    golden = Golden.load(name)
    source = golden.write_folder(tmp_path / "source")
    sizes: dict[str, Any] = {"max_seq_len": 16, "max_context_len": 64}
    export_llm(source, tmp_path / "made", quantize=None, embedding_bits=None, **sizes)
    options: dict[str, Any] = {"max_new_tokens": 20, "stop_ids": (), "temperature": 0}
    prompts = [golden.prompt[:5], golden.prompt[3:20]]
    with pteron.llm.LLM(tmp_path / "made") as llm:
        alone = [[piece.token for piece in llm.generate(prompt, **options)] for prompt in prompts]
        together = llm.generate_batch(prompts, **options)
    assert [[piece.token for piece in each.pieces] for each in together] == alone


SCRIPT = """
import sys
from pteron.llm.export import export_llm
export_llm(sys.argv[1], sys.argv[2], quantize="8w", group_size=16, max_seq_len=16, max_context_len=64)
assert not {"torch", "executorch", "transformers"} & set(sys.modules), "PyTorch was imported"
"""


def test_an_export_imports_no_torch(tmp_path: Path) -> None:
    folder = Golden.load("llama").write_folder(tmp_path / "source")
    subprocess.run([sys.executable, "-c", SCRIPT, str(folder), str(tmp_path / "made")], check=True)
    with pteron.llm.LLM(tmp_path / "made") as llm:
        assert len(list(llm.generate([1, 2, 3], max_new_tokens=5, stop_ids=()))) == 5
