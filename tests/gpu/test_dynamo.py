"""`torch.compile(backend="pteron")`: what is lowered, and when it is lowered again."""

# mypy: disable-error-code="misc, attr-defined"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest

import pteron
from pteron import InputError
from pteron.export import dynamo
from pteron.gpu import Device

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from small_modules import Counting, Small, Training, same  # noqa: E402
from torch import Tensor, nn  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.usefixtures("compiled_folder")]


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


@pytest.mark.long
def test_lowers_once_per_graph_weights_and_shapes(lowerings: list[object]) -> None:
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


@pytest.mark.long
def test_with_a_buffer_that_others_write(lowerings: list[object]) -> None:
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


def test_with_a_buffer_that_the_graph_writes(lowerings: list[object]) -> None:
    """It stays the module's; the others are constants."""

    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("factor", torch.tensor([3.0]))
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.calls.add_(1)
            return x * self.factor + self.calls

    module, x = Counted(), torch.randn(2)
    captured: list[dynamo.CapturedGraph] = []

    def backend(*arguments: Any) -> dynamo.CapturedGraph:
        captured.append(dynamo.backend(*arguments))
        return captured[-1]

    compiled = torch.compile(module, backend=backend)
    for calls in (1, 2, 3):
        same(compiled(x), x * 3 + calls)
        assert module.calls == calls
    assert len(lowerings) == 1
    (program,) = captured[0].programs
    assert len(program.program["forward"].inputs) == 2  # x and `calls`


