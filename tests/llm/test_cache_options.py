"""The context and the element type of KV caches, chosen at load: the same logits, less memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from byte_tokenizer import ByteTokenizer
from checkpoints import Golden
from llm_fixtures import MODELS, TINY
from test_batched import begin, end

import pteron
from pteron import Device, FormatError, InputError, UnsupportedError
from pteron.embeddings.hidden_states import open_served
from pteron.graph import Node
from pteron.llm import LLM, LanguageModel
from pteron.llm.cache import options as cache_options
from pteron.llm.cache.options import CacheOptions, longest_context
from pteron.llm.engine.batched_model import BatchedModel
from pteron.llm.engine.speculation import Lookup, Speculator
from pteron.llm.export import export_llm, read_checkpoint
from pteron.llm.network.options import Options
from pteron.tools.bench import Decode, Pace, bench

pytest.importorskip("safetensors.numpy")
pytest.importorskip("tokenizers")

# Relative to the largest logit. f16 rounds keys and values to 11 bits, 5e-4 of each element; int8 by up to
# 4e-3 of the largest element of 32.
TOLERANCE = {None: 1e-5, "f32": 1e-5, "f16": 2e-3, "int8": 2e-2}
CACHES: list[Any] = [None, "f32", "f16", "int8"]
Cache: TypeAlias = Literal["f16", "int8"]
NAMES = ["tiny_llama_q4", "tiny_llama_fp32", "tiny_qwen3_fp32", "tiny_llama_q4_static"]
BUILT = Options(None, embedding_bits=None, max_seq_len=16, max_context_len=24)
TOKENS = np.random.default_rng(7).integers(3, 500, 47).tolist()


@contextmanager
def opened(path: Path, context: int | None = None, cache: Any = None) -> Iterator[LanguageModel]:
    options = CacheOptions(context, cache)
    with pteron.load(path, adapt=options.adapt) as program:
        yield LanguageModel(program, context=options.context)


def error(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def run(model: LanguageModel, prompt: int = 31) -> list[npt.NDArray[np.float32]]:
    """Logits of a prompt and of each later token."""
    model.reset()
    return [model.prefill(TOKENS[:prompt]), *map(model.decode_one_token, TOKENS[prompt:])]


@pytest.fixture(params=["f16", "int8"])
def small_cache(request: pytest.FixtureRequest, device: Device) -> Cache:
    """Caches smaller than f32; llvmpipe has no 16-bit floats on ARM."""
    if request.param == "f16" and not device.target.shader_f16:
        pytest.skip("the adapter has no 16-bit floats")
    return request.param  # type: ignore[no-any-return]


@pytest.mark.long(every=7)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", NAMES)
def test_logits_of_pytorch(name: str, cache: str | None) -> None:
    golden = np.load(MODELS / f"{name}.npz")
    prompt, tokens = golden["prompt"].tolist(), golden["decode_tokens"].tolist()
    with opened(MODELS / f"{name}.pte", len(prompt) + len(tokens), cache) as model:
        last = golden["logits_prefill"].reshape(-1, model.vocabulary)[-1]
        assert error(model.prefill(prompt), last) <= 3 * TOLERANCE[cache]
        for token, expected in zip(tokens, golden["logits_decode"], strict=True):
            assert error(model.decode_one_token(token), expected) <= 3 * TOLERANCE[cache]
        with pytest.raises(InputError, match="exceed the context"):
            model.decode_one_token(1)


@pytest.mark.long(every=4)
@pytest.mark.usefixtures("on_route")
@pytest.mark.parametrize("cache", CACHES)
def test_a_shorter_context_up_to_its_end(cache: str | None, device: Device) -> None:
    with opened(TINY) as whole:
        expected, bytes_whole = run(whole), whole.sequence_bytes
    with opened(TINY, 47, cache) as model:
        assert model.sequence_bytes < bytes_whole * _share(cache, device)
        for prompt in (31, 5, 47):
            for found, right in zip(run(model, prompt)[::-1], expected[::-1], strict=False):
                assert error(found, right) <= TOLERANCE[cache]


def test_options_that_make_no_sense() -> None:
    with pytest.raises(InputError, match="context must be at least 1, not 0"):
        CacheOptions(0)
    with pytest.raises(InputError, match="cache must be f32, f16 or int8, not 'int4'"):
        CacheOptions(cache="int4")  # type: ignore[arg-type]  # what is refused


def test_further_sequences_have_the_chosen_context() -> None:
    with opened(TINY, 24) as model:
        other = model.sequence()
        other.prefill(TOKENS[:24])
        with pytest.raises(InputError, match="exceed the context"):
            other.decode_one_token(1)
        other.close()


def _share(cache: str | None, device: Device) -> float:
    """An upper bound of what 47 tokens take, of 64 in f32."""
    if cache == "f16" and device.target.shader_f16:
        return 0.4
    return 0.35 if cache == "int8" else 0.8


@pytest.mark.long(every=4)
@pytest.mark.usefixtures("on_route")
@pytest.mark.parametrize("cache", ["f32", "f16", "int8"])
def test_batched_rows(cache: str) -> None:
    with opened(TINY, 47, cache) as model:
        prompts = [TOKENS[:30], TOKENS[3:9], TOKENS[10:40]]
        expected = []
        for prompt in prompts:
            model.reset()
            expected.append(model.prefill(prompt))
        batched = BatchedModel(model, 3)
        sequences, rows = begin(batched, prompts)
        for found, right in zip(batched.logits(rows), expected, strict=True):
            assert error(found, right) <= 1e-5  # of rows with the same cache
        end(batched, sequences)


@pytest.mark.long(every=2)
def test_text_of_several_sequences(device: Device, small_cache: Cache) -> None:
    with LLM(TINY, ByteTokenizer(), device=device, context=50, cache=small_cache, sequences=3) as llm:
        options: dict[str, Any] = {"max_new_tokens": 8, "stop_ids": ()}
        prompts = [TOKENS[:20], TOKENS[5:30], TOKENS[:28]]
        alone = [[piece.token for piece in llm.generate(prompt, **options)] for prompt in prompts]
        llm.reset()
        batch = llm.generate_batch(prompts, **options)
        assert [[piece.token for piece in each.pieces] for each in batch] == alone


@pytest.mark.long(every=2)
def test_speculation(device: Device, small_cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokens as of plain decoding, from the same caches."""
    monkeypatch.setattr(Lookup, "is_scored", False)  # so that proposals are verified whether right or wrong
    monkeypatch.setattr(Speculator, "cost", lambda _, rows: 1 + rows / 100)
    options: dict[str, Any] = {"max_new_tokens": 24, "stop_ids": ()}
    found = []
    for speculate in (None, "lookup"):
        with LLM(TINY, ByteTokenizer(), device=device, cache=small_cache, speculate=speculate) as llm:
            found.append([piece.token for piece in llm.generate([5, 6, 7] * 6, **options)])
            assert bool(llm.statistics.proposed_tokens) is bool(speculate)
    assert found[0] == found[1]


