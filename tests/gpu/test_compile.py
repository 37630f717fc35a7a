"""`pteron.compile`: what it takes, gives and refuses."""

# mypy: disable-error-code="misc, attr-defined"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import CompiledModule, DtypeError, InputError, LoweringError, ShapeError
from pteron.runtime.loaded_method import Precision
from pteron.tools.inspect import inspect
from pteron.tools.inspect.report import inspect_lines

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from small_modules import Counting, Small, Training, same  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.export import Dim  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.usefixtures("compiled_folder")]


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
def mixed(compiled_folder: Path) -> tuple[nn.Module, CompiledModule]:
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


@pytest.mark.long(every=4)
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
        ({"x": torch.zeros(14, 7)}, ShapeError, r"pair_0: dim 0 \(rows\) of .* must be from 1 to 13"),
        ({"x": torch.zeros(4, 8)}, ShapeError, r"pair_0: dim 1 of \[4, 8\] must be 7"),
        ({"x": torch.zeros(7)}, ShapeError, "pair_0: expected"),
        (
            {"x": torch.zeros(4, 7, dtype=torch.float64)},
            DtypeError,
            "expected torch.float32, got torch.float64",
        ),
        ({"x": torch.zeros(4, 7, device="meta")}, InputError, "expected a CPU tensor, got one on meta"),
        ({"x": torch.zeros(4, 7, requires_grad=True)}, InputError, "only runs inference"),
        ({"x": 3.0}, InputError, "expected a tensor, got float; pass a tensor or a NumPy array"),
        ({"x": np.zeros((4, 7), ">f4")}, DtypeError, "pair_0: PyTorch has no tensors of >f4"),
        ({"x": np.zeros((4, 7), object)}, DtypeError, "pair_0: PyTorch has no tensors of object"),
        ({"x": [torch.zeros(4, 7)]}, InputError, "differs from the example"),
        ({"factor": 4}, InputError, "factor: the module was compiled for 3, got 4"),
        ({"factor": 3.0}, InputError, "factor: the module was compiled for 3, got 3.0"),
        ({"more": None}, InputError, "missing: more"),
    ],
)
def test_refused_calls(
    mixed: tuple[nn.Module, CompiledModule], change: dict[str, Any], error: type[Exception], message: str
) -> None:
    values = {"x": torch.zeros(4, 7), "factor": 3, "more": {"shift": torch.zeros(5)}} | change
    kwargs = {} if values["more"] is None else {"more": values["more"]}
    with pytest.raises(error, match=message):
        mixed[1]((values["x"], torch.zeros(2, 3)), values["factor"], **kwargs)


def test_values_that_are_no_tensors_are_compared() -> None:
    """Strings, None and NaN stand in no input of the program, or are never equal to themselves."""

    class Chosen(nn.Module):
        def forward(self, x: Tensor, mode: str, factor: float | None, fill: float) -> Tensor:
            x = x * 2 if mode == "twice" else x * 3
            return (x if factor is None else x * factor).masked_fill(x < 0, fill)

    x = torch.tensor([1.0, -2.0, 3.0])
    compiled = pteron.compile(Chosen(), (x, "twice", None, math.nan))
    found = compiled(x, "twice", None, math.nan)
    assert torch.equal(found.nan_to_num(-1), torch.tensor([2.0, -1.0, 6.0]))
    with pytest.raises(InputError, match="mode: the module was compiled for 'twice', got 'thrice'"):
        compiled(x, "thrice", None, math.nan)
    with pytest.raises(InputError, match=r"factor: .* for None, got 5\.0"):
        compiled(x, "twice", 5.0, math.nan)
    with pytest.raises(InputError, match=r"fill: .* for nan, got 0\.0"):
        compiled(x, "twice", None, 0.0)


