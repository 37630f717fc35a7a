"""Apertus: Llama with norms of heads and a plain MLP, whose activation xIELU has learned parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log1p

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, require_settings, stack
from pteron.llm.architectures.names import GGUF_PLAIN_MLP, PLAIN_MLP, Names
from pteron.llm.architectures.parts import Decoder
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


@dataclass(frozen=True)
class XieluMlp:
    """w2(xIELU(w1 x)). xIELU is p·x² + b·x above 0, and n·(exp(x) - 1 - x) + b·x below. Its parameters are
    weights; GGUF files have them in their metadata."""

    stated: tuple[float, float, float] | None = None

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        alpha_p, alpha_n, beta = self.stated or _weights(net, place)
        y = net.linear(x, f"{place}.w1")
        above, below = net.unary("aten.relu.default", y), net.unary("aten.clamp.default", y, -1e30, 0.0)
        square = net.scaled(net.multiply(above, above), _softplus(alpha_p))
        curved = net.add(net.unary("aten.expm1.default", below), net.scaled(below, -1.0))
        bent = net.add(square, net.scaled(curved, beta + _softplus(alpha_n)))
        return net.linear(net.add(bent, net.scaled(y, beta)), f"{place}.w2")


def _weights(net: Network, place: str) -> tuple[float, float, float]:
    net.unused.pop(f"{place}.eps", None)  # a bound near 0, where exp(x) - 1 - x is 0 in float32
    found = [float(net.weight(f"{place}.{name}").read().flat[0]) for name in ("alpha_p", "alpha_n", "beta")]
    return found[0], found[1], found[2]


def _softplus(x: float) -> float:
    return max(x, 0.0) + log1p(exp(-abs(x)))


def decoder(config: Config) -> Decoder:
    require_settings(config, hidden_act="xielu")
    lists = [config.get(f"xielu.{name}") for name in ("alpha_p", "alpha_n", "beta")]
    stated = zip(*lists, strict=True) if all(lists) else [None] * len(config.layers)
    return stack(config, config.attention(head_norm=config.norm), [XieluMlp(each) for each in stated])


_PARAMETERS = ("alpha_p", "alpha_n", "beta", "eps")
NAMES: Names = {
    **PLAIN_MLP,
    "model.layers.{}.attention_layernorm": "layers.{}.attention_norm",
    "model.layers.{}.feedforward_layernorm": "layers.{}.ffn_norm",
    **{f"model.layers.{{}}.mlp.act_fn.{name}": f"layers.{{}}.feed_forward.{name}" for name in _PARAMETERS},
}
FAMILIES = {"apertus": Family(decoder, NAMES, GGUF_PLAIN_MLP)}
