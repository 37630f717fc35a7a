"""Arguments of a language model's methods: accepted with the right meaning, or refused before any work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from byte_tokenizer import FIRST_BYTE, ByteTokenizer
from llm_fixtures import MODELS

from pteron import InputError
from pteron.llm import LLM, LanguageModel, Sampler, Sampling, generate_step

IDS = [1, 40, 60, 80, 100]
NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture(scope="module")
def shared() -> Iterator[LLM]:
    with LLM(MODELS / "tiny_llama_fp32.pte", ByteTokenizer()) as made:
        yield made


def tokens(llm: LLM, ids: Any, count: Any = 6, **options: Any) -> list[int]:
    options.setdefault("stop_ids", ())
    return [piece.token for piece in llm.generate(ids, max_new_tokens=count, **options)][:6]


class TestTokenIds:
    @pytest.mark.parametrize(
        "ids",
        [
            [1.0, 2.0],
            [1, 2.5],
            [NAN],
            [True, False],
            ["1", "2"],
            [None],
            [[1, 2]],
            [1j],
            np.array([1.0, 2.0]),
            np.array([1, 2], np.float16),
            np.array([True]),
            np.array([[1, 2]]),
            np.array(5),
            b"abc",
            {1: 2},
            {1, 2},
            None,
            5,
        ],
        ids=str,
    )
    def test_what_is_no_row_of_integers(self, shared: LLM, ids: Any) -> None:
        with pytest.raises(InputError, match="must be"):
            shared.generate(ids)
        with pytest.raises(InputError, match="must be"):
            shared.model.prefill(ids)
        with pytest.raises(InputError, match="must be"):
            next(generate_step(shared.model, Sampler(shared.model.device, 512, Sampling()), ids, 1))

    @pytest.mark.parametrize("token", [-1, 512, 1 << 40, np.int64(-5)])
    def test_outside_the_vocabulary(self, shared: LLM, token: Any) -> None:
        with pytest.raises(InputError, match=f"token {token} is outside the vocabulary of 512"):
            shared.generate([1, token])
        with pytest.raises(InputError, match="outside the vocabulary"):
            shared.model.prefill([1, token])

    def test_integers_of_any_type(self, shared: LLM) -> None:
        expected = tokens(shared, IDS)
        assert tokens(shared, np.array(IDS)) == expected
        assert tokens(shared, np.array(IDS, np.uint16)) == expected
        assert tokens(shared, tuple(map(np.int8, IDS))) == expected
        assert tokens(shared, iter(IDS)) == expected
        torch = pytest.importorskip("torch")
        assert tokens(shared, torch.tensor(IDS)) == expected
        with pytest.raises(InputError, match="must be an integer"):
            shared.generate(torch.tensor([1.0]))


class TestOptions:
    @pytest.mark.parametrize(
        "options",
        [
            {"overflow": "bogus"},
            {"overflow": None},
            {"overflow": ["error"]},
            {"stop": None},
            {"stop": 12},
            {"stop": [12]},
            {"stop": b"12"},
            {"stop": ["1", None]},
            {"stop_ids": 5},
            {"stop_ids": [5.5]},
            {"stop_ids": "ab"},
            {"max_new_tokens": 0},
            {"max_new_tokens": 2.0},
            {"max_new_tokens": None},
            {"max_new_tokens": True},
            {"sampling": {"temperature": 0.5}},
            {"sampling": 0.5},
        ],
        ids=str,
    )
    def test_refused(self, shared: LLM, options: dict[str, Any]) -> None:
        (name,) = options
        with pytest.raises(InputError, match=f"{name} must be"):
            shared.generate(IDS, **options)

    def test_a_string_is_one_stop_string(self, shared: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
        """`stop` as a string of two characters is one stop string; as a list, each character is one."""
        text = [piece.token for piece in shared.generate([1, 2, 3], max_new_tokens=2, stop_ids=())]
        first, second = (chr(token - FIRST_BYTE) for token in text)
        asked: dict[str, Any] = {"max_new_tokens": 4, "stop_ids": ()}
        assert "".join(piece.text for piece in shared.generate([1, 2, 3], stop=first + second, **asked)) == ""
        reversed_pair = "".join(
            piece.text for piece in shared.generate([1, 2, 3], stop=second + first, **asked)
        )
        assert reversed_pair.startswith(first + second)
        both = "".join(piece.text for piece in shared.generate([1, 2, 3], stop=[second, first], **asked))
        assert both == ""

    def test_a_string_is_one_stop_string_of_a_chat(self, shared: LLM) -> None:
        messages: Any = [{"role": "user", "content": "Hi"}]
        text = "".join(piece.text for piece in shared.chat(messages, max_new_tokens=8))
        unlike = next(a + b for a, b in pairwise(text) if b + a not in text)[::-1]
        assert "".join(piece.text for piece in shared.chat(messages, max_new_tokens=8, stop=unlike)) == text

    def test_a_loop_that_cannot_stay_on_the_gpu(self, shared: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LanguageModel, "is_resident", False)
        with pytest.raises(InputError, match="cannot stay on the GPU"):
            next(shared.generate(IDS, resident=True))
        assert len(tokens(shared, IDS)) == 6


class TestSampling:
    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("temperature", (NAN, -1e-30, -INFINITY, "hot", None, 1j, True, 10**400)),
            ("top_k", (-1, 2.5, NAN, None, True)),
            ("top_p", (0, -0.5, 1.1, NAN, INFINITY, "1", np.ones(2))),
            ("min_p", (-0.1, 1.5, NAN, None)),
            ("repetition_penalty", (0, -1, NAN, INFINITY, [1.1])),
            ("presence_penalty", (INFINITY, "1")),
            ("frequency_penalty", (NAN, "1")),
            ("top_logprobs", (21, 1.5)),
            ("seed", (-1, 1 << 31, 1 << 64, 1.0, "a", None, True)),
            ("logit_bias", ("abc", 5)),
        ],
    )
    def test_refused(self, name: str, values: tuple[Any, ...]) -> None:
        for value in values:
            with pytest.raises(InputError, match=f"{name} must"):
                Sampling(**{name: value})

    @pytest.mark.parametrize(
        ("bias", "message"),
        [
            ({1: 101}, "101.0 for token 1 is not from -100 to 100"),
            ({1: NAN}, "not from -100 to 100"),
            ({-1: 1}, "token -1 is negative"),
            ({"1": 1}, "each token of logit_bias must be an integer"),
            ([(1, 2), (1, 3)], "token 1 is given twice"),
            ([1, 2], "pairs of a token and a number"),
        ],
    )
    def test_refused_biases(self, bias: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            Sampling(logit_bias=bias)

    def test_numbers_of_other_types(self) -> None:
        given: dict[str, Any] = {"temperature": np.float32(0.5), "top_k": np.int16(7), "seed": np.int64(3)}
        made = Sampling(min_p=0, **given)
        assert made == Sampling(temperature=0.5, top_k=7, seed=3)
        assert {type(made.temperature), type(made.min_p), type(made.top_k), type(made.seed)} == {float, int}

    def test_what_leaves_no_choice_is_greedy(self, routed_llm: LLM) -> None:
        greedy = tokens(routed_llm, IDS)
        for settings in (
            {"temperature": 1e-3},
            {"temperature": 1e-30},
            {"temperature": 1e-38, "top_p": 0.9, "top_k": 5},
            {"temperature": 1e-46},
            {"temperature": 5e-324, "min_p": 0.5},
            {"temperature": 1.0, "top_p": 1e-20},
            {"temperature": 1.0, "top_p": 1e-46},
            {"temperature": 3.0, "top_p": 5e-324, "top_k": 100},
            {"temperature": INFINITY, "top_k": 1},
            {"temperature": 1e300, "top_p": 1e-300},
            {"temperature": 2.0, "min_p": 1.0},
        ):
            sampling = Sampling(seed=(1 << 31) - 1, **settings)  # type: ignore[arg-type]
            assert tokens(routed_llm, IDS, sampling=sampling) == greedy, sampling

    @pytest.mark.long(every=2)
    @pytest.mark.parametrize("temperature", [1e-30, 0.0])
    def test_penalties_beyond_f32(self, llm: LLM, temperature: float) -> None:
        for extreme, moderate in ((1e308, 1e20), (1e300, 1e20), (1e-300, 1e-20), (5e-324, 1e-20)):
            found, expected = (
                tokens(llm, IDS, sampling=Sampling(temperature=temperature, repetition_penalty=penalty))
                for penalty in (extreme, moderate)
            )
            assert found == expected, extreme
