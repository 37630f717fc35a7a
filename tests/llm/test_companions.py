"""Companion files of a program, and checkpoints: invalid content gives an error that names the file."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pteron.cli import main
from pteron.errors import FormatError, InputError, PteronError
from pteron.llm import LLM, load_tokenizer
from pteron.llm.export import Options, read_checkpoint
from pteron.llm.export.gguf_vocabulary import read_vocabulary
from pteron.names.model_files import CONFIGURATIONS, MANIFEST, ModelFolder

STORIES = Path(__file__).parents[2] / "src/pteron/models/stories15m"
DEEP = "[" * 100_000
WRONG_JSON = {
    "no object": "[]",
    "cut off": '{"a": ',
    "deep": DEEP,
    "long number": '{"bos_token_id": ' + "9" * 10_000 + "}",
    "tokens of floats": '{"eos_token_id": [1.5]}',
    "a token that is true": '{"bos_token_id": true}',
    "an object without text": '{"bos_token": {"id": 1}}',
    "no such token": '{"bos_token": "no such token"}',
    "half a character": r'{"bos_token": "\ud800"}',
    "whether": '{"add_bos_token": "yes"}',
    "a template of numbers": '{"chat_template": 7}',
    "templates of numbers": '{"chat_template": [1, 2]}',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tokenizer and nothing else."""
    (tmp_path / "tokenizer.bin").write_bytes((STORIES / "tokenizer.bin").read_bytes())
    return tmp_path


@pytest.mark.parametrize("text", WRONG_JSON.values(), ids=WRONG_JSON)
def test_json_of_wrong_types(folder: Path, text: str) -> None:
    for name in (CONFIGURATIONS[0], CONFIGURATIONS[2]):
        (folder / name).write_text(text, "utf-8")
        with pytest.raises(FormatError, match=rf"{name}|tokenizer\.bin"):
            load_tokenizer(folder)
        (folder / name).unlink()


def test_files_that_are_none(folder: Path) -> None:
    """A folder where a file should be."""
    config = folder / "config.json"
    config.mkdir()
    with pytest.raises(FormatError, match=r"config\.json: this is a directory"):
        load_tokenizer(folder)


@pytest.mark.parametrize("name", ["../tokenizer.bin", "/etc/passwd", "a/b", "..", "", 7, "a\0b", "..\\x"])
def test_a_manifest_that_points_elsewhere(folder: Path, name: Any) -> None:
    for key, read in (("tokenizer", load_tokenizer), ("model", lambda path: ModelFolder(path).program)):
        (folder / MANIFEST).write_text(json.dumps({key: name}), "utf-8")
        with pytest.raises(FormatError, match=f"{MANIFEST}: {key} must be the name of a file in its folder"):
            read(folder)


def test_a_manifest_that_names_files_beside_it(folder: Path) -> None:
    (folder / "tokenizer.bin").rename(folder / "words [1].bin")
    (folder / MANIFEST).write_text(json.dumps({"tokenizer": "words [1].bin", "model": "m.pte"}), "utf-8")
    assert load_tokenizer(folder).name == "words [1].bin"
    assert ModelFolder(folder).program == folder / "m.pte"


def test_which_file_wins(folder: Path) -> None:
    """chat_template.jinja has priority for the chat template, as in transformers; for other settings the
    earlier file in CONFIGURATIONS has."""

    def template() -> str | None:
        return load_tokenizer(folder).chat_template

    for name in reversed(CONFIGURATIONS):
        number = CONFIGURATIONS.index(name)
        content = {"chat_template": name, "eos_token_id": 300 + number, "add_bos_token": number % 2 == 0}
        (folder / name).write_text(json.dumps(content), "utf-8")
        assert template() == name
        found = load_tokenizer(folder)
        assert (found.eos_ids, found.adds_bos) == ((content["eos_token_id"],), content["add_bos_token"])
    (folder / "chat_template.jinja").write_text("jinja", "utf-8")
    assert template() == "jinja"
    (folder / "chat_template.jinja").write_text("", "utf-8")
    assert template() == ""


# tokenizer.json ---------------------------------------------------------------------------------


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def tokenizer_json(**changes: Any) -> dict[str, Any]:
    """A sound tokenizer.json, with some of its entries replaced."""
    pytest.importorskip("tokenizers")
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "decoder": BYTE_LEVEL,
        "model": {**model, **changes.pop("model", {})},
        **changes,
    }


