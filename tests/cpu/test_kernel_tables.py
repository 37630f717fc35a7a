"""The tables of docs/rooms/operators.md are those of the kernels' files."""

from __future__ import annotations

from kernel_tables import PAGE, page_with, tables, taken


def test_the_page_has_what_the_files_say() -> None:
    assert PAGE.read_text("utf-8") == page_with(tables()), "run python tests/kernel_tables.py"


def test_operands_are_needed_where_every_launch_binds_them() -> None:
    combine = taken("combine")
    assert combine.computes == "out[t, n] = Σ weights[t, j] · x[t, j, n] over j, plus a residual"
    assert combine.operands == ("x", "weights", "out", "residual")
    assert combine.always == {"x", "weights", "out"}
    assert combine.written == {"out"}
    assert combine.members == ("count", "kept", "width")
    parts = taken("choose_qparams")
    assert {"scale", "zero_point", "extremes"} & parts.always == set()


def test_numbers_types_and_formulas_that_a_launch_gives() -> None:
    quads = taken("binary_quads")
    assert quads.given == (
        "RANK: u32 = 8",
        "LOADS: u32 = 4",
        "IS_B: bool",
        "T = f32",
        "combine(a: T, b: T) -> R",
    )
    assert "PLANES: u32 = 3" in taken("q4_digits").given  # of a library
