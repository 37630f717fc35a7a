"""What the library offers around a generation: plain text, settings by name, event loops, batches, names."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from byte_tokenizer import ByteTokenizer
from llm_fixtures import TINY

from pteron import Device, FormatError, InputError, PteronError
from pteron.llm import LLM, Piece, Sampling
from pteron.llm.load_options import OTHER_NAMES, LoadOptions
from pteron.llm.names import models
from pteron.llm.request import GenerateOptions, SamplingOptions, _request, chat_request
from pteron.llm.text_model import LoadArguments

PROMPTS: list[str | list[int]] = ["hello", "a", "the quick brown fox", [1, 40, 41, 42]]
MESSAGES = [{"role": "user", "content": "Hi"}]
WARM = Sampling(temperature=0.9, top_k=17, seed=5)


def tokens(pieces: Iterator[Piece]) -> list[int]:
    return [piece.token for piece in pieces]


def text(pieces: Iterator[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


async def listed(pieces: AsyncIterator[Piece]) -> list[Piece]:
    return [piece async for piece in pieces]


def in_use(llm: LLM) -> int:
    return llm.pool.live - llm.pool.idle


def until_idle(llm: LLM) -> None:
    """Wait until no stream is in use. Abandoned streams end soon; only the test's time limit applies."""
    while in_use(llm):
        time.sleep(0.01)


class TestPlainText:
    def test_a_call_is_the_text_or_the_answer(self, llm: LLM) -> None:
        assert llm("hello", max_new_tokens=7) == text(llm.generate("hello", max_new_tokens=7))
        assert llm(MESSAGES, max_new_tokens=7) == text(llm.chat(MESSAGES, max_new_tokens=7))

    def test_several_texts_and_messages(self, llm: LLM) -> None:
        texts: Any = ["Once", "The"]
        for run in (llm, llm.generate):
            with pytest.raises(
                InputError, match=r"must be one text or token ids; generate_batch\(prompts\) continues"
            ):
                run(texts)
        with pytest.raises(InputError, match=r"must be a text or token ids; chat\(messages\) answers a list"):
            llm.generate(MESSAGES)  # type: ignore[arg-type]

    def test_its_text(self, llm: LLM) -> None:
        assert llm.context == llm.model.context == 64
        device = llm.program.device.name
        assert repr(llm) == f"<pteron.llm.LLM {str(TINY)!r} on {device}, context 64>"

    def test_the_text_of_a_completion(self, llm: LLM) -> None:
        (completion,) = llm.generate_batch(["hello"], max_new_tokens=50, stop_ids=())
        shown = repr(completion)
        assert len(shown) < 140
        assert shown.startswith("<pteron.llm.Completion '")
        assert shown.endswith(f", {completion.statistics.prompt_tokens} + 50 tokens, length>")


