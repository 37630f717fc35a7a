"""Every kernel is WGSL that browsers take: Dawn compiles what plans are made of, for every kind of device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from itertools import product as product_of
from pathlib import Path

import pytest
from dawn_compiler import DawnCompiler, DawnMissingError
from kernel_files import FILES, kernel
from targets import TARGETS, modules_of

import pteron
from pteron.dtypes import DType
from pteron.families.attention.layouts import MATRIX_TILES, MatrixTiles
from pteron.format.program import read_program
from pteron.format.source import open_bytes
from pteron.format.weights import load_weights
from pteron.llm.sampling import Sampling
from pteron.llm.sampling.form import Form
from pteron.llm.sampling.graphs import batch_graph, sampler_graph
from pteron.ops import Target, tile_table
from pteron.ops.row_layout import shared_rows
from pteron.ops.tiles import matrix_tiles
from pteron.runtime.program import read_graphs
from pteron.wgsl import Module, compose

FIXTURES = Path(__file__).parent.parent / "fixtures"
STORIES = Path(pteron.__file__).parent / "models" / "stories15m" / "model.pte"
PROGRAMS = [*sorted(FIXTURES.glob("*/*.pte")), STORIES]
ROW_LIBRARIES = ("rows", "row_normed", "row_int8")
ROW_KERNELS = [
    name
    for name in sorted(FILES)
    if any(f"::{library}::" in FILES[name].read_text("utf-8") for library in ROW_LIBRARIES)
]
assert ROW_KERNELS


@pytest.fixture(scope="session")
def dawn() -> DawnCompiler:
    try:
        return DawnCompiler.shared()
    except DawnMissingError as reason:
        pytest.skip(str(reason))


def compile_all(dawn: DawnCompiler, modules: Iterable[Module]) -> None:
    assert not [complaint for module in modules for complaint in dawn.complaints(module)]


def compile_planned(dawn: DawnCompiler, planned: Iterable[tuple[Target, Module]]) -> None:
    """The kernels compile, and stay within the limits of the devices that they are planned for."""
    for target, module in planned:
        assert not [*dawn.complaints(module), *dawn.exceeded(module, target)]


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_kernel_as_it_stands(dawn: DawnCompiler, name: str) -> None:
    compile_all(dawn, [compose(kernel(name))])


@pytest.mark.parametrize("name", ROW_KERNELS)
def test_a_row_kernel_on_devices_with_subgroups(dawn: DawnCompiler, name: str) -> None:
    target = TARGETS["Vulkan, subgroups"]
    compile_all(
        dawn,
        (
            compose(kernel(name, **shared_rows(target, lanes, 64 // min(lanes, 64))))
            for lanes in (32, 64, 256)
        ),
    )


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program(dawn: DawnCompiler, path: Path) -> None:
    file = read_program(open_bytes(path).view, path.name)
    weights = load_weights(sorted(path.parent.glob(f"{path.stem}.*.ptd")))
    for record in file.methods:
        for graph in read_graphs(file, record, weights):
            compile_planned(dawn, modules_of(graph))


@pytest.mark.parametrize(
    "flags",
    ["", "is_random", "is_random has_top_k has_top_p", " ".join(field.name for field in fields(Form))],
)
def test_rows_of_several_texts(dawn: DawnCompiler, flags: str) -> None:
    for dtype in (DType.F32, DType.F16):
        compile_planned(dawn, modules_of(batch_graph(5003, 7, Form.parse(flags), dtype)))


CHANGING = {"presence_penalty": 0.5, "logit_bias": {3: 1.0}, "top_logprobs": 20}


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(0.7, 5, repetition_penalty=1.3),
        Sampling(0.7, 0, 0.9, 0.1),
        Sampling(0.7, 5, 0.9, repetition_penalty=1.3, **CHANGING),  # type: ignore[arg-type]  # by name
        Sampling(**CHANGING),  # type: ignore[arg-type]  # by name
    ],
)
def test_the_sampler(dawn: DawnCompiler, sampling: Sampling, masks: bool) -> None:
    for dtype in (DType.F32, DType.F16):
        compile_planned(dawn, modules_of(sampler_graph(5003, Form.of(sampling, 5003, masked=masks), dtype)))


PLANES = {"f16": (1, 1), "f16 and f32": (1, 2), "f32": (2, 2)}
LARGE = Target(
    is_cpu=False,
    subgroup_size=32,
    matrices=("f16 f32 16x16x16",),
    workgroup_bytes_max=49152,
    invocations_max=1024,
)


@pytest.mark.parametrize("planes", PLANES)
@pytest.mark.parametrize("is_along", [True, False])
def test_products_by_matrices(dawn: DawnCompiler, planes: str, is_along: bool) -> None:
    rows = tile_table.MATRIX_TILES
    dense = matrix_tiles(rows["matmul_matrix"], LARGE, PLANES[planes], is_along=is_along)
    few_bits = matrix_tiles(rows["q4_matrix"], LARGE, PLANES[planes]) if is_along else ()
    assert dense
    compile_all(
        dawn,
        (compose(kernel("matmul_matrix", **tile.declarations, B_ALONG=is_along)) for tile in dense),
    )
    planes_of_pixels = matrix_tiles(rows["convolution_matrix"], LARGE, PLANES[planes]) if is_along else ()
    for tile in planes_of_pixels:
        assert 32 * tile.down * tile.across % tile.width == 0  # an invocation loads one pixel only
        compile_all(dawn, [compose(kernel("convolution_matrix", **tile.declarations))])
    words = {"WORDS": 64, "PART": 64, "IS_GATED": True, "OTHERS": 64}
    for tile, in_bytes in product_of(few_bits, (False, True)):
        compile_all(dawn, [compose(kernel("q4_matrix", **tile.declarations, **words, IN_BYTES=in_bytes))])


@pytest.mark.parametrize("tile", MATRIX_TILES, ids=str)
@pytest.mark.parametrize(("width", "value_width"), [(64, 64), (128, 128), (96, 64)])
def test_attention_by_matrices(dawn: DawnCompiler, tile: MatrixTiles, width: int, value_width: int) -> None:
    if not tile.suits(width, value_width) or tile.bytes_needed(width, value_width) > 49152:
        return
    declared = tile.declarations(width, value_width) | {"WIDTH": width, "VALUE_WIDTH": value_width}
    for operands in ((), ("parts",), ("mask",)):
        compile_all(dawn, [compose(kernel("attention_matrix", **declared).launched(operands))])


def test_limits_that_a_kernel_exceeds_are_found(dawn: DawnCompiler) -> None:
    text = "@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) { large[i] = 1.0; }"
    module = replace(compose(kernel("fill")), source=f"var<workgroup> large: array<f32, 9000>;\n{text}")
    target = Target(is_cpu=False, workgroup_bytes_max=36000)
    assert dawn.exceeded(module, target) == []
    assert "workgroup memory" in str(dawn.exceeded(module, replace(target, workgroup_bytes_max=32768)))
    assert "invocations" in str(dawn.exceeded(replace(module, workgroup=(8, 8, 8)), target))
    assert "storage buffers" in str(dawn.exceeded(module, replace(target, buffers_max=0)))
    assert "f16" in str(dawn.exceeded(replace(module, source=f"enable f16;\n{module.source}"), target))


def test_a_fault_is_found(dawn: DawnCompiler) -> None:
    """A barrier that some invocations of a workgroup may miss: wgpu takes it."""
    good = compose(kernel("unary"))
    faulty = replace(good, source=good.source.replace("  out[i] =", "  workgroupBarrier();\n  out[i] ="))
    assert "'workgroupBarrier' must only be called from uniform control flow" in str(dawn.complaints(faulty))
