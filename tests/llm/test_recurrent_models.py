"""Models with a recurrent state, which cannot be rewound: what a prompt reuses, batches, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from checkpoints import Golden
from test_architectures import assert_close

import pteron
from pteron import Device
from pteron.dtypes import DType
from pteron.errors import UnsupportedError
from pteron.format.records import ProgramFile
from pteron.graph import Constant, Graph, Node, Tensor
from pteron.graph.values import ids_of, numel
from pteron.llm import LLM, LanguageModel
from pteron.llm.engine.batched_model import BatchedModel
from pteron.llm.export import export_llm

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")

SIZES: dict[str, Any] = {"max_seq_len": 16, "max_context_len": 64}
GREEDY: dict[str, Any] = {"stop_ids": (), "temperature": 0}
Fresh: TypeAlias = Callable[..., list[int]]  # (prompt, count) -> tokens
PROMPT = Golden.load("lfm2").prompt


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lfm2")
    source = Golden.load("lfm2").write_folder(folder / "source")
    export_llm(source, folder / "made", quantize=None, embedding_bits=None, **SIZES)
    return folder / "made"


@pytest.fixture
def llm(made: Path) -> Iterator[LLM]:
    with LLM(made) as found:
        yield found


def tokens(llm: LLM, prompt: list[int], count: int = 8, **options: Any) -> list[int]:
    return [piece.token for piece in llm.generate(prompt, max_new_tokens=count, **{**GREEDY, **options})]


@pytest.fixture(scope="module")
def fresh(made: Path) -> Iterator[Fresh]:
    """The tokens of a model that has read nothing before."""
    with LLM(made, sequences=1) as oracle:

        def generated(prompt: list[int], count: int = 8) -> list[int]:
            oracle.reset()
            return tokens(oracle, prompt, count)

        yield generated


def test_what_a_prompt_reuses(made: Path, fresh: Fresh) -> None:
    """All that was read, if the prompt extends it; else nothing."""
    first = PROMPT[:9]
    with LLM(made, sequences=1) as llm:
        assert not llm.model.can_rewind
        drawn = tokens(llm, first)
        assert drawn == fresh(first)
        for prompt, reused in (
            (first + drawn + PROMPT[20:25], len(first) + len(drawn) - 1),
            (first, 0),  # a prefix of what was read
            (first[:4] + PROMPT[20:30], 0),  # shares a prefix with it
        ):
            assert tokens(llm, prompt) == fresh(prompt)
            assert llm.statistics.reused_tokens == reused


def test_a_sequence_that_read_too_much_starts_anew(llm: LLM, fresh: Fresh) -> None:
    """Steps are submitted ahead: after a stop token, the state has read more than the text has."""
    prompt = PROMPT[:9]
    expected = fresh(prompt, 30)
    stop = expected[3]
    for _ in range(3):
        assert tokens(llm, prompt, 30, stop_ids=(stop,)) == expected[: expected.index(stop)]
        assert llm.model.position == len(llm.model.tokens)
    stream = llm.generate(prompt, max_new_tokens=30, **GREEDY)
    assert next(stream).token == expected[0]
    stream.close()
    longer = prompt + expected[:2] + PROMPT[30:33]
    assert tokens(llm, longer) == fresh(longer)


def test_the_state_before_the_last_chunk_is_kept(made: Path, fresh: Fresh) -> None:
    """The next turn of a conversation continues from there, also after a stop token."""
    prompt = PROMPT[:37]  # in chunks of 16, 16 and 5
    with LLM(made, sequences=1) as llm:
        stop = tokens(llm, prompt, 5)[2]
        llm.reset()
        for turn, reused in (
            (prompt, 0),
            (prompt[:35] + PROMPT[:7], 32),
            (prompt[:33] + PROMPT[:4], 32),
            (prompt[:30] + PROMPT[:4], 0),
            (prompt[:30] + PROMPT[:20], 32),
        ):
            expected = fresh(turn, 12)
            expected = expected[: expected.index(stop)] if stop in expected else expected
            assert tokens(llm, turn, 12, stop_ids=(stop,)) == expected
            assert llm.statistics.reused_tokens == reused


def test_a_prompt_after_a_reset(made: Path) -> None:
    with LLM(made) as llm:
        model = llm.model
        first = model.prefill(PROMPT[:9])
        model.reset()
        for token in PROMPT[:9]:
            logits = model.decode_one_token(token)
        assert_close(logits, first, 1e-5)


def test_requests_at_the_same_time(llm: LLM) -> None:
    prompts = [PROMPT[:5], PROMPT[3:20], PROMPT[:21], PROMPT[:5] + PROMPT[30:]]
    expected = [tokens(llm, prompt, 12) for prompt in prompts]
    for _ in range(2):
        found = llm.generate_batch(prompts, max_new_tokens=12, **GREEDY)
        assert [[piece.token for piece in each.pieces] for each in found] == expected
    assert BatchedModel.reason(llm.model) is None
    assert llm.pool.batched is not None


def test_states_cannot_be_saved(llm: LLM, tmp_path: Path) -> None:
    tokens(llm, PROMPT[:5])
    with pytest.raises(UnsupportedError, match="not a KV cache with one row per token"):
        llm.save(tmp_path / "cache")


def test_speculation_is_refused(made: Path) -> None:
    with pytest.raises(UnsupportedError, match="its state cannot be rewound"):
        LLM(made, speculate="lookup")


# States that nodes write ---------------------------------------------------------------------------


def with_average(file: ProgramFile, graph: Graph) -> Graph:
    """The logits plus a running average of them, which a node writes into what a prepack made."""
    (logits,) = graph.outputs
    assert isinstance(logits, Tensor)
    shape, data = logits.shape_max, np.zeros(numel(logits.shape_max), np.float32)
    data[7], half = 3, np.full(1, 0.5, np.float32)
    free = max(ids_of(graph)) + 1
    start, state, factor, total = (Tensor(free + place, DType.F32, shape) for place in range(4))
    start = replace(start, constant=Constant("start", DType.F32, shape, memoryview(data.tobytes())))
    constant = Constant("half", DType.F32, (1,), memoryview(half.tobytes()))
    factor = replace(factor, shape_max=(1,), constant=constant)
    first = max(node.index for node in graph.nodes) + 1
    nodes = (
        Node(first, "et_vk.prepack.default", (start, state)),
        Node(first + 1, "aten.add.Tensor", (logits, state, 1, total)),
        Node(first + 2, "aten.mul.Tensor", (total, factor, state)),
    )
    return replace(graph, nodes=(*graph.nodes, *nodes), outputs=(total,))


def test_a_state_that_a_node_writes(models: Path, device: Device) -> None:
    """Such a model starts anew where another goes back, and its rows are no copy of its state."""
    path, prompt = models / "tiny_llama_q4.pte", list(range(40, 70))
    with pteron.load(path, device=device) as plain:
        expected, model = [], LanguageModel(plain)
        average = np.where(np.arange(model.vocabulary) == 7, np.float32(3), np.float32(0))
        for chunk in [*model.chunks(prompt), [71], [5]]:
            expected.append(model.prefill(chunk) + average)
            average = expected[-1] / 2
    with pteron.load(path, device=device, adapt=with_average) as program:
        model = LanguageModel(program)
        assert not model.can_rewind
        assert model.row_layout is None
        with pytest.raises(UnsupportedError, match="is a state, but no cache"):
            BatchedModel(model, 2)
        for sequence in (model, model, model.sequence()):
            user = sequence.claim()
            assert sequence.resume(prompt, user) == 0
            found = [sequence.prefill_as(chunk, user) for chunk in (prompt, [71], [5])]
            for logits, wanted in zip(found, expected[-3:], strict=True):
                assert_close(logits, wanted, 1e-5)
