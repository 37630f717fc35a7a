"""The parts of decoders. A part is called with a network, hidden states [1, tokens, dim] and the place of its
weights; it adds nodes to the network and returns new hidden states.

A family combines these parts, or writes its own: any function with these arguments is a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.rotary import Rotary, rows_at_positions
from pteron.llm.network.graph import Argument, Tensor
from pteron.llm.network.network import Network

Part: TypeAlias = Callable[[Network, Tensor, str], Tensor]

# Places outside the layers.
EMBEDDING, OUTPUT, NORM = "tok_embeddings", "output", "norm"
POSITION_TABLE, EMBEDDING_NORM = "positions", "embedding_norm"


@dataclass(frozen=True)
class RmsNorm:
    eps: float

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        return net.rms_norm(x, place, self.eps)


@dataclass(frozen=True)
class LayerNorm:
    """With a weight, unless it has none, and the bias that the checkpoint has."""

    eps: float
    has_weight: bool = True

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        return net.layer_norm(x, place, self.eps, has_weight=self.has_weight)


@dataclass(frozen=True)
class IfPresent:
    """A norm that some checkpoints of a family have; GGUF files have no flag for it."""

    norm: Part

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        return self.norm(net, x, place) if net.has(f"{place}.weight") else x


@dataclass(frozen=True)
class HeadLayerNorm:
    """A layer norm of each head, with weights [heads, width]."""

    eps: float

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        return self.weighted(net, x, place, net.float_constant(f"{place}.weight"))

    def weighted(self, net: Network, x: Tensor, place: str, weight: Tensor) -> Tensor:
        if weight.shape != x.shape[-2:]:
            raise FormatError(
                f"{place} is {list(weight.shape)}, but the configuration requires {list(x.shape[-2:])}"
            )
        return net.multiply(net.layer_norm(x, place, self.eps, has_weight=False), net.prepacked(weight))


def _silu(net: Network, x: Tensor) -> Tensor:
    return net.multiply(x, net.unary("aten.sigmoid.default", x))


def _relu2(net: Network, x: Tensor) -> Tensor:
    positive = net.unary("aten.relu.default", x)
    return net.multiply(positive, positive)


# By the names in Hugging Face's configurations.
ACTIVATIONS: dict[str, Callable[[Network, Tensor], Tensor]] = {
    "silu": _silu,
    "swish": _silu,
    "gelu": lambda net, x: net.unary("aten.gelu.default", x, "none"),
    "gelu_new": lambda net, x: net.unary("aten.gelu.default", x, "tanh"),
    "gelu_fast": lambda net, x: net.unary("aten.gelu.default", x, "tanh"),
    "gelu_pytorch_tanh": lambda net, x: net.unary("aten.gelu.default", x, "tanh"),
    "relu": lambda net, x: net.unary("aten.relu.default", x),
    "relu2": _relu2,
}


def activation(name: str) -> Callable[[Network, Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise UnsupportedError(f"activation {name!r}; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


@dataclass(frozen=True)
class GatedMlp:
    """w2(activation(w1 x) * w3 x), such as SwiGLU."""

    activation: str

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        gate = activation(self.activation)(net, net.linear(x, f"{place}.w1"))
        return net.linear(net.multiply(gate, net.linear(x, f"{place}.w3")), f"{place}.w2")


@dataclass(frozen=True)
class Mlp:
    """w2(activation(w1 x))."""

    activation: str

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        return net.linear(activation(self.activation)(net, net.linear(x, f"{place}.w1")), f"{place}.w2")


@dataclass(frozen=True)
class Attention:
    """Causal attention with a KV cache. Options beyond `scale` need the operator `pteron.attention`."""

    heads: int
    kv_heads: int
    head_dim: int
    rotary: Rotary | None = None  # None: no positions (NoPE)
    head_norm: Part | None = None  # of each head of queries and keys, before the rotation
    rotated_norm: Part | None = None  # the same, after the rotation
    projection_norm: Part | None = None  # of all queries and of all keys, before they are split into heads
    scale: float | None = None  # of scores; None: 1 / √head_dim
    window: int | None = None  # keys that a query sees, its own included
    softcap: float | None = None
    has_sinks: bool = False  # weights `<place>.sinks.weight` [heads]
    slopes: tuple[float, ...] = ()  # ALiBi
    clip: float | None = None  # of queries, keys and values
    # (b, n): queries are multiplied with 1 + b · log(1 + ⌊position / n⌋)
    temperature: tuple[float, int] | None = None
    output_gate: bool = False  # the result is multiplied with sigmoid(`<place>.wg` x)

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        queries = self._project(net, x, place, "q", self.heads)
        keys = self._project(net, x, place, "k", self.kv_heads)
        values = self._clipped(net, net.linear(x, f"{place}.wv", self.kv_heads, self.head_dim))
        queries, keys = self._normed(net, self.head_norm, queries, keys, place)
        if self.rotary:
            queries, keys = self.rotary(net, queries, keys)
        queries, keys = self._normed(net, self.rotated_norm, queries, keys, place)
        if self.temperature:
            queries = net.multiply(queries, self._temperatures(net))
        attended = self._attend(net, queries, keys, values, place)
        if self.output_gate:
            gate = net.linear(x, f"{place}.wg", self.heads, self.head_dim)
            attended = net.multiply(attended, net.unary("aten.sigmoid.default", gate))
        return net.linear(attended, f"{place}.wo")

    def _project(self, net: Network, x: Tensor, place: str, kind: str, heads: int) -> Tensor:
        if self.projection_norm is None:
            return self._clipped(net, net.linear(x, f"{place}.w{kind}", heads, self.head_dim))
        normed = self.projection_norm(net, net.linear(x, f"{place}.w{kind}"), f"{place}.{kind}_norm_fn")
        return self._clipped(net, net.view(normed, *x.sizes[:2], heads, self.head_dim))

    def _temperatures(self, net: Network) -> Tensor:
        """The factors of the queries of a call, [1, tokens, 1, 1]."""
        assert self.temperature is not None
        beta, length = self.temperature

        def make() -> Tensor:
            factors = 1 + beta * np.log1p(np.arange(net.longest) // length)
            table = net.prepacked(net.computed(factors[:, None].astype(np.float32)))
            return net.view(rows_at_positions(net, table), 1, net.tokens, 1, 1)

        return net.once(("temperatures", self.temperature), make)

    def _clipped(self, net: Network, x: Tensor) -> Tensor:
        return x if self.clip is None else net.unary("aten.clamp.default", x, -self.clip, self.clip)

    def _normed(
        self, net: Network, norm: Part | None, queries: Tensor, keys: Tensor, place: str
    ) -> tuple[Tensor, Tensor]:
        if norm is None:
            return queries, keys
        return norm(net, queries, f"{place}.q_norm_fn"), norm(net, keys, f"{place}.k_norm_fn")

    def _attend(self, net: Network, queries: Tensor, keys: Tensor, values: Tensor, place: str) -> Tensor:
        caches = [net.state((1, net.context, self.kv_heads, self.head_dim)) for _ in range(2)]
        # A window at least as long as any context hides nothing.
        window = self.window if self.window is not None and self.window < net.longest else None
        arguments: tuple[Argument, ...] = (queries, keys, values, *caches, net.start)
        if window is None and not self.softcap and not self.has_sinks and not self.slopes:
            rest: tuple[Argument, ...] = (1, None, 0, True, self.scale)  # seq_len, mask, dropout, is_causal
            return net.graph.call("sdpa_with_kv_cache.default", *arguments, *rest, out=queries.sizes)
        sinks = net.float_constant(f"{place}.sinks.weight") if self.has_sinks else None
        slopes = net.computed(np.array(self.slopes, np.float32)) if self.slopes else None
        options: tuple[Argument, ...] = (self.scale, window, self.softcap, sinks, slopes, None)
        return net.graph.call("pteron.attention.default", *arguments, *options, out=queries.sizes)


@dataclass(frozen=True)
class Block:
    """A layer: attention and MLP, each added to the hidden states.

    x + attention(norm x), then x + mlp(norm x). Norms of a result come before it is added. `parallel`:
    x + attention(norm x) + mlp(norm x), with one norm for both if the checkpoint has no second.
    """

    attention: Part
    mlp: Part
    input_norm: Part | None
    result_norm: Part | None = None  # of what is added
    sum_norm: Part | None = None  # of hidden states after each addition
    parallel: bool = False
    residual_scale: float = 1.0  # of what is added

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        normed = self._normed(net, x, f"{place}.attention_norm")
        attended = self._result(net, self.attention(net, normed, f"{place}.attention"), place, "attention")
        after = self._sum(net, x, attended, f"{place}.attention_norm")
        if not self.parallel:
            normed = self._normed(net, after, f"{place}.ffn_norm")
        elif net.has(f"{place}.ffn_norm.weight"):
            normed = self._normed(net, x, f"{place}.ffn_norm")
        fed = self._result(net, self.mlp(net, normed, f"{place}.feed_forward"), place, "ffn")
        return self._sum(net, after, fed, f"{place}.ffn_norm")

    def _sum(self, net: Network, x: Tensor, result: Tensor, place: str) -> Tensor:
        summed = net.add(x, result)
        return self.sum_norm(net, summed, place) if self.sum_norm else summed

    def _normed(self, net: Network, x: Tensor, place: str) -> Tensor:
        return self.input_norm(net, x, place) if self.input_norm else x

    def _result(self, net: Network, result: Tensor, place: str, kind: str) -> Tensor:
        if self.result_norm:
            result = self.result_norm(net, result, f"{place}.{kind}_result_norm")
        return net.scaled(result, self.residual_scale)


@dataclass(frozen=True)
class Decoder:
    """A whole model: tokens -> logits, of the last token or, with `full_logits`, of all."""

    layers: tuple[Part, ...]
    norm: Part | None
    embedding_scale: float = 1.0
    embedding_norm: Part | None = None
    has_positions: bool = False  # learned ones, weights `positions` [tokens, dim], added to embeddings
    has_projections: bool = False  # between embeddings and layers, and between layers and logits
    logit_scale: float = 1.0
    logit_softcap: float | None = None

    def __call__(self, net: Network) -> Tensor:
        x = self._embedded(net)
        for index, layer in enumerate(self.layers):
            x = layer(net, x, f"layers.{index}")
        if not net.options.full_logits:
            x = net.graph.call("aten.select_copy.int", x, 1, -1, out=(1, x.sizes[-1]))
        if self.norm:
            x = self.norm(net, x, NORM)
        if self.has_projections:
            x = net.linear(x, "project_out")
        logits = net.scaled(net.linear(x, OUTPUT), self.logit_scale)
        if self.logit_softcap:
            bounded = net.unary("aten.tanh.default", net.scaled(logits, 1 / self.logit_softcap))
            logits = net.scaled(bounded, self.logit_softcap)
        return logits

    def _embedded(self, net: Network) -> Tensor:
        x = net.scaled(net.embedding(EMBEDDING), self.embedding_scale)
        if self.embedding_norm:
            x = self.embedding_norm(net, x, EMBEDDING_NORM)
        if self.has_projections:
            x = net.linear(x, "project_in")
        if self.has_positions:
            x = net.add(x, self._positions(net, x))
        return x

    def _positions(self, net: Network, x: Tensor) -> Tensor:
        stored = net.weight(f"{POSITION_TABLE}.weight")
        if len(stored.shape) != 2 or stored.shape[1] != x.shape[-1]:
            raise FormatError(f"learned positions are {list(stored.shape)}, hidden states {list(x.shape)}")
        if stored.rows < net.context:
            raise UnsupportedError(
                f"a context of {net.context} tokens: the model has learned positions for {stored.rows}; "
                f"max_context_len must be at most {stored.rows}"
            )
        net.limit_context(stored.rows)
        table = net.prepacked(net.float_constant(f"{POSITION_TABLE}.weight"))
        return rows_at_positions(net, table)
