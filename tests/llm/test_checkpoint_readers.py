"""Readers of checkpoints: rows at any place are those of the whole tensor, and damaged files are refused."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from families import write_folder

from pteron.errors import FormatError, UnsupportedError
from pteron.format.gguf import TensorInfo, read_header
from pteron.format.gguf_tensors import read_tensor
from pteron.format.safetensors import read_safetensors
from pteron.format.source import FileBytes, open_bytes
from pteron.format.stored_tensor import Groups, StoredTensor
from pteron.llm.export.gguf_file import OTHERS_GROUP
from pteron.llm.export.huggingface import read_huggingface, weight_files
from pteron.llm.names.program_cache import built_folder
from pteron.llm.network.quantize import quantize_groups
from pteron.names.kinds import recognise

TYPES = ["F64", "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K"]
TYPES += ["Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]


@pytest.mark.parametrize("kind", TYPES)
def test_rows_of_a_gguf_tensor(kind: str, tmp_path: Path) -> None:
    """Random bytes of each type, beside a whole-tensor dequantisation by the `gguf` package."""
    gguf = pytest.importorskip("gguf")
    number = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[number]
    rows, columns = 5, 2 * max(block, 32)
    random = np.random.default_rng(3)
    plain = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
    if kind in plain:
        data = random.standard_normal((rows, columns)).astype(plain[kind]).view(np.uint8)
    else:
        data = random.integers(0, 100, (rows, columns // block * size), np.uint8)
    writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), "llama")
    writer.add_array("tokens", ["a", "bc", "ü"])
    writer.add_tensor("first", np.ones(3, np.float32))
    writer.add_tensor("matrix", data, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_bytes(tmp_path / "model.gguf")
    header = read_header(tmp_path / "model.gguf")
    assert header.fields["tokens"] == ["a", "bc", "ü"]
    first, matrix = (read_tensor(gguf, info, file) for info in header.tensors)
    np.testing.assert_array_equal(first.read(), np.ones(3))
    assert matrix.shape == (rows, columns)
    expected = data.view(plain[kind]).astype(np.float32) if kind in plain else gguf.dequantize(data, number)
    np.testing.assert_array_equal(matrix.read(), expected)
    np.testing.assert_array_equal(matrix.read_rows(2, 4), expected[2:4])
    if kind in plain or kind == "BF16":
        assert matrix.groups is None
        return
    assert matrix.groups is not None
    groups = matrix.groups.read_rows(2, 4)
    assert groups.integers.dtype == np.int8
    assert (groups.minima is not None) == matrix.groups.has_minima
    np.testing.assert_allclose(weights_of(groups, matrix.groups.size), expected[2:4], rtol=2**-23)


def weights_of(groups: Groups, size: int) -> npt.NDArray[np.float32]:
    """Weights in float32, as kernels compute them."""
    weights = groups.integers.astype(np.float32) * np.repeat(groups.scales, size, -1)
    return weights if groups.minima is None else weights + np.repeat(groups.minima, size, -1)


@pytest.mark.parametrize("kind", ["IQ2_XXS", "IQ3_S", "IQ1_S", "TQ1_0", "TQ2_0"])
def test_types_without_groups_are_rounded(kind: str) -> None:
    """To 127 steps of the largest weight of each 32: the error is half a step."""
    gguf = pytest.importorskip("gguf")
    number = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[number]
    data = np.random.default_rng(3).integers(0, 100, (3, 2 * size), np.uint8)
    expected = gguf.dequantize(data, number)
    info = TensorInfo("matrix", (3, 2 * block), int(number), 0)
    file = FileBytes(memoryview(data.tobytes()), "a.gguf")
    matrix = read_tensor(gguf, info, file, (OTHERS_GROUP, quantize_groups))
    assert matrix.groups is not None
    found = weights_of(matrix.groups.read_rows(0, 3), 32)
    largest = np.abs(expected.reshape(3, -1, 32)).max(-1).repeat(32, 1)
    assert (np.abs(found - expected) <= largest * (1 + 1e-5) / 254).all()


def write_safetensors(path: Path, header: dict[str, Any], data: bytes) -> Path:
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)
    return path


def test_damaged_safetensors(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    path = write_safetensors(
        tmp_path / "a.safetensors", {"x": entry}, np.arange(6, dtype=np.float32).tobytes()
    )
    np.testing.assert_array_equal(read_safetensors(path)["x"].read_rows(1, 2), [[3, 4, 5]])
    for change in ({"shape": [2, 4]}, {"data_offsets": [0, 28]}, {"data_offsets": [-4, 20]}, {"shape": "x"}):
        with pytest.raises(FormatError, match=r"a\.safetensors is damaged"):
            read_safetensors(write_safetensors(path, {"x": entry | change}, bytes(24)))
    with pytest.raises(UnsupportedError, match="tensor x has element type F8_E4M3"):
        read_safetensors(write_safetensors(path, {"x": entry | {"dtype": "F8_E4M3"}}, bytes(24)))
    path.write_bytes(struct.pack("<Q", 1 << 60))
    with pytest.raises(FormatError, match=r"a\.safetensors is damaged"):
        read_safetensors(path)


PLACEHOLDERS = [
    (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        "a pointer of Git LFS.*`git lfs pull`",
    ),
    (b"\n<!DOCTYPE html><html>Not found</html>" + b" " * 99, "a web page .*download it again"),
]


@pytest.mark.parametrize(("content", "message"), PLACEHOLDERS, ids=["pointer", "page"])
@pytest.mark.parametrize(
    "name", ["model-00002-of-00002.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"]
)
def test_files_that_stand_in_the_place_of_others(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    folder = write_folder("llama", tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(FormatError, match=f"{re.escape(name)} is {message}"):
        read_huggingface(folder)


def test_the_index_says_which_files(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors", "consolidated.safetensors"):
        (tmp_path / name).write_bytes(b"")
    assert len(weight_files(tmp_path)) == 3
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    assert [file.name for file in weight_files(tmp_path)] == ["a.safetensors", "b.safetensors"]
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "c.safetensors"}}))
    with pytest.raises(FormatError, match=r"lacks 1 files of weights, such as c\.safetensors"):
        weight_files(tmp_path)


@pytest.mark.parametrize("listed", [["a.safetensors"], {"x": 1}, {"x": {"y": "a.safetensors"}}, 3])
def test_an_index_of_another_form(listed: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "a.safetensors").write_bytes(b"")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    for read in (weight_files, recognise):
        with pytest.raises(FormatError, match="weight_map must be an object of file names, not"):
            read(tmp_path)


@pytest.mark.parametrize(
    "name", ["model-00002-of-00002.safetensors", "generation_config.json", "chat_template.jinja"]
)
def test_links_to_files_that_do_not_exist(name: str, tmp_path: Path) -> None:
    """As in a cache from which files were removed. Files that are not read may be missing."""
    pytest.importorskip("safetensors")
    folder = write_folder("llama", tmp_path / "model")
    for other in ("consolidated.safetensors", "LICENSE", "other.json"):
        (folder / other).symlink_to(tmp_path / "missing")
    read_huggingface(folder)
    built_folder(recognise(folder))
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "missing")
    with pytest.raises(FormatError, match=rf"{re.escape(name)} is a link to a file that does not exist"):
        read_huggingface(folder)


def test_an_embedding_table_of_one_dimension(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    folder = write_folder("llama", tmp_path)
    for file in folder.glob("*.safetensors"):
        stored = numpy.load_file(file)
        if "model.embed_tokens.weight" in stored:
            stored["model.embed_tokens.weight"] = stored["model.embed_tokens.weight"].ravel()
            numpy.save_file(stored, file)
    with pytest.raises(FormatError, match=r"the embedding table is \[6144\], not \[tokens, columns\]"):
        read_huggingface(folder)


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_gguf_file_of_zeros(in_folder: bool, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(4096))
    with pytest.raises(
        FormatError, match=r"model\.gguf is damaged: a GGUF file begins with the letters GGUF"
    ):
        recognise(tmp_path if in_folder else file)


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "AWQ"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "GPTQ"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "FP8"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "bitsandbytes"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
        ({"text_config": {"quantization_config": {"quant_method": "fp8"}}}, "FP8"),
        ({"quantization": {"group_size": 64, "bits": 4}}, "MLX"),
        ({"quantization": {"bits": 4}, "quantization_config": {"bits": 4}}, "MLX"),
    ],
)
def test_quantised_checkpoints_are_refused_by_their_method(
    settings: dict[str, Any], method: str, tmp_path: Path
) -> None:
    """Even where all tensors have usual names and types."""
    pytest.importorskip("safetensors")
    folder = write_folder("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    sentence = (
        f"{folder.name}: its weights are quantised by {method}, .* unquantised checkpoint .* a GGUF file"
    )
    with pytest.raises(UnsupportedError, match=sentence):
        read_huggingface(folder)
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": None}))
    assert read_huggingface(folder).parameter_count


def test_tensors_are_rearranged_when_they_are_read() -> None:
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    stored = StoredTensor.of(values)
    np.testing.assert_array_equal(stored.sliced(1, 4).read_rows(1, 3), values[2:4])
    np.testing.assert_array_equal(stored.mapped(lambda x: x + 1).sliced(2, 3).read(), values[2:3] + 1)
    transposed = stored.rearranged(lambda x: x.T)
    assert transposed.shape == (4, 6)
    np.testing.assert_array_equal(np.concatenate(list(transposed.blocks())), values.T)
    np.testing.assert_array_equal(transposed.sliced(1, 2).read(), values.T[1:2])


def test_a_scalar_is_one_row(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"scale": np.array(3, np.float32)}, tmp_path / "scalar.safetensors")
    stored = read_safetensors(tmp_path / "scalar.safetensors")["scale"]
    assert (stored.shape, stored.rows, stored.read().tolist()) == ((), 1, 3)
    assert [block.tolist() for block in stored.blocks()] == [[3]]
