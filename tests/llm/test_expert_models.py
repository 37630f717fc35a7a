"""Mixtures of experts: quantised programs, MXFP4. Logits of float programs, GGUF files and batches
are compared in test_architectures.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from checkpoints import Golden, loaded, logits, write_mxfp4
from test_architectures import CHUNKS, FLOAT, assert_close

from pteron.errors import FormatError, UnsupportedError
from pteron.format.stored_tensor import Array, StoredTensor
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.experts import GGUF_EXPERTS
from pteron.llm.architectures.names import place_tensors
from pteron.llm.export import read_checkpoint
from pteron.llm.network.options import Options
from pteron.llm.network.quantize import quantize_4_bits, quantize_8_bits, round_to_nearest

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")


FLOATS = ("router", "tok_embeddings", ".conv.", ".alpha.", ".beta.")


@pytest.mark.long(every=4)
@pytest.mark.parametrize(
    ("name", "quantize"), [("mixtral", "8w"), ("mixtral", "4w"), ("deepseek_v3", "8w"), ("qwen3_5", "8w")]
)
def test_quantised_programs(name: str, quantize: str, tmp_path: Path) -> None:
    """They compute the same as float programs of the rounded weights."""
    golden = Golden.load(name)
    checkpoint = read_checkpoint(golden.write_folder(tmp_path))
    options = Options(quantize, 8, None, max_seq_len=16, max_context_len=64, full_logits=True)
    with loaded(checkpoint, options, tmp_path) as program:
        found = [logits(program, golden.prompt, chunks) for chunks in CHUNKS]
    for place, tensor in checkpoint.tensors.items():
        if len(tensor.shape) == 2 and not any(name in place for name in FLOATS):
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


def test_mxfp4(tmp_path: Path) -> None:
    """Experts in blocks of 4-bit numbers are read as what they mean."""
    from safetensors.numpy import save_file

    golden = Golden.load("gpt_oss")
    folder, blocks, plain = write_mxfp4(golden, tmp_path / "blocks")
    save_file(plain, golden.write_folder(tmp_path / "plain") / "model.safetensors", {"format": "pt"})
    read = [read_checkpoint(tmp_path / "plain"), read_checkpoint(folder)]
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


@pytest.mark.parametrize("changed", [{"1": (24, 32)}, {"0": (8,), "1": (8,), "2": (8,), "3": (8,)}], ids=str)
def test_matrices_of_experts_have_one_shape(changed: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    golden = Golden.load("mixtral")
    for expert, shape in changed.items():
        golden.shapes[f"model.layers.1.block_sparse_moe.experts.{expert}.w1.weight"] = shape
    with pytest.raises(FormatError, match=r"layers\.1\..*w1\.weight: the experts' matrices have different"):
        read_checkpoint(golden.write_folder(tmp_path)).program(FLOAT)


def test_gate_and_up_in_one_tensor_of_a_gguf_file() -> None:
    """Of each expert: the rows of the gate, then those of up."""
    both = np.arange(2 * 6 * 4, dtype=np.float32).reshape(2, 6, 4)
    stored = {"blk.1.ffn_gate_up_exps.weight": StoredTensor.of(both)}
    placed = place_tensors(stored, GGUF_EXPERTS, Config())
    for kind, rows in (("w1", both[:, :3]), ("w3", both[:, 3:])):
        found = placed[f"layers.1.feed_forward.experts.{kind}.weight"].read()
        np.testing.assert_array_equal(found, rows.reshape(6, 4))
