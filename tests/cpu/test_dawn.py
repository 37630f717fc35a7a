"""Dawn as a library, on its null backend: devices, buffers, kernels and submissions, without a GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from dawn_compiler import DawnCompiler, DawnMissingError, null_adapter
from kernel_files import FILES, kernel

import pteron
from pteron.errors import DeviceError
from pteron.extras import pip_install
from pteron.gpu import choose, matrix_check
from pteron.gpu.adapters import AdapterInfo
from pteron.gpu.commands import Copy
from pteron.gpu.device import Device
from pteron.gpu.submit import Commands, submit
from pteron.gpu.wgpu_native import LIBRARY as WGPU
from pteron.wgsl import Kernel, compose

CPU = AdapterInfo(0, "llvmpipe", "CPU", "Vulkan", "", (), {}, 0, True, None)
GPU = replace(CPU, name="a GPU", kind="DiscreteGPU")


@pytest.fixture(scope="module")
def dawn() -> DawnCompiler:
    try:
        return DawnCompiler.shared()
    except DawnMissingError as reason:
        pytest.skip(str(reason))


def test_every_kernel_compiles(dawn: DawnCompiler) -> None:
    assert not [complaint for name in FILES for complaint in dawn.complaints(compose(kernel(name)))]


def test_emulated_matrices_compile(dawn: DawnCompiler) -> None:
    emulated = Kernel("pteron.gpu", "matrix_check", IS_EMULATED=True)
    assert not dawn.complaints(compose(emulated))


@pytest.mark.usefixtures("encoding")
def test_a_device(dawn: DawnCompiler) -> None:
    """Buffers are written and read, and commands are recorded, submitted and waited for."""
    device = dawn.device
    buffer = device.create_buffer(48, "some floats")
    device.write(buffer, np.arange(12, dtype=np.float32))
    numbers = [submit(device, [Copy(buffer, device.create_buffer(48, "a copy"), 48)]) for _ in range(3)]
    assert numbers == sorted(set(numbers))
    device.poll(wait=True, submission=numbers[1])
    device.clear(buffer)
    device.wait()
    assert len(device.read(buffer, 48)) == 48
    device.free(buffer)


def test_an_adapter_names_the_library(dawn: DawnCompiler) -> None:
    """Figures of the two libraries are told apart by the adapter's name."""
    assert str(GPU) == "a GPU (DiscreteGPU, Vulkan)"
    assert str(replace(GPU, library=dawn.device.adapter.library)) == "a GPU (DiscreteGPU, Vulkan, Dawn)"


@pytest.mark.usefixtures("encoding")
def test_commands_run_again_after_an_error_of_another_thread(dawn: DawnCompiler) -> None:
    dawn_api = pytest.importorskip("wgpudawn.backends.dawn._api")
    device = dawn.device
    source, target = (device.create_buffer(48, name) for name in ("a source", "a target"))
    commands = Commands(device, [Copy(source, target, 48)])
    dawn_api.error_handler.pending.append(("internal", "an error"))
    with pytest.raises(DeviceError, match="an error"):
        commands.submit()
    assert commands.submit() > 0
    device.wait()
    device.free(source)
    device.free(target)


def test_bad_wgsl_is_an_error(dawn: DawnCompiler) -> None:
    good = compose(kernel("fill"))
    with pytest.raises(DeviceError, match=r"compiling kernel fill.*expected"):
        dawn.device.pipeline(replace(good, source="fn main( {"))


