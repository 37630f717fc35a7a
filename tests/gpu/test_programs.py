"""Every exported program gives eager PyTorch's answers, call after call on one instance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check import each
from golden import Case, assert_outputs, read_cases

import pteron
from pteron.format.bundled import BundledTensor

PROGRAMS = Path(__file__).parent.parent / "fixtures" / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.npz"))
SHARDS = sorted(PROGRAMS.glob("external_weights.*.ptd"))


def load(name: str) -> pteron.Program:
    return pteron.load(PROGRAMS / f"{name}.pte", data=sorted(PROGRAMS.glob(f"{name}.*.ptd")))


def run_cases(program: pteron.Program, cases: list[Case]) -> None:
    for case in cases:
        assert_outputs(program[case.method](*case.inputs), case.outputs)


def cases_of(name: str) -> list[Case]:
    return read_cases(PROGRAMS / f"{name}.npz")


def test_every_program_has_its_answers() -> None:
    assert sorted(path.stem for path in PROGRAMS.glob("*.pte")) == NAMES


@each("name", NAMES, every=3)
def test_numpy(name: str) -> None:
    with load(name) as program:
        for case in cases_of(name):
            outputs = program[case.method](*case.inputs)
            assert all(isinstance(output, (np.ndarray, int)) for output in outputs)
            assert_outputs(outputs, case.outputs)


@each("name", NAMES, every=2)
def test_torch(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    with load(name) as program:
        for case in cases_of(name):
            specs = program[case.method].inputs
            inputs = [
                torch.from_numpy(array) if spec.kind == "tensor" else array.item()
                for spec, array in zip(specs, case.inputs, strict=True)
            ]
            outputs = program[case.method](*inputs)
            assert all(isinstance(output, (torch.Tensor, int)) for output in outputs)
            arrays = [output if isinstance(output, int) else output.numpy() for output in outputs]
            assert_outputs(arrays, case.outputs)


@each("name", NAMES, every=2)
def test_outputs_kept_on_the_gpu(name: str) -> None:
    with load(name) as program:
        for case in cases_of(name):
            outputs = program[case.method](*case.inputs, on_gpu=True)
            assert_outputs(outputs, case.outputs)


@each("kind", [bytes, bytearray, memoryview])
def test_program_as_bytes(kind: type) -> None:
    with pteron.load(kind((PROGRAMS / "mlp.pte").read_bytes())) as program:
        run_cases(program, cases_of("mlp"))


def test_program_by_text_path() -> None:
    with pteron.load(str(PROGRAMS / "mlp.pte")) as program:
        run_cases(program, cases_of("mlp"))


def test_weights_in_any_order_and_as_bytes() -> None:
    assert len(SHARDS) == 3
    for data in (
        SHARDS,
        SHARDS[::-1],
        [str(path) for path in SHARDS],
        [path.read_bytes() for path in SHARDS],
    ):
        with pteron.load(PROGRAMS / "external_weights.pte", data=data) as program:
            run_cases(program, cases_of("external_weights"))


def test_weights_by_one_path() -> None:
    """A single file need not be in a list; what the program does not use does no harm."""
    for data in (SHARDS[0], str(SHARDS[0]), SHARDS[0].read_bytes()):
        with pteron.load(PROGRAMS / "mlp.pte", data=data) as program:
            run_cases(program, cases_of("mlp"))


def test_a_bundle_runs_and_knows_its_answers() -> None:
    with pteron.load(PROGRAMS / "bundled.bpte") as program:
        run_cases(program, cases_of("bundled"))
        assert program.bundle is not None
        (suite,) = program.bundle.suites
        assert len(suite.cases) == 2
        for case in suite.cases:
            tensors = [value for value in case.inputs if isinstance(value, BundledTensor)]
            answers = [value for value in case.outputs if isinstance(value, BundledTensor)]
            outputs = program[suite.method](*(tensor.array for tensor in tensors))
            assert_outputs(outputs, [answer.array for answer in answers])


def test_two_instances_keep_their_own_state() -> None:
    cases = cases_of("attention_cache")
    with load("attention_cache") as first, load("attention_cache") as second:
        for case in cases:
            assert_outputs(first["forward"](*case.inputs), case.outputs)
            assert_outputs(second["forward"](*case.inputs), case.outputs)
        run_cases(first, cases[4:])


def test_constant_methods() -> None:
    with load("multi_method") as program:
        assert set(program.methods) == {
            "decode", "encode", "get_end_ids", "get_max_len", "get_name", "get_scale", "use_cache",
        }  # fmt: skip
        assert program["get_max_len"]() == (31,)
        assert program["get_scale"]() == (0.25,)
        assert program["use_cache"]() == (True,)
        assert program["get_end_ids"]() == (2, 5)
        assert program["get_name"]() == ("tiny",)
