"""Files next to a program: tokenizers of every kind, settings in JSON, chat templates."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from fuzz import TESTS
from fuzz.folder import joined, member_mutation, parted, written
from fuzz.mutation.havoc import havoc
from fuzz.mutation.json_tree import tree_mutation
from fuzz.target import Target, Wrong
from pteron.errors import PteronError
from pteron.llm.chat import render
from pteron.llm.llm import LLM
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.llm.tokenizers.tokenizer import Tokenizer

SEEDS = TESTS / "fuzz" / "seeds"
_TEXTS = ("", "the house", "  two\n\nlines\t", "naïve 日本語 😀", "<s>the<|end|> <0x61>", "\0")
_MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "the house"},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]},
]


def use_tokenizer(tokenizer: Tokenizer) -> None:
    """All that a language model asks of a tokenizer; ids stay in the vocabulary."""
    if tokenizer.vocab_size < 1:
        raise Wrong("vocabulary", f"a tokenizer of {tokenizer.vocab_size} tokens was accepted")
    for text in _TEXTS:
        for special in (False, True):
            ids = tokenizer.encode(text, bos=tokenizer.adds_bos, special=special)
            outside = [id for id in ids if not 0 <= id < tokenizer.vocab_size]
            if outside:
                raise Wrong(
                    "ids", f"{text!r} became {outside}, outside the {tokenizer.vocab_size} tokens there are"
                )
            tokenizer.decode(ids)
    stream = tokenizer.stream()
    for token in (0, 1, 2, tokenizer.vocab_size // 2, tokenizer.vocab_size - 1, tokenizer.vocab_size + 7):
        stream.push(token)  # a model's table of logits may be larger than its vocabulary
        tokenizer.token_bytes(token)
    stream.finish()
    tokenizer.token_text(tokenizer.vocab_size - 1)
    tokenizer.token_id("<s>")
    with suppress(PteronError):
        tokenizer.encode("half a character: \ud800")


def _tokenizer_run(name: str) -> Callable[[bytes], str]:
    def run(data: bytes) -> str:
        with written({name: data}) as folder:
            use_tokenizer(load_tokenizer(folder))
        return "used"

    return run


def _run_gguf_tokenizer(data: bytes) -> str:
    with written({"model.gguf": data}) as folder:
        use_tokenizer(load_tokenizer(folder / "model.gguf"))
    return "used"


def _run_settings(data: bytes) -> str:
    files = parted(data)
    with written({"tokenizer.bin": _llama2c(), **files}) as folder:
        with suppress(PteronError):  # there is no program: it never gets further than that
            LLM(folder)
        tokenizer = load_tokenizer(folder)
    use_tokenizer(tokenizer)
    render(_MESSAGES, tokenizer.chat_template)
    return "used"


def _run_template(data: bytes) -> str:
    template = data.decode("utf-8", "replace")
    for messages in (_MESSAGES, _MESSAGES[:1], []):
        render(messages, template, bos="<s>", eos="</s>", tools=None)
    return "rendered"


# Seeds ------------------------------------------------------------------------------------------


def _seeds(pattern: str) -> Callable[[], Iterator[bytes]]:
    return lambda: (file.read_bytes() for file in sorted(SEEDS.glob(pattern)))


def _llama2c() -> bytes:
    pieces = [
        b"<unk>",
        b"<s>",
        b"</s>",
        *(bytes([byte]) for byte in range(256)),
        *(b" ", b"t", b"h", b"he", b" t"),
    ]
    head = struct.pack("<i", 8)
    return head + b"".join(
        struct.pack("<fi", -float(id), len(piece)) + piece for id, piece in enumerate(pieces)
    )


def _ranks() -> Iterator[bytes]:
    tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" the"]
    yield b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))


def _gguf_vocabularies() -> Iterator[bytes]:
    tokens = ["<unk>", "<s>", "</s>", "<0x61>", "t", "h", "e", "th", "▁the", "▁"]
    common = {"tokens": tokens, "token_type": [2, 3, 3, 6, 1, 1, 1, 4, 1, 1], "add_bos_token": True}
    scores = {"scores": [-float(id) for id in range(len(tokens))]}
    yield _gguf({"model": "gpt2", "pre": "llama-bpe", "merges": ["t h"], "bos_token_id": 1} | common)
    yield _gguf({"model": "llama", "eos_token_id": 2, "add_space_prefix": False} | common | scores)
    yield _gguf({"model": "t5", "remove_extra_whitespaces": True, "eos_token_id": 2} | common | scores)
    yield _gguf({"model": "bert", "unknown_token_id": 0, "bos_token_id": 1, "seperator_token_id": 2} | common)


def _gguf(fields: dict[str, Any]) -> bytes:
    """A GGUF file with these fields of a tokenizer, and no tensors."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def single(value: Any) -> tuple[int, bytes]:
        if isinstance(value, str):
            return 8, text(value)
        code, kind = {bool: ("?", 7), int: ("i", 5), float: ("f", 6)}[type(value)]
        return kind, struct.pack(f"<{code}", value)

    def typed(value: Any) -> bytes:
        if not isinstance(value, list):
            kind, data = single(value)
            return struct.pack("<I", kind) + data
        items = [single(item) for item in value]
        return struct.pack("<IIQ", 9, items[0][0], len(items)) + b"".join(data for _, data in items)

    packed = [text(f"tokenizer.ggml.{name}") + typed(value) for name, value in fields.items()]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(packed)) + b"".join(packed)