def test_calls_that_are_submitted(
    dawn: DawnCompiler, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies to the host are in the submission of their call, and each waits for that alone."""
    waited, poll = list[int | None](), dawn.device.poll

    def noted(*, wait: bool, submission: int | None = None) -> None:
        waited.append(submission)
        poll(wait=wait, submission=submission)

    with pteron.load(programs / "mlp.pte", device=dawn.device) as program:
        method, x = program["forward"], np.ones((3, 7), np.float32)
        method.submit(x).result()
        monkeypatch.setattr(dawn.device, "spin_seconds", 0.0)
        monkeypatch.setattr(dawn.device, "poll", noted)
        before = dawn.device.submissions
        pending = [method.submit(x) for _ in range(3)]
        for each in pending:
            assert each.result()[0].shape == method.outputs[0].shape
        assert dawn.device.submissions == before + 3
        assert len(set(waited)) == 3
        assert waited == sorted(number for number in waited if number)
        assert len(list(method.map([x] * 5, out=[np.empty(method.outputs[0].shape, np.float32)]))) == 5


def test_indices_are_clamped(dawn: DawnCompiler) -> None:
    module = compose(kernel("gather"))
    assert module.bounds_checks
    assert "min(u32(" in module.clamped_source
    assert "arrayLength(&x) - 1u" in module.clamped_source


def test_indices_of_kernels_with_matrices_are_clamped(dawn: DawnCompiler) -> None:
    module = replace(compose(kernel("matrix_check")), bounds_checks=True)
    recorder = SimpleNamespace(create_shader_module=lambda label, code: code)
    assert "arrayLength(&x) - 1u" in dawn.device.library.compile_shader(recorder, module)
    dawn.device.library.compile_shader(dawn.device.handle, module)


def test_an_adapter_that_computes_nothing_is_not_used(dawn: DawnCompiler) -> None:
    with pytest.raises(DeviceError, match="wrong products of matrices with Dawn"):
        matrix_check.check(null_adapter())


def test_software_adapters_keep_wgpu() -> None:
    assert choose.with_matrices(CPU) == (CPU, "software adapters have no matrix cores")


def test_without_the_package_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert choose.with_matrices(GPU)[0].library is WGPU
    assert pip_install("matrix") in choose.with_matrices(GPU)[1]
    with pytest.raises(DeviceError, match="need the package wgpudawn, which is not installed"):
        choose.choose(webgpu="dawn")


def test_gpus_with_matrix_cores_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(choose.LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr(metadata, "distributions", lambda *, name: [])
    with_cores = replace(GPU, features=("cooperative-matrix",))
    assert pip_install("matrix") in choose.matrix_hint(with_cores)
    assert not any(map(choose.matrix_hint, (GPU, CPU, replace(with_cores, kind="CPU"))))
    assert choose.matrix_hint(with_cores, "auto")
    assert not choose.matrix_hint(with_cores, "wgpu")  # chosen
    monkeypatch.setenv(choose.LIBRARY_VARIABLE, "wgpu")  # chosen
    assert not choose.matrix_hint(with_cores)
    monkeypatch.undo()
    pytest.importorskip("wgpudawn")
    assert not choose.matrix_hint(with_cores)


def test_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "0.99")
    assert choose.with_matrices(GPU)[0].library is WGPU
    with pytest.raises(DeviceError, match=r"wgpudawn 0\.99 is installed, not 0\.32"):
        choose.choose(webgpu="dawn")


def test_a_damaged_package_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Damaged(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise RecursionError("no library")

    monkeypatch.setattr(metadata, "version", lambda _: choose.DAWN_VERSION)
    monkeypatch.setitem(sys.modules, "pteron.gpu.dawn", Damaged("pteron.gpu.dawn"))
    kept, reason = choose.with_matrices(GPU)
    assert kept.library is WGPU
    again = f"pip install --force-reinstall wgpudawn=={choose.DAWN_VERSION}"
    assert reason == f"wgpudawn {choose.DAWN_VERSION} cannot be imported: no library; reinstall it: {again}"


def test_adapters_that_dawn_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "dawn", lambda: "Dawn")
    monkeypatch.setattr(choose, "adapters", lambda library=WGPU: (CPU,) if library is WGPU else ())
    with pytest.raises(DeviceError, match=r"any adapter of this machine \(0: llvmpipe.*PTERON_WEBGPU=auto"):
        choose.choose(webgpu="dawn")


def test_an_option_that_dawn_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> None:
        raise ValueError("Unknown Dawn toggle 'allow_unsafe_apis'")

    monkeypatch.setattr(choose.dawn(), "entry", unknown)
    kept, reason = choose.with_matrices(replace(GPU, library=WGPU))
    assert kept.library is WGPU
    assert reason == "Dawn cannot be used: Unknown Dawn toggle 'allow_unsafe_apis'"


LIMITS = {
    "max-compute-workgroups-per-dimension": 65535,
    "max-compute-invocations-per-workgroup": 1024,
    "max-compute-workgroup-storage-size": 49152,
    "max-storage-buffer-binding-size": 1 << 31,
    "max-storage-buffers-per-shader-stage": 10,
    "max-uniform-buffer-binding-size": 1 << 16,
    "min-uniform-buffer-offset-alignment": 64,
}


@pytest.fixture
def equal_gpus(monkeypatch: pytest.MonkeyPatch) -> list[AdapterInfo]:
    """Two equal GPUs as Dawn lists them, after the machine's software adapter; wgpu-native has them first."""
    pytest.importorskip("wgpudawn")
    own = replace(GPU, library=choose.dawn(), limits=LIMITS, features=("subgroup",), subgroup_size=32)
    own = replace(own, matrices=("f16 f32 16x16x16",))
    listed = [replace(CPU, library=choose.dawn()), replace(own, index=1, driver="1"), replace(own, index=2)]
    first = [GPU, replace(GPU, index=1), replace(CPU, index=2)]
    monkeypatch.setattr(choose, "adapters", lambda library=WGPU: first if library is WGPU else listed)
    monkeypatch.setattr(choose, "check_matrices", lambda adapter: None)
    return listed


def test_the_same_one_of_equal_gpus(equal_gpus: list[AdapterInfo]) -> None:
    for index, listed in enumerate(equal_gpus[1:]):
        used, reason = choose.with_matrices(replace(GPU, index=index))
        assert used == replace(listed, index=index)
        assert reason == "its matrix cores are used"


NO_MATRICES = "the adapter offers no 16x16x16 products of f16 matrices with f32 sums in subgroups of 32"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"name": "another GPU"}, "Dawn does not list this adapter"),
        ({"matrices": ()}, NO_MATRICES),
        ({"subgroup_size": 64}, NO_MATRICES),
        ({"exceptions": ("matrices",)}, "`pteron doctor --write` found parts wrong that matrix cores need"),
    ],
)
def test_an_adapter_that_does_not_suit(
    changed: dict[str, object], says: str, equal_gpus: list[AdapterInfo]
) -> None:
    equal_gpus[:] = [replace(each, **changed) for each in equal_gpus]  # type: ignore[arg-type]  # by name
    assert choose.with_matrices(GPU) == (GPU, says)


