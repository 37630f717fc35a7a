"""The page of `pteron inspect --html` in a real browser: it shows the program and its plans."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from browser_fixtures import Open, Opened

import pteron
from pteron.graph import Graph
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled, Plan
from pteron.tools.inputs import LiveSize
from pteron.tools.inspect.page import PageOptions, ProgramDetails, page_text, program_details
from pteron.tools.inspect.page.details import (
    DelegateDetails,
    MethodDetails,
    NodeDetails,
    OperatorDetails,
    ValueDetails,
)
from pteron.tools.text import human_bytes

STORIES = Path(pteron.__file__).parent / "models" / "stories15m" / "model.pte"
LAYERS, NODES = 6, 158
GPU = Target(is_cpu=False)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a language model with one plan, at its maximum; the same on any machine."""
    path = tmp_path_factory.mktemp("pages") / "stories.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pteron.tools.local_adapter.LocalAdapter.planning_target", (GPU, "a test's GPU"))
        path.write_text(page_text(program_details(STORIES, method="forward")), "utf-8")
    return path


@pytest.fixture(scope="module")
def plan() -> Plan:
    with pteron.load(STORIES) as program:
        (graph,) = program.graphs("forward")
    return plan_of(graph)


def plan_of(graph: Graph) -> Plan:
    found = Compiled(prepare(graph), GPU).plan_at_maximum()
    assert found is not None
    return found[0]


def written(folder: Path, inside: ProgramDetails) -> Path:
    path = folder / "page.html"
    path.write_text(page_text(inside), "utf-8")
    return path


def boxes(opened: Opened, kind: str) -> int:
    kinds: list[str] = opened.run("[...page.views[0].layout.boxes.values()].map((box) => box.vertex.kind)")
    return kinds.count(kind)


def press(opened: Opened, key: str) -> None:
    """Press a vertex with the mouse, where it is on the screen."""
    opened.run(f"page.views[0].show('{key}')")
    opened.settle()
    x, y = opened.run(f"page.views[0].toScreen('{key}')")
    area = opened.page.locator("canvas").first.bounding_box()
    assert area is not None
    opened.page.mouse.click(area["x"] + x, area["y"] + y)
    opened.settle()


def test_layers_fold_and_unfold(stories: Path, open_page: Open) -> None:
    opened = open_page(stories)
    assert opened.page.locator(".pane h2").inner_text() == f"File's graph · {NODES} nodes"
    assert boxes(opened, "block") == LAYERS
    folded = boxes(opened, "node")
    press(opened, "b35")
    assert boxes(opened, "block") == LAYERS - 1
    assert boxes(opened, "node") == folded + 24
    opened.page.locator("canvas").press("Enter")  # nothing is chosen: nothing happens
    assert boxes(opened, "block") == LAYERS - 1
    press(opened, "n35")
    opened.page.locator("canvas").press("Enter")
    assert boxes(opened, "block") == LAYERS
    opened.page.get_by_role("button", name="Unfold all").click()
    assert (boxes(opened, "block"), boxes(opened, "node")) == (0, NODES)


def test_a_click_shows_a_node(stories: Path, open_page: Open) -> None:
    opened = open_page(stories)
    press(opened, "n3")
    panel = opened.page.locator("#panel")
    assert panel.locator("h3").inner_text() == "et_vk.embedding_q4gsw.default"
    assert "f32[1, ≤128, 288]" in panel.inner_text()
    assert "embedding_q4gsw" in opened.page.locator("#spoken").inner_text()
    opened.page.locator("canvas").press("ArrowDown")  # to what reads it, the first layer
    assert opened.run("page.state.chosen") == "b8"
    assert panel.locator("h3").inner_text() == "block 1 of 6"


def test_search_goes_into_folded_layers(stories: Path, open_page: Open) -> None:
    opened = open_page(stories)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("sdpa")
    assert opened.page.locator("#found li").count() == LAYERS
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("#panel h3").inner_text() == "sdpa_with_kv_cache.default"
    assert opened.run("page.state.item.index") == 43
    assert boxes(opened, "block") == LAYERS - 2
    opened.page.locator("#search").fill("no such operator")
    assert opened.page.locator("#found").inner_text() == "nothing found"


def test_enter_goes_to_a_match_and_hides_the_list(stories: Path, open_page: Open) -> None:
    opened = open_page(stories)
    opened.page.locator("#search").fill("linear")
    assert opened.page.locator("#found").is_visible()
    opened.page.locator("#search").press("Enter")
    assert not opened.page.locator("#found").is_visible()
    first = opened.page.locator("#panel").inner_text()
    opened.page.locator("#search").press("Enter")
    assert opened.page.locator("#panel").inner_text() != first
    opened.page.locator("#search").press("ArrowDown")
    assert opened.page.locator("#found").is_visible()


