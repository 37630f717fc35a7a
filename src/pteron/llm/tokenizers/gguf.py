"""The tokenizer in a GGUF file's metadata -> a `tokenizers.Tokenizer`, special tokens, chat template.

Missing fields have llama.cpp's defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.extras import need
from pteron.format.gguf import read_metadata
from pteron.llm.tokenizers import gguf_models as models
from pteron.llm.tokenizers.gguf_fields import CONTROL, PREFIX, UNKNOWN, USER_DEFINED, TokenizerFields
from pteron.llm.tokenizers.huggingface import HuggingFaceTokenizer
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.names.model_files import as_format_error, choose_template

# Tokens that end an answer, in any vocabulary that has them.
END_NAMES = """
<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s>
<|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> [e~[
<｜end▁of▁sentence｜> <|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO>
<reponame> <|file_sep|>
""".split()  # noqa: RUF001, SIM905
END_ROLES = ("eot", "eom", "fim_pad", "fim_rep", "fim_sep")
# A token that ends only a part of an answer if the vocabulary also has the other tokens.
NOT_ENDS = (
    ("<|end|>", {"<|return|>", "<|call|>"}),
    ("<|end|>", {"<|flush|>", "<|calls|>"}),
    ("</s>", {"<|tool_response>"}),
)


@dataclass(frozen=True)
class Kind:
    """What `tokenizer.ggml.model` says: the model, default ids, and which of them surround a text."""

    build: Callable[[Any, TokenizerFields, int | None], Any]
    bos: int | None = None
    eos: int | None = None
    unknown: int | None = None
    separator: int | None = None  # follows each text, if a kind has it
    adds_bos: bool = False
    adds_eos: bool = False


KINDS = {
    "gpt2": Kind(models.byte_level),
    "gemma4": Kind(models.merged_pieces, adds_bos=True),
    "llama": Kind(models.scored_pieces, bos=1, eos=2, unknown=0, adds_bos=True),
    "bert": Kind(models.word_pieces, bos=101, unknown=100, separator=102, adds_bos=True),
    "t5": Kind(models.unigrams, eos=1, unknown=2, adds_eos=True),
}
_NONE = "the file has no tokenizer: give the model's tokenizer.json, with `--tokenizer` or `tokenizer=`"
REFUSED = {
    "none": _NONE,
    "no_vocab": _NONE,
    "rwkv": "RWKV's tokenizer is not supported",
    "plamo2": "PLaMo 2's tokenizer is not supported",
    "hybriddna": "tokenizers of DNA sequences are not supported",
    "whitespace": "byte pairs of characters (jina-embeddings-v2-base-zh) are not supported",
}


@dataclass(frozen=True)
class GgufVocabulary:
    tokenizer: Any  # a `tokenizers.Tokenizer`
    bos_id: int | None
    eos_ids: tuple[int, ...]  # tokens that end an answer, first the one that ends a text
    adds_bos: bool
    chat_template: str | None


def load_gguf_tokenizer(file: Path) -> Tokenizer:
    vocabulary = read_gguf_vocabulary(read_metadata(file), file.name)
    with as_format_error(f"{file.name}: its tokenizer is invalid"):
        tokenizer = HuggingFaceTokenizer(vocabulary.tokenizer, file.name)
    tokenizer.bos_id, tokenizer.eos_ids = vocabulary.bos_id, vocabulary.eos_ids
    tokenizer.adds_bos, tokenizer.chat_template = vocabulary.adds_bos, vocabulary.chat_template
    return tokenizer


def read_gguf_vocabulary(metadata: dict[str, Any], name: str) -> GgufVocabulary:
    """`metadata`: all fields of the file, which messages call `name`."""
    model = str(metadata.get(f"{PREFIX}model", "none"))
    if model in REFUSED:
        raise UnsupportedError(f"{name}: {REFUSED[model]}")
    if model not in KINDS:
        raise UnsupportedError(f"{name}: tokenizer of kind {shortened(model)}; known are {', '.join(KINDS)}")
    kind = KINDS[model]
    library = need("tokenizers", f"converting the tokenizer of {name}")
    with as_format_error(f"{name}: its tokenizer is invalid"):
        fields = TokenizerFields(metadata, name)
        bos, eos = fields.token("bos", kind.bos), fields.token("eos", kind.eos)
        unknown = fields.ids.get(next(fields.of_type(UNKNOWN), ""), kind.unknown)
        tokenizer = kind.build(library, fields, fields.token("unknown", unknown))
        ends = _ends(fields, eos)
        drops_space = "phi-3" in str(metadata.get("general.name")).lower().replace("phi3", "phi-3")
        _add_tokens(library, tokenizer, fields, ends, drops_space)
        adds_bos = fields.flag("add_bos_token", kind.adds_bos or models.opens_texts(fields, model))
        before = bos if adds_bos else None
        after = eos if fields.flag("add_eos_token", kind.adds_eos) else None
        if kind.separator is not None:
            after = fields.token("seperator", kind.separator)  # so spelled in files
        _surround(library, tokenizer, fields, before, after)
    return GgufVocabulary(tokenizer, bos, ends, before is not None, _chat_template(metadata, name))


def _ends(fields: TokenizerFields, eos: int | None) -> tuple[int, ...]:
    named = {token: fields.ids[token] for token in END_NAMES if token in fields.ids}
    for token, others in NOT_ENDS:
        if others <= named.keys():
            named.pop(token, None)
    ids = [eos, *(fields.token(role) for role in END_ROLES), *sorted(named.values())]
    return tuple(dict.fromkeys(id for id in ids if id is not None))


def _add_tokens(
    library: Any, tokenizer: Any, fields: TokenizerFields, ends: tuple[int, ...], drops_space: bool
) -> None:
    """Tokens that are found in a text before it is split: control tokens, only in rendered prompts, and those
    that the file calls user-defined. `drops_space`: Phi-3 drops white space after its control tokens."""
    special = {*fields.of_type(CONTROL, UNKNOWN), *(fields.tokens[id] for id in ends)}
    keep_space = {"<unk>", "<s>", "<|endoftext|>"} if drops_space else special
    added = [
        library.AddedToken(token, special=True, normalized=False, rstrip=token not in keep_space)
        for token in sorted(special, key=lambda token: fields.ids[token])
    ]
    tokenizer.add_special_tokens(added)
    plain = [token for token in fields.of_type(USER_DEFINED) if token not in special]
    tokenizer.add_tokens([library.AddedToken(token, normalized=False) for token in plain])


def _surround(
    library: Any, tokenizer: Any, fields: TokenizerFields, before: int | None, after: int | None
) -> None:
    """Let the tokenizer put a token before and after a whole text."""
    marks = {mark: id for mark, id in (("before", before), ("after", after)) if id is not None}
    if marks:
        tokenizer.post_processor = library.processors.TemplateProcessing(
            single=[mark for mark in ("before", "$A", "after") if mark == "$A" or mark in marks],
            special_tokens=[
                {"id": mark, "ids": [id], "tokens": [fields.tokens[id]]} for mark, id in marks.items()
            ],
        )


def _chat_template(metadata: dict[str, Any], name: str) -> str | None:
    key = "tokenizer.chat_template"
    named = {
        field.removeprefix(key).removeprefix(".") or "default": template
        for field, template in metadata.items()
        if field == key or field.startswith(f"{key}.")
    }
    for which, template in named.items():
        if not isinstance(template, str):
            raise FormatError(f"{name}: its chat template {which!r} is not a text")
    return choose_template(named)