def _settings() -> Iterator[bytes]:
    yield joined(
        {
            "pteron.json": b'{"model": "model.pte", "tokenizer": "tokenizer.bin", "eos_ids": [1, 2]}',
            "generation_config.json": b'{"bos_token_id": 1, "eos_token_id": [2, 2]}',
            "tokenizer_config.json": b'{"bos_token": {"content": "<s>"}, "add_bos_token": true, '
            b'"chat_template": [{"name": "default", "template": "{{ messages[0].content }}"}]}',
            "special_tokens_map.json": b'{"eos_token": "</s>"}',
            "config.json": b'{"bos_token_id": 1}',
            "chat_template.jinja": b"{% for message in messages %}{{ message.content }}{% endfor %}",
        }
    )
    yield joined({"tokenizer_config.json": b'{"chat_template": "{{ messages }}"}'})


_TEMPLATES = (
    b"{% for m in messages %}{{ '<|' + m.role + '|>' }}\n{{ m.content | trim }}{{ eos_token }}\n{% endfor %}"
    b"{% if add_generation_prompt %}<|assistant|>{% endif %}",
    b"{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}{% set n = namespace(x=0) %}"
    b"{% for m in messages if m.role != 'system' %}{% set n.x = n.x + loop.index0 %}{{ n.x }}"
    b"{% if loop.last %}{{ raise_exception('no') if n.x > 9 else '' }}{% break %}{% endif %}{% endfor %}",
    b"{% macro show(x, depth=0) %}{{ x if depth > 2 else show(x, depth + 1) }}{% endmacro %}{{ show('a') }}"
    b"{{ strftime_now('%Y-%m-%d') }}{{ messages[0]['content'].split('.')[0].upper() }}",
)


_TREE = tree_mutation(
    "BPE", "Unigram", "WordPiece", "WordLevel", "ByteLevel", "Metaspace", "Sequence", "Replace", "Strip"
)

COMPANION_TARGETS = [
    Target(
        name="tokenizer_json",
        run=_tokenizer_run("tokenizer.json"),
        seeds=_seeds("*.tokenizer.json"),
        mutate=_TREE,
        suffix=".json",
        needs=("tokenizers",),
        seconds=4,
    ),
    Target(
        name="tokenizer_model",
        run=_tokenizer_run("tokenizer.model"),
        seeds=_seeds("*.tokenizer.model"),
        mutate=havoc,
        suffix=".model",
        needs=("sentencepiece",),
        seconds=4,
    ),
    Target(
        name="tiktoken",
        run=_tokenizer_run("small.tiktoken"),
        seeds=_ranks,
        mutate=havoc,
        suffix=".tiktoken",
        needs=("tiktoken",),
    ),
    Target(
        name="llama2c",
        run=_tokenizer_run("tokenizer.bin"),
        seeds=lambda: iter([_llama2c()]),
        mutate=havoc,
        suffix=".bin",
    ),
    Target(
        name="gguf_tokenizer",
        run=_run_gguf_tokenizer,
        seeds=_gguf_vocabularies,
        mutate=havoc,
        suffix=".gguf",
        needs=("tokenizers",),
        seconds=4,
    ),
    Target(
        name="settings",
        run=_run_settings,
        seeds=_settings,
        mutate=member_mutation({".json": tree_mutation("<s>", "</s>")}),
        suffix=".folder",
        needs=("jinja2",),
        seconds=4,
    ),
    Target(
        name="template",
        run=_run_template,
        seeds=lambda: iter(_TEMPLATES),
        mutate=havoc,
        suffix=".jinja",
        needs=("jinja2",),
        seconds=4,
    ),
]
