"""Every kind of tokenizer file: the same text comes back, whole or token by token."""

from __future__ import annotations

import base64
import json
import re
import reprlib
import struct
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from pteron.errors import FormatError, InputError, PteronError
from pteron.llm import Tokenizer, load_tokenizer
from pteron.llm.tokenizers import word_rules

STORIES = Path(__file__).parents[2] / "src/pteron/models/stories15m"
CORPUS = [
    "the quick brown fox jumps over the lazy dog and the dog sleeps",
    "a small house, a big house; three houses in the forest",
    "once upon a time there was a little girl who lived near the forest",
] * 20
TEXTS = [
    "the quick house",
    "  two spaces, then\n\na\ttab ",
    "naïve café, Ωμέγα, 日本語, 😀👩‍👩‍👧",
    "x",
    " ",
    "line\r\nend",
    "1234567 'tis",
]
EMOJI = "😀"  # four bytes, which none of these vocabularies holds as one token


def hugging_face(folder: Path) -> Path:
    """A byte-level BPE as GPT-2's, with two control tokens and one that is ordinary text."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|start|>", "<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(["<think>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "bos_token": {"content": "<|start|>"},
        "eos_token": "<|end|>",
        "chat_template": "{{ bos_token }}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def hugging_face_pieces(folder: Path) -> Path:
    """SentencePiece's conventions inside a tokenizer.json, as Llama 2's has them."""
    tokenizers = pytest.importorskip("tokenizers")
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += ["▁", *"abcdefghijklmnopqrstuvwxyz", "▁t", "he", "▁the"]
    model = tokenizers.models.BPE(
        {piece: id for id, piece in enumerate(pieces)},
        [("▁", "t"), ("h", "e"), ("▁t", "he")],
        unk_token="<unk>",
        byte_fallback=True,
    )
    tokenizer = tokenizers.Tokenizer(model)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text('{"bos_token_id": 1, "eos_token_id": [2, 2]}')
    return folder


def sentence_piece(folder: Path) -> Path:
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        control_symbols=["<turn>"],
        minloglevel=2,
    )
    (folder / "tokenizer.vocab").unlink()
    return folder


def ranks(folder: Path) -> Path:
    pytest.importorskip("tiktoken")
    tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" the", b"ou", b"house"]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    (folder / "small.tiktoken").write_text("\n".join(lines) + "\n")
    return folder


def llama2c(folder: Path) -> Path:
    pieces = [b"<unk>", b"<s>", b"</s>", *(chr(byte).encode() for byte in range(256))]
    pieces += [character.encode() for character in " abcdefghijklmnopqrstuvwxyz"]
    merged = [b" t", b"he", b" the", b"ou", b"ho", b"hou"]
    scores = [0.0] * len(pieces) + [-float(place) for place in range(len(merged))]
    data = struct.pack("<i", 8)
    for score, piece in zip(scores, pieces + merged, strict=True):
        data += struct.pack("<fi", score, len(piece)) + piece
    (folder / "tokenizer.bin").write_bytes(data)
    return folder


KINDS = [hugging_face, hugging_face_pieces, sentence_piece, ranks, llama2c]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: str(kind.__name__))
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    make: Callable[[Path], Path] = request.param
    return load_tokenizer(make(tmp_path_factory.mktemp("tokenizer")))


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert all(0 <= id < tokenizer.vocab_size for id in ids)
    assert tokenizer.decode(ids) == text
    stream = tokenizer.stream(continuing=False)
    parts = [stream.push(id) for id in ids]
    assert "".join(parts) + stream.finish() == text
    assert all("\ufffd" not in part for part in parts)


def test_an_emoji_comes_out_once_and_whole(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("x" + EMOJI)[-4:]
    assert b"".join(tokenizer.token_bytes(id) for id in ids) == EMOJI.encode()
    stream = tokenizer.stream()
    assert [stream.push(id) for id in ids] == ["", "", "", EMOJI]
    assert stream.finish() == ""


def test_an_unfinished_character_is_replaced(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("x" + EMOJI)[-4:]
    stream = tokenizer.stream()
    assert [stream.push(id) for id in ids[:2]] == ["", ""]
    assert stream.finish() == "\ufffd"
    assert [stream.push(id) for id in ids][-1] == EMOJI, "a finished stream can begin again"


def test_a_broken_character_does_not_swallow_the_next(tokenizer: Tokenizer) -> None:
    first, *_ = tokenizer.encode("x" + EMOJI)[-4:]
    letter = tokenizer.encode("ax")[-1]
    stream = tokenizer.stream()
    assert stream.push(first) + stream.push(letter) == "\ufffdx"


def test_a_stream_keeps_the_space_of_a_word_that_continues(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("x the")
    start = tokenizer.encode("x")
    assert ids[: len(start)] == start
    stream = tokenizer.stream()
    assert "".join([stream.push(id) for id in ids[len(start) :]]) == " the"


def test_an_empty_text_has_no_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


def test_the_opening_token(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the house", bos=True)
    if tokenizer.bos_id is None:
        assert ids == tokenizer.encode("the house")
    else:
        assert ids == [tokenizer.bos_id, *tokenizer.encode("the house")]
    assert tokenizer.decode(ids) == "the house"


def test_several_tokens_before_a_text(tmp_path: Path) -> None:
    """As GLM-4 has them: [gMASK] <sop>."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = hugging_face(tmp_path)
    (folder / "tokenizer_config.json").unlink()
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    opening = [(text, library.token_to_id(text)) for text in ("<|end|>", "<|start|>")]
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|end|> <|start|> $A <|end|>", special_tokens=opening
    )
    library.save(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer(folder)
    first, second = (id for _, id in opening)
    plain = tokenizer.encode("the house")
    assert tokenizer.adds_bos
    assert tokenizer.encode("the house", bos=True) == [first, second, *plain]
    assert tokenizer.encode("", bos=True) == [first, second]
    spelled = tokenizer.encode("<|end|><|start|>the house", bos=True, special=True)
    assert spelled == [first, second, *plain]
    assert tokenizer.encode_marked("the house") == [first, second, *plain, first]
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<|start|>"}')
    assert load_tokenizer(folder).encode("the house", bos=True) == [second, *plain]
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|start|> $A <|end|>", special_tokens=[opening[1], ("<|end|>", tokenizer.vocab_size)]
    )
    library.save(str(folder / "tokenizer.json"))
    with pytest.raises(FormatError, match=f"token {tokenizer.vocab_size} into texts, of only"):
        load_tokenizer(folder)


