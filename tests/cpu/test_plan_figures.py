"""Plans of the suite's programs have the launches and the memory that plan_figures.json says, and programs
can be compared by their plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from plan_figures import FILE, PROGRAMS, TARGETS, figures_of
from sketch import Sketch, plan_at

from pteron.cli import main
from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.passes.rewrite import REWRITES_VARIABLE
from pteron.tools.inspect import figures
from pteron.tools.inspect.difference import ProgramDifference, changes_of, difference_lines
from pteron.tools.inspect.figures import program_figures, read_figures, write_figures
from pteron.tools.inspect.nodes import NodeChange


@pytest.mark.long(every=2)
@pytest.mark.rewrites
@pytest.mark.parametrize("name", PROGRAMS)
def test_figures_are_as_expected(name: str) -> None:
    """If a change of these numbers is wanted: python tests/plan_figures.py."""
    assert figures_of(name) == json.loads(FILE.read_text("utf-8"))[name]


def test_the_file_has_no_other_program() -> None:
    assert json.loads(FILE.read_text("utf-8")).keys() == PROGRAMS.keys()


def test_weights_that_only_loading_reads_are_counted() -> None:
    sketch = Sketch()
    x, number = sketch.tensor(3), sketch.constant(1, dtype=DType.I32)
    converted, out = sketch.tensor(1), sketch.tensor(3)
    sketch.node("aten._to_copy.default", number, *[None] * 6, converted)
    sketch.node("aten.mul.Tensor", x, converted, out)
    compiled = sketch.prepare([x], [out])
    found = figures.figures_of(compiled, plan_at(compiled))
    assert (found.launches, found.weights) == (1, 4)


def test_changes_as_lines() -> None:
    old = figures.PlanFigures(4, 2000, 0, 10, 0, kernels={"a": 3, "b": 1}, guards=("x < 3", "y"))
    new = replace(old, launches=5, weights=1000, states=8, kernels={"a": 5}, guards=("y", "x < 4"))
    changes = changes_of(
        {"same": old, "changed": old, "gone": old}, {"same": old, "changed": new, "new": new}
    )
    lines = list(difference_lines(ProgramDifference("a.pte", "b.pte", "a GPU", (), changes)))
    assert [" ".join(line.split()) for line in lines[1:]] == [
        *("", "changed", "launches 4 → 5 +25.0%", "weights 2.0 kB → 1.0 kB -50.0%", "states 0 B → 8 B"),
        *("kernel a 3 → 5", "kernel b 1 → 0", "guard gone: x < 3", "guard new: x < 4"),
        *("", "gone", "only in a.pte"),
        *("", "new", "only in b.pte"),
        *("", "1 plan without a change"),
    ]
    nodes = (NodeChange("f", None, "1 x"), NodeChange("f", "2 x", None), NodeChange("g", "3 x", "3 y")) * 7
    lines = list(difference_lines(ProgramDifference("a.pte", "b.pte", "a GPU", nodes, ())))
    assert lines[1:8] == ["", "f", "  1 x, only in b.pte", "  2 x, only in a.pte", "", "g", "  3 x → 3 y"]
    assert lines[-1] == "  … and 1 more node (--json lists all)"


@pytest.mark.rewrites
def test_changes_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target, path = TARGETS["GPU, subgroups"], PROGRAMS["tiny_llama_q4"]
    before = program_figures(path, target)
    monkeypatch.setenv(REWRITES_VARIABLE, "none")
    after = program_figures(path, target)
    changes = changes_of(before, after)
    assert len(changes) == 2
    for change in changes:
        old, new = change.numbers["launches"]
        assert old < new
        assert sum(late - early for early, late in change.kernels.values()) == new - old
    assert all(change.is_same for change in changes_of(before, before))
    write_figures(tmp_path / "figures.json", before)
    assert read_figures(tmp_path / "figures.json") == before


def test_a_plan_of_one_program_alone_is_named(models: Path) -> None:
    target = TARGETS["GPU"]
    before = program_figures(models / "tiny_llama_q4.pte", target, traffic=False)
    after = program_figures(models / "tiny_llama_q4_static.pte", target, traffic=False)
    assert [change.after is None for change in changes_of(before, after)] == [False, True]


def test_the_command_prints_changes(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "before.json"
    given = ["inspect", str(models / "tiny_llama_q4.pte")]
    assert main([*given, "--figures", str(saved), "--dim", "3"]) == 0
    assert main([*given, "--diff", str(models / "tiny_llama_8da4w.pte"), "--dim", "3"]) == 0
    text = capsys.readouterr().out
    assert "kernel choose_qparams" in text
    assert "guard" not in text  # of live integers from the same input, in the same range
    assert main([*given, "--diff", str(saved), "--dim", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"][0]["numbers"] == {}
    assert main([*given, "--diff", "stories15m", "--dim", "3"]) == 0
    assert "tiny_llama_q4.pte → model.pte" in capsys.readouterr().out


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    for text in ("", "[]", '{"forward": 3}', '{"forward": {"launches": 3}}'):
        path.write_text(text, "utf-8")
        with pytest.raises(InputError, match="not a file of `pteron inspect --figures`"):
            read_figures(path)
