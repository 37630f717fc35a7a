"""Small architectures: those of docs/models.md through `pteron.compile`, those of docs/zoo.md as ExecuTorch's
own partitioners export them, and programs of a hub."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("executorch")

from hub_server import COMMIT, serve_only_hub
from zoo.measure import measure
from zoo.networks import MODELS
from zoo.result import StockResult
from zoo.stock import report
from zoo.stock.measure import measure as measure_stock
from zoo.stock.published import find_programs, measure_published
from zoo.stock.table import RECIPES

pytestmark = pytest.mark.export
PROGRAMS = Path(__file__).parents[1] / "fixtures" / "programs"
WHOLE = (
    "text_cnn",
    "gcn",
    "dcgan",
    "gat",
    "nbeats",
    "pointnet",
    "siren",
    "dlrm",
    "dlinear",
    "tcn",
    "stylegan2",
    "capsules",
)
FAST = ("real_esrgan_x4v3", "convolution_tails_lengths")


def _tail(name: str) -> pytest.MarkDecorator:
    """State, live sizes and integers are in the long tail; other recipes are measured by `scripts/zoo`."""
    recipe = RECIPES[name]
    is_long = recipe.is_stateful or recipe.shapes is not None or recipe.quantize is not None
    return pytest.mark.long if is_long else pytest.mark.heavy


@pytest.mark.long(every=12)
@pytest.mark.parametrize("name", WHOLE)
def test_whole_on_the_gpu(name: str) -> None:
    result = measure(name, MODELS[name])
    assert result.is_whole, result


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=_tail(name)) for name in RECIPES]
)
def test_stock_export(name: str) -> None:
    result = measure_stock(name, RECIPES[name])
    assert result.outcome == ("not exported" if RECIPES[name].fault else "right"), result


def test_published_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By owner and by name: files for GPUs, downloaded, run and compared with float64."""
    pytest.importorskip("huggingface_hub")
    content = (PROGRAMS / "mutable_buffer.pte").read_bytes()
    files = {"vulkan/counter.pte": content, "xnnpack/counter.pte": b"", "README.md": b""}
    models = {"me/counter": files, "me/Counter-WebGPU": {"a.pte": b"ET12"}, "you/b": {}}
    with serve_only_hub(models, tmp_path, monkeypatch) as hub:
        broken, counter = find_programs(["me"])
        assert (broken, counter) == (
            f"me/Counter-WebGPU@{COMMIT}:a.pte",
            f"me/counter@{COMMIT}:vulkan/counter.pte",
        )
        assert list(find_programs([f"me/counter@{COMMIT}"])) == [counter]
        result = measure_published(counter)
        assert (result.outcome, result.methods) == ("right", ["forward"]), result
        assert result.checked > 0
        assert result.launches > 0
        assert measure_published(broken).outcome == "refused"
    assert [path for _, path, _ in hub.requests if "xnnpack" in path] == []


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows by kind, ExecuTorch's own errors apart; a run without published programs keeps their section."""
    monkeypatch.setattr(report, "PAGE", tmp_path / "zoo.md")
    right = StockResult(
        "average", "right", gpu=3, delegates=1, error=1e-7, eager=1e-7, launches=2, operators=["a"]
    )
    failed = StockResult("recommender", "not exported", "Error: x | y", compiled="100% on the GPU")
    wrong = StockResult("gru", "wrong", gpu=1, host=1, delegates=1, left=[[1, "aten::copy_", ""]], error=1.0)
    published = [measure_published(str(PROGRAMS / "mutable_buffer.pte"))]
    results = {each.name: each for each in (right, failed, wrong)}
    report.write_page(results, RECIPES, "llvmpipe", published)
    first = report.PAGE.read_text()
    report.write_page(results, RECIPES, "llvmpipe", [])
    assert report.PAGE.read_text() == first
    assert "3 recipes, 2 with state: 1 right, 1 not exported, 1 wrong." in first
    assert "| `average` | Vulkan, state | 3 (1) | 100% | 1.0e-07 | 1.0e-07 | 2 | 0.0 |  |" in first
    assert "| **wrong**; host: 1 `aten::copy_` |" in first
    assert f"| `recommender` | Error: x \\| y | {RECIPES['recommender'].fault} | 100% on the GPU |" in first
    assert "mutable_buffer.pte` | `forward` |" in first
