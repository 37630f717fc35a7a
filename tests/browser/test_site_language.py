"""A language model in a browser: tokens are those of Python, drawn on the GPU, greedy and by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from site_fixtures import SitePage, SiteServer

from pteron.llm import LLM
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.web import export_web
from pteron.web.language import chat_form

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Open = Callable[..., SitePage]
STORIES = Path(__file__).parents[2] / "src" / "pteron" / "models" / "stories15m"
PROMPT = "Once upon a time, there was a little robot. Its name was Zoë — and it liked"
CASES: list[tuple[str, dict[str, Any]]] = [
    (PROMPT, {"max_new_tokens": 40, "temperature": 0.0}),
    (PROMPT, {"max_new_tokens": 20, "temperature": 0.8, "top_p": 0.9, "seed": 7}),
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


@pytest.fixture(scope="module")
def stories(stories_site: Path, gpu_browser: Browser) -> Iterator[SitePage]:
    """A page whose `program` is stories15M, in a worker."""
    server = SiteServer(stories_site)
    page = SitePage.open(gpu_browser.new_context(), server)
    page.run("window.program = await load();")
    yield page
    page.page.close()
    server.close()


def test_tokens_are_those_of_python(stories: SitePage) -> None:
    """Prompts are cut into planned lengths, the second one continues a cached prefix, sequences alternate."""
    given: list[Any] = [
        [prompt, {NAMES.get(name, name): value for name, value in options.items()}]
        for prompt, options in CASES
    ]
    results = stories.run(
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


def test_prompts_that_do_not_fit(stories: SitePage) -> None:
    """The context of stories15M is 256 tokens: an answer ends there, a longer prompt is an error."""
    error, reasons = stories.run(
        "const tell = async (prompt) => {"
        "  const reasons = [];"
        "  for await (const piece of program.generate(prompt, { maxTokens: 9 }))"
        "    reasons.push(piece.finishReason ?? '');"
        "  return reasons;"
        "};"
        "const long = Array(253).fill(0).map((_, at) => 300 + at);"
        "return [await failing(() => tell(Array(257).fill(9))), await tell(long)];"
    )
    assert error == "context: The prompt has 257 tokens, the context holds 256: shorten it."
    assert reasons == ["", "", "", "context"]


def test_settings_and_prompts_that_are_wrong(stories: SitePage) -> None:
    found = stories.run(
        "const begin = (...given) => failing(() => program.generate(...given).next());"
        "return [await begin('a', { temperature: -1 }), await begin('a', { onToken: () => {} }),"
        "  await begin(undefined), await begin([{ role: 'user' }])];"
    )
    assert found[0] == "input: temperature must be 0 or more, not -1."
    assert found[1].startswith("input: There is no setting onToken: ")
    assert found[2] == "input: The prompt must be a text, token ids or messages, not undefined."
    assert found[3].startswith("input: This model has no chat template")


def test_the_players_tokenizer(stories: SitePage) -> None:
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
    found = stories.run(
        "const all = []; for (const text of argument) all.push(await program.tokenize(text)); return all;",
        texts,
    )
    assert found == [tokenizer.encode(text, bos=True) for text in texts]
    assert chat_form(tokenizer) is None


def test_stop_texts_and_stopping(stories: SitePage) -> None:
    """A stop text is not part of the answer; a loop that ends early leaves the sequence usable."""
    text, reason, count, again, none = stories.run(
        "let text = ''; let count = 0; let again = ''; let reason; let none = 0;"
        "const greedy = { temperature: 0, maxTokens: 30 };"
        "for await (const piece of program.generate('Once upon a time', { ...greedy, stop: 'named Lily' }))"
        "  { text += piece.text; reason = piece.finishReason; }"
        "for await (const _ of program.generate('Once upon a time', greedy)) if (++count === 3) break;"
        "const stop = new AbortController();"
        "const last = { ...greedy, signal: stop.signal };"
        "for await (const piece of program.generate('Once upon a time', last)) {"
        "  again += piece.text; if (again.includes('girl')) stop.abort();"
        "}"
        "for await (const _ of program.generate('Once', last)) none++;"  # it is aborted already
        "return [text, reason, count, again, none];"
    )
    assert (reason, none) == ("stop", 0)
    assert text == ", there was a little girl "
    assert count == 3
    assert again.startswith(", there was a little girl")
    assert len(again) < 100


def test_a_device_that_is_lost_in_mid_answer(stories_site: Path, open_site: Open) -> None:
    error, after = open_site(stories_site).run(
        "const request = GPUAdapter.prototype.requestDevice;"
        "let device;"
        "GPUAdapter.prototype.requestDevice = async function (...given) {"
        "  device = await request.apply(this, given); return device;"
        "};"
        "const program = await load({ worker: false });"
        "const tell = async (each) => {"
        "  let count = 0;"
        "  for await (const _ of each.generate('The', { maxTokens: 9 })) if (++count === 2) device.destroy();"
        "};"
        "const first = await failing(() => tell(program));"
        "const second = await failing(() => tell(program));"
        "return [first, second];"
    )
    assert error.startswith("lost: google swiftshader was lost, with the model on it (")
    assert error.endswith("Load the page again.")
    assert after == error
