"""LoRA adapters: logits are those of merged weights in float64, alone and in batches; wrong files are
errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from checkpoints import Golden
from lora_files import ADAPTERS, MODELS, LoraFiles, golden_logits, write_gguf_adapter

from pteron import load
from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.gpu import Command
from pteron.host.tensors import View
from pteron.llm import LLM
from pteron.llm.adapter_files import read_adapter
from pteron.llm.adapters import Adapters, linear_layers
from pteron.llm.architectures.config import Config
from pteron.llm.engine import Engine
from pteron.llm.engine.batched_model import BatchRow
from pteron.llm.engine.verifier import Verifier
from pteron.llm.export import export_llm
from pteron.llm.network.quantize import quantize_4_bits, quantize_8_bits, quantize_groups, round_to_nearest
from pteron.llm.request import Request, text_request
from pteron.names.model_files import ModelFolder
from pteron.runtime.outputs import Outputs

safetensors_numpy = pytest.importorskip("safetensors.numpy")
load_file, save_file = safetensors_numpy.load_file, safetensors_numpy.save_file
pytest.importorskip("tokenizers")

NAMES = (None, *(files.name for files in ADAPTERS))
FLOAT: dict[str, Any] = {"quantize": None, "embedding_bits": None, "max_seq_len": 16, "max_context_len": 64}


def exported(golden: Golden, folder: Path, **options: Any) -> Path:
    return export_llm(golden.write_folder(folder / "checkpoint"), folder / "model", **(FLOAT | options))


def adapter_folders(golden: Golden, folder: Path) -> dict[str, Path]:
    return {files.name: files.write_peft(golden, folder / files.name) for files in ADAPTERS}


def assert_close(found: npt.NDArray[Any], expected: npt.NDArray[Any], tolerance: float) -> None:
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def last_logits(llm: LLM, ids: list[int], name: str | None = None) -> npt.NDArray[np.float32]:
    """The logits after the last token: a chunk, then a step."""
    lease = llm.pool.lease(ids, name)
    try:
        lease.model.resume(ids[:1], lease.user)
        lease.model.prefill_as(ids[:-1], lease.user)
        return lease.model.prefill_as(ids[-1:], lease.user)
    finally:
        lease.close()


@pytest.mark.long(every=5)
@pytest.mark.parametrize("model", MODELS)
def test_logits_are_those_of_merged_weights(model: str, tmp_path: Path) -> None:
    golden = Golden.load(model)
    program = exported(golden, tmp_path, full_logits=True)
    expected = [golden.logits, *golden_logits(model)]
    with LLM(program, adapters=adapter_folders(golden, tmp_path)) as llm:
        for name, logits in zip(NAMES, expected, strict=True):
            for chunks in ([16, 16, 8], [1, 1, 7, 16, 7, 8]):
                llm.model.reset()
                llm.model.use_adapter(name)
                found, position = [], 0
                for count in chunks:
                    ids = golden.prompt[position : position + count]
                    (result,) = llm.model.method(np.array([ids]), np.array([position]))
                    found.append(np.asarray(result, np.float64)[0])
                    position += count
                assert_close(np.concatenate(found), logits, 1e-5)


def test_rows_of_a_batch_have_their_own_adapters(tmp_path: Path) -> None:
    golden = Golden.load("llama")
    with LLM(exported(golden, tmp_path), adapters=adapter_folders(golden, tmp_path), sequences=5) as llm:
        expected = [golden.logits, *golden_logits("llama")]
        leases = [llm.pool.lease(golden.prompt, NAMES[number]) for number in (2, 0, 3, 1)]
        batched = llm.pool.gather([lease.model for lease in leases])
        rows = []
        for lease in leases:
            lease.model.prefill_as(golden.prompt[:23], lease.user)
            slot = batched.slot_of(lease.model)
            assert slot is not None
            rows.append(BatchRow(slot, 23, golden.prompt[23]))
        for row, number in zip(batched.logits(rows), (2, 0, 3, 1), strict=True):
            assert_close(row, expected[number][23], 1e-5)
        assert_close(batched.logits(rows[2:3])[0], expected[3][23], 1e-5)


@pytest.mark.long(every=2)
@pytest.mark.parametrize(
    "model", ["llama", "phi3", "qwen3", "gemma3", "cohere", "glm", "gpt_neox", "hunyuan", "phi"]
)
def test_gguf_adapters_mean_the_same(model: str, tmp_path: Path) -> None:
    """For a model from a folder and, without further tests of its logits, from a GGUF file."""
    pytest.importorskip("gguf")
    golden, files = Golden.load(model), ADAPTERS[0]
    path = write_gguf_adapter(files, golden, tmp_path / "adapter.gguf")
    folder = files.write_peft(golden, tmp_path / "peft")
    gguf_model = export_llm(golden.write_gguf(tmp_path / "model.gguf"), tmp_path / "from_gguf", **FLOAT)
    for program in (exported(golden, tmp_path), gguf_model):
        (graph,) = load(program / "model.pte").graphs("forward")
        layers = linear_layers(graph)
        adapters = Adapters.read({"gguf": path, "peft": folder}, ModelFolder(program))
        both = [adapters._placed(adapter, layers) for adapter in adapters.adapters]
        assert both[0].keys() == both[1].keys()
        for place, matrices in both[0].items():
            for found, expected in zip(matrices, both[1][place], strict=True):
                np.testing.assert_allclose(found, expected, 1e-6, err_msg=place)


@pytest.mark.parametrize("source", ["folder", "gguf"])
def test_modules_of_multimodal_models(source: str, tmp_path: Path) -> None:
    """PEFT's names for Gemma 3 depend on the class that was trained."""
    golden, files = Golden.load("gemma3"), ADAPTERS[1]
    if source == "gguf":
        pytest.importorskip("gguf")
        program = export_llm(golden.write_gguf(tmp_path / "model.gguf"), tmp_path / "model", **FLOAT)
    else:
        program = exported(golden, tmp_path)
    folders = {"text": files.write_peft(golden, tmp_path / "text")}
    plain = load_file(folders["text"] / "adapter_model.safetensors")
    for name, prefix in (("new", "model.language_model."), ("old", "language_model.model.")):
        folders[name] = files.write_peft(golden, tmp_path / name)
        renamed = {
            key.replace("base_model.model.model.", f"base_model.model.{prefix}"): array
            for key, array in plain.items()
        }
        assert renamed.keys() != plain.keys()
        save_file(renamed, folders[name] / "adapter_model.safetensors")
    (graph,) = load(program / "model.pte").graphs("forward")
    layers, adapters = linear_layers(graph), Adapters.read(folders, ModelFolder(program))
    text, *others = (adapters._placed(adapter, layers) for adapter in adapters.adapters)
    assert len(text) == 7 * golden.config["num_hidden_layers"] + ("lm_head.weight" in golden.shapes)
    for other in others:
        assert other.keys() == text.keys()
        for place, matrices in other.items():
            for found, expected in zip(matrices, text[place], strict=True):
                np.testing.assert_array_equal(found, expected, err_msg=place)


