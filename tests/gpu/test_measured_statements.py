"""What kernels state of their loops and extents is true: they run with a count of both.

A kernel that states the extents of all its bindings is compiled without bounds checks: a statement that is
too small would be a memory fault on a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arguments import Symbol, tensor, weight
from check import check_op
from instrument import instrument
from kernel_files import FILES, kernel
from measure import Measuring
from measured_cases import CALLS, CASES, LIVE, MODELS, SAMPLERS, Case
from one_operator import OneOperator

from pteron import Device
from pteron.dtypes import DType
from pteron.format import open_bytes, read_program
from pteron.llm.sampling.operator import SAMPLE
from pteron.ops import Target
from pteron.plan import collect
from pteron.runtime.program import read_graphs
from pteron.runtime.session import Counters, Session, Wanted
from pteron.wgsl import Kernel, Module, compose
from pteron.wgsl.statements import read_statements

ON_BOTH = [
    pytest.param(case, kind, id=f"{case.name}-{case.kernels}-{kind}") for case in CASES for kind in case.kinds
]


def as_kind(device: Device, kind: str) -> Target:
    return replace(device.target, is_cpu=kind == "software")


@pytest.mark.parametrize(("case", "kind"), ON_BOTH)
def test_an_operator(case: Case, kind: str, device: Device, measuring: Measuring) -> None:
    case.check(as_kind(device, kind))
    assert measuring.kernels >= set(case.kernels.split())


@pytest.mark.parametrize("name", MODELS)
def test_a_language_model(
    name: str, models: Path, target: Target, device: Device, measuring: Measuring
) -> None:
    file = read_program(open_bytes(models / f"{name}.pte").view, name)
    (record,) = (record for record in file.methods if record.name == "forward")
    (graph,) = read_graphs(file, record, {})
    session = Session(graph, device, Counters(), target)
    wanted = [Wanted(DType.F32, on_gpu=False) for _ in graph.outputs]
    tokens = np.random.default_rng(0).integers(0, 64, 31)
    for count, position in CALLS:
        session.run([tokens[:count].reshape(1, -1), np.array([position])], wanted)
    session.close()
    assert measuring.kernels >= set(MODELS[name].split())


@pytest.mark.parametrize("settings", SAMPLERS, ids=str)
def test_the_sampler(settings: tuple[float, ...], measuring: Measuring) -> None:
    vocabulary = 5003
    logits, seen = tensor(1, vocabulary), weight(vocabulary, dtype="bool")
    seed, step = Symbol("seed"), Symbol("step")
    random = np.random.default_rng(0)
    values: dict[Any, Any] = {
        logits: random.normal(size=(1, vocabulary)).astype(np.float32),
        seen: random.random(vocabulary) < 0.5,
        seed: 1,
        step: 3,
    }
    outputs = [((1, 1), DType.I32), ((1,), DType.F32)]
    sampler = OneOperator(SAMPLE, (logits, seen, *settings, seed, step), values, outputs)
    sampler.run(values)
    sampler.close()
    assert measuring.kernels >= set(SAMPLERS[settings].split())


def test_every_kernel_is_measured() -> None:
    named = [*(case.kernels for case in CASES), *MODELS.values(), *SAMPLERS.values()]
    assert set(" ".join(named).split()) == set(FILES)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_kernel_compiles_with_its_counts(name: str, device: Device) -> None:
    device.pipeline(instrument(compose(kernel(name))))


@pytest.mark.parametrize(
    ("kernel_name", "statement"),
    [
        ("binary", "loops: rank"),
        ("unary", "extent x: count"),
        ("unary", "extent out: count"),
        ("q4_thread", "extent x: 4 * rows * QUADS"),
    ],
)
def test_a_statement_that_is_short_by_one_is_found(
    kernel_name: str, statement: str, device: Device, measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = (case for case in CASES if case.kernels == kernel_name)
    software = as_kind(device, "software")

    def stating(text: str) -> None:
        statements, _ = read_statements(f"//! {text}\n")
        monkeypatch.setattr(
            collect, "compose", lambda kernel: replace(compose(kernel), statements=statements)
        )

    stating(statement)
    case.check(software)
    stating(f"{statement} - 1")
    with pytest.raises(AssertionError, match="it states"):
        case.check(software)


def test_an_index_below_zero_is_found(
    device: Device, measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements, _ = read_statements("//! extent x: 4294967294\n")

    def reading_before_the_start(kernel: Kernel) -> Module:
        module = compose(kernel)
        source = module.source.replace("x[i]", "x[i32(i) - 1]")
        return replace(module, source=source, statements=statements)

    monkeypatch.setattr(collect, "compose", reading_before_the_start)
    with pytest.raises(AssertionError, match="4294967295 elements of x"):
        check_op("aten.relu.default", tensor("S", 3), live=LIVE)
