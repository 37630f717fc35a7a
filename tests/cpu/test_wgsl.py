"""Kernel text: files compose, declarations are swapped, bindings and Params are read from the WGSL."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from kernel_files import FILES, kernel
from sketch import Sketch, plan_at

from pteron.graph import Value
from pteron.ops import Target
from pteron.ops.row_layout import split
from pteron.wgsl import compose, module
from pteron.wgsl.link import Linked
from pteron.wgsl.module import _layout
from pteron.wgsl.statements import read_statements
from pteron.wgsl.unroll import unroll

KERNELS = sorted(FILES)


# Composing --------------------------------------------------------------------------------------


def test_every_kernel_composes() -> None:
    for name in KERNELS:
        module = compose(kernel(name))
        assert module.bindings, name
        assert any(binding.access == "read_write" for binding in module.bindings), name
        assert "fn main(" in module.source, name
        assert "//! use" not in module.source, name
        assert 1 <= module.workgroup[0] * module.workgroup[1] * module.workgroup[2] <= 256, name


def test_every_kernel_opens_with_what_it_computes() -> None:
    for name in KERNELS:
        text = FILES[name].read_text("utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("//!")]
        assert lines[0].startswith("// "), name


def test_params_are_of_types_that_are_packed() -> None:
    for name in KERNELS:
        module = compose(kernel(name))
        assert {field.scalar for field in module.fields} <= {"u32", "i32", "f32"}, name
        ends = [field.offset + 4 * field.count for field in module.fields]
        starts = [field.offset for field in module.fields[1:]]
        assert all(end <= start for end, start in zip(ends, starts, strict=False)), name
        assert module.params_size % 16 == 0, name
        assert max(ends, default=0) <= module.params_size <= 256, name


def test_a_library_comes_once_and_after_what_it_uses() -> None:
    source = compose(kernel("reduce", IS_LARGEST=True)).source
    assert source.count("fn is_nan(") == 1
    assert source.index("fn is_nan(") < source.index("fn row_max(") < source.index("fn main(")


def test_an_unknown_kernel() -> None:
    with pytest.raises(FileNotFoundError):
        compose(kernel("nothing"))


# Specialising -----------------------------------------------------------------------------------


def test_what_a_launch_gives() -> None:
    """A type, a number, a formula."""
    source = compose(kernel("unary", X="i32")).source
    assert "alias X = i32;" in source
    assert "alias R = f32;" in source
    module = compose(kernel("reduce", LANES=4, ROWS=2))
    assert "const LANES: u32 = 4u;" in module.source
    assert module.workgroup == (8, 1, 1)
    assert "fn apply(x: T) -> R { return R(abs(x)); }" in compose(kernel("unary", apply="R(abs(x))")).source


def test_a_workgroup_that_is_a_product() -> None:
    assert compose(kernel("softmax", LANES=8, ROWS=4)).workgroup == (32, 1, 1)


def test_f16_is_enabled_where_an_element_is() -> None:
    assert compose(kernel("unary", X="f16")).source.startswith("enable f16;\n")
    assert "enable" not in compose(kernel("unary")).source


def test_an_unknown_declaration() -> None:
    with pytest.raises(ValueError, match="kernel unary has no override, alias or formula named combine"):
        compose(kernel("unary", combine="a"))


def test_kernels_are_equal_by_what_they_say() -> None:
    assert kernel("unary", X="f32", apply="x") == kernel("unary", apply="x", X="f32")
    assert kernel("unary").specialise(X="f32") == kernel("unary", X="f32")
    assert kernel("unary", X="f32").specialise(X="i32") == kernel("unary", X="i32")
    assert str(kernel("where", A="i32")) == "where(A=i32)"


# Unrolling --------------------------------------------------------------------------------------


def unrolled(loop: str, **constants: int) -> list[str]:
    """The lines of a loop that is written out."""
    text = unroll(f"before();\n  //! unroll\n  {loop}\nafter();\n", constants)
    before, *lines, after = text.splitlines()
    assert (before, after) == ("before();", "after();")
    return lines


def test_a_loop_is_written_out() -> None:
    assert unrolled("for (var t = 1u; t < 4u; t++) { f(t, a.t, tt, sums[t]); }") == [
        "{ f(1u, a.t, tt, sums[1u]); }",
        "{ f(2u, a.t, tt, sums[2u]); }",
        "{ f(3u, a.t, tt, sums[3u]); }",
    ]
    loop = "for (var i = 0; i < SIDE / 2u * WIDE; i += WIDE) { f(i); }"
    assert unrolled(loop, SIDE=5, WIDE=3) == ["{ f(0); }", "{ f(3); }"]
    assert unroll("//! unroll\nfor (var i = 0u; i < 0u; i++) { f(); }\ng();", {}) == "\ng();"
    unmarked = "for (var i = 0u; i < 4u; i++) { f(i); }\n"
    assert unroll(unmarked, {}) == unmarked


def test_loops_inside_loops() -> None:
    inner = "  //! unroll\n  for (var j = 0u; j < N; j++) { if (i < j) { f(i, j); } } // {\n"
    text = unroll(f"  //! unroll\n  for (var i = 0u; i < N; i++) {{\n{inner}  }}\n", {"N": 2})
    calls = [f"if ({i}u < {j}u) {{ f({i}u, {j}u); }}" for i in range(2) for j in range(2)]
    assert re.findall(r"if [^}]+\}", text) == calls
    assert text.count("{") == text.count("}") == 2 + 4 + 4


@pytest.mark.parametrize(
    "loop",
    [
        "for (var i = 0u; i < params.rows; i++) { }",
        "for (var i = first; i < 4u; i++) { }",
        "while (true) { }",
    ],
)
def test_a_loop_that_cannot_be_written_out(loop: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be unrolled: |is not a whole number"):
        unroll(f"  //! unroll\n  {loop}\n", {})


def spread(body: str) -> str:
    """A function with an array, and what follows it."""
    array = "  //! spread\n  var sums: array<vec4<f32>, N>;"
    return unroll(f"fn f() {{\n{array}\n{body}\n}}\nsums[0];\n", {"N": 2})


def test_an_array_becomes_variables_as_far_as_its_function_reaches() -> None:
    loop = "  //! unroll\n  for (var i = 0u; i < N; i++) { sums[2u - 1u - i][3] = own_sums[i]; }"
    variables = ["  var sums_0: vec4<f32>;", "  var sums_1: vec4<f32>;"]
    uses = ["{ sums_1[3] = own_sums[0u]; }", "{ sums_0[3] = own_sums[1u]; }"]
    assert spread(loop).splitlines() == ["fn f() {", *variables, *uses, "}", "sums[0];"]


@pytest.mark.parametrize("use", ["sums[i]", "sums[2u]"])
def test_an_array_that_cannot_become_variables(use: str) -> None:
    with pytest.raises(ValueError, match=r"is not a whole number|has no element 2"):
        spread(f"  {use} = x;")


def test_statements_and_unrolled_loops_of_one_kernel() -> None:
    module = compose(kernel("q4_tiled", TALL=4, WIDE=4, DOWN=4, PART=64, WORDS=64))
    assert "//!" not in module.source
    assert module.source.count("for (") == 2
    assert module.statements.loops is not None
    assert module.statements.loops.value({}) == 32 + 4
    assert not module.bounds_checks


# Bindings ---------------------------------------------------------------------------------------


def test_bindings_in_order() -> None:
    module = compose(kernel("binary"))
    assert [(binding.name, binding.access, binding.element) for binding in module.bindings] == [
        ("a", "read", "A"),
        ("b", "read", "B"),
        ("out", "read_write", "R"),
    ]
    assert module.params_index == 3


@pytest.mark.parametrize("by_quads", [False, True])
def test_the_scalar_behind_an_alias_of_vectors(by_quads: bool) -> None:
    module = compose(kernel("q4_merge", BY_QUADS=by_quads).launched(("bias", "out", "sums")))
    assert "bias: array<Bias>" in module.source
    assert {binding.name: binding.element for binding in module.bindings} == {
        "bias": "D",
        "out": "R",
        "sums": "f32" if by_quads else "Value",
    }


def test_an_unused_binding_is_dropped() -> None:
    with_bias, without = (compose(kernel("matmul_thread").launched(each)) for each in (("bias",), ()))
    assert "bias" in {binding.name for binding in with_bias.bindings}
    assert "bias" not in {binding.name for binding in without.bindings}
    assert not re.search(r"var<storage, read> bias", without.source)
    assert without.params_index == with_bias.params_index  # the others keep their numbers


def test_a_uniform_array_states_its_length_and_comes_after_params(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """override ROOM: u32;
struct Params {
  count: u32,
}
@group(0) @binding(1) var<uniform> params: Params;
@group(0) @binding(2) var<uniform> x: array<vec4<f32>, 2u * ROOM>;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(1)
fn main() { out[0] = x[params.count].x; }
"""
    monkeypatch.setattr(module, "linked", lambda *_: Linked(text, frozenset({"ROOM"})))
    out, x = sorted(compose(kernel("made_up", ROOM=12)).bindings, key=lambda binding: binding.index)
    assert (out.access, out.bytes, x.access, x.element, x.bytes) == ("read_write", 0, "uniform", "f32", 384)
    text = text.replace("binding(1)", "binding(3)")
    with pytest.raises(ValueError, match="made_up binds a uniform array before its Params"):
        compose(kernel("made_up", ROOM=13))


@pytest.mark.parametrize("count", [12, 13])
def test_no_more_uniform_arrays_than_every_device_takes(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [
        f"@group(0) @binding({index}) var<uniform> x{index}: array<vec4<f32>, 4>;" for index in range(count)
    ]
    used = " + ".join(f"x{index}[0].x" for index in range(count))
    out = f"@group(0) @binding({count}) var<storage, read_write> out: array<f32>;"
    text = "\n".join([*arrays, out, "@compute @workgroup_size(1)", f"fn main() {{ out[0] = {used}; }}\n"])
    monkeypatch.setattr(module, "linked", lambda *_: Linked(text, frozenset()))
    if count == 12:
        assert len(compose(kernel(f"made_up_{count}")).bindings) == 13
    else:
        with pytest.raises(ValueError, match="binds 13 uniform buffers, at most 12"):
            compose(kernel(f"made_up_{count}"))


# Params -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "places", "size"),
    [
        ("  a: u32,\n  b: i32, // a comment: with a colon\n  c: f32,", {"a": 0, "b": 4, "c": 8}, 16),
        ("  a: u32,\n  b: vec3<u32>,\n  c: f32,\n  d: u32,", {"a": 0, "b": 16, "c": 28, "d": 32}, 48),
        ("  a: u32,\n  b: vec2<i32>,\n  c: u32,", {"a": 0, "b": 8, "c": 16}, 32),
        (
            "  a: u32,\n  b: array<vec4<u32>, 2>,\n  c: vec4<f32>,\n  d: u32,",
            {"a": 0, "b": 16, "c": 48, "d": 64},
            80,
        ),
        ("  a: u32,\n  b: u32", {"a": 0, "b": 4}, 16),  # the last member needs no comma
    ],
)
def test_offsets(members: str, places: dict[str, int], size: int) -> None:
    fields, found = _layout(f"struct Params {{\n{members}\n}}")
    assert ({field.name: field.offset for field in fields}, found) == (places, size)


def test_loops_of_libraries_add_up() -> None:
    text = "//! loops: count\n//! loops: ceil(count, 2)\n//! extent x: count * 3\nfn main() {}\n"
    statements, rest = read_statements(text, ["x"], {})
    assert rest == "fn main() {}\n"
    assert statements.loops is not None
    assert statements.loops.value({"count": 7}) == 7 + 4
    assert statements.reach is not None
    assert statements.reach.value({"count": 7}) == (21,)
    assert read_statements(text, ["x", "y"], {})[0].reach is None


# Browsers ---------------------------------------------------------------------------------------


def test_browsers_enable_subgroups_where_they_are_used() -> None:
    module = compose(kernel("softmax", BY_SUBGROUPS=True, LANES=32, ROWS=2))
    assert module.portable_source == "enable subgroups;\n" + module.source


def test_every_index_is_clamped() -> None:
    module = replace(compose(kernel("unary")), source="out[x[i] + f(x[x[0u]])] = xx[1u] + a.x[2u];")

    def clamped(name: str, index: str) -> str:
        return f"{name}[min(u32({index}), arrayLength(&{name}) - 1u)]"

    inner = clamped("x", clamped("x", "0u"))
    assert (
        module.clamped_source == clamped("out", f"{clamped('x', 'i')} + f({inner})") + " = xx[1u] + a.x[2u];"
    )
    assert "enable subgroups" not in module.source
    half = compose(kernel("softmax", BY_SUBGROUPS=True, LANES=32, ROWS=2, X="f16"))
    assert half.portable_source.startswith("enable subgroups;\nenable f16;\n")
    for module in (compose(kernel("softmax")), compose(kernel("unary", X="f16"))):
        assert module.portable_source == module.source


# Loops -------------------------------------------------------------------------------------------


GPU = Target(is_cpu=False, subgroup_size=32)
LIMITED = Target(is_cpu=True, loop_max=65535)


def test_a_kernel_with_a_loop_states_it() -> None:
    for name in sorted(FILES):
        module = compose(kernel(name))
        if re.search(r"\b(for|while|loop) *[({]", module.source):
            assert module.statements.loops is not None, name


@pytest.mark.parametrize("name", ["matmul_thread", "matvec", "matmul_tiled", "matmul_merge", "q4_merge"])
def test_products_compile_without_bounds_checks(name: str) -> None:
    assert not compose(kernel(name)).bounds_checks


def launches(target: Target, name: str, shape: tuple[int, ...], *rest: Value) -> int:
    sketch = Sketch()
    x, out = sketch.tensor(*shape), sketch.tensor(*shape)
    sketch.node(name, x, *rest, out)
    return len(plan_at(sketch.prepare([x], [out], target)).launches)


@pytest.mark.parametrize("length", [1, 4096, 128_256, 1 << 20])
@pytest.mark.parametrize("target", [GPU, replace(GPU, subgroup_size=0)])
def test_a_gpu_takes_one_dispatch(length: int, target: Target) -> None:
    assert launches(target, "aten._softmax.default", (1, length), 1, False) == 1
    assert launches(target, "aten.sum.dim_IntList", (length, 1), (1,), True, None) == 1


@pytest.mark.parametrize(("depth", "count"), [(4096, 1), (40_000, 2)])
def test_a_deep_product_in_parts(depth: int, count: int) -> None:
    """Where the adapter ends long loops; on GPUs, so that more workgroups share a small product."""
    for target, expected in ((LIMITED, count), (replace(LIMITED, is_cpu=False), 2), (GPU, 2)):
        sketch = Sketch()
        x, y, out = sketch.tensor(5, depth), sketch.tensor(depth, 3), sketch.tensor(5, 3)
        sketch.node("aten.mm.default", x, y, out)
        assert len(plan_at(sketch.prepare([x, y], [out], target)).launches) == expected


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 4096, 100_003])
@pytest.mark.parametrize("most", [1, 2, 3, 10, 4096])
def test_split(length: int, most: int) -> None:
    parts, span = split(length, most)
    assert 1 <= span <= most
    assert (parts - 1) * span < max(length, 1) <= max(parts * span, 1)
