"""stories15M with every rewrite and with none: the same tokens, on every route.

`benchmarks/same_tokens.py` compares 500 tokens of longer models.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pteron.gpu import Device
from pteron.llm import LLM, Sampling
from pteron.llm.names.models import fetch
from pteron.ops import Target
from pteron.passes.rewrite import REWRITES_VARIABLE

STORY, PARK = "Once upon a time", "Lily and her dog went to the park. Suddenly,"
GREEDY, SEEDED = Sampling(), Sampling(temperature=0.9, top_p=0.95, seed=11)
Cases = list[tuple[str, Sampling, int]]


def tokens(rewrites: str, cases: Cases, model: str) -> list[list[int]]:
    """The model's tokens with the given rewrites, for each (prompt, sampling, count)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(REWRITES_VARIABLE, rewrites)
        with LLM(fetch(model)) as llm:
            return [
                [
                    piece.token
                    for piece in llm.generate(prompt, sampling=sampling, max_new_tokens=count, stop_ids=())
                ]
                for prompt, sampling, count in cases
            ]


def check(*cases: tuple[str, Sampling, int], model: str = "stories15m") -> None:
    with_all, with_none = (tokens(rewrites, [*cases], model) for rewrites in ("", "none"))
    assert [len(each) for each in with_all] == [count for *_, count in cases]
    assert with_all == with_none


@pytest.mark.long
@pytest.mark.parametrize(("greedy", "seeded"), [(70, 30), (240, 120)])
def test_on_this_device(greedy: int, seeded: int) -> None:
    """The second time to the end of the context."""
    check((STORY, GREEDY, greedy), (PARK, SEEDED, seeded))


@pytest.mark.long
@pytest.mark.parametrize("route", ["by subgroups", "by workgroups"])
def test_on_other_routes(
    route: str, request: pytest.FixtureRequest, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that software adapters do not take: tiles for the prompt, rows of weights for the tokens."""
    is_by_subgroups = route == "by subgroups"
    shared: Target = request.getfixturevalue("own_subgroups") if is_by_subgroups else device.target
    monkeypatch.setattr(device, "target", replace(shared, is_cpu=False))
    check((PARK, SEEDED, 6), (STORY, GREEDY, 6))


@pytest.mark.heavy
def test_smollm2() -> None:
    """`benchmarks/same_tokens.py` compares 500 tokens in every way."""
    check(("The history of the bicycle begins", GREEDY, 60), model="smollm2")