@pytest.mark.long(every=2)
def test_saved_sequences(device: Device, small_cache: Cache, tmp_path: Path) -> None:
    def load(**options: Any) -> LLM:
        return LLM(TINY, ByteTokenizer(), device=device, **options)

    file = tmp_path / "cache"
    with load(context=50, cache=small_cache) as llm:
        expected = [piece.token for piece in llm.generate(TOKENS[:40], max_new_tokens=4, stop_ids=())]
        llm.save(file, TOKENS[:40])
    with load(cache=small_cache) as llm:  # a longer context
        assert llm.restore(file) == 40
        assert [piece.token for piece in llm.generate(TOKENS[:40], max_new_tokens=4, stop_ids=())] == expected
        assert llm.statistics.reused_tokens == 39
    refused: list[tuple[dict[str, Any], str]] = [({"context": 32, "cache": small_cache}, "40 tokens")]
    refused += [({"cache": "f32"}, "another element type than these, which cache= chooses")]
    for options, message in refused:
        with load(**options) as llm, pytest.raises(FormatError, match=message):
            llm.restore(file)


def test_chunks_of_a_prompt_compute_no_logits(device: Device) -> None:
    with opened(TINY) as model:
        assert model.delegate is not None
        model.prefill(TOKENS)  # in two chunks
        session, states = model.delegate.session, model.delegate.states
        recording, _ = session.find_recording((np.array([TOKENS[:31]], np.int32), np.array([0])))
        whole, part = recording.replay(states), recording.replay_states(states)
        outputs = [launch.operator for launch in recording.plan.launches[len(part.launches) :]]
        assert 0 < len(part.launches) < len(whole.launches)
        assert not any("cache" in name for name in outputs)


def test_contexts_that_do_not_fit(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(**options: Any) -> LLM:
        return LLM(TINY, ByteTokenizer(), device=device, **options)

    for options, message in (
        (
            {"context": 65},
            f"^{re.escape(str(TINY))}: a context of 65 tokens, but the program's longest is 64",
        ),
        ({"context": 0}, "at least 1"),
        ({"context": 1.5}, "integer"),
        ({"cache": "int4"}, "f32, f16 or int8, not 'int4'"),
    ):
        with pytest.raises(InputError, match=message):
            load(**options)
    monkeypatch.setattr(device, "target", replace(device.target, shader_f16=False))
    with pytest.raises(UnsupportedError, match="shader-f16"):
        load(cache="f16")


def test_heads_that_have_no_codes_by_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_options, "head_width", lambda cache: 6)
    with pytest.raises(UnsupportedError, match="heads of 6 elements, but cache int8 takes multiples of 4"):
        LLM(TINY, ByteTokenizer(), cache="int8")


def is_attention(node: Node) -> bool:
    return node.name == "sdpa_with_kv_cache.default"


def test_masks_fix_the_context() -> None:
    with pteron.load(TINY) as program:
        (graph,) = program.graphs("forward")
        nodes = [
            replace(node, args=(*node.args[:7], node.args[0], *node.args[8:])) if is_attention(node) else node
            for node in graph.nodes
        ]
        with pytest.raises(UnsupportedError, match="not as a KV cache by rows"):
            CacheOptions(32).adapt(program.file, replace(graph, nodes=tuple(nodes)))


