"""`pteron.compile` of modules that cannot be one program: steps, complex numbers, loops."""

# mypy: disable-error-code="misc, attr-defined, untyped-decorator"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pteron
from pteron import InputError, LoweringError, ShapeError
from pteron.export import compiling

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from small_modules import same  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch._higher_order_ops import scan, while_loop  # noqa: E402
from torch.export import Dim  # noqa: E402
from torchao.quantization.granularity import PerGroup  # noqa: E402
from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.usefixtures("compiled_folder")]


@pytest.fixture(autouse=True)
def _forget_what_dynamo_captured() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@torch.library.custom_op("pteron_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Stepped(nn.Module):
    """A custom operator, a Fourier transform, singular values; a state; dynamic rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(10, 4)
        self.register_buffer("total", torch.zeros(6))
        self.register_buffer("table", torch.randn(6, 8))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.first(x).reshape(-1, 2, 4)
        self.total.add_(twice(x).sum(0))
        waves = torch.fft.rfft(hidden.flatten(1) + self.table[0]).abs()
        y = torch.cat([waves, waves.reshape(waves.shape[0], -1)], 1)
        values = torch.linalg.svdvals(self.table * x[0, 0])
        return {
            "y": self.second(y * 2).view(x.shape[0] * 2, 2),
            "total": self.total.clone(),
            "x": x,
            "values": values,
        }


def test_steps(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Stepped().eval()
    eager, example = copy.deepcopy(module), (torch.randn(5, 6),)
    shapes = ({0: Dim("rows", min=2, max=16)},)
    with pytest.warns(UserWarning, match=r"2 programs, and .*pteron_tests\.twice.*fullgraph=True"):
        compiled = pteron.compile(module, example, dynamic_shapes=shapes)
    text = str(compiled)
    assert "step 0   PyTorch: 1 pteron_tests.twice.default" in text
    assert "aten._fft_r2c.default: a program cannot hold tensors of torch.complex64" in text
    assert compiled.report.share > 0.5
    for rows in (2, 7, 16):
        x = torch.randn(6, rows).t()
        with torch.no_grad():
            expected = eager(x)
        found = compiled(x)
        same(found, expected)
        found["x"].zero_()  # memory of its own
        assert x.abs().sum() > 0
    compiled.reset()
    same(compiled(x)["total"], 2 * x.sum(0))
    with pytest.raises(LoweringError, match=r"cannot be saved: .*twice"):
        compiled.save(tmp_path / "stepped.pte")
    with pytest.raises(LoweringError, match="not one program"):
        _ = compiled.program
    with pytest.raises(LoweringError, match=r"(?s)cannot be one program.*twice.*_fft_r2c.*_linalg_svd"):
        pteron.compile(module, example, dynamic_shapes=shapes, fullgraph=True)
    with pytest.warns(UserWarning, match="PyTorch runs"):
        assert pteron.compile(module, example, dynamic_shapes=shapes).was_cached


def test_shapes_that_depend_on_values() -> None:
    class Selected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            rows = torch.nonzero(x[:, 0].relu()).squeeze(-1)
            return self.linear(x[rows]), torch.unique((x[:, 1] * 2).round()).exp()

    module, x = Selected().eval(), torch.randn(9, 6)
    with pytest.warns(UserWarning, match=r"aten\._unique2\.default"):
        compiled = pteron.compile(module, (x,))
    for inputs in (x, torch.rand(9, 6)):
        with torch.no_grad():
            same(compiled(inputs), module(inputs))


def test_a_position_that_leaves_its_table() -> None:
    """PyTorch runs the slice, without the checks that torch.export noted."""

    class Table(nn.Module):
        def forward(self, x: Tensor, rows: Tensor, position: Tensor) -> Tensor:
            first = position.item()
            torch._check(first >= 0)
            torch._check(first + x.shape[0] <= rows.shape[0])
            return x * rows.narrow(0, first, x.shape[0])

    example = torch.ones(4, 5), torch.randn(23, 5), torch.tensor(3)
    dynamic = ({0: Dim("rows", min=1, max=11)}, None, None)
    with pytest.warns(UserWarning, match=r"aten.slice.Tensor \(its shape depends on values\)"):
        compiled = pteron.compile(Table().eval(), example, dynamic_shapes=dynamic)
    x, rows, _ = example
    assert torch.equal(compiled(x, rows, torch.tensor(19)), rows[19:])
    for count, position in ((4, 20), (1, 23), (1, -1), (2, -5)):
        message = rf"Table, slice_\d+ aten.slice.Tensor: a slice at {position} to {position + count} leaves"
        with pytest.raises(ShapeError, match=message):
            compiled(x[:count], rows, torch.tensor(position))


def test_a_slice_to_a_position_beyond_its_dim_is_shorter() -> None:
    class First(nn.Module):
        def forward(self, x: Tensor, count: Tensor) -> Tensor:
            return x[:, : count.item()] * 2

    x = torch.randn(2, 8)
    with pytest.warns(UserWarning, match=r"aten.slice.Tensor \(its shape depends on values\)"):
        compiled = pteron.compile(First().eval(), (x, torch.tensor(3)))
    for count in (3, 8, 12, 0, -2, -9):
        assert torch.equal(compiled(x, torch.tensor(count)), x[:, :count] * 2)


def test_a_program_that_cannot_be_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bytes:
        try:
            raise ValueError("no place for an output\nmore")
        except ValueError as cause:
            raise RuntimeError from cause

    monkeypatch.setattr(compiling, "lower", fail)
    module, x = nn.Sequential(nn.ReLU(), nn.Sigmoid()), torch.randn(3, 5)
    with pytest.warns(UserWarning, match=r"aten\.relu\.default \(.*\(ValueError: no place for an output\)\)"):
        compiled = pteron.compile(module, (x,), use_cache=False)
    same(compiled(x), module(x))
    with pytest.raises(LoweringError, match="no place for an output"):
        pteron.compile(module, (x,), use_cache=False, fullgraph=True)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1


def test_branches_on_values() -> None:
    with pytest.raises(LoweringError, match=r"branches on the values of a tensor.*torch\.cond"):
        pteron.compile(Branching(), (torch.ones(3),), fullgraph=True)
    compiled = torch.compile(Branching(), backend="pteron")
    with torch.no_grad():
        same(
            [compiled(torch.ones(3)), compiled(-torch.ones(3))],
            [torch.full((3,), 2.0), torch.full((3,), -2.0)],
        )


def test_torch_compile_falls_back_to_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no trace")

    monkeypatch.setattr(torch.export, "export", fail)
    with torch.no_grad():
        compiled = torch.compile(nn.ReLU(), backend="pteron")
        with pytest.warns(UserWarning, match=r"runs in eager mode: torch\.export cannot trace .*no trace"):
            same(compiled(torch.ones(3)), torch.ones(3))
        torch._dynamo.reset()
        strict = torch.compile(nn.ReLU(), backend="pteron", options={"fullgraph": True})
        with pytest.raises(LoweringError, match="no trace"):
            strict(torch.ones(3))


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(twice(self.first(x)))


def test_torch_compile_in_steps() -> None:
    module, x = Doubled().eval(), torch.randn(3, 64)
    with torch.no_grad():
        compiled = torch.compile(module, backend="pteron")
        with pytest.warns(UserWarning, match=r"2 programs, and 1 operator that PyTorch runs: .*twice"):
            same(compiled(x), module(x))
        torch._dynamo.reset()
        strict = torch.compile(module, backend="pteron", options={"fullgraph": True})
        with pytest.raises(LoweringError, match=r"(?s)cannot be one program.*twice"):
            strict(x)


def test_programs_between_steps_have_quantized_layers() -> None:
    module, x = Doubled().eval(), torch.randn(3, 64)
    quantize_(module, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
    with pytest.warns(UserWarning, match="PyTorch runs"):
        compiled = pteron.compile(module, (x,))
    names = [name for uses in compiled.report.delegates for name in uses]
    assert names == ["et_vk.linear_q4gsw.default"] * 2
    with torch.no_grad():
        same(compiled(x), module(x))


class Rotated(nn.Module):
    """Rotary embedding with complex numbers, as Llama's and DeepSeek's reference code has it."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(16, 16)
        frequencies = 1 / (10000 ** (torch.arange(0, 8, 2).float() / 8))
        angles = torch.outer(torch.arange(32).float(), frequencies)
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x).view(*x.shape[:-1], 2, 8)
        pairs = torch.view_as_complex(query.float().reshape(*query.shape[:-1], -1, 2))
        table = self.table[: x.shape[1]].view(1, x.shape[1], 1, 4)
        y = torch.view_as_real(pairs * table).flatten(3).type_as(x)
        return (y @ y.transpose(-1, -2)).softmax(-1)


