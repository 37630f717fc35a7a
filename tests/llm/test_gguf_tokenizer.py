# ruff: noqa: RUF001
"""Tokenizers in GGUF files: pieces, unigrams and word pieces beside their references, special tokens, chat
templates, and what is refused. Word rules of byte-level vocabularies: test_gguf_word_rules.py."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf_vocabularies import (
    BYTE,
    CONTROL,
    CORPUS,
    FRAGMENTS,
    NORMAL,
    STRINGS,
    UNKNOWN,
    USER_DEFINED,
    content_of,
    gguf,
    tokenizers,
    write_gguf,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pteron.errors import FormatError, UnsupportedError
from pteron.llm import Tokenizer, load_tokenizer
from pteron.llm.chat import render

STORIES = Path(__file__).parents[2] / "src/pteron/models/stories15m"
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)
same = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=200
)


def train_sentencepiece(**options: Any) -> Any:
    sentencepiece = pytest.importorskip("sentencepiece")
    trained = io.BytesIO()
    lines = [line.replace("▁", "_") for text in CORPUS[:8] for line in text.splitlines() if line] * 3
    settings = {"vocab_size": 700, "hard_vocab_limit": False, "minloglevel": 2, "max_sentence_length": 9999}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=trained, **(settings | options)
    )
    return sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())


def write_sentencepiece(file: Path, processor: Any, model: str, fill: Callable[[Any], None]) -> Path:
    tests = {"is_unknown": UNKNOWN, "is_control": CONTROL, "is_byte": BYTE, "is_unused": 5}
    ids = range(processor.vocab_size())
    types = [
        next((type for test, type in tests.items() if getattr(processor, test)(id)), NORMAL) for id in ids
    ]
    tokens, scores = map(processor.id_to_piece, ids), map(processor.get_score, ids)
    return write_gguf(file, model, list(tokens), fill, types=types, scores=list(scores))


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_are_those_of_sentencepiece(prefix: bool, tmp_path: Path) -> None:
    theirs = train_sentencepiece(
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        control_symbols=["<turn>"],
    )
    ours = load_tokenizer(
        write_sentencepiece(
            tmp_path / "m.gguf", theirs, "llama", lambda writer: writer.add_add_space_prefix(prefix)
        )
    )
    assert (ours.bos_id, ours.eos_ids, ours.adds_bos, ours.leading_space) == (1, (2,), True, prefix)

    def check(text: str) -> None:
        ids = ours.encode(text)
        assert ids == theirs.encode(text)
        assert ours.decode(ids) == text

    for text in [*STRINGS, "a<turn>b</s><s>"]:  # texts, not control tokens
        check(text)
    same(given(TEXTS)(check))()
    turn = ours.token_id("<turn>")
    assert turn in ours.encode("a<turn>b", special=True)
    assert ours.encode_marked("a") == [1, *ours.encode("a")]


def test_the_vocabulary_of_llama_2(tmp_path: Path) -> None:
    """32,000 pieces that were trained on real text."""
    theirs: Any = load_tokenizer(STORIES)
    ids = range(theirs.vocab_size)
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(ids) - 259)
    tokens = [
        f"<0x{id - 3:02X}>" if types[id] == BYTE else theirs.token_text(id).replace(" ", "▁") for id in ids
    ]
    ours = load_tokenizer(
        write_gguf(tmp_path / "m.gguf", "llama", tokens, types=types, scores=theirs._scores)
    )
    for text in [*STRINGS, Path(__file__).read_text().replace("▁", "_"), "the" * 300]:
        assert ours.encode(text) == theirs.encode(text)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("bytes_too", [True, False])
def test_unigrams_are_those_of_sentencepiece(normalized: bool, bytes_too: bool, tmp_path: Path) -> None:
    proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    theirs = train_sentencepiece(
        model_type="unigram",
        byte_fallback=bytes_too,
        normalization_rule_name="nmt_nfkc" if normalized else "identity",
        remove_extra_whitespaces=normalized,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
    )
    model = proto.ModelProto.FromString(theirs.serialized_model_proto())

    def fill(writer: Any) -> None:
        if normalized:
            writer.add_precompiled_charsmap(model.normalizer_spec.precompiled_charsmap)
        writer.add_remove_extra_whitespaces(normalized)

    ours = load_tokenizer(write_sentencepiece(tmp_path / "m.gguf", theirs, "t5", fill))

    def check(text: str) -> None:
        assert ours.encode(text) == theirs.encode(text)

    for text in STRINGS[:-2]:
        check(text)
    same(given(TEXTS.map(lambda text: text.replace("👩‍👩‍👧", "").replace("e\u0301", "")))(check))()
    assert not {0, 1} & set(ours.encode("</s><pad>"))
    assert ours.encode_marked("the dog") == [*ours.encode("the dog"), 1]
    assert (ours.bos_id, ours.eos_ids, ours.adds_bos) == (None, (1,), False)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces_are_those_of_hugging_face(lowercase: bool, tmp_path: Path) -> None:
    controls = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    theirs = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    theirs.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=controls, show_progress=False
    )
    theirs.train_from_iterator(CORPUS, trainer)
    theirs.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    original, types, _ = content_of(theirs)
    # Converters mark the beginnings of words instead of the other pieces.
    marked = [
        token if token in controls else token.removeprefix("##") if token.startswith("##") else f"▁{token}"
        for token in original
    ]

    def fill(writer: Any) -> None:
        for key, id in (("bos", 2), ("seperator", 3), ("unknown", 1), ("padding", 0)):
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", id)
        writer.add_bool("tokenizer.ggml.normalizer.lowercase", lowercase)

    for name, tokens in (("marked.gguf", marked), ("original.gguf", original)):
        ours = load_tokenizer(write_gguf(tmp_path / name, "bert", tokens, fill, types=types))

        def check(ours: Tokenizer, text: str) -> None:
            assert ours.encode_marked(text) == theirs.encode(text).ids

        for text in STRINGS[:-1]:
            check(ours, text)
        same(given(st.just(ours), TEXTS)(check))()
        assert ours.decode(ours.encode("the quick dog")) == "the quick dog"
        assert ours.encode("[CLS]the dog[SEP]", special=True) == [2, *ours.encode("the dog"), 3]
        assert ours.vocab_size == len(tokens)


# Special tokens ---------------------------------------------------------------------------------

LETTERS = [*"abcdefg", "Ġ", "Ċ", "fg"]


def small(
    tmp_path: Path,
    *named: str,
    fill: Callable[[Any], None] = lambda _: None,
    types: dict[str, int] | None = None,
) -> Tokenizer:
    """A byte-level vocabulary of some letters (ids 0 to 9) and of other tokens, control tokens by default."""
    kinds = [NORMAL] * len(LETTERS) + [(types or {}).get(name, CONTROL) for name in named]
    tokens = [*LETTERS, *named]
    return load_tokenizer(
        write_gguf(tmp_path / "model.gguf", "gpt2", tokens, fill, types=kinds, merges=["f g"])
    )


def test_roles_of_tokens(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        writer.add_bos_token_id(10)
        writer.add_eos_token_id(11)
        writer.add_eot_token_id(12)
        writer.add_eom_token_id(13)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)

    tokenizer = small(tmp_path, "<a:b>", "<$e>", "<t>", "<m>", "<|im_end|>", "<p>", fill=fill)
    assert (tokenizer.bos_id, tokenizer.adds_bos) == (10, True)
    assert tokenizer.eos_ids == (11, 12, 13, 14)
    assert tokenizer.encode_marked("ab") == [10, 0, 1, 11]
    assert tokenizer.encode("a<t>", special=True, bos=True) == [10, 0, 12]
    assert tokenizer.decode([10, 0, 12, 15]) == "a"


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        (("<|eot_id|>", "<x>", "<end_of_turn>", "<｜end▁of▁sentence｜>"), (10, 12, 13)),
        (("<|end|>", "<|user|>"), (10,)),
        (("<|end|>", "<|return|>", "<|call|>"), (11, 12)),  # gpt-oss: its messages have parts
        (("<|end|>", "<|flush|>", "<|calls|>"), (11, 12)),
        (("</s>", "<|tool_response>", "<eos>"), (11, 12)),
        (("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"), (10, 11, 12)),
    ],
)
def test_tokens_that_end_an_answer(names: tuple[str, ...], ends: tuple[int, ...], tmp_path: Path) -> None:
    tokenizer = small(tmp_path, *names)
    assert tokenizer.eos_ids == ends
    assert tokenizer.bos_id is None


def test_types_of_tokens(tmp_path: Path) -> None:
    """User-defined tokens are found in any text and are part of it; control and unknown ones are not."""
    types = {"<think>": USER_DEFINED, "<unk>": UNKNOWN, "ab": NORMAL, "<|im_end|>": NORMAL}
    tokenizer = small(tmp_path, "<think>", "<unk>", "<x>", "ab", "<|im_end|>", types=types)
    assert tokenizer.encode("a<think>b") == [0, 10, 1]
    assert tokenizer.decode([0, 10, 11, 12, 14]) == "a<think>"
    assert tokenizer.encode("<unk><x><|im_end|>", special=True) == [11, 12, 14]
    assert not {11, 12, 14} & set(tokenizer.encode("<unk><x><|im_end|>"))
    assert tokenizer.encode("ab") == [0, 1], "no merge makes it"


def test_runs_of_spaces_that_are_tokens(tmp_path: Path) -> None:
    """Gemma has them: as ▁▁, or with spaces where a converter read tokenizer_config.json."""
    for run in ("▁▁", "  "):
        tokens = ["<unk>", "<s>", "</s>", *"ab▁", run]
        types = [UNKNOWN, CONTROL, CONTROL, NORMAL, NORMAL, NORMAL, USER_DEFINED]

        def fill(writer: Any) -> None:
            writer.add_add_space_prefix(False)

        scores = [-float(id) for id in range(len(tokens))]
        file = write_gguf(tmp_path / "m.gguf", "llama", tokens, fill, types=types, scores=scores)
        tokenizer = load_tokenizer(file)
        assert tokenizer.encode("a  b a") == [3, 6, 4, 5, 3]
        assert tokenizer.decode([3, 6, 4]) == "a  b"


def test_bos_by_the_word_rule(tmp_path: Path) -> None:
    for pre, stated, expected in (
        ("llama-bpe", None, True),
        ("llama-bpe", False, False),
        ("qwen2", None, False),
        ("tekken", None, True),
        ("sarvam-moe", None, False),
        ("gemma4", None, True),
    ):

        def fill(writer: Any, pre: str = pre, stated: bool | None = stated) -> None:
            writer.add_tokenizer_pre(pre)
            writer.add_bos_token_id(10)
            if stated is not None:
                writer.add_add_bos_token(stated)

        tokenizer = small(tmp_path, "<s>", "abc", fill=fill, types={"abc": NORMAL})
        assert tokenizer.adds_bos is expected
        # These families take a word that is a token without looking at merges.
        assert tokenizer.encode("abc") == ([11] if pre in ("llama-bpe", "tekken") else [0, 1, 2])


@pytest.mark.parametrize(
    ("name", "expected"), [("Phi 3 Mini", [10, 8, 0]), ("Phi-3-mini", [10, 0]), ("phi3", [10, 0])]
)
def test_phi_3_drops_space_after_control_tokens(name: str, expected: list[int], tmp_path: Path) -> None:
    tokenizer = small(tmp_path, "<|user|>", "<s>", fill=lambda writer: writer.add_name(name))
    assert tokenizer.encode("<|user|>\na", special=True) == expected
    assert tokenizer.encode("<s>\na", special=True) == [11, 8, 0]


# Chat templates ---------------------------------------------------------------------------------

MESSAGES = [{"role": "user", "content": "Hi"}]
DEFAULT = "\n{% for message in messages %}\n{{ message.content }}!\n{% endfor %}\n"
TOOL_USE = "{% set known = tools | length %}\n  {{ known }} tools, {{ messages[0].content }}\n\n"


def test_named_chat_templates(tmp_path: Path) -> None:
    texts = {"default": DEFAULT, "tool_use": TOOL_USE, "rag": "{{ documents }}"}
    named = [{"name": name, "template": text} for name, text in texts.items()]
    tokenizer = small(tmp_path, "<s>", fill=lambda writer: writer.add_chat_template(named))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    other = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    other.decoder = tokenizers.decoders.ByteLevel()
    other.save(str(tmp_path / "tokenizer.json"))
    for template in (tokenizer.chat_template, load_tokenizer(tmp_path).chat_template):
        assert render(MESSAGES, template) == render(MESSAGES, DEFAULT) == "\nHi!\n"
        assert render(MESSAGES, template, tools=[1, 2]) == render(MESSAGES, TOOL_USE, tools=[1, 2])
    tokenizer = small(tmp_path, "<s>", fill=lambda writer: writer.add_chat_template(named[1:]))
    assert tokenizer.chat_template is None
    tokenizer = small(tmp_path, "<s>", fill=lambda writer: writer.add_chat_template(DEFAULT))
    assert tokenizer.chat_template == DEFAULT


def test_a_file_without_a_tokenizer(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UnsupportedError, match=r"model\.gguf: the file has no tokenizer"):
        load_tokenizer(tmp_path / "model.gguf")


def test_files_beside_a_gguf_file_do_not_change_it(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    (tmp_path / "chat_template.jinja").write_text("another")
    tokenizer = small(tmp_path, "<|im_end|>")
    assert (tokenizer.eos_ids, tokenizer.chat_template) == ((10,), None)


# Refused files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("none", r"no tokenizer: give the model's tokenizer\.json, with `--tokenizer`"),
        ("no_vocab", "the file has no tokenizer"),
        ("rwkv", "RWKV's tokenizer is not supported"),
        ("plamo2", "PLaMo 2's tokenizer is not supported"),
        ("whitespace", "byte pairs of characters"),
        ("new", "tokenizer of kind 'new'; known are gpt2, gemma4, llama, bert, t5"),
    ],
)
def test_kinds_that_are_refused(model: str, message: str, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf", model, ["a", "b"])
    with pytest.raises(UnsupportedError, match=rf"model\.gguf: .*{message}"):
        load_tokenizer(file)


@pytest.mark.parametrize(
    ("model", "tokens", "lists", "message"),
    [
        ("gpt2", ["a", "b"], {}, "tokenizer.ggml.merges is missing"),
        ("gpt2", ["a", "b"], {"merges": ["ab"]}, "merges has 'ab', not two tokens"),
        ("gpt2", ["a", "b"], {"merges": ["a b"]}, "merges has 'a b', not two tokens that make a third"),
        ("gpt2", ["a", "b", "a"], {"merges": []}, "two tokens have the text 'a'"),
        ("gpt2", ["a", "b"], {"merges": [], "types": [1]}, "token_type has 1 of 2 tokens"),
        ("llama", ["a", "b"], {}, "tokenizer.ggml.scores is missing"),
        ("t5", ["a", "b"], {"scores": [0.0]}, "scores has 1 of 2 tokens"),
        ("llama", ["a" * 2000], {"scores": [0.0]}, "a token of 2000 characters"),
        ("bert", ["a", "b"], {}, "unknown_token_id is missing"),
    ],
)
def test_damaged_vocabularies(
    model: str, tokens: list[str], lists: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "model.gguf", model, tokens, **lists)
    with pytest.raises(FormatError, match=rf"^model\.gguf: .*{message}"):
        load_tokenizer(file)
