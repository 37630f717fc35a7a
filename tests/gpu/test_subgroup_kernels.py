"""Row kernels by subgroups compile on every device that has subgroups, and run at the width it has."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arguments import tensor
from check import check_op
from kernel_files import FILES, kernel
from measured_case import Case
from measured_cases import CASES

from pteron import Device
from pteron.dtypes import DType
from pteron.host.tensors import HostResult
from pteron.llm.sampling import Sampling
from pteron.llm.sampling.form import Form, numbers
from pteron.llm.sampling.graphs import sampler_graph
from pteron.ops import Target
from pteron.ops.row_layout import SUBGROUP, shared_rows
from pteron.plan import collect
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session
from pteron.wgsl import Kernel, Module, compose

pytestmark = pytest.mark.kernels

_USES_ROWS = re.compile(r"^import package::wgsl::lib::rows::", re.MULTILINE)
ROW_KERNELS = {name for name, path in FILES.items() if _USES_ROWS.search(path.read_text("utf-8"))}
# Where there are subgroups, attention_decode.wgsl takes the place of attention_split.wgsl.
USED = ROW_KERNELS - {"attention_split"}
BY_ROWS = [case for case in CASES if "hardware" in case.kinds and USED & set(case.kernels.split())]
NAN, INF = math.nan, math.inf


@pytest.fixture
def by_subgroups(subgroups: Device, width: int, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target whose rows are shared by subgroups, their width being that of the device."""
    if SUBGROUP % width:
        pytest.skip(f"subgroups of {width} do not divide rows of {SUBGROUP} lanes")

    def composed(kernel: Kernel) -> Module:
        declared = dict(kernel.given)
        is_shared = declared.get("BY_SUBGROUPS") == "true" or kernel.name == "q4_digits"
        return compose(kernel.specialise(SUBGROUP=width) if is_shared else kernel)

    monkeypatch.setattr(collect, "compose", composed)
    monkeypatch.setattr(Target, "check_runs_on", lambda *_: None)
    return replace(subgroups.target, is_cpu=False, subgroup_size=SUBGROUP)


@pytest.mark.parametrize("lanes", [32, 64, 256])
@pytest.mark.parametrize("name", sorted(ROW_KERNELS))
def test_a_row_kernel_compiles(name: str, lanes: int, subgroups: Device) -> None:
    target = replace(subgroups.target, is_cpu=False, subgroup_size=SUBGROUP)
    layout = shared_rows(target, lanes, max(1, 64 // lanes))
    assert layout["BY_SUBGROUPS"]
    subgroups.pipeline(compose(kernel(name, **layout)))


@pytest.mark.long(every=7)
@pytest.mark.parametrize("case", BY_ROWS, ids=lambda case: f"{case.name}-{case.kernels}")
def test_an_operator(case: Case, by_subgroups: Target) -> None:
    case.check(by_subgroups)


@pytest.mark.parametrize("length", [5, 40, 100, 700])
def test_a_nan_wins_over_every_number(length: int, by_subgroups: Target) -> None:
    x = np.random.default_rng(0).uniform(-3, 3, (6, length))
    places = [(1, length // 2), (2, 0), (3, -1), (4, 1), (5, 2)]
    for place, value in zip(places, (NAN, NAN, NAN, INF, -INF), strict=True):
        x[place] = value
    x[3, 0] = INF
    check_op("aten.amax.default", tensor(values=x), [1], False, target=by_subgroups)
    check_op("aten._softmax.default", tensor(values=x), -1, False, target=by_subgroups)


def test_the_largest_of_integers(by_subgroups: Target) -> None:
    x = tensor("S", 77, low=-100, high=-3)
    check_op("aten.amax.default", x, [1], False, dtype="i32", target=by_subgroups)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("size", [1, 67, 5003])
@pytest.mark.parametrize("make", [np.zeros, np.arange, lambda size: np.arange(size)[::-1] // 3])
def test_the_sampler_draws_the_same(make: Any, size: int, by_subgroups: Target, subgroups: Device) -> None:
    """Of equal logits the first, with its log-probability; and with noise, what lanes alone draw."""
    logits = make(size).astype(np.float32)
    shares = logits - np.log(np.exp(logits.astype(np.float64) - logits.max()).sum()) - logits.max()
    greedy, logprob = _drawn(logits, Sampling(), by_subgroups, subgroups)
    assert greedy == logits.argmax()
    assert logprob == pytest.approx(shares[greedy], abs=1e-5)
    sampling = Sampling(temperature=2.0, top_k=50, top_p=0.9, min_p=0.01, repetition_penalty=1.2)
    lanes_alone = replace(by_subgroups, subgroup_size=0)
    token, logprob = _drawn(logits, sampling, by_subgroups, subgroups)
    expected = _drawn(logits, sampling, lanes_alone, subgroups)
    assert (token, logprob) == pytest.approx(expected, abs=1e-5)


def _drawn(logits: Any, sampling: Sampling, target: Target, device: Device) -> tuple[int, float]:
    """The first token drawn, and its log-probability."""
    session = Session.of(
        sampler_graph(logits.size, Form.of(sampling, logits.size), DType.F32), device, target=target
    )
    states = session.states()
    wanted = [None, Wanted(DType.I32, on_gpu=False)]
    _, drawn = session.run([logits.reshape(1, -1), *numbers(replace(sampling, seed=3))], wanted, states)
    assert isinstance(drawn, HostResult)
    pair = drawn.numpy()[0]
    states.close()
    session.close()
    return int(pair[0]), float(pair[1:].view(np.float32)[0])