def test_report_and_saving(mixed: tuple[nn.Module, CompiledModule], tmp_path: Path) -> None:
    _, compiled = mixed
    lines = str(compiled).splitlines()
    assert lines[0] == "<pteron.CompiledModule Mixed>"
    assert "  on the host  0 operators, 0%" in lines
    assert any("    delegate" in line and "1 aten.linear.default" in line for line in lines), lines
    assert "lowered now" in lines[-1]
    assert str(compiled.cache_file) in lines[-1]
    compiled.save(tmp_path / "model.pte")
    assert (tmp_path / "model.pte").read_bytes() == compiled.cache_file.read_bytes()  # type: ignore[union-attr]
    assert pteron.load(tmp_path / "model.pte").methods == compiled.program.methods == ("forward",)


@pytest.mark.long
@pytest.mark.parametrize("partitioner", ["vulkan", "webgpu"])
def test_partitioners_of_executorch(partitioner: str, compiled_folder: Path) -> None:
    torch.manual_seed(0)
    module, x = Mixed().eval(), torch.randn(11, 7)
    args, kwargs = ((x, torch.randn(2, 3)), 3), {"more": {"shift": torch.randn(5)}}
    compiled = pteron.compile(module, args, kwargs, partitioner=partitioner)
    with torch.no_grad():
        same(compiled(*args, **kwargs)["sorted"], module(*args, **kwargs)["sorted"])
    text = str(compiled)
    assert "on the host  2 operators" in text
    assert f"1 aten.erf.default: {partitioner} partitioner: no operator implementation" in text
    report = compiled.report
    assert (report.partitioner, report.host["aten::erf.out"], report.share) == (partitioner, 1, 0.75)
    shown = "\n".join(inspect_lines(inspect(compiled.cache_file)))  # type: ignore[arg-type]
    assert "made for    ExecuTorch's Vulkan and WebGPU runtimes, and Pteron" in shown
    assert all(str(reason) in shown for reason in report.reasons)


class Spread(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1].expand(-1, 3) * x


@pytest.mark.usefixtures("without_patterns")
def test_what_executorch_cannot_resize() -> None:
    """Its runtime runs an expansion of static shapes only; one of dynamic shapes stays on the host."""
    options: dict[str, Any] = {"partitioner": "vulkan", "use_cache": False}
    x = torch.randn(4, 3)
    assert pteron.compile(Spread(), (x,), **options).report.share == 1.0
    compiled = pteron.compile(Spread(), (x,), dynamic_shapes=({0: Dim("rows", max=7)},), **options)
    reason = "1 aten.expand_copy.default: vulkan partitioner: no dynamic shape support"
    assert [str(each) for each in compiled.report.reasons] == [reason]
    assert str(compiled.report).endswith(f": 1 aten::expand_copy.out\n    {reason}")
    for rows in (7, 1):
        x = torch.randn(rows, 3)
        same(compiled(x), Spread()(x))


def test_a_partitioner_that_does_not_exist() -> None:
    with pytest.raises(InputError, match="partitioner='metal': expected one of pteron, vulkan, webgpu"):
        pteron.compile(nn.ReLU(), (torch.randn(3),), partitioner="metal")


def test_precision(tmp_path: Path) -> None:
    module, x = nn.Linear(7, 5), torch.randn(3, 7)
    with pytest.raises(InputError, match="products='bf16': products can be f32 or f16"):
        pteron.compile(module, (x,), products="bf16")
    rough = Precision(digits=2, products="f16")
    compiled = pteron.compile(module, (x,), digits=2, products="f16")
    assert compiled.program.precision == rough
    compiled.save(tmp_path / "linear.pte")
    assert CompiledModule.load(tmp_path / "linear.pte").program.precision == Precision()
    again = CompiledModule.load(tmp_path / "linear.pte", digits=2, products="f16")
    assert again.program.precision == rough


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


def test_training_mode() -> None:
    """The module is compiled as it works in inference, and stays as it is."""
    inner, x = Training(), torch.randn(5, 3)
    inner.norm.eval()  # frozen, as in fine-tuning
    module = nn.Sequential(inner)
    compiled = pteron.compile(module, (x,))
    assert [part.training for part in (module, inner, inner.norm, inner.drop)] == [True, True, False, True]
    with torch.no_grad():
        same(compiled(x), copy.deepcopy(module).eval()(x))


