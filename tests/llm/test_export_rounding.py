"""Rounding to 4 and 8 bits: near the least possible error, and better with known inputs of a matrix."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from families import VOCABULARY, write_folder

from pteron.llm.export import read_checkpoint
from pteron.llm.export.checkpoint import EMBEDDING, OUTPUT, Vocabulary, executorch_parameters
from pteron.llm.export.decoder import Decoder
from pteron.llm.export.quantize_model import (
    TEXT_TOKENS,
    QuantizedMatrix,
    calibration_texts,
    choose_scales,
    quantize_8_bits,
    quantize_gptq,
    quantize_model_gptq,
    quantize_nearest,
    to_integers,
)

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")

GROUP = 8
STORIES = Path(__file__).parents[2] / "src/pteron/models/stories15m/tokenizer.bin"


@pytest.fixture
def random() -> Any:
    return torch.Generator().manual_seed(3)


def by_extremes(weight: Any, group: int) -> QuantizedMatrix:
    """The largest weight of each group becomes 7.5, as in ExecuTorch's plain quantiser."""
    groups = weight.unflatten(1, (-1, group))
    scales = groups.abs().amax(-1, keepdim=True) / 7.5
    return QuantizedMatrix(to_integers(groups, scales).flatten(1).to(torch.int8), scales.squeeze(-1))


def loss(weight: Any, rounded: QuantizedMatrix, inputs: Any) -> float:
    """The squared error of the matrix's results."""
    return float((inputs @ (weight - rounded.weight()).T).square().sum())


def test_scales_leave_hardly_more_than_the_least_error(random: Any) -> None:
    """Compared with every scale of a fine grid; the importance differs between columns."""
    groups = torch.randn(40, GROUP, generator=random)
    importance = torch.rand(GROUP, generator=random) + 0.1

    def error(scale: Any) -> Any:
        return ((to_integers(groups, scale) * scale - groups).square() * importance).sum(-1)

    grid = groups.abs().amax(-1, keepdim=True) / torch.linspace(5, 16, 1500)
    least = torch.stack([torch.minimum(error(s), error(-s)) for s in grid.T.unsqueeze(-1)]).amin(0)
    found = error(choose_scales(groups, importance))
    assert (found <= error(groups.abs().amax(-1, keepdim=True) / 7.5) * 1.0001).all()
    assert found.sum() <= 1.5 * least.sum()


def test_values_fit_into_four_bits_and_zeros_stay(random: Any) -> None:
    weight = torch.randn(6, 4 * GROUP, generator=random)
    weight[:, :GROUP] = 0
    weight[0] = 0
    for rounded in (quantize_nearest(weight, GROUP), quantize_gptq(weight, GROUP, torch.eye(4 * GROUP))):
        assert rounded.values.dtype == torch.int8
        assert rounded.scales.shape == (6, 4)
        assert rounded.scales.isfinite().all()
        assert -8 <= rounded.values.min() < rounded.values.max() <= 7
        assert not rounded.weight()[:, :GROUP].any()
        assert not rounded.weight()[0].any()
        assert (rounded.weight() - weight).abs().max() < 0.3
        above, below = rounded.split([2, 4])
        assert torch.cat([above.weight(), below.weight()]).equal(rounded.weight())


def test_independent_inputs_leave_nothing_to_make_good(random: Any) -> None:
    weight = torch.randn(5, 2 * GROUP, generator=random)
    nearest, fed_back = quantize_nearest(weight, GROUP), quantize_gptq(weight, GROUP, torch.eye(2 * GROUP))
    assert nearest.values.equal(fed_back.values)
    assert torch.allclose(nearest.scales, fed_back.scales)


def test_feedback_comes_near_the_best_there_is(random: Any) -> None:
    """Compared with all possible integers of a row of six weights at the chosen scale."""
    found = best = nearest = 0.0
    for _ in range(5):
        weight = torch.randn(1, 6, generator=random)
        inputs = torch.randn(50, 3, generator=random) @ torch.randn(3, 6, generator=random)
        inputs += 0.3 * torch.randn(inputs.shape, generator=random)
        moments = inputs.T @ inputs
        rounded = quantize_gptq(weight, 6, moments)
        floor = (weight / rounded.scales).floor()[0]
        offsets = torch.tensor(list(itertools.product((-1, 0, 1, 2), repeat=6)))
        errors = (floor + offsets).clamp(-8, 7) * rounded.scales - weight
        best += float((errors @ moments * errors).sum(-1).min())
        found += loss(weight, rounded, inputs)
        nearest += loss(weight, quantize_nearest(weight, 6), inputs)
    assert best <= found * 1.0001
    assert found < 3 * best
    assert found < nearest


@pytest.mark.parametrize("family", ["llama", "qwen2"])  # with one table, with two
def test_a_whole_model_loses_less(family: str, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_folder(family, tmp_path))
    weights = checkpoint.weights()
    texts = torch.tensor(calibration_texts(checkpoint.vocabulary, VOCABULARY)[:8])
    with torch.no_grad():
        rounded = quantize_model_gptq(executorch_parameters(checkpoint), weights, texts, 32)
        expected = Decoder(executorch_parameters(checkpoint), weights)(texts)
        matrices = {name for name, weight in weights.items() if weight.ndim == 2}
        assert set(rounded) == matrices
        plain = {name: by_extremes(weights[name], 32).weight() for name in matrices}
        better = {name: matrix.weight() for name, matrix in rounded.items()}
        errors = [
            float(
                (Decoder(executorch_parameters(checkpoint), weights | chosen)(texts) - expected)
                .square()
                .mean()
            )
            for chosen in (plain, better)
        ]
    assert errors[1] < 0.7 * errors[0]
    assert (rounded[EMBEDDING] is rounded[OUTPUT]) == (family == "llama")


def test_calibration_texts_use_the_chat_template(tmp_path: Path) -> None:
    vocabulary = read_checkpoint(write_folder("llama", tmp_path)).vocabulary
    texts = calibration_texts(vocabulary, VOCABULARY)
    assert len(texts) > 10
    assert {len(text) for text in texts} == {TEXT_TOKENS}
    assert max(map(max, texts)) < VOCABULARY
    assert sum(text.count(0) for text in texts) > 40  # two turns in each conversation, ended by token 0
    plain = Vocabulary("tokenizer.bin", {"tokenizer.bin": STORIES.read_bytes()}, bos_id=1, adds_bos=True)
    tokens = [token for text in calibration_texts(plain, 32000) for token in text]
    assert 15 < tokens.count(1) < 30  # once for each conversation
    assert max(map(max, calibration_texts(plain, 500))) < 500


def test_linear_layers_of_8_bits() -> None:
    pytest.importorskip("torch.ao.quantization.fx._decomposed")  # the operator that widens weights
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