def test_constant_methods_show_their_values(tmp_path: Path, open_page: Open) -> None:
    opened = open_page(written(tmp_path, program_details(STORIES)))
    opened.page.get_by_role("tab", name="Program").click()
    rows = opened.page.locator("#panel table:last-of-type tr").all_inner_texts()
    assert "get_eos_ids\t1, 2" in rows
    assert "use_kv_cache\tTrue" in rows


def test_drag_wheel_and_keys_move_the_view(stories: Path, open_page: Open) -> None:
    opened = open_page(stories)
    canvas = opened.page.locator("canvas")
    area = canvas.bounding_box()
    assert area is not None
    start = opened.run("({...page.views[0].camera})")
    opened.page.mouse.move(area["x"] + 20, area["y"] + 300)
    opened.page.mouse.down()
    opened.page.mouse.move(area["x"] + 90, area["y"] + 250)
    opened.page.mouse.up()
    moved = opened.run("({...page.views[0].camera})")
    assert (moved["x"] - start["x"], moved["y"] - start["y"]) == pytest.approx((70, -50))
    opened.page.mouse.wheel(0, -300)
    opened.page.wait_for_function("scale => page.views[0].camera.scale > scale", arg=moved["scale"])
    canvas.press("0")
    canvas.press("-")
    assert opened.run("page.views[0].camera.scale") < start["scale"]


def test_launches_and_memory_are_the_plan(stories: Path, plan: Plan, open_page: Open) -> None:
    opened = open_page(stories)
    rows = opened.page.locator("#launches tbody tr")
    assert rows.count() == len(plan.launches)
    rows.nth(3).click()
    assert set(opened.run("[...page.state.marked]")) == set(plan.launches[3].nodes)
    panel = opened.page.locator("#panel")
    assert panel.locator("h3").inner_text() == f"Launch 3: {plan.launches[3].module.kernel.name}"
    panel.get_by_role("button", name="WGSL text").click()
    assert panel.locator("pre").inner_text().strip() == plan.launches[3].module.source.strip()
    memory = opened.run("page.state.plan.memory")
    assert memory["scratch_reserved"] == sum(plan.scratch_bytes)
    shown = opened.page.locator("#memory").inner_text()
    assert human_bytes(memory["peak_bytes"]) in shown
    assert human_bytes(sum(plan.scratch_bytes)) in shown
    opened.page.locator("#peak .link").click()
    assert opened.run("page.state.launch") == memory["peak_launch"]
    opened.page.locator("#plan").select_option("1")
    assert "at the smallest shapes" in opened.page.locator("#memory").inner_text()


@pytest.mark.rewrites
def test_calls_beside_the_graph(stories: Path, open_page: Open) -> None:
    opened = open_page(stories)
    opened.page.get_by_role("radio", name="Both").click()
    opened.settle()
    assert opened.page.locator(".pane").count() == 2
    calls = opened.run("page.state.delegate.calls.length")
    assert f"After rewrites · {calls} calls" in opened.page.locator(".pane h2").all_inner_texts()
    opened.run("page.goTo(page.state.delegate.calls.find((call) => call.nodes.length > 5))")
    assert opened.run("page.state.marked.size") > 5


@pytest.mark.rewrites
def test_a_call_is_brought_to_the_middle_of_its_graph(stories: Path, open_page: Open) -> None:
    opened = open_page(stories)
    opened.run("page.goTo(page.state.delegate.calls[20])")  # while the file's graph is shown
    opened.settle()
    assert opened.page.locator(".pane h2").inner_text().startswith("After rewrites")
    x, y = opened.run("page.views[0].toScreen('c20')")
    width, height = opened.run("[page.views[0].canvas.clientWidth, page.views[0].canvas.clientHeight]")
    assert (x, y) == pytest.approx((width / 2, height / 2))


def test_long_lines_of_a_kernel_scroll_in_a_narrow_window(stories: Path, open_page: Open) -> None:
    opened = open_page(stories)
    opened.page.set_viewport_size({"width": 390, "height": 844})
    opened.page.locator("#launches tbody tr").nth(3).click()
    opened.page.get_by_role("button", name="WGSL text").click()
    assert opened.run("document.querySelector('#panel pre').scrollWidth") > 390
    assert opened.run("document.querySelector('main').scrollWidth") == 390


def test_constants_families_and_themes(stories: Path, open_page: Open) -> None:
    opened = open_page(stories)
    opened.page.get_by_role("tab", name="Constants").click()
    opened.page.locator("#panel tr.row").first.click()
    assert opened.page.locator("#panel svg.histogram rect").count() == 16  # of a table of 4-bit numbers
    assert "a sample of 131,072 of 9,216,000 4-bit numbers" in opened.page.locator("#panel").inner_text()
    family = opened.page.locator("#legend button[data-family=quantized]")
    assert family.inner_text() == "quantized 44"
    family.click()
    assert opened.run("[...page.state.faded]") == ["quantized"]
    picture = "[getComputedStyle(document.body).backgroundColor, page.views[0].canvas.toDataURL()]"
    ground, drawn = opened.run(picture)
    opened.page.locator("#theme").click()
    opened.settle()
    other_ground, other_drawn = opened.run(picture)
    assert ground != other_ground
    assert drawn != other_drawn


