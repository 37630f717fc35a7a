"""Streams that follow a grammar: the output is complete and valid, the same for every decode loop, and other
streams are not affected."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from llm_fixtures import MODELS

import pteron
from pteron.errors import InputError
from pteron.llm import LLM, Grammar, LanguageModel, Matcher, Sampler, Sampling, generate_step
from pteron.llm.engine import steppers
from pteron.llm.request import GrammarSource

pytest.importorskip("llguidance", reason="needs the extra `serve`")
STORIES = Path(__file__).parents[2] / "src" / "pteron" / "models" / "stories15m"
PROMPT = "Once upon a time"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 1},
    },
    "required": ["name", "age", "kind", "tags"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"],
                      "additionalProperties": False}},
}  # fmt: skip
EVERYTHING = Sampling(2.0, 200, 0.99, 0.0001, 1.1, 3, 0.5, 0.2, {306: 2.0}, 3)
SAMPLINGS = [Sampling(), Sampling(2.0, seed=2, top_p=0.9), EVERYTHING]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(STORIES) as made:
        yield made


@pytest.fixture(scope="module")
def person(llm: LLM) -> Grammar:
    return Grammar.json_schema(llm.tokenizer, SCHEMA)


def generated(llm: LLM, grammar: GrammarSource, **settings: Any) -> str:
    llm.reset()
    settings = {"max_new_tokens": 200, **settings}
    return "".join(piece.text for piece in llm.generate(PROMPT, grammar=grammar, **settings))


def check_person(text: str) -> None:
    value = json.loads(text)
    assert list(value) == ["name", "age", "kind", "tags"]
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 6
    assert type(value["age"]) is int
    assert 0 <= value["age"] <= 120
    assert value["kind"] in ("cat", "dog")
    assert len(value["tags"]) <= 1
    assert all(list(tag) == ["n"] and type(tag["n"]) is bool for tag in value["tags"])


class TestTexts:
    @pytest.mark.long(every=3)
    @pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "top_p", "everything"])
    def test_json_is_whole_and_valid(self, sampling: Sampling, llm: LLM, person: Grammar) -> None:
        text = generated(llm, person, sampling=sampling)
        assert llm.statistics.finish_reason == "stop"
        check_person(text)
        assert generated(llm, person, sampling=sampling, resident=False) == text

    @pytest.mark.parametrize("temperature", [0.0, 2.0])
    @pytest.mark.parametrize(
        "pattern", ["[a-z]{3,9} (one|two)!", "(yes|no)", r"\d{4}-\d{2}-\d{2}", "日本|Österreich"]
    )
    def test_regular_expressions(self, pattern: str, temperature: float, llm: LLM) -> None:
        grammar = Grammar.regex(llm.tokenizer, pattern)
        text = generated(llm, grammar, sampling=Sampling(temperature, seed=4))
        assert re.fullmatch(pattern, text)
        assert llm.statistics.finish_reason == "stop"

    def test_a_text_that_is_cut_off(self, llm: LLM, person: Grammar) -> None:
        begun = generated(llm, person, max_new_tokens=7)
        assert llm.statistics.finish_reason == "length"
        assert llm.statistics.new_tokens == 7
        assert generated(llm, person, max_new_tokens=12).startswith(begun)

    def test_the_context_ends_it(self, llm: LLM) -> None:
        grammar = Grammar.regex(llm.tokenizer, "(ab)*")
        ids = [1] + [9] * (llm.model.context - 4)
        pieces = list(llm.generate(ids, grammar=grammar, max_new_tokens=50, stop_ids=[]))
        assert llm.statistics.finish_reason in ("context", "stop")
        assert len(pieces) <= 5

    def test_it_may_end_before_anything(self, llm: LLM) -> None:
        assert generated(llm, Grammar.regex(llm.tokenizer, "")) == ""
        assert llm.statistics.finish_reason == "stop"

    def test_a_stop_string_ends_it_too(self, llm: LLM, person: Grammar) -> None:
        text = generated(llm, person, stop=['"age"'])
        assert text.startswith('{"name"')
        assert '"age"' not in text
        assert llm.statistics.finish_reason == "stop"

    def test_lists_are_of_the_model_alone(self, llm: LLM, person: Grammar) -> None:
        llm.reset()
        pieces = list(
            llm.generate(PROMPT, grammar=person, sampling=Sampling(top_logprobs=4), max_new_tokens=9)
        )
        assert all(len(piece.top) == 4 for piece in pieces)
        assert pieces[0].token not in dict(pieces[0].top)  # no story goes on with a brace
        assert pieces[0].logprob < pieces[0].top[-1][1]


class TestLoop:
    def test_streams_side_by_side(self, llm: LLM, person: Grammar) -> None:
        """Two streams with different grammars and one without: each gives what it gives alone."""
        other = Grammar.regex(llm.tokenizer, "[a-z ]{10,40}!")
        settings: list[dict[str, Any]] = [
            {"grammar": person, "sampling": Sampling(2.0, seed=5)},
            {"grammar": other, "sampling": Sampling(1.0, seed=6)},
            {"sampling": Sampling(0.8, seed=7)},
        ]
        alone = []
        for each in settings:
            llm.reset()
            alone.append([piece.token for piece in llm.generate(PROMPT, max_new_tokens=25, **each)])
        llm.reset()
        streams = [llm.generate(PROMPT, max_new_tokens=25, **each) for each in settings]
        together: list[list[int]] = [[], [], []]
        for row in zip_longest(*streams):
            for tokens, piece in zip(together, row, strict=True):
                if piece is not None:
                    tokens.append(piece.token)
        assert together == alone

    def test_the_model_runs_while_the_mask_is_made(
        self, llm: LLM, person: Grammar, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events: list[str] = []

        def noting(owner: Any, name: str, event: str) -> None:
            before = getattr(owner, name)

            def noted(*arguments: Any, **others: Any) -> Any:
                events.append(event)
                return before(*arguments, **others)

            monkeypatch.setattr(owner, name, noted)

        noting(LanguageModel, "submit", "model")
        noting(Matcher, "mask", "mask")
        noting(steppers, "submit_commands", "draw")
        generated(llm, person, max_new_tokens=4)
        assert events == ["model", "mask", "draw"] * 4

    @pytest.mark.long(every=2)
    @pytest.mark.parametrize(
        "name", ["tiny_llama_q4", "tiny_llama_q4_fp16", "tiny_llama_q4_static", "tiny_qwen3_fp32"]
    )
    def test_other_programs(self, name: str) -> None:
        """Models with more tokens than the tokenizer knows, with float16, or with one token per call."""
        model = LanguageModel(pteron.load(MODELS / f"{name}.pte"))
        tokenizer = ByteTokenizer()
        tokenizer.vocab_size = min(model.vocabulary, 300)
        grammar = Grammar.regex(tokenizer, "[a-d]{3}[0-9]{2}")
        texts = []
        for resident in (True, False):
            for seed in range(3):
                sampler = model.sampler(Sampling(2.0, seed=seed), masked=True)
                model.reset()
                steps = generate_step(
                    model, sampler, [5, 6, 7], 20, resident=resident, matcher=grammar.matcher()
                )
                tokens = [step.token for step in steps]
                sampler.close()
                texts.append(tokenizer.decode(tokens))
        assert all(re.fullmatch("[a-d]{3}[0-9]{2}", text) for text in texts)
        assert texts[:3] == texts[3:]

    def test_nothing_left_to_draw(self, llm: LLM) -> None:
        grammar = Grammar.regex(llm.tokenizer, "[01]")
        banned = [
            token
            for token in range(llm.tokenizer.vocab_size)
            if llm.tokenizer.token_bytes(token) in (b"0", b"1")
        ]
        with pytest.raises(InputError, match="grammar"):
            generated(llm, grammar, sampling=Sampling(logit_bias=dict.fromkeys(banned, -100.0)))
        assert generated(llm, grammar) in ("0", "1")  # the model is still usable

    def test_schemas_and_patterns(self, llm: LLM) -> None:
        check_person(generated(llm, SCHEMA, sampling=Sampling(2.0, seed=2)))
        for pattern in (re.compile("yes|no"), re.compile("a.{2}b|NO", re.DOTALL | re.IGNORECASE)):
            assert pattern.fullmatch(generated(llm, pattern)), pattern
        assert llm(PROMPT, grammar=re.compile("[0-9]{3}")).isdigit()

    def test_what_is_refused(self, llm: LLM) -> None:
        for flag in (re.ASCII, re.VERBOSE):  # llguidance has other rules for white space
            with pytest.raises(InputError, match=f"cannot have the flag re.{flag.name}"):
                llm.generate(PROMPT, grammar=re.compile("a", flag))
        with pytest.raises(InputError, match="of text, not of bytes"):
            llm.generate(PROMPT, grammar=re.compile(b"a"))  # type: ignore[arg-type]  # what is refused
        with pytest.raises(InputError, match=r"grammar must be a Grammar, a dict .* or a regular expression"):
            llm.generate(PROMPT, grammar="json")  # type: ignore[arg-type]  # what is refused
        sampler = Sampler(llm.model.device, llm.model.vocabulary, Sampling())
        matcher = Grammar.json_object(llm.tokenizer).matcher()
        with pytest.raises(InputError, match="has no mask"):
            next(generate_step(llm.model, sampler, [1, 2], 5, matcher=matcher))
        sampler.close()
