"""`pteron.compile` and `torch.compile(backend="pteron")`: what they take, give, keep and refuse."""

# mypy: disable-error-code="misc, attr-defined"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import contextlib
import copy
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pteron
from pteron import CompiledModule, DtypeError, InputError, ShapeError

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from torch import Tensor, nn  # noqa: E402
from torch.export import Dim  # noqa: E402

from pteron.export import cache, compiling, dynamo  # noqa: E402

pytestmark = pytest.mark.export


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of these tests' own."""
    path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTERON_CACHE", str(path))
        yield path / "compiled"


@pytest.fixture
def lowerings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each program that is lowered from now on."""
    seen: list[object] = []
    lower = compiling.lower

    def counted(exported: Any, options: Any) -> bytes:
        seen.append(exported)
        return lower(exported, options)

    monkeypatch.setattr(compiling, "lower", counted)
    return seen


class Mixed(nn.Module):
    """Pytrees in and out, a keyword argument, a number, an operator for the host, views and constants."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(7, 5)
        self.register_buffer("table", torch.arange(5.0))

    def forward(self, pair: tuple[Tensor, Tensor], factor: int, *, more: dict[str, Tensor]) -> dict[str, Any]:
        x, y = pair
        hidden = self.linear(x) * factor + more["shift"]
        return {
            "sorted": torch.erf(hidden).sort(dim=-1).values,
            "pair": (hidden, y.view(-1)),
            "same": y,
            "table": self.table,
            "rows": x.shape[0],
            "nothing": None,
        }


@pytest.fixture(scope="module")
def mixed() -> tuple[nn.Module, CompiledModule]:
    torch.manual_seed(0)
    module = Mixed().eval()
    x, y = torch.randn(11, 7), torch.randn(2, 3)
    shapes: dict[str, Any] = {
        "pair": ({0: Dim("rows", min=1, max=13)}, {}),
        "factor": None,
        "more": {"shift": {}},
    }
    return module, pteron.compile(
        module, ((x, y), 3), {"more": {"shift": torch.randn(5)}}, dynamic_shapes=shapes
    )


def same(found: object, expected: object, **tolerance: float) -> None:
    torch.testing.assert_close(found, expected, **tolerance or {"rtol": 1e-4, "atol": 1e-5})


@pytest.mark.parametrize("rows", [1, 2, 7, 13])
def test_pytrees_at_live_shapes(mixed: tuple[nn.Module, CompiledModule], rows: int) -> None:
    module, compiled = mixed
    x, y, shift = torch.randn(rows, 7), torch.randn(2, 3), torch.randn(5)
    with torch.no_grad():
        expected = module((x, y), 3, more={"shift": shift})
    found = compiled((x, y), 3, more={"shift": shift})
    assert list(found) == list(expected)
    assert found["nothing"] is None
    same(
        {k: v for k, v in found.items() if v is not None},
        {k: v for k, v in expected.items() if v is not None},
    )
    assert isinstance(found["pair"], tuple)
    found["same"].zero_()  # memory of its own
    assert y.abs().sum() > 0


