"""What depends on constants alone is computed when a module is compiled."""

# mypy: disable-error-code="misc"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import pytest

import pteron

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.usefixtures("compiled_folder")]


class Standardized(nn.Module):
    """A convolution whose weight is normalized in each call, as in NFNets, and a bias of two operators that
    return several tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.gain = nn.Parameter(torch.randn(6, 3, 3, 3)), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        weight = functional.batch_norm(
            self.weight.reshape(1, 6, -1), None, None, weight=self.gain, training=True, momentum=0.0
        )
        first, second = self.weight.flatten(1).max(1).values.chunk(2)
        return functional.conv2d(x, weight.reshape_as(self.weight), torch.cat([second, first]))


@pytest.mark.long
def test_operators_with_several_results() -> None:
    torch.manual_seed(0)
    module, x = Standardized().eval(), torch.randn(2, 3, 7, 7)
    compiled = pteron.compile(module, (x,))
    (operators,) = compiled.report.delegates
    assert list(operators) == ["aten.convolution.default"]
    assert not compiled.report.host
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)


def test_numbers_that_forward_makes() -> None:
    class Shifted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.tensor([1.0, 4.0, 9.0]).sqrt()

    compiled = pteron.compile(Shifted(), (torch.zeros(2, 3),))
    assert [list(operators) for operators in compiled.report.delegates] == [["aten.add.Tensor"]]
    torch.testing.assert_close(compiled(torch.ones(2, 3)), torch.tensor([[2.0, 3.0, 4.0]] * 2))


def test_epsilon_of_rms_norm() -> None:
    """The fusion of RMSNorm reads a number of the program while it is lowered."""

    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(12))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    torch.manual_seed(0)
    module, x = Normalized().eval(), torch.randn(2, 5, 12)
    compiled = pteron.compile(module, (x,))
    assert not compiled.report.host
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-6)
