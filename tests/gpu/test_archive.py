"""Executables on disk: what is read back runs as what was written, bit for bit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check import each

import pteron
from pteron import Device, FormatError
from pteron.format.delegate import read_delegate
from pteron.format.program import read_program
from pteron.format.records import DelegateCall
from pteron.format.source import open_bytes
from pteron.graph import build
from pteron.host.tensors import HostResult
from pteron.plan import Executable, TensorPort
from pteron.plan.archive import read, write
from pteron.plan.archive.writer import PREFIX
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session

PROGRAMS = ["mlp", "mlp_dynamic", "attention_cache", "update_cache", "select_position", "dtypes"]


def wanted(executable: Executable) -> list[Wanted | None]:
    ports = executable.outputs
    return [Wanted(port.dtype, on_gpu=False) if isinstance(port, TensorPort) else None for port in ports]


def run(delegate: Delegate, inputs: list[Any]) -> list[Any]:
    outputs = delegate.run(inputs, wanted(delegate.executable))
    return [output.numpy() if isinstance(output, HostResult) else output for output in outputs]


def copy_of(session: Session, folder: Path, *, trusted: bool = True) -> Delegate:
    """The session's executable, by way of a file."""
    Delegate(session).save(folder / "copy.ptex")
    return Delegate.open(folder / "copy.ptex", session.device, trusted=trusted)


def cases(method: pteron.Method, golden: Any) -> Iterator[list[Any]]:
    """The golden inputs in the order in which the method's delegate takes them."""
    (call,) = method._record.instructions
    assert isinstance(call, DelegateCall)
    taken = [method._record.inputs.index(id) for id in call.args[: len(method.inputs)]]
    for case in range(len({key.split("_")[0] for key in golden})):
        yield [golden[f"case{case}_input{position}"] for position in taken]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_copy_gives_the_same_bits(name: str, programs: Path, tmp_path: Path) -> None:
    program = pteron.load(programs / f"{name}.pte")
    method = program["forward"]
    golden = np.load(programs / f"{name}.npz")
    original = method.sole_delegate
    assert original is not None
    given = list(cases(method, golden))
    expected = [run(original, inputs) for inputs in given]
    copied = copy_of(original.session, tmp_path)
    for inputs, results in zip(given, expected, strict=True):
        for found, result in zip(run(copied, inputs), results, strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(result))


@pytest.mark.long(every=4)
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("is_cpu", [True, False], ids=["software", "hardware"])
def test_a_language_model_goes_on_from_a_file(
    models: Path, tmp_path: Path, device: Device, is_cpu: bool, trusted: bool
) -> None:
    """Prefill and decode, whose positions are live, from plans alone: nothing is planned anew."""
    opened = open_bytes(models / "tiny_llama_q4.pte")
    file = read_program(opened.view, opened.name)
    record = next(method for method in file.methods if method.name == "forward")
    graph = build(read_delegate(record.delegates[0].blob, "forward", file.named_data.get))
    session = Session.of(graph, device, target=replace(device.target, is_cpu=is_cpu))
    steps: list[list[Any]] = [[np.array([[5, 6, 7, 8, 9]]), np.array([0])]]
    steps += [[np.array([[10 + step]]), np.array([5 + step])] for step in range(6)]
    original = Delegate(session)
    expected = [run(original, inputs)[0] for inputs in steps]
    copied = copy_of(session, tmp_path, trusted=trusted)
    for inputs, result in zip(steps, expected, strict=True):
        np.testing.assert_array_equal(run(copied, inputs)[0], result)
    with pytest.raises(pteron.ShapeError, match="no plan for the shapes"):
        run(copied, [np.array([[1, 2]]), np.array([0])])


def test_checks_are_compiled_in_though_the_text_is_known(programs: Path, tmp_path: Path) -> None:
    """An untrusted file gets its own pipeline with bounds checks, even if the same source is already
    compiled without them."""
    method = pteron.load(programs / "mlp.pte")["forward"]
    inputs = [np.ones(value.shape_max, np.float32) for value in method.inputs]
    method(*inputs)
    original = method.sole_delegate
    assert original is not None
    device = original.session.device
    modules = original.session.snapshot().modules()
    unchecked = {module.source: device.pipeline(module) for module in modules if not module.bounds_checks}
    copied = copy_of(original.session, tmp_path, trusted=False)
    run(copied, inputs)
    assert unchecked
    for module in copied.executable.modules():
        assert device.pipeline(module) is not unchecked.get(module.source)


