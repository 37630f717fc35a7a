"""The tiny model of most tests: one instance per test module, reset before each test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer

import pteron
from pteron import Device
from pteron.llm import LLM, LanguageModel
from pteron.ops import Target

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
TINY = MODELS / "tiny_llama_q4.pte"
A = [1, *range(40, 80)]  # longer than one prefill chunk
B = [*A[:20], 200, 90, 17, 111, 5]
RESIDENT = pytest.mark.parametrize("resident", [None, False], ids=["resident", "stepwise"])


def run_in_threads(work: Callable[..., object], arguments: Iterable[Any]) -> None:
    """Call `work` with each argument in a thread of its own, and raise the first error."""
    arguments = list(arguments)
    with ThreadPoolExecutor(len(arguments)) as threads:
        for done in [threads.submit(work, argument) for argument in arguments]:
            done.result(240)


@pytest.fixture
def q4(models: Path) -> Iterator[LanguageModel]:
    """The tiny model of each test's own."""
    with pteron.load(models / "tiny_llama_q4.pte") as program:
        yield LanguageModel(program)


@pytest.fixture(scope="module")
def _shared_llm(device: Device) -> Iterator[LLM]:
    with LLM(TINY, ByteTokenizer(), device=device) as made:
        yield made


@pytest.fixture
def llm(_shared_llm: LLM) -> LLM:
    """The tiny model with an empty cache. A test that closes its model loads one."""
    _shared_llm.reset()
    return _shared_llm


@pytest.fixture
def on_route(target: Target, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for CPUs and for GPUs."""
    monkeypatch.setattr(device, "target", replace(device.target, is_cpu=target.is_cpu))


@pytest.fixture(scope="module", params=["software", "hardware"])
def _shared_routed_llm(request: pytest.FixtureRequest, device: Device) -> Iterator[tuple[LLM, Target]]:
    target = replace(device.target, is_cpu=request.param == "software")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "target", target)
        made = LLM(TINY, ByteTokenizer(), device=device)
    yield made, target
    made.close()


@pytest.fixture
def routed_llm(
    _shared_routed_llm: tuple[LLM, Target], device: Device, monkeypatch: pytest.MonkeyPatch
) -> LLM:
    """The same with the kernels for CPUs and with those for GPUs."""
    made, target = _shared_routed_llm
    monkeypatch.setattr(device, "target", target)
    made.reset()
    return made