def stored_values(array: npt.NDArray[np.float32], quantize: str) -> npt.NDArray[np.float64]:
    """What a quantised matrix holds."""
    if quantize == "8w":
        integers, scales = quantize_8_bits(array)
        return integers.astype(np.float64) * scales[:, None]
    if quantize == "8g":
        groups = quantize_groups(array, 16)
        return groups.integers.astype(np.float64) * groups.scales.repeat(16, 1)
    integers, scales = quantize_4_bits(array, 16, round_to_nearest)
    return integers.astype(np.float64) * scales.repeat(16, 1)


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    ("quantize", "tolerance"),
    [("8w", 2e-5), ("8g", 2e-5), ("4w", 1e-4), pytest.param("8da4w", 0.2, marks=pytest.mark.long)],
)
def test_quantised_models(quantize: str, tolerance: float, tmp_path: Path) -> None:
    """The last token's logits are those of a float model with the stored weights and the adapter in it. The
    output matrix has an adapter too."""
    golden, files = Golden.load("phi3"), ADAPTERS[1]
    program = exported(golden, tmp_path, quantize=quantize, group_size=16)
    folder = files.write_peft(golden, tmp_path / "adapter")
    added = files.merged(golden)
    tensors = {
        name: array
        if array.ndim < 2 or "embed" in name
        else np.float32(stored_values(array, quantize) + (added[name] - array))
        for name, array in golden.tensors().items()
    }
    save_file(tensors, golden.write_folder(tmp_path / "merged") / "model.safetensors")
    merged = export_llm(tmp_path / "merged", tmp_path / "merged_model", **FLOAT)
    with LLM(program, adapters={"x": folder}) as llm, LLM(merged) as expected:
        found = last_logits(llm, golden.prompt, "x")
        assert_close(found, last_logits(expected, golden.prompt), tolerance)


@pytest.mark.long
def test_with_a_chosen_context(tmp_path: Path) -> None:
    golden = Golden.load("llama")
    with LLM(exported(golden, tmp_path), adapters=adapter_folders(golden, tmp_path), context=48) as llm:
        assert llm.model.context == 48
        for name, expected in zip(NAMES, [golden.logits, *golden_logits("llama")], strict=True):
            assert_close(last_logits(llm, golden.prompt, name), expected[-1], 1e-5)


