"""The interface of executorch.runtime: scripts written for it change one import."""

from __future__ import annotations

import inspect
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import assert_outputs, read_cases

import pteron
from pteron import InputError, MethodError, Runtime
from pteron.runtime import executorch_api


def test_load_and_execute(programs: Path) -> None:
    path = programs / "mlp.pte"
    for source in (
        path,
        str(path),
        path.read_bytes(),
        bytearray(path.read_bytes()),
        BytesIO(path.read_bytes()),
    ):
        program = Runtime.get().load_program(source)
        assert program.method_names == {"forward"}
        method = program.load_method("forward")
        for case in read_cases(programs / "mlp.npz"):
            outputs = method.execute(case.inputs)
            assert isinstance(outputs, list)
            assert_outputs(outputs, case.outputs)


def test_torch_in_torch_out(programs: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    method = Runtime.get().load_program(programs / "mlp.pte").load_method("forward")
    (case, *_) = read_cases(programs / "mlp.npz")
    (found,) = method.execute((torch.from_numpy(case.inputs[0]),))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), case.outputs[0], atol=1e-5)


def test_options_of_loading(programs: Path) -> None:
    (weights,) = programs.glob("external_host.*.ptd")
    program = Runtime.get().load_program(
        programs / "external_host.pte",
        verification=executorch_api.Verification.Minimal,
        enable_etdump=False,
        debug_buffer_size=0,
        data_path=weights,
    )
    for case in read_cases(programs / "external_host.npz"):
        assert_outputs(program.load_method("forward").execute(case.inputs), case.outputs)


def test_one_method_for_one_name(programs: Path) -> None:
    """load_method returns the same method each time: its state continues from call to call."""
    program = Runtime.get().load_program(programs / "mutable_buffer.pte")
    for case in read_cases(programs / "mutable_buffer.npz"):
        assert_outputs(program.load_method("forward").execute(case.inputs), case.outputs)


def test_metadata(programs: Path) -> None:
    program = Runtime.get().load_program(programs / "dtypes.pte")
    for metadata in (program.metadata("forward"), program.load_method("forward").metadata):
        assert (metadata.name(), metadata.num_inputs(), metadata.num_outputs()) == ("forward", 4, 6)
        infos = [metadata.input_tensor_meta(index) for index in range(4)]
        assert [info.dtype() for info in infos] == [4, 3, 11, 6]  # torch's Long, Int, Bool, Float
        assert [info.sizes() for info in infos] == [(3, 5)] * 4
        assert [info.nbytes() for info in infos] == [120, 60, 15, 60]
        assert metadata.output_tensor_meta(5).dtype() == 6
        for index in (6, -1):
            with pytest.raises(InputError, match=f"output {index} of 6 is not a tensor"):
                metadata.output_tensor_meta(index)
            with pytest.raises(IndexError):  # what executorch raises
                metadata.output_tensor_meta(index)


def test_unknown_methods(programs: Path) -> None:
    program = Runtime.get().load_program(programs / "mlp.pte")
    for ask in (program.load_method, program.metadata):
        with pytest.raises(MethodError, match="no method 'backward'"):
            ask("backward")
        with pytest.raises(KeyError):  # what executorch raises
            ask("backward")


def test_registries() -> None:
    registry = Runtime.get().backend_registry
    assert registry.registered_backend_names == ["VulkanBackend", "PteronBackend"]
    assert registry.is_available("VulkanBackend")
    assert not registry.is_available("XnnpackBackend")
    names = Runtime.get().operator_registry.operator_names
    assert "aten.linear.default" in names
    own = [name for name in names if name.startswith("pteron.")]
    assert "pteron.attention.default" in own
    assert all(name.endswith(".default") for name in own)  # others are not for files to call