@pytest.mark.long
def test_complex_rotary_embedding_is_one_program() -> None:
    module = Rotated().eval()
    shapes = ({1: Dim("length", min=2, max=32)},)
    compiled = pteron.compile(module, (torch.randn(1, 7, 16),), dynamic_shapes=shapes, fullgraph=True)
    assert len(compiled.report.delegates) == 1
    for length in (2, 7, 32):
        x = torch.randn(1, length, 16)
        with torch.no_grad():
            same(compiled(x), module(x))


def test_complex_arithmetic() -> None:
    class Arithmetic(nn.Module):
        def forward(self, x: Tensor, z: Tensor) -> tuple[Any, ...]:
            w = torch.polar(x.abs() + 1, x)
            a = (w * z + 2 - w) / (z + (3 + 1j))
            b = torch.cat([a, w.conj()], -1)[..., 1:].transpose(0, 1)
            c = torch.fft.ifft(torch.fft.fft(b) * torch.exp(1j * b.real))
            halves = [half.real for half in w.chunk(2, -1)]
            return torch.view_as_real(a), b.abs(), c, (w @ z.t()).angle(), b.sum(0).imag, halves

    module, inputs = Arithmetic(), (torch.randn(3, 4), torch.randn(3, 4, dtype=torch.complex64))
    with pytest.warns(UserWarning, match="_fft_c2c"):
        compiled = pteron.compile(module, inputs)
    assert not any("mul" in reason.operator for reason in compiled.report.reasons)
    same(compiled(*inputs), module(*inputs))


