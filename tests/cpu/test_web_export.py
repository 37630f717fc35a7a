"""What `pteron export web` writes, without a GPU and without a browser."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from kernel_files import kernel
from sketch import Sketch

import pteron
from pteron.cli import main
from pteron.dtypes import DType, Storage
from pteron.format.program_writer import StreamedData, write_program
from pteron.graph import Constant
from pteron.names.kinds import recognise
from pteron.ops import Target, Weight
from pteron.ops.live import Trace
from pteron.ops.operand import State, plain_weight
from pteron.ops.terms import evaluate
from pteron.passes import prepare
from pteron.plan import Advance, Compiled, Executable, Launch
from pteron.plan.collect import Collector
from pteron.web import export_web, weights
from pteron.web.check import checks_of
from pteron.web.language import WebLanguageModel
from pteron.web.planned import plan_ahead, plans_for
from pteron.web.shapes import read_ranges
from pteron.web.variants import TARGETS, Variant, chosen_targets
from pteron.web.weights import Place, used_weights
from pteron.wgsl import Kernel, compose

STORIES = Path(__file__).parents[2] / "src" / "pteron" / "models" / "stories15m"
PLAYER_MAX = 60_000  # bytes


def index_of(folder: Path) -> Any:
    return json.loads((folder / "program.json").read_bytes())


def test_files_are_named_by_their_content(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks keep their limit; a second export replaces what the first one wrote."""
    monkeypatch.setattr(weights, "CHUNK", 100)
    site = export_web(programs / "mlp.pte", tmp_path)
    index = index_of(tmp_path)
    chunks = [chunk for stream in index["streams"] for chunk in stream["chunks"]]
    for file in (*chunks, *index["variants"]):
        data = (tmp_path / file["file"]).read_bytes()
        assert len(data) == file["bytes"]
        assert hashlib.sha256(data).hexdigest() == file["sha256"]
        assert Path(file["file"]).stem == file["sha256"][:16]
    assert max(chunk["bytes"] for chunk in chunks) == 100
    assert site.bytes == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert site.fetched.keys() == {"subgroups", "hardware", "software"}
    before = {path.name for path in tmp_path.rglob("*.bin")}
    export_web(programs / "mlp_dynamic.pte", tmp_path, variants=["software"])
    assert before.isdisjoint(path.name for path in tmp_path.rglob("*.bin"))


def test_nothing_of_this_machine_is_in_a_site(programs: Path, tmp_path: Path) -> None:
    export_web(programs / "attention_cache.pte", tmp_path)
    for path in tmp_path.rglob("*.json"):
        assert str(programs) not in path.read_text("utf-8")


def test_the_player_is_small() -> None:
    static = Path(pteron.__file__).parent / "web" / "static"
    assert (static / "player.js").stat().st_size <= PLAYER_MAX


def test_weights_are_shared_by_variants(tmp_path: Path) -> None:
    """A language model's site is little larger than its weights; zeros of a KV cache are not written."""
    site = export_web("stories15m", tmp_path, check=False)
    assert site.bytes < 1.25 * (STORIES / "model.pte").stat().st_size
    assert all(size < 11.5e6 for size in site.fetched.values())


def test_plans_serve_every_position() -> None:
    """For each length of a prompt and each position of the context, exactly one plan holds first."""
    model = WebLanguageModel.load(recognise(STORIES), None, None, [1, 16, 128])
    for name in ("software", "subgroups"):
        executable = model.variant(name, TARGETS[name], checked=False).executables["forward"]
        assert [shapes[0] for shapes in executable.plans] == [(1, 1), (1, 16), (1, 128)]
        symbols = [source.symbol for source in executable.sources]
        for shapes, plans in executable.plans.items():
            assert shapes[0] is not None
            for position in range(model.context - shapes[0][1] + 1):
                values = dict.fromkeys(symbols, position)
                assert any(plan.numbers(values) is not None for plan in plans), (shapes, position)


def small_model(name: str, models: Path, folder: Path, context: int | None = None) -> WebLanguageModel:
    shutil.copy(models / f"tiny_llama_{name}.pte", folder / "model.pte")
    shutil.copy(STORIES / "tokenizer.bin", folder)
    return WebLanguageModel.load(recognise(folder / "model.pte"), context, None, None)