ADDED = {"id": 3, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
WRONG_TOKENIZERS: dict[str, dict[str, Any]] = {
    "panics when read": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAEAAAAA"}},
    "no base64": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "not base64"}},
    "panics at a text": {"model": {"continuing_subword_prefix": "#" * 20}},
    "chunks of none": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "opens with a strange token": {
        "post_processor": {"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 99]}
    },
    "no vocabulary": {"model": {"vocab": {}, "merges": []}},
    "merges of strangers": {"model": {"merges": [["x", "y"]]}},
    "unknown without a token": {"model": {"type": "WordLevel", "vocab": {"b": 0}, "unk_token": "zz"}},
    "decoder of numbers": {"decoder": 7},
    "added without content": {"added_tokens": [{**ADDED, "special": True}]},
    "deep": {"normalizer": "DEEP"},
}


@pytest.mark.parametrize("changes", WRONG_TOKENIZERS.values(), ids=WRONG_TOKENIZERS)
def test_invalid_tokenizers(tmp_path: Path, changes: dict[str, Any]) -> None:
    text = json.dumps(tokenizer_json(**changes)).replace('"DEEP"', '{"normalizers":[' * 50_000)
    (tmp_path / "tokenizer.json").write_text(text, "utf-8")
    with pytest.raises(FormatError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path).encode("ab")


def test_padding_and_truncation_are_ignored(tmp_path: Path) -> None:
    """The tokenizer ignores padding to 3·10^8 tokens and truncation to length 0, set by a file of 1 kB."""
    padding: dict[str, Any] = {"strategy": {"Fixed": 300_000_000}, "direction": "Right"}
    padding |= {"pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    truncation = {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 0}
    content = tokenizer_json(padding=padding, truncation=truncation)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    assert load_tokenizer(tmp_path).encode("abab") == [2, 2]


def test_merges_are_not_left_out_at_random(tmp_path: Path) -> None:
    """BPE dropout, a training setting, is ignored: equal prompts give equal tokens."""
    content = tokenizer_json(model={"dropout": 1.0})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    assert load_tokenizer(tmp_path).encode("ab" * 20) == [2] * 20


def test_arguments_of_wrong_types(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json()), "utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode([-1, 0, 1 << 32, 1, 1 << 70]) == "ab"
    ids: Any
    for ids in (["a"], [1.5], [None], [True], 7, "ab", None):
        with pytest.raises(InputError, match="must be"):
            tokenizer.decode(ids)
    text: Any
    for text in (5, None, b"ab", ["a"]):
        with pytest.raises(InputError, match="text must be a string"):
            tokenizer.encode(text)
    with pytest.raises(InputError, match="the text holds a lone surrogate, at 1"):
        tokenizer.encode("a\ud800")


@pytest.mark.parametrize("read", [load_tokenizer, read_checkpoint, LLM])
def test_paths_that_are_none(read: Callable[[Any], object]) -> None:
    for path in (5, None, b"abc", "", "nowhere", "a\0b"):
        with pytest.raises(PteronError):
            read(path)


def test_tokens_past_a_vocabulary(folder: Path) -> None:
    """A model's table may be larger than its vocabulary: such tokens add nothing."""
    tokenizer = load_tokenizer(folder)
    for token in (tokenizer.vocab_size, 10**6):
        assert tokenizer.token_bytes(token) == b""
        assert tokenizer.token_text(token) == ""
    assert tokenizer.decode([tokenizer.vocab_size, 400]) == tokenizer.decode([400])


# Other formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0, 255])
def test_ranks_without_a_byte(tmp_path: Path, missing: int) -> None:
    pytest.importorskip("tiktoken")
    tokens = [bytes([byte]) for byte in range(256) if byte != missing] + [b"ab"]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    (tmp_path / "some.tiktoken").write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError, match=rf"1 single bytes have no rank, such as {missing:#04x}"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("YWE= 1 2", "line 3: expected base64"),
        ("Y!WE= 2", "line 3: exp"),
        ("YWE= 3", "ranks must be 0, 1, 2"),
    ],
)
def test_ranks_that_are_none(tmp_path: Path, line: str, problem: str) -> None:
    """Three fields, what is no base64, a gap."""
    pytest.importorskip("tiktoken")
    (tmp_path / "some.tiktoken").write_text(f"YQ== 0\nYg== 1\n{line}\n")
    with pytest.raises(FormatError, match=rf"some\.tiktoken(,|:) {problem}"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (struct.pack("<fi3s5x", 0, 3, b"abc"), "cut off at piece 1"),
        (struct.pack("<fi3sfi", 0, 3, b"abc", 0, 1), "not a tokenizer, or damaged at piece 1"),
        (struct.pack("<fi3sfi", 0, 3, b"abc", 0, -1), "not a tokenizer, or damaged at piece 1"),
        (struct.pack("<fi3s", 0, 3, b"abc"), "1 pieces, too few"),
    ],
)
def test_a_llama2c_tokenizer_that_is_cut(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "tokenizer.bin").write_bytes(struct.pack("<i", 3) + content)
    with pytest.raises(FormatError, match=rf"tokenizer\.bin: {problem}"):
        load_tokenizer(tmp_path)