def test_control_tokens_are_found_only_when_asked(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(hugging_face(tmp_path))
    text = "<|start|>the house<|end|>"
    assert tokenizer.bos_id not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    ids = tokenizer.encode(text, special=True, bos=True)
    assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_ids[0])
    assert ids.count(tokenizer.bos_id or 0) == 1, "a text that spells its opening gets no second one"
    assert tokenizer.decode(ids) == "the house"


def test_added_tokens_that_are_text_are_decoded(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(hugging_face(tmp_path))
    (id,) = tokenizer.encode("<think>")
    assert tokenizer.decode([id]) == "<think>"


def test_control_tokens_of_a_sentencepiece_model(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(sentence_piece(tmp_path))
    turn = tokenizer.token_id("<turn>")
    assert turn is not None
    assert turn not in tokenizer.encode("a<turn>b")
    assert turn in tokenizer.encode("a<turn>b", special=True)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.adds_bos) == (1, (2,), True)
    assert tokenizer.token_id("no such piece") is None


def test_what_a_sentencepiece_model_does_not_know(tmp_path: Path) -> None:
    """Its token has a name, and stands for a character that is not known."""
    tokenizer = load_tokenizer(sentence_piece(tmp_path))
    assert tokenizer.token_id("<unk>") == 0
    assert tokenizer.decode([0]) == "\N{REPLACEMENT CHARACTER}"


def test_settings_beside_a_tokenizer(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (0, (1,))
    assert tokenizer.chat_template == "{{ bos_token }}"
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 0]}')
    (folder / "chat_template.jinja").write_text("template")
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.eos_ids, tokenizer.chat_template) == ((1, 0), "template")
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(FormatError, match=r"generation_config\.json is not valid JSON"):
        load_tokenizer(folder)


