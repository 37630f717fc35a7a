"""Exporting language models: each family's logits are those of Hugging Face's own model."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checkpoints import Golden
from executorch_llama import eager_model, logits_of, parameters_of, weights_of
from families import FAMILIES, PROMPT, config, tensors, write_folder
from gguf_writer import write_gguf

from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.llm import load_tokenizer
from pteron.llm.export import Options, export_llm, read_checkpoint
from pteron.llm.export.checkpoint import Checkpoint

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")

GOLDENS = Path(__file__).parents[1] / "fixtures/llm/families.npz"
FLOAT = Options(quantize=None, embedding_bits=None, max_seq_len=32, max_context_len=64, full_logits=True)


def golden(family: str) -> Any:
    with np.load(GOLDENS) as file:
        return file[family]


def logits(checkpoint: Checkpoint) -> Any:
    """Logits of our PyTorch decoder, which shares no code with ExecuTorch's."""
    return logits_of(parameters_of(checkpoint), weights_of(checkpoint), PROMPT).numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_means_what_it_meant(family: str, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_folder(family, tmp_path))
    np.testing.assert_allclose(logits(checkpoint), golden(family), atol=2e-5)


@pytest.mark.export
@pytest.mark.parametrize("family", FAMILIES)
def test_the_exported_module_means_the_same(family: str, tmp_path: Path) -> None:
    import torch

    checkpoint = read_checkpoint(write_folder(family, tmp_path / "source"))
    with torch.no_grad():
        model = eager_model(checkpoint, FLOAT, tmp_path)
        logits = model(torch.tensor([PROMPT]), {"input_pos": torch.tensor([0])})[0].numpy()
    np.testing.assert_allclose(logits, golden(family), atol=2e-5)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_gguf_file_means_the_same(family: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    settings = config(family)
    settings["rope_parameters"] = {"rope_theta": settings["rope_theta"]}
    source = SimpleNamespace(config=settings, tensors=lambda: tensors(family))
    checkpoint = read_checkpoint(write_gguf(source, tmp_path / "model.gguf"))
    np.testing.assert_allclose(logits(checkpoint), golden(family), atol=2e-5)
    (tmp_path / "tokenizer.json").write_bytes(checkpoint.vocabulary.files["tokenizer.json"])
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("abba<|end|>", special=True) == [11, 2, 1, 0]
    assert checkpoint.vocabulary.eos_ids == (0,)


@pytest.mark.long
@pytest.mark.export
@pytest.mark.parametrize(
    ("family", "quantize"), [("llama3", "4w"), ("qwen3", "8da4w"), ("qwen2", "8w"), ("llama3", None)]
)
def test_an_exported_folder(family: str, quantize: str | None, tmp_path: Path) -> None:
    """The logits are those of ExecuTorch's own module, quantised by it."""
    import torch

    import pteron

    lines: list[str] = []
    source = write_folder(family, tmp_path / "source")
    bits = 4 if quantize else None
    folder = export_llm(
        source,
        tmp_path / "made",
        quantize=quantize,
        embedding_bits=bits,
        max_seq_len=32,
        max_context_len=64,
        progress=lines.append,
    )
    assert sorted(file.name for file in folder.iterdir()) == [
        "chat_template.jinja",
        "model.pte",
        "pteron.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    manifest = json.loads((folder / "pteron.json").read_text())
    assert (manifest["name"], manifest["eos_ids"], manifest["max_seq_len"]) == ("source", [0], 32)
    assert load_tokenizer(folder).eos_ids == (0,)
    assert re.fullmatch(r"\w+: \d+,\d+ parameters", lines[0])
    assert manifest["exporter"].startswith("pteron ")

    options = Options(quantize, 32, bits, max_seq_len=32, max_context_len=64)
    with torch.no_grad():
        model = eager_model(read_checkpoint(source), options, tmp_path)
        expected = model(torch.tensor([PROMPT]), {"input_pos": torch.tensor([0])}).numpy()
    if quantize is None:
        np.testing.assert_allclose(expected, golden(family)[-1:], atol=2e-5)
    with pteron.load(folder / "model.pte") as program:
        (logits,) = program["forward"](np.array([PROMPT]), np.array([0]))
    np.testing.assert_allclose(np.asarray(logits), expected, atol=1e-4)


def test_what_cannot_be_exported_is_refused_at_once(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_folder("qwen3", tmp_path))
    for options, sentence in [
        (replace(FLOAT, quantize="2w"), "quantize must be 4w, 8da4w, 8w, 8g or None"),
        (replace(FLOAT, rounding="upwards"), "rounding must be nearest, extremes, not 'upwards'"),
        (replace(FLOAT, rounding="extremes"), "rounding 'extremes' needs 4-bit weights"),
        (replace(FLOAT, quantize="8w", rounding="extremes"), "4w or 8da4w.*, not quantize 8w"),
        (replace(FLOAT, embedding_bits=2), "embedding_bits must be 4, 8 or None, not 2"),
        (replace(FLOAT, max_seq_len=100), "max_seq_len 100 must be"),
        (replace(FLOAT, max_seq_len=1), "max_seq_len 1 must be at least 2"),
        (
            replace(FLOAT, quantize="4w", group_size=64),
            "group_size 64 does not divide the columns of 2 weights",
        ),
    ]:
        with pytest.raises(InputError, match=sentence):
            checkpoint.program(options)


@pytest.mark.parametrize(
    ("group_size", "bits"),
    [(32, 4), (64, 4), (48, None)],  # of 64 columns; those of the MLP are 96
)
def test_only_the_embedding_has_groups_beside_weights_with_a_scale_per_row(
    group_size: int, bits: int | None, tmp_path: Path
) -> None:
    source = write_folder("llama", tmp_path / "source")
    options: dict[str, Any] = {"quantize": "8w", "group_size": group_size, "max_context_len": 64}
    out = export_llm(source, tmp_path / "out", **options)
    assert json.loads((out / "pteron.json").read_text())["embedding_bits"] == bits
    if bits is None:
        with pytest.raises(InputError, match=r"48 does not divide .* 1 weights, such as tok_embeddings"):
            export_llm(source, tmp_path / "out", embedding_bits=4, **options)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "bert"}, "model type 'bert'"),
        ({"hidden_act": "selu"}, "activation 'selu'"),
        ({"rope_scaling": {"rope_type": "other"}}, "scaled by 'other'"),
    ],
)
def test_unknown_models_are_named(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    write_folder("llama", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config("llama") | change))
    with pytest.raises(UnsupportedError, match=sentence):
        read_checkpoint(tmp_path).program(FLOAT)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no config\.json"):
        read_checkpoint(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        read_checkpoint(tmp_path / "missing")
    (tmp_path / "text.txt").write_text("text")
    with pytest.raises(InputError, match="neither a Hugging Face folder"):
        read_checkpoint(tmp_path / "text.txt")
    (tmp_path / "model.bin").write_bytes(bytes(100))
    with pytest.raises(FormatError, match=r"not a llama2\.c model"):
        read_checkpoint(tmp_path / "model.bin")


@pytest.mark.parametrize("name", ["model.gguf", "model.safetensors"])
def test_an_incomplete_file_is_refused(name: str, tmp_path: Path) -> None:
    golden, file = Golden.load("llama"), tmp_path / name
    source = golden.write_gguf(file) if name == "model.gguf" else golden.write_folder(tmp_path)
    whole = file.read_bytes()
    for size in (4, 7, 8, 30, 100, len(whole) // 2, len(whole) - 100):
        file.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=rf"^{re.escape(name)} is (damaged|incomplete)"):
            read_checkpoint(source)
    if name == "model.gguf":
        with pytest.raises(FormatError, match=r"model\.gguf is incomplete: tensor .*; download it again"):
            read_checkpoint(source)


def test_a_missing_tensor_has_the_name_of_the_file(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(Golden.load("llama").write_gguf(tmp_path / "model.gguf"))
    del checkpoint.tensors["layers.1.attention.wq.weight"]  # a rule reorders it
    with pytest.raises(FormatError, match=r"^model: the checkpoint has no tensor blk\.1\.attn_q\.weight$"):
        checkpoint.program(FLOAT)


def test_a_part_of_a_gguf_file_is_refused(tmp_path: Path) -> None:
    import gguf

    file = tmp_path / "model-00002-of-00003.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedError, match=r"of-00003\.gguf is one of 3 parts; join .*--merge"):
        read_checkpoint(file)


def test_an_incomplete_checkpoint_is_refused(tmp_path: Path) -> None:
    write_folder("llama", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config("llama") | {"num_hidden_layers": 3}))
    with pytest.raises(FormatError, match=r"has no tensor model\.layers\.2\.input_layernorm\.weight"):
        read_checkpoint(tmp_path).program(FLOAT)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(FormatError, match="its configuration lacks 'num_hidden_layers'"):
        read_checkpoint(tmp_path)
    write_folder("llama", tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(bytes(20))
    with pytest.raises(FormatError, match=r"model-00001-of-00002\.safetensors is damaged"):
        read_checkpoint(tmp_path)