def test_other_layouts_and_numpy(mixed: tuple[nn.Module, CompiledModule]) -> None:
    module, compiled = mixed
    x, y, shift = torch.randn(7, 5).t()[1:], torch.randn(2, 6)[:, ::2], torch.randn(10)[::2]
    x = x[:, [0, 1, 2, 3, 4, 0, 1]].t().contiguous().t()
    with torch.no_grad():
        expected = module((x, y.contiguous()), 3, more={"shift": shift})
    same(compiled((x, y), 3, more={"shift": shift})["pair"], expected["pair"])
    arrays = compiled((x.numpy(), y.numpy()), 3, more={"shift": shift.numpy()})
    assert isinstance(arrays["pair"][0], Tensor)
    same(arrays["pair"], expected["pair"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": torch.zeros(14, 7)}, ShapeError, "pair_0: dim 0 of .* must be from 1 to 13"),
        ({"x": torch.zeros(4, 8)}, ShapeError, r"pair_0: dim 1 of \[4, 8\] must be 7"),
        ({"x": torch.zeros(7)}, ShapeError, "pair_0: expected"),
        (
            {"x": torch.zeros(4, 7, dtype=torch.float64)},
            DtypeError,
            "expected torch.float32, got torch.float64",
        ),
        ({"x": torch.zeros(4, 7, device="meta")}, InputError, "host memory"),
        ({"x": torch.zeros(4, 7, requires_grad=True)}, InputError, "only runs inference"),
        ({"x": 3.0}, InputError, "expected a tensor, got float"),
        ({"x": [torch.zeros(4, 7)]}, InputError, "does not look like the example"),
        ({"factor": 4}, InputError, "exported for the value 3"),
        ({"more": None}, InputError, "keyword arguments more; got none"),
    ],
)
def test_refused_calls(
    mixed: tuple[nn.Module, CompiledModule], change: dict[str, Any], error: type[Exception], message: str
) -> None:
    values = {"x": torch.zeros(4, 7), "factor": 3, "more": {"shift": torch.zeros(5)}} | change
    kwargs = {} if values["more"] is None else {"more": values["more"]}
    with pytest.raises(error, match=message):
        mixed[1]((values["x"], torch.zeros(2, 3)), values["factor"], **kwargs)


def test_gradients_are_no_matter_under_no_grad(mixed: tuple[nn.Module, CompiledModule]) -> None:
    x = torch.ones(4, 7, requires_grad=True)
    with torch.no_grad():
        found = mixed[1]((x, torch.zeros(2, 3)), 3, more={"shift": torch.zeros(5)})
    assert not found["pair"][0].requires_grad


def test_report_and_saving(mixed: tuple[nn.Module, CompiledModule], tmp_path: Path) -> None:
    _, compiled = mixed
    lines = str(compiled).splitlines()
    assert lines[0] == "<pteron.CompiledModule Mixed>"
    (host,) = (line for line in lines if "on the host" in line)
    assert "1 aten::erf.out" in host
    assert "1 aten::sort.values" in host
    assert any("    delegate" in line and "1 aten.linear.default" in line for line in lines), lines
    assert "made now" in lines[-1]
    assert str(compiled.cache_file) in lines[-1]
    compiled.save(tmp_path / "model.pte")
    assert (tmp_path / "model.pte").read_bytes() == compiled.cache_file.read_bytes()  # type: ignore[union-attr]
    assert pteron.load(tmp_path / "model.pte").methods == compiled.program.methods == ("forward",)


# The cache -----------------------------------------------------------------------------------------


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).view(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def test_cache_knows_content(folder: Path, lowerings: list[object]) -> None:
    module, x = Small(), torch.randn(5, 2)
    first = pteron.compile(module, (x,))
    again = pteron.compile(copy.deepcopy(module), (x + 1,))
    assert (first.was_cached, again.was_cached, len(lowerings)) == (False, True, 1)
    assert first.cache_file == again.cache_file
    assert first.cache_file is not None
    assert first.cache_file.parent == folder
    same(again(x), x @ module.weight.detach())

    damaged = bytearray(first.cache_file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    first.cache_file.write_bytes(damaged)
    with contextlib.closing(pteron.compile(module, (x,))) as anew:
        assert (anew.was_cached, len(lowerings)) == (False, 2)
        same(anew(x), x @ module.weight.detach())
    assert pteron.compile(module, (x,)).was_cached

    with torch.no_grad():
        module.weight.mul_(2)
    changed = pteron.compile(module, (x,))
    assert not changed.was_cached  # other weights
    same(changed(x), x @ module.weight.detach())
    half = pteron.compile(module, (x,), force_fp16=True)
    assert not half.was_cached  # other options
    assert half(x).dtype == torch.float32
    same(half(x), x @ module.weight.detach(), rtol=1e-2, atol=1e-2)
    assert not list(folder.glob("*.part"))


def test_without_a_place_for_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "file"))
    compiled = pteron.compile(Small(), (torch.ones(3, 2),))
    assert compiled.cache_file is None
    assert "in memory alone" in str(compiled)
    same(compiled(torch.ones(3, 2)), torch.ones(3, 2) @ Small().weight.detach())