def damaged(data: bytes, change: Any) -> memoryview:
    length = PREFIX.unpack_from(data)[2]
    header = json.loads(data[PREFIX.size : PREFIX.size + length])
    change(header)
    text = json.dumps(header).encode()
    body = data[-(-(PREFIX.size + length) // 64) * 64 :]
    prefix = PREFIX.pack(b"PTEX", 1, len(text))
    return memoryview((prefix + text).ljust(-(-(16 + len(text)) // 64) * 64) + body)


def first_plan(header: Any) -> Any:
    return header["plans"][0]["plans"][0]


def a_weight(header: Any) -> int:
    """Index of the largest weight buffer. Files with the same weights share it."""
    sizes = [entry["bytes"] if entry["kind"] == "weight" else 0 for entry in header["buffers"]]
    return sizes.index(max(sizes))


def write_to(header: Any, buffer: int) -> None:
    """Let the first launch write there."""
    launch = first_plan(header)["launches"][0]
    bindings = header["modules"][launch["module"]]["bindings"]
    written = next(place for place, each in enumerate(bindings) if each["access"] == "read_write")
    launch["buffers"] = [0 if each == buffer else each for each in launch["buffers"]]
    launch["buffers"][written] = buffer


def live_block(header: Any) -> Any:
    return next(block for block in first_plan(header)["blocks"] if block["live"])


WRONG_NUMBERS: list[Callable[[Any], object]] = [
    lambda header: live_block(header)["live"][0].__setitem__(0, 1 << 20),
    lambda header: live_block(header)["live"][0].__setitem__(2, [[99, 1]]),
    lambda header: first_plan(header)["guards"].append([0, [[99, 1]], 0, 1]),
    lambda header: first_plan(header)["tape"].append(["symbol", 99]),
    lambda header: first_plan(header).update(scratch_bytes=[]),
    lambda header: first_plan(header).update(shapes=[]),
    lambda header: first_plan(header)["shapes"][0].__setitem__(1, [1 << 20]),
    lambda header: header["sources"][0].update(input=9),
]
WRONG_HEADERS: list[Callable[[Any], object]] = [
    lambda header: header["buffers"][-1].update(offset=1 << 40),
    lambda header: header["once"].pop("tape"),
    lambda header: first_plan(header)["launches"][0].update(module=99),
    lambda header: first_plan(header)["launches"][0].update(buffers=[0]),
    lambda header: header["inputs"][0].update(shape_max=[1 << 20, 1 << 20]),
    lambda header: header.update(modules=None),
    lambda header: header["modules"][0].update(params_size=0),
    lambda header: header["modules"][0]["bindings"][0].update(bytes="all"),
    lambda header: header["modules"][0]["bindings"][0].update(access="write"),
    lambda header: header["buffers"][0].update(bytes=-1),
    lambda header: header["inputs"][0].update(buffer=-1),
    lambda header: header["inputs"][0].update(id=math.inf),
    lambda header: first_plan(header)["launches"][0].update(groups=[1 << 40, 1, 1]),
    lambda header: first_plan(header)["launches"][0].update(block=None),
    lambda header: header["inputs"][0].update(id="long" * 9999),
    lambda header: header["inputs"][0].update(buffer=a_weight(header)),
    lambda header: write_to(header, a_weight(header)),
]


def refuse(program: Path, changes: list[Callable[[Any], object]], folder: Path) -> None:
    """Each change of a program's archive is an error of some words, however long what it quotes may be."""
    delegate = pteron.load(program)["forward"].sole_delegate
    assert delegate is not None
    write(delegate.session.snapshot(), folder / "a")
    data = (folder / "a").read_bytes()
    assert read(memoryview(data), "a").plans
    for number, change in enumerate(changes):
        with pytest.raises(FormatError, match=r"^a: ") as caught:
            assert not read(damaged(data, change), "a"), number
        assert len(str(caught.value)) < 300, number


def test_damaged_headers(
    programs: Path, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(programs / "mlp.pte", WRONG_HEADERS, tmp_path)
    # By subgroups, attention over so few keys does without scratch memory.
    monkeypatch.setattr(device, "target", replace(device.target, subgroup_size=0, broadcasts=False))
    refuse(programs / "attention_cache.pte", WRONG_NUMBERS, tmp_path)


@each("data", [b"", b"PTEX", b"PTEX" + bytes(12), b"PTEX\1\0\0\0" + b"\xff" * 8, bytes(64)])
def test_what_is_no_archive(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^a: "):
        read(memoryview(data), "a")