class TestByName:
    def test_names_are_fields_of_a_sampling(self, llm: LLM) -> None:
        asked: dict[str, Any] = {"max_new_tokens": 12, "stop_ids": ()}
        right = tokens(llm.generate("hello", sampling=WARM, **asked))
        assert tokens(llm.generate("hello", temperature=0.9, top_k=17, seed=5, **asked)) == right
        other = Sampling(temperature=0.9, top_k=17, seed=6)
        assert tokens(llm.generate("hello", sampling=other, **asked)) != right
        assert tokens(llm.generate("hello", sampling=other, seed=5, **asked)) == right

    def test_of_a_chat(self, llm: LLM) -> None:
        asked: dict[str, Any] = {"max_new_tokens": 12, "stop_ids": ()}
        right = tokens(llm.chat(MESSAGES, sampling=WARM, **asked))
        assert tokens(llm.chat(MESSAGES, temperature=0.9, top_k=17, seed=5, **asked)) == right

    @pytest.mark.parametrize("name", [field.name for field in fields(Sampling)])
    def test_every_field_is_a_name(self, llm: LLM, name: str) -> None:
        right: Any = {name: getattr(Sampling(), name)}
        wrong: Any = {name: object()}
        assert tokens(llm.generate("hello", max_new_tokens=2, **right))
        with pytest.raises(InputError, match=name):
            llm.generate("hello", **wrong)
        with pytest.raises(InputError, match=name):
            llm.chat(MESSAGES, **wrong)

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("temprature", "temperature"),
            ("temp", "temperature"),
            ("topk", "top_k"),
            ("max_tokens", "max_new_tokens"),
            ("stop_id", "stop_ids"),
            ("repetition_penality", "repetition_penalty"),
        ],
    )
    def test_a_mistyped_name(self, llm: LLM, name: str, meant: str) -> None:
        given: Any = {name: 1}
        for call in (llm, llm.generate, llm.chat, llm.stream):
            prompt: Any = MESSAGES if call == llm.chat else "hello"
            with pytest.raises(InputError, match=f"{name!r}.*did you mean {meant}"):
                call(prompt, **given)
        with pytest.raises(InputError, match=f"{name!r}.*did you mean {meant}"):
            llm.generate_batch(["hello"], **given)

    def test_a_name_like_none(self, llm: LLM) -> None:
        with pytest.raises(InputError, match=r"unknown option 'enable_thinking': known are .*temperature"):
            llm.generate("hello", enable_thinking=False)  # type: ignore[call-arg]  # as mypy says too
        for short in ("t", "st"):  # could mean many
            with pytest.raises(InputError, match=f"unknown option {short!r}: known are "):
                llm("hello", **{short: 1})
        assert tokens(llm.chat(MESSAGES, max_new_tokens=2, enable_thinking=False))

    def test_all_are_documented_and_typed(self) -> None:
        """`help` has every setting with its default; type checkers have the names and types of drawing."""
        given = signature(_request).parameters.values()
        defaults = {each.name: each.default for each in given if each.kind is each.KEYWORD_ONLY}
        documented = LLM.generate.__doc__ or ""
        assert all(f" {name}={default!r} " in documented for name, default in defaults.items())
        assert f"max_new_tokens={signature(chat_request).parameters['max_new_tokens'].default}" in (
            LLM.chat.__doc__ or ""
        )
        assert GenerateOptions.__optional_keys__ == defaults.keys() | SamplingOptions.__optional_keys__
        assert get_type_hints(SamplingOptions) == get_type_hints(Sampling)

    def test_a_variable_that_the_template_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ByteTokenizer, "chat_template", "{{ temp }}|{{ messages[0].content }}")
        with LLM(TINY, ByteTokenizer()) as llm:
            answer = tokens(llm.chat(MESSAGES, max_new_tokens=4, temp="cold"))
            assert answer == tokens(llm.generate("cold|Hi", max_new_tokens=4))
            with pytest.raises(InputError, match="'temperatur' is neither an option nor a variable"):
                llm.chat(MESSAGES, tempo=1, temperatur=1)

    def test_a_template_that_jinja_does_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ByteTokenizer, "chat_template", "{% if %}")
        with LLM(TINY, ByteTokenizer()) as llm:
            with pytest.raises(InputError, match="did you mean temperature"):
                llm.chat(MESSAGES, temp=1)
            with pytest.raises(InputError, match="the chat template cannot render"):
                llm.chat(MESSAGES)


class TestEncoding:
    def test_text(self, llm: LLM) -> None:
        ids = llm.encode("hello")
        assert ids == (1, *(3 + byte for byte in b"hello"))
        assert tokens(llm.generate(ids, max_new_tokens=4)) == tokens(llm.generate("hello", max_new_tokens=4))
        assert llm.encode("") == llm.encode([]) == (1,)

    def test_chat(self, llm: LLM) -> None:
        ids = llm.encode_chat(MESSAGES)
        assert ids == llm.encode("User: Hi\nAssistant:")
        stops = llm.chat_stops
        answer = tokens(llm.generate(ids, max_new_tokens=6, stop=stops))
        assert answer == tokens(llm.chat(MESSAGES, max_new_tokens=6))

    def test_tools_reach_the_template(self, monkeypatch: pytest.MonkeyPatch) -> None:
        template = "{% if tools is not none %}{{ tools | tojson }}{% endif %}{{ messages[0].content }}{{ x }}"
        monkeypatch.setattr(ByteTokenizer, "chat_template", template)
        with LLM(TINY, ByteTokenizer()) as llm:
            assert llm.encode_chat(MESSAGES) == llm.encode("Hi")
            assert llm.encode_chat(MESSAGES, [{"name": "f"}], x=3) == llm.encode('[{"name": "f"}]Hi3')
            answer = tokens(llm.chat(MESSAGES, tools=[{"name": "f"}], x=3, max_new_tokens=4))
            assert answer == tokens(llm.generate('[{"name": "f"}]Hi3', max_new_tokens=4))