@pytest.mark.parametrize(("name", "lengths"), [("fp32", (1, 4, 16, 31)), ("q4_static", (1,))])
def test_lengths_of_prompts_end_at_the_programs(
    name: str, lengths: tuple[int, ...], models: Path, tmp_path: Path
) -> None:
    assert small_model(name, models, tmp_path).lengths == lengths


def test_how_many_plans_are_made() -> None:
    """One without live integers; with one, enough for the values that fit, below `end`."""
    plain = Sketch()
    x, out = plain.tensor(2, 5), plain.tensor(2, 5)
    plain.node("aten.relu.default", x, out)
    assert len(plans_for(plain.prepare([x], [out]), ((2, 5),))) == 1
    sliced = Sketch()
    table, start = sliced.tensor(9, 5), sliced.symbol()
    row = sliced.tensor(5)
    sliced.node("aten.select_copy.int", table, 0, start, row)
    compiled = sliced.prepare([table, start], [row])
    for end in (None, 9, 4, 1):
        plans = plans_for(compiled, compiled.shapes_max, end)
        for value in range(min(end or 9, 9)):
            assert any(plan.numbers({start.id: value}) is not None for plan in plans)
        assert len(plans) == 1
    assert plans_for(compiled, compiled.shapes_max, 0) == []


def test_checks_go_on_behind_caches(models: Path, tmp_path: Path) -> None:
    """Those of a chosen context are zeros, which no file has."""
    compiled = Compiled(small_model("fp32", models, tmp_path, context=48).method.prepared, Target())
    executable = plan_ahead(compiled, [((1, 4), (1,))])
    (check,) = checks_of(compiled, executable)
    ((plan, *_),) = executable.plans.values()
    assert max(answer.last for answer in check.answers) == len(plan.launches)
    assert any("sdpa" in answer.operator for answer in check.answers)


def test_the_players_tables_are_the_plans(programs: Path) -> None:
    """Launches and blocks by number are those of the plan; parameters follow the live integers."""
    from pteron.web.executable_json import ExecutableWriter, ModuleTable

    program = pteron.load(programs / "attention_cache.pte")
    (graph,) = program.graphs("forward")
    compiled = Compiled(prepare(graph), TARGETS["software"])
    executable = plan_ahead(compiled, [compiled.shapes_max])
    places = {weight: Place(0, 0, 0) for weight in used_weights(executable)}
    modules = ModuleTable()
    written = json.loads(json.dumps(ExecutableWriter(executable, places, modules).header("forward")))
    (plans,) = executable.plans.values()
    for plan, entry in zip(plans, written["plans"][0]["plans"], strict=True):
        assert len(entry["launches"]) == len(plan.launches)
        values = dict.fromkeys((source.symbol for source in executable.sources), 0)
        numbers = evaluate(plan.tape, values)
        for launch, number in zip(plan.launches, entry["launches"], strict=True):
            module, groups, buffers, block, _ = written["launches"][number]
            assert modules.entries[module][0] == launch.module.kernel.name
            assert tuple(groups) == launch.groups
            assert len(buffers) == len(launch.buffers)
            if launch.block is None:
                assert block == -1
                continue
            data, *live = written["blocks"][block]
            words = np.frombuffer(bytes.fromhex(data), np.uint32).copy()
            for word, (constant, *terms) in live:
                pairs = zip(terms[::2], terms[1::2], strict=True)
                words[word] = constant + sum(numbers[term] * factor for term, factor in pairs)
            assert words.tobytes() == plan.blocks[launch.block].fill(numbers)


