"""States of compiled modules: each call sees what the one before left, in every sequence, compiled and saved,
also where ExecuTorch's own exporter stores a wrong program."""

# mypy: disable-error-code="misc, attr-defined"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pteron
from pteron import CompiledModule, InputError, LoweringError

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from small_modules import same  # noqa: E402
from torch import Tensor, nn  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.usefixtures("compiled_folder")]

FIRST = {
    **dict.fromkeys(("late", "norm", "crossing"), (1, 4)),
    **dict.fromkeys(("a", "b", "left", "right", "one", "other", "shown"), (4,)),
}


class States(nn.Module):
    """What programs of ExecuTorch's partitioner have wrong: an old value that is read after the new one is
    computed, values that are exchanged, a layer norm's result, a buffer that two delegates read. Then one new
    value of two buffers, one that the module returns, a flag, a counter, one that the host reads and one that
    only the host changes."""

    def __init__(self) -> None:
        super().__init__()
        for seed, (name, shape) in enumerate(FIRST.items()):
            values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
            self.register_buffer(name, values)
        self.register_buffer("count", torch.tensor(40))
        self.register_buffer("was_low", torch.tensor([True]))
        self.register_buffer("hosted", torch.full((4,), 0.25))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        made = {}
        new = 0.5 * self.late + x
        made["late"] = new - self.late
        self.late.copy_(new)
        a, b = self.b * 1.5, self.a + x[0]
        self.a.copy_(a)
        self.b.copy_(b)
        made["rotated"] = a - b
        left = self.left.clone()
        self.left.copy_(self.right)
        self.right.copy_(left)
        made["exchanged"] = self.left - 2 * self.right
        self.norm.copy_(nn.functional.layer_norm(self.norm + x, (4,)))
        made["norm"] = self.norm * 2
        one = self.one * 0.5 + self.other
        self.one.copy_(one)
        self.other.copy_(one)
        made["one"] = self.one + self.other
        self.shown.mul_(0.5).add_(x[0])
        made["shown"] = self.shown
        self.count.add_(3)
        made["count"] = self.count * 2
        made["was_low"] = torch.where(self.was_low, x, -x)
        self.was_low.copy_(x.amax(1) < 0)
        made["crossing"] = torch.digamma((self.crossing + x).sigmoid() + 1) + self.crossing
        self.crossing.copy_(made["crossing"] / 3)
        self.hosted.copy_(torch.digamma(self.hosted + 2))
        made["hosted"] = self.hosted + x
        return made


def inputs(count: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, 4, generator=generator) for _ in range(count)]


@pytest.fixture(scope="module")
def compiled() -> CompiledModule:
    return pteron.compile(States(), (torch.randn(1, 4),))


def check(calls: Any, eager: nn.Module, given: list[Tensor]) -> None:
    for x in given:
        same(calls(x), eager(x))


def test_every_call_sees_the_states_of_the_one_before(compiled: CompiledModule) -> None:
    assert set(compiled.report.host) == {"aten::digamma.out"}
    assert len(compiled.report.delegates) > 1
    for seed in range(2):
        check(compiled, States(), inputs(4, seed))
        compiled.reset()


def test_two_streams_are_two_sequences(compiled: CompiledModule) -> None:
    with compiled.sequence() as other:
        eager, of_other = States(), States()
        for x in inputs(3, 3):
            check(compiled, eager, [x])
            check(other, of_other, [-x])
        other.reset()
        check(other, States(), inputs(2, 4))
    check(compiled, eager, inputs(1, 5))
    compiled.reset()


def test_saved_states_stay_on_the_gpu(compiled: CompiledModule, tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    compiled.save(path)
    check(CompiledModule.load(path), States(), inputs(3, 6))
    with pteron.load(path) as program, program.sequence() as sequence:
        assert [spec.name for spec in program.forward.inputs] == ["x"]
        assert (
            program.forward.state_bytes >= 4 * 4 * 6
        )  # the others are used by several delegates or the host
        for method in (program.forward, sequence["forward"]):
            eager = States()
            for x in inputs(3, 7):
                found = dict(zip((spec.name for spec in method.outputs), method(x), strict=True))
                same({name.removeprefix("output_"): value for name, value in found.items()}, eager(x))
            method.reset()


def test_explicit_states_are_inputs_and_outputs(compiled: CompiledModule, tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    compiled.save(path)
    with pytest.raises(InputError, match='expected "kept" or "explicit"'):
        pteron.load(path, state="none")
    eager = States()
    with pteron.load(path, state="explicit") as program:
        method = program.forward
        names = [spec.name for spec in method.inputs]
        assert sorted(names) == sorted([*(f"state.{name}" for name in eager.state_dict()), "x"])
        (x,) = inputs(1, 8)
        states = [eager.state_dict()[name.removeprefix("state.")].clone() for name in names[:-1]]
        found = method(*states, x)
        eager(x)
        for name, value in zip(names[:-1], found, strict=False):
            same(value, eager.state_dict()[name.removeprefix("state.")])


def test_sequences_of_other_compiled_modules() -> None:
    """Of programs with PyTorch between them, and of Python code, which has the module's own buffers."""

    class Spectrum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(5))

        def forward(self, x: Tensor) -> Tensor:
            self.mean.mul_(0.5).add_(torch.fft.rfft(x).abs())
            return self.mean * 2

    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if x.sum() > 0 else x - 1

    x, y = torch.randn(8), torch.randn(8)
    with pytest.warns(UserWarning, match="PyTorch runs"):
        stepped = pteron.compile(Spectrum(), (x,))
    first, second = Spectrum(), Spectrum()
    with stepped.sequence() as other:
        for _ in range(2):
            check(stepped, first, [x, y])
            check(other, second, [y])
    check(stepped, first, [y])
    with pytest.warns(UserWarning, match="Python code"):
        captured = pteron.compile(Branching(), (x,))
    with pytest.raises(LoweringError, match="is one sequence"):
        captured.sequence()
