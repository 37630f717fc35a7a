"""What the page and `--json --plan` say of a program: graphs, repetitions, plans, memory, histograms."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.cli import main
from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.gpu import Device
from pteron.graph import Constant
from pteron.ops import OPERATORS
from pteron.ops.operand import Weight
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.tools.graph_structure import family_of_operator, find_repetitions
from pteron.tools.inputs import LiveSize
from pteron.tools.inspect.page import (
    DelegateDetails,
    PageOptions,
    ProgramDetails,
    kernel_lines,
    page_text,
    program_details,
)
from pteron.tools.inspect.page import plans as plans_of_page
from pteron.tools.inspect.page.graphs import UNKNOWN, histogram
from pteron.tools.local_adapter import find_adapter
from pteron.tools.text import build_page

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = sorted(path for kind in ("pte", "bpte") for path in FIXTURES.glob(f"*/*.{kind}"))
STORIES = Path(pteron.__file__).parent / "models" / "stories15m" / "model.pte"
STYLE = Path(__file__).parents[2] / "web" / "pages" / "inspect" / "theme.css"


def only_delegate(inside: ProgramDetails) -> DelegateDetails:
    (delegate,) = (each for method in inside.methods for each in method.delegates)
    return delegate


@pytest.fixture(scope="module")
def stories() -> ProgramDetails:
    return program_details(STORIES)


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parent.name == "programs"], ids=lambda p: p.name
)
def test_every_fixture_has_a_page(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("looking inside opens no device")

    monkeypatch.setattr(Device, "__init__", refuse)
    inside = program_details(path)
    assert page_text(inside).startswith("<!DOCTYPE html>")
    for method in inside.methods:
        for delegate in method.delegates:
            assert delegate.nodes
            ids = {value.id for value in delegate.values}
            assert all({*node.reads, *node.writes} <= ids for node in delegate.nodes)
            assert all({*call.reads, *call.writes} <= ids for call in delegate.calls or ())


def test_a_kernels_text_is_whole_and_printed_once(
    stories: ProgramDetails, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers share a text; its launches are listed before it. The page's limit does not apply."""
    plans = only_delegate(stories).plans
    names = [stories.kernels[launch.kernel].name for plan in plans for launch in plan.launches]
    ((name, count),) = Counter(names).most_common(1)
    lines = list(kernel_lines(stories, name))
    texts = [each.source for each in stories.kernels if each.name == name]
    assert "\n".join(lines).count("@compute") == len(texts) > 0
    nodes = [node for line in lines for node in re.findall(r"^// .* of node (.*)$", line)]
    assert sum(each.count(",") + 1 for each in nodes) == count > len(nodes)
    monkeypatch.setattr(plans_of_page, "_SOURCES_MAX", 0)
    (kept,) = {bool(each.source) for each in program_details(STORIES).kernels}
    assert not kept
    details = program_details(STORIES, options=PageOptions(kernel=name))
    assert list(kernel_lines(details, name)) == lines


@pytest.mark.rewrites
def test_a_plan_is_the_one_that_is_made(stories: ProgramDetails) -> None:
    delegate = only_delegate(stories)
    with pteron.load(STORIES) as program:
        (graph,) = program.graphs("forward")
    compiled = Compiled(prepare(graph), find_adapter().planning_target[0])
    found = compiled.plan_at_maximum()
    assert found is not None
    plan, inside = found[0], delegate.plans[0]
    assert len(delegate.nodes) == len(graph.nodes)
    assert [(each.node, each.nodes, each.groups) for each in inside.launches] == [
        (each.node, each.nodes, each.groups) for each in plan.launches
    ]
    memory = inside.memory
    assert memory is not None
    assert memory.activations_reserved == sum(compiled.executable.slots)
    assert memory.scratch_reserved == sum(plan.scratch_bytes)
    bound = {buffer for each in plan.launches for buffer in each.buffers if isinstance(buffer, Weight)}
    assert memory.weights == sum(weight.bytes for weight in bound)
    assert memory.states == sum(state.bytes for state in compiled.executable.states.values())
    # What is in use has room in what is reserved, and is more than what any launch binds of one slot.
    assert max(memory.activations) <= memory.activations_reserved
    assert max(memory.scratch) <= memory.scratch_reserved
    in_use = [a + s for a, s in zip(memory.activations, memory.scratch, strict=True)]
    assert memory.peak_bytes == memory.weights + memory.states + max(in_use)
    assert in_use[memory.peak_launch or 0] == max(in_use)


