"""KV caches of layers with a sliding window: rings of the window and the tokens of one call, with the same
logits as caches of the whole context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byte_tokenizer import ByteTokenizer
from checkpoints import Golden
from test_batched import begin, end

import pteron
from pteron import Device, FormatError
from pteron.llm import LLM, LanguageModel
from pteron.llm.cache import options as cache_options
from pteron.llm.cache.options import CacheOptions
from pteron.llm.engine.batched_model import BatchedModel
from pteron.llm.engine.verifier import Verifier
from pteron.llm.export import read_checkpoint
from pteron.llm.network.options import Options

pytest.importorskip("safetensors.numpy")
pytest.importorskip("tokenizers")

WINDOW, CHUNK = 8, 5
CONTEXT = 200
BUILT = Options(None, embedding_bits=None, max_seq_len=CHUNK, max_context_len=40, longest_context=CONTEXT)
TOKENS = np.random.default_rng(5).integers(3, 32, CONTEXT).tolist()
FAMILIES = ["cohere2", "exaone4", "gemma2", "gemma3", "gpt_oss", "ministral", "mistral_window", "olmo3"]
FAMILIES += ["phi3", "qwen2_window", "starcoder2"]


@pytest.fixture(autouse=True)
def short_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the window and one call, so that goldens are longer."""
    monkeypatch.setattr(cache_options, "AHEAD", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Golden.load("gemma3").write_folder(tmp_path_factory.mktemp("gemma3"))


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    read_checkpoint(folder).program(BUILT).write(folder / "model.pte")
    return folder / "model.pte"


@contextmanager
def opened(
    path: Path, context: int = CONTEXT, cache: Any = None, rings: bool = True
) -> Iterator[LanguageModel]:
    options = CacheOptions(context, cache, rings)
    with pteron.load(path, adapt=options.adapt) as program:
        yield LanguageModel(program, context=context)


def run(model: LanguageModel, ids: list[int]) -> list[Any]:
    """The logits of each token, fed alone."""
    return list(map(model.decode_one_token, ids))


def are_close(found: Any, expected: Any, tolerance: float = 1e-5) -> bool:
    return bool(np.abs(np.subtract(found, expected)).max() <= tolerance * np.abs(expected).max())


@pytest.mark.long(every=36)
@pytest.mark.usefixtures("on_route")
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("chunk", [2, 5, 16])
def test_logits_of_transformers(name: str, chunk: int, tmp_path: Path) -> None:
    """Prompts in calls of some tokens, then decode, past the window's edge and several rounds of the ring."""
    golden = Golden.load(name)
    built = replace(BUILT, max_seq_len=chunk)
    read_checkpoint(golden.write_folder(tmp_path)).program(built).write(tmp_path / "model.pte")
    with opened(tmp_path / "model.pte", 40) as model:
        assert 0 < min(ring.rows for ring in model._rings) < 40
        for prompt in (40, 17, 9, 3):
            model.reset()
            found = [model.prefill(golden.prompt[:prompt]), *run(model, golden.prompt[prompt:])]
            assert are_close(found, golden.logits[prompt - 1 :])


def test_memory(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five of six layers have a window of 8 tokens."""
    monkeypatch.undo()
    long = 8192
    read_checkpoint(folder).program(replace(BUILT, longest_context=long)).write(tmp_path / "long.pte")
    with opened(tmp_path / "long.pte", long) as model:
        assert model.delegate is not None
        states = [spec.bytes for spec in model.delegate.executable.states.values()]
        row = max(states) // long
        assert sorted({size // row for size in states}) == [WINDOW + 64, long]
        assert model.sequence_bytes < 0.18 * 12 * max(states)
    with opened(tmp_path / "long.pte", long, rings=False) as model:
        assert model.sequence_bytes == 12 * row * long
    with opened(tmp_path / "long.pte", WINDOW + 12) as model:  # shorter than a ring
        assert model.sequence_bytes == 12 * row * (WINDOW + 12)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("cache", ["f32", "int8"])
def test_prompts_that_continue(program: Path, cache: str) -> None:
    """From the last tokens, and from further back than the rings have rows: then from the first token."""
    with opened(program, cache=cache) as model:
        rows = model._rings[0].rows
        back = rows - WINDOW + 1
        for shared, reused in ((100, 100), (100 - back, 100 - back), (99 - back, 0), (30, 0), (0, 0)):
            model.reset()
            user = model.claim()
            model.prefill_as(TOKENS[:100], user)
            prompt = [*TOKENS[:shared], 2, *TOKENS[40:60]]
            assert model.cached_prefix(prompt) == reused
            assert model.resume(prompt, user) == reused
            found = model.prefill_as(prompt[reused:], user)
            model.reset()
            assert are_close(found, model.prefill(prompt))
            assert model.resume(prompt, model.claim()) == len(prompt) - 1


def test_nothing_is_lost_before_the_rings_are_full(program: Path) -> None:
    with opened(program) as model:
        rows = model._rings[0].rows
        for count, reused in ((rows, 2), (rows + 1, 0)):
            model.reset()
            model.prefill(TOKENS[:count])
            assert model.cached_prefix([*TOKENS[:2], 7]) == reused


def test_a_prompt_that_was_not_read_loses_nothing(program: Path) -> None:
    with opened(program) as model:
        model.prefill(TOKENS[:100])
        assert model.resume([7, 8, 9], model.claim()) == 0
        assert model.cached_prefix(TOKENS[:50]) == 0  # the rings are those of 100 tokens all the same
        user = model.claim()
        assert model.resume(TOKENS[:101], user) == 100
        found = model.prefill_as(TOKENS[100:110], user)
        model.reset()
        assert are_close(found, model.prefill(TOKENS[:110]))


def test_steps_that_are_dropped(program: Path) -> None:
    """Tokens that were written and dropped again count for the rings."""
    with opened(program) as model:
        back = model._rings[0].rows - WINDOW + 1
        for dropped, kept in ((back, 60), (back + 1, 0)):
            model.reset()
            model.prefill(TOKENS[:60])
            for _ in range(dropped):  # one by one, without a record of the tokens
                model.record_steps(1)
            model.claim()
            assert (model.position, len(model.tokens)) == (kept, kept)


def test_copied_and_restored_rows(program: Path) -> None:
    with opened(program) as model:
        model.prefill(TOKENS[:70])
        other = model.sequence()
        user = other.claim()
        assert other.copy(model, [*TOKENS[:70], 5], user) == 70
        found = other.prefill_as(TOKENS[70:90], user)
        expected = model.prefill(TOKENS[70:90])
        assert are_close(found, expected)
        assert other.copy(model, [*TOKENS[:50], 5], other.claim()) == 0  # the rings have lost rows
        saved = model.rows()
        assert len(saved.tokens) == 90
        other.restore(saved, user := other.claim())
        assert other.resume([*TOKENS[:90], 3], user) == 90
        assert are_close(other.prefill_as([3], user), model.prefill([3]))
        other.close()


def test_batched_rows(program: Path, device: Device) -> None:
    with opened(program) as model:
        prompts = [TOKENS[:90], TOKENS[3:9], TOKENS[10:33]]
        expected = []
        for prompt in prompts:
            model.reset()
            expected.append(model.prefill(prompt))
        batched = BatchedModel(model, 3)
        sequences, rows = begin(batched, prompts)
        assert are_close(batched.logits(rows), expected)
        end(batched, sequences)


def test_verified_rows(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 rows of one step, of which 12 are wrong and dropped; then the right ones."""
    monkeypatch.setattr(cache_options, "AHEAD", 16)
    with opened(program) as model:
        model.prefill(TOKENS[:100])
        expected = run(model, TOKENS[100:116])
        model.reset()
        user = model.claim()
        model.prefill_as(TOKENS[:100], user)
        verifier, views = Verifier(model), list[Any]()

        def keep(outputs: Any) -> list[Any]:
            views[:] = [outputs[0]]
            return []

        def verify(tokens: list[int]) -> Any:
            with model.device.lock:
                verifier.submit(model, tokens, keep)
                data = model.device.read(views[0].buffer, len(tokens) * model.vocabulary * 4)
            return np.frombuffer(data, np.float32).reshape(len(tokens), -1)

        assert are_close(verify([*TOKENS[100:104], *TOKENS[:12]])[:4], expected[:4])
        model.rewind_to(104, user)
        assert are_close(verify(TOKENS[104:116]), expected[4:])
        verifier.close()


# Through LLM --------------------------------------------------------------------------------------

PLAIN: dict[str, Any] = {"max_new_tokens": 60, "stop_ids": ()}


@contextmanager
def loaded(program: Path, device: Device, **options: Any) -> Iterator[LLM]:
    with LLM(program, ByteTokenizer(), device=device, **{"context": CONTEXT, **options}) as llm:
        yield llm


def tokens(llm: LLM, prompt: list[int], **options: Any) -> list[int]:
    return [piece.token for piece in llm.generate(prompt, **{**PLAIN, **options})]


@pytest.fixture(scope="module")
def expected(program: Path, device: Device) -> list[list[int]]:
    """The tokens of some prompts, with caches of the whole context."""
    with loaded(program, device, rings=False) as llm:
        return [tokens(llm, prompt) for prompt in PROMPTS]


PROMPTS = [TOKENS[:50], TOKENS[5:100], TOKENS[:7], TOKENS[:60]]


@pytest.mark.long
def test_texts(program: Path, device: Device, expected: list[list[int]]) -> None:
    """Alone, as a batch, with speculation, again."""
    for options in ({"sequences": 4}, {"speculate": "lookup"}):
        with loaded(program, device, **options) as llm:
            for _ in range(2):
                assert [tokens(llm, prompt) for prompt in PROMPTS] == expected
    with loaded(program, device, sequences=4) as llm:
        found = llm.generate_batch(PROMPTS, **PLAIN)
        assert [[piece.token for piece in each.pieces] for each in found] == expected


def test_a_conversation_continues(program: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """After steps that were submitted ahead, with rings as they are by default."""
    monkeypatch.undo()
    with loaded(program, device) as llm:
        first = tokens(llm, TOKENS[:100], max_new_tokens=20, stop_ids=(int(TOKENS[0]),))
        turn = [*TOKENS[:100], *first, *TOKENS[100:120]]
        found = tokens(llm, turn)
        assert llm.statistics.reused_tokens >= 100 + len(first) - 1
        llm.reset()
        assert tokens(llm, turn) == found


def test_saved_files(program: Path, device: Device, expected: list[list[int]], tmp_path: Path) -> None:
    file = tmp_path / "cache"
    with loaded(program, device) as llm:
        tokens(llm, PROMPTS[1], max_new_tokens=1)
        assert llm.save(file) == len(PROMPTS[1])
    with loaded(program, device, context=190) as llm:
        assert llm.restore(file) == len(PROMPTS[1])
        assert tokens(llm, PROMPTS[1]) == expected[1]
        assert llm.statistics.reused_tokens == len(PROMPTS[1]) - 1
    with loaded(program, device, rings=False) as llm:
        with pytest.raises(FormatError, match="other rings than these"):
            llm.restore(file)
        tokens(llm, PROMPTS[1], max_new_tokens=1)
        assert llm.save(file, PROMPTS[1][:7]) == 7
    with loaded(program, device) as llm:  # the rings are not full yet
        assert llm.restore(file) == 7
        assert tokens(llm, PROMPTS[1]) == expected[1]
        assert llm.statistics.reused_tokens == 7
