"""LLM: text in, text out, over tiny models and the story-teller that comes with the package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from byte_tokenizer import ByteTokenizer
from llm_fixtures import TINY

import pteron
from pteron import FormatError, InputError
from pteron.cli import main
from pteron.llm import LLM, Piece, Sampling
from pteron.llm.names.models import fetch
from pteron.llm.output import Statistics, StopStrings
from pteron.tools.perplexity import measure_perplexity, perplexity

FIXTURES = Path(__file__).parents[1] / "fixtures"


def text_of(pieces: Iterator[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def tokens_of(pieces: Iterator[Piece]) -> list[int]:
    return [piece.token for piece in pieces]


class TestTinyModel:
    def test_perplexity_of_a_file(self, llm: LLM, tmp_path: Path) -> None:
        """A text beyond the context is cut into parts; each but the first begins with a known token."""
        file, size = tmp_path / "text.txt", llm.model.context
        file.write_text("".join(chr(97 + index * index % 26) for index in range(size + 20)))
        found, ids = measure_perplexity(llm, file), llm.encode(file.read_text())
        assert found.tokens == len(ids) - 1 > size
        parts = [ids[:size], ids[size - 1 :]]
        losses = [np.log(perplexity(llm.model, part)) * (len(part) - 1) for part in parts]
        assert found.value == pytest.approx(np.exp(sum(losses) / found.tokens), rel=1e-6)
        assert found.bits_per_byte == pytest.approx(sum(losses) / np.log(2) / (size + 20), rel=1e-6)
        file.write_text("")
        with pytest.raises(InputError, match="has one token"):
            measure_perplexity(llm, file)
        file.write_bytes(b"caf\xe9")
        with pytest.raises(FormatError, match=r"text\.txt is not UTF-8 text"):
            measure_perplexity(llm, file)

    def test_digits_are_the_programs(self) -> None:
        with LLM(TINY, ByteTokenizer(), digits=2) as quick:
            assert quick.program.precision.digits == 2

    def test_lengths_and_reasons(self, llm: LLM) -> None:
        assert len(tokens_of(llm.generate("hello", max_new_tokens=9, stop_ids=()))) == 9
        assert llm.statistics.finish_reason == "length"
        assert llm.statistics.prompt_tokens == 6  # with the token that opens a text
        assert llm.statistics.decode_rate > 0
        tokens_of(llm.generate("hello", max_new_tokens=500, stop_ids=()))
        assert llm.statistics.finish_reason == "context"
        assert llm.statistics.new_tokens == 64 - 6 + 1

    def test_times_of_prompt_and_answer_add_up(self, llm: LLM) -> None:
        """Each second counts once: the parts are no more than the whole."""
        began = perf_counter()
        tokens_of(llm.generate("x" * 50, max_new_tokens=4, stop_ids=()))
        whole, taken = perf_counter() - began, llm.statistics
        assert min(taken.prompt_seconds, taken.decode_seconds) > 0
        assert taken.prompt_seconds + taken.decode_seconds <= whole

    def test_stop_ids_end_it(self, llm: LLM) -> None:
        free = tokens_of(llm.generate("hello", max_new_tokens=12, stop_ids=()))
        stopped = tokens_of(llm.generate("hello", max_new_tokens=12, stop_ids=(free[5],)))
        assert stopped == free[: free.index(free[5])]
        assert llm.statistics.finish_reason == "stop"

    def test_stop_strings_that_straddle_tokens(self, llm: LLM) -> None:
        sampling = Sampling(temperature=1.0, seed=3)
        free = text_of(llm.generate("hi", max_new_tokens=50, stop_ids=(), sampling=sampling))
        stop = free[4:7]  # three characters are three tokens or more
        assert len(stop) == 3
        stopped = text_of(llm.generate("hi", max_new_tokens=50, stop_ids=(), sampling=sampling, stop=[stop]))
        assert stopped == free[: free.index(stop)]
        assert llm.statistics.finish_reason == "stop"

    def test_a_conversation_is_only_read_from_where_it_is_new(self, llm: LLM) -> None:
        turns = [{"role": "user", "content": "a"}]
        for expected_reuse in (False, True, True):
            answer = text_of(llm.chat(turns, max_new_tokens=6))
            assert (llm.statistics.reused_tokens > 0) == expected_reuse
            fresh = LLM(TINY, ByteTokenizer())
            assert text_of(fresh.chat(turns, max_new_tokens=6)) == answer
            fresh.close()
            turns += [{"role": "assistant", "content": answer[:2]}, {"role": "user", "content": "b"}]

    def test_an_empty_prompt_opens_a_text(self, llm: LLM) -> None:
        assert len(tokens_of(llm.generate("", max_new_tokens=3, stop_ids=()))) == 3
        assert llm.statistics.prompt_tokens == 1

    def test_prompts_beyond_the_context(self, llm: LLM) -> None:
        with pytest.raises(pteron.InputError, match="100 tokens, the context holds 64"):
            llm.generate([5] * 100)
        with pytest.raises(pteron.InputError, match='overflow must be "error" or "truncate", not \'cut\''):
            llm.generate([5], overflow="cut")  # type: ignore[arg-type]  # what is refused
        ids = [1, *range(10, 109)]
        truncated = tokens_of(llm.generate(ids, max_new_tokens=8, overflow="truncate", stop_ids=()))
        assert llm.statistics.prompt_tokens == 64 - 8
        kept = [1, *ids[len(ids) - 55 :]]
        assert truncated == tokens_of(llm.generate(kept, max_new_tokens=8, stop_ids=()))
        for asked, fitted in ((62, [1, 108]), (63, [108]), (64, [108]), (999, [108])):
            assert llm.fit_to_context(ids, asked, "truncate") == fitted
        assert llm.fit_to_context(ids[1:], 61, "truncate") == ids[-3:]  # no BOS token to keep


def test_rates_leave_out_what_was_not_computed() -> None:
    """Tokens from the cache, and the first token, which ends the prompt's time."""
    taken = Statistics(10, 4, new_tokens=5, prompt_seconds=2.0, decode_seconds=0.5)
    assert (taken.prompt_rate, taken.decode_rate) == (3, 8)
    assert (Statistics(10).prompt_rate, Statistics(10, new_tokens=1).decode_rate) == (0, 0)


