"""All matrices of a checkpoint -> 4 bits, layer by layer, each knowing what enters it from those before."""

from __future__ import annotations

from typing import Any

from pteron.llm.export.checkpoint import EMBEDDING, OUTPUT, Weights
from pteron.llm.export.decoder import Decoder, Tensor
from pteron.llm.export.rounding import Rounded, to_nearest, with_feedback


def round_weights(
    parameters: dict[str, Any],
    weights: Weights,
    tokens: Tensor,
    group: int,
) -> dict[str, Rounded]:
    """The matrices by name. `tokens` are texts to calibrate by, [texts, tokens].

    A table that serves as the output matrix, too, is rounded as that: read as an embedding it loses next to
    nothing, and the program holds it once.
    """
    import torch

    weights = dict(weights)
    decoder = Decoder(parameters, weights)
    found: dict[str, Rounded] = {}

    def round_together(names: list[str], entering: Tensor) -> None:
        """Matrices that take the same inputs."""
        matrices = [weights[name] for name in names]
        # Every token counts alike, however large what it brings is.
        rows = torch.nn.functional.normalize(entering.flatten(0, 1))
        rounded = with_feedback(torch.cat(matrices), group, rows.T @ rows)
        for name, part in zip(names, rounded.split([len(matrix) for matrix in matrices]), strict=True):
            found[name], weights[name] = part, part.weight()

    hidden = decoder.embed(tokens)
    for layer in range(decoder.layers):
        attention, feed_forward = f"layers.{layer}.attention", f"layers.{layer}.feed_forward"
        entering = decoder.attention_input(hidden, layer)
        round_together([f"{attention}.{kind}.weight" for kind in ("wq", "wk", "wv")], entering)
        entering = decoder.attended(entering, layer)
        round_together([f"{attention}.wo.weight"], entering)
        hidden = decoder.after_attention(hidden, entering, layer)
        entering = decoder.feed_forward_input(hidden, layer)
        round_together([f"{feed_forward}.{kind}.weight" for kind in ("w1", "w3")], entering)
        entering = decoder.gated(entering, layer)
        round_together([f"{feed_forward}.w2.weight"], entering)
        hidden = decoder.after_feed_forward(hidden, entering, layer)
    table = weights[EMBEDDING]
    is_shared = weights[OUTPUT].equal(table)
    round_together([OUTPUT], decoder.norm(hidden, "norm"))
    found[EMBEDDING] = found[OUTPUT] if is_shared else to_nearest(table, group)
    return found


def put_into(model: Any, rounded: dict[str, Rounded]) -> None:
    """Give the quantised modules of ExecuTorch's model other integers and scales, where they have any."""
    import torch

    with torch.no_grad():
        for name, matrix in rounded.items():
            module = model.get_submodule(name.removesuffix(".weight"))
            if name == EMBEDDING:
                if hasattr(module, "scales"):
                    first, second = (matrix.values + 8).to(torch.uint8).unflatten(1, (-1, 2)).unbind(-1)
                    module.weight.copy_(first * 16 + second)
                    module.scales.copy_(matrix.scales.view_as(module.scales))
            else:
                module.weight.qdata.copy_(matrix.values)
                module.weight.scale.copy_(matrix.scales)