def test_half_precision(tmp_path: Path) -> None:
    golden = Golden.load("qwen3")
    program = exported(golden, tmp_path, force_fp16=True)
    with LLM(program, adapters=adapter_folders(golden, tmp_path)) as llm:
        for name, expected in zip(NAMES, [golden.logits, *golden_logits("qwen3")], strict=True):
            assert_close(last_logits(llm, golden.prompt, name), expected[-1], 0.03)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder, golden = tmp_path_factory.mktemp("llama"), Golden.load("llama")
    with LLM(exported(golden, folder), adapters=adapter_folders(golden, folder)) as llm:
        yield llm


def merged_tokens(llm: LLM, name: str | None, prompt: list[int], count: int) -> list[int]:
    return [piece.token for piece in llm.generate(prompt, max_new_tokens=count, adapter=name, stop_ids=[])]


@pytest.mark.long
def test_requests_of_different_adapters_run_together(llm: LLM) -> None:
    prompt = Golden.load("llama").prompt[:20]
    alone = {name: merged_tokens(llm, name, prompt, 12) for name in NAMES}
    assert len({tuple(tokens) for tokens in alone.values()}) == len(NAMES)
    wanted = [*NAMES, *reversed(NAMES)]
    requests = [text_request(llm, prompt, max_new_tokens=12, adapter=name, stop_ids=[]) for name in wanted]
    answers = [llm._submit(request) for request in requests]
    assert [[piece.token for piece in answer] for answer in answers] == [alone[name] for name in wanted]
    assert llm.pool.batched is not None  # they were a batch


def test_an_adapter_for_each_prompt(llm: LLM) -> None:
    prompt = Golden.load("llama").prompt[:20]
    wanted = [None, *NAMES]
    found = llm.generate_batch([prompt] * len(wanted), max_new_tokens=6, adapter=wanted, stop_ids=[])
    tokens = [[piece.token for piece in completion.pieces] for completion in found]
    assert tokens == [merged_tokens(llm, name, prompt, 6) for name in wanted]
    with pytest.raises(InputError, match="adapter is a list of 1 for 2 prompts; give one name, or one for"):
        llm.generate_batch([prompt, prompt], adapter=NAMES[:1])


def test_caches_of_other_adapters_are_not_reused(llm: LLM) -> None:
    llm.reset()
    prompt = Golden.load("llama").prompt[:30]
    for name, reused in ((None, 0), ("all", 0), ("one", 0), ("all", 29), (None, 29), ("one", 29)):
        merged_tokens(llm, name, prompt, 1)
        assert llm.statistics.reused_tokens == reused, name


def test_a_saved_cache_is_one_without_adapter(llm: LLM, tmp_path: Path) -> None:
    llm.reset()
    prompt = Golden.load("llama").prompt[:9]
    merged_tokens(llm, "all", prompt, 1)
    with pytest.raises(InputError, match="nothing"):
        llm.save(tmp_path / "cache")
    merged_tokens(llm, None, prompt, 1)
    merged_tokens(llm, "one", prompt, 1)
    assert llm.save(tmp_path / "cache") == 9
    expected = merged_tokens(llm, None, prompt, 4)
    llm.reset()
    assert llm.restore(tmp_path / "cache") == 9
    assert merged_tokens(llm, None, prompt, 4) == expected
    assert llm.statistics.reused_tokens == 8


def test_speculation_verifies_with_the_adapter(llm: LLM) -> None:
    golden, verifier = Golden.load("llama"), Verifier(llm.model)
    for name, logits in zip(NAMES, [golden.logits, *golden_logits("llama")], strict=True):
        lease, found = llm.pool.lease(golden.prompt[:10], name), list[View]()

        def keep(outputs: Outputs, found: list[View] = found) -> list[Command]:
            found.extend(each for each in outputs if isinstance(each, View))
            return []

        lease.model.resume(golden.prompt[:1], lease.user)
        lease.model.prefill_as(golden.prompt[:10], lease.user)
        with llm.model.device.lock:
            verifier.submit(lease.model, golden.prompt[10:15], keep)
            data = llm.model.device.read(found[0].buffer, found[0].nbytes)
        rows = np.frombuffer(data, np.float32).reshape(-1, llm.model.vocabulary)
        assert_close(rows[:5], logits[10:15], 1e-5)
        lease.close()
    verifier.close()