def test_gradients_are_refused() -> None:
    from torch.export.experimental import _export_forward_backward

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x).sum()

    joint = _export_forward_backward(torch.export.export(Loss(), (torch.randn(5, 3),)))
    with pytest.raises(InputError, match=r"returns gradients; pteron\.compile takes the forward program"):
        pteron.compile(joint)


def test_the_sign_of_zero() -> None:
    """Numbers that Python calls equal are constants of their own."""

    class Signed(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return x / 0.0, x / -0.0

    x = torch.tensor([1.0, -2.0])
    same(pteron.compile(Signed(), (x,))(x), Signed()(x))


def test_arrays_are_written_or_refused() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.mul_(2)
            return x + 1

    compiled = pteron.compile(Doubled(), (torch.ones(3),))
    for array in (np.ones(3, np.float32), np.ones(6, np.float32)[::-2]):
        same(compiled(array), torch.full((3,), 3.0))
        assert array.tolist() == [2.0, 2.0, 2.0]
    array.flags.writeable = False
    with pytest.raises(InputError, match="x: the module writes to it, but it is read-only"):
        compiled(array)


def test_batch_norm_without_running_statistics() -> None:
    """Inference takes each batch's own statistics, as PyTorch does."""
    module = nn.BatchNorm2d(3, track_running_stats=False).eval()
    x = torch.randn(2, 3, 4, 5) * 3 + 1
    with torch.no_grad():
        same(pteron.compile(module, (x,))(x), module(x))


def test_bf16_becomes_f32() -> None:
    class Widened(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to(torch.float32) * 2

    x = torch.randn(3, 5).bfloat16()
    same(pteron.compile(Widened(), (x,))(x), x.float() * 2)


@pytest.mark.long
@pytest.mark.parametrize("is_decomposed", [False, True])
def test_an_exported_program_stays_as_it_is(is_decomposed: bool) -> None:
    """Also one that writes to buffers and inputs, and one that returns a constant."""
    x = torch.randn(1, 3)
    for module in (Counting(), Constant()):
        exported = torch.export.export(module, (x,))
        if is_decomposed:
            exported = exported.run_decompositions({})
        graph, state = str(exported.graph), list(exported.state_dict)
        compiled = pteron.compile(exported)
        assert (str(exported.graph), list(exported.state_dict)) == (graph, state)
        for _ in range(2):
            given, expected = x.clone(), x.clone()
            same(compiled(given), module(expected))
            same(given, expected)
    with pytest.raises(InputError, match="pass no others"):
        pteron.compile(exported, (x,))


@pytest.mark.parametrize("is_decomposed", [False, True])
def test_a_program_exported_with_a_view(is_decomposed: bool) -> None:
    """PyTorch has symbols for the sizes of the tensor behind the view."""
    module, image = nn.Linear(7, 5), torch.randn(17, 7)
    exported = torch.export.export(module, (image[None],))
    exported = exported.run_decompositions({}) if is_decomposed else exported
    same(pteron.compile(exported)(image[None]), module(image[None]).detach())


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, self.table


def test_unbounded_dims_are_refused() -> None:
    with pytest.raises(InputError, match="dynamic dim n has no maximum"):
        pteron.compile(Small(), (torch.ones(3, 2),), dynamic_shapes=({0: Dim("n")},))


@pytest.mark.long(every=2)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_upsampling_with_dynamic_dims(mode: str) -> None:
    """ExecuTorch's own runtime does not resize it, nor group norm; Pteron does, so the GPU runs all."""

    class Upsampled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(2, 4)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.interpolate(self.norm(x), scale_factor=2.0, mode=mode)

    module = Upsampled()
    shapes = ({0: Dim("batch", max=3), 2: Dim("height", max=7)},)
    compiled = pteron.compile(module, (torch.randn(2, 4, 5, 3),), dynamic_shapes=shapes)
    assert "on the host  0 operators" in str(compiled)
    for batch, height in ((1, 2), (2, 5), (3, 7)):
        x = torch.randn(batch, 4, height, 3)
        with torch.no_grad():
            same(compiled(x), module(x))


class Between(nn.Module):
    """A host operator between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(64, 8, 3, padding=1)
        self.second = nn.Conv1d(8, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.digamma(self.first(x).sigmoid() + 1))


CONVOLUTIONS = {
    "host between": (Between, (1, 64, 20), {2: (3, 997)}),
    "batch": (lambda: nn.Conv2d(3, 8, 3), (4, 3, 9, 9), {0: (1, 16)}),
    "length": (lambda: nn.Conv1d(64, 8, 3, padding=1), (1, 64, 20), {2: (3, 997)}),
    "height": (lambda: nn.Conv2d(16, 4, 3, padding=1, stride=2), (1, 16, 8, 64), {2: (3, 47)}),
    "transposed": (lambda: nn.ConvTranspose2d(16, 4, 2, 2), (1, 16, 5, 64), {2: (1, 47)}),
}


@pytest.mark.long(every=6)
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions_with_a_dynamic_dim(kind: str) -> None:
    """PyTorch's choice of a kernel depends on sizes, but does not restrict the program to those."""
    make, shape, dynamic = CONVOLUTIONS[kind]
    module = make().eval()
    ((dim, (least, most)),) = dynamic.items()
    shapes = ({dim: Dim("size", min=least, max=most)},)
    compiled = pteron.compile(module, (torch.randn(shape),), dynamic_shapes=shapes, fullgraph=True)
    assert len(compiled.report.delegates) == 1 + compiled.report.host.total()
    for size in (least, 7, most):
        x = torch.randn(*shape[:dim], size, *shape[dim + 1 :])
        with torch.no_grad():
            same(compiled(x), module(x))


def test_uninitialised_numbers() -> None:
    """They are zeros: a delegate refuses integers beyond 32 bits."""

    class Inverse(nn.Module):
        def forward(self, order: Tensor) -> tuple[Tensor, Tensor]:
            inverse = torch.empty_like(order.T.long())
            return inverse * 0, inverse.T.clone() * 0

    order = torch.zeros(5, 3)
    compiled = pteron.compile(
        Inverse(), (order,), dynamic_shapes=({0: Dim("n", min=2, max=11)},), fullgraph=True
    )
    assert not compiled.report.host
    same(compiled(order[:2]), (torch.zeros(3, 2, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long)))


def test_channels_last() -> None:
    class Pixels(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 2).contiguous(memory_format=torch.channels_last).flatten(1)

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    compiled = pteron.compile(Pixels(), (x,))
    same(compiled(x), (x * 2).flatten(1))
    same(compiled(x.contiguous()), (x * 2).flatten(1))


@pytest.mark.long(every=2)
@pytest.mark.parametrize("kind", ["none", "bool", "float"])
def test_attention_is_written_out(kind: str) -> None:
    """Rows whose keys are all hidden are zero, as in PyTorch. The lowered operators are run as they are."""
    from pteron.export.graph_passes import decompose

    class Attend(nn.Module):
        def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x * 2, x + 1, attn_mask=mask)

    x, mask = torch.randn(2, 3, 5, 4), None
    if kind != "none":
        mask = torch.rand(2, 1, 5, 5) > 0.5
        mask[0, 0, 2] = False
        if kind == "float":
            mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    exported = decompose(torch.export.export(Attend(), (x, mask)))
    assert "scaled_dot_product_attention" not in str(exported.graph)
    same(exported.module()(x, mask), Attend()(x, mask))


def test_refusals_of_torch_export_are_wrapped() -> None:
    shapes = ({0: Dim("batch", max=8)},)
    with pytest.raises(LoweringError, match=r"(?s)refuses .* of Fixed: .*batch = 4$"):
        pteron.compile(Fixed(), (torch.randn(4, 3),), dynamic_shapes=shapes)


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(4, 3) * 2


@pytest.mark.parametrize("operator", [torch.lgamma, torch.linalg.svdvals])
def test_a_module_that_runs_on_the_host_alone(operator: Any) -> None:
    """As a host operator of a program, and between programs. One on the GPU is enough to be quiet."""

    class Host(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return operator(x)

    with pytest.warns(
        UserWarning, match=r"Host: nothing runs on the GPU. On the host: 1 aten.*: Pteron has no"
    ):
        pteron.compile(Host(), (torch.rand(3, 3),))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pteron.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), (torch.rand(3, 3),))
