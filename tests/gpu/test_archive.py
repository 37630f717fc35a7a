"""Executables on disk: what is read back runs as what was written, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check import each
from sketch import Sketch

import pteron
from pteron import Device, DType, FormatError
from pteron.format.delegate import read_delegate
from pteron.format.program import read_program
from pteron.format.records import DelegateCall
from pteron.format.source import open_bytes
from pteron.graph import build
from pteron.host.tensors import HostResult
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled, Executable, Plan, TensorPort
from pteron.plan.archive import read, write
from pteron.plan.archive.writer import PREFIX, VERSION, aligned
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Counters, Session

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


def said(plan: Plan) -> tuple[object, ...]:
    """What a plan says besides its kernels and buffers, which have other names in a file."""
    launches = [
        (each.node, each.nodes, each.operator, each.block, each.groups, each.starts, each.module.source)
        for each in plan.launches
    ]
    rest = (plan.blocks, plan.scratch_bytes, dict(plan.shapes), dict(plan.integers), plan.tape, plan.guards)
    return launches, *rest, plan.indices


def test_plans_are_read_as_they_were(models: Path, programs: Path, tmp_path: Path) -> None:
    """Guards, terms, nodes of launches, indices: also what a call at these sizes does not need."""
    paths = [models / "tiny_llama_q4.pte", *(programs / f"{name}.pte" for name in PROGRAMS)]
    made = [
        Compiled(prepare(graph), Target()) for path in paths for graph in pteron.load(path).graphs("forward")
    ]
    sketch, seen = Sketch(), set[str]()
    p, squared, quarter = sketch.symbol(), sketch.symbol(), sketch.symbol()
    many, few = (sketch.tensor(4, dtype=DType.I32) for _ in range(2))
    for name, number, found, out in (("mul", p, squared, many), ("floordiv", 4, quarter, few)):
        sketch.node(name, p, number, found)
        sketch.node("aten.full.default", (4,), found, None, None, None, None, out)
    for compiled in (*made, sketch.prepare([p], [many, few, squared])):
        values = {source.symbol: 3 for source in compiled.executable.sources}
        plans = {compiled.shapes_max: [compiled.plan(compiled.shapes_max, values)]}
        executable = replace(compiled.executable, plans=plans)
        write(executable, tmp_path / "a")
        again = read(memoryview((tmp_path / "a").read_bytes()), "a", trusted=True)
        pairs = zip(again.all_plans(), executable.all_plans(), strict=True)
        assert all(said(read_back) == said(plan) for read_back, plan in pairs)
        assert (again.slots, again.sources, again.target) == (executable.slots, executable.sources, Target())
        assert again.states.keys() == executable.states.keys()
        (plan,) = plans[compiled.shapes_max]
        seen |= {type(term).__name__ for term in plan.tape}
        seen |= {"nodes" for launch in plan.launches if len(launch.nodes) > 1}
        seen |= {"indices" for _ in plan.indices} | {"guards" for _ in plan.guards}
    assert seen >= {"Symbol", "Product", "Quotient", "nodes", "indices", "guards"}


def test_a_file_has_several_plans_for_one_shape(device: Device) -> None:
    """Each for other live integers: rows [0, p // 4) of a table."""
    sketch = Sketch()
    p, quarter, table, out = sketch.symbol(), sketch.symbol(), sketch.tensor(5, 2), sketch.tensor(5, 2)
    sketch.node("floordiv", p, 4, quarter)
    sketch.node("aten.slice_copy.Tensor", table, 0, 0, quarter, 1, out)
    compiled = sketch.prepare([p, table], [out], device.target)
    plans = [compiled.plan(compiled.shapes_max, {p.id: value}) for value in (5, 9, 14)]
    executable = replace(compiled.executable, plans={compiled.shapes_max: plans})
    delegate = Delegate(Session(executable, device, Counters()))
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    for value in (13, 4, 9, 15, 7):
        np.testing.assert_array_equal(run(delegate, [value, x])[0], x[: value // 4])
    with pytest.raises(pteron.ShapeError, match="no plan for the shapes"):
        run(delegate, [16, x])
    delegate.close()
    delegate.session.close()


def changed(data: bytes, change: Callable[[Any], None], version: int = VERSION) -> memoryview:
    """An archive with another header."""
    magic, _, length = PREFIX.unpack_from(data)
    header = json.loads(data[PREFIX.size : PREFIX.size + length])
    change(header)
    text = json.dumps(header).encode()
    start = aligned(PREFIX.size + len(text))
    written = PREFIX.pack(magic, version, len(text)) + text
    return memoryview(written.ljust(start) + data[aligned(PREFIX.size + length) :])


def test_a_file_does_not_write_to_weights(programs: Path, tmp_path: Path) -> None:
    """Programs share the buffers of equal weights."""
    (graph,) = pteron.load(programs / "mlp.pte").graphs("forward")
    compiled = Compiled(prepare(graph), Target())
    plan = compiled.plan(compiled.shapes_max, {})
    write(replace(compiled.executable, plans={compiled.shapes_max: [plan]}), tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    assert read(changed(data, lambda header: None), "a").plans
    with pytest.raises(FormatError, match="not an executable of version"):
        read(changed(data, lambda header: None, VERSION + 1), "a")

    def bind_input(header: Any) -> None:
        kinds = [buffer["kind"] for buffer in header["buffers"]]
        header["inputs"][0]["buffer"] = kinds.index("weight")

    def bind_output(header: Any) -> None:
        kinds = [buffer["kind"] for buffer in header["buffers"]]
        launch = header["plans"][0]["plans"][0]["launches"][0]
        access = [binding["access"] for binding in header["modules"][launch["module"]]["bindings"]]
        launch["buffers"][access.index("read_write")] = kinds.index("weight")

    for change, says in (
        (bind_input, "an input is bound to the buffer of a weight"),
        (bind_output, "writes to a weight"),
    ):
        with pytest.raises(FormatError, match=says):
            read(changed(data, change), "a", trusted=True)


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
    if not trusted and device.library.name == "Dawn":
        with pytest.raises(pteron.DeviceError, match="from a file that is not trusted"):
            run(copied, steps[0])
        return
    for inputs, result in zip(steps, expected, strict=True):
        np.testing.assert_array_equal(run(copied, inputs)[0], result)
    with pytest.raises(pteron.ShapeError, match="no plan for the shapes"):
        run(copied, [np.array([[1, 2]]), np.array([0])])


def test_every_plan_of_a_live_shape_is_in_the_file(device: Device, tmp_path: Path) -> None:
    """The factor of an addition is a number of its plan, so that each factor has a plan."""
    sketch = Sketch()
    x, factor, out = sketch.tensor(7, 5), sketch.symbol(), sketch.tensor(7, 5)
    sketch.node("aten.add.Tensor", x, x, factor, out)
    original = Delegate(Session.of(sketch.graph([x, factor], [out]), device))
    ones = np.ones((3, 5), np.float32)
    calls = [[ones, 2], [ones, 3], [ones, 2], [np.ones((7, 5), np.float32), 4]]
    expected = [run(original, inputs)[0] for inputs in calls]
    copied = copy_of(original.session, tmp_path)
    for inputs, result in zip(calls, expected, strict=True):
        np.testing.assert_array_equal(run(copied, inputs)[0], result)


def test_checks_are_compiled_in_though_the_text_is_known(programs: Path, tmp_path: Path) -> None:
    """An untrusted file gets its own pipeline with bounds checks, even if the same source is already
    compiled without them."""
    method = pteron.load(programs / "mlp.pte")["forward"]
    inputs = [np.ones(value.shape_max, np.float32) for value in method.inputs]
    method(*inputs)
    original = method.sole_delegate
    assert original is not None
    device = original.session.device
    if device.library.name == "Dawn":
        pytest.skip("Dawn runs no kernels of untrusted files")
    modules = original.session.snapshot().modules()
    unchecked = {module.source: device.pipeline(module) for module in modules if not module.bounds_checks}
    copied = copy_of(original.session, tmp_path, trusted=False)
    run(copied, inputs)
    assert unchecked
    for module in copied.executable.modules():
        assert device.pipeline(module) is not unchecked.get(module.source)


def test_damaged_headers(programs: Path, tmp_path: Path) -> None:
    delegate = pteron.load(programs / "mlp.pte")["forward"].sole_delegate
    assert delegate is not None
    delegate.save(tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    assert read(memoryview(data), "a").plans
    for damaged in (data[:-64], data.replace(b'"tape"', b'"cape"'), data.replace(b'"modules"', b'"nodules"')):
        with pytest.raises(FormatError, match=r"^a: ") as caught:
            read(memoryview(damaged), "a")
        assert len(str(caught.value)) < 300


@each("data", [b"", b"PTEX", b"PTEX" + bytes(12), b"PTEX\1\0\0\0" + b"\xff" * 8, bytes(64)])
def test_what_is_no_archive(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^a: "):
        read(memoryview(data), "a")