def test_cache_forgets_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "BYTES_MAX", 250)
    kept = [cache.keep(f"key{index}", bytes([index]) * 100) for index in range(2)]
    for seconds, path in enumerate(kept):
        assert path is not None
        os.utime(path, (seconds, seconds))
    assert cache.find("key0") == kept[0]  # used after the other
    third = cache.keep("key2", b"x" * 100)
    assert (cache.find("key0"), cache.find("key1"), cache.find("key2")) == (kept[0], None, third)


# States and modes ----------------------------------------------------------------------------------


class Counting(nn.Module):
    """A cache that is written row by row, a running mean that host operators read, a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.full((4, 3), 0.5))
        self.register_buffer("mean", torch.ones(3), persistent=False)
        self.register_buffer("count", torch.tensor([0]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.rows.index_copy_(0, self.count, x)
        self.count.add_(1)
        self.mean.mul_(0.5).add_(x[0])
        x.add_(1)
        return self.rows, self.mean.erf() + x, self.count + 0


def test_states_live_on_and_inputs_are_written() -> None:
    module = Counting()
    compiled = pteron.compile(module, (torch.randn(1, 3),))
    assert module.count.item() == 0
    for _ in range(2):
        eager = copy.deepcopy(module)
        for _ in range(4):
            x = torch.randn(1, 3)
            given = x.clone()
            same(compiled(given), eager(x))
            same(given, x)
        compiled.reset()


class Training(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(x))


def test_training_mode() -> None:
    """`compile` takes what the module does in inference; what Dynamo captured in training is refused."""
    module, x = Training(), torch.randn(5, 3)
    compiled = pteron.compile(module, (x,))
    assert all(part.training for part in module.modules())
    with torch.no_grad():
        same(compiled(x), copy.deepcopy(module).eval()(x))
        with pytest.raises(InputError, match="call eval"):
            torch.compile(module, backend=dynamo.backend)(x)


def test_unbounded_dims_are_refused() -> None:
    with pytest.raises(InputError, match="no upper bound"):
        pteron.compile(Small(), (torch.ones(3, 2),), dynamic_shapes=({0: Dim("n")},))


def test_channels_last() -> None:
    class Pixels(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 2).contiguous(memory_format=torch.channels_last).flatten(1)

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    compiled = pteron.compile(Pixels(), (x,))
    same(compiled(x), (x * 2).flatten(1))
    same(compiled(x.contiguous()), (x * 2).flatten(1))


# torch.compile -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _forget_what_dynamo_captured() -> Iterator[None]:
    yield
    torch._dynamo.reset()


class Broken(nn.Module):
    """Two graphs, and a buffer that the first one writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        self.calls.add_(1)
        hidden = torch.relu(self.first(x)) * scale
        calls = self.calls * 2
        torch._dynamo.graph_break()
        return {"out": self.second(hidden), "calls": calls, "view": x.view(5, 3, 1)}


def test_dynamo_lowers_once_per_graph_weights_and_shapes(lowerings: list[object]) -> None:
    module = Broken().eval()
    eager, compiled = copy.deepcopy(module), torch.compile(module, backend=dynamo.backend, dynamic=False)

    def check(x: Tensor) -> None:
        with torch.no_grad():
            same(compiled(x), eager(x))
        same(module.calls, eager.calls)

    check(torch.randn(5, 3))
    made = len(lowerings)
    assert made == 2
    check(torch.randn(5, 3))
    check(torch.randn(3, 5).t())  # other strides: Dynamo captures again, and the lowered programs are found
    assert len(lowerings) == made
    for network in (module, eager):
        with torch.no_grad():
            network.second.bias.add_(1)
    check(torch.randn(5, 3))
    assert len(lowerings) == made + 1  # the graph of `second` alone
    module.load_state_dict(eager.state_dict())  # equal values, written again: found on disk
    check(torch.randn(5, 3))
    assert len(lowerings) == made + 1


