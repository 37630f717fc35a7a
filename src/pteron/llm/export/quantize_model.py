"""Quantises what ExecuTorch's own quantisers do not: 4-bit weights by GPTQ, and 8-bit linear layers.

GPTQ calibrates with conversations.json, rendered by the model's chat template.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pteron.errors import InputError
from pteron.llm.chat import render
from pteron.llm.export.checkpoint import EMBEDDING, OUTPUT, Vocabulary, Weights
from pteron.llm.export.decoder import Decoder, Tensor
from pteron.llm.tokenizers.load import load_tokenizer

CONVERSATIONS = Path(__file__).with_name("conversations.json")  # pairs of a question and an answer
TEXT_TOKENS = 256  # of each calibration text
INT8_MAX = 127


def calibration_texts(vocabulary: Vocabulary, vocabulary_size: int) -> list[list[int]]:
    """Token ids of texts of equal length; ids outside the embedding table are left out."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in vocabulary.files.items():
            (Path(folder) / name).write_bytes(content)
        tokenizer = load_tokenizer(folder)
    ids: list[int] = []
    for question, answer in json.loads(CONVERSATIONS.read_text("utf-8")):
        text = _rendered(question, answer, vocabulary.chat_template)
        ids += tokenizer.encode(text, bos=vocabulary.adds_bos, special=True)
    ids = [id for id in ids if id < vocabulary_size]
    length = min(TEXT_TOKENS, len(ids))
    return [ids[start : start + length] for start in range(0, len(ids) - length + 1, max(length, 1))]


def _rendered(question: str, answer: str, template: str | None) -> str:
    """A conversation by the chat template; plain text if there is none or it raises."""
    if template is not None:
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        try:
            return render(messages, template, add_generation_prompt=False)
        except InputError:
            pass
    return f"{question}\n\n{answer}\n\n"


def quantize_model_gptq(
    parameters: dict[str, Any], weights: Weights, tokens: Tensor, group: int
) -> dict[str, QuantizedMatrix]:
    """All matrices by name, quantised layer by layer, each with the inputs that the quantised layers before
    it give. `tokens` are the calibration texts, [texts, tokens].

    An embedding table that is also the output matrix is quantised as the output matrix and stored once.
    """
    import torch

    weights = dict(weights)
    decoder = Decoder(parameters, weights)
    found: dict[str, QuantizedMatrix] = {}

    def quantize(names: list[str], inputs: Tensor) -> None:
        """Quantise matrices that have the same inputs."""
        matrices = [weights[name] for name in names]
        # Normalised: each token has the same influence.
        rows = torch.nn.functional.normalize(inputs.flatten(0, 1))
        quantized = quantize_gptq(torch.cat(matrices), group, rows.T @ rows)
        for name, part in zip(names, quantized.split([len(matrix) for matrix in matrices]), strict=True):
            found[name], weights[name] = part, part.weight()

    hidden = decoder.embed(tokens)
    for layer in range(decoder.layers):
        attention, feed_forward = f"layers.{layer}.attention", f"layers.{layer}.feed_forward"
        inputs = decoder.attention_input(hidden, layer)
        quantize([f"{attention}.{kind}.weight" for kind in ("wq", "wk", "wv")], inputs)
        inputs = decoder.attended(inputs, layer)
        quantize([f"{attention}.wo.weight"], inputs)
        hidden = decoder.after_attention(hidden, inputs, layer)
        inputs = decoder.feed_forward_input(hidden, layer)
        quantize([f"{feed_forward}.{kind}.weight" for kind in ("w1", "w3")], inputs)
        inputs = decoder.gated(inputs, layer)
        quantize([f"{feed_forward}.w2.weight"], inputs)
        hidden = decoder.after_feed_forward(hidden, inputs, layer)
    table = weights[EMBEDDING]
    is_shared = weights[OUTPUT].equal(table)
    quantize([OUTPUT], decoder.norm(hidden, "norm"))
    found[EMBEDDING] = found[OUTPUT] if is_shared else quantize_nearest(table, group)
    return found


def replace_weights(model: Any, matrices: dict[str, QuantizedMatrix]) -> None:
    """Overwrite the integers and scales in the quantised modules of ExecuTorch's model."""
    import torch

    with torch.no_grad():
        for name, matrix in matrices.items():
            module = model.get_submodule(name.removesuffix(".weight"))
            if name == EMBEDDING:
                if hasattr(module, "scales"):  # it is quantised
                    first, second = (matrix.values + 8).to(torch.uint8).unflatten(1, (-1, 2)).unbind(-1)
                    module.weight.copy_(first * 16 + second)
                    module.scales.copy_(matrix.scales.view_as(module.scales))
            else:
                module.weight.qdata.copy_(matrix.values)
                module.weight.scale.copy_(matrix.scales)