def test_two_parts_of_one_tensor_run_in_eager_mode() -> None:
    """Neither of them is the memory that they share."""

    class Halves(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = x * 2
            return y[:2], y[2:]

    x = torch.randn(4, 3)
    with pytest.warns(UserWarning, match="eager mode: .* views of a tensor that is no output"):
        same(torch.compile(Halves(), backend=dynamo.backend)(x), Halves()(x))


def test_with_dynamic_shapes(lowerings: list[object]) -> None:
    """The second size makes the dim dynamic; it then has room for twice its size."""
    module = Small().eval()
    compiled = torch.compile(module, backend=dynamo.backend)
    for rows, count in ((5, 1), (6, 2), (16, 2), (17, 3)):
        x = torch.randn(rows, 2)
        same(compiled(x), x @ module.weight.detach())
        assert len(lowerings) == count, rows


@pytest.mark.long
def test_floats_with_dynamic_shapes(lowerings: list[object]) -> None:
    """With dynamic=True Dynamo passes floats, also those of norms, as tensors; here they are constants."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(7)

        def forward(self, x: Tensor, scale: float) -> Tensor:
            return self.norm(x) * scale

    module = Scaled()
    compiled = torch.compile(module, backend=dynamo.backend, dynamic=True, options={"fullgraph": True})
    with torch.no_grad():
        for rows, scale, programs in ((3, 0.3, 1), (5, 0.3, 1), (5, 0.7, 2), (3, 0.3, 2)):
            x = torch.randn(rows, 7)
            same(compiled(x, scale), module(x, scale))
            assert len(lowerings) == programs


@pytest.mark.long
def test_attention_with_a_fixed_bias(lowerings: list[object]) -> None:
    """Dynamo computes the number of patches as a power of a size; fusions leave it unused in a delegate that
    is called with it."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.linear = nn.Conv2d(1, 8, 4, 4), nn.Linear(8, 16)
            self.bias = nn.Parameter(torch.randn(2, 4, 4))

        def forward(self, x: Tensor) -> Tensor:
            x = self.patches(x).flatten(2).transpose(1, 2)
            batch, count, width = x.shape
            q, v = self.linear(x).reshape(batch, count, 2, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
            weights = (torch.einsum("bhid,bhjd->bhij", q, q) + self.bias).softmax(-1)
            return x + torch.einsum("bhij,bhjd->bihd", weights, v).reshape(batch, count, width)

    module = Attention().eval()
    compiled = torch.compile(module, backend=dynamo.backend, dynamic=True, options={"fullgraph": True})
    with torch.no_grad():
        for batch in (4, 7, 2):
            x = torch.randn(batch, 1, 8, 8)
            same(compiled(x), module(x))
    assert len(lowerings) == 1


def test_with_marked_dims(lowerings: list[object]) -> None:
    compiled = torch.compile(Sized(), backend=dynamo.backend)
    for rows in (4, 9, 20):
        x = torch.randn(rows, 3)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=20)
        same(compiled(x), x * 2 + rows)
    assert len(lowerings) == 1


class Sized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 + x.shape[0]


def test_refuses_what_was_captured_in_training() -> None:
    with torch.no_grad(), pytest.raises(InputError, match="call eval"):
        torch.compile(Training(), backend=dynamo.backend)(torch.randn(5, 3))


def test_refuses_gradients_before_lowering(lowerings: list[object]) -> None:
    with pytest.raises(InputError, match="only runs inference"):
        torch.compile(Sized(), backend=dynamo.backend)(torch.ones(2, 3, requires_grad=True))
    assert not lowerings


def test_warns_of_missing_gradients() -> None:
    compiled, x = torch.compile(Small(), backend=dynamo.backend), torch.ones(2, 2)
    with pytest.warns(UserWarning, match="the outputs have no gradient; call the module under torch.no_grad"):
        assert not compiled(x).requires_grad


@pytest.mark.long
@pytest.mark.parametrize("norm_first", [False, True])
def test_fused_encoder_layers(norm_first: bool) -> None:
    """PyTorch calls fused operators of encoder layers if no gradient is needed."""
    layer = nn.TransformerEncoderLayer(
        *(12, 2, 20),
        batch_first=True,
        norm_first=norm_first,
        activation="gelu" if norm_first else "relu",
        layer_norm_eps=0.1,
    )
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, is_hidden = torch.randn(2, 5, 12), torch.zeros(2, 5, dtype=torch.bool)
    is_hidden[1, 3:] = True
    compiled = torch.compile(module, backend=dynamo.backend)
    with torch.no_grad():
        same(compiled(x), module(x))
        same(compiled(x, src_key_padding_mask=is_hidden), module(x, src_key_padding_mask=is_hidden))


def test_fused_attention(lowerings: list[object]) -> None:
    module, x = nn.MultiheadAttention(12, 2, batch_first=True).eval(), torch.randn(2, 5, 12)
    compiled = torch.compile(module, backend=dynamo.backend)
    with torch.no_grad():
        same(compiled(x, x, x), module(x, x, x))
    assert len(lowerings) == 1


def test_options() -> None:
    x = torch.randn(3, 2)
    half = torch.compile(Small(), backend=dynamo.backend, options={"force_fp16": True})
    exact = x @ Small().weight.detach()
    same(half(x), exact, rtol=1e-2, atol=1e-2)
    if Device.open().target.shader_f16:  # rounded to f16
        assert not torch.allclose(half(x), exact, rtol=1e-6, atol=0)
    with pytest.raises(InputError, match="unknown options: fast"):
        dynamo.backend(None, (), options={"fast": True})
    with pytest.raises(InputError, match="products='bf16'"):
        dynamo.backend(None, (), options={"products": "bf16"})


def test_options_of_loading() -> None:
    graphs: list[dynamo.CapturedGraph] = []

    def backend(*arguments: Any, **options: Any) -> dynamo.CapturedGraph:
        graphs.append(dynamo.backend(*arguments, **options))
        return graphs[-1]

    module, x = Small(), torch.randn(3, 2)
    compiled = torch.compile(module, backend=backend, options={"products": "f16", "device": "0"})
    with torch.no_grad():
        same(compiled(x), module(x), rtol=1e-2, atol=1e-2)
    assert graphs[0].programs[0].program.precision.products == "f16"


@pytest.mark.long
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


def test_the_backend_is_known_by_name() -> None:
    """PyTorch looks its backends up among the entry points of installed packages."""
    (found,) = entry_points(group="torch_dynamo_backends", name="pteron")
    assert found.load() is dynamo.backend