class TestStreams:
    @pytest.mark.parametrize("settings", [{}, {"temperature": 0.9, "top_k": 17, "seed": 5}], ids=str)
    def test_equals_generate(self, llm: LLM, settings: dict[str, Any]) -> None:
        llm.reset()
        right = list(llm.generate("hello", max_new_tokens=9, stop_ids=(), **settings))
        llm.reset()
        stream = llm.stream("hello", max_new_tokens=9, stop_ids=(), **settings)
        assert asyncio.run(listed(stream)) == right
        assert stream.statistics.finish_reason == "length"
        assert stream.statistics.new_tokens == 9
        until_idle(llm)

    def test_messages(self, llm: LLM) -> None:
        found = asyncio.run(listed(llm.stream(MESSAGES, max_new_tokens=6)))
        assert tokens(iter(found)) == tokens(llm.chat(MESSAGES, max_new_tokens=6))

    def test_several_at_once(self, llm: LLM) -> None:
        async def all_of_them() -> list[list[Piece]]:
            streams = [llm.stream(prompt, max_new_tokens=8) for prompt in PROMPTS]
            return await asyncio.gather(*(listed(stream) for stream in streams))

        found = asyncio.run(all_of_them())
        right = [tokens(llm.generate(prompt, max_new_tokens=8)) for prompt in PROMPTS]
        assert [[piece.token for piece in pieces] for pieces in found] == right

    def test_the_loop_goes_on_between_pieces(self, llm: LLM) -> None:
        """The event loop runs other tasks between pieces: at least one turn per piece."""
        turns = 0

        async def both() -> int:
            async def turn() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            other = asyncio.create_task(turn())
            pieces = await listed(llm.stream("hello", max_new_tokens=12, stop_ids=()))
            other.cancel()
            return len(pieces)

        assert asyncio.run(both()) <= turns

    def test_left_by_break(self, llm: LLM) -> None:
        async def first() -> int:
            async for piece in llm.stream("hello", max_new_tokens=50, stop_ids=()):
                return piece.token
            raise AssertionError

        right = next(llm.generate("hello", max_new_tokens=50)).token
        assert asyncio.run(first()) == right
        gc.collect()
        until_idle(llm)

    def test_closed(self, llm: LLM) -> None:
        async def first() -> None:
            stream = llm.stream("hello", max_new_tokens=50, stop_ids=())
            async with aclosing(stream):
                await anext(stream)
            assert in_use(llm) == 0
            assert await listed(stream) == []
            async with llm.stream("hello", max_new_tokens=50, stop_ids=()) as other:
                await anext(other)
            assert in_use(llm) == 0
            await llm.stream("hello").aclose()  # which has not begun

        asyncio.run(first())

    def test_a_task_that_is_cancelled(self, llm: LLM) -> None:
        async def cancelled() -> None:
            begun = asyncio.Event()

            async def read() -> None:
                async for _ in llm.stream("hello", max_new_tokens=50, stop_ids=()):
                    begun.set()

            task = asyncio.create_task(read())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        gc.collect()
        until_idle(llm)

    def test_wrong_ones_are_refused_at_once(self, llm: LLM) -> None:
        with pytest.raises(InputError, match="the context holds 64"):
            llm.stream([5] * 100)
        with pytest.raises(InputError, match="resident is an option of generate"):
            llm.stream("hello", resident=False)

    def test_dropped_tokens_are_counted(self, llm: LLM) -> None:
        stream = llm.stream([5] * 100, max_new_tokens=8, overflow="truncate")
        asyncio.run(listed(stream))
        assert stream.statistics.dropped_tokens == 100 - (64 - 8)

    def test_a_model_that_is_closed(self) -> None:
        with LLM(TINY, ByteTokenizer()) as closed:
            streams = [closed.stream("hello", max_new_tokens=50, stop_ids=()) for _ in range(40)]
            stream = streams.pop()  # whose turn has not come: others are before it
        with pytest.raises(PteronError, match="closed"):
            asyncio.run(listed(stream))
        with pytest.raises(PteronError, match="closed"):
            closed.stream("hello")
        with pytest.raises(PteronError, match="closed"):
            closed.generate_batch(["hello"])

    def test_a_model_that_is_dropped(self) -> None:
        """Its engine ends with it: no running thread keeps a reference."""
        llm = LLM(TINY, ByteTokenizer())
        llm.generate_batch(["hello"], max_new_tokens=1)
        threads = [thread for thread in threading.enumerate() if thread.name == "pteron engine"]
        known = weakref.ref(llm.model)
        mine = llm.engine
        assert mine is not None
        thread = mine.thread
        assert thread in threads
        del llm, mine
        gc.collect()
        thread.join(60)
        del thread, threads
        gc.collect()
        assert known() is None