class Scanned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, h: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            new = torch.tanh(self.linear(h) + x)
            return new, new * 2

        return scan(step, h, x)


def test_scan_is_a_loop_in_the_program() -> None:
    module, inputs = Scanned().eval(), (torch.randn(9, 6), torch.randn(6))
    compiled = pteron.compile(module, inputs, fullgraph=True)
    assert compiled.report.delegates[0]["aten.linear.default"] == 1
    with torch.no_grad():
        same(compiled(*inputs), module(*inputs))


def test_the_body_of_a_while_loop_is_a_program() -> None:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Any:
            def body(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                return i + 1, torch.tanh(self.linear(x))

            return while_loop(lambda i, x: i.sum() < 5, body, (torch.zeros(1, dtype=torch.int64), x * 2))

    module, x = Repeated().eval(), torch.randn(9, 6)
    with pytest.warns(UserWarning, match="3 programs, and 1 operator that PyTorch runs: while_loop"):
        compiled = pteron.compile(module, (x,))
    with torch.no_grad():
        same(compiled(x), module(x))


@pytest.mark.long
@pytest.mark.parametrize(
    ("layer", "steps", "nodes_max"),
    [
        (nn.LSTM(6, 8), 1000, 200),
        (nn.LSTM(6, 8, bidirectional=True, proj_size=3), 37, 600),
        (nn.GRU(6, 8, bias=False), 43, 250),
        (nn.RNN(6, 8), 5, 40),
    ],
)
def test_long_recurrences_are_not_unrolled(layer: nn.Module, steps: int, nodes_max: int) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Any:
            return self.layer(x)

    module, x = Layer().eval(), torch.randn(steps, 2, 6)
    compiled = pteron.compile(module, (x,), fullgraph=True)
    assert sum(uses.total() for uses in compiled.report.delegates) <= nodes_max
    with torch.no_grad():
        same(compiled(x), module(x))


class Counting(nn.Module):
    """Branches on values, which torch.export cannot trace."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        x = torch.relu(self.first(x))
        if x.sum() > 40:
            x = x * 2
        return {"y": self.last(x)}


def test_python_code_between_graphs() -> None:
    module = Counting()
    x = torch.rand(3, 8)
    with pytest.raises(LoweringError, match="branches on the values of a tensor"):
        pteron.compile(module, (x,), fullgraph=True)
    with pytest.warns(UserWarning, match="Counting: Python code with 2 graphs: Counting branches"):
        compiled = pteron.compile(module, (x,))
    assert module.training
    assert module.calls == 0
    assert compiled.report.share == 1.0
    assert len(compiled.report.delegates) == 2
    assert "Python code with 2 graphs" in str(compiled)
    for scale in (1, 100):
        found = compiled(x * scale)
        with torch.no_grad():
            same(found["y"], module(x * scale)["y"])
    assert module.calls == 4
    with pytest.raises(LoweringError, match="cannot be saved"):
        compiled.save("model.pte")
    with pytest.raises(LoweringError, match="cannot trace Counting"):
        pteron.compile(module, (x, x))


class Views(nn.Module):
    """Its buffers are parts of larger tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("tail", torch.arange(65.0)[1:])
        self.register_buffer("even", torch.arange(128.0)[::2])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.window + self.tail * self.even


def test_constants_that_are_views() -> None:
    module, x = Views(), torch.randn(2, 64)
    exported = torch.export.export(module, (x,))
    compiled = pteron.compile(exported, fullgraph=True)
    same(compiled(x), module(x))
    assert exported.state_dict["tail"].data_ptr() == module.tail.data_ptr()


class Complex(nn.Module):
    """Parts of different shapes and sizes, and writes through views."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = torch.complex(x, y)  # [1, 4] and [3, 1]
        w = x + torch.polar(y, y)
        doubled = z * 2
        torch.view_as_real(doubled).mul_(3)
        large = z * 1e25
        parts = (z.imag.sum(), w.imag, (x + 1j).imag.sum(), torch.view_as_real(doubled))
        return *parts, large.abs(), (large / large).real


def test_complex_parts() -> None:
    module, x, y = Complex(), torch.rand(1, 4) + 1, torch.rand(3, 1) + 1
    compiled = pteron.compile(module, (x, y), fullgraph=True)
    same(compiled(x, y), module(x, y))


class Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.tensor([2**40, 3]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        least = x.masked_fill(x < 0, torch.iinfo(torch.int64).max).min()
        return x + self.offsets, least, torch.linalg.cholesky(torch.eye(2) * x)


def test_integers_beyond_32_bits_and_checked_operators() -> None:
    module, x = Large(), torch.tensor([1, 2])
    with pytest.warns(UserWarning, match="linalg_cholesky_ex"):
        compiled = pteron.compile(module, (x,))
    same(compiled(x), module(x))
    assert "beyond 32 bits" in str(compiled)
    with pytest.raises(InputError, match=r"a tuple of all inputs: \(x,\)"):
        pteron.compile(module, x)
    with pytest.raises(InputError, match="not a function"):
        pteron.compile(lambda x: x, (x,))


class Overlapping(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2


def test_memory_that_inputs_share() -> None:
    compiled, x = pteron.compile(Overlapping(), (torch.ones(3), torch.ones(3))), torch.ones(3)
    with pytest.raises(InputError, match="writes to x, which shares memory with y"):
        compiled(x, x)
    same(torch.compile(Overlapping(), backend="pteron")(x, x.view(3)), torch.full((3,), 4.0))


def test_torch_compile_returns_views() -> None:
    def views(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.view(-1)
        z = x * 2
        first = z[0]
        torch._dynamo.graph_break()
        y.add_(1)
        first.add_(1)
        return x * 1, z

    x = torch.rand(2, 3)
    expected = views(x.clone())
    with torch.no_grad():
        same(torch.compile(views, backend="pteron")(x), expected)


class Labelled(nn.Module):
    def forward(self, x: Tensor) -> dict[str, object]:
        return {"kind": "text", "y": x * 2, "count": 3, "none": None}


def test_outputs_that_are_constants(tmp_path: Path) -> None:
    x = torch.ones(3)
    compiled = pteron.compile(Labelled(), (x,), fullgraph=True)
    compiled.save(tmp_path / "model.pte")
    for each in (compiled, pteron.CompiledModule.load(tmp_path / "model.pte")):
        found = each(x)
        same(found.pop("y"), x * 2)
        assert found == {"kind": "text", "count": 3, "none": None}


class Strided(nn.Module):
    """`as_strided` reads memory, whatever the order of dims."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = (x * 2).transpose(0, 1)
        return y.as_strided((2, 2), (1, 3)), y.as_strided((3,), (1,), 5), x.as_strided((2, 3), (2, 1), 1)


def test_as_strided_reads_memory() -> None:
    module, x = Strided(), torch.randn(3, 4)
    same(pteron.compile(module, (x,), fullgraph=True)(x), module(x))
    part = torch.randn(4, 3).t()
    with torch.no_grad(), pytest.warns(UserWarning, match="not contiguous"):
        same(torch.compile(module, backend="pteron")(part), module(part))