def test_memory_of_a_small_graph_by_hand(programs: Path) -> None:
    """x [17, 7] -> linear [17, 11] -> add -> softmax: each reads one tensor of f32 and writes another."""
    inside = program_details(programs / "mlp_dynamic.pte", options=PageOptions([LiveSize(3)]))
    delegate = only_delegate(inside)
    assert all(each.is_available for each in delegate.operators)
    (plan,) = delegate.plans
    assert plan.memory is not None
    x, y = 3 * 7 * 4, 3 * 11 * 4
    assert len(plan.launches) in (2, 3)  # with rewrites, the sum is part of the product
    assert plan.memory.activations[0] == x + y
    assert plan.memory.activations[-1] in (2 * y, y)
    assert plan.memory.weights == (11 * 7 + 11 + 11) * 4


def test_layers_are_found_where_the_graph_repeats(stories: ProgramDetails) -> None:
    ((first, *rest),) = only_delegate(stories).repetitions
    assert (first, len(rest)) == ((8, 35), 5)  # the first layer also prepares what all of them read
    assert {end - start for start, end in rest} == {24}


def flow_of(names: str) -> list[tuple[list[int], list[int]]]:
    """Each reads what the one before it wrote."""
    return [([position], [position + 1]) for position in range(len(names))]


@pytest.mark.parametrize(
    ("names", "blocks"),
    [
        ("xabcdeabcdeabcdey", [(1, 6), (6, 11), (11, 16)]),
        ("abcdefgh", []),
        ("aaaaaaaaaaaa", []),
        ("pabcxdabcdabcdq", [(1, 6), (6, 10), (10, 14)]),  # the first has one more
        ("abcdabcdabcdxyzwvxyzwv", [(0, 4), (4, 8), (8, 12), (12, 17), (17, 22)]),
        ("", []),
    ],
)
def test_repetitions(names: str, blocks: list[tuple[int, int]]) -> None:
    found = find_repetitions(list(names), flow_of(names))
    assert [block for repetition in found for block in repetition] == blocks


def test_a_block_begins_where_the_fewest_values_cross() -> None:
    """a, b and c each give d a value of their own, so that only between d and a does one cross alone."""
    names = "cdabcdabcdab"
    flow: list[tuple[list[int], list[int]]] = []
    for position, name in enumerate(names):
        extra = [100 + position] if name in "abc" else []
        read = [100 + position - back for back in (1, 2, 3)] if name == "d" else []
        flow.append(([position, *read], [position + 1, *extra]))
    ((first, *_),) = find_repetitions(list(names), flow)
    assert names[first[0]] == "a"


def test_dims_that_vary_are_found_inside_the_graph(programs: Path) -> None:
    first, _ = program_details(programs / "vision.pte").methods[0].delegates
    types = {value.shape_max: value.dynamic for value in first.values if value.constant is None}
    assert types[1, 3, 17, 16] == (2, 3)
    assert types[1, 20, 9, 8] == (2, 3)  # after a stride of 2, one row less is often the same
    inside = program_details(programs / "mlp_dynamic.pte")
    weights = [value for value in only_delegate(inside).values if value.constant is not None]
    assert weights
    assert not any(value.dynamic for value in weights)


def test_a_plan_says_what_is_not_known(programs: Path) -> None:
    _, second = program_details(programs / "vision.pte").methods[0].delegates
    smallest = second.plans[1]
    assert smallest.notes == ("input 0 comes from the host: planned at its maximum shape",)


def constant(array: np.ndarray[Any, Any], dtype: DType) -> Constant:
    return Constant("key", dtype, array.shape, memoryview(array.tobytes()))


def test_a_histogram_of_all_elements() -> None:
    array = np.array([0.0, 1.0, 64.0, np.nan, np.inf], np.float32)
    found = histogram(constant(array, DType.F32), is_whole=False)
    assert found is not None
    assert (found.low, found.high, found.not_finite) == (0.0, 64.0, 2)
    assert found.mean == pytest.approx(65 / 3)
    assert (found.counts[0], found.counts[1], found.counts[63], sum(found.counts)) == (1, 1, 1, 3)
    assert found.looked_at == found.elements == 5


