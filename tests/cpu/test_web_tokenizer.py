"""Tokenizers of sites: the player's, run by node, gives the ids of Python's for texts of many kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from node_fixtures import node

from pteron.errors import UnsupportedError
from pteron.llm.tokenizers.huggingface import HuggingFaceTokenizer
from pteron.llm.tokenizers.llama2c import Llama2cTokenizer
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.llm.tokenizers.word_rules import WORD_RULES
from pteron.web.language import chat_form
from pteron.web.tokenizer_json import tokenizer_json

library = pytest.importorskip("tokenizers")

STORIES = Path(__file__).parents[2] / "src" / "pteron" / "models" / "stories15m"
TRAINED_ON = """Once upon a time there was a robot. It's 1234 years old, isn't it? WE'LL SEE: don't.
    for (int i = 0; i < 10; i++) { print("naïve Ωmega"); }\n\n\tEs war einmal ein Räuber. 日本語のテキスト。
"""
TEXTS = [
    "",
    " ",
    "Once upon a time",
    "  two  spaces\n\ttab\r\n\n\n   end  ",
    "It's I'LL we've DON'T 'tis",
    "1 12 123 1234 12345 3.14159 ½ ²",
    "naïve Ωmega 日本語のテキスト 🙂👩‍👩‍👧 é ﬁ",
    "x" * 70 + "!?!?...--__",
    "<|mark|>user<|mark|> <plain> text",
    "{'a': [1, 2], \"b\": \\n}",
]
SCRIPT = """
const { load } = await import("./test/load.mjs");
const { Tokenizer, TextStream } = await load("player/tokenizer.ts");
const { readFileSync } = await import("node:fs");
const { all, texts } = JSON.parse(readFileSync(process.argv[1], "utf8"));
console.log(JSON.stringify(all.map((json) => {
  const tokenizer = new Tokenizer(json);
  return texts.map((text) => {
    const stream = new TextStream(tokenizer, []);
    const ids = tokenizer.encode(text);
    const decoded = ids.map((id) => stream.push(id).text).join("") + stream.finish().text;
    return [ids, tokenizer.encode(text, true), decoded];
  });
})));
"""


def check(tokenizers: list[Tokenizer], folder: Path) -> None:
    given = folder / "given.json"
    given.write_text(json.dumps({"all": list(map(tokenizer_json, tokenizers)), "texts": TEXTS}), "utf-8")
    results = json.loads(node("--input-type=module", "-e", SCRIPT, str(given)))
    for tokenizer, found in zip(tokenizers, results, strict=True):
        for text, (plain, special, decoded) in zip(TEXTS, found, strict=True):
            ids = tokenizer.encode(text, bos=tokenizer.adds_bos)
            assert plain == ids, (tokenizer.name, text)
            assert special == tokenizer.encode(text, bos=tokenizer.adds_bos, special=True), text
            stream = tokenizer.stream()
            assert decoded == "".join(map(stream.push, ids)) + stream.finish(), text


def trained(tokenizer: Any, **options: Any) -> HuggingFaceTokenizer:
    """A small vocabulary with two added tokens, one of them special."""
    trainer = library.trainers.BpeTrainer(vocab_size=420, show_progress=False, **options)
    tokenizer.train_from_iterator(TRAINED_ON.splitlines() * 3, trainer)
    tokenizer.add_special_tokens([library.AddedToken("<|mark|>", normalized=False)])
    tokenizer.add_tokens([library.AddedToken("<plain>", normalized=False)])
    return HuggingFaceTokenizer(tokenizer, "tokenizer.json")


def test_scores(tmp_path: Path) -> None:
    check([Llama2cTokenizer(STORIES / "tokenizer.bin")], tmp_path)


def test_fields_of_scores() -> None:
    """What a page reads, without node."""
    found = tokenizer_json(Llama2cTokenizer(STORIES / "tokenizer.bin"))
    added = {"isSpecial": True, "lstrip": False, "rstrip": False}
    names = ("<unk>", "<s>", "</s>")
    assert found.pop("added") == [{"id": id, "text": text, **added} for id, text in enumerate(names)]
    tokens, scores = found.pop("tokens"), found.pop("scores")
    assert (tokens[:4], tokens[258], tokens[-1]) == ([*names, "<0x00>"], "<0xFF>", "给")
    assert len(tokens) == len(scores)
    assert found == {
        "isByteLevel": False,
        "hidden": [0, 259],
        "normalize": [["prepend", " "]],
        "splits": [],
        "isWholeWord": False,
        "prefixSpace": False,
        "firstByte": 3,
        "unknown": 0,
        "bos": [1],
    }


@pytest.mark.parametrize("has_bytes", [False, True])
def test_fields_of_merges(has_bytes: bool) -> None:
    names = [f"<0x{byte:02X}>" for byte in range(0 if has_bytes else 1, 256)]
    model = library.models.BPE(
        {name: id for id, name in enumerate([*names, "<u>", "a", "b", "ab"])},
        [("a", "b")],
        unk_token="<u>",
        byte_fallback=True,
        ignore_merges=has_bytes,
    )
    tokenizer, back = library.Tokenizer(model), library.decoders
    tokenizer.decoder = back.Sequence([back.Replace("▁", " "), back.ByteFallback(), back.Fuse()])
    found = tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))
    assert (found["merges"], found["isWholeWord"], found["isByteLevel"]) == (["a b"], has_bytes, False)
    assert (found["firstByte"], found["unknown"]) == ((0, 256) if has_bytes else (-1, 255))


def test_pieces_with_byte_fallback(tmp_path: Path) -> None:
    """As Llama 2 and Gemma have them."""
    tokenizer = library.Tokenizer(library.models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    steps = library.normalizers
    tokenizer.normalizer = steps.Sequence([steps.Prepend("▁"), steps.Replace(" ", "▁")])
    back = library.decoders
    tokenizer.decoder = back.Sequence([back.Replace("▁", " "), back.ByteFallback(), back.Fuse()])
    names = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    check([trained(tokenizer, special_tokens=names, limit_alphabet=40)], tmp_path)


def test_words_of_bytes(tmp_path: Path) -> None:
    """By the rules of all families: a page cuts words as Python does, or the export says that it cannot."""
    steps, refused = library.pre_tokenizers, dict[str, str]()
    found: list[Tokenizer] = []
    for rule, name in {rule: name for name, rule in WORD_RULES.items()}.items():
        tokenizer = library.Tokenizer(library.models.BPE(ignore_merges=rule.whole_words))
        splits = [steps.Split(library.Regex(pattern), behavior="isolated") for pattern in rule.patterns]
        to_bytes = steps.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = steps.Sequence([*splits, to_bytes])
        tokenizer.decoder = library.decoders.ByteLevel()
        made = trained(tokenizer, initial_alphabet=steps.ByteLevel.alphabet())
        made.name = name
        try:
            tokenizer_json(made)
        except UnsupportedError as error:
            refused[name] = str(error)
        else:
            found.append(made)
    assert all("cannot be written in JavaScript" in problem for problem in refused.values())
    assert refused.keys() == {"kimi-k2"}  # classes without other classes
    check(found, tmp_path)


def test_spaces_around_added_tokens() -> None:
    """Which of them a token takes is a field of each."""
    tokenizer = library.Tokenizer(library.models.BPE({"a": 0}, []))
    tokenizer.decoder = library.decoders.ByteLevel()
    sides = {
        "<left>": (True, False),
        "<right>": (False, True),
        "<both>": (True, True),
        "<none>": (False, False),
    }
    for text, (left, right) in sides.items():
        token = library.AddedToken(text, lstrip=left, rstrip=right, normalized=False)
        tokenizer.add_special_tokens([token]) if left else tokenizer.add_tokens([token])
    added = tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))["added"]
    assert {each["text"]: (each["lstrip"], each["rstrip"]) for each in added} == sides
    assert [each["id"] for each in added if each["isSpecial"]] == [1, 3]


def test_steps_before_the_words() -> None:
    """What pages do with a text before they cut it, and with a space before it."""
    tokenizer = library.Tokenizer(library.models.BPE({"a": 0}, []))
    tokenizer.decoder = library.decoders.ByteLevel()
    before, cuts = library.normalizers, library.pre_tokenizers
    steps = [before.NFC(), before.NFKC(), before.Lowercase(), before.Replace("''", '"'), before.Prepend("_")]
    tokenizer.normalizer = before.Sequence(steps)
    written = tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))
    assert written["normalize"] == [["nfc"], ["nfkc"], ["lower"], ["replace", "''", '"'], ["prepend", "_"]]
    tokenizer.normalizer = None
    for scheme, expected in (("always", [["prepend", " "]]), ("never", [])):
        tokenizer.pre_tokenizer = cuts.Metaspace("_", scheme, split=False)
        found = tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))
        assert found["normalize"] == [*expected, ["replace", " ", "_"]]
    for individual, rule in ((True, r"\p{N}"), (False, r"\p{N}+")):
        tokenizer.pre_tokenizer = cuts.Digits(individual_digits=individual)
        assert tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))["splits"] == [rule]
    for prefix in (True, False):
        tokenizer.pre_tokenizer = cuts.ByteLevel(add_prefix_space=prefix, use_regex=False)
        found = tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))
        assert (found["isByteLevel"], found["prefixSpace"], found["splits"]) == (True, prefix, [])
    refused = (before.NFD(), before.Replace(library.Regex("a+"), "b"))
    for tokenizer.normalizer in refused:
        with pytest.raises(UnsupportedError, match="do not know the normalizer"):
            tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))


def test_added_tokens_that_pages_would_find_elsewhere_are_refused() -> None:
    tokenizer = library.Tokenizer(library.models.BPE({"a": 0}, []))
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.normalizer = library.normalizers.NFC()
    tokenizer.add_tokens([library.AddedToken("<plain>", normalized=True)])
    assert len(tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))["added"]) == 1
    tokenizer.normalizer = library.normalizers.Lowercase()
    with pytest.raises(UnsupportedError, match="added tokens that are normalized: <plain>"):
        tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))
    tokenizer.add_tokens([library.AddedToken("word", single_word=True)])
    tokenizer.normalizer = None
    with pytest.raises(UnsupportedError, match="added tokens that are whole words: word"):
        tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))


def test_other_tokenizers_are_refused() -> None:
    tokenizer = library.Tokenizer(library.models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.decoder = library.decoders.WordPiece("##")
    with pytest.raises(UnsupportedError, match="pages take byte pair encoding, not WordPiece"):
        tokenizer_json(HuggingFaceTokenizer(tokenizer, "tokenizer.json"))


CHATML = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "<|im_start|>system\nBe kind<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LAST_ONLY = "{{ messages[-1]['content'] }}{% if add_generation_prompt %}>{% endif %}"


def test_chat_templates_are_taken_apart() -> None:
    tokenizer = Llama2cTokenizer(STORIES / "tokenizer.bin")
    assert chat_form(tokenizer) is None
    tokenizer.chat_template = CHATML
    assert chat_form(tokenizer) == {
        "start": "<|im_start|>system\nBe kind<|im_end|>\n",
        "systemStart": "",
        "roles": {
            role: [f"<|im_start|>{role}\n", "<|im_end|>\n"] for role in ("system", "user", "assistant")
        },
        "answer": "<|im_start|>assistant\n",
        "trim": True,
    }
    tokenizer.chat_template = LAST_ONLY  # no texts around messages can say this
    assert chat_form(tokenizer) is None
