"""Calls of PyTorch are compiled whole: no operator stays on the host, and results are eager's."""

# mypy: disable-error-code="misc, attr-defined, name-defined"

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

import torch_calls  # noqa: E402

import pteron  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.long, pytest.mark.usefixtures("compiled_folder")]

# Whose result has a size that depends on values, or that no model calls.
ON_THE_HOST = {"bincount", "digamma", "gcd", "lgamma"}


class Calls(torch.nn.Module):
    def __init__(self, calls: torch_calls.Calls) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: _flat(call(*inputs[name])) for name, (call, _) in self.calls.items()}


@pytest.mark.parametrize("table", torch_calls.TABLES)
@pytest.mark.parametrize("part", range(2))
def test_calls(table: str, part: int) -> None:
    named = [name for name in torch_calls.TABLES[table] if name not in ON_THE_HOST]
    calls = {name: torch_calls.TABLES[table][name] for name in named[part::2]}
    inputs = {name: given for name, (_, given) in calls.items()}
    compiled = pteron.compile(Calls(calls), (inputs,))
    expected, found = Calls(calls)(inputs), compiled(inputs)
    differences = {}
    has_f16 = compiled.program.device.target.shader_f16
    for name in calls:
        # Without 16-bit floats, halves are computed and kept in 32 bits.
        tolerance = 2e-3 if name == "to_half" and not has_f16 else 1e-4
        try:
            torch.testing.assert_close(found[name], expected[name], rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            differences[name] = str(error)
    assert not differences
    assert compiled.program.file.metadata["host"] == []


def _flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]
