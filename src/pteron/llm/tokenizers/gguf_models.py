"""The vocabulary of a GGUF file -> a `Tokenizer` of the library `tokenizers`, one function per kind.

Each takes the library, the fields of the file and the id of the unknown token.
"""

from __future__ import annotations

import re
from reprlib import repr as shortened
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.tokenizers.gguf_fields import BYTE, CONTROL, PREFIX, UNKNOWN, TokenizerFields
from pteron.llm.tokenizers.word_rules import PIECE_RULES, WORD_RULES

SPACE = "▁"  # SentencePiece's mark of a space
NOT_TEXT = (UNKNOWN, CONTROL, BYTE)  # types of tokens whose texts are names
_PIECE_MAX = 1024


def opens_texts(fields: TokenizerFields, model: str) -> bool:
    """Whether texts of a vocabulary with merges begin with BOS, if the file does not say it."""
    name = fields.text("pre", "default")
    return model == "gpt2" and (PIECE_RULES[name] if name in PIECE_RULES else WORD_RULES[name].adds_bos)


def byte_level(library: Any, fields: TokenizerFields, unknown: int | None) -> Any:
    """Byte pairs ("gpt2"): the file has merges and the name of the rule that splits words."""
    name = fields.text("pre", "default")
    if name in PIECE_RULES:
        return merged_pieces(library, fields, unknown)
    if name not in WORD_RULES:
        known = ", ".join([*WORD_RULES, *PIECE_RULES])
        raise UnsupportedError(f"{fields.name}: {PREFIX}pre is {shortened(name)}; known are {known}")
    rule, steps = WORD_RULES[name], library.pre_tokenizers
    tokenizer = library.Tokenizer(
        library.models.BPE(fields.ids, _merges(fields), ignore_merges=rule.whole_words)
    )
    if rule.nfc:
        tokenizer.normalizer = library.normalizers.NFC()
    splits = [steps.Split(library.Regex(pattern), behavior="isolated") for pattern in rule.patterns]
    to_bytes = steps.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = steps.Sequence([*splits, to_bytes])
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _merges(fields: TokenizerFields) -> list[tuple[str, str]]:
    pairs, ids = [], fields.ids
    for merge in fields.list_of("merges", str):
        cut = merge.find(" ", 1)  # the first part may be a space
        left, right = merge[:cut], merge[cut + 1 :]
        if cut < 0 or not (left in ids and right in ids and left + right in ids):
            raise FormatError(
                f"{fields.name}: {PREFIX}merges has {shortened(merge)}, not two tokens that make a third"
            )
        pairs.append((left, right))
    return pairs


def merged_pieces(library: Any, fields: TokenizerFields, unknown: int | None) -> Any:
    """SentencePiece's pieces with merges ("gemma4")."""
    return _pieces(library, fields, unknown, _merges(fields), fields.flag("add_space_prefix", False))


def scored_pieces(library: Any, fields: TokenizerFields, unknown: int | None) -> Any:
    """SentencePiece's pieces with scores ("llama"): neighbours whose piece has the highest score merge."""
    longest = max(map(len, fields.tokens), default=0)
    if longest > _PIECE_MAX:  # all splits of a piece are tried
        raise FormatError(f"{fields.name}: a token of {longest} characters; the most is {_PIECE_MAX}")
    scores, ids = fields.per_token("scores", int, float), fields.ids
    merges = [
        (-scores[id], id, (piece[:cut], piece[cut:]))
        for piece, id in ids.items()
        if fields.types[id] not in NOT_TEXT
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    merges.sort(key=lambda merge: merge[:2])
    pairs = [pair for _, _, pair in merges]
    return _pieces(library, fields, unknown, pairs, fields.flag("add_space_prefix", True))


def _pieces(
    library: Any, fields: TokenizerFields, unknown: int | None, merges: list[tuple[str, str]], prefix: bool
) -> Any:
    unknown_text = None if unknown is None else fields.tokens[unknown]
    tokenizer = library.Tokenizer(
        library.models.BPE(fields.ids, merges, unk_token=unknown_text, fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = library.normalizers.Sequence(_mark_spaces(library, prefix))
    tokenizer.decoder = _join_pieces(library, prefix)
    return tokenizer


def _mark_spaces(library: Any, prefix: bool) -> list[Any]:
    steps = library.normalizers
    return [*([steps.Prepend(SPACE)] if prefix else []), steps.Replace(" ", SPACE)]


def _join_pieces(library: Any, prefix: bool) -> Any:
    steps = library.decoders
    strip = [steps.Strip(" ", 1, 0)] if prefix else []
    return steps.Sequence([steps.Replace(SPACE, " "), steps.ByteFallback(), steps.Fuse(), *strip])


def unigrams(library: Any, fields: TokenizerFields, unknown: int | None) -> Any:
    """SentencePiece's unigram model ("t5"): the pieces with the highest sum of scores."""
    scores = map(float, fields.per_token("scores", int, float))
    scored = list(zip(fields.tokens, scores, strict=False))
    tokenizer = library.Tokenizer(library.models.Unigram(scored, unknown, BYTE in fields.types))
    prefix = fields.flag("add_space_prefix", True)
    steps, replace = library.normalizers, library.normalizers.Replace
    normalizers = []
    if "precompiled_charsmap" in fields:
        charsmap = bytes(value & 0xFF for value in fields.list_of("precompiled_charsmap", int))
        normalizers.append(steps.Precompiled(charsmap))
    if fields.flag("remove_extra_whitespaces", False):
        normalizers += [replace(library.Regex(r"\A +| +\z"), ""), replace(library.Regex(" {2,}"), " ")]
    tokenizer.normalizer = steps.Sequence([*normalizers, *_mark_spaces(library, prefix)])
    # The model finds tokens of all types in a text. Names are cut after their first character.
    names = [token for token in fields.of_type(*NOT_TEXT) if len(token) > 1]
    if names:
        cuts = "|".join(f"(?<={re.escape(name[0])})(?={re.escape(name[1:])})" for name in names)
        tokenizer.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(cuts), behavior="isolated")
    tokenizer.decoder = _join_pieces(library, prefix)
    return tokenizer


def word_pieces(library: Any, fields: TokenizerFields, unknown: int | None) -> Any:
    """BERT's word pieces. The file marks beginnings of words with ▁ instead of the other pieces with ##."""
    names = set(fields.of_type(*NOT_TEXT))
    is_marked = any(token.startswith(SPACE) for token in fields.tokens)

    def original(token: str) -> str:
        if token in names or not is_marked:
            return token
        return token.removeprefix(SPACE) if token.startswith(SPACE) else f"##{token}"

    ids = {original(token): id for token, id in fields.ids.items()}
    if unknown is None:
        raise FormatError(f"{fields.name}: {PREFIX}unknown_token_id is missing")
    unknown_text = original(fields.tokens[unknown])
    tokenizer = library.Tokenizer(library.models.WordPiece(ids, unk_token=unknown_text))
    lowercase = fields.flag("normalizer.lowercase", True)
    tokenizer.normalizer = library.normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=fields.flag("normalizer.strip_accents", lowercase)
    )
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = library.decoders.WordPiece("##")
    return tokenizer