@pytest.mark.parametrize("token", [70000, -1, 10**30, "no such token"])
def test_tokens_that_a_tokenizer_does_not_have(
    token: int | str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a configuration of GPT-2 with a smaller tokenizer: its end token is the default, 50256."""
    folder = hugging_face(tmp_path)

    def ends(**named: object) -> tuple[int | None, tuple[int, ...]]:
        (folder / "generation_config.json").write_text(json.dumps(named))
        tokenizer = load_tokenizer(folder)
        return tokenizer.bos_id, tokenizer.eos_ids

    assert ends(bos_token_id=token, eos_token_id=token) == (0, (1,))  # of tokenizer_config.json
    warned = f"tokenizer.json has no token {reprlib.repr(token)}, which generation_config.json names"
    assert caplog.messages == [warned] * 2
    (folder / "tokenizer_config.json").unlink()
    assert ends(bos_token_id=token, eos_token_id=token) == (None, ())
    assert ends(eos_token_id=[token, 1]) == (None, (1,))
    with pytest.raises(FormatError, match=r"tokenizer\.json has no token that a file .* to begin texts"):
        ends(bos_token_id=token, add_bos_token=True)


@pytest.mark.parametrize("name", ["generation_config.json", "chat_template.jinja", "tokenizer.json"])
def test_files_that_are_not_utf_8(tmp_path: Path, name: str) -> None:
    folder = hugging_face(tmp_path)
    (folder / name).write_bytes(b'{"a": "\xff"}')
    with pytest.raises(FormatError, match=rf"^{re.escape(name)} is not UTF-8 text"):
        load_tokenizer(folder)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        load_tokenizer(tmp_path / "missing")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b'{"model": 1}'),
        ("tokenizer.json", b""),
        ("tokenizer.json", bytes(99)),
        ("tokenizer.model", b"\n\x03abc"),
        ("small.tiktoken", b"YQ== 0\nYg== 2\n"),
        ("tokenizer.bin", b"\x08\0\0\0" + b"\xff" * 20),
        ("tokenizer.bin", b""),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=name.replace(".", r"\.")):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_cut(kind: Callable[[Path], Path], tmp_path: Path) -> None:
    """An error, or a tokenizer of fewer tokens: nothing else."""
    file = max(kind(tmp_path).iterdir(), key=lambda path: path.stat().st_size)
    whole = file.read_bytes()
    count, errors = load_tokenizer(tmp_path).vocab_size, list[str]()
    ends = (range(1, 30, 3), range(30, len(whole), len(whole) // 8), range(len(whole) - 12, len(whole)))
    for size in chain(*ends):
        file.write_bytes(whole[:size])
        try:
            assert load_tokenizer(tmp_path).vocab_size <= count
        except FormatError as error:
            errors.append(str(error))
    assert len(errors) > 10
    assert all(file.name in error for error in errors)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hugging_face(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(PteronError, match=r"'tokenizers': pip install .*\[llm\]."):
        load_tokenizer(folder)


def test_the_story_model_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tokenizers", "sentencepiece", "tiktoken"):
        monkeypatch.setitem(sys.modules, name, None)
    tokenizer = load_tokenizer(STORIES)
    assert tokenizer.encode("Once upon a time", bos=True) == [1, 9038, 2501, 263, 931]
    assert tokenizer.eos_ids == (1, 2)


def test_merging_by_score_is_sentencepieces(tmp_path: Path) -> None:
    """The story model's pieces and scores, given to SentencePiece, cut every text in the same way."""
    sentencepiece = pytest.importorskip("sentencepiece")
    proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    ours: Any = load_tokenizer(STORIES)
    model = proto.ModelProto()
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.remove_extra_whitespaces = False
    kind = proto.ModelProto.SentencePiece
    for id in range(ours.vocab_size):
        piece = model.pieces.add(score=ours._scores[id], type=kind.NORMAL)
        if id < 3:
            piece.piece, piece.type = ours.token_text(id), kind.UNKNOWN if id == 0 else kind.CONTROL
        elif id < 259:
            piece.piece, piece.type = f"<0x{id - 3:02X}>", kind.BYTE
        else:
            piece.piece = ours.token_bytes(id).decode().replace(" ", "▁")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    # SentencePiece cannot distinguish a literal ▁ from a space.
    code = Path(__file__).read_text().replace("▁", "_")
    for text in [*TEXTS, *CORPUS[:3], "the" * 300, code]:
        assert ours.encode(text) == theirs.encode(text)


def test_a_pattern_that_backtracks(monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("tokenizers")
    from pteron.llm.tokenizers import huggingface

    made = library.Tokenizer(library.models.BPE({chr(97 + place): place for place in range(26)}, []))
    made.decoder = library.decoders.ByteLevel()
    split = library.pre_tokenizers.Split
    made.pre_tokenizer = split(library.Regex(word_rules.GPT_2), "isolated")
    assert not huggingface.has_unknown_pattern(made)
    made.pre_tokenizer = split(library.Regex(r"(?:.|..){20}(?!.)(?!\Z)"), "isolated")
    assert huggingface.has_unknown_pattern(made)
    tokenizer = huggingface.HuggingFaceTokenizer(made, "tokenizer.json")
    assert tokenizer.encode("cat") == [2, 0, 19]
    monkeypatch.setattr(huggingface, "ENCODE_SECONDS", 0.05)
    text = "onceuponatimetherewasalittlegirlwholivedinahouse"
    for _ in range(2):  # the second time, the first still runs
        with pytest.raises(FormatError, match=r"tokenizer\.json takes more than 0\.05 seconds for this text"):
            tokenizer.encode(text)
    monkeypatch.setattr(huggingface, "ENCODE_SECONDS", 60.0)
    assert tokenizer.encode("cat") == [2, 0, 19]
