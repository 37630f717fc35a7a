"""Models with mixers of Mamba-2: one without any attention, GGUF files, quantised programs, what is refused.
Logits of float programs are compared in test_architectures.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkpoints import Golden, loaded, logits
from test_architectures import CHUNKS, FLOAT, assert_close
from test_expert_models import rounded
from test_recurrent_models import GREEDY, SIZES, tokens

from pteron.errors import FormatError, UnsupportedError
from pteron.format.stored_tensor import StoredTensor
from pteron.llm import LLM
from pteron.llm.engine.batched_model import BatchedModel
from pteron.llm.export import export_llm, read_checkpoint
from pteron.llm.network.options import Options

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")


def test_a_model_without_a_kv_cache(tmp_path: Path) -> None:
    golden = Golden.load("mamba2")
    source = golden.write_folder(tmp_path / "source")
    export_llm(source, tmp_path / "made", quantize=None, embedding_bits=None, **SIZES)
    prompts = [golden.prompt[:5], golden.prompt[3:20], golden.prompt[:21]]
    with LLM(tmp_path / "made") as llm:
        expected = [tokens(llm, prompt, 12) for prompt in prompts]
        assert BatchedModel.reason(llm.model) is None
        found = llm.generate_batch(prompts, max_new_tokens=12, **GREEDY)
        assert [[piece.token for piece in each.pieces] for each in found] == expected
        model = llm.model
        model.reset()
        alone = model.prefill(prompts[1])
        model.reset()
        for token in prompts[1]:
            stepped = model.decode_one_token(token)
        assert_close(stepped, alone, 1e-5)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("name", ["falcon_h1", "falcon_h1_norm"])
def test_multipliers_in_a_gguf_file(name: str, tmp_path: Path) -> None:
    """They are in its weights, those of embeddings and logits too."""
    pytest.importorskip("gguf")
    golden = Golden.load(name)
    checkpoint = read_checkpoint(golden.write_gguf(tmp_path / "model.gguf"))
    assert checkpoint.decoder.embedding_scale == checkpoint.decoder.logit_scale == 1
    with loaded(checkpoint, FLOAT, tmp_path) as program:
        assert_close(logits(program, golden.prompt, CHUNKS[1]), golden.logits, 1e-5)


@pytest.mark.long(every=3)
@pytest.mark.parametrize(("name", "quantize"), [("mamba2", "8w"), ("mamba2", "4w"), ("falcon_h1", "4w")])
def test_quantised_programs(name: str, quantize: str, tmp_path: Path) -> None:
    """They compute the same as float programs of the rounded weights; convolutions stay floats."""
    golden = Golden.load(name)
    checkpoint = read_checkpoint(golden.write_folder(tmp_path))
    options = Options(quantize, 8, None, max_seq_len=16, max_context_len=64, full_logits=True)
    with loaded(checkpoint, options, tmp_path) as program:
        found = logits(program, golden.prompt, CHUNKS[1])
    for place, tensor in checkpoint.tensors.items():
        if len(tensor.shape) == 2 and "conv" not in place and "tok_embeddings" not in place:
            checkpoint.tensors[place] = StoredTensor.of(rounded(tensor.read(), quantize))
    with loaded(checkpoint, FLOAT, tmp_path) as program:
        assert_close(found, logits(program, golden.prompt, CHUNKS[0]), 2e-5)


def test_half_precision(tmp_path: Path) -> None:
    """States of scans stay in f32."""
    golden = Golden.load("mamba2_options")
    options = Options(None, 32, None, 16, 64, force_fp16=True, full_logits=True)
    with loaded(read_checkpoint(golden.write_folder(tmp_path)), options, tmp_path) as program:
        assert_close(logits(program, golden.prompt, CHUNKS[0]), golden.logits, 0.02)


def test_names_of_kinds_of_layers(tmp_path: Path) -> None:
    """Older configurations have other names, or a pattern of letters."""
    for name, keys in (
        ("granitehybrid", {"layer_types": ["mamba", "attention", "mamba"]}),
        (
            "nemotron_h",
            {"layers_block_type": None, "hybrid_override_pattern": "M-*-M", "num_hidden_layers": 5},
        ),
    ):
        golden = Golden.load(name)
        expected = read_checkpoint(golden.write_folder(tmp_path)).decoder
        golden.config.update(keys)
        assert read_checkpoint(golden.write_folder(tmp_path)).decoder == expected


def test_an_infinite_limit_of_time_steps(tmp_path: Path) -> None:
    golden = Golden.load("mamba2")
    golden.config["time_step_limit"] = [0.25, {"__float__": "Infinity"}]
    mixer: Any = read_checkpoint(golden.write_folder(tmp_path)).decoder.layers[0]
    assert mixer.part.limits == (0.25, None)


@pytest.mark.parametrize(
    ("name", "setting", "error", "message"),
    [
        ("mamba2", {"hidden_act": "gelu"}, UnsupportedError, "hidden_act is 'gelu'; only 'silu'"),
        ("mamba2", {"state_size": None}, FormatError, "configuration lacks .*state_size"),
        ("nemotron_h", {"layers_block_type": ["moe"]}, UnsupportedError, "layers of kind moe; known are"),
        ("nemotron_h", {"sliding_window": 8}, UnsupportedError, "sliding_window is 8"),
        ("bamba", {"mamba_d_head": 9}, UnsupportedError, "a matrix of 200 rows, expected 216"),
    ],
)
def test_what_is_refused(
    name: str, setting: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    golden = Golden.load(name)
    golden.config.update(setting)
    with pytest.raises(error, match=message):
        read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT)