def test_a_test_kernel_that_fails(equal_gpus: list[AdapterInfo], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(adapter: AdapterInfo) -> None:
        raise DeviceError("wrong products")

    monkeypatch.setattr(choose, "check_matrices", fail)
    assert choose.with_matrices(GPU) == (GPU, "wrong products")
    assert choose.choose("0", "auto").library is WGPU
    requested = choose.choose("1", "dawn")
    assert requested.library is choose.dawn()
    assert not requested.target.has_matrices
    assert equal_gpus[1].target.has_matrices


NAMED = [
    replace(GPU, index=0, name="NVIDIA RTX 4090"),
    replace(GPU, index=1, name="Intel Arc 770", kind="IntegratedGPU"),
    replace(CPU, index=2),
]


@pytest.mark.parametrize(
    ("wanted", "variable", "index"),
    [
        (None, "", 0),
        ("1", "", 1),
        ("770", "", 1),  # longer numbers are of names
        ("integrated", "", 1),
        ("cpu", "", 2),
        (None, "LLVM", 2),
        ("", "LLVM", 2),
        ("0", "LLVM", 0),
        ("vulkan", "2", 0),
    ],
)
def test_which_adapter_a_name_means(
    wanted: str | None, variable: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "adapters", lambda: tuple(NAMED))
    monkeypatch.setenv(choose.ADAPTER_VARIABLE, variable)
    monkeypatch.setenv(choose.LIBRARY_VARIABLE, "metal")  # an argument comes first
    assert choose.choose(wanted, "wgpu") is NAMED[index]
    for wrong, says in (("3", "there is no adapter 3"), ("radeon", "no adapter matches 'radeon'")):
        with pytest.raises(DeviceError, match=rf"{says}; this machine has 0: NVIDIA RTX 4090 \("):
            choose.choose(wrong, "wgpu")


def test_matrices_are_tested_once_for_each_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tested: list[AdapterInfo] = []

    def check(adapter: AdapterInfo) -> None:
        tested.append(adapter)
        if adapter.name == "broken":
            raise DeviceError("wrong products")

    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    monkeypatch.setattr(choose, "check", check)
    newer, broken = replace(GPU, driver="2"), replace(GPU, name="broken")
    for adapter in (GPU, GPU, newer, GPU, newer):
        choose.check_matrices(adapter)
    assert tested == [GPU, newer]
    for _ in range(2):
        with pytest.raises(DeviceError, match="wrong products"):
            choose.check_matrices(broken)
    assert tested[2:] == [broken, broken]


@pytest.mark.parametrize(
    ("adapter", "features", "subgroup_size", "broadcasts", "loop_max"),
    [
        (CPU, (), 0, False, 65535),
        (CPU, ("subgroup",), 0, True, 65535),
        (GPU, ("subgroup",), 32, False, 0),
        (GPU, (), 0, False, 0),
    ],
)
def test_the_target_of_an_adapter(
    adapter: AdapterInfo, features: tuple[str, ...], subgroup_size: int, broadcasts: bool, loop_max: int
) -> None:
    size = 0 if adapter.is_cpu else 32
    target = replace(adapter, features=features, limits=LIMITS, subgroup_size=size).target
    assert (target.subgroup_size, target.broadcasts, target.loop_max) == (subgroup_size, broadcasts, loop_max)
    assert (target.is_cpu, target.shader_f16) == (adapter.is_cpu, False)
    assert (target.buffers_max, target.uniform_alignment, target.invocations_max) == (10, 64, 1024)
    assert (target.workgroup_bytes_max, target.binding_bytes_max) == (49152, 1 << 31)


def test_an_unknown_library(monkeypatch: pytest.MonkeyPatch) -> None:
    known = "the WebGPU library can be auto, wgpu or dawn"
    with pytest.raises(DeviceError, match=f"webgpu='metal': {known}"):
        Device.open(webgpu="metal")
    monkeypatch.setenv(choose.LIBRARY_VARIABLE, "metal")
    with pytest.raises(DeviceError, match=f"PTERON_WEBGPU='metal': {known}"):
        Device.open()
