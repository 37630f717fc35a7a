"""Mixtures of experts: quantised programs, batches of sequences, GGUF files. Logits of float programs are
compared in test_architectures.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import Golden
from test_architectures import CHUNKS, FLOAT, assert_close, loaded, logits
from test_batched import LENGTHS, alone, begin, end, poison

from pteron.errors import FormatError, UnsupportedError
from pteron.llm import LanguageModel
from pteron.llm.architectures.experts import count_of
from pteron.llm.architectures.names import place_tensors
from pteron.llm.architectures.qwen_moe import NAMES
from pteron.llm.batched_model import BatchedModel, BatchRow
from pteron.llm.build.options import Options
from pteron.llm.build.quantize import quantize_4_bits, quantize_8_bits, round_to_nearest
from pteron.llm.build.stored_tensor import Array, StoredTensor
from pteron.llm.export import read_checkpoint

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")


@pytest.mark.parametrize(("name", "quantize"), [("mixtral", "8w"), ("mixtral", "4w"), ("deepseek_v3", "8w")])
def test_quantised_programs(name: str, quantize: str, tmp_path: Path) -> None:
    """They compute the same as float programs of the rounded weights."""
    golden = Golden.load(name)
    checkpoint = read_checkpoint(golden.write_folder(tmp_path))
    options = Options(quantize, 8, None, max_seq_len=16, max_context_len=64, full_logits=True)
    with loaded(checkpoint, options, tmp_path) as program:
        found = [logits(program, golden.prompt, chunks) for chunks in CHUNKS]
    for place, tensor in checkpoint.tensors.items():
        if len(tensor.shape) == 2 and "router" not in place and "tok_embeddings" not in place:
            checkpoint.tensors[place] = StoredTensor.of(rounded(tensor.read(), quantize))
    with loaded(checkpoint, FLOAT, tmp_path) as program:
        expected = logits(program, golden.prompt, CHUNKS[0])
    for each in found:
        assert_close(each, expected, 2e-5)


def rounded(matrix: Array, quantize: str) -> Array:
    if quantize == "8w":
        integers, scales = quantize_8_bits(matrix)
        return np.asarray(integers * scales[:, None], np.float32)
    integers, scales = quantize_4_bits(matrix, 8, round_to_nearest)
    return np.asarray(integers * np.repeat(scales, 8, 1), np.float32)


@pytest.mark.parametrize("name", ["qwen2_moe", "gpt_oss", "deepseek_v3"])
def test_batches(name: str, tmp_path: Path) -> None:
    options = Options(None, embedding_bits=None, max_seq_len=16, max_context_len=64)
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
                for row, found in enumerate(batched.logits(now)):
                    assert_close(found, expected.logits[row][step], 1e-5)
        finally:
            end(batched, sequences)


def test_mxfp4(tmp_path: Path) -> None:
    """Experts in blocks of 4-bit numbers are read as what they mean."""
    from safetensors.numpy import save_file

    golden, random = Golden.load("gpt_oss"), np.random.default_rng(3)
    blocks, plain = golden.tensors(), golden.tensors()
    kinds = [0.0, 0.5, 1, 1.5, 2, 3, 4, 6]
    kinds += [-number for number in kinds]
    for name in [name for name in plain if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        count, columns, rows = plain[name].shape
        numbers = random.integers(0, 16, (count, rows, columns // 32, 32))
        powers = random.integers(120, 130, (count, rows, columns // 32))
        values = np.array(kinds)[numbers] * 2.0 ** (powers[..., None] - 127)
        plain[name] = values.reshape(count, rows, columns).swapaxes(1, 2).astype(np.float32)
        del blocks[name]
        packed = numbers[..., ::2] | numbers[..., 1::2] << 4
        blocks[f"{name}_blocks"] = packed.astype(np.uint8)
        blocks[f"{name}_scales"] = powers.astype(np.uint8)
    read = []
    for kind, tensors in (("plain", plain), ("blocks", blocks)):
        folder = golden.write_folder(tmp_path / kind)
        tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        read.append(read_checkpoint(folder))
    assert {*read[0].tensors} == {*read[1].tensors}
    for place, tensor in read[0].tensors.items():
        np.testing.assert_array_equal(np.concatenate([*read[1].tensors[place].blocks()]), tensor.read())
    read[1].program(FLOAT)
    del blocks["model.layers.1.mlp.experts.down_proj_scales"]
    save_file(blocks, tmp_path / "blocks/model.safetensors", {"format": "pt"})
    with pytest.raises(UnsupportedError, match="down_proj_blocks has element type U8"):
        read_checkpoint(tmp_path / "blocks")


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    golden = Golden.load("glm4_moe")
    golden.shapes["model.layers.3.eh_proj.weight"] = golden.shapes["model.mtp_norm.weight"] = (8,)
    read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT)
    golden.config["num_nextn_predict_layers"] = 0
    with pytest.raises(UnsupportedError, match=r"unknown tensor model\.(layers\.3\.eh_proj|mtp_norm)"):
        read_checkpoint(golden.write_folder(tmp_path))


def test_the_number_of_experts_is_checked(tmp_path: Path) -> None:
    golden = Golden.load("mixtral")
    for count in (0, 1, 3, 5):
        golden.config["num_local_experts"] = golden.config["num_experts"] = count
        with pytest.raises(
            FormatError, match=r"of \d experts|router\.weight is .* the configuration requires"
        ):
            read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT)


def write_gguf(golden: Golden, file: Path, architecture: str, normalised: bool | None) -> Path:
    """A golden of Qwen's names as a GGUF file: the matrices of all experts are one tensor."""
    import gguf

    config = golden.config
    writer = gguf.GGUFWriter(str(file), architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_expert_count(count_of(config))
    writer.add_expert_used_count(config["num_experts_per_tok"])
    if normalised is not None:
        writer.add_expert_weights_norm(normalised)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(["<|end|>", *"abcdefghij", "ab"])
    writer.add_token_types([3] + [1] * 11)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    for name, array in stacked_tensors(golden).items():
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


STEMS = {
    "tok_embeddings": "token_embd",
    "norm": "output_norm",
    "attention_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "attention.wq": "attn_q",
    "attention.wk": "attn_k",
    "attention.wv": "attn_v",
    "attention.wo": "attn_output",
    "attention.q_norm_fn": "attn_q_norm",
    "attention.k_norm_fn": "attn_k_norm",
    "feed_forward.router": "ffn_gate_inp",
    "feed_forward.experts.w1": "ffn_gate_exps",
    "feed_forward.experts.w2": "ffn_down_exps",
    "feed_forward.experts.w3": "ffn_up_exps",
}


def stacked_tensors(golden: Golden) -> dict[str, Any]:
    stored = {name: StoredTensor.of(array) for name, array in golden.tensors().items()}
    found: dict[str, Any] = {}
    experts: dict[str, list[Any]] = {}
    for place, tensor in place_tensors(stored, NAMES, golden.config).items():
        layer, number = re.search(r"layers\.(\d+)\.", place), re.search(r"experts\.(\d+)\.", place)
        stem, _, ending = re.sub(r"layers\.\d+\.", "", place).rpartition(".")
        stem = re.sub(r"experts\.\d+", "experts", stem)
        prefix = f"blk.{layer[1]}." if layer else ""
        name = f"{prefix}{STEMS.get(stem, stem)}.{ending}"
        if number:
            experts.setdefault(name, []).append((int(number[1]), tensor.read()))
        else:
            found[name] = tensor.read()
    for name, matrices in experts.items():
        found[name] = np.stack([matrix for _, matrix in sorted(matrices, key=lambda each: each[0])])
    return found


@pytest.mark.parametrize(
    ("name", "architecture", "normalised"), [("qwen3_moe", "qwen3moe", None), ("olmoe", "olmoe", False)]
)
def test_a_gguf_file_means_the_same(
    name: str, architecture: str, normalised: bool | None, tmp_path: Path
) -> None:
    pytest.importorskip("gguf")
    golden = Golden.load(name)
    file = write_gguf(golden, tmp_path / "model.gguf", architecture, normalised)
    with loaded(read_checkpoint(file), FLOAT, tmp_path) as program:
        assert_close(logits(program, golden.prompt, CHUNKS[1]), golden.logits, 1e-5)
