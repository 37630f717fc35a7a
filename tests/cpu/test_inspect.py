"""Inspecting files: everything that can be read is shown, whether or not it can run here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from sketch import Sketch

import pteron
from pteron.dtypes import DType
from pteron.errors import DeviceError, GraphError, InputError
from pteron.format.delegate_writer import write_delegate
from pteron.format.program_writer import write_program
from pteron.format.records import (
    DelegateCall,
    DelegateGraph,
    DelegateRecord,
    MethodRecord,
    NodeRecord,
    TensorRecord,
    VkTensor,
)
from pteron.gpu import AdapterInfo, Device
from pteron.gpu.choose import choose
from pteron.graph import Constant
from pteron.ops import Target
from pteron.tools.inspect import inspect
from pteron.tools.inspect.delegate import DelegateReport, ExaminedDelegate, with_pins
from pteron.tools.inspect.report import ProgramReport, WeightFileReport, inspect_lines
from pteron.tools.local_adapter import LocalAdapter, find_adapter
from pteron.tools.text import json_text

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = sorted(path for kind in ("pte", "bpte", "ptd") for path in FIXTURES.glob(f"*/*.{kind}"))

MLP_DYNAMIC = """\
mlp_dynamic.pte  3.2 kB, ExecuTorch program, with segments
  named data  3 tensors, 396 B
  made for    ExecuTorch's Vulkan and WebGPU runtimes, and Pteron
  runs here   yes, on an adapter

forward(f32[≤17, 7]) -> (f32[≤17, 11])
  instructions  1 delegate call
  delegate 0  VulkanBackend, 4 nodes
    constants    3 tensors, 396 B
    activations  2 buffers, 1.5 kB, at the maximum shapes
    operators
      1  et_vk.prepack.default
      1  aten.linear.default
      1  aten.add.Tensor
      1  aten._softmax.default
    graph
         0  %1:f32[11] = et_vk.prepack.default(%0:f32[11])
         1  %5:f32[17, 11] = aten.linear.default(%4:f32[17, 7], %2:f32[11, 7], %3:f32[11])
         2  %7:f32[17, 11] = aten.add.Tensor(%5:f32[17, 11], %1:f32[11], 1)
         3  %10:f32[17, 11] = aten._softmax.default(%7:f32[17, 11], -1, False)