def message(field: int, content: bytes) -> bytes:
    """A field of a protocol buffer; short ones only."""
    assert len(content) < 128
    return bytes([field << 3 | 2, len(content)]) + content


@pytest.mark.parametrize(("piece", "kind"), [(b"\xff\xfe", 1), (b"<0xZZ>", 6), (b"\xc3", 3)])
def test_sentencepiece_models_of_strange_pieces(tmp_path: Path, piece: bytes, kind: int) -> None:
    """Pieces that are not UTF-8, and a byte piece without a valid byte."""
    pytest.importorskip("sentencepiece")
    pieces = [(b"<unk>", 2), (b"<s>", 3), (b"</s>", 3), (b"a", 1), (piece, kind)]
    model = b"".join(message(1, message(1, text) + bytes([3 << 3, of])) for text, of in pieces)
    (tmp_path / "tokenizer.model").write_bytes(model)
    with pytest.raises(FormatError, match=r"tokenizer\.model"):
        load_tokenizer(tmp_path).encode("a")


# Checkpoints ------------------------------------------------------------------------------------


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(tensors: int, fields: int, rest: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + rest


ARRAY, STRING = 9, 8
WRONG_GGUF = {
    "a long array of texts": gguf(0, 1, gguf_text("a") + struct.pack("<IIQ", ARRAY, STRING, 1 << 40)),
    "a long name": gguf(0, 1, struct.pack("<Q", 1 << 62) + bytes(100)),
    "many fields": gguf(0, 1 << 60, bytes(1000)),
    "many tensors": gguf(1 << 60, 0, bytes(1000)),
    "large dims": gguf(1, 0, gguf_text("t") + struct.pack("<I4QIQ", 4, *[1 << 62] * 4, 0, 0) + bytes(100)),
    "nothing": gguf(0, 0, b""),
    "another architecture": gguf(
        0, 1, gguf_text("general.architecture") + struct.pack("<I", STRING) + gguf_text("llama")
    ),
}


@pytest.mark.parametrize("content", WRONG_GGUF.values(), ids=WRONG_GGUF)
def test_invalid_gguf_files(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(FormatError, match=r"model\.gguf"):
        read_checkpoint(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer.chat_template", [1, 2]),
        ("tokenizer.chat_template", 7),
        ("tokenizer.ggml.bos_token_id", "a"),
        ("tokenizer.ggml.bos_token_id", 2),
        ("tokenizer.ggml.eos_token_id", [0]),
        ("tokenizer.ggml.eot_token_id", -1),
    ],
)
def test_invalid_gguf_vocabularies(key: str, value: Any) -> None:
    """The error comes at the start of an export, which takes minutes."""
    pytest.importorskip("tokenizers")
    fields = {"model": "gpt2", "tokens": ["a", "b"], "merges": []}
    metadata = {f"tokenizer.ggml.{name}": field for name, field in fields.items()}
    assert read_vocabulary(metadata, "model.gguf").bos_id is None
    with pytest.raises(FormatError, match=r"model\.gguf: "):
        read_vocabulary({**metadata, key: value}, "model.gguf")


def test_a_llama2c_header_that_asks_for_much(folder: Path) -> None:
    (folder / "model.bin").write_bytes(struct.pack("<7i", 8, 8, 2**31 - 1, 2, 2, 2**31 - 1, 2**31 - 1))
    with pytest.raises(FormatError, match=r"model\.bin: 28 bytes, but its header requires"):
        read_checkpoint(folder / "model.bin")


CONFIG = {
    "model_type": "llama",
    "num_attention_heads": 2,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "vocab_size": 10,
    "intermediate_size": 8,
    "rms_norm_eps": 1e-5,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 0},
        {"num_attention_heads": "two"},
        {"hidden_size": 1e999},
        {"rope_scaling": 7},
        {"rope_scaling": {"rope_type": "llama3", "factor": 0}},
        {"rope_theta": "x"},
        {"num_hidden_layers": 10**15},
        {"max_position_embeddings": {}},
        {"vocab_size": None},
    ],
    ids=str,
)
def test_invalid_configurations(folder: Path, changes: dict[str, Any]) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    import numpy as np

    safetensors.save_file({"model.norm.weight": np.zeros(8, np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | changes), "utf-8")
    with pytest.raises(PteronError) as failure:
        read_checkpoint(folder).program(Options())
    assert folder.name in str(failure.value)


# Commands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["generate", "chat"])
@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", DEEP), ("pteron.json", '{"model": 7}'), ("pteron.json", '{"tokenizer": "../x"}')],
)
def test_commands_say_it_in_a_sentence(
    folder: Path, command: str, name: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_text(content, "utf-8")
    assert main([command, str(folder), "--prompt", "a"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("pteron: ")
    assert name in said
    assert len(said.splitlines()) == 1
