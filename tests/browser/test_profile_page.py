"""The page that `pteron profile --html` writes: one file that loads nothing, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

from browser_fixtures import Open

import pteron
from pteron import Profile
from pteron.cli import main
from pteron.tools.profile.report import Ceilings, LaunchTime, Stage, group_launches
from pteron.tools.profile.text import page_text
from pteron.tools.workload import Decode


def launch(index: int, seconds: float, layer: int | None, family: str, operator: str = "") -> LaunchTime:
    return LaunchTime(
        index=index,
        delegate=None if family == "sampling" else 0,
        node=index,
        nodes=(index,),
        operator=operator or f"aten.{family}.default",
        family=family,
        kernel=f"{family}_kernel",
        layer=layer,
        groups=(4, 1, 1),
        seconds=seconds,
        stamped_seconds=seconds + 2e-6,
        bytes_read=4096,
        bytes_written=1024,
        operations=1e6,
    )


def made_up(count: int = 24) -> Profile:
    """A profile of three layers; the name of one operator is an HTML tag, as a file may have it."""
    launches = [
        launch(index, 1e-4 * (1 + index % 4), index // 8, ("linear", "norm", "attention")[index % 3])
        for index in range(count)
    ]
    launches.append(launch(count, 5e-4, None, "layout", "</script><b id='intruder'>"))
    launches.append(launch(count + 1, 1e-4, None, "sampling", "pteron.sample"))
    stages = Stage("plan", 0.1, True), Stage("submit", 1e-4, False), Stage("wait", 9e-3, False)
    return Profile(
        program="model.pte",
        method="forward",
        what="decode at context 100",
        device="a GPU",
        inputs=("int64[1, 1]",),
        runs=20,
        timing="stamps",
        launches=tuple(launches),
        stamp_seconds=2e-6,
        paired_seconds=sum(each.seconds for each in launches),
        pass_seconds=6e-3,
        call_seconds=7e-3,
        stages=stages,
        layers=3,
        ceilings=Ceilings(1e12, 1e13),
    )


def test_a_page_is_one_file() -> None:
    text = page_text(made_up())
    assert not re.search(r"\s(src|href|srcset|data)=", text)
    assert len(re.findall(r"<script\b", text)) == len(re.findall(r"</script>", text)) == 2
    assert "<b id=" not in text
    assert "default-src 'none'" in text
    assert not re.search(r"\{\{\w+\}\}|https?://|@import|url\(", text)


def test_a_profile_in_a_browser(open_page: Open, models: Path, tmp_path: Path) -> None:
    """The command's own page: its bars and rows are those of the profile."""
    path, kept = tmp_path / "profile.html", tmp_path / "profile.json"
    program = str(models / "tiny_llama_q4.pte")
    argv = ["profile", program, "--decode", "--context", "9", "--runs", "2", "--html", str(path)]
    assert main([*argv, "--trace", str(kept)]) == 0
    page = open_page(path).page
    assert page.title() == "tiny_llama_q4.pte, decode at context 9 · Pteron"
    assert page.inner_text("#what").startswith("decode at context 9 (int64[1, 1], int64[1]) on ")
    profile = pteron.profile(program, Decode(9), runs=1, ceilings=False)
    assert page.locator("#families .bar").count() == len(group_launches(profile, "family"))
    assert page.locator("#layers .bar").count() == profile.layers + 1
    assert page.locator("#rows tr").count() == len(group_launches(profile, "node"))
    names = page.locator("#rows td:first-child").all_inner_texts()
    assert names[0] == group_launches(profile, "node")[0].name


def test_rows_and_timeline(open_page: Open, tmp_path: Path) -> None:
    """Rows by layer, searched and sorted; the timeline shows launches and zooms."""
    path = tmp_path / "made_up.html"
    path.write_text(page_text(made_up()), encoding="utf-8")
    page = open_page(path).page
    assert page.locator("#intruder").count() == 0
    notes = "timestamps add 2 µs per launch, which is subtracted; the last launch samples"
    assert page.inner_text("#notes").startswith(notes)
    assert page.locator("#rows td:first-child").last.inner_text() == "draw pteron.sample"
    page.select_option("#by", "layer")
    names = page.locator("#rows td:first-child").all_inner_texts()
    assert names == ["layer 0", "layer 1", "layer 2", "outside the layers"]
    page.select_option("#by", "launch")
    page.fill("#search", "attention")
    assert page.locator("#rows tr").count() == 8
    page.fill("#search", "")
    page.click("#headings th:has-text('time')")
    assert page.locator("#rows td:first-child").first.inner_text().startswith("24 </script>")
    page.locator("#timeline").scroll_into_view_if_needed()
    box = page.locator("#timeline").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 3, box["y"] + 60)
    assert page.locator("#tip").inner_text().startswith("aten.linear.default\n100 µs")
    before = page.evaluate("document.getElementById('timeline').toDataURL()")
    page.mouse.wheel(0, -600)
    page.wait_for_function("old => document.getElementById('timeline').toDataURL() !== old", arg=before)


def test_a_page_of_many_launches(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "many.html"
    path.write_text(page_text(made_up(2000)), encoding="utf-8")
    assert path.stat().st_size < 1 << 20
    page = open_page(path).page
    page.select_option("#by", "launch")
    assert page.locator("#rows tr").count() == 2002
    script = "(() => { const begun = performance.now(); draw(); return performance.now() - begun; })()"
    assert page.evaluate(script) < 500
