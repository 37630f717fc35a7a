"""A language model in a browser: tokens are those of Python, drawn on the GPU, greedy and by seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from site_fixtures import SitePage

from pteron.llm import LLM
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.web import export_web
from pteron.web.language import chat_form

Open = Callable[..., SitePage]
STORIES = Path(__file__).parents[2] / "src" / "pteron" / "models" / "stories15m"
PROMPT = "Once upon a time, there was a little robot. Its name was Zoë — and it liked"
CASES = [
    (PROMPT, {"max_new_tokens": 20, "temperature": 0.0}),
    (PROMPT, {"max_new_tokens": 20, "temperature": 0.8, "top_p": 0.9, "top_k": 50, "seed": 7}),
    ("The", {"max_new_tokens": 12, "temperature": 1.0, "repetition_penalty": 1.3, "seed": 3}),
]
NAMES = {
    "max_new_tokens": "maxTokens",
    "top_p": "topP",
    "top_k": "topK",
    "repetition_penalty": "repetitionPenalty",
}


@pytest.fixture(scope="module")
def stories_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stories")
    export_web("stories15m", folder, variants=["software"], lengths=[1, 16])
    return folder


def test_tokens_are_those_of_python(stories_site: Path, open_site: Open) -> None:
    """Prompts are cut into planned lengths, the second one continues a cached prefix, sequences alternate."""
    given: list[Any] = [
        [prompt, {NAMES.get(name, name): value for name, value in options.items()}]
        for prompt, options in CASES
    ]
    results = open_site(stories_site).run(
        "const program = await load();"
        "const other = await program.sequence();"
        "const tell = async (each, [prompt, options]) => {"
        "  const pieces = [];"
        "  for await (const piece of each.generate(prompt, options)) pieces.push(piece);"
        "  return { ids: pieces.map((each) => each.token), text: pieces.map((each) => each.text).join('') };"
        "};"
        "const found = [];"
        "for (const each of argument) found.push(await tell(program, each));"
        "const both = await Promise.all([tell(program, argument[2]), tell(other, argument[2])]);"
        "return [...found, ...both];",
        given,
    )
    llm = LLM("stories15m")
    for (prompt, options), found in zip([*CASES, CASES[2], CASES[2]], results, strict=True):
        pieces = list(llm.generate(prompt, **options))
        assert found["ids"] == [piece.token for piece in pieces]
        assert found["text"] == "".join(piece.text for piece in pieces)


def test_prompts_that_do_not_fit(stories_site: Path, open_site: Open) -> None:
    """The context of stories15M is 256 tokens: an answer ends there, a longer prompt is an error."""
    error, count = open_site(stories_site).run(
        "const program = await load();"
        "const tell = async (prompt) => {"
        "  let count = 0;"
        "  for await (const _ of program.generate(prompt, { maxTokens: 9 })) count++;"
        "  return count;"
        "};"
        "const long = Array(253).fill(0).map((_, at) => 300 + at);"
        "return [await failing(() => tell(Array(257).fill(9))), await tell(long)];"
    )
    assert error == "context: The prompt has 257 tokens, the context holds 256: shorten it."
    assert count == 4


def test_the_players_tokenizer(stories_site: Path, open_site: Open) -> None:
    texts = [
        PROMPT,
        "",
        " ",
        "  two  spaces\\n\\ttabs",
        "naïve Ωmega 日本語 🙂",
        "x" * 300,
        "1234567",
        "<s> </s>",
    ]
    tokenizer = load_tokenizer(STORIES)
    found = open_site(stories_site).run(
        "const program = await load();"
        "const all = []; for (const text of argument) all.push(await program.tokenize(text)); return all;",
        texts,
    )
    assert found == [tokenizer.encode(text, bos=True) for text in texts]
    assert chat_form(tokenizer) is None