def test_unknown_adapters_are_errors(llm: LLM) -> None:
    with pytest.raises(InputError, match="unknown adapter 'sql': known are attention, all, one"):
        llm([1], adapter="sql")
    with Engine(llm) as engine, pytest.raises(InputError, match="unknown adapter"):
        engine.submit(Request((1,), adapter="sql"))


# Wrong files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"peft_type": "IA3"}, "peft_type 'IA3'"),
        ({"use_dora": True}, "use_dora True"),
        ({"bias": "all"}, "bias 'all'"),
        ({"lora_bias": True}, "lora_bias True"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa_niter_4' changes the model's own weights"),
    ],
)
def test_more_than_lora_is_refused(settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    folder = ADAPTERS[0].write_peft(Golden.load("llama"), tmp_path / "adapter", **settings)
    with pytest.raises(UnsupportedError, match=reason):
        read_adapter("x", folder)


@pytest.mark.parametrize(
    ("tensors", "error", "reason"),
    [
        (
            {"base_model.model.model.embed_tokens.lora_embedding_A": (2, 9)},
            UnsupportedError,
            "lora_embedding_A",
        ),
        ({"base_model.model.q.lora_magnitude_vector": (9,)}, UnsupportedError, "magnitude"),
        ({"base_model.model.q.lora_A.weight": (2, 9)}, FormatError, r"q: lora_a \[2, 9\]; needed"),
        ({"q.lora_A.weight": (2, 9), "q.lora_B.weight": (9, 3)}, FormatError, r"lora_b \[9, 3\]; needed"),
        ({"q.lora_A.weight": (0, 9), "q.lora_B.weight": (9, 0)}, FormatError, r"lora_a \[0, 9\].*; needed"),
        ({}, FormatError, "no matrices"),
    ],
)
def test_other_tensors_are_errors(
    tensors: dict[str, tuple[int, ...]], error: type[Exception], reason: str, tmp_path: Path
) -> None:
    folder = ADAPTERS[0].write_peft(Golden.load("llama"), tmp_path / "adapter")
    arrays = {name: np.zeros(shape, np.float32) for name, shape in tensors.items()}
    save_file(arrays, folder / "adapter_model.safetensors")
    with pytest.raises(error, match=reason):
        read_adapter("x", folder)


def test_adapters_without_names_are_errors() -> None:
    with pytest.raises(InputError, match=r"must be a dict of names and paths, as in .*, not 'lora1'"):
        LLM("stories15m", adapters="lora1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({"lora_alpha": float("nan")}, "nan"),
        ({"lora_alpha": 4e39}, r"1e\+39"),
        ({"alpha_pattern": {"q_proj": float("-inf")}}, "-inf"),
    ],
)
def test_factors_that_float32_does_not_have(settings: dict[str, Any], factor: str, tmp_path: Path) -> None:
    folder = ADAPTERS[0].write_peft(Golden.load("llama"), tmp_path / "adapter", **settings)
    with pytest.raises(FormatError, match=rf"adapter x, .*_proj: its factor \(alpha by rank\) is {factor}"):
        read_adapter("x", folder)


