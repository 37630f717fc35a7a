"""The tokenizer in a GGUF file's metadata -> a tokenizer.json.

Byte-level vocabularies ("gpt2") contain their merges, but only a name for the rule that splits text into
words: PRE_TOKENIZERS has the rules. SentencePiece vocabularies ("llama") contain scores, from which merges
follow.
"""

from __future__ import annotations

from collections.abc import Callable
from reprlib import repr as shortened
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.extras import need
from pteron.llm.export.checkpoint import Vocabulary
from pteron.llm.tokenizers.tiktoken_ranks import words

_PIECE_MAX = 1024
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # of tokenizer.ggml.token_type


def read_vocabulary(fields: dict[str, Any], name: str) -> Vocabulary:
    metadata = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in fields.items()
        if key.startswith("tokenizer.ggml.")
    }
    kind = metadata.get("model")
    if kind not in BUILDERS:
        raise UnsupportedError(f"{name}: tokenizer of kind {kind!r}; known are {', '.join(BUILDERS)}")
    tokenizers = need("tokenizers", f"converting the tokenizer of {name}")
    tokenizer = BUILDERS[kind](tokenizers, metadata, name)
    types = metadata.get("token_type") or []
    for wanted, special in ((CONTROL, True), (USER_DEFINED, False)):
        texts = [metadata["tokens"][id] for id, type in enumerate(types) if type == wanted]
        added = [tokenizers.AddedToken(text, special=special, normalized=False) for text in texts]
        tokenizer.add_special_tokens(added) if special else tokenizer.add_tokens(added)
    ends = [_token(metadata, key, name) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
    template = fields.get("tokenizer.chat_template")
    if not isinstance(template, (str, type(None))):
        raise FormatError(f"{name}: its chat template is not a string")
    return Vocabulary(
        "tokenizer.json",
        {"tokenizer.json": tokenizer.to_str().encode()},
        _token(metadata, "bos_token_id", name),
        tuple(dict.fromkeys(id for id in ends if id is not None)),
        bool(metadata.get("add_bos_token", kind == "llama")),
        template,
    )


def _token(metadata: dict[str, Any], key: str, name: str) -> int | None:
    id, count = metadata.get(key), len(metadata["tokens"])
    if id is None:
        return None
    if not isinstance(id, int) or not 0 <= id < count:
        raise FormatError(f"{name}: {key} is {shortened(id)}, not one of its {count} tokens")
    return id


def _digits(library: Any) -> Any:
    """Single digits, otherwise GPT-2's words."""
    steps = library.pre_tokenizers
    return steps.Sequence([steps.Digits(individual_digits=True), steps.ByteLevel(add_prefix_space=False)])


def _pattern(pattern: str) -> Callable[[Any], Any]:
    def build(library: Any) -> Any:
        steps = library.pre_tokenizers
        split = steps.Split(library.Regex(pattern), behavior="isolated")
        return steps.Sequence([split, steps.ByteLevel(add_prefix_space=False, use_regex=False)])

    return build


def _words(library: Any) -> Any:
    return library.pre_tokenizers.ByteLevel(add_prefix_space=False)


PRE_TOKENIZERS: dict[str, Callable[[Any], Any]] = {
    "default": _words,
    "gpt-2": _words,
    "smollm": _digits,
    "starcoder": _digits,
    "refact": _digits,
    "llama-bpe": _pattern(words(r"\p{N}{1,3}")),
    "qwen2": _pattern(words(r"\p{N}")),
}


def _byte_level(library: Any, metadata: dict[str, Any], name: str) -> Any:
    kind = metadata.get("pre", "default")
    if kind not in PRE_TOKENIZERS:
        raise UnsupportedError(f"{name}: pre-tokenizer {kind!r}; known are {', '.join(PRE_TOKENIZERS)}")
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["merges"]]
    ids = {token: id for id, token in enumerate(metadata["tokens"])}
    # Llama 3's vocabulary has words that no sequence of merges gives.
    whole = kind == "llama-bpe"
    tokenizer = library.Tokenizer(library.models.BPE(ids, merges, ignore_merges=whole))
    if kind == "qwen2":
        tokenizer.normalizer = library.normalizers.NFC()
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[kind](library)
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _scored(library: Any, metadata: dict[str, Any], name: str) -> Any:
    pieces: list[str] = metadata["tokens"]
    longest = max(map(len, pieces), default=0)
    if longest > _PIECE_MAX:  # all splits of a piece are tried
        raise FormatError(f"{name}: a token of {longest} characters; the most is {_PIECE_MAX}")
    ids = {piece: id for id, piece in enumerate(pieces)}
    unknown = next((pieces[id] for id, type in enumerate(metadata["token_type"]) if type == UNKNOWN), None)
    scores = metadata["scores"]
    merges = [
        (scores[id], id, (piece[:cut], piece[cut:]))
        for piece, id in ids.items()
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    merges.sort(key=lambda merge: (-merge[0], merge[1]))
    model = library.models.BPE(
        ids, [pair for _, _, pair in merges], unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    tokenizer = library.Tokenizer(model)
    prefixed = metadata.get("add_space_prefix", True)
    replace = library.normalizers.Replace(" ", "▁")
    prepend = [library.normalizers.Prepend("▁")] if prefixed else []
    tokenizer.normalizer = library.normalizers.Sequence([*prepend, replace])
    decoders = library.decoders
    strip = [decoders.Strip(" ", 1, 0)] if prefixed else []
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


BUILDERS: dict[str, Callable[[Any, dict[str, Any], str], Any]] = {"gpt2": _byte_level, "llama": _scored}