def test_a_tensor_alone(programs: Path) -> None:
    """executorch takes it in the place of a list of one."""
    method = Runtime.get().load_program(programs / "mlp.pte").load_method("forward")
    (case, *_) = read_cases(programs / "mlp.npz")
    assert_outputs(method.execute(case.inputs[0]), case.outputs)
    with pytest.raises(InputError, match="input 0"):
        method.execute("text")


def test_what_is_no_program(programs: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file") as caught:
        Runtime.get().load_program(programs / "gone.pte")
    assert isinstance(caught.value, pteron.FormatError)
    source: Any = 3
    with pytest.raises(TypeError, match="not a int"):
        Runtime.get().load_program(source)
    with pytest.raises(RuntimeError, match="no ETDump"):
        Runtime.get().load_program(programs / "mlp.pte").write_etdump_result_to_file("a", "b")


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_names_are_those_of_executorch() -> None:
    theirs: Any = pytest.importorskip("executorch.runtime")
    portable: Any = pytest.importorskip("executorch.extension.pybindings.portable_lib")
    pairs = [
        (theirs.Runtime, executorch_api.Runtime),
        (theirs.Program, executorch_api.RuntimeProgram),
        (theirs.Method, executorch_api.RuntimeMethod),
        (theirs.BackendRegistry, executorch_api.BackendRegistry),
        (theirs.OperatorRegistry, executorch_api.OperatorRegistry),
        (portable.MethodMeta, executorch_api.MethodMeta),
        (portable.TensorInfo, executorch_api.TensorInfo),
    ]
    for there, here in pairs:
        assert public(there) <= public(here)
        for name in public(there):
            if inspect.isfunction(vars(there)[name]):
                parameters = inspect.signature(vars(there)[name]).parameters
                assert list(parameters) == list(inspect.signature(vars(here)[name]).parameters), name
    runtime = theirs.Runtime.get()
    assert {name for name in vars(runtime) if not name.startswith("_")} <= public(executorch_api.Runtime)
    members = theirs.Verification.__members__
    assert [(member.name, member.value) for member in executorch_api.Verification] == [
        (name, member.value) for name, member in members.items()
    ]


@pytest.mark.parametrize("name", ["host_only", "mutable_buffer_host", "cond", "dtypes", "attention_host"])
def test_metadata_is_that_of_executorch(programs: Path, name: str) -> None:
    theirs: Any = pytest.importorskip("executorch.runtime")
    path = programs / f"{name}.pte"
    there, here = (runtime.get().load_program(path) for runtime in (theirs.Runtime, Runtime))
    assert there.method_names == here.method_names
    expected, found = there.metadata("forward"), here.metadata("forward")
    assert repr(found) == repr(expected)
    for kind in ("input", "output", "attribute"):
        count = getattr(expected, f"num_{kind}s")()
        assert getattr(found, f"num_{kind}s")() == count
        for index in range(count):
            infos = [getattr(each, f"{kind}_tensor_meta")(index) for each in (expected, found)]
            assert repr(infos[0]) == repr(infos[1])
            for name in ("sizes", "dtype", "nbytes", "is_memory_planned"):
                assert getattr(infos[0], name)() == getattr(infos[1], name)(), name
        for each in (expected, found):
            with pytest.raises(IndexError):
                getattr(each, f"{kind}_tensor_meta")(count)


def test_calls_give_what_executorch_gives(programs: Path) -> None:
    theirs: Any = pytest.importorskip("executorch.runtime")
    torch: Any = pytest.importorskip("torch")
    path, x = programs / "attention_host.pte", torch.randn(1, 3, 8)
    methods = [
        runtime.get().load_program(path).load_method("forward") for runtime in (theirs.Runtime, Runtime)
    ]
    for inputs in ([x], (x,), x):
        expected, found = (method.execute(inputs) for method in methods)
        assert type(expected) is type(found) is list
        torch.testing.assert_close(found, expected)
    for wrong in ([], [x, x], [x[0]]):
        for method in methods:
            with pytest.raises((RuntimeError, pteron.PteronError)):
                method.execute(wrong)