def test_a_loop_knows_what_grows_and_where_states_end(programs: Path) -> None:
    from pteron.web.executable_json import ExecutableWriter, ModuleTable

    (graph,) = pteron.load(programs / "attention_cache.pte").graphs("forward")
    compiled = Compiled(prepare(graph), TARGETS["software"])
    executable = plan_ahead(compiled, [compiled.shapes_max])
    places = {weight: Place(0, 0, 0) for weight in used_weights(executable)}
    writer, growth = (
        ExecutableWriter(executable, places, ModuleTable()),
        {each.symbol: 1 for each in executable.sources},
    )
    (plans,) = executable.plans.values()
    for plan in plans:
        written, advance = writer.plan(plan, growth), Advance.of(plan, growth)
        live = [block for block in plan.blocks if block.live]
        assert advance is not None
        assert advance.words
        assert len(written["blocks"]) == len(live)
        assert written["growth"] == [
            [written["blocks"][index], offset // 4, by] for index, offset, by in advance.words
        ]
        writes = [
            index
            for index, launch in enumerate(plan.launches)
            for binding, buffer in zip(launch.module.bindings, launch.buffers, strict=True)
            if binding.access == "read_write" and isinstance(buffer, State)
        ]
        assert 0 < written["states"] == max(writes) + 1 < len(plan.launches)


def test_weights_of_variants_are_in_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that all use in one, those of one variant in another; each begins at a multiple of 16 bytes."""

    def weight(count: int) -> Weight:
        data = np.arange(count, dtype=np.float32)
        constant = Constant(f"{count}", DType.F32, (count,), memoryview(data.tobytes()))
        return plain_weight(constant, Storage.F32)

    monkeypatch.setattr(weights, "CHUNK", 16)
    both, first = [weight(1), weight(15)], weight(3)
    streams, places, needed = weights.write_weights(tmp_path, {"a": [both[0], first, both[1]], "b": both})
    assert needed == {"a": [0, 1], "b": [0]}
    assert [places[each] for each in (*both, first)] == [Place(0, 0, 4), Place(0, 16, 60), Place(1, 0, 12)]
    for each, place in places.items():
        stream = streams[place.stream]
        data = b"".join((tmp_path / chunk["file"]).read_bytes() for chunk in stream["chunks"])
        assert len(data) == stream["bytes"]
        assert data[place.offset : place.offset + place.length] == each.pack().tobytes()
        assert all(chunk["bytes"] <= 16 for chunk in stream["chunks"])


def test_what_an_adapter_must_have() -> None:
    empty = Collector(Target()).finish({}, {}, Trace({}), ())

    def needs(kernels: list[Kernel], *slots: int) -> Any:
        launches = [Launch(0, "op", compose(each), (), None, (1, 1, 1)) for each in kernels]
        plan = replace(empty, launches=tuple(launches))
        executable = Executable("x", TARGETS["subgroups"], (), (), (), slots, {}, plan)
        return Variant("subgroups", TARGETS["subgroups"], {"x": executable}).needs()

    plain, usual = needs([kernel("unary")], 1 << 27), {"software": False, "features": [], "language": []}
    assert plain == {**usual, "subgroupSize": 0, "limits": {}}
    large = (1 << 28) + 16
    assert needs([], 1 << 20, large)["limits"] == {
        "maxBufferSize": large, "maxStorageBufferBindingSize": large,
    }  # fmt: skip
    assert needs([], (1 << 27) + 16)["limits"] == {"maxStorageBufferBindingSize": (1 << 27) + 16}
    special = needs([kernel("softmax", BY_SUBGROUPS=True, LANES=32, ROWS=2), kernel("q8_tiled")])
    assert (special["features"], special["subgroupSize"]) == (["subgroups"], 32)
    assert special["language"] == ["packed_4x8_integer_dot_product"]
    assert special["limits"] == {"maxComputeWorkgroupStorageSize": 32768}
    assert list(chosen_targets(["software", "subgroups"])) == ["subgroups", "software"]
    assert list(chosen_targets("hardware")) == ["hardware"]


def test_kernels_are_written_as_browsers_take_them() -> None:
    """Those with subgroup operations enable them; wgpu takes the same text without it."""
    from pteron.web.executable_json import ModuleTable

    modules = ModuleTable()
    for each in (kernel("unary"), kernel("softmax", BY_SUBGROUPS=True, LANES=32, ROWS=2)):
        modules.number(compose(each))
    assert [entry[1].startswith("enable subgroups;") for entry in modules.entries] == [False, True]


def test_ranges_of_shapes() -> None:
    assert read_ranges("x=1-3x7, y=") == {"x": [range(1, 4), range(7, 8)], "y": []}
    for wrong in ("x", "=1", "x=-1", "x=1-", "x=1--2", "x=1x"):
        with pytest.raises(pteron.InputError):
            read_ranges(wrong)


def test_checks_have_inputs_that_the_graph_takes() -> None:
    """Indices below the rows of their table, small integers elsewhere, 0 for a live integer."""
    pytest.importorskip("torch")
    sketch = Sketch()
    ids, p, count = sketch.tensor(2, dtype=DType.I64), sketch.symbol(), sketch.tensor(2, dtype=DType.I64)
    x, rows, out = sketch.tensor(2, 5), sketch.tensor(2, 5), sketch.tensor(2, 5)
    doubled, start, end = sketch.tensor(2, dtype=DType.I64), sketch.tensor(11, 5), sketch.tensor(5)
    sketch.node("aten.embedding.default", sketch.constant(9, 5), ids, -1, False, False, rows)
    sketch.node("aten.add.Tensor", rows, x, 1, out)
    sketch.node("aten.add.Tensor", count, count, 1, doubled)
    sketch.node("aten.select_copy.int", start, 0, p, end)
    compiled = sketch.prepare([ids, p, count, x, start], [out, doubled, end])
    executable = plan_ahead(compiled, [compiled.shapes_max])
    (check,) = checks_of(compiled, executable)
    assert check.limits == (9, None, 8, 0, 0)
    assert check.values == {p.id: 0}
    assert {answer.operator for answer in check.answers} >= {"aten.embedding.default", "aten.add.Tensor"}


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(pteron.PteronError) as caught:
        export_web(*arguments, **options)
    return str(caught.value)


def test_what_cannot_be_exported(programs: Path, models: Path, tmp_path: Path) -> None:
    mlp = programs / "mlp_dynamic.pte"
    assert "run on the CPU, and a page has none of them: aten::" in refusal(
        programs / "attention_host.pte", tmp_path / "a"
    )
    computed = refusal(programs / "select_position_computed.pte", tmp_path / "a")
    assert "an integer is computed from input 1, by node" in computed
    assert "pass this one as an input of the method" in computed
    assert "variants can be subgroups-f16, subgroups" in refusal(mlp, tmp_path / "a", variants=["fast"])
    assert "there is no tensor y to plan for; there are input_0" in refusal(
        mlp, tmp_path / "a", shapes=[{"y": (1, 7)}]
    )
    assert "dim 0 is 99, expected at most 17" in refusal(mlp, tmp_path / "a", shapes=[{"input_0": (99, 7)}])
    assert "has no method 'backward'; it has forward" in refusal(mlp, tmp_path / "a", methods=["backward"])
    assert "context: only for language models" in refusal(mlp, tmp_path / "a", context=9)
    assert "lengths of prompts must have 1 and be at most 128" in refusal(
        "stories15m", tmp_path / "a", lengths=[4]
    )
    images = programs / "images.pte"
    assert "the page chat needs a language model" in refusal(mlp, tmp_path / "a", page="chat")
    assert (
        "the page vision needs a program whose only input is a float tensor [1, 3, height, width], not ("
        in (refusal(mlp, tmp_path / "a", page="vision"))
    )
    assert "the page sound is not for language models" in refusal("stories15m", tmp_path / "a", page="sound")
    assert "labels: the page generic does not show them" in refusal(mlp, tmp_path / "a", labels=["cat"])
    assert "labels: there are 2, and no output has as many scores; outputs have 5" in refusal(
        images, tmp_path / "a", labels=["cat", "dog"]
    )
    assert "labels: not for language models" in refusal("stories15m", tmp_path / "a", labels=["cat"])
    assert "give the smaller size first, 2-5" in refusal(mlp, tmp_path / "a", shapes="input_0=5-2x7")
    started = perf_counter()
    assert "dim 0 is 999999999, expected at most 17" in refusal(
        mlp, tmp_path / "a", shapes=["input_0=1-999999999x7"]
    )
    assert perf_counter() - started < 5
    assert "needs the programs encode and decode" in refusal(mlp, tmp_path / "a", page="sound")
    assert "give one at least" in refusal({}, tmp_path / "a")
    (tmp_path / "note.txt").write_text("mine")
    assert "is not empty and no site; name another folder" in refusal(mlp, tmp_path)
    assert "is a file" in refusal(mlp, tmp_path / "note.txt")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("own", ["inputs", "outputs"])
def test_a_delegate_has_all_inputs_and_outputs_of_its_method(
    own: str, programs: Path, tmp_path: Path
) -> None:
    """A page calls the delegate alone: what only the method has would be missing."""
    file = pteron.load(programs / "mlp.pte").file
    (method,) = file.methods
    changed: dict[str, Any] = {
        "inputs": {"inputs": ()},
        "outputs": {"outputs": (*method.outputs, *method.inputs)},
    }
    data = {key: StreamedData(len(view), partial(list, [view])) for key, view in file.named_data.items()}
    with (tmp_path / "other.pte").open("wb") as other:
        write_program(other, [replace(method, **changed[own])], data)
    assert "export it with all of it in one delegate" in refusal(tmp_path / "other.pte", tmp_path / "a")


def test_a_changed_page_and_other_files_are_kept(programs: Path, tmp_path: Path) -> None:
    """An export removes what the one before it wrote, and nothing else."""
    export_web("stories15m", tmp_path, variants=["software"], lengths=[1], check=False)
    for own in ("weights/mine.bin", "plans/mine.json", "mine.txt"):
        (tmp_path / own).write_text("mine")
    mlp = programs / "mlp.pte"
    again = export_web(mlp, tmp_path, variants=["software"])
    assert again.kept == ()
    assert not (tmp_path / "highlight.js").exists()  # the chat page's
    (tmp_path / "index.html").write_text("my page")
    index = index_of(tmp_path)
    index["variants"].append({"file": "../outside.json"})
    (tmp_path / "program.json").write_text(json.dumps(index))
    (tmp_path.parent / "outside.json").write_text("mine")
    script = (tmp_path / "main.js").read_bytes()
    for _ in range(2):
        site = export_web(programs / "images.pte", tmp_path, variants=["software"])
        assert site.kept == ("index.html",)
        assert "the page is kept, because it was changed (index.html); --force replaces it" in str(site)
        assert (tmp_path / "index.html").read_text() == "my page"
        assert (tmp_path / "main.js").read_bytes() == script
    assert export_web(mlp, tmp_path, variants=["software"], force=True).kept == ()
    assert "<html" in (tmp_path / "index.html").read_text()
    assert (tmp_path.parent / "outside.json").read_text() == "mine"
    others = {path.name for name in ("plans", "weights") for path in (tmp_path / name).iterdir()}
    index = index_of(tmp_path)
    chunks = [chunk for stream in index["streams"] for chunk in stream["chunks"]]
    named = {Path(each["file"]).name for each in (*index["variants"], *chunks)}
    assert others == named | {"mine.bin", "mine.json"}
    assert (tmp_path / "mine.txt").exists()


def test_the_index_has_the_types_of_the_program(programs: Path, tmp_path: Path) -> None:
    """As `print(method)` shows them, with steps."""
    file = programs / "image_steps.pte"
    export_web(file, tmp_path, shapes=[{"input_0": (1, 3, 8, 12)}], variants=["software"])
    stated = index_of(tmp_path)["methods"]["forward"]
    assert stated["inputs"][0]["planned"] == [[1, 3, 8, 12]]
    assert stated["inputs"][0]["type"] == "f32[1, 3, ≤40 by 4, ≤40 by 4]"
    assert stated["outputs"][0]["type"] == "f32[1, 2, ≤40 by 4, ≤40 by 4]"


def test_the_command(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site, labels = tmp_path / "site", tmp_path / "labels.txt"
    labels.write_text("cat\ndog\ncow\nhen\npig\n")
    pictures = ["export", "web", str(programs / "images.pte"), "-o", str(site), "--variant", "software"]
    assert main([*pictures, "--labels", str(labels)]) == 0
    assert index_of(site)["labels"] == ["cat", "dog", "cow", "hen", "pig"]
    assert index_of(site)["page"] == "vision"
    capsys.readouterr()
    given = ["export", "web", str(programs / "mlp_dynamic.pte"), "-o", str(site), "--variant", "software"]
    given += ["--shape", "input_0=1-3x7", "--name", "A small one"]
    assert main(given) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{site}: 0.")
    assert "it serves these shapes: input_0 [1, 7], [2, 7], [3, 7]; --shape plans for others" in out
    index = index_of(site)
    (spec,) = index["methods"]["forward"]["inputs"]
    assert spec["planned"] == [[1, 7], [2, 7], [3, 7]]
    assert index["methods"]["forward"]["states"] == 0
    assert "<title>A small one</title>" in (site / "index.html").read_text()
    assert index["name"] == "A small one"
    plans = json.loads((site / index["variants"][0]["file"]).read_bytes())["executables"]["forward"]["plans"]
    assert [plan["shapes"] for plan in plans] == [[[rows, 7]] for rows in (1, 2, 3)]
    with pytest.raises(SystemExit):
        main([*given, "--shape", "7"])
    assert "'7' is not NAME=SIZES" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*given, "--shape", "input_0=5-2x7"])
    assert "give the smaller size first" in capsys.readouterr().err
