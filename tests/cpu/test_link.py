"""Kernel files as one text: conditions, imports, overrides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernel_files import ROOT, kernel

from pteron.ops import Dispatch
from pteron.wgsl import Kernel, compose
from pteron.wgsl.link import chosen

FILES = sorted(ROOT.rglob("*.wgsl"))
_DECLARED = r"\b(?:fn|struct|alias|const|override|var|let)(?:<[\w, ]+>)? (\w+)"
_AT_TOP = rf"^(?:@[^\n]*?\)\s*|@else\s*)*{_DECLARED}"
DECLARED = {name for path in FILES for name in re.findall(_AT_TOP, path.read_text("utf-8"), re.MULTILINE)}


def left(text: str, *names: str) -> str:
    return " ".join(chosen(text, frozenset(names)).split())


def test_a_statement_stays_if_its_condition_holds() -> None:
    text = "a(); @if(bias) b(c[0], 1); d();"
    assert left(text, "bias") == "a(); b(c[0], 1); d();"
    assert left(text) == "a(); d();"


def test_one_of_a_chain_stays() -> None:
    text = "@if(a && !b) f();\n@elif(b || (c)) { g(); }\n@else h();\nlast();"
    assert left(text, "a") == "f(); last();"
    assert left(text, "a", "b") == left(text, "c") == "{ g(); } last();"
    assert left(text) == "h(); last();"


def test_conditions_decorate_declarations_members_and_branches() -> None:
    assert left("struct P { @if(q) x: array<vec4<u32>, 4>, y: u32 }") == "struct P { y: u32 }"
    assert left("@if(q) @group(0) @binding(3) var<storage, read> q: array<f32>;\nfn f() { }") == "fn f() { }"
    assert left("@if(q) if (a) { b(); } else { c(); } d();") == "d();"
    assert left("@if(q) fn f(a: u32) -> u32 { return a; } // } \nfn g() { }", "q").startswith("fn f(")
    assert left("@if(a) { @if(b) f(); @else g(); }", "a") == "{ g(); }"
    assert left("// @if(a) is a comment\nf();") == "// @if(a) is a comment f();"


def test_a_launch_gives_overrides_and_nothing_else() -> None:
    assert "const TALL: u32 = 4u;" in compose(kernel("q4_tiled", TALL=4)).source
    with pytest.raises(ValueError, match="no override, alias or formula named scaled"):
        compose(kernel("q4_tiled", scaled="0.0"))
    with pytest.raises(ValueError, match=r"takes TALL as u32, not 4\.5"):
        compose(kernel("q4_tiled", TALL=4.5))


def test_a_formula_is_an_operators_and_takes_what_it_uses() -> None:
    source = compose(kernel("unary", apply="R(erf_of(x))")).source
    assert "fn apply(x: T) -> R { return R(erf_of(x)); }" in source
    assert "fn erf_of(" in source
    assert "fn atan_of(" not in source
    with pytest.raises(ValueError, match="kernel unary needs a formula for apply"):
        compose(Kernel("pteron.families.elementwise", "unary"))


def test_a_formula_that_a_launch_may_leave_out() -> None:
    given = Dispatch(kernel("matmul_thread"), threads=1, activation="exp(x)").kernel
    assert "fn activation(x: f32) -> f32 { return exp(x); }" in compose(given).source
    absent = Dispatch(kernel("matmul_thread"), threads=1, activation=None).kernel
    assert "fn activated(x: f32) -> f32 {\n    return x;" in compose(absent).source
    assert "fn activation(" not in compose(absent).source


def test_what_a_kernel_does_not_use_is_left_out() -> None:
    alone = compose(kernel("q4_matvec").launched(("x", "weights", "scales", "out")))
    assert [binding.name for binding in alone.bindings] == ["out", "weights", "x", "scales"]
    assert "Value(bias[n" not in alone.source
    assert "fn store_quad(" not in alone.source
    biased = compose(kernel("q4_matvec").launched(("x", "weights", "scales", "out", "bias")))
    assert "return Value(bias[n / UNIT]);" in biased.source


def test_constants_of_statements_are_kept() -> None:
    loops = compose(kernel("attention_scores")).statements.loops  # WIDTH // ELEMENTS
    assert loops is not None
    assert loops.value({}) == 64


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_conditions_name_operands_overrides_or_formulas(path: Path) -> None:
    conditions = " ".join(re.findall(r"@(?:el)?if\(((?:[^()]|\([^()]*\))*)\)", path.read_text("utf-8")))
    every = "\n".join(each.read_text("utf-8") for each in FILES)
    known = set(
        re.findall(r"override (\w+): bool|var<[^>]*> (\w+):|^@if\(\w+\) fn (\w+)[^{]*;$", every, re.M)
    )
    assert set(re.findall(r"\w+", conditions)) <= {name for names in known for name in names}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_imports_the_names_that_it_uses_or_says_whose_they_are(path: Path) -> None:
    """A comment does, where they are those of the kernel that imports it. All know `params`."""
    text = path.read_text("utf-8")
    code = re.sub(r"//[^\n]*|@(?:el)?if\((?:[^()]|\([^()]*\))*\)", "", text)
    imported = re.findall(r"\w+", " ".join(re.findall(r"\bimport [\w:]+\{([^}]*)\}", code)))
    code = re.sub(r"\bimport [^;]+;", "", code)
    own = {name for names in re.findall(rf"{_DECLARED}|(\w+) *:", code) for name in names}
    comments = re.findall(r"\w+", " ".join(re.findall(r"//(?!!)([^\n]*)", text)))
    used = set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", code)) & DECLARED
    assert used <= own.union(imported, comments, ["params"])