# Programs that Pteron builds ----------------------------------------------------------------------


@pytest.fixture(
    params=["llama", "gptj", "gpt2", "mistral_window", "bloom", "deepseek_v2", "phi3_short", "gemma3", "lfm2"]
)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden.load(request.param)


@pytest.mark.long(every=9)
def test_contexts_beyond_the_caches_in_the_file(golden: Golden, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(golden.write_folder(tmp_path))
    file = tmp_path / "model.pte"
    checkpoint.program(replace(BUILT, longest_context=100)).write(file)
    for context, cache, tolerance in ((64, None, 1e-5), (41, "f16", 1e-2), (41, "int8", 0.15)):
        with opened(file, context, cache) as model:  # random weights: large scores
            for prompt in (16, 3, 40):
                model.reset()
                found = [model.prefill(golden.prompt[:prompt])]
                found += map(model.decode_one_token, golden.prompt[prompt:])
                for logits, right in zip(found[::-1], golden.logits[::-1], strict=False):
                    assert np.abs(logits - right).max() <= tolerance * np.abs(golden.logits).max()


def test_the_longest_context(tmp_path: Path) -> None:
    def longest(name: str, most: int | None) -> int:
        golden = Golden.load(name)
        checkpoint = read_checkpoint(golden.write_folder(tmp_path / name))
        checkpoint.program(replace(BUILT, longest_context=most)).write(tmp_path / f"{name}.pte")
        with pteron.load(tmp_path / f"{name}.pte") as program:
            for context in (1, 50, 10**6):
                limited = CacheOptions(context, limited=True).length(program.file)
                assert limited == min(context, longest_context(program.file))
            return longest_context(program.file)

    assert longest("llama", 100) == 100
    assert longest("phi3_short", 100) == 64  # other rotary embeddings beyond
    assert longest("gpt2", 1000) == 128  # learned positions
    assert longest("llama4", 1 << 20) < 1 << 20
    assert longest("llama", None) == 24


def test_exported_folders(small_cache: Cache, tmp_path: Path) -> None:
    folder = Golden.load("llama").write_folder(tmp_path / "from")
    plain: dict[str, Any] = {"quantize": None, "embedding_bits": None, "max_seq_len": 16}
    export_llm(folder, tmp_path / "to", **plain)
    export_llm(folder, tmp_path / "short", max_context_len=32, **plain)
    for name, longest in ("to", 128), ("short", 32):
        with pteron.load(tmp_path / name / "model.pte") as program:
            assert longest_context(program.file) == longest
    with LLM(tmp_path / "to", context=100, cache=small_cache) as llm:
        prompt = [3 + index % 20 for index in range(90)]
        assert len(list(llm.generate(prompt, max_new_tokens=20, stop_ids=()))) == 11  # the last is not read
        assert llm.statistics.finish_reason == "context"


@pytest.mark.long
def test_longrope_models_by_name_have_a_program_for_longer_contexts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the original context, here 32 tokens, they have other rotary embeddings."""
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("pteron.llm.export.CONTEXT", 32)
    exact: dict[str, Any] = {"quantize": None, "embedding_bits": None, "max_seq_len": 16}
    monkeypatch.setattr(
        "pteron.llm.export.export_llm", lambda *files, **named: export_llm(*files, **named | exact)
    )
    golden = Golden.load("phi3_long")
    folder, prompt = golden.write_folder(tmp_path / "phi"), golden.prompt[:40]
    with LLM(folder) as llm:
        assert (llm.model.context, llm.longest_context) == (32, 128)
        with pytest.raises(
            InputError, match=r"holds 32; .* load the model with context= .* up to 128, or drop"
        ):
            llm(prompt)
        with pytest.raises(InputError, match="phi: a context of 129 tokens, but the model's longest is 128"):
            LLM(folder, context=129)
        short = llm.model.prefill(prompt[:20])
    for context in (33, 48, 32):
        with LLM(folder, context=context) as llm:
            assert llm.model.context == context
            assert (error(llm.model.prefill(prompt[:20]), short) > 0.01) is (context > 32)
            if context == 48:
                llm.model.reset()
                assert error(llm.model.prefill(prompt), golden.logits[39]) < TOLERANCE[None]
    with open_served(folder, context=48) as served:
        assert longest_context(served.program.file) == 64
    assert len([*(tmp_path / "cache" / "programs").iterdir()]) == 2  # of 32 and of 64 tokens


@pytest.mark.long(every=2)
def test_caches_grow_to_the_contexts_of_a_benchmark(small_cache: Cache, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(Golden.load("llama").write_folder(tmp_path))
    checkpoint.program(replace(BUILT, longest_context=100)).write(tmp_path / "model.pte")
    pace = Pace(runs=1, seconds=0.01, warmup=1, tokens=2)
    found = bench(tmp_path / "model.pte", [Decode(40)], pace=pace, cache=small_cache)
    assert found.cases[0].what == "decode at context 40"
    with pytest.raises(InputError, match="exceeds the context, which holds 100"):
        bench(tmp_path / "model.pte", [Decode(100)], pace=pace)