def quantize_8_bits(model: Any) -> None:
    """Replace all linear layers by layers with int8 weights and a scale per row.

    ExecuTorch's exporter of language models has no such mode for the GPU, but the delegate's exporter fuses a
    linear layer with dequantised int8 weights into one operator (`aten._weight_int8pack_mm`).
    """
    import torch

    dequantize = torch.ops.quantized_decomposed.dequantize_per_channel.default

    class Int8Linear(torch.nn.Module):  # type: ignore[misc]  # untyped
        def __init__(self, weight: Any, bias: Any) -> None:
            super().__init__()
            scales = weight.abs().amax(1).div(INT8_MAX).clamp_min(torch.finfo(torch.float32).tiny)
            self.register_buffer("weight", (weight / scales[:, None]).round().to(torch.int8))
            self.register_buffer("scales", scales)
            self.register_buffer("zeros", torch.zeros(len(weight), dtype=torch.int64))
            self.bias = bias

        def forward(self, values: Any) -> Any:
            weight = dequantize(self.weight, self.scales, self.zeros, 0, -INT8_MAX, INT8_MAX, torch.int8)
            return torch.nn.functional.linear(values, weight, self.bias)

    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, Int8Linear(child.weight.detach(), child.bias))


# One matrix: 4-bit integers from -8 to 7, with a scale for each group of columns in a row ------------

LOWEST, HIGHEST = -8, 7
# Candidates for a group's scale, as multiples of (largest weight / -8); above 1 the largest weight is
# clipped. The first two are the plain choice, with either sign.
REACHES = (7.5 / 8, -7.5 / 8, 1.0, 1.07, 1.14, 1.22, 1.3)
DAMPING = 0.01  # of the mean second moment, added to the diagonal: some inputs may be zero in all texts


@dataclass
class QuantizedMatrix:
    values: Tensor  # int8 [rows, columns]
    scales: Tensor  # float32 [rows, groups]

    def weight(self) -> Tensor:
        group = self.values.shape[1] // self.scales.shape[1]
        return self.values * self.scales.repeat_interleave(group, 1)

    def split(self, rows: list[int]) -> list[QuantizedMatrix]:
        parts = zip(self.values.split(rows), self.scales.split(rows), strict=True)
        return [QuantizedMatrix(*part) for part in parts]


def quantize_nearest(weight: Tensor, group: int) -> QuantizedMatrix:
    """Round each weight to the nearest integer at its group's scale: the scale with the least squared
    error."""
    import torch

    groups = weight.unflatten(1, (-1, group))
    scales = choose_scales(groups, torch.ones(group))
    return QuantizedMatrix(to_integers(groups, scales).flatten(1).to(torch.int8), scales.squeeze(-1))


def quantize_gptq(weight: Tensor, group: int, moments: Tensor) -> QuantizedMatrix:
    """Round column by column, and compensate the error of each in the columns after it. `moments` is inputsᵀ
    · inputs, [columns, columns]."""
    import torch

    rows, columns = weight.shape
    factor = compensation_factor(moments)
    pivots = factor.diagonal()
    pending = weight.clone()
    values = torch.empty(rows, columns, dtype=torch.int8)
    scales = torch.empty(rows, columns // group)
    for start in range(0, columns, group):
        end = start + group
        scale = choose_scales(pending[:, start:end], pivots[start:end] ** -2)
        errors = torch.empty(rows, group)
        for column in range(start, end):
            rounded = to_integers(pending[:, column : column + 1], scale)
            values[:, column] = rounded[:, 0].to(torch.int8)
            error = (pending[:, column : column + 1] - rounded * scale) / pivots[column]
            pending[:, column + 1 : end] -= error * factor[column, column + 1 : end]
            errors[:, column - start] = error[:, 0]
        pending[:, end:] -= errors @ factor[start:end, end:]
        scales[:, start // group] = scale[:, 0]
    return QuantizedMatrix(values, scales)


def compensation_factor(moments: Tensor) -> Tensor:
    """The upper Cholesky factor of the moments' inverse.

    The error of column j, divided by the diagonal element j, times row j is what to subtract from the columns
    after it; the square of the quotient is the remaining loss.
    """
    import torch

    damped = moments.double()
    diagonal = damped.diagonal()
    diagonal += DAMPING * diagonal.mean() + 1e-12  # positive also if all inputs are zero
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True).float()


def choose_scales(groups: Tensor, importance: Tensor) -> Tensor:
    """The scales [..., 1] of groups [..., group]; `importance` weights the squared error of each column.

    For each candidate the integers are computed, then the best scale for these integers. Scales may be
    negative, because -8 has no positive counterpart.
    """
    import torch

    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    largest = torch.where(largest == 0, 1.0, largest)
    chosen, least = torch.ones_like(largest), torch.full_like(largest, torch.inf)
    for reach in REACHES:
        values = to_integers(groups, largest / (LOWEST * reach))
        weighted = values * importance
        squares = (weighted * values).sum(-1, keepdim=True)
        scale = (weighted * groups).sum(-1, keepdim=True) / squares
        error = (values * scale - groups).square_().mul_(importance).sum(-1, keepdim=True)
        is_better = error < least
        chosen, least = torch.where(is_better, scale, chosen), torch.where(is_better, error, least)
    return chosen


def to_integers(values: Tensor, scale: Tensor) -> Tensor:
    """Integers, stored as floats."""
    return (values / scale).round_().clamp_(LOWEST, HIGHEST)