"""


def program_report(path: Path, *data: Path) -> ProgramReport:
    report = inspect(path, data)
    assert isinstance(report, ProgramReport)
    return report


def renamed(path: Path, old: bytes, new: bytes, folder: Path) -> Path:
    """A copy of a program in which a name is replaced by another of the same length."""
    content = path.read_bytes()
    assert len(old) == len(new)
    assert old in content
    copy = folder / path.name
    copy.write_bytes(content.replace(old, new))
    return copy


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_fixture_can_be_inspected(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("inspecting opens no device and reads no weight")

    for owner, name in ((Device, "__init__"), (Constant, "numpy"), (Constant, "bytes")):
        monkeypatch.setattr(owner, name, refuse)
    report = inspect(path, graph=True)
    assert next(inspect_lines(report)).startswith(path.name)
    assert json.loads(json_text(report))["bytes"] == path.stat().st_size


def test_a_program_as_text(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pteron.tools.inspect.program.find_adapter", lambda _: LocalAdapter(Target(), "an adapter")
    )
    report = inspect(programs / "mlp_dynamic.pte", graph=True)
    assert "\n".join(inspect_lines(report)) + "\n" == MLP_DYNAMIC


def test_dynamic_dims_are_found_across_delegates_and_host_operators(programs: Path) -> None:
    (method,) = program_report(programs / "two_delegates.pte").methods
    assert [str(spec) for spec in method.inputs] == ["f32[≤13, 7]"]
    assert str(method.outputs[0]) == "f32[≤13, 3]"
    assert method.instructions == {"delegate call": 2, "host operator": 3}
    assert {use.name for use in method.host_operators} >= {"aten::cumsum.out", "aten::erf.out"}


def test_an_integer_that_a_delegate_takes_is_an_int(programs: Path) -> None:
    (method,) = program_report(programs / "symint_input.pte").methods
    assert [spec.kind for spec in method.inputs] == ["tensor", "int"]
    assert len(method.delegates[0].live_integers) == 1


def test_states_and_live_integers_of_a_language_model(models: Path) -> None:
    report = program_report(models / "tiny_llama_fp32.pte")
    forward = next(method for method in report.methods if method.name == "forward")
    (delegate,) = forward.delegates
    assert delegate.states is not None
    assert (delegate.states.count, delegate.states.bytes) == (4, 32768)
    assert all(text.startswith("%") for text in delegate.live_integers)
    text = "\n".join(inspect_lines(report))
    assert "get_vocab_size          512" in text


def test_missing_weights_are_counted_until_they_are_given(programs: Path) -> None:
    path = programs / "external_weights.pte"
    assert program_report(path).problems == ("6 constants missing in the given files",)
    whole = program_report(path, *programs.glob("external_weights.*.ptd"))
    assert whole.problems == ()
    assert whole.methods[0].delegates[0].constants_missing == ()


def test_unsupported_operators_are_marked(programs: Path, tmp_path: Path) -> None:
    path = renamed(programs / "mlp.pte", b"aten.gelu.default", b"aten.gild.default", tmp_path)
    report = program_report(path)
    assert report.problems == ("aten.gild.default is not supported (1x)",)
    lines = list(inspect_lines(report))
    assert "      1  aten.gild.default    unsupported" in lines
    assert report.methods[0].delegates[0].activations is None


def test_another_backend_is_named(programs: Path, tmp_path: Path) -> None:
    path = renamed(programs / "mlp.pte", b"VulkanBackend", b"RemoteBackend", tmp_path)
    report = program_report(path)
    (problem,) = report.problems
    assert problem.startswith(
        "RemoteBackend programs are not supported: re-export the model with pteron.compile"
    )
    assert any("delegate 0  RemoteBackend, " in line for line in inspect_lines(report))


def test_an_inconsistent_graph_is_a_reason_not_an_error(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise GraphError("node 3 contradicts itself")

    monkeypatch.setattr("pteron.tools.inspect.delegate.prepare", refuse)
    assert program_report(programs / "mlp.pte").problems == ("node 3 contradicts itself",)


def test_programs_run_here_where_they_can_be_loaded() -> None:
    """`run` loads a program first: what that says, `inspect` says too."""
    for path in FILES:
        if path.suffix == ".ptd":
            continue
        try:
            pteron.load(path).close()
        except pteron.PteronError:
            assert program_report(path).problems, path.name
        else:
            assert program_report(path).problems == (), path.name


def test_without_an_adapter_delegates_do_not_run(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))  # where no adapter is remembered
    monkeypatch.setattr("pteron.gpu.choose.adapters", lambda: ())
    (problem,) = program_report(programs / "mlp.pte").problems
    assert problem.startswith("no GPU adapter was found")
    assert program_report(programs / "host_only.pte").problems == ()
    with pytest.raises(DeviceError, match="no GPU adapter"):
        inspect(programs / "mlp.pte", adapter="some GPU")


def test_adapters_are_remembered_by_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    asked: list[str | None] = []

    exceptions = tmp_path / "exceptions"

    def noted(adapter: str | None) -> AdapterInfo:
        asked.append(adapter)
        return choose(adapter)

    monkeypatch.setattr("pteron.gpu.choose.choose", noted)
    found = [find_adapter() for _ in range(2)]  # the second from the cache
    assert found[0] == found[1]
    with pytest.raises(DeviceError, match="some GPU"):
        find_adapter("some GPU")
    if not Path("/proc/sys/kernel/random/boot_id").exists():
        return
    assert asked == [None, "some GPU"]
    assert [find_adapter("0"), find_adapter("0")] == found
    exceptions.mkdir()
    (exceptions / "found-by-doctor.json").write_text("{}")
    find_adapter()
    monkeypatch.setenv("PTERON_ADAPTER", "0")
    find_adapter()
    assert asked == [None, "some GPU", "0", None, None]


def test_what_plans_are_shown_for() -> None:
    software = LocalAdapter(Target(broadcasts=True, loop_max=65535, buffers_max=10), "llvmpipe")
    assert software.limits == Target(buffers_max=10)
    assert software.planning_target == (Target(is_cpu=False), "a GPU with WebGPU's default limits")
    gpu = LocalAdapter(Target(is_cpu=False, subgroup_size=32), "a GPU")
    assert gpu.planning_target == (gpu.target, "a GPU")
    assert LocalAdapter(gpu.target, None).planning_target == software.planning_target


def test_a_buffer_larger_than_the_adapter_allows(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dims that may be lower are no problem: the report says how low."""
    small = LocalAdapter(Target(binding_bytes_max=Target().slack + 128), "a small adapter")
    monkeypatch.setattr("pteron.tools.inspect.program.find_adapter", lambda _: small)
    (problem,) = program_report(programs / "mlp.pte").problems
    assert problem.endswith("needs a buffer of 156 bytes; the adapter allows 128")
    report = program_report(programs / "mlp_dynamic.pte")
    assert report.problems == ()
    assert "  fits here     dim 0 of input 0 at most 2" in inspect_lines(report)