def test_stop_scanner_holds_back_no_more_than_it_must() -> None:
    scanner = StopStrings(["</s>", "END"])
    assert [scanner.push(text) for text in ["a<", "b</", "s", "x", "EN", "Dx"]] == [
        "a",
        "<b",
        "",
        "</sx",
        "",
        "",
    ]
    assert scanner.is_stopped
    earliest = StopStrings(["b", "a"])  # of the text, not of the list
    assert earliest.push("xaxbx") == "x"
    assert earliest.found == "a"
    plain = StopStrings([])
    assert plain.push("anything") == "anything"
    held = StopStrings(["END"])
    assert held.push("the EN") == "the "
    assert held.finish() == "EN"


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / "llm" / "stories15m.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def stories() -> Iterator[LLM]:
    with LLM(fetch("stories15m")) as made:
        yield made


class TestStories:
    """stories15M in 4 bits, against the eager quantised model."""

    def test_greedy_equals_eager_quantised(self, stories: LLM, golden: dict[str, Any]) -> None:
        pieces = list(stories.generate("Once upon a time", max_new_tokens=100, stop_ids=()))
        assert stories.statistics.prompt_tokens == len(golden["prompt_ids"])
        assert [piece.token for piece in pieces] == golden["quantized"]["greedy"][:100]
        assert golden["quantized"]["greedy_text"].startswith("".join(piece.text for piece in pieces))

    def test_perplexity_of_the_command(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "text.txt").write_text("Once upon a time, there was a little girl")
        assert main(["bench", "stories15m", "--perplexity", str(tmp_path / "text.txt")]) == 0
        assert re.match(
            r"perplexity \d\.\d+, 0\.\d+ bits per byte: 10 tokens of text.txt", capsys.readouterr().out
        )

    def test_perplexity_agrees_with_eager(self, stories: LLM, golden: dict[str, Any]) -> None:
        stories.reset()
        found = perplexity(stories.model, golden["text_ids"])
        stories.reset()
        assert found == pytest.approx(golden["quantized"]["perplexity"], rel=0.005)