def test_gguf_adapters_without_a_finite_factor(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    files = replace(ADAPTERS[0], alpha=float("nan"))
    path = write_gguf_adapter(files, Golden.load("llama"), tmp_path / "adapter.gguf")
    with pytest.raises(
        FormatError, match=r"adapter x, blk\.0\.attn_\w+: its factor \(alpha by rank\) is nan"
    ):
        read_adapter("x", path)


def test_gguf_adapters_without_alpha_have_no_factor(tmp_path: Path) -> None:
    """As in llama.cpp."""
    pytest.importorskip("gguf")
    files = replace(ADAPTERS[0], alpha=0.0)
    adapter = read_adapter("x", write_gguf_adapter(files, Golden.load("llama"), tmp_path / "adapter.gguf"))
    assert {pair.scale for pair in adapter.modules.values()} == {1.0}


def test_other_files_are_errors(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    golden = Golden.load("llama")
    with pytest.raises(InputError, match="does not exist"):
        read_adapter("x", tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path, tmp_path / "text"):
        with pytest.raises(FormatError, match="nor a GGUF adapter"):
            read_adapter("x", path)
    with pytest.raises(FormatError, match=r"general\.type is None"):
        read_adapter("x", golden.write_gguf(tmp_path / "model.gguf"))
    folder = ADAPTERS[0].write_peft(golden, tmp_path / "adapter")
    safetensors_numpy.save_file({}, folder / "adapter_model.safetensors")
    with pytest.raises(FormatError, match="has no matrices"):
        read_adapter("x", folder)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(FormatError, match="safe_serialization=True"):
        read_adapter("x", folder)


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        (
            {"model.layers.0.self_attn.q_proj": ((4, 48), (32, 4))},
            r"q_proj: lora_a \[4, 48\] and lora_b \[32, 4\] change a matrix of 32 x 48, .* 32 x 32: ",
        ),
        (
            {"model.layers.9.self_attn.q_proj": ((4, 32), (32, 4))},
            "layers.9.self_attn.q_proj: this is no linear",
        ),
        ({"model.layers.0.input_layernorm": ((4, 32), (32, 4))}, "input_layernorm: this is no linear layer"),
        ({"vision.blocks.0": ((4, 32), (32, 4))}, "vision.blocks.0: the model's family has no such module"),
    ],
)
def test_adapters_of_other_models_are_errors(
    shapes: dict[str, tuple[tuple[int, ...], ...]], reason: str, llm: LLM, tmp_path: Path
) -> None:
    folder = ADAPTERS[0].write_peft(Golden.load("llama"), tmp_path / "adapter")
    tensors = {
        f"base_model.model.{module}.lora_{kind}.weight": np.zeros(shape, np.float32)
        for module, pair in shapes.items()
        for kind, shape in zip("AB", pair, strict=True)
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    adapters = Adapters([read_adapter("x", folder)], Config(model_type="llama"))
    with pytest.raises((FormatError, UnsupportedError), match=reason):
        adapters.add_to(*llm.program.graphs("forward"))


def test_fused_matrices_of_other_models_are_errors(tmp_path: Path) -> None:
    golden, other = Golden.load("phi3"), Golden.load("gpt2")
    program = exported(golden, tmp_path)
    folder = LoraFiles("x", "c_attn", 2, 1.0).write_peft(other, tmp_path / "adapter")
    with pytest.raises(UnsupportedError, match="the model's family has no such module"):
        LLM(program, adapters={"x": folder})
    arrays = {
        f"model.layers.0.self_attn.qkv_proj.lora_{kind}.weight": np.zeros(shape, np.float32)
        for kind, shape in (("A", (2, 32)), ("B", (96, 2)))
    }
    save_file(arrays, folder / "adapter_model.safetensors")
    with pytest.raises(
        FormatError, match=r"qkv_proj: lora_b has 96 rows, .*: a matrix of 96 rows, expected 64"
    ):
        LLM(program, adapters={"x": folder})


def test_programs_without_names_are_refused(models: Path, tmp_path: Path) -> None:
    golden = Golden.load("llama")
    folder = ADAPTERS[0].write_peft(golden, tmp_path / "adapter")
    with pytest.raises(UnsupportedError, match=r"pteron\.json does not describe the architecture"):
        Adapters.read({"x": folder}, ModelFolder(tmp_path))
    adapters = Adapters([read_adapter("x", folder)], Config(model_type="llama"))
    (graph,) = load(models / "tiny_llama_fp32.pte").graphs("forward")
    with pytest.raises(UnsupportedError, match="its weights have no names"):
        adapters.add_to(graph)


def test_matrices_that_are_stored_scaled_are_refused(tmp_path: Path) -> None:
    """Falcon-H1's multipliers, some of which are lists, are part of its weights."""
    golden = Golden.load("falcon_h1")
    folder = exported(golden, tmp_path)
    for module in ("gate_proj", "k_proj"):
        adapter = LoraFiles("one", rf"feed_forward\.{module}|self_attn\.{module}", 2, 4.0)
        path = adapter.write_peft(golden, tmp_path / module)
        with pytest.raises(UnsupportedError, match=f"{module}: this matrix is stored in another form"):
            LLM(folder, adapters={"one": path})


def test_experts_are_refused(tmp_path: Path) -> None:
    golden = Golden.load("mixtral")
    folder = LoraFiles("x", r"experts\.0\.w1", 2, 1.0).write_peft(golden, tmp_path / "adapter")
    with pytest.raises(UnsupportedError, match="w1: this is no linear layer"):
        LLM(exported(golden, tmp_path), adapters={"x": folder})


def test_without_adapters_nothing_changes(tmp_path: Path) -> None:
    golden = Golden.load("llama")
    program = exported(golden, tmp_path)
    manifest = json.loads((program / "pteron.json").read_text())
    assert manifest["config"]["model_type"] == "llama"
    with LLM(program) as llm, load(program / "model.pte") as plain:
        (graph,), (same,) = llm.program.graphs("forward"), plain.graphs("forward")
        assert [node.name for node in graph.nodes] == [node.name for node in same.nodes]
        assert llm.adapters == ()
        with pytest.raises(InputError, match="loaded without any"):
            llm([1], adapter="sql")
