"""Linear layers of 8-bit weights, as they stand in a model before it is exported."""

from __future__ import annotations

import pytest

from pteron.llm.export.quantize_model import quantize_8_bits

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")  # brings the operator that widens weights


def test_all_linear_layers_are_replaced_and_mean_nearly_the_same() -> None:
    torch.manual_seed(5)
    inner = torch.nn.Sequential(torch.nn.Linear(24, 12, bias=False), torch.nn.SiLU())
    model = torch.nn.Sequential(torch.nn.Linear(16, 24), inner)
    with torch.no_grad():
        inner[0].weight[3] = 0
        inputs = torch.randn(4, 5, 16)
        expected, largest = model(inputs), model[0].weight.abs().amax(1)
        kept = model[0].weight.clone()
        quantize_8_bits(model)
        assert not any(isinstance(module, torch.nn.Linear) for module in model.modules())
        error = (model[0].weight * model[0].scales[:, None] - kept).abs()
        assert (error <= largest[:, None] / 127 * 0.501).all()  # half a step
        assert model[0].weight.abs().amax(1).eq(127).all()
        found = model(inputs)
    assert not found[..., 3].any()
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0)