def test_several_delegates_and_the_host_between_them(programs: Path, tmp_path: Path, open_page: Open) -> None:
    opened = open_page(written(tmp_path, program_details(programs / "vision.pte")))
    tabs = opened.page.locator("#delegates [role=tab]")
    assert tabs.all_inner_texts() == ["delegate 0", "delegate 1"]
    assert opened.page.locator(".pane h2").inner_text() == "File's graph · 10 nodes"
    assert opened.page.locator("#fold").is_hidden()
    tabs.nth(1).click()
    assert opened.page.locator(".pane h2").inner_text() == "File's graph · 3 nodes"
    assert "comes from the host" in opened.page.locator("#panel").inner_text()
    opened.page.get_by_role("tab", name="Program").click()
    assert "aten::mean.out" in opened.page.locator("#panel").inner_text()


@pytest.mark.parametrize(
    ("name", "backend", "tabs", "shown"),
    [
        ("multi_method.pte", b"VulkanBackend", ["decode · delegate 0", "encode · delegate 0"], "encode"),
        ("host_only.pte", b"VulkanBackend", [], "aten::"),
        ("mlp.pte", b"RemoteBackend", ["delegate 0"], "RemoteBackend programs are not supported"),
    ],
)
def test_programs_of_other_kinds(
    name: str, backend: bytes, tabs: list[str], shown: str, programs: Path, tmp_path: Path, open_page: Open
) -> None:
    copy = tmp_path / name
    copy.write_bytes((programs / name).read_bytes().replace(b"VulkanBackend", backend))
    opened = open_page(written(tmp_path, program_details(copy)))
    assert opened.page.locator("#delegates [role=tab]").all_inner_texts() == tabs
    opened.page.get_by_role("tab", name="Program").click()
    assert shown in opened.page.locator("#panel").inner_text()


def test_a_thousand_nodes_pan_smoothly(tmp_path: Path, open_page: Open) -> None:
    opened = open_page(written(tmp_path, program_of(ladder(1000))))
    opened.run("page.views[0].fit()")
    opened.settle()
    assert boxes(opened, "node") == 1000
    opened.run(
        "new Promise((done) => { const view = page.views[0]; view.drawTimes.length = 0; let left = 40;"
        " const step = () => { view.pan(7, -11); left-- ? requestAnimationFrame(step) : done(); }; step(); })"
    )
    times = opened.run("page.views[0].drawTimes")
    assert len(times) >= 40
    assert median(times) < 33, times  # milliseconds, beside other tests
    again = "JSON.stringify([...page.views[0].layout.boxes].map(([key, box]) => [key, box.x, box.y]))"
    first = opened.run(again)
    opened.run("page.arrange()")
    assert opened.run(again) == first


HOSTILE = "</script><img src=x onerror='window.broken = 1'><hr>"


def test_no_name_becomes_markup(tmp_path: Path, open_page: Open) -> None:
    inside = program_of(ladder(5, name=HOSTILE), name=HOSTILE)
    opened = open_page(written(tmp_path, inside))
    press(opened, "n2")
    for tab in ("Node", "Launches", "Constants", "Program"):
        opened.page.get_by_role("tab", name=tab, exact=True).click()
    opened.page.locator("#search").fill("onerror")
    assert HOSTILE in opened.page.locator("#found").inner_text()
    assert opened.page.title() == f"{HOSTILE} · Pteron"
    assert opened.page.locator("hr, img").count() == 0
    assert opened.run("window.broken") is None


def ladder(count: int, name: str = "aten.add.Tensor") -> DelegateDetails:
    """A delegate of `count` nodes; each reads the previous value and one seven steps back."""
    values = [ValueDetails(id, "f32", (1, 16), (1,), None, False) for id in range(count + 1)]
    nodes = []
    for id in range(count):
        reads, writes = (id, max(0, id - 7)), (id + 1,)
        nodes.append(NodeDetails(0, tuple({"value": each} for each in (*reads, *writes)), reads, writes))
    operator = OperatorDetails(name, "elementwise", ("self", "other"), True)
    return DelegateDetails(name, name, 0, (), (0,), (count,), tuple(values), (), (operator,), tuple(nodes))


def program_of(delegate: DelegateDetails, name: str = "ladder") -> ProgramDetails:
    method = MethodDetails(name, (name,), (name,), (), (delegate,))
    return ProgramDetails(name, name, 0, name, name, (name,), name, (name,), (method,), ())


def test_a_page_at_chosen_sizes(tmp_path: Path, open_page: Open, programs: Path) -> None:
    inside = program_details(programs / "mlp_dynamic.pte", options=PageOptions([LiveSize(5)]))
    opened = open_page(written(tmp_path, inside))
    assert "with inputs f32[5, 7]" in opened.page.locator("#panel").inner_text()
    press(opened, "n1")
    assert "here f32[5, 11]" in opened.page.locator("#panel").inner_text()
