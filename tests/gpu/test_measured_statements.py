"""What kernels state of their loops and extents is true: they run with a count of both.

A kernel that states the extents of all its bindings is compiled without bounds checks: a statement that is
too small would be a memory fault on a GPU.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from arguments import tensor
from check import check_op
from instrument import instrument
from kernel_files import FILES, kernel
from measure import Measuring
from measured_case import LIVE, Case
from measured_cases import CALLS, CASES, MODELS, ROWS, SAMPLERS

from pteron import Device
from pteron.dtypes import DType
from pteron.families.quantized.tiles import LANES
from pteron.format.program import read_program
from pteron.format.source import open_bytes
from pteron.llm.sampling import Sampling
from pteron.llm.sampling.form import Form, numbers
from pteron.llm.sampling.graphs import MASK, SETTINGS, batch_graph, sampler_graph
from pteron.ops import Target
from pteron.ops.operand import State
from pteron.ops.target import EMULATED
from pteron.plan import collect
from pteron.runtime.outputs import Wanted
from pteron.runtime.program import read_graphs
from pteron.runtime.session import Session
from pteron.wgsl import Kernel, Module, compose
from pteron.wgsl.statements import read_statements

pytestmark = pytest.mark.kernels

SILENT = "stream"  # states nothing, is no operator's, and loops nowhere
SOFTWARE_LOOP_MAX = 65_535  # whatever adapter the tests run on
ON_BOTH = [
    pytest.param(case, kind, id=f"{case.name}-{case.kernels}-{kind}") for case in CASES for kind in case.kinds
]


def as_kind(device: Device, kind: str) -> Target:
    """The device as one that has no more storage buffers than WebGPU promises."""
    least = replace(device.target, buffers_max=Target().buffers_max)
    if kind == "hardware":
        return replace(least, is_cpu=False, subgroup_size=0)
    if kind == "matrices":  # emulated ones, of single halves: more does not fit software adapters
        return replace(least, is_cpu=False, subgroup_size=0, matrices=(EMULATED,), products="f16")
    return replace(least, is_cpu=True, loop_max=SOFTWARE_LOOP_MAX)


@pytest.mark.long(every=264)
@pytest.mark.parametrize(("case", "kind"), ON_BOTH)
def test_an_operator(
    case: Case, kind: str, device: Device, measuring: Measuring, request: pytest.FixtureRequest
) -> None:
    if "_uniform" in case.kernels and not device.target.broadcasts:
        pytest.skip("tensors can be uniform arrays on software adapters with subgroups alone")
    target: Target = (
        request.getfixturevalue("own_subgroups") if kind == "subgroups" else as_kind(device, kind)
    )
    if "_uniform" not in case.kernels:
        target = replace(target, broadcasts=False)  # tensors are no uniform arrays then
    case.check(target)
    narrow = {"q4_rows"} if 0 < target.subgroup_size < LANES else set()  # tiles run instead
    assert measuring.kernels >= set(case.kernels.split()) - narrow


# Only a rewrite launches rope_norm.
OF_REWRITES = {name: [pytest.mark.rewrites] if "rope_norm" in MODELS[name] else [] for name in MODELS}


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(name, marks=OF_REWRITES[name]) for name in MODELS])
def test_a_language_model(
    name: str, models: Path, target: Target, device: Device, measuring: Measuring
) -> None:
    file = read_program(open_bytes(models / f"{name}.pte").view, name)
    (record,) = (record for record in file.methods if record.name == "forward")
    (graph,) = read_graphs(file, record, {})
    session = Session.of(graph, device, target=target)
    states = session.states()
    wanted = [Wanted(DType.F32, on_gpu=False) for _ in graph.outputs]
    tokens = np.random.default_rng(0).integers(0, 64, 31)
    for count, position in CALLS:
        session.run([tokens[:count].reshape(1, -1), np.array([position])], wanted, states)
    states.close()
    session.close()
    replaced = set() if target.is_cpu or not target.subgroup_size else {"choose_qparams"}  # by quantize_rows
    assert measuring.kernels >= set(MODELS[name].split()) - replaced


@pytest.mark.long(every=4)
@pytest.mark.parametrize("sampling", SAMPLERS, ids=str)
def test_the_sampler(sampling: Sampling, target: Target, device: Device, measuring: Measuring) -> None:
    logits = np.random.default_rng(0).normal(size=(1, 5003)).astype(np.float32)
    session = Session.of(
        sampler_graph(logits.size, Form.of(sampling, logits.size, masked=bool(sampling.biases)), DType.F32),
        device,
        target=target,
    )
    states = session.states()
    session.run([logits, *numbers(sampling)], [None, None], states)
    states.close()
    session.close()
    assert measuring.kernels >= set(SAMPLERS[sampling].split())


def test_rows_of_several_texts(target: Target, device: Device, measuring: Measuring) -> None:
    """Draws with every sampling setting enabled, for the last slot and for an unused row."""
    logits = np.random.default_rng(0).normal(size=(3, 5003)).astype(np.float32)
    form = Form(**dict.fromkeys((field.name for field in fields(Form)), True))
    session = Session.of(batch_graph(5003, 5, form, DType.F32), device, target=target)
    states = session.states()
    sampling = Sampling(0.7, 5, 0.9, 0.1, 1.3, 1, 0.5, 0.5, {5002: 3.0}, 20)
    settings = np.tile(np.array([*numbers(sampling), 0, 1, 0], np.int32), (5, 1))
    device.write(states[State(SETTINGS)], settings)
    device.write(states[State(MASK)], np.full(5 * 157, 0xFFFFFFFF, np.uint32))
    for slots in ([4, -1, 0], [4, 1, 2]):
        session.run([logits, np.array(slots)], [None], states)
    states.close()
    session.close()
    assert measuring.kernels >= set(ROWS.split())


def test_every_kernel_is_measured() -> None:
    drawing = *SAMPLERS.values(), ROWS
    named = [*(case.kernels for case in CASES), *MODELS.values(), *drawing]
    assert set(" ".join(named).split()) == set(FILES) - {SILENT, "chains", "matrix_check", "loops"}
    assert compose(kernel(SILENT)).bounds_checks


@pytest.mark.long(every=7)
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_kernel_compiles_with_its_counts(name: str, device: Device) -> None:
    emulated = {"IS_EMULATED": True} if "matrix" in name else {}
    device.pipeline(instrument(compose(kernel(name, **emulated))))


@pytest.mark.long(every=2)
@pytest.mark.parametrize(
    ("kernel_name", "statement"),
    [
        ("where", "loops: rank"),
        ("unary", "extent x: count"),
        ("unary", "extent out: count"),
        ("q4_thread", "extent x: 4 * rows * QUADS"),
    ],
)
def test_a_statement_that_is_short_by_one_is_found(
    kernel_name: str, statement: str, device: Device, measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = [case for case in CASES if case.kernels == kernel_name][-1]  # of a product without experts
    software = as_kind(device, "software")

    def stating(text: str) -> None:
        def composed(kernel: Kernel) -> Module:
            module = compose(kernel)
            statements, _ = read_statements(f"//! {text}\n", [""], module.constants)
            return replace(module, statements=statements, bounds_checks=True)

        monkeypatch.setattr(collect, "compose", composed)

    stating(statement)
    case.check(software)
    stating(f"{statement} - 1")
    with pytest.raises(AssertionError, match="it states"):
        case.check(software)


def test_an_index_below_zero_is_found(
    device: Device, measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements, _ = read_statements("//! extent x: 4294967294\n", [""], {})

    def reading_before_the_start(kernel: Kernel) -> Module:
        module = compose(kernel)
        source = module.source.replace("x[i]", "x[i32(i) - 1]")
        return replace(module, source=source, statements=statements, bounds_checks=True)

    monkeypatch.setattr(collect, "compose", reading_before_the_start)
    with pytest.raises(AssertionError, match="4294967295 elements of x"):
        check_op("aten.relu.default", tensor("S", 3), live=LIVE)
