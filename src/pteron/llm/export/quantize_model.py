"""Quantises what ExecuTorch's own quantisers do not: 4-bit weights by GPTQ, and 8-bit linear layers.

GPTQ calibrates with conversations.json, rendered by the model's chat template.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from pteron.errors import InputError
from pteron.llm.chat import render
from pteron.llm.export.checkpoint import EMBEDDING, OUTPUT, Vocabulary, Weights
from pteron.llm.export.decoder import Decoder, Tensor
from pteron.llm.export.quantize_weights import QuantizedMatrix, quantize_gptq, quantize_nearest
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