def test_dynamo_with_a_buffer_that_others_write(lowerings: list[object]) -> None:
    """It is a constant twice, and then an input."""

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("offset", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return x * 3 + self.offset

    module = Shifted().eval()
    compiled, x = torch.compile(module, backend=dynamo.backend), torch.randn(2, 3)
    for count in (1, 2, 3, 3, 3):
        same(compiled(x), module(x))
        assert len(lowerings) == count
        module.offset.add_(1)


def test_dynamo_with_dynamic_shapes(lowerings: list[object]) -> None:
    """The second size makes the dim dynamic; it then has room for twice its size."""
    module = Small().eval()
    compiled = torch.compile(module, backend=dynamo.backend)
    for rows, count in ((5, 1), (6, 2), (7, 2), (16, 2), (17, 3), (33, 3)):
        x = torch.randn(rows, 2)
        same(compiled(x), x @ module.weight.detach())
        assert len(lowerings) == count, rows


def test_dynamo_with_marked_dims(lowerings: list[object]) -> None:
    compiled = torch.compile(Sized(), backend=dynamo.backend)
    for rows in (4, 9, 20):
        x = torch.randn(rows, 3)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=20)
        same(compiled(x), x * 2 + rows)
    assert len(lowerings) == 1


class Sized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 + x.shape[0]


def test_dynamo_refuses_gradients() -> None:
    with pytest.raises(InputError, match="only runs inference"):
        torch.compile(Sized(), backend=dynamo.backend)(torch.ones(2, 3, requires_grad=True))


def test_dynamo_options() -> None:
    x = torch.randn(3, 2)
    half = torch.compile(Small(), backend=dynamo.backend, options={"force_fp16": True})
    same(half(x), x @ Small().weight.detach(), rtol=1e-2, atol=1e-2)
    with pytest.raises(Exception, match="unknown options: fast"):
        torch.compile(Small(), backend=dynamo.backend, options={"fast": True})(x)


def test_threads(lowerings: list[object]) -> None:
    """Many first calls at once lower once; states see every call."""
    captured, examples = list[Callable[..., Any]](), list[Any]()

    def capture(graph_module: Any, example_inputs: Any) -> Any:
        captured.append(dynamo.backend(graph_module, example_inputs))
        examples.extend(example_inputs)
        return graph_module.forward

    module = Small()
    torch.compile(module, backend=capture)(torch.ones(7, 2))
    stateful = pteron.compile(Counting(), (torch.zeros(1, 3),))
    made, counts = len(lowerings), list[int]()
    failures = list[BaseException]()

    def work() -> None:
        try:
            x = torch.randn(7, 2)
            inputs = (given if isinstance(given, nn.Parameter) else x for given in examples)
            same(captured[0](*inputs)[0], x @ module.weight.detach())
            counts.append(int(stateful(torch.zeros(1, 3))[2]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(counts) == [1, 2, 3, 4]
    assert len(lowerings) == made + 1


def test_the_backend_is_known_by_name(tmp_path: Path) -> None:
    """As an installed package has it: from pyproject.toml's entry points, without importing Pteron."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    (group, names), *others = project["entry-points"].items()
    assert not others
    metadata = tmp_path / "named-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 1\n")
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in names.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    script = """
import sys
sys.path.append(sys.argv[1])
import torch
assert "pteron" not in sys.modules
torch.compile(lambda x: x * 2, backend="pteron")
print(torch._dynamo.lookup_backend("pteron").__module__)
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True)
    assert done.stdout.strip() == "pteron.export.dynamo", done.stderr


@pytest.mark.parametrize("kind", ["none", "bool", "float"])
def test_attention_is_written_out(kind: str) -> None:
    """Rows whose keys are all hidden are zero, as in PyTorch. The lowered operators are run as they are."""
    from pteron.export.attention import decompose_attention

    class Attend(nn.Module):
        def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x * 2, x + 1, attn_mask=mask)

    x, mask = torch.randn(2, 3, 5, 4), None
    if kind != "none":
        mask = torch.rand(2, 1, 5, 5) > 0.5
        mask[0, 0, 2] = False
        if kind == "float":
            mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    exported = decompose_attention(torch.export.export(Attend(), (x, mask)))
    assert "scaled_dot_product_attention" not in str(exported.graph)
    same(exported.module()(x, mask), Attend()(x, mask))