class TestBatches:
    @pytest.mark.parametrize("settings", [{}, {"temperature": 0.9, "top_k": 17, "seed": 5}], ids=str)
    def test_equals_one_after_the_other(self, llm: LLM, settings: dict[str, Any]) -> None:
        found = llm.generate_batch(PROMPTS, max_new_tokens=8, **settings)
        for prompt, completion in zip(PROMPTS, found, strict=True):
            right = list(llm.generate(prompt, max_new_tokens=8, **settings))
            assert [piece.token for piece in completion.pieces] == tokens(iter(right))
            assert str(completion) == completion.text == text(iter(right))
            assert completion.statistics.prompt_tokens == len(llm.encode(prompt))
            assert completion.statistics.new_tokens == llm.statistics.new_tokens
            assert completion.statistics.finish_reason == llm.statistics.finish_reason
        assert in_use(llm) == 0

    def test_conversations(self, llm: LLM) -> None:
        other = [{"role": "user", "content": "Who?"}]
        found = llm.generate_batch([MESSAGES, other], max_new_tokens=6)
        assert [completion.text for completion in found] == [
            llm(MESSAGES, max_new_tokens=6),
            llm(other, max_new_tokens=6),
        ]

    def test_none(self, llm: LLM) -> None:
        assert llm.generate_batch([]) == []

    def test_more_than_there_are_sequences(self, llm: LLM) -> None:
        prompts = [[1, 40 + index] for index in range(60)]
        found = llm.generate_batch(prompts, max_new_tokens=2, stop_ids=())
        assert [completion.statistics.new_tokens for completion in found] == [2] * 60
        assert found[43].pieces[0].token == next(llm.generate(prompts[43])).token

    @pytest.mark.parametrize("prompts", ["hello", b"hello", 5, None, [1, 2]], ids=repr)
    def test_no_list_of_prompts(self, llm: LLM, prompts: Any) -> None:
        with pytest.raises(InputError):
            llm.generate_batch(prompts)

    def test_one_that_is_wrong(self, llm: LLM) -> None:
        llm.generate_batch(["hello"], max_new_tokens=1)
        before = llm.statistics
        with pytest.raises(InputError, match="prompt 1 of 3: the prompt has 100 tokens"):
            llm.generate_batch(["hello", [5] * 100, "a"])
        assert llm.statistics is before  # nothing has begun


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("n_ctx", "context= is the number of tokens of a KV cache"),
        ("max_model_len", "context= is"),
        ("n_gpu_layers", "all layers run on the GPU, and device= chooses the GPU"),
        ("tensor_parallel_size", "a model runs on one GPU; `pteron serve --ray --replicas` uses several"),
        ("dtype", "`pteron export llm --quantize` chooses the type of weights, cache= that of the KV cache"),
        ("quantize", "`pteron export llm --quantize` chooses the type of weights"),
        ("lora", 'adapters={"name": path} are LoRA adapters'),
        ("temperature", "an option of each request"),
        ("contxt", "did you mean context=?"),
        ("zzz", "known are adapters, cache, cache_bytes, context, data, device, digits, model, path, "),
    ],
)
def test_arguments_of_other_libraries(name: str, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        LLM("stories15m", **{name: 1})  # type: ignore[arg-type]
    assert str(raised.value).startswith(f"unknown argument {name!r}: ")
    assert sentence in str(raised.value)


def test_the_model_has_two_names() -> None:
    with LLM(model="stories15m") as llm:
        assert llm.model.context == 256
    with pytest.raises(InputError, match="LLM takes a model, such as"):
        LLM()
    with pytest.raises(InputError, match="once: `model` is another name of the first argument"):
        LLM("stories15m", model="stories15m")
    with pytest.raises(InputError, match="unknown argument 'model_path': the model is the first argument"):
        LLM(model_path="stories15m")  # type: ignore[call-arg]


def test_the_first_of_several_unknown_arguments_is_named() -> None:
    with pytest.raises(InputError, match="unknown argument 'zzz7'"):
        LLM("stories15m", **{f"zzz{number}": 1 for number in range(7, -1, -1)})  # type: ignore[arg-type]


def test_help_and_notebooks_see_all_arguments() -> None:
    shown = signature(LLM).parameters
    assert shown.keys() == {"path", "tokenizer", "model", *LoadArguments.__optional_keys__}
    assert (shown["rings"].default, shown["context"].default) == (True, None)


def test_no_own_argument_is_in_the_table_of_others() -> None:
    own = {"path", "tokenizer", "model", *LoadArguments.__optional_keys__}
    assert own - {"path"} == {field.name for field in fields(LoadOptions)} - {"least", "limited"}
    assert not own & OTHER_NAMES.keys()
    for hint in OTHER_NAMES.values():
        assert {name for name in re.findall(r"(\w+)=", hint) if name != "temperature"} <= own


class TestNames:
    def test_the_one_that_comes_along(self) -> None:
        with LLM("stories15m") as llm:
            assert llm.program.file.size > 1 << 20
            assert llm("Once upon a time", max_new_tokens=4).startswith(", there")

    def test_what_is_there_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "stories15m").mkdir()
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError, match="the folder stories15m is empty"):
            LLM("stories15m")

    def test_one_that_is_fetched(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        def fetch(name: str, progress: Any) -> Path:
            asked.append(name)
            return TINY

        monkeypatch.setattr(models, "fetch", fetch)
        with LLM("smollm2", ByteTokenizer()) as llm:
            assert asked == ["smollm2"]
            assert llm("a", max_new_tokens=1, stop_ids=()) is not None

    def test_a_program_that_is_cut(self, tmp_path: Path) -> None:
        """The program is read before the tokenizer, which is missing too."""
        (tmp_path / "cut.pte").write_bytes(TINY.read_bytes()[:1000])
        with pytest.raises(FormatError, match=r"cut\.pte"):
            LLM(tmp_path / "cut.pte")

    def test_unknown_ones(self) -> None:
        both = r"nowhere does not exist, and no model is called 'nowhere': known are .*smollm2, stories15m"
        with pytest.raises(InputError, match=both):
            LLM("nowhere")
        for path in ("nowhere/at/all", "nowhere.pte", Path("stories15m")):
            with pytest.raises(InputError, match=f"{path} does not exist$"):
                LLM(path)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("page", ["language-models.md", "sampling.md"])
def test_examples_of_the_docs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of a page run in order, with 6 tokens in place of 20 or 30."""
    pytest.importorskip("llguidance", reason="needs the extra `serve`")
    content = (Path(__file__).parents[2] / "docs" / page).read_text("utf-8")
    examples = "\n".join(re.findall(r"```python\n(.*?)```", content, re.DOTALL))
    assert examples.count("llm") >= 8
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page}
    if not Device.open().target.shader_f16:
        examples = examples.replace('cache="f16"', 'cache="f32"').replace(
            "sequence_bytes / 3", "sequence_bytes"
        )
    exec(re.sub(r"\b[23]0\b", "6", examples), names)
    names["llm"].close()
