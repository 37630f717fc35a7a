"""`tokenizer.ggml.pre` of a GGUF file -> how a byte-level vocabulary splits text into words.

The file has only the name of a rule. A rule is a list of patterns in the syntax of `tokenizers`: each
isolates its matches in the parts that the patterns before it left. The patterns are those of each family's
tokenizer.json. llama.cpp, which defines the names, rewrites some of them for its own regex engine; the
original is used here.
"""

from __future__ import annotations

from dataclasses import dataclass

from pteron.llm.tokenizers.tiktoken_ranks import words


@dataclass(frozen=True)
class WordRule:
    patterns: tuple[str, ...]
    whole_words: bool = False  # a word that is a token is not built by merges
    adds_bos: bool = False  # unless the file says otherwise
    nfc: bool = False  # text is normalised to NFC


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
DIGIT, THREE_DIGITS = r"\p{N}", r"\p{N}{1,3}"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"  # noqa: RUF001


def cased_words(
    digits: str, suffix: str = f"{CONTRACTIONS}?", after: str = r"[\r\n/]*", without: str = ""
) -> str:
    """GPT-4o's pattern: a word ends where an upper-case letter follows a lower-case one. `after` may follow
    punctuation; `without` narrows the classes of letters."""
    upper = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{without}]"
    lower = rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{without}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{before}{upper}*{lower}+{suffix}|{before}{upper}+{lower}*{suffix}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+{after}|{SPACES}"
    )


def marked_words(after: str = r"[\r\n]*", spaces: str = SPACES) -> str:
    """DeepSeek-V3's pattern: a mark stays with the Latin letters after it."""
    return (
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        rf"| ?[\p{{P}}\p{{S}}]+{after}|{spaces}"
    )


# Ranges are escaped: an editor could normalise their ends into other characters.
CHINESE_JAPANESE = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
CHINESE_KOREAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
ASIAN_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[！…“”‘’—：；，\u3001-\u303f\ufe30-\ufe4f]+"  # noqa: RUF001
    "|[\u3105-\u312f]+|" + CHINESE_JAPANESE
)
CASED_LETTERS = (  # of DeepSeek-LLM: letters with two cases, in blocks of Unicode 11
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{CASED_LETTERS}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    CHINESE_KOREAN,
    r"\p{N}+",
)
DEEPSEEK_V3 = (THREE_DIGITS, CHINESE_JAPANESE, marked_words())
SPARK = (THREE_DIGITS, CHINESE_JAPANESE, marked_words("", r"[\r\n]|\s+(?!\S)|\s+"), DIGIT)
AFMOE = (r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", ASIAN_SCRIPTS, marked_words())
CHAMELEON = (
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    DIGIT,
    r"[\p{P}!-/:-@\[-`{-~]",
    GPT_2,
)
LONG_SPACES = "|".join(rf"\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
JAIS_2 = words(THREE_DIGITS).removesuffix(r"\s+(?!\S)|\s+") + LONG_SPACES + r"|\s{1}"
EXAONE_MOE = (
    rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
SEED_CODER = (
    rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{SPACES}"
)
QWEN_35 = (
    rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}"
)
KIMI = r"[\p{Han}]+|" + cased_words(THREE_DIGITS, after=r"[\r\n]*", without=r"&&[^\p{Han}]")

# Names that share their patterns, then the patterns.
_PATTERNS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", GPT_2, "[0-9][0-9][0-9]"),
    "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum modern-bert exaone4 "
    "roberta-bpe jina-v1-en jina-v2-code jina-v2-es jina-v2-de jina-es jina-de": (GPT_2,),
    "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": (DIGIT, GPT_2),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe glm4 "
    "chatglm-bpe": (words(THREE_DIGITS),),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": (words(DIGIT),),
    "qwen35": (QWEN_35,),
    "gpt-4o llama4 kanana2 talkie minimax-m2 granite-embed-multi-97m": (cased_words(THREE_DIGITS),),
    "tekken": (cased_words(DIGIT, suffix=""),),
    "tiny_aya cohere2moe": (r"\d{1,3}(?=(?:\d{3})*\b)", cased_words(THREE_DIGITS)),
    "youtu": (YOUTU_SCRIPTS, cased_words(DIGIT)),
    "kimi-k2": (KIMI,),
    "deepseek-llm": DEEPSEEK_LLM,
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CHINESE_KOREAN, DIGIT),
    "deepseek-v3 hunyuan-dense hy_v4 joyai-llm": DEEPSEEK_V3,
    "spark2_5": SPARK,
    "afmoe": AFMOE,
    "bloom poro-chat gpt3-finnish": (BLOOM,),
    "viking": (BLOOM, DIGIT),
    "chameleon": CHAMELEON,
    "superbpe": (r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "bailingmoe bailingmoe2 llada-moe": (BAILING,),
    "seed-coder": (SEED_CODER,),
    "exaone-moe": (EXAONE_MOE,),
    "jais-2": (JAIS_2,),
    "minicpm5": (THREE_DIGITS, words(r"\p{N}+")),
    "laguna": (r"[^\n]+|[\n]+", words(DIGIT)),
    "ufakzeka": (words(DIGIT).removeprefix(f"{CONTRACTIONS}|"),),
}
_OPENED = {
    "llama-bpe",
    "llama3",
    "llama-v3",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
}
_OPENED |= {"tekken"}
_WHOLE_WORDS = _OPENED | {"youtu", "granite-embed-multi-97m", "minicpm5"}
_NFC = {"qwen2", "qwen35", "deepseek-r1-qwen", "f2llmv2", "stablelm2", "hunyuan"}
_NFC |= {"mpt", "olmo", "modern-bert", "command-r"}

WORD_RULES = {
    name: WordRule(patterns, name in _WHOLE_WORDS, name in _OPENED | {"chameleon"}, name in _NFC)
    for names, patterns in _PATTERNS.items()
    for name in names.split()
}

# Merges of SentencePiece's pieces, across words; whether texts begin with BOS.
PIECE_RULES = {"gemma4": True, "granite-embed-multi-311m": True, "sarvam-moe": False}
