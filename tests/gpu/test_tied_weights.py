"""Quantized weights that layers share, through `pteron.compile`."""

# mypy: disable-error-code="misc"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import pytest

import pteron

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from torch import Tensor, nn  # noqa: E402
from torchao.quantization.granularity import PerGroup  # noqa: E402
from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.usefixtures("compiled_folder")]


class Tied(nn.Module):
    """A layer that is used three times; vulkan's partitioner leaves cumsum to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.layer(self.layer(x)))
        return self.layer(torch.cumsum(y, 0))


@pytest.mark.long(every=2)
@pytest.mark.parametrize(("partitioner", "delegates"), [("pteron", 1), ("vulkan", 2)])
def test_four_bits(partitioner: str, delegates: int) -> None:
    torch.manual_seed(0)
    module = Tied().eval()
    quantize_(module, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
    x = torch.randn(5, 64)
    compiled = pteron.compile(module, (x,), partitioner=partitioner)
    graphs = compiled.program.graphs("forward")
    assert len(graphs) == delegates
    products = [node.name for graph in graphs for node in graph.nodes if "linear" in node.name]
    assert products == ["et_vk.linear_q4gsw.default"] * 3
    with torch.no_grad():
        expected = module(x)
    torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