def test_bundled_programs_show_their_test_cases(programs: Path) -> None:
    report = program_report(programs / "bundled.bpte")
    assert report.test_cases == {"forward": 2}
    assert report.kind.startswith("bundled")


def test_weight_files_list_their_entries(programs: Path) -> None:
    report = inspect(programs / "external_weights.shard0.ptd")
    assert isinstance(report, WeightFileReport)
    assert [weight.bytes for weight in report.weights] == [20, 572]
    assert len(list(inspect_lines(report))) == 3


def test_one_method(programs: Path) -> None:
    report = inspect(programs / "multi_method.pte", method="encode")
    assert isinstance(report, ProgramReport)
    assert [method.name for method in report.methods] == ["encode"]
    with pytest.raises(InputError, match=r"no method 'train'; it has decode, encode"):
        inspect(programs / "multi_method.pte", method="train")


def test_dims_whose_sizes_need_plans_of_their_own() -> None:
    """An integer that an operator takes pins the dim; the report names the input, the dim and the node."""
    sketch = Sketch()
    x, out, twice = sketch.tensor(1, 3, 16, 24), sketch.tensor(1, 3, 24, 36), sketch.tensor(1, 3, 16, 24)
    sketch.node("aten.add.Tensor", x, x, 1, twice)
    sketch.node("aten.upsample_nearest2d.vec", twice, None, (1.5, 1.5), out)
    compiled = sketch.prepare([x], [out])
    examined = ExaminedDelegate(DelegateReport("VulkanBackend", 0), compiled=compiled)

    def pinned(*dynamic: bool) -> tuple[str, ...]:
        return with_pins(examined, [dynamic]).report.pinned

    rows, columns = (f"dim {dim} of input 0, by node 1 aten.upsample_nearest2d.vec" for dim in (2, 3))
    assert pinned(False, False, True, True) == (rows, columns)
    assert pinned(False, False, False, True) == (columns,)
    assert pinned(False, True, False, False) == pinned(False, False, False, False) == ()


def test_dims_between_delegates_may_need_plans_of_their_own(tmp_path: Path) -> None:
    """The file only says of such a tensor that it has dynamic dims, and at most these sizes."""
    small, large = (1, 3, 16, 24), (1, 3, 24, 36)
    values = [VkTensor(DType.F32, dims, None, None) for dims in (small, small, large)]
    nodes = NodeRecord("aten.relu.default", (0, 1)), NodeRecord("aten.upsample_nearest2d.vec", (1, 3, 4, 2))
    graphs = (
        DelegateGraph(name, nodes[at : at + 1], (*values, None, (1.5, 1.5)), (at,), (at + 1,), ())
        for at, name in enumerate(("first", "second"))
    )
    delegates = tuple(DelegateRecord("VulkanBackend", memoryview(write_delegate(each))) for each in graphs)

    def pinned(dynamism: Literal["static", "bound"]) -> tuple[str, ...]:
        between = TensorRecord(DType.F32, small, (0, 1, 2, 3), dynamism, None, False, False, None, False)
        records = replace(between, dynamism="static"), between, replace(between, sizes=large)
        calls = DelegateCall(0, (0, 1)), DelegateCall(1, (1, 2))
        method = MethodRecord("forward", records, (0,), (2,), calls, (), delegates)
        with (tmp_path / "two.pte").open("wb") as file:
            write_program(file, [method], {})
        (report,) = program_report(tmp_path / "two.pte").methods
        assert report.delegates[0].pinned == ()
        return report.delegates[1].pinned

    assert pinned("static") == ()
    assert pinned("bound") == tuple(
        f"dim {dim} of input 0, by node 0 aten.upsample_nearest2d.vec" for dim in (2, 3)
    )