def test_a_large_constant_is_sampled_unless_all_is_asked_for() -> None:
    array = np.arange(100_000, dtype=np.float32)
    array[1] = np.inf  # in the first sample
    sample = histogram(constant(array, DType.F32), is_whole=False)
    whole = histogram(constant(array, DType.F32), is_whole=True)
    assert sample is not None
    assert whole is not None
    assert (sample.looked_at, sample.elements) == (16_384, 100_000)
    assert (whole.looked_at, sample.not_finite, whole.not_finite) == (100_000, 1, 1)
    assert whole.mean == pytest.approx(49_999.5, rel=1e-4)
    assert sample.mean == pytest.approx(49_999.5, rel=0.02)
    assert sample.low == 0
    assert sample.high == pytest.approx(99_999, rel=0.001)


def test_packed_numbers_are_counted_one_by_one() -> None:
    found = histogram(constant(np.array([0x21, 0xF1], np.uint8), DType.U8), is_whole=True, bits=4)
    assert found is not None
    assert (found.elements, len(found.counts)) == (4, 16)
    assert {value: count for value, count in enumerate(found.counts) if count} == {1: 2, 2: 1, 15: 1}


def test_bf16_is_read_as_numbers() -> None:
    found = histogram(constant(np.array([0x3F80, 0xC000], np.uint16), DType.BF16), is_whole=True)
    assert found is not None
    assert (found.low, found.high) == (-2, 1)


def test_every_family_has_a_colour_in_both_themes() -> None:
    families = {str(family_of_operator(name)) for name in OPERATORS} - {"None"}
    style = STYLE.read_text("utf-8")
    assert {"attention", "convolution", "linear", "quantized"} < families
    for family in families | {UNKNOWN}:
        assert style.count(f"--family-{family}: light-dark(#") == 1


def test_a_page_is_written(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "mlp.html"
    assert main(["inspect", "--html", str(programs / "mlp.pte"), "-o", str(page)]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    text = page.read_text("utf-8")
    assert "mlp.pte" in text
    assert "{{" not in text
    assert text.count("http") == 1  # the attribute of the policy: nothing is loaded
    assert main(["inspect", "--html", str(programs / "mlp.pte"), "-o", str(tmp_path / "none" / "x")]) == 1
    assert "the page cannot be written" in capsys.readouterr().err


def test_json_with_a_plan(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["inspect", str(programs / "mlp_dynamic.pte"), "--json", "--plan", "--dim", "5"]
    assert main(argv) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["methods"][0]["name"] == "forward"
    (delegate,) = printed["inside"]["methods"][0]["delegates"]
    assert len(delegate["nodes"]) == 4
    assert delegate["plans"][0]["inputs"] == ["f32[5, 7]"]
    assert len(delegate["plans"][0]["memory"]["activations"]) == len(delegate["plans"][0]["launches"])


def test_weights_have_no_page(programs: Path) -> None:
    with pytest.raises(InputError, match="a weight file has no graph"):
        program_details(programs / "external_weights.shard0.ptd")


def test_constants_that_are_not_given_have_no_histogram(programs: Path) -> None:
    delegate = only_delegate(program_details(programs / "external_weights.pte"))
    assert delegate.constants
    assert not any(each.is_given or each.histogram for each in delegate.constants)
    assert delegate.problems == ("6 constants missing in the given files",)


# Names cannot break the markup -------------------------------------------------------------------


PACKAGE = "pteron.tools.profile"


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def content(page: str) -> object:
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize(
    "name", ["{{data}}", "{{policy}} {{nothing}}", "</script><b>", "</title><b>", "<!--", "\u2028"], ids=ascii
)
def test_a_name_is_a_name(name: str) -> None:
    page = build_page(PACKAGE, name, {"name": name})
    assert Tags(page).seen == Tags(build_page(PACKAGE, "plain", {})).seen
    assert content(page) == {"name": name}
    assert page.count("Content-Security-Policy") == 1


def test_names_that_are_no_text() -> None:
    """As Python reads a file's name that is not UTF-8."""
    page = build_page(PACKAGE, "\udcff.pte", {"name": "\udcff.pte"})
    assert b"<title>\\udcff.pte</title>" in page.encode()
    assert content(page) == {"name": "\udcff.pte"}
